# amaranth: UnusedElaboratable=no
"""nextpnr on small designs."""

import json
import re
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, signed

from haloconv.flow.place_route import PlacementError, PlacementResult, place_and_route
from haloconv.flow.place_route.devices import device_of
from haloconv.flow.place_route.run import _options  # pyright: ignore[reportPrivateUsage]
from haloconv.flow.synthesis import synthesize_rtlil
from haloconv.flow.synthesis.rtlil import design_rtlil

DEVICES = {"ecp5": "LFE5U-12F", "ice40": "iCE40UP5K"}


def netlist(family: str, folder: Path, *, products: int = 1, bits: int = 8) -> Path:
    """Synthesise products of operands, summed up in a block of their own."""
    a, b = (Signal(signed(bits), name=name) for name in "ab")
    total = Signal(signed(3 * bits), name="total")
    top, multiply, add = Module(), Module(), Module()
    values = []
    for index in range(products):
        product = Signal(signed(2 * bits), name=f"product_{index}")
        multiply.d.sync += product.eq((a + index) * (b - index))
        values.append(product)
    add.d.sync += total.eq(total + sum(values))
    top.submodules.multiply, top.submodules.add = multiply, add
    text = design_rtlil(top, family, top="sums", ports=[a, b, total])
    path = folder / f"{family}.json"
    synthesize_rtlil(text, family, top="sums", netlist=path)
    return path


@pytest.fixture(scope="module", params=DEVICES)
def placed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    family = request.param
    path = netlist(family, tmp_path_factory.mktemp("placed"))
    return family, path, place_and_route(path, DEVICES[family], seeds=(1, 2, 3, 1))


@pytest.mark.slow
def test_clock_and_path(placed: tuple[str, Path, PlacementResult]) -> None:
    _, _, result = placed
    assert [run.seed for run in result.runs] == [1, 2, 3, 1]
    assert result.runs[0] == result.runs[3], "the same seed gives the same result"
    clocks = sorted(run.fmax_mhz for run in result.runs)
    assert result.fmax_mhz == pytest.approx((clocks[1] + clocks[2]) / 2)
    for run in result.runs:
        assert run.clock == "clk"
        assert run.critical_path is not None
        stages = {stage.block for stage in run.critical_path.stages}
        assert stages <= {"multiply", "add", "frame", "top"} and stages & {"multiply", "add"}
        assert 1000 / run.fmax_mhz == pytest.approx(run.critical_path.delay_ns, rel=0.01)
    assert result.frame is not None
    assert (result.frame.inputs, result.frame.outputs) == (17, 24)


@pytest.mark.slow
def test_utilisation_leaves_the_frame_out(placed: tuple[str, Path, PlacementResult]) -> None:
    family, path, result = placed
    cells = [
        cell["type"]
        for module in json.loads(path.read_text())["modules"].values()
        if "top" in module["attributes"]
        for cell in module["cells"].values()
    ]
    used = {name: count for name, (count, _) in result.median_run.utilisation.items()}
    if family == "ecp5":
        assert used["TRELLIS_FF"] == cells.count("TRELLIS_FF")
        assert used["MULT18X18D"] == cells.count("MULT18X18D") == 1
    else:
        assert used["ICESTORM_DSP"] == cells.count("SB_MAC16") == 1
        # A register sits in the cell of the LUT before it; a carry chain may add one at its ends.
        luts = cells.count("SB_LUT4")
        registers = sum(cell.startswith("SB_DFF") for cell in cells)
        assert max(luts, registers) <= used["ICESTORM_LC"] <= luts + registers + 4


@pytest.mark.parametrize(
    ("device", "placed", "second"),
    [
        ("LFE5U-85F", True, False),
        ("LFE5U-85F", False, True),
        ("LFE5U-25F", False, True),
        ("iCE40UP5K", False, False),
    ],
)
def test_options_of_an_engine_that_has_places(device: str, placed: bool, second: bool) -> None:
    chosen = device_of(device)
    options = _options(chosen, chosen.package, chosen.speed, chosen.frequency, placed)
    assert (" ".join(options).count("--router router2") == 1) is second
    weighted = " ".join(options).count("--placer-heap-timingweight 30") == 1
    assert weighted is (chosen.family == "ecp5")


@pytest.mark.slow
def test_bitstream(tmp_path: Path) -> None:
    """Pins by constraints instead of a frame, and a bitstream that starts as the maker says."""
    path = netlist("ice40", tmp_path, bits=4)
    places = iter(
        [35, 10, 2, 3, 4, 6, 9, 11, 12, 13, 18, 19, 20, 21, 23, 25, 26, 27, 28, 31, 32, 34]
    )
    lines = [f"set_io {name} {next(places)}" for name in ("clk", "rst")]
    for name, width in (("a", 4), ("b", 4), ("total", 12)):
        lines += [f"set_io {name}[{bit}] {next(places)}" for bit in range(width)]
    constraints = tmp_path / "pins.pcf"
    constraints.write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(PlacementError, match=r"ERROR.*total\[11\]"):
        place_and_route(path, "iCE40UP5K", seeds=[1], constraints=constraints)
    constraints.write_text("\n".join(lines) + "\n")
    bitstream = tmp_path / "made" / "sums.bin"
    result = place_and_route(
        path, "iCE40UP5K", seeds=[1, 2], constraints=constraints, bitstream=bitstream
    )
    assert result.frame is None
    assert result.bitstream == bitstream
    # Comment, then the synchronisation word of iCE40.
    assert b"\x7e\xaa\x99\x7e" in bitstream.read_bytes()[:256]
    assert len(bitstream.read_bytes()) > 100_000


def test_arguments(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    for options, message in (
        ({"device": "XC7"}, "Device must be one of"),
        ({"seeds": ()}, "Seeds must be at least one"),
        ({"seeds": (-1,)}, "Seed must be at least 0, not -1"),
        ({"bitstream": tmp_path / "x.bit"}, "A bitstream needs constraints"),
        ({"frequency": 0.0}, "Frequency must be more than 0 MHz"),
        ({"device": "iCE40UP5K", "speed": "7"}, "iCE40UP5K has one speed only"),
    ):
        arguments = {"device": "LFE5U-85F", **options}
        with pytest.raises(ValueError, match=re.escape(message)):
            place_and_route(missing, arguments.pop("device"), **arguments)


@pytest.mark.slow
def test_a_design_that_does_not_fit(tmp_path: Path) -> None:
    """Nine multipliers on a device with eight."""
    path = netlist("ice40", tmp_path, products=9)
    with pytest.raises(PlacementError, match=r"iCE40UP5K sg48 \(seed 1\) failed .*ERROR"):
        place_and_route(path, "iCE40UP5K", seeds=[1])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "JSONDecodeError"),
        ("[1, 2]", "TypeError"),
        ('{"foo": 2}', "KeyError('modules')"),
        ('{"modules": {"top": {}}}', "KeyError('attributes')"),
        ('{"modules": {"top": {"attributes": {"top": "1"}, "cells": []}}}', "AttributeError"),
        (
            '{"modules": {"a": {"attributes": {"top": "1"}, "cells": {"b": {"type": "SB_DFF"}}}}}',
            "--family ecp5, and is one for ice40",
        ),
    ],
)
def test_what_is_no_netlist_for_the_device(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "netlist.json"
    path.write_text(text)
    wanted = rf"netlist\.json must be a netlist of haloconv synth.*{re.escape(why)}"
    with pytest.raises(ValueError, match=wanted):
        place_and_route(path, "LFE5U-25F", seeds=[1])
