# amaranth: UnusedElaboratable=no
"""Order, capacity, latency and throughput of the FIFO, in both kinds of memory."""

import random
import re

import pytest
from amaranth import Module, Signal, signed, unsigned
from amaranth.back import rtlil
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory

from haloconv.rtl import stream_fifo
from haloconv.rtl.stream_fifo import StreamFifo
from haloconv.sim.streams import get_many, put_many, simulate

PAIR = data.StructLayout({"value": signed(9), "flags": data.ArrayLayout(unsigned(3), 2)})
MEMORIES = {
    "distributed": {},
    "block": {"block_ram": True},
    "registered": {"block_ram": True, "registered": True},
}
KINDS = [(depth, memory) for depth in (1, 2, 3, 4, 7, 16) for memory in MEMORIES]


class SpoilingMemory(wiring.Component):
    """A memory whose words read in the cycle of their write are wrong, as some block RAMs do."""

    def __init__(self, *, shape, depth, init, attrs):
        self.memory = Memory(shape=shape, depth=depth, init=init, attrs=attrs)
        self.write = self.memory.write_port()
        self.inner = self.memory.read_port()
        self.read = self.inner.signature.flip().create(path=("read",))
        super().__init__({})

    def write_port(self):
        return self.write

    def read_port(self):
        return self.read

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = self.memory
        spoilt = Signal()
        m.d.comb += [
            self.inner.addr.eq(self.read.addr),
            self.inner.en.eq(self.read.en),
            self.read.data.eq(self.inner.data ^ spoilt.replicate(len(self.inner.data))),
        ]
        with m.If(self.read.en):
            m.d.sync += spoilt.eq(self.write.en & (self.write.addr == self.read.addr))
        return m


def payloads(rng, count):
    return [
        {"value": rng.randint(-256, 255), "flags": [rng.randrange(8), rng.randrange(8)]}
        for _ in range(count)
    ]


def test_constructor():
    with pytest.raises(ValueError, match="Depth must be at least 1, not 0"):
        StreamFifo(PAIR, depth=0)
    with pytest.raises(TypeError, match=re.escape("Depth must be an integer, not '4'")):
        StreamFifo(PAIR, depth="4")
    for options in ({"depth": 8}, {"depth": 1, "block_ram": True}):
        with pytest.raises(
            ValueError, match="A reserved queue needs block RAM and depth 2 or more"
        ):
            StreamFifo(PAIR, **options, reserved=True)


def test_elaborates():
    for depth, memory in KINDS:
        rtlil.convert(StreamFifo(PAIR, depth=depth, **MEMORIES[memory]), emit_src=False)


@pytest.mark.parametrize("stalls", [(0, 0), (0.6, 0), (0, 0.6), (0.4, 0.4)])
@pytest.mark.parametrize(("depth", "memory"), KINDS)
def test_order(depth, memory, stalls):
    check_order(depth, memory, stalls)


@pytest.mark.parametrize("stalls", [(0, 0), (0.6, 0), (0, 0.6), (0.4, 0.4)])
@pytest.mark.parametrize("memory", ["block", "registered"])
@pytest.mark.parametrize("depth", [2, 3, 4, 7])
def test_no_word_is_used_that_is_read_while_it_is_written(monkeypatch, depth, memory, stalls):
    monkeypatch.setattr(stream_fifo, "Memory", SpoilingMemory)
    check_order(depth, memory, stalls)


def test_the_spoiling_memory_spoils():
    dut = SpoilingMemory(shape=unsigned(8), depth=4, init=[], attrs={})

    async def bench(ctx):
        ctx.set(dut.write.addr, 2)
        ctx.set(dut.write.data, 0x0F)
        ctx.set(dut.write.en, 1)
        ctx.set(dut.read.addr, 2)
        ctx.set(dut.read.en, 1)
        await ctx.tick().repeat(2)
        assert ctx.get(dut.read.data) == 0xF0
        ctx.set(dut.write.en, 0)
        await ctx.tick()
        assert ctx.get(dut.read.data) == 0x0F

    simulate(dut, bench)


