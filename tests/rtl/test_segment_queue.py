# amaranth: UnusedElaboratable=no
"""Segments and their runs come in order, one a cycle, and no more than asked for are under way."""

import random

import pytest
from amaranth import Signal
from amaranth.back import rtlil

from haloconv.planner.config import EngineConfig
from haloconv.rtl.segment_queue import SEGMENTS_AHEAD, SegmentQueue
from haloconv.rtl.widths import Segment
from haloconv.sim.streams import get_many, put_many, simulate

SEGMENT_LATENCY = 1
RUN_LATENCY = 5
BUSES = (1, 2, 4, 8, 16, 32)


def engine(bus, **others):
    return EngineConfig(out_lanes=1, split_lanes=1, bus_bytes=bus, **others)


CONFIGS = [*map(engine, BUSES), engine(8, address_bits=16), engine(4, input_bytes=65536)]


def run(segment, bus):
    """Where the bytes lie in their beats: the first, and the last, counted from the first beat."""
    first = segment["address"] % bus
    return {"address": first, "last": first + segment["length"] - 1}


def random_segments(rng, config, count):
    layout = Segment(config)
    longest = (1 << layout["length"].width) - 1
    highest = (1 << config.address_bits) - 1
    return [
        {
            "address": rng.choice((0, highest, rng.randint(0, highest))),
            "length": rng.choice((1, longest, rng.randint(1, longest))),
        }
        for _ in range(count)
    ]


def test_elaborates():
    for config in CONFIGS:
        rtlil.convert(SegmentQueue(config), emit_src=False)


@pytest.mark.parametrize(
    "stalls", [(0, 0, 0), (0.6, 0, 0), (0, 0.6, 0), (0, 0, 0.6), (0.3, 0.4, 0.5)]
)
@pytest.mark.parametrize("config", CONFIGS)
def test_order(config, stalls):
    check_order(config, stalls, count=60, seed=config.bus_bytes)


@pytest.mark.parametrize("stalls", [(0, 0.2, 0.8), (0.1, 0, 0.7)])
def test_order_while_it_is_full_most_of_the_time(stalls):
    check_order(engine(8), stalls, count=6 * SEGMENTS_AHEAD, seed=3)


def check_order(config, stalls, *, count, seed):
    print(f"seed {seed}")
    sent = random_segments(random.Random(seed), config, count)
    dut = SegmentQueue(config)
    segments, runs = [], []

    async def source(ctx):
        await put_many(ctx, dut.i, sent, stalls=stalls[0], seed=seed)

    async def splitter(ctx):
        segments.extend(await get_many(ctx, dut.o, count, stalls=stalls[1], seed=seed + 1))

    async def gearbox(ctx):
        runs.extend(await get_many(ctx, dut.o_run, count, stalls=stalls[2], seed=seed + 2))

    simulate(dut, source, splitter, gearbox)
    assert segments == sent
    assert runs == [run(segment, config.bus_bytes) for segment in sent]


@pytest.mark.parametrize("bus", BUSES)
def test_latency_and_a_segment_a_cycle(bus):
    """More of them than its memory has words, so that its pointers wrap."""
    config, count = engine(bus), 3 * SEGMENTS_AHEAD
    dut, sent = SegmentQueue(config), random_segments(random.Random(bus), engine(bus), count)
    segments, runs = [], []

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.o_run.ready, 1)
        for cycle in range(count + RUN_LATENCY + 3):
            ctx.set(dut.i.valid, cycle < count)
            if cycle < count:
                ctx.set(dut.i.payload, sent[cycle])
                assert ctx.get(dut.i.ready), cycle
            if ctx.get(dut.o.valid):
                payload = ctx.get(dut.o.payload)
                segments.append((cycle, payload["address"], payload["length"]))
            if ctx.get(dut.o_run.valid):
                payload = ctx.get(dut.o_run.payload)
                runs.append((cycle, payload["address"], payload["last"]))
            await ctx.tick()

    simulate(dut, bench)
    assert segments == [
        (cycle + SEGMENT_LATENCY, segment["address"], segment["length"])
        for cycle, segment in enumerate(sent)
    ]
    assert runs == [
        (cycle + RUN_LATENCY, *run(segment, bus).values()) for cycle, segment in enumerate(sent)
    ]


async def fill(ctx, dut, segments):
    """Offer segments for as many cycles as there are, and return how many were taken."""
    taken = 0
    ctx.set(dut.i.valid, 1)
    for _ in segments:
        ctx.set(dut.i.payload, segments[taken])
        _, _, ready = await ctx.tick().sample(dut.i.ready)
        taken += ready
    return taken


