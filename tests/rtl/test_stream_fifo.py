# amaranth: UnusedElaboratable=no
"""Order, capacity, latency and throughput of the FIFO, in both kinds of memory."""

import random
import re

import pytest
from amaranth import Signal, signed, unsigned
from amaranth.back import rtlil
from amaranth.lib import data

from haloconv.rtl.stream_fifo import StreamFifo
from haloconv.sim.streams import get_many, put_many, simulate

PAIR = data.StructLayout({"value": signed(9), "flags": data.ArrayLayout(unsigned(3), 2)})
KINDS = [(depth, block_ram) for depth in (1, 2, 3, 4, 7, 16) for block_ram in (False, True)]


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


def test_elaborates():
    for depth, block_ram in KINDS:
        rtlil.convert(StreamFifo(PAIR, depth=depth, block_ram=block_ram), emit_src=False)


@pytest.mark.parametrize("stalls", [(0, 0), (0.6, 0), (0, 0.6), (0.4, 0.4)])
@pytest.mark.parametrize(("depth", "block_ram"), KINDS)
def test_order(depth, block_ram, stalls):
    seed = depth
    sent = payloads(random.Random(seed), 50)
    dut = StreamFifo(PAIR, depth=depth, block_ram=block_ram)
    got = []

    async def source(ctx):
        await put_many(ctx, dut.i, sent, stalls=stalls[0], seed=seed, limit=50)

    async def sink(ctx):
        got.extend(await get_many(ctx, dut.o, 50, stalls=stalls[1], seed=seed + 1, limit=50))

    simulate(dut, source, sink)
    assert got == sent


@pytest.mark.parametrize(("depth", "block_ram"), KINDS)
def test_capacity_latency_and_throughput(depth, block_ram):
    dut = StreamFifo(unsigned(8), depth=depth, block_ram=block_ram)

    latency = 2 if block_ram and depth > 1 else 1
    # A FIFO no deeper than its latency waits for the way back.
    period = 1 if depth > latency else 2

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
        for cycle in range(20 * period + 3):
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
        assert came == [period * index for index in range(20)]
        assert went == [cycle + latency for cycle in came]

    simulate(dut, bench)


@pytest.mark.parametrize("block_ram", [False, True])
def test_reset_empties_it(block_ram):
    dut, reset = StreamFifo(unsigned(8), depth=5, block_ram=block_ram), Signal()

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
