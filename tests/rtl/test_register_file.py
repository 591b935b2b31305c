# amaranth: UnusedElaboratable=no
"""Counters against plain sums of random events, whenever the host looks at them."""

import random
from dataclasses import replace

import pytest
from amaranth import Shape, Signal
from amaranth.back import rtlil

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES
from haloconv.planner.registers import COUNTERS, IDENTITY, Register, built_counters
from haloconv.rtl.register_file import ROUND, RegisterFile
from haloconv.sim.streams import simulate

CONFIG = EngineConfig(bus_bytes=4, out_lanes=4, split_lanes=4)
KINDS = ("input", "weight", "bias", "scale")


class Player:
    """Feeds random events and adds them up beside the block."""

    def __init__(self, ctx, dut, seed, most=False):
        self.ctx, self.dut, self.rng, self.most = ctx, dut, random.Random(seed), most
        self.sums = dict.fromkeys(COUNTERS, 0)
        self.since = 2 * ROUND  # between descriptors, and between ends of layers
        layout = dut.events.shape()
        self.count = (1 << Shape.cast(layout["taken"].shape["count"].shape).width) - 1
        self.written = (1 << Shape.cast(layout["written"].shape).width) - 1

    async def start(self):
        self.sums = dict.fromkeys(COUNTERS, 0)
        self.layers = 0
        self.ctx.set(self.dut.start, 1)
        await self.ctx.tick()
        self.ctx.set(self.dut.start, 0)
        self.ctx.set(self.dut.counting, 1)

    def _any(self, most):
        return most if self.most else self.rng.randint(0, most)

    async def events(self):
        """A cycle that counts."""
        ctx, dut, rng = self.ctx, self.dut, self.rng
        self.sums["cycles"] += 1
        for port, name in (
            ("computing", "compute_cycles"),
            ("waiting_load", "load_stall_cycles"),
            ("waiting_drain", "drain_stall_cycles"),
        ):
            happens = self._any(1)
            ctx.set(dut.events[port], happens)
            self.sums[name] += happens
        kind, count, written = rng.choice(KINDS), self._any(self.count), self._any(self.written)
        for name in KINDS:
            ctx.set(dut.events.taken[name], name == kind)
        ctx.set(dut.events.taken.count, count)
        ctx.set(dut.events.written, written)
        self.sums[f"{kind}_bytes"] += count
        self.sums["output_bytes"] += written
        self.since += 1
        happens = self.since >= 2 * ROUND and rng.random() < 0.2
        for port in ("fetched", "finished"):
            ctx.set(getattr(dut, port), happens)
        if happens:
            self.since = 0
            self.layers += 1
            self.sums["program_bytes"] += DESCRIPTOR_BYTES
        await ctx.tick()
        for port in ("fetched", "finished"):
            ctx.set(getattr(dut, port), 0)

    async def rest(self):
        """Two rounds without counting, under events that do not count."""
        self.ctx.set(self.dut.counting, 0)
        for _ in range(2):
            while not self.ctx.get(self.dut.round):
                await self.ctx.tick()
            await self.ctx.tick()

    async def read(self, register):
        self.ctx.set(self.dut.address, int(register))
        await self.ctx.tick()
        return self.ctx.get(self.dut.data)

    async def read_all(self):
        return {
            name: await self.read(register) | await self.read(register + 1) << 32
            for name, register in COUNTERS.items()
        }


def play(bench, seed=0, most=False, config=CONFIG, **options):
    dut = RegisterFile(config)

    async def run(ctx):
        await bench(Player(ctx, dut, seed, most))

    simulate(dut, run, **options)


def test_elaborates_the_same_twice():
    dut = RegisterFile(CONFIG)
    assert rtlil.convert(dut, emit_src=False) == rtlil.convert(dut, emit_src=False)


