# amaranth: UnusedElaboratable=no
"""Registered products: by definition, and the iCE40's multiplier by Yosys' model of it.

The ECP5's has no model in Yosys; tests/flow/test_netlist_truth.py holds whole engines with it
against the golden model.
"""

import random
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from haloconv.rtl.registered_product import registered_product


class Product(wiring.Component):
    def __init__(self, a, b):
        width = a.width + b.width
        out = signed(width) if a.signed or b.signed else unsigned(width)
        super().__init__({"a": In(a), "b": In(b), "o": Out(out)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(registered_product(m, platform, "x", self.a, self.b))
        return m


def text_for(family, a, b, name="top"):
    platform = SimpleNamespace(haloconv_family=family)
    return rtlil.convert(Product(a, b), name=name, platform=platform, emit_src=False)


@pytest.mark.parametrize(
    ("a", "b"),
    [(signed(9), signed(9)), (signed(16), unsigned(15)), (unsigned(17), unsigned(16))],
)
def test_the_product_of_the_cycle_before(a, b):
    dut = Product(a, b)
    rng = random.Random(3)

    def value(shape):
        low = -(1 << shape.width - 1) if shape.signed else 0
        return rng.choice((low, low + (1 << shape.width) - 1, low + rng.getrandbits(shape.width)))

    async def bench(ctx):
        for _ in range(200):
            x, y = value(a), value(b)
            ctx.set(dut.a, x)
            ctx.set(dut.b, y)
            await ctx.tick()
            assert ctx.get(dut.o) == x * y

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_each_family_has_its_multiplier():
    nine = signed(9)
    assert "MULT18X18D" in text_for("ecp5", nine, nine)
    assert "SB_MAC16" in text_for("ice40", nine, nine)
    # Its unsigned operands would need a bit more.
    assert "SB_MAC16" not in text_for("ice40", nine, unsigned(16))
    for family in (None, "xilinx", "gowin", "nexus"):
        assert "cell \\" not in text_for(family, nine, nine)


def test_operands_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="an operand of x_b must fit 18 bits, not unsigned"):
        text_for("ecp5", signed(9), unsigned(18))


@pytest.mark.skipif(find_spec("pyosys") is None, reason="pyosys is not installed")
def test_the_ice40s_multiplier_is_equal_by_its_model(tmp_path):
    five = signed(5)
    # The one model of the file, as Yosys reads all of its cells for half a minute.
    found = find_spec("pyosys")
    assert found is not None and found.origin is not None
    cells = Path(found.origin).parent / "share" / "ice40" / "cells_sim.v"
    models = re.findall(r"^module SB_MAC16\b.*?^endmodule", cells.read_text(), re.DOTALL | re.M)
    (model,) = models
    timeless = re.sub(r"\bspecify\b.*?\bendspecify\b", "", model, flags=re.DOTALL)
    (tmp_path / "mac16.v").write_text(timeless)
    (tmp_path / "fused.il").write_text(text_for("ice40", five, five, "fused"))
    (tmp_path / "plain.il").write_text(text_for(None, five, five, "plain"))
    commands = (
        f"read_rtlil {tmp_path}/fused.il",
        f"read_verilog -D NO_ICE40_DEFAULT_ASSIGNMENTS -nooverwrite {tmp_path}/mac16.v",
        "hierarchy -check -top fused",
        "proc",
        "flatten",
        f"read_rtlil {tmp_path}/plain.il",
        "proc",
        "async2sync",
        "opt -full",
        "miter -equiv -flatten plain fused miter",
        "opt -full",
        "sat -verify -seq 3 -prove-skip 2 -set in_rst 0 -prove trigger 0 miter",
    )
    code = f"""
from pyosys import libyosys
design = libyosys.Design()
for command in {commands!r}:
    libyosys.run_pass(command, design)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "SAT proof finished" in run.stdout, run.stdout[-2000:] + run.stderr[-2000:]
    assert run.returncode == 0
