"""What the primitives of each FPGA family count as."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

__all__ = ["FAMILIES", "Area", "Family", "family_of", "primitive_counts"]


@dataclass(frozen=True)
class Area:
    """Primitives of an FPGA family.

    Attributes
    ----------
    luts : int
        Look-up tables, whatever their inputs; on nexus a WIDEFN9 is two.
    ffs : int
        Flip-flops.
    carries : int
        Carry primitives: CCU2C and CCU2 (two bits each), SB_CARRY and ALU (one), CARRY4 (four).
    lut_rams : int
        Small memories in LUT sites, shift registers included. They are not among ``luts``.
    dsps : int
        Multiplier primitives.
    block_rams : int
        In the family's smaller block: DP16KD, SB_RAM40_4K, RAMB18E1 (a RAMB36E1 is two), 18 kbit
        of gowin and nexus.
    large_rams : int
        SB_SPRAM256KA on ice40, LRAM on nexus.
    """

    luts: int = 0
    ffs: int = 0
    carries: int = 0
    lut_rams: int = 0
    dsps: int = 0
    block_rams: int = 0
    large_rams: int = 0

    @property
    def lut4(self) -> int:
        """LUT sites with two for each carry primitive, which is what CCU2C takes on ecp5.

        The same holds on nexus. An SB_CARRY shares its site with the LUT, a CARRY4 takes none,
        and an ALU of gowin takes one, so other families are compared by ``luts``.
        """
        return self.luts + 2 * self.carries

    def __add__(self, other: "Area") -> "Area":
        """Return the sum, primitive by primitive."""
        return Area(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(Area))
        )

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, int]) -> "Area":
        """Return the area that :meth:`to_dict` described."""
        return cls(**values)


@dataclass(frozen=True)
class Family:
    """How a family is synthesised, and what its primitives count as.

    ``kinds`` are (pattern of cell types, attribute of :class:`Area`, how many); the first match
    counts. Multiplexers between LUTs, buffers, pins, PLLs and constants count as nothing.
    ``hidden`` are (cell type, Yosys' library with it) of primitives that ``command`` would change
    where a design writes them out, and that it therefore must not recognise. ``luts`` takes the
    place of the step ``map_luts`` of ``command``, if there is any; ``script`` is what ABC does in
    that step to map gates to LUTs, where it is not the default. ``output_registers`` says that
    registers behind block RAM are moved into it afterwards.
    """

    command: str
    kinds: tuple[tuple[str, str, int], ...]
    hidden: tuple[tuple[str, str], ...] = ()
    luts: tuple[str, ...] = ()
    script: str = ""
    output_registers: bool = False


_FAMILIES = {
    "ecp5": Family(
        "synth_lattice -family ecp5",
        (
            (r"LUT4", "luts", 1),
            (r"TRELLIS_FF", "ffs", 1),
            (r"CCU2C", "carries", 1),
            (r"TRELLIS_DPR16X4", "lut_rams", 1),
            (r"MULT(9X9|18X18)D", "dsps", 1),
            (r"DP16KD|PDPW16KD", "block_rams", 1),
            (r"PFUMX|L6MUX21|TRELLIS_IO|EHXPLLL", "", 0),
        ),
        # Yosys takes 300 ps for a net; routed, most of those on slow paths take three times as
        # long. Told so, ABC spends its LUTs on short paths; told how short is short enough, it
        # finds smaller ones.
        luts=("check -latchonly -assert", "abc9 -W 900 -D 6500", "clean"),
        output_registers=True,
    ),
    "ice40": Family(
        # Few enables with few registers each: the eight cells of a tile share theirs.
        "synth_ice40 -dsp -spram -dffe_min_ce_use 6",
        (
            (r"SB_LUT4", "luts", 1),
            (r"SB_DFF\w*", "ffs", 1),
            (r"SB_CARRY", "carries", 1),
            (r"SB_MAC16", "dsps", 1),
            (r"SB_RAM40_4K\w*", "block_rams", 1),
            (r"SB_SPRAM256KA", "large_rams", 1),
            (r"SB_IO|SB_GB|SB_GB_IO|SB_PLL40_\w+", "", 0),
        ),
        # ice40_dsp takes such a cell for a bare multiplier and sets all its registers anew.
        hidden=(("SB_MAC16", "+/ice40/cells_sim.v"),),
        # Twice, and the better of both: 1 % fewer LUTs for a few seconds. Yosys' own scripts of
        # that kind fail on some designs, as their &synch2 loses the order of carries.
        script="+&scorr; &sweep; &dc2; &dch -C 500; &if -m {W} {D} {R} -v; &mfs; &save; "
        "&st; &dch -C 500; &if -m {W} {D} {R} -v; &mfs; &save; &load",
    ),
    "xilinx": Family(
        "synth_xilinx -family xc7 -flatten",
        (
            (r"LUT[1-6]|LUT6_2|INV", "luts", 1),
            (r"FD[RSCP]E(_1)?|LD[CP]E", "ffs", 1),
            (r"CARRY4", "carries", 1),
            (r"RAM\d+(M|X\d+[SD])(_1)?|SRL16E|SRLC32E|SRLC16E", "lut_rams", 1),
            (r"DSP48E1", "dsps", 1),
            (r"RAMB18E1", "block_rams", 1),
            (r"RAMB36E1", "block_rams", 2),
            (r"MUXF[789]|[IO]BUF|BUFG|GND|VCC", "", 0),
        ),
    ),
    "gowin": Family(
        "synth_gowin",
        (
            (r"LUT[1-4]", "luts", 1),
            (r"DFF\w*|DL\w*", "ffs", 1),
            (r"ALU", "carries", 1),
            (r"RAM16S\w+", "lut_rams", 1),
            (r"MULT(9X9|18X18|36X36)|MULTALU\w+|MULTADDALU\w+", "dsps", 1),
            (r"(SP|SDP|SDPB|DP|DPB|PROM|pROM)(X9B?)?", "block_rams", 1),
            (r"MUX2_LUT[5-8]|MUX2|[IO]BUF|GND|VCC|GSR", "", 0),
        ),
    ),
    "nexus": Family(
        "synth_nexus",
        (
            (r"LUT4|INV", "luts", 1),
            (r"WIDEFN9", "luts", 2),
            (r"FD1P3\w+", "ffs", 1),
            (r"CCU2", "carries", 1),
            (r"DPR16X4", "lut_rams", 1),
            (r"MULT\w+|ACC54|PREADD9\w*", "dsps", 1),
            (r"PDPSC16K\w*|PDP16K\w*|DP16K\w*|SP16K\w*", "block_rams", 1),
            (r"(SP|DPSC|PDPSC|DP)512K\w*", "large_rams", 1),
            (r"VHI|VLO|IB|OB", "", 0),
        ),
    ),
}

FAMILIES = tuple(_FAMILIES)
"""Families that are known; "xilinx" is the 7 series."""


def family_of(name: str) -> Family:
    """Return a family by its name.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if name not in _FAMILIES:
        raise ValueError(f"Family must be one of {', '.join(FAMILIES)}, not {name!r}")
    return _FAMILIES[name]


def primitive_counts(cells: Mapping[str, int], family: str) -> Area:
    """Return what cells count as.

    Parameters
    ----------
    cells : mapping of str to int
        Cells by type.
    family : str

    Raises
    ------
    ValueError
        For a family or a type of cell that is not known; a cell that is passed over would make a
        design look smaller than it is.
    """
    counts: dict[str, int] = {}
    kinds = family_of(family).kinds
    for cell, number in cells.items():
        for pattern, attribute, each in kinds:
            if re.fullmatch(pattern, cell):
                if attribute:
                    counts[attribute] = counts.get(attribute, 0) + number * each
                break
        else:
            raise ValueError(f"Cell {cell!r} is no primitive known of {family}")
    return Area(**counts)