def test_as_many_runs_under_way_as_stated():
    config = engine(8)
    dut = SegmentQueue(config)
    sent = random_segments(random.Random(5), config, SEGMENTS_AHEAD + 20)
    segments = []

    async def splitter(ctx):
        segments.extend(await get_many(ctx, dut.o, len(sent)))

    async def bench(ctx):
        taken = await fill(ctx, dut, sent)
        assert taken == SEGMENTS_AHEAD
        # One more for each that leaves, in the cycle after it, and none before.
        for left in range(15):
            ctx.set(dut.i.payload, sent[taken])
            for _ in range(left % 3):
                assert not ctx.get(dut.i.ready)
                await ctx.tick()
            payload = ctx.get(dut.o_run.payload)
            assert ctx.get(dut.o_run.valid)
            assert {name: payload[name] for name in ("address", "last")} == run(sent[left], 8)
            ctx.set(dut.o_run.ready, 1)
            assert not ctx.get(dut.i.ready), "no way from the gearbox within the cycle"
            await ctx.tick()
            ctx.set(dut.o_run.ready, 0)
            assert ctx.get(dut.i.ready)
            await ctx.tick()
            taken += 1
            assert not ctx.get(dut.i.ready)
        # The others, while all runs leave.
        ctx.set(dut.i.valid, 0)
        runs = await get_many(ctx, dut.o_run, taken - 15)
        assert runs == [run(segment, 8) for segment in sent[15:taken]]
        # None is under way: it takes as many again.
        ctx.set(dut.o_run.ready, 0)
        assert await fill(ctx, dut, sent[taken:]) == len(sent) - taken
        ctx.set(dut.i.valid, 0)
        runs = await get_many(ctx, dut.o_run, len(sent) - taken)
        assert runs == [run(segment, 8) for segment in sent[taken:]]

    simulate(dut, bench, splitter)
    assert segments == sent


def test_one_comes_as_another_leaves():
    """A cycle in which the count stays as it is: below its end, and a step before it."""
    for level in (RUN_LATENCY + 1, SEGMENTS_AHEAD - 1):
        config = engine(4)
        dut = SegmentQueue(config)
        sent = random_segments(random.Random(level), config, 3 * SEGMENTS_AHEAD)

        async def bench(ctx, dut=dut, sent=sent, level=level):
            ctx.set(dut.o.ready, 1)
            assert await fill(ctx, dut, sent[:level]) == level
            ctx.set(dut.i.valid, 0)
            await ctx.tick().repeat(RUN_LATENCY)
            ctx.set(dut.i.valid, 1)
            ctx.set(dut.o_run.ready, 1)
            for count in range(SEGMENTS_AHEAD):
                ctx.set(dut.i.payload, sent[level + count])
                assert ctx.get(dut.i.ready) and ctx.get(dut.o_run.valid)
                await ctx.tick()
            ctx.set(dut.o_run.ready, 0)
            rest = sent[level + SEGMENTS_AHEAD :]
            assert await fill(ctx, dut, rest) == SEGMENTS_AHEAD - level

        simulate(dut, bench)


SERIAL = {"serial_requantizers": True}


@pytest.mark.parametrize(("options", "waiting", "latency"), [({}, 2, RUN_LATENCY), (SERIAL, 1, 3)])
def test_the_splitter_may_wait_longer_than_the_gearbox(options, waiting, latency):
    """Segments that wait keep the next out, though their own runs are there at once."""
    config = engine(8, **options)
    dut = SegmentQueue(config)
    sent = random_segments(random.Random(waiting), config, waiting + 1)

    async def bench(ctx):
        ctx.set(dut.o_run.ready, 1)
        ctx.set(dut.i.valid, 1)
        runs = []
        for cycle in range(12):
            assert ctx.get(dut.i.ready) == (cycle < waiting), cycle
            ctx.set(dut.i.payload, sent[min(cycle, waiting)])
            assert ctx.get(dut.o.valid) == (cycle > 0)
            if cycle:
                payload = ctx.get(dut.o.payload)
                assert {name: payload[name] for name in ("address", "length")} == sent[0]
            if ctx.get(dut.o_run.valid):
                payload = ctx.get(dut.o_run.payload)
                runs.append((cycle, {name: payload[name] for name in ("address", "last")}))
            await ctx.tick()
        assert runs == [(latency + n, run(sent[n], 8)) for n in range(waiting)]
        ctx.set(dut.o.ready, 1)
        assert ctx.get(dut.i.ready) == (waiting == 1), "a single one passes ready on"
        await ctx.tick()
        assert ctx.get(dut.i.ready)

    simulate(dut, bench)


@pytest.mark.parametrize("before", [1, 2, 3, 4, 5, 10, SEGMENTS_AHEAD])
def test_reset_empties_it(before):
    config = engine(8)
    dut, reset = SegmentQueue(config), Signal()
    sent = random_segments(random.Random(before), config, before + SEGMENTS_AHEAD + 5)

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        assert await fill(ctx, dut, sent[:before]) == before
        ctx.set(dut.i.valid, 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        for _ in range(2 * RUN_LATENCY):
            assert not ctx.get(dut.o.valid) and not ctx.get(dut.o_run.valid)
            assert ctx.get(dut.i.ready)
            await ctx.tick()
        assert await fill(ctx, dut, sent[before:]) == SEGMENTS_AHEAD
        ctx.set(dut.i.valid, 0)
        runs = await get_many(ctx, dut.o_run, SEGMENTS_AHEAD)
        assert runs == [run(segment, 8) for segment in sent[before : before + SEGMENTS_AHEAD]]

    simulate(dut, bench, reset=reset)
