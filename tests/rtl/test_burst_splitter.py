# amaranth: UnusedElaboratable=no
"""Bursts cover every beat of every segment once, in order, within 256 beats and 4 KiB pages."""

import random

import pytest
from amaranth import Signal
from amaranth.back import rtlil

from haloconv.planner.config import EngineConfig
from haloconv.rtl.burst_splitter import BurstSplitter
from haloconv.sim.streams import get_many, put_many, simulate

BUSES = (1, 2, 4, 8, 16, 32)
LONGEST = 20000


def engine(bus, address_bits=20):
    return EngineConfig(
        out_lanes=1,
        split_lanes=1,
        bus_bytes=bus,
        input_bytes=LONGEST,
        weight_bytes=16,
        bias_bytes=4,
        address_bits=address_bits,
    )


def bursts_of(address, length, bus):
    """Walk the beats one by one; start a burst at a page and after 256 beats."""
    found = []
    for beat in range(address // bus, (address + length - 1) // bus + 1):
        if not found or beat * bus % 4096 == 0 or found[-1]["beats"] == 256:
            found.append({"address": beat * bus, "beats": 0})
        found[-1]["beats"] += 1
    return found


def random_segment(rng, bits):
    length = rng.choice((1, 2, 3, rng.randint(1, 70), rng.randint(1, 5000), LONGEST))
    address = rng.randrange((1 << bits) - length + 1)
    if rng.random() < 0.3:  # around a page border
        address = min(max(0, address // 4096 * 4096 + rng.randint(-5, 5)), (1 << bits) - length)
    return {"address": address, "length": length}


def run(dut, segments, expected, *, put_stalls=0.0, get_stalls=0.0, seed=0):
    bursts = []

    async def segments_in(ctx):
        await put_many(ctx, dut.i, segments, stalls=put_stalls, seed=seed, limit=20_000)

    async def bursts_out(ctx):
        got = await get_many(ctx, dut.o, len(expected), stalls=get_stalls, seed=seed + 1, limit=100)
        bursts.extend(got)
        ctx.set(dut.o.ready, 1)
        for _ in range(5):
            _, _, valid, busy = await ctx.tick().sample(dut.o.valid, dut.busy)
            assert not valid and not busy

    simulate(dut, segments_in, bursts_out)
    return bursts


def test_elaborates():
    for bus in BUSES:
        rtlil.convert(BurstSplitter(engine(bus)), emit_src=False)


@pytest.mark.parametrize("bus", BUSES)
def test_buffers_shorter_than_a_burst_can_be(bus):
    """A segment may begin anywhere in a block, however short the longest one is."""
    rng = random.Random(bus)
    config = EngineConfig(
        out_lanes=1, split_lanes=1, bus_bytes=bus,
        input_bytes=40, weight_bytes=16, psum_bytes=0, bias_bytes=4, address_bits=20,
    )  # fmt: skip
    segments = []
    for _ in range(80):
        page, length = 4096 * rng.randrange(200), rng.randint(1, 40)
        segments.append({"address": page + rng.randrange(4096), "length": length})
    expected = [
        burst
        for segment in segments
        for burst in bursts_of(segment["address"], segment["length"], bus)
    ]
    assert run(BurstSplitter(config), segments, expected, get_stalls=0.3, seed=bus) == expected


@pytest.mark.parametrize(
    ("bus", "segment", "expected"),
    [
        # One byte in the middle of a beat; two bytes across two beats.
        (8, (0x1003, 1), [(0x1000, 1)]),
        (8, (0x1007, 2), [(0x1000, 2)]),
        # Exactly to the page's end, and one byte beyond it.
        (8, (0x1FF8, 8), [(0x1FF8, 1)]),
        (8, (0x1FF8, 9), [(0x1FF8, 1), (0x2000, 1)]),
        # 300 beats: 256 and the rest; pages of 128 beats of 32 bytes.
        (1, (5, 300), [(5, 256), (261, 44)]),
        (32, (31, 4066), [(0, 128), (4096, 1)]),
        (4, (0xFF0, 1060), [(0xFF0, 4), (0x1000, 256), (0x1400, 5)]),
    ],
)
def test_by_hand(bus, segment, expected):
    address, length = segment
    requests = [{"address": first, "beats": beats} for first, beats in expected]
    assert bursts_of(address, length, bus) == requests
    dut = BurstSplitter(engine(bus))
    assert run(dut, [{"address": address, "length": length}], requests) == requests


@pytest.mark.parametrize("stalls", [(0, 0), (0.5, 0), (0, 0.5), (0.4, 0.4)])
@pytest.mark.parametrize("bus", BUSES)
def test_random_segments(bus, stalls):
    seed = bus
    rng = random.Random(seed)
    segments = [random_segment(rng, 20) for _ in range(30)]
    expected = [b for s in segments for b in bursts_of(s["address"], s["length"], bus)]
    assert all(b["address"] // 4096 == (b["address"] + b["beats"] * bus - 1) // 4096
               for b in expected)  # fmt: skip
    dut = BurstSplitter(engine(bus))
    got = run(dut, segments, expected, put_stalls=stalls[0], get_stalls=stalls[1], seed=seed)
    assert got == expected


def test_top_of_the_address_space():
    segments = [{"address": 0xFFFF, "length": 1}, {"address": 0xE003, "length": 0x1FFD}]
    expected = [b for s in segments for b in bursts_of(s["address"], s["length"], 4)]
    assert expected[-1] == {"address": 0xFC00, "beats": 256}
    assert run(BurstSplitter(engine(4, 16)), segments, expected) == expected


@pytest.mark.parametrize("bus", [1, 8, 32])
def test_one_burst_a_cycle_and_latency_two(bus):
    rng = random.Random(7)
    segments = [random_segment(rng, 20) for _ in range(20)]
    expected = sum(len(bursts_of(s["address"], s["length"], bus)) for s in segments)
    dut = BurstSplitter(engine(bus))
    accepted, left = [], []

    async def segments_in(ctx):
        await ctx.tick().repeat(3)
        await put_many(ctx, dut.i, segments)

    async def watch(ctx):
        ctx.set(dut.o.ready, 1)
        for cycle in range(expected + 20):
            _, _, came, went = await ctx.tick().sample(dut.i.valid & dut.i.ready, dut.o.valid)
            if came:
                accepted.append(cycle)
            if went:
                left.append(cycle)

    simulate(dut, segments_in, watch)
    assert len(accepted) == len(segments)
    assert left == list(range(accepted[0] + 2, accepted[0] + 2 + expected))


@pytest.mark.parametrize("seed", [1, 2])
def test_busy_while_a_burst_has_not_left(seed):
    rng = random.Random(seed)
    bus = 8
    segments = [random_segment(rng, 20) for _ in range(12)]
    dut = BurstSplitter(engine(bus))
    pending = done = 0

    async def segments_in(ctx):
        await put_many(ctx, dut.i, segments, stalls=0.8, seed=seed, limit=5000)

    async def watch(ctx):
        nonlocal pending, done
        expected = sum(len(bursts_of(s["address"], s["length"], bus)) for s in segments)
        while done < expected:
            ctx.set(dut.o.ready, rng.random() < 0.5)
            _, _, came, segment, went, busy = await ctx.tick().sample(
                dut.i.valid & dut.i.ready, dut.i.payload, dut.o.valid & dut.o.ready, dut.busy
            )
            assert busy == (pending > 0)
            if came:
                pending += len(bursts_of(segment.address, segment.length, bus))
            if went:
                pending -= 1
                done += 1

    simulate(dut, segments_in, watch)
    assert pending == 0


def test_reset_in_the_middle():
    dut, reset = BurstSplitter(engine(1)), Signal()
    after = {"address": 77, "length": 600}
    expected = bursts_of(77, 600, 1)
    got = []

    async def bench(ctx):
        await put_many(ctx, dut.i, [{"address": 0, "length": LONGEST}])
        await get_many(ctx, dut.o, 3)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        _, _, valid, busy, ready = await ctx.tick().sample(dut.o.valid, dut.busy, dut.i.ready)
        assert (valid, busy, ready) == (0, 0, 1)
        await put_many(ctx, dut.i, [after])
        got.extend(await get_many(ctx, dut.o, len(expected)))

    simulate(dut, bench, reset=reset)
    assert got == expected
