# amaranth: UnusedElaboratable=no
"""Sums of products by definition, and as the iCE40's netlist of them."""

import json
import random
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from haloconv.rtl.product_sum import product_sum

WIDTH = 24
CONTROLS = ("add", "load", "clear")


class Sum(wiring.Component):
    def __init__(self):
        super().__init__(
            {
                "a": In(signed(9)), "b": In(signed(9)), "value": In(signed(WIDTH)),
                **{name: In(1) for name in CONTROLS}, "o": Out(signed(WIDTH)),
            }
        )  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        # Begins low: one that begins high is inverted on the iCE40, by a gate.
        clear = Signal()
        m.d.sync += clear.eq(self.clear)
        result = product_sum(
            m, platform, "x", self.a, self.b,
            add=self.add, load=self.load, value=self.value, clear=clear,
        )  # fmt: skip
        m.d.comb += self.o.eq(result)
        return m


def stimuli(seed: int, cycles: int) -> dict[str, list[int]]:
    """Random operands; a clear now and then, so that sums of some length come about."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    found: dict[str, list[int]] = {
        name: [rng.choice((-256, 255, rng.randrange(-256, 256))) for _ in range(cycles)]
        for name in "ab"
    }
    found["value"] = [rng.randrange(-(1 << WIDTH - 1), 1 << WIDTH - 1) for _ in range(cycles)]
    for name, chance in zip(CONTROLS, (0.7, 0.1, 0.05), strict=True):
        found[name] = [int(rng.random() < chance) for _ in range(cycles)]
    return found


def expected(inputs: dict[str, list[int]]) -> list[int | None]:
    """What the register shows in each cycle; None where it may show zero or not yet.

    ``clear`` stands behind a register.
    """
    total, product, clear = 0, 0, 0
    shown: list[int | None] = []
    for cycle in range(len(inputs["a"])):
        shown.append(None if clear else total)
        if clear:
            total = 0
        elif inputs["load"][cycle]:
            total = inputs["value"][cycle]
        elif inputs["add"][cycle]:
            total += product
            total = (total + (1 << WIDTH - 1)) % (1 << WIDTH) - (1 << WIDTH - 1)
        product = inputs["a"][cycle] * inputs["b"][cycle]
        clear = inputs["clear"][cycle]
    return shown


def differences(shown: list[int], wanted: list[int | None]) -> list[tuple[int, int, int]]:
    return [
        (cycle, value, want)
        for cycle, (value, want) in enumerate(zip(shown, wanted, strict=True))
        if want is not None and value != want
    ]


def test_by_definition():
    dut, inputs, shown = Sum(), stimuli(5, 400), []

    async def bench(ctx):
        for cycle in range(400):
            for name, values in inputs.items():
                ctx.set(getattr(dut, name), values[cycle])
            shown.append(ctx.get(dut.o))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert differences(shown, expected(inputs)) == []


def test_the_netlist_of_the_ice40(tmp_path: Path) -> None:
    """One multiplier and no adder of logic."""
    pytest.importorskip("pyosys")
    from haloconv.flow.synthesis import synthesize_rtlil
    from haloconv.flow.synthesis.rtlil import design_rtlil

    from ..support.netlist_simulation import run_ports, top_of

    path = tmp_path / "netlist.json"
    synthesize_rtlil(design_rtlil(Sum(), "ice40", top="sums"), "ice40", top="sums", netlist=path)
    netlist = json.loads(path.read_text())
    kinds = [cell["type"] for cell in top_of(netlist)["cells"].values()]
    assert kinds.count("SB_MAC16") == 1 and "SB_CARRY" not in kinds
    inputs = stimuli(6, 400)
    widths = {"a": 9, "b": 9, "value": WIDTH}
    bits = {
        name: [value % (1 << widths.get(name, 1)) for value in values]
        for name, values in inputs.items()
    }
    shown = [value - (value >> WIDTH - 1 << WIDTH) for value in run_ports(netlist, bits)["o"]]
    assert differences(shown, expected(inputs)) == []
