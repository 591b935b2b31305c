# amaranth: UnusedElaboratable=no
"""Marks of blocks in RTLIL."""

import re

from amaranth.back import rtlil
from amaranth.hdl import Module, Signal

from haloconv.flow.synthesis.marks import block_name, mark_blocks


def hierarchy() -> str:
    """Return RTLIL: ``a`` doubles its input in a register, ``top`` passes it on to ``a.b``."""
    data, doubled, last = (Signal(8, name=name) for name in ("data", "doubled", "last"))
    top, outer, inner = Module(), Module(), Module()
    outer.d.sync += doubled.eq(data + data)
    inner.d.comb += last.eq(doubled ^ 3)
    outer.submodules.b = inner
    top.submodules.a = outer
    return rtlil.convert(top, name="chip.x", ports=[data, last], emit_src=False)


def wires(text: str) -> dict[tuple[str, str], str | None]:
    """Return the block that each wire is marked with, by module and wire."""
    found: dict[tuple[str, str], str | None] = {}
    module, mark = "", None
    for line in text.split("\n"):
        if line.startswith("module "):
            module = line[8:]
        elif match := re.fullmatch(r'  attribute \\haloconv_driver "(.*)"', line):
            mark = match[1]
        elif line.startswith("  wire "):
            found[module, line.split("\\")[-1]] = mark
            mark = None
    return found


def test_signals_are_marked_where_they_are_driven() -> None:
    marked = wires(mark_blocks(hierarchy(), "chip.x"))
    assert marked["chip.x.a", "doubled"] == "a"
    assert marked["chip.x.a.b", "last"] == "a.b"
    # Inputs, and what an instance drives.
    assert marked["chip.x.a", "data"] is None
    assert marked["chip.x.a", "clk"] is None
    assert marked["chip.x.a.b", "doubled"] is None
    assert marked["chip.x.a", "last"] is None
    assert marked["chip.x", "last"] is None


def test_cells_are_marked() -> None:
    text = mark_blocks(hierarchy(), "chip.x")
    modules = dict(re.findall(r"module \\(\S+)\n(.*?)\nend\n", text, re.DOTALL))
    for module, block in (("chip.x", "top"), ("chip.x.a", "a"), ("chip.x.a.b", "a.b")):
        cells = len(re.findall(r"^  (?:cell|process|memory) ", modules[module], re.MULTILINE))
        marks = re.findall(r'^  attribute \\src "(.*)"$', modules[module], re.MULTILINE)
        assert marks == [f"block:{block}"] * cells
        assert cells


def test_nothing_else_changes() -> None:
    text = hierarchy()
    lines = mark_blocks(text, "chip.x").split("\n")
    kept = [line for line in lines if "haloconv_driver" not in line and "src" not in line]
    assert "\n".join(kept) == text


def test_names_of_blocks() -> None:
    assert block_name("datapath.operands$183") == "datapath.operands"
    assert block_name("datapath$7.queue$1.fifo") == "datapath.queue.fifo"
    assert block_name("") == "top"
