"""The fused additions: each form against its definition, and the ECP5's against the plain one."""

import random
import subprocess
import sys
from types import SimpleNamespace

import pytest
from amaranth import Module, signed
from amaranth.back import rtlil
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from haloconv.rtl import fused_sum
from haloconv.rtl.fused_sum import masked_sum, picked_sum, selected_sum


class Sums(wiring.Component):
    """All three, of operands narrower than the result by ``short`` bits."""

    def __init__(self, width, short=0):
        self.width = width
        operand = In(signed(width - short))
        super().__init__(
            {
                "a": operand, "b": operand, "c": operand, "one": In(1), "other": In(1),
                **{name: Out(signed(width)) for name in ("selected", "masked", "picked")},
            }
        )  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        w, a, b, c, one, other = self.width, self.a, self.b, self.c, self.one, self.other
        m.d.comb += [
            self.selected.eq(selected_sum(m, platform, "x", w, a, one, b, c)),
            self.masked.eq(masked_sum(m, platform, "y", w, a, one, b)),
            self.picked.eq(picked_sum(m, platform, "z", w, a, b, one, other)),
        ]
        return m


@pytest.mark.parametrize(("width", "short"), [(1, 0), (5, 0), (9, 2), (32, 8)])
def test_sums_by_definition(width, short):
    dut = Sums(width, short)
    rng = random.Random(width)
    bits = width - short

    def wrapped(value):
        return (value + 2 ** (width - 1)) % 2**width - 2 ** (width - 1)

    async def bench(ctx):
        for _ in range(300):
            a, b, c = (rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1)) for _ in range(3))
            one, other = rng.getrandbits(1), rng.getrandbits(1)
            for name, value in {"a": a, "b": b, "c": c, "one": one, "other": other}.items():
                ctx.set(getattr(dut, name), value)
            await ctx.delay(1e-9)
            assert ctx.get(dut.selected) == wrapped(a + (b if one else c))
            assert ctx.get(dut.masked) == wrapped(a + (b if one else 0))
            assert ctx.get(dut.picked) == wrapped((b if other else a) if one else a + b)

    simulator = Simulator(dut)
    simulator.add_testbench(bench)
    simulator.run()


def proves_equal(folder, width, short, family="ecp5"):
    """Let Yosys' solver look for inputs at which the family's form and plain sums differ."""
    for name, platform in (("plain", None), ("fused", SimpleNamespace(haloconv_family=family))):
        text = rtlil.convert(Sums(width, short), name=name, platform=platform, emit_src=False)
        assert ("CCU2C" in text) == (name == "fused" and family == "ecp5")
        (folder / f"{name}.il").write_text(text)
    script = "; ".join(
        (
            f"read_rtlil {folder}/fused.il",
            "read_verilog -nooverwrite +/lattice/cells_sim_ecp5.v",
            "hierarchy -check -top fused",
            "proc",
            "flatten",
            f"read_rtlil {folder}/plain.il",
            "miter -equiv -flatten plain fused miter",
            "sat -verify -prove trigger 0 miter",
        )
    )
    # In a process of its own: it reports what it finds by its end.
    code = f"from pyosys import libyosys as y; d = y.Design(); y.run_pass({script!r}, d)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if "SAT proof finished" not in run.stdout:
        raise AssertionError(run.stdout[-2000:] + run.stderr[-2000:])
    return run.returncode == 0


@pytest.mark.parametrize("width", [1, 9])
def test_the_form_for_the_ice40_is_equal_for_all_inputs(tmp_path, width):
    assert proves_equal(tmp_path, width, 0, "ice40")


@pytest.mark.parametrize(("width", "short"), [(1, 0), (2, 0), (7, 3), (24, 1), (32, 0)])
def test_carry_cells_are_equal_for_all_inputs(tmp_path, width, short):
    assert proves_equal(tmp_path, width, short)


@pytest.mark.parametrize("table", ["SELECTED", "MASKED", "PICKED"])
def test_a_wrong_table_is_found(tmp_path, monkeypatch, table):
    # Carries as B, where A is the one that is always added.
    monkeypatch.setattr(fused_sum, table, getattr(fused_sum, table) & ~0xF | 0xC)
    assert not proves_equal(tmp_path, 4, 0)
