# amaranth: UnusedElaboratable=no
"""The two timelines against the hardware that they stand for, cycle by cycle."""

import itertools
import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import chunk_bytes, run_latency, segments_waiting
from haloconv.planner.timeline import ReadTimeline, WriteTimeline
from haloconv.rtl.burst_splitter import BurstSplitter
from haloconv.rtl.byte_gearbox import ByteGearbox
from haloconv.rtl.output_writer import OutputWriter
from haloconv.rtl.ports import ReadData, ReadRequest
from haloconv.rtl.segment_queue import SegmentQueue
from haloconv.rtl.widths import Segment
from haloconv.sim.memory import MemoryModel, memory_process
from haloconv.sim.streams import put_many, simulate


class ReadPath(wiring.Component):
    """Segments go to memory and, in the same order, to the gearbox, as in the engine."""

    def __init__(self, config):
        self.config = config
        chunk = chunk_bytes(config)
        self.gearbox = ByteGearbox(config, chunk=chunk)
        super().__init__(
            {
                "i": In(stream.Signature(Segment(config))),
                "request": Out(stream.Signature(ReadRequest(config.address_bits))),
                "data": In(stream.Signature(ReadData(config.bus_bytes))),
                "level": Out(len(self.gearbox.level)),
                "consume": In(len(self.gearbox.consume)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.gearbox = gearbox = self.gearbox
        m.submodules.bursts = bursts = BurstSplitter(self.config)
        m.submodules.asked = asked = SegmentQueue(self.config)
        wiring.connect(m, wiring.flipped(self.i), asked.i)
        wiring.connect(m, asked.o, bursts.i)
        wiring.connect(m, asked.o_run, gearbox.i_segment)
        wiring.connect(m, wiring.flipped(self.data), gearbox.i)
        wiring.connect(m, bursts.o, wiring.flipped(self.request))
        m.d.comb += [
            self.level.eq(gearbox.level),
            gearbox.consume.eq(self.consume),
        ]
        return m


def take_cycles(config, segments, chunks, earliest, latency):
    """Cycle in which each chunk is taken from the hardware, no earlier than asked."""
    dut = ReadPath(config)
    model = MemoryModel(
        bytes(1 << 15), address_bits=config.address_bits, bus_bytes=config.bus_bytes,
        latency=latency,
    )  # fmt: skip
    cycles = []

    async def ask(ctx):
        payloads = [{"address": address, "length": length} for address, length in segments]
        await put_many(ctx, dut.i, payloads, limit=5000)

    async def take(ctx):
        cycle = 0
        for size, first in zip(chunks, earliest, strict=True):
            while True:
                go = cycle >= first and ctx.get(dut.level) >= size
                ctx.set(dut.consume, size if go else 0)
                await ctx.tick()
                cycle += 1
                if go:
                    break
            cycles.append(cycle - 1)

    process = memory_process(model, read_request=dut.request, read_data=dut.data)
    simulate(dut, ask, take, processes=[process], check_loops=False)
    return cycles


def predicted(config, segments, chunks, earliest, latency):
    reads = ReadTimeline(
        config.bus_bytes, chunk_bytes(config), latency, run_latency(config),
        segments_waiting(config),
    )  # fmt: skip
    waiting = list(zip(chunks, earliest, strict=True))
    cycles = []
    for address, length in segments:
        reads.ask(address, length)
        while length:
            size, first = waiting.pop(0)
            cycles.append(reads.take(size, first))
            length -= size
    return cycles


def random_reads(rng, config, count, longest):
    """Segments, the chunks in which they are taken, and the first cycle for each."""
    segments, chunks, earliest = [], [], []
    now = 0
    for _ in range(count):
        length = rng.randint(1, longest)
        segments.append((rng.randrange(0, (1 << 15) - length), length))
        now += rng.choice((0, 0, 0, rng.randint(0, 60)))
        while length:
            size = min(length, rng.randint(1, chunk_bytes(config)))
            chunks.append(size)
            earliest.append(now)
            length -= size
    return segments, chunks, earliest


@pytest.mark.parametrize("bus", [1, 2, 8, 32])
@pytest.mark.parametrize("latency", [1, 6, 40])
@pytest.mark.parametrize("serial", [False, True])
def test_reads_of_random_segments(bus, latency, serial):
    """Beside serial requantisers fewer segments wait for the splitter."""
    rng = random.Random(100 * bus + latency)
    config = EngineConfig(
        out_lanes=5, split_lanes=3, bus_bytes=bus, address_bits=16, serial_requantizers=serial
    )
    for count, longest in ((90, 6), (12, 120)):
        work = random_reads(rng, config, count, longest)
        assert predicted(config, *work, latency) == take_cycles(config, *work, latency)


def test_reads_that_cross_pages_and_bursts():
    # Bus of one byte: bursts of at most 256 beats, and none beyond a multiple of 4096.
    configs = [
        EngineConfig(
            out_lanes=8, split_lanes=8, bus_bytes=1, address_bits=16, serial_requantizers=serial
        )
        for serial in (False, True)
    ]
    segments = [(4000, 300), (8190, 4), (100, 520), (12287, 2), (3, 1)]
    chunks = [8] * 37 + [4] + [4] + [8] * 65 + [2] + [1]
    earliest = [0] * len(chunks)
    for config, latency in itertools.product(configs, (1, 20)):
        work = segments, chunks, earliest
        assert predicted(config, *work, latency) == take_cycles(config, *work, latency)


def test_reads_by_hand():
    # Asked in cycle 0, on the port in cycle 3, first beat 3 later, two more through the gearbox.
    reads = ReadTimeline(4, 6, 3)
    reads.ask(8, 8)
    assert reads.take(4, 0) == 3 + 3 + 2
    assert reads.take(4, 0) == 9
    reads.ask(1, 2)
    assert reads.take(2, 30) == 30
    assert reads.walker_free == 2


def test_segments_that_wait_by_hand():
    """The splitter takes one a cycle after it was asked for, and the others two bursts apart."""
    for waiting, expected in ((1, [0, 1, 3, 5, 7]), (2, [0, 1, 2, 4, 6])):
        reads = ReadTimeline(4, 6, 3, waiting=waiting)
        asked = []
        for _ in range(5):
            reads.ask(4080, 32)  # crosses a page
            asked.append(reads.walker_free - 1)
            for _ in range(32):
                reads.take(1, 0)
        assert asked == expected


def written_cycles(config, fields, addresses, rows):
    """Cycles in which the hardware takes each row; tiles of one row each."""
    dut = OutputWriter(config)
    taken, idle = [], []

    async def tiles(ctx):
        for name, value in fields.items():
            ctx.set(dut.descriptor[name], value)
        ctx.set(dut.o.ready, 1)
        await put_many(ctx, dut.i_tile, [{"address": address} for address in addresses], limit=999)

    async def produce(ctx):
        await put_many(ctx, dut.i, rows, limit=999)
        ctx.set(dut.flush, 1)
        for _ in range(6):
            await ctx.tick()

    async def watch(ctx):
        cycle = 0
        async for _, _, moved, rests in ctx.tick().sample(dut.i.valid & dut.i.ready, dut.idle):
            if moved:
                taken.append(cycle)
                idle.clear()
            if rests:
                idle.append(cycle)
            cycle += 1

    simulate(dut, tiles, produce, background=[watch], check_loops=False)
    return taken, idle[0]


@pytest.mark.parametrize(("q", "bus"), [(1, 1), (1, 8), (3, 2), (3, 4), (4, 32), (8, 4), (6, 16)])
@pytest.mark.parametrize("raw", [False, True])
def test_rows_and_the_beats_that_they_end(q, bus, raw):
    rng = random.Random(10 * q + bus)
    size = 4 if raw else 1
    config = EngineConfig(
        out_lanes=q, split_lanes=1, requant_lanes=q, bus_bytes=bus, address_bits=16
    )
    # A tile of single pixels, some neighbours, some far away; then a run of neighbours.
    counts = [rng.randint(1, q) for _ in range(40)]
    addresses, at = [], 0
    for count in counts:
        addresses.append(at)
        at += count * size + rng.choice((0, 0, rng.randint(0, 2 * bus)))
    rows = [
        {
            "bytes": [0] * (4 * q),
            "count": count,
            "level": 5,
            "last_piece": (count * size - 1) // bus,
        }
        for count in counts
    ]
    taken, idle = written_cycles(config, {"raw": int(raw)}, addresses, rows)

    writes = WriteTimeline(bus)
    expected = []
    for count, address in zip(counts, addresses, strict=True):
        writes.next_tile(0)
        expected.append(writes.row(0, address, count * size))
    # The row is taken with its last piece.
    assert taken == expected
    assert idle == writes.idle_at


def test_writes_by_hand():
    writes = WriteTimeline(4)
    assert writes.row(5, 0, 2) == 5  # held
    assert writes.row(5, 2, 2) == 6  # completes the beat
    assert writes.row(5, 6, 4) == 7  # two bytes end a beat, two begin another
    assert writes.row(5, 40, 2) == 8  # sends the held beat away
    assert writes.row(5, 47, 2) == 9  # does so too and then needs both its own: two cycles
    assert writes.row(5, 49, 1) == 10  # waits in the register before, with a beat's end of its own
    assert writes.row(5, 52, 8) == 13  # two pieces of a beat each; the first sends one away


@pytest.mark.parametrize("seed", range(6))
def test_a_state_decides_what_follows(seed):
    """Two timelines of equal state go on alike, and a jump brings one into the other's place."""
    rng = random.Random(seed)
    bus, chunk, latency = rng.choice((1, 4, 16)), rng.choice((4, 9, 16)), rng.choice((1, 16, 90))
    pitch, size = bus * rng.randint(1, 9), rng.randint(1, 40)
    chunks = [min(chunk, size - first) for first in range(0, size, chunk)]

    def row(reads, index):
        reads.ask(3 * bus + index * pitch, size)
        return [reads.take(count, 0) for count in chunks]

    waiting = rng.choice((1, 2))
    reads = ReadTimeline(bus, chunk, latency, waiting=waiting)
    seen = {}
    index = 0
    while reads.state() not in seen:
        seen[reads.state()] = (index, reads.taken_at)
        row(reads, index)
        index += 1
        assert index < 2000
    first, cycle = seen[reads.state()]
    period, cycles = index - first, reads.taken_at - cycle
    assert period > 0
    # Four periods further by a jump, and step by step. Pages are 4096 bytes long: rows that cross
    # one are asked for in two bursts, but these rows are too slow to notice.
    jumped = ReadTimeline(bus, chunk, latency, waiting=waiting)
    for number in range(index):
        row(jumped, number)
    jumped.jump(4 * cycles, 4 * period * size)
    walked = [row(reads, index + number) for number in range(6 * period)]
    again = [row(jumped, index + number) for number in range(4 * period, 6 * period)]
    if not reads.tight:
        assert again == walked[4 * period :]
    assert jumped.state() == reads.state() or reads.tight


def test_a_jump_within_a_segment_leaves_the_requests():
    reads = ReadTimeline(4, 4, 5)
    reads.ask(0, 400)
    walker = reads.walker_free
    for _ in range(8):
        reads.take(4, 0)
    before = reads.state(asking=False)
    reads.jump(50, 200, asking=False)
    assert reads.state(asking=False) == before
    assert reads.walker_free == walker
    assert reads.take(4, 0) == reads.take(4, 0) - 1
    # 58 of 100 chunks are gone; the rest comes at the pace of the bus.
    last = [reads.take(4, 0) for _ in range(40)][-1]
    assert last == 3 + 5 + 2 + 99


def bursts_beat_by_beat(address, length, bus):
    """Count bursts as beats pass: a new one at each page, and behind 256 beats."""
    bursts = beats = 0
    for beat in range(address // bus, (address + length - 1) // bus + 1):
        if not bursts or beat * bus % 4096 == 0 or beats == 256:
            bursts, beats = bursts + 1, 0
        beats += 1
    return bursts


@pytest.mark.parametrize("bus", [1, 2, 4, 8, 16, 32])
def test_bursts_end_at_pages_and_at_256_beats(bus):
    reads = ReadTimeline(bus, 8, 16)
    rng = random.Random(bus)
    for _ in range(200):
        address, length = rng.randrange(20000), rng.choice((1, rng.randint(1, 12000)))
        assert reads.bursts(address, length) == bursts_beat_by_beat(address, length, bus), (
            address,
            length,
        )
    assert reads.bursts(4095, 1) == 1
    assert reads.bursts(4095, 2) == 2
    assert reads.bursts(0, 4096) == max(1, 4096 // bus // 256)


@pytest.mark.parametrize("seed", range(8))
def test_saved_events_go_on_elsewhere_as_they_went_here(seed):
    rng = random.Random(seed)
    bus, latency = rng.choice((1, 4, 8)), rng.choice((1, 16, 60))
    waiting = rng.choice((1, 2))

    def go(reads, segments, earliest):
        return [
            (
                reads.ask(address, len(chunks) * chunk),
                *(reads.take(chunk, earliest) for _ in chunks),
            )
            for address, chunks, chunk in segments
        ]

    def draw():
        return [
            (rng.randrange(9000), range(rng.randint(1, 12)), rng.randint(1, 8)) for _ in range(90)
        ]

    here = ReadTimeline(bus, 8, latency, waiting=waiting)
    go(here, draw(), 0)
    at = here.walker_free + rng.randint(-3, 3)
    there = ReadTimeline(bus, 8, latency, waiting=waiting)
    go(there, draw()[:5], 0)
    there.restore(here.save(at), at + 1000)
    assert there.outlook(at + 1000) == here.outlook(at)
    more = draw()
    moved = [(None, *(when - 1000 for when in taken)) for _, *taken in go(there, more, at + 1003)]
    assert moved == go(here, more, at + 3)
    assert there.walker_free == here.walker_free + 1000


def test_old_events_do_not_tell_outlooks_apart():
    reads = [ReadTimeline(8, 8, 16) for _ in range(2)]
    reads[0].ask(0, 64)
    for _ in range(8):
        reads[0].take(8, 0)
    outlooks = []
    for timeline in reads:
        timeline.walker_free = 500
        outlooks.append(timeline.outlook(500))
    assert outlooks[0] == outlooks[1]
    reads[0].ask(0, 64)
    for _ in range(8):
        reads[0].take(8, 0)
    assert reads[0].outlook(500) != outlooks[0]