@pytest.mark.parametrize("most", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_every_event_is_counted(seed, most):
    """Programs of all lengths up to some rounds, one after the other."""

    async def bench(player):
        for length in (1, 2, ROUND - 1, ROUND, ROUND + 1, player.rng.randint(50, 300)):
            await player.start()
            for _ in range(length):
                await player.events()
            await player.rest()
            assert await player.read_all() == player.sums, (seed, length)
            for register in (Register.LAYERS, Register.ERROR_DETAIL):
                assert await player.read(register) == player.layers
            await player.ctx.tick().repeat(player.rng.randint(1, ROUND))
        assert built_counters(await player.read(Register.OPTIONS)) == COUNTERS

    play(bench, seed, most)


@pytest.mark.parametrize("seed", range(2))
def test_a_host_that_looks_while_it_counts_sees_a_count_not_long_ago(seed):
    async def bench(player):
        ctx, rng = player.ctx, player.rng
        await player.start()
        names = [name for name in COUNTERS if name != "sum_bytes"]
        history, address, held = [dict(player.sums)], "cycles", 0
        for _ in range(1500):
            if not held:
                address, held = rng.choice(names), rng.randint(1, 40)
            held -= 1
            ctx.set(player.dut.address, int(COUNTERS[address]))
            await player.events()
            history.append(dict(player.sums))
            seen = ctx.get(player.dut.data)
            recent = [sums[address] for sums in history[-2 * ROUND - 6 :]]
            assert seen in recent, (seed, address, len(history))
        await player.rest()
        assert await player.read_all() == player.sums

    play(bench, seed)


def test_cycles_alone():
    async def bench(player):
        await player.start()
        for _ in range(3 * ROUND):
            await player.events()
        await player.rest()
        assert player.sums["compute_cycles"] and player.sums["program_bytes"]
        expected = {name: count if name == "cycles" else 0 for name, count in player.sums.items()}
        assert await player.read_all() == expected
        # The host is told that the zeros are none.
        built = built_counters(await player.read(Register.OPTIONS))
        assert built == {"cycles": Register.CYCLES}
        assert await player.read(Register.LAYERS) == player.layers > 0

    play(bench, config=replace(CONFIG, counters=False))


def test_carries_reach_the_high_words():
    async def bench(player):
        await player.start()
        for _ in range(2 * ROUND):
            await player.events()
        # As if it had run for long.
        await player.rest()
        for register in COUNTERS.values():
            player.ctx.set(player.dut.words[int(register)], 0xFFFFFFF0)
            player.ctx.set(player.dut.words[int(register) + 1], 5)
        player.sums = {name: 5 << 32 | 0xFFFFFFF0 for name in COUNTERS}
        player.ctx.set(player.dut.counting, 1)
        for _ in range(400):
            await player.events()
        await player.rest()
        found = await player.read_all()
        assert found == player.sums
        assert all(value >> 32 == 6 for name, value in found.items() if name != "sum_bytes")

    play(bench)


def test_live_words_and_constants():
    async def bench(player):
        ctx, dut = player.ctx, player.dut
        await player.start()
        for register, live, expected in (
            (Register.STATUS, 0x12345, 0x12345),
            (Register.IDENTITY, 0, IDENTITY),
            (Register.ERROR_CODE, 3, 3),
            (Register.WEIGHT_WORDS, 0, CONFIG.weight_words),
            (63, 0, 0),
            (64, 0, 0),
            (64 + Register.LANES, 0, 0),
            (192 + Register.CHANNEL_GROUPS, 0, 0),
        ):
            ctx.set(dut.address, int(register))
            ctx.set(dut.live, live)
            await player.events()
            ctx.set(dut.live, 0)
            assert ctx.get(dut.data) == expected

    play(bench)


def test_nothing_is_left_after_a_reset():
    reset = Signal()

    async def bench(player):
        ctx = player.ctx
        for _ in range(3):
            await player.start()
            for _ in range(player.rng.randint(30, 60)):
                await player.events()
            ctx.set(player.dut.counting, 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            for _ in range(3):
                assert set((await player.read_all()).values()) == {0}
            assert await player.read(Register.IDENTITY) == IDENTITY
            await player.start()
            for _ in range(5):
                await player.events()
            await player.rest()
            assert await player.read_all() == player.sums

    play(bench, reset=reset)
