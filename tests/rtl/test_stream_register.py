# amaranth: UnusedElaboratable=no
"""Order, latency and throughput of the register between two streams."""

import random

import pytest
from amaranth import Signal, unsigned
from amaranth.back import rtlil
from amaranth.lib import data

from haloconv.rtl.stream_register import StreamRegister
from haloconv.sim.streams import get_many, put_many, simulate

PAIR = data.StructLayout({"low": unsigned(5), "high": unsigned(7)})


def test_elaborates():
    rtlil.convert(StreamRegister(PAIR), emit_src=False)


@pytest.mark.parametrize("stalls", [(0, 0), (0.6, 0), (0, 0.6), (0.4, 0.4)])
def test_order(stalls):
    dut, rng = StreamRegister(PAIR), random.Random(11)
    wanted = [{"low": rng.getrandbits(5), "high": rng.getrandbits(7)} for _ in range(60)]
    got = []

    async def put(ctx):
        await put_many(ctx, dut.i, wanted, stalls=stalls[0], seed=1, limit=200)

    async def get(ctx):
        got.extend(await get_many(ctx, dut.o, len(wanted), stalls=stalls[1], seed=2, limit=200))

    simulate(dut, put, get)
    assert [{"low": pair["low"], "high": pair["high"]} for pair in got] == wanted


def test_a_transfer_a_cycle_each_a_cycle_later():
    dut, shown = StreamRegister(unsigned(8)), []

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.i.valid, 1)
        for value in range(10):
            ctx.set(dut.i.payload, value)
            assert ctx.get(dut.i.ready)
            shown.append((ctx.get(dut.o.valid), ctx.get(dut.o.payload)))
            await ctx.tick()

    simulate(dut, bench)
    assert shown[0][0] == 0
    assert shown[1:] == [(1, value) for value in range(9)]


def test_a_reset_in_mid_stream_drops_what_is_held():
    """What is offered during the reset is lost too, and nothing else."""
    dut, reset = StreamRegister(unsigned(8)), Signal()

    async def bench(ctx):
        for ready in (0, 1):
            ctx.set(dut.o.ready, ready)
            ctx.set(dut.i.valid, 1)
            ctx.set(dut.i.payload, 7)
            await ctx.tick()
            assert ctx.get(dut.o.valid) and ctx.get(dut.o.payload) == 7
            ctx.set(dut.i.payload, 8)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            ctx.set(dut.i.valid, 0)
            assert not ctx.get(dut.o.valid) and ctx.get(dut.i.ready)
            await ctx.tick()
            assert not ctx.get(dut.o.valid)
            # As new.
            ctx.set(dut.o.ready, 1)
            ctx.set(dut.i.valid, 1)
            for value in (9, 10, 11):
                ctx.set(dut.i.payload, value)
                await ctx.tick()
                assert ctx.get(dut.o.valid) and ctx.get(dut.o.payload) == value
            ctx.set(dut.i.valid, 0)
            await ctx.tick()
            assert not ctx.get(dut.o.valid)

    simulate(dut, bench, reset=reset)


def test_it_is_ready_while_empty_or_emptied():
    dut = StreamRegister(unsigned(8))

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.i.payload, 7)
        assert ctx.get(dut.i.ready)
        await ctx.tick()
        assert ctx.get(dut.o.valid) and not ctx.get(dut.i.ready)
        ctx.set(dut.i.payload, 8)
        await ctx.tick()
        assert ctx.get(dut.o.payload) == 7, "what waits holds"
        ctx.set(dut.o.ready, 1)
        assert ctx.get(dut.i.ready)
        await ctx.tick()
        assert ctx.get(dut.o.payload) == 8

    simulate(dut, bench)
