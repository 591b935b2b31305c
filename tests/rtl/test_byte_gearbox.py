# amaranth: UnusedElaboratable=no
"""The gearbox offers the bytes of its segments, no others, and never claims more than it has."""

import random
import re

import pytest
from amaranth import Module, Signal
from amaranth.back import rtlil
from amaranth.sim import Simulator

from haloconv.planner.config import EngineConfig
from haloconv.rtl.byte_gearbox import ByteGearbox, Run
from haloconv.rtl.widths import Segment
from haloconv.sim.streams import put_many, simulate

SIZES = [(1, 1), (1, 7), (2, 6), (4, 3), (8, 8), (8, 20), (16, 1), (16, 16), (32, 6), (32, 64)]


def engine(bus):
    return EngineConfig(out_lanes=1, split_lanes=1, bus_bytes=bus)


def run(address, length, bus):
    """The last byte's place is counted from the start of the first beat."""
    return {"address": address, "last": address % bus + length - 1}


def random_work(rng, bus, count):
    """Segments, the beats of each with other bytes around, and the string of their bytes."""
    segments, beats, string = [], [], []
    for _ in range(count):
        length = rng.choice((1, 2, rng.randint(1, bus), rng.randint(1, 3 * bus + 5)))
        address = rng.randrange(1 << 20)
        before = address % bus
        segments.append(run(address, length, bus))
        total = -(-(before + length) // bus) * bus
        data = [rng.randrange(256) for _ in range(total)]
        string += data[before : before + length]
        for first in range(0, total, bus):
            beat = int.from_bytes(bytes(data[first : first + bus]), "little")
            beats.append({"data": beat, "error": rng.randrange(2)})
    return segments, beats, string


@pytest.mark.parametrize("bus", [1, 2, 4, 8, 16, 32])
def test_runs_cover_their_segments(bus):
    rng = random.Random(bus)
    config = engine(bus)
    segment, covering = Signal(Segment(config)), Signal(Run(config))
    dut = Module()
    dut.d.comb += Run(config).covering(covering, segment)
    longest = 2 ** len(segment.length) - 1
    cases = [(2**16 - 1, longest), (0, 1)]
    cases += [(rng.randrange(2**16), rng.randint(1, longest)) for _ in range(30)]

    async def bench(ctx):
        for address, length in cases:
            ctx.set(segment, {"address": address, "length": length})
            got = {"address": ctx.get(covering.address), "last": ctx.get(covering.last)}
            assert got == run(address, length, bus)

    sim = Simulator(dut)
    sim.add_testbench(bench)
    sim.run()


def test_elaborates():
    for bus, chunk in SIZES:
        rtlil.convert(ByteGearbox(engine(bus), chunk=chunk), emit_src=False)


def test_constructor():
    with pytest.raises(ValueError, match="Chunk must be at least 1, not 0"):
        ByteGearbox(engine(8), chunk=0)
    with pytest.raises(TypeError, match=re.escape("Chunk must be an integer, not 2.0")):
        ByteGearbox(engine(8), chunk=2.0)


def test_by_hand():
    dut = ByteGearbox(engine(4), chunk=6)

    async def bench(ctx):
        async def beat(data):
            ctx.set(dut.i.payload, {"data": data})
            ctx.set(dut.i.valid, 1)
            _, _, taken, finished = await ctx.tick().sample(dut.i.ready, dut.i_segment.ready)
            assert taken
            return finished

        def held(count):
            assert ctx.get(dut.level) == count
            return [ctx.get(dut.data[index]) for index in range(min(count, 6))]

        # Three bytes from address 3: one of the first beat, two of the second.
        ctx.set(dut.i_segment.payload, run(3, 3, 4))
        ctx.set(dut.i_segment.valid, 1)
        assert not await beat(0x44332211)
        assert held(0) == []
        assert await beat(0x88776655)
        assert held(1) == [0x44]
        ctx.set(dut.i_segment.payload, run(0x101, 2, 4))
        assert await beat(0xCCBBAA99)
        assert held(3) == [0x44, 0x55, 0x66]
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.consume, 2)
        await ctx.tick()
        ctx.set(dut.consume, 0)
        assert held(3) == [0x66, 0xAA, 0xBB]
        await ctx.tick()
        assert held(3) == [0x66, 0xAA, 0xBB]

    simulate(dut, bench)


