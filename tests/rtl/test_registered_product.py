# amaranth: UnusedElaboratable=no
"""Registered products: by definition, and the iCE40's multiplier by Yosys' model of it.

The ECP5's has no model in Yosys; small netlists with it run with a model of ours here, and
tests/flow/test_netlist_truth.py holds whole engines with it against the golden model.
"""

import json
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

from haloconv.flow.synthesis import synthesize_rtlil
from haloconv.flow.synthesis.rtlil import plain_names
from haloconv.rtl.registered_product import registered_product
from haloconv.sim.backends import cxxrtl

from ..support.netlist_simulation import run_ports, top_of

SHAPES = [(signed(9), signed(9)), (signed(16), unsigned(15)), (unsigned(17), unsigned(16))]


class Product(wiring.Component):
    def __init__(self, a, b, cycles=1):
        self.cycles = cycles
        width = a.width + b.width
        out = signed(width) if a.signed or b.signed else unsigned(width)
        super().__init__({"a": In(a), "b": In(b), "o": Out(out)})

    def elaborate(self, platform):
        m = Module()
        product = registered_product(m, platform, "x", self.a, self.b, cycles=self.cycles)
        m.d.comb += self.o.eq(product)
        return m


def text_for(family, a, b, name="top", *, cycles=1):
    platform = SimpleNamespace(haloconv_family=family)
    return rtlil.convert(Product(a, b, cycles), name=name, platform=platform, emit_src=False)


def random_value(rng, shape):
    """The ends of the range as often as all between them."""
    low = -(1 << shape.width - 1) if shape.signed else 0
    return rng.choice((low, low + (1 << shape.width) - 1, low + rng.getrandbits(shape.width)))


def random_pairs(a, b, count):
    rng = random.Random(3)
    return [(random_value(rng, a), random_value(rng, b)) for _ in range(count)]


@pytest.mark.parametrize("cycles", [1, 2])
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_the_product_of_the_cycles_before(a, b, cycles):
    """Zero until the first can be there: all registers begin so."""
    dut, pairs, seen = Product(a, b, cycles), random_pairs(a, b, 200), []

    async def bench(ctx):
        for x, y in pairs:
            ctx.set(dut.a, x)
            ctx.set(dut.b, y)
            seen.append(ctx.get(dut.o))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen == ([0] * cycles + [x * y for x, y in pairs])[: len(pairs)]


@pytest.mark.parametrize("cycles", [0, 3, None])
def test_other_cycles_are_refused(cycles):
    for family in (None, "ecp5", "ice40"):
        with pytest.raises(ValueError, match=f"Cycles of a product must be 1 or 2, not {cycles}"):
            text_for(family, signed(9), signed(9), cycles=cycles)


def test_each_family_has_its_multiplier():
    nine = signed(9)
    assert "MULT18X18D" in text_for("ecp5", nine, nine)
    assert "SB_MAC16" in text_for("ice40", nine, nine)
    # Its unsigned operands would need a bit more.
    assert "SB_MAC16" not in text_for("ice40", nine, unsigned(16))
    for family in (None, "xilinx", "gowin", "nexus"):
        assert "cell \\" not in text_for(family, nine, nine)


@pytest.mark.parametrize("cycles", [1, 2])
def test_operands_have_registers_in_the_multiplier_for_two_cycles_only(cycles):
    def parameters(family):
        text = text_for(family, signed(9), signed(9), cycles=cycles)
        # None is left outside.
        assert "$dff" not in text and "process" not in text
        return dict(re.findall(r"parameter \\(\w+) (\S+)", text))

    ecp5 = parameters("ecp5")
    wanted = {
        f"REG_INPUT{operand}_{line}": f'"{line}0"'
        for operand in "AB"
        for line in ("CLK", "CE", "RST")
    }
    assert {name: ecp5[name] for name in ecp5 if "INPUT" in name} == (wanted if cycles == 2 else {})
    assert ecp5["REG_OUTPUT_CLK"] == '"CLK0"'
    ice40 = parameters("ice40")
    assert ice40["A_REG"] == ice40["B_REG"] == f"1'{cycles - 1}"
    assert ice40["PIPELINE_16x16_MULT_REG2"] == "1'1"


@pytest.mark.skipif(cxxrtl.unavailable() is not None, reason=str(cxxrtl.unavailable()))
@pytest.mark.parametrize("cycles", [1, 2])
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_the_ecp5s_operands_stand_at_the_upper_end(a, b, cycles, tmp_path):
    """And the netlist gives the products of the definition, in their cycles."""
    path = tmp_path / "netlist.json"
    text = plain_names(text_for("ecp5", a, b, cycles=cycles))
    result = synthesize_rtlil(text, "ecp5", top="top", netlist=path)
    netlist = json.loads(path.read_text())
    assert result.cells == {"MULT18X18D": 1}, "nothing but the multiplier"
    (cell,) = (cell for cell in top_of(netlist)["cells"].values() if cell["type"] == "MULT18X18D")
    pins, ports = cell["connections"], top_of(netlist)["ports"]
    low = 0
    for port, shape in (("a", a), ("b", b)):
        bits = ports[port]["bits"]
        sign = [] if shape.signed else ["0"]
        zeros = 18 - shape.width - len(sign)
        assert [pins[f"{port.upper()}{index}"][0] for index in range(18)] == (
            ["0"] * zeros + bits + sign
        )
        low += zeros
    product = ports["o"]["bits"]
    assert [pins[f"P{low + index}"][0] for index in range(len(product))] == product

    pairs = random_pairs(a, b, 300)
    stimuli = {
        "a": [x % (1 << a.width) for x, _ in pairs],
        "b": [y % (1 << b.width) for _, y in pairs],
    }
    products = [x * y % (1 << len(product)) for x, y in pairs]
    assert run_ports(netlist, stimuli) == {"o": ([0] * cycles + products)[: len(pairs)]}


def test_operands_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="an operand of x_b must fit 18 bits, not unsigned"):
        text_for("ecp5", signed(9), unsigned(18))


@pytest.mark.skipif(find_spec("pyosys") is None, reason="pyosys is not installed")
@pytest.mark.parametrize("cycles", [1, 2])
def test_the_ice40s_multiplier_is_equal_by_its_model(cycles, tmp_path):
    five = signed(5)
    # The one model of the file, as Yosys reads all of its cells for half a minute.
    found = find_spec("pyosys")
    assert found is not None and found.origin is not None
    cells = Path(found.origin).parent / "share" / "ice40" / "cells_sim.v"
    models = re.findall(r"^module SB_MAC16\b.*?^endmodule", cells.read_text(), re.DOTALL | re.M)
    (model,) = models
    timeless = re.sub(r"\bspecify\b.*?\bendspecify\b", "", model, flags=re.DOTALL)
    (tmp_path / "mac16.v").write_text(timeless)
    (tmp_path / "fused.il").write_text(text_for("ice40", five, five, "fused", cycles=cycles))
    (tmp_path / "plain.il").write_text(text_for(None, five, five, "plain", cycles=cycles))
    # Nothing is known of registers at the start, so cycles until they are filled do not count.
    steps = f"-seq {cycles + 2} -prove-skip {cycles + 1}"
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
        f"sat -verify {steps} -set in_rst 0 -prove trigger 0 miter",
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
