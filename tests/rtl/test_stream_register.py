# amaranth: UnusedElaboratable=no
"""Order, latency and throughput of the registers between two streams."""

import random

import pytest
from amaranth import Signal, unsigned
from amaranth.back import rtlil
from amaranth.lib import data

from haloconv.rtl.stream_register import StreamCut, StreamRegister
from haloconv.sim.streams import get_many, put_many, simulate

PAIR = data.StructLayout({"low": unsigned(5), "high": unsigned(7)})

both = pytest.mark.parametrize("kind", [StreamRegister, StreamCut])


@both
def test_elaborates(kind):
    rtlil.convert(kind(PAIR), emit_src=False)


@both
@pytest.mark.parametrize("stalls", [(0, 0), (0.6, 0), (0, 0.6), (0.4, 0.4)])
def test_order(kind, stalls):
    dut, rng = kind(PAIR), random.Random(11)
    wanted = [{"low": rng.getrandbits(5), "high": rng.getrandbits(7)} for _ in range(60)]
    got = []

    async def put(ctx):
        await put_many(ctx, dut.i, wanted, stalls=stalls[0], seed=1, limit=200)

    async def get(ctx):
        got.extend(await get_many(ctx, dut.o, len(wanted), stalls=stalls[1], seed=2, limit=200))

    simulate(dut, put, get)
    assert [{"low": pair["low"], "high": pair["high"]} for pair in got] == wanted


@both
def test_a_transfer_a_cycle_each_a_cycle_later(kind):
    dut, shown = kind(unsigned(8)), []

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


@both
def test_the_newest_payload_is_told_in_the_next_cycle(kind):
    """Whether the one before waits or leaves."""
    dut, rng = kind(PAIR), random.Random(23)
    came = None
    checked = [0, 0]

    async def bench(ctx):
        nonlocal came
        for _ in range(200):
            if came is not None:
                payload = ctx.get(dut.newest)
                assert (payload["low"], payload["high"]) == tuple(came.values())
                waits = ctx.get(dut.o.payload.low) != came["low"]
                checked[waits] += 1
            payload = {"low": rng.getrandbits(5), "high": rng.getrandbits(7)}
            ctx.set(dut.i.payload, payload)
            ctx.set(dut.i.valid, rng.random() < 0.7)
            ctx.set(dut.o.ready, rng.random() < 0.6)
            came = payload if ctx.get(dut.i.valid) and ctx.get(dut.i.ready) else None
            await ctx.tick()

    simulate(dut, bench)
    assert checked[0] > 20 and (checked[1] > 10) == (kind is StreamCut)


@both
def test_no_path_to_the_output_within_a_cycle(kind):
    dut = kind(unsigned(8))

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        assert not ctx.get(dut.o.valid)
        ctx.set(dut.i.payload, 7)
        await ctx.tick()
        for valid, payload in ((0, 7), (1, 8), (0, 9)):
            ctx.set(dut.i.valid, valid)
            ctx.set(dut.i.payload, payload)
            assert ctx.get(dut.o.valid) and ctx.get(dut.o.payload) == 7

    simulate(dut, bench)


@both
def test_a_reset_in_mid_stream_drops_what_is_held(kind):
    """What is offered during the reset is lost too, and nothing else."""
    dut, reset = kind(unsigned(8)), Signal()

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


def test_the_cut_holds_two_payloads_and_they_stay():
    dut = StreamCut(unsigned(8))

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        for value in (7, 8):
            ctx.set(dut.i.payload, value)
            assert ctx.get(dut.i.ready)
            await ctx.tick()
        for other in (9, 0xFF, 10):
            ctx.set(dut.i.payload, other)
            assert not ctx.get(dut.i.ready)
            assert ctx.get(dut.o.valid) and ctx.get(dut.o.payload) == 7
            await ctx.tick()
        ctx.set(dut.o.ready, 1)
        await ctx.tick()
        # The second has come to the front; only now what was offered meanwhile is taken.
        for value in (8, 10, 11):
            assert ctx.get(dut.i.ready)
            assert ctx.get(dut.o.valid) and ctx.get(dut.o.payload) == value
            await ctx.tick()
            ctx.set(dut.i.payload, ctx.get(dut.i.payload) + 1)
        assert ctx.get(dut.o.payload) == 12

    simulate(dut, bench)


def test_the_cut_is_empty_behind_its_second_payload():
    dut = StreamCut(unsigned(8))

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        for value in (7, 8):
            ctx.set(dut.i.payload, value)
            await ctx.tick()
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.o.ready, 1)
        for value in (7, 8):
            assert ctx.get(dut.o.valid) and ctx.get(dut.o.payload) == value
            await ctx.tick()
        assert not ctx.get(dut.o.valid) and ctx.get(dut.i.ready)

    simulate(dut, bench)


def test_no_path_through_the_cut_from_ready_to_ready():
    """Whatever it holds, ``i.ready`` stays while ``o.ready`` and ``i.valid`` change in a cycle."""
    dut = StreamCut(unsigned(8))

    async def bench(ctx):
        for held in range(3):
            ctx.set(dut.i.valid, 1)
            for ready in (0, 1, 0):
                ctx.set(dut.o.ready, ready)
                for valid in (0, 1):
                    ctx.set(dut.i.valid, valid)
                    assert ctx.get(dut.i.ready) == (held < 2), held
            ctx.set(dut.i.payload, held)
            await ctx.tick()

    simulate(dut, bench)


def test_a_reset_drops_both_payloads_of_the_cut():
    dut, reset = StreamCut(unsigned(8)), Signal()

    async def bench(ctx):
        for ready in (0, 1):
            ctx.set(dut.o.ready, 0)
            ctx.set(dut.i.valid, 1)
            ctx.set(dut.i.payload, 7)
            await ctx.tick().repeat(2)
            assert not ctx.get(dut.i.ready)
            ctx.set(dut.o.ready, ready)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            ctx.set(dut.i.valid, 0)
            for _ in range(3):
                assert not ctx.get(dut.o.valid) and ctx.get(dut.i.ready)
                await ctx.tick()
            await put_many(ctx, dut.i, [9])
            ctx.set(dut.o.ready, 1)
            assert ctx.get(dut.o.valid) and ctx.get(dut.o.payload) == 9
            await ctx.tick()
            assert not ctx.get(dut.o.valid)

    simulate(dut, bench, reset=reset)
