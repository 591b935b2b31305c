# amaranth: UnusedElaboratable=no
"""RTLIL as synthesis takes it."""

import re
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib.memory import Memory

from haloconv.flow.synthesis.rtlil import (
    TOP,
    design_rtlil,
    engine_rtlil,
    plain_names,
    unchecked_reads,
)
from haloconv.planner.config import EngineConfig


def test_elements_of_arrays_are_renamed() -> None:
    text = (
        "wire width 32 \\sum\n"
        "wire width 16 \\sum[1]\n"
        "wire width 8 \\rows[1].lane[12]\n"
        "connect \\sum [15:0] { \\sum[1] [7:0] \\rows[1].lane[12] [3] }\n"
    )
    assert plain_names(text) == (
        "wire width 32 \\sum\n"
        "wire width 16 \\sum.1\n"
        "wire width 8 \\rows.1.lane.12\n"
        "connect \\sum [15:0] { \\sum.1 [7:0] \\rows.1.lane.12 [3] }\n"
    )


def test_the_engine_is_the_top() -> None:
    config = EngineConfig(out_lanes=1, split_lanes=1, bus_bytes=1, psum_bytes=0, roundings=())
    text = engine_rtlil(config, "ecp5")
    assert f"module \\{TOP}\n" in text
    assert f"module \\{TOP}.datapath\n" in text
    assert ".py" not in text, "no source paths, so that it is the same everywhere"
    assert engine_rtlil(config, "ecp5") == text


class Asks(Elaboratable):
    """Remembers the platform that it was built for."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.flag = Signal()

    def elaborate(self, platform: Any) -> Module:
        self.seen.append(platform.haloconv_family)
        m = Module()
        m.d.sync += self.flag.eq(1)
        return m


def test_blocks_are_told_the_family() -> None:
    design = Asks()
    design_rtlil(design, "nexus", top="asks", ports=[design.flag])
    assert design.seen == ["nexus"]

    class Board:
        haloconv_family = "gowin"

    design_rtlil(design, "ecp5", top="asks", platform=Board(), ports=[design.flag])
    assert design.seen == ["nexus", "gowin"]


def memories() -> str:
    """Return RTLIL of three memories: with the attribute, with it but unclocked, and without."""
    m = Module()
    for name, attrs, domain in (
        ("free", {"no_rw_check": 1}, "sync"),
        ("comb", {"no_rw_check": 1}, "comb"),
        ("kept", {}, "sync"),
    ):
        words = Memory(shape=8, depth=16, init=[], attrs=attrs)
        m.submodules[name] = words
        words.write_port()
        words.read_port(domain=domain)
    return rtlil.convert(m, name="x", ports=[Signal()], emit_src=False)


def test_only_reads_that_may_give_anything_are_changed() -> None:
    text = memories()
    changed = unchecked_reads(text)
    pairs = zip(text.split("\n"), changed.split("\n"), strict=True)
    differences = [(before, after) for before, after in pairs if before != after]
    (change,) = differences
    assert re.sub(r"\d'0", "1'1", change[0]) == change[1]
    assert "COLLISION_X_MASK" in change[1]
    cells = re.findall(r"  cell \$memrd_v2 .*?\n  end\n", changed, re.DOTALL)
    (cell,) = (cell for cell in cells if change[1] in cell)
    assert re.search(r"MEMID .*free", cell)