@pytest.mark.parametrize("stalls", [(0.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.3, 0.3, 0.7)])
@pytest.mark.parametrize(("bus", "chunk"), SIZES)
def test_random_segments_and_chunks(bus, chunk, stalls):
    seed = 100 * bus + chunk
    rng = random.Random(seed)
    segments, beats, string = random_work(rng, bus, 30)
    dut = ByteGearbox(engine(bus), chunk=chunk)
    taken = []
    accepted = 0
    newest = 0

    async def segments_in(ctx):
        await put_many(ctx, dut.i_segment, segments, stalls=stalls[0], seed=seed)

    async def beats_in(ctx):
        await put_many(ctx, dut.i, beats, stalls=stalls[1], seed=seed + 1)

    async def bytes_out(ctx):
        nonlocal accepted, newest
        offset = [s["address"] % bus for s in segments]
        left = [s["last"] + 1 - before for s, before in zip(segments, offset, strict=True)]
        quiet = 0
        while quiet < 5:
            level = ctx.get(dut.level)
            shown = [ctx.get(dut.data[index]) for index in range(min(level, chunk))]
            assert shown == string[len(taken) : len(taken) + len(shown)]
            # All that was accepted can be seen, but for one beat that is on its way.
            assert accepted - len(taken) - level in (0, newest)
            count = 0 if rng.random() < stalls[2] else rng.randint(0, len(shown))
            ctx.set(dut.consume, count)
            taken.extend(shown[:count])
            _, _, beat = await ctx.tick().sample(dut.i.valid & dut.i.ready)
            if beat:
                newest = min(left[0], bus - offset[0])
                accepted += newest
                left[0] -= newest
                offset[0] = 0
                if not left[0]:
                    del left[0], offset[0]
            quiet = quiet + 1 if len(taken) == len(string) else 0
        assert not left

    simulate(dut, segments_in, beats_in, bytes_out, max_cycles=20_000, check_loops=False)
    assert taken == string


@pytest.mark.parametrize(("bus", "chunk"), [(1, 1), (1, 7), (4, 4), (8, 20), (16, 16), (32, 64)])
def test_a_beat_a_cycle_while_the_consumer_keeps_up(bus, chunk):
    beats = 40
    dut = ByteGearbox(engine(bus), chunk=chunk)
    came, levels = [], []

    async def segments_in(ctx):
        # Whole beats: every segment begins where the one before ended.
        segments = [run(bus * at, bus * 8, bus) for at in range(0, beats, 8)]
        await put_many(ctx, dut.i_segment, segments)

    async def beats_in(ctx):
        await put_many(ctx, dut.i, [{"data": n % 256} for n in range(beats)])

    async def watch(ctx):
        for cycle in range(beats + 10):
            levels.append(ctx.get(dut.level))
            ctx.set(dut.consume, min(levels[-1], bus))
            _, _, beat = await ctx.tick().sample(dut.i.valid & dut.i.ready)
            if beat:
                came.append(cycle)

    simulate(dut, segments_in, beats_in, watch)
    assert came == list(range(came[0], came[0] + beats))
    # Latency: the bytes can be consumed two cycles after the beat was accepted.
    first = came[0] + 2
    assert levels[first - 1] == 0 and levels[first : first + beats] == [bus] * beats
    assert levels[first + beats] == 0


@pytest.mark.parametrize(("bus", "chunk"), SIZES)
def test_a_waiting_consumer_fills_it_and_stops_the_beats(bus, chunk):
    dut = ByteGearbox(engine(bus), chunk=chunk)

    async def bench(ctx):
        ctx.set(dut.i_segment.payload, run(0, 300, bus))
        ctx.set(dut.i_segment.valid, 1)
        ctx.set(dut.i.valid, 1)
        accepted = 0
        for _ in range(300):
            _, _, ready = await ctx.tick().sample(dut.i.ready)
            accepted += ready
        # No beat more once the string exceeds a chunk, and one beat waits before it.
        level = ctx.get(dut.level)
        assert level == (chunk // bus + 1) * bus
        assert accepted == level // bus + 1
        assert not ctx.get(dut.i.ready)

    if chunk + 2 * bus > 300:
        pytest.skip("the segment would end first")
    simulate(dut, bench)


def test_nothing_is_taken_without_a_segment():
    dut = ByteGearbox(engine(4), chunk=4)

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        for _ in range(5):
            _, _, ready, level = await ctx.tick().sample(dut.i.ready, dut.level)
            assert not ready and not level

    simulate(dut, bench)


@pytest.mark.parametrize("seed", range(3))
def test_reset_in_mid_segment(seed):
    rng = random.Random(seed)
    bus, chunk = 8, 6
    segments, beats, string = random_work(rng, bus, 6)
    dut, reset = ByteGearbox(engine(bus), chunk=chunk), Signal()
    taken = []

    async def bench(ctx):
        ctx.set(dut.i_segment.payload, run(5, 100, bus))
        ctx.set(dut.i_segment.valid, 1)
        await put_many(ctx, dut.i, [{"data": rng.getrandbits(64)} for _ in range(2)])
        ctx.set(dut.i_segment.valid, 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        assert ctx.get(dut.level) == 0
        todo = [(dict(s), b) for s, b in zip_beats(segments, beats, bus)]
        while len(taken) < len(string):
            level = ctx.get(dut.level)
            count = min(level, chunk)
            taken.extend(ctx.get(dut.data[index]) for index in range(count))
            ctx.set(dut.consume, count)
            ctx.set(dut.i_segment.valid, bool(todo))
            ctx.set(dut.i.valid, bool(todo))
            if todo:
                ctx.set(dut.i_segment.payload, todo[0][0])
                ctx.set(dut.i.payload, todo[0][1])
            _, _, ready = await ctx.tick().sample(dut.i.ready)
            if todo and ready:
                del todo[0]

    simulate(dut, bench, reset=reset, max_cycles=2000)
    assert taken == string


def zip_beats(segments, beats, bus):
    """Each beat with the segment that it belongs to."""
    beats = iter(beats)
    for segment in segments:
        for _ in range(segment["last"] // bus + 1):
            yield segment, next(beats)
