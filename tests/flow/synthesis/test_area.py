"""What primitives count as."""

import json
import re

import pytest

from haloconv.flow.synthesis.area import FAMILIES, Area, family_of, primitive_counts


def test_families() -> None:
    assert FAMILIES == ("ecp5", "ice40", "xilinx", "gowin", "nexus")
    with pytest.raises(ValueError, match=re.escape("Family must be one of ecp5, ice40")):
        family_of("spartan")


@pytest.mark.parametrize(
    ("family", "cells", "area"),
    [
        pytest.param(
            "ecp5",
            {"LUT4": 7, "PFUMX": 3, "L6MUX21": 1, "CCU2C": 2, "TRELLIS_FF": 5,
             "TRELLIS_DPR16X4": 4, "MULT18X18D": 6, "DP16KD": 8},
            Area(luts=7, carries=2, ffs=5, lut_rams=4, dsps=6, block_rams=8),
            id="ecp5",
        ),
        pytest.param(
            "ice40",
            {"SB_LUT4": 7, "SB_CARRY": 2, "SB_DFF": 1, "SB_DFFESR": 2, "SB_DFFNSS": 4,
             "SB_MAC16": 3, "SB_RAM40_4K": 5, "SB_RAM40_4KNR": 1, "SB_SPRAM256KA": 2},
            Area(luts=7, carries=2, ffs=7, dsps=3, block_rams=6, large_rams=2),
            id="ice40",
        ),
        pytest.param(
            "xilinx",
            {"LUT1": 1, "LUT6": 2, "INV": 4, "MUXF7": 9, "CARRY4": 3, "FDRE": 5, "FDSE": 1,
             "RAM32M": 2, "RAM64X1D": 1, "SRL16E": 1, "DSP48E1": 6, "RAMB18E1": 1, "RAMB36E1": 3,
             "IBUF": 9, "OBUF": 9, "BUFG": 1},
            Area(luts=7, carries=3, ffs=6, lut_rams=4, dsps=6, block_rams=7),
            id="xilinx",
        ),
        pytest.param(
            "gowin",
            {"LUT1": 1, "LUT4": 2, "MUX2_LUT5": 9, "ALU": 3, "DFFR": 5, "DFFE": 1, "RAM16SDP4": 2,
             "MULT9X9": 6, "SDPX9B": 1, "DPB": 2, "IBUF": 4, "OBUF": 4, "GND": 1, "VCC": 1},
            Area(luts=3, carries=3, ffs=6, lut_rams=2, dsps=6, block_rams=3),
            id="gowin",
        ),
        pytest.param(
            "nexus",
            {"LUT4": 2, "INV": 1, "WIDEFN9": 3, "CCU2": 4, "FD1P3IX": 5, "FD1P3DX": 1,
             "DPR16X4": 2, "MULT9X9": 6, "PDPSC16K": 1, "VHI": 1, "VLO": 1},
            Area(luts=9, carries=4, ffs=6, lut_rams=2, dsps=6, block_rams=1),
            id="nexus",
        ),
    ],
)  # fmt: skip
def test_counts(family: str, cells: dict[str, int], area: Area) -> None:
    assert primitive_counts(cells, family) == area


def test_an_unknown_cell_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("Cell 'SB_LUT4' is no primitive known of ecp5")):
        primitive_counts({"LUT4": 1, "SB_LUT4": 1}, "ecp5")


def test_lut4_counts_two_for_a_carry() -> None:
    assert Area(luts=100, carries=20, lut_rams=5).lut4 == 140


def test_sum_and_json() -> None:
    first = Area(luts=1, ffs=2, carries=3, lut_rams=4, dsps=5, block_rams=6, large_rams=7)
    total = first + Area(luts=10, large_rams=1)
    assert total == Area(11, 2, 3, 4, 5, 6, 8)
    assert Area.from_dict(json.loads(json.dumps(total.to_dict()))) == total
