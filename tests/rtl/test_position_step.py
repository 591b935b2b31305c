"""Steps of positions against numbers of words."""

import random
from types import SimpleNamespace

import pytest
from amaranth import Module, Signal
from amaranth.back import rtlil
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.rtl.position_step import one_of, stepped
from haloconv.rtl.widths import Position
from haloconv.sim.streams import plain, simulate

LANES = (1, 2, 3, 4, 6, 8)


class Step(wiring.Component):
    def __init__(self, config):
        self.config = config
        position = Position(config)
        super().__init__(
            {
                "bank": In(6), "word": In(24), "select": In(1), "one": In(position),
                "other": In(position), "moved": Out(position),
            }
        )  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        moved = stepped(
            m, platform, self.config, "step", self.bank, self.word, self.select, self.one,
            self.other,
        )  # fmt: skip
        m.d.comb += self.moved.eq(moved)
        return m


@pytest.mark.parametrize("words", [16, 11])
@pytest.mark.parametrize("lanes", LANES)
def test_random_steps(lanes, words):
    """A position is the number word * Pr + bank; steps go forwards and backwards."""
    rng = random.Random(f"{lanes} {words}")
    config = EngineConfig(out_lanes=1, split_lanes=lanes, input_bytes=words * lanes * lanes)
    dut, count = Step(config), 2 * words * lanes

    async def bench(ctx):
        for _ in range(200):
            numbers = [rng.randrange(count), rng.randrange(count)]
            select = rng.getrandbits(1)
            target = rng.randrange(count)
            word, bank = divmod(target - numbers[1 - select], lanes)
            for name, number in zip(("one", "other"), numbers, strict=True):
                ctx.set(getattr(dut, name), {"bank": number % lanes, "word": number // lanes})
            ctx.set(dut.select, select)
            ctx.set(dut.bank, bank)
            ctx.set(dut.word, word % (1 << 24))
            await ctx.tick()
            moved = plain(ctx.get(dut.moved))
            assert moved["word"] * lanes + moved["bank"] == target

    simulate(clocked(dut), bench, check_loops=False)


def clocked(dut):
    """A combinational block beside a register, as a simulation needs a clock."""
    m = Module()
    m.submodules.dut = dut
    register = Signal()
    m.d.sync += register.eq(~register)
    return m


def test_carry_cells_on_the_ecp5():
    config = EngineConfig(out_lanes=1, split_lanes=4, input_bytes=256)
    text = rtlil.convert(Step(config), platform=SimpleNamespace(haloconv_family="ecp5"))
    assert "CCU2C" in text


class OneOf(wiring.Component):
    def __init__(self):
        super().__init__({"which": In(3), "values": In(12), "chosen": Out(4)})

    def elaborate(self, platform):
        m = Module()
        values = (self.values[4 * k : 4 * k + 4] for k in range(3))
        m.d.comb += self.chosen.eq(one_of(*zip(self.which, values, strict=True)))
        return m


def test_one_of():
    dut = OneOf()

    async def bench(ctx):
        ctx.set(dut.values, 0xA5C)
        for which, expected in ((1, 0xC), (2, 0x5), (4, 0xA), (0, 0)):
            ctx.set(dut.which, which)
            await ctx.tick()
            assert ctx.get(dut.chosen) == expected

    simulate(clocked(dut), bench, check_loops=False)