@pytest.mark.parametrize("rates", [(1, 1), (1, 0.3), (0.3, 1), (0.6, 0.6)])
@pytest.mark.parametrize("memory", ["block", "registered"])
@pytest.mark.parametrize("depth", [2, 3, 4, 7, 8])
def test_a_reserved_one_holds_what_its_user_counts(monkeypatch, depth, memory, rates):
    """It is always ready; whoever fills it never has more than ``depth`` in it."""
    monkeypatch.setattr(stream_fifo, "Memory", SpoilingMemory)
    dut = StreamFifo(unsigned(8), depth=depth, reserved=True, **MEMORIES[memory])
    rng = random.Random(f"{depth} {memory} {rates}")
    sent, got, most = 0, [], 0

    async def bench(ctx):
        nonlocal sent, most
        for _ in range(500):
            puts = sent - len(got) < depth and rng.random() < rates[0]
            ctx.set(dut.i.valid, puts)
            ctx.set(dut.i.payload, sent % 256 if puts else rng.randrange(256))
            ctx.set(dut.o.ready, rng.random() < rates[1])
            _, _, ready, moved, payload = await ctx.tick().sample(
                dut.i.ready, dut.o.valid & dut.o.ready, dut.o.payload
            )
            assert ready
            sent += puts
            got.extend([payload] * moved)
            most = max(most, sent - len(got))

    simulate(dut, bench)
    assert got == [value % 256 for value in range(len(got))]
    assert len(got) > 60 and sent - len(got) <= depth
    if rates[1] < rates[0]:
        assert most == depth, "it was full"


def check_order(depth, memory, stalls):
    seed = depth
    sent = payloads(random.Random(seed), 50)
    dut = StreamFifo(PAIR, depth=depth, **MEMORIES[memory])
    got = []

    async def source(ctx):
        await put_many(ctx, dut.i, sent, stalls=stalls[0], seed=seed, limit=50)

    async def sink(ctx):
        got.extend(await get_many(ctx, dut.o, 50, stalls=stalls[1], seed=seed + 1, limit=50))

    simulate(dut, source, sink)
    assert got == sent


@pytest.mark.parametrize(("depth", "memory"), KINDS)
def test_capacity_latency_and_throughput(depth, memory):
    dut = StreamFifo(unsigned(8), depth=depth, **MEMORIES[memory])

    latency = {"distributed": 1, "block": 2, "registered": 3}[memory] if depth > 1 else 1

    async def bench(ctx):
        # Fill it.
        ctx.set(dut.i.valid, 1)
        value = 0
        for _ in range(depth + 4):
            ctx.set(dut.i.payload, value)
            _, _, ready = await ctx.tick().sample(dut.i.ready)
            value += ready
        assert value == depth
        # Empty it.
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.o.ready, 1)
        got = []
        for _ in range(depth + 4):
            _, _, valid, payload = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            if valid:
                got.append(payload)
        assert got == list(range(depth))
        # As fast as it goes from empty, for 20 payloads.
        came, went = [], []
        for cycle in range(80):
            ctx.set(dut.i.payload, len(came))
            ctx.set(dut.i.valid, len(came) < 20)
            _, _, taken, valid, payload = await ctx.tick().sample(
                dut.i.valid & dut.i.ready, dut.o.valid, dut.o.payload
            )
            if taken:
                came.append(cycle)
            if valid:
                assert payload == len(went)
                went.append(cycle)
        # A FIFO no deeper than its latency waits for the way back.
        expected = [-1] * depth
        for index in range(20):
            expected.append(max(expected[-1] + 1, expected[index] + latency + 1))
        assert came == [cycle - expected[depth] for cycle in expected[depth:]]
        assert went == [cycle + latency for cycle in came]

    simulate(dut, bench)


@pytest.mark.parametrize("memory", MEMORIES)
def test_reset_empties_it(memory):
    dut, reset = StreamFifo(unsigned(8), depth=5, **MEMORIES[memory]), Signal()

    async def bench(ctx):
        await put_many(ctx, dut.i, [1, 2, 3, 4])
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        ctx.set(dut.o.ready, 1)
        for _ in range(4):
            _, _, valid = await ctx.tick().sample(dut.o.valid)
            assert not valid
        await put_many(ctx, dut.i, [9, 8])

    got = []

    async def sink(ctx):
        for _ in range(20):
            _, _, valid, payload = await ctx.tick().sample(dut.o.valid & dut.o.ready, dut.o.payload)
            if valid:
                got.append(payload)

    simulate(dut, bench, sink, reset=reset)
    assert got == [9, 8]
