# amaranth: UnusedElaboratable=no
"""The output writer against a memory written byte by byte."""

import random

import pytest
from amaranth.hdl import Signal

from haloconv.planner.config import EngineConfig
from haloconv.rtl.output_writer import OutputWriter
from haloconv.sim.streams import get_many, put_many, simulate

SIZES = ((1, 1), (1, 32), (3, 1), (3, 4), (2, 8), (8, 4), (8, 16), (5, 32), (4, 2))
"""(Q, bus bytes)."""
SENTINEL = 0xA5
MEMORY = 1 << 16


def make_config(q, bus, *, lanes=None, split=3):
    return EngineConfig(
        out_lanes=q if lanes is None else lanes, split_lanes=split, requant_lanes=q,
        bus_bytes=bus, input_bytes=1024, address_bits=16, roundings=(),
    )  # fmt: skip


class Tile:
    """A tile of results: the rows that the drain gives, and (address, byte) in that order.

    Addresses follow from coordinates: row, column and channel times their pitches.
    """

    def __init__(self, rng, config, fields, base, rows, columns, channels):
        self.base = base
        self.rows: list[dict] = []
        self.bytes: list[tuple[int, int]] = []
        raw, q, lanes = fields["raw"], config.results_per_cycle, config.out_lanes
        size = 4 if raw else 1
        width = fields["out_column_step"] // fields["out_pixel_pitch"]
        for row in range(rows):
            for column0 in range(0, columns, width):
                for group in range(0, channels, lanes):
                    count = min(width, columns - column0)
                    for column in range(column0, column0 + count):
                        members = min(lanes, channels - group)
                        for first in range(0, members, q):
                            part = min(q, members - first)
                            level = 0
                            if first + q >= members:
                                level = 1
                                if column == column0 + count - 1:
                                    level = 2
                                    if group + lanes >= channels:
                                        level = 3
                                        if column0 + width >= columns:
                                            level = 4 if row < rows - 1 else 5
                            content = [rng.randrange(256) for _ in range(part * size)]
                            address = (
                                base
                                + row * fields["out_row_pitch"]
                                + column * fields["out_pixel_pitch"]
                                + (group + first) * size
                            )
                            self.bytes += [(address + k, byte) for k, byte in enumerate(content)]
                            # What lies beyond the valid bytes may be anything.
                            padding = [rng.randrange(256) for _ in range(4 * q - len(content))]
                            self.rows.append(
                                {"bytes": content + padding, "count": part, "level": level}
                            )


def fewest_beats(stream, bus):
    """Beats for bytes in this order: one for each run of neighbours within a beat.

    A beat leaves at the latest when its last byte comes, so a later return costs another.
    """
    beats, before = 0, None
    for address, _ in stream:
        if before is None or address // bus != before // bus or before % bus == bus - 1:
            beats += 1
        before = address
    return beats


class Bench:
    def __init__(self, config, fields, tiles, *, stalls=(0.0, 0.0, 0.0), seed=0):
        self.config, self.fields, self.tiles = config, fields, tiles
        self.dut = OutputWriter(config)
        self.stalls, self.seed = stalls, seed
        self.beats: list[dict] = []
        self.written = 0
        self.stream = [item for tile in tiles for item in tile.bytes]
        self.count = fewest_beats(self.stream, config.bus_bytes)

    def set_fields(self, ctx):
        for name, value in self.fields.items():
            ctx.set(self.dut.descriptor[name], value)

    async def produce_rows(self, ctx):
        size = 4 if self.fields.get("raw") else 1
        rows = [
            row | {"last_piece": (size * row["count"] - 1) // self.config.bus_bytes}
            for tile in self.tiles
            for row in tile.rows
        ]
        await put_many(ctx, self.dut.i, rows, stalls=self.stalls[0], seed=self.seed)
        ctx.set(self.dut.flush, 1)

    async def produce_tiles(self, ctx):
        self.set_fields(ctx)
        addresses = [{"address": tile.base} for tile in self.tiles]
        await put_many(
            ctx, self.dut.i_tile, addresses, stalls=self.stalls[1], seed=self.seed + 1, limit=9000
        )

    async def consume(self, ctx):
        self.beats = await get_many(
            ctx, self.dut.o, self.count, stalls=self.stalls[2], seed=self.seed + 2
        )
        # All beats of the model are there: nothing is held, nothing comes any more.
        ctx.set(self.dut.o.ready, 1)
        for _ in range(8):
            await ctx.tick()
            assert ctx.get(self.dut.idle)
            assert not ctx.get(self.dut.o.valid)

    async def count_written(self, ctx):
        async for _, _, written in ctx.tick().sample(self.dut.written):
            self.written += written

    def check(self):
        memory = [SENTINEL] * MEMORY
        for address, byte in self.stream:
            memory[address] = byte
        seen = [SENTINEL] * MEMORY
        bus = self.config.bus_bytes
        for beat in self.beats:
            assert beat["address"] % bus == 0
            assert beat["strobe"]
            for lane in range(bus):
                if beat["strobe"] >> lane & 1:
                    seen[beat["address"] + lane] = beat["data"] >> 8 * lane & 0xFF
        assert seen == memory
        # Strobes name every byte exactly once: none of them is written twice.
        assert sum(beat["strobe"].bit_count() for beat in self.beats) == len(self.stream)
        assert self.written == len(self.stream)

    def run(self, *, check_loops=False):
        simulate(
            self.dut, self.produce_rows, self.produce_tiles, self.consume,
            background=[self.count_written], check_loops=check_loops,
        )  # fmt: skip
        self.check()


def tensor(config, *, raw, width, channels, split=None):
    """Descriptor fields of an output tensor."""
    pitch = channels * (4 if raw else 1)
    return {
        "raw": int(raw),
        "out_pixel_pitch": pitch,
        "out_column_step": pitch * (config.split_lanes if split is None else split),
        "out_row_pitch": pitch * width,
    }


def random_bench(seed, q, bus, *, stalls=(0.0, 0.0, 0.0)):
    rng = random.Random(seed)
    config = make_config(q, bus, lanes=q * rng.randint(1, 2) + rng.randint(0, q - 1))
    channels = rng.randint(1, 2 * config.out_lanes + 3)
    width = rng.randint(1, 7)
    raw = bool(rng.getrandbits(1))
    split = rng.choice((1, config.split_lanes))
    fields = tensor(config, raw=raw, width=width, channels=channels, split=split)
    tiles = []
    for _ in range(4):
        part = rng.choice((channels, rng.randint(1, channels)))
        columns = rng.choice((width, rng.randint(1, width)))
        tiles.append(
            Tile(
                rng, config, fields, 4096 * len(tiles) + rng.randrange(1024),
                rng.randint(1, 3), columns, part,
            )
        )  # fmt: skip
    return Bench(config, fields, tiles, stalls=stalls, seed=seed)


@pytest.mark.parametrize("size", SIZES)
def test_random_tiles(size):
    random_bench(sum(size), *size).run(check_loops=True)


@pytest.mark.parametrize("seed", range(9))
def test_random_tiles_with_stalls(seed):
    stalls = ((0.4, 0.0, 0.5), (0.0, 0.7, 0.2), (0.0, 0.0, 0.8))[seed % 3]
    random_bench(100 + seed, *SIZES[seed], stalls=stalls).run()


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(("q", "bus"), [(1, 32), (4, 4), (8, 4), (3, 16), (8, 1)])
@pytest.mark.parametrize("start", [0, 1, 13])
def test_a_contiguous_run_takes_no_beat_too_many(q, bus, start, raw):
    config = make_config(q, bus)
    fields = tensor(config, raw=raw, width=4, channels=2 * q, split=1)
    tile = Tile(random.Random(1), config, fields, 64 + start, 3, 4, 2 * q)
    bench = Bench(config, fields, [tile])
    bench.run()
    size = 3 * 4 * 2 * q * (4 if raw else 1)
    assert len(bench.beats) == -(-(start % bus + size) // bus)


@pytest.mark.parametrize(("q", "bus", "raw"), [(4, 4, False), (8, 4, True), (2, 8, True)])
def test_a_beat_a_cycle(q, bus, raw):
    # Rows of whole beats, aligned: one cycle for each bus_bytes of a row.
    config = make_config(q, bus)
    fields = tensor(config, raw=raw, width=8, channels=q)
    tile = Tile(random.Random(2), config, fields, 128, 4, 8, q)
    bench = Bench(config, fields, [tile])
    stamps = []

    async def watch(ctx):
        cycle = 0
        async for _, _, taken, valid in ctx.tick().sample(
            bench.dut.i.valid & bench.dut.i.ready, bench.dut.o.valid
        ):
            if taken or valid:
                stamps.append((cycle, taken, valid))
            cycle += 1

    simulate(
        bench.dut, bench.produce_rows, bench.produce_tiles, bench.consume,
        background=[bench.count_written, watch],
    )  # fmt: skip
    bench.check()
    beats = [cycle for cycle, _, valid in stamps if valid]
    assert len(beats) == 32 * max(1, q * (4 if raw else 1) // bus)
    assert beats == list(range(beats[0], beats[0] + len(beats)))


def test_latency_from_row_to_beat():
    config = make_config(4, 4)
    fields = tensor(config, raw=False, width=1, channels=4)
    bench = Bench(config, fields, [Tile(random.Random(3), config, fields, 8, 1, 1, 4)])
    dut, seen = bench.dut, {}

    async def run(ctx):
        bench.set_fields(ctx)
        ctx.set(dut.i_tile.payload.address, 8)
        ctx.set(dut.i_tile.valid, 1)
        await ctx.tick()
        ctx.set(dut.i_tile.valid, 0)
        ctx.set(dut.i.payload, bench.tiles[0].rows[0])
        ctx.set(dut.i.valid, 1)
        assert not ctx.get(dut.idle)
        for cycle in range(5):
            if ctx.get(dut.i.valid & dut.i.ready):
                seen["row"] = cycle
            if ctx.get(dut.o.valid):
                seen.setdefault("beat", cycle)
            await ctx.tick()
            ctx.set(dut.i.valid, 0)

    simulate(dut, run)
    assert seen["beat"] - seen["row"] == 3


def test_what_is_held_waits_for_the_flush():
    config = make_config(2, 8)
    fields = tensor(config, raw=False, width=2, channels=2)
    tile = Tile(random.Random(4), config, fields, 3, 1, 1, 2)
    bench = Bench(config, fields, [tile])
    dut = bench.dut

    async def run(ctx):
        bench.set_fields(ctx)
        ctx.set(dut.o.ready, 1)
        await put_many(ctx, dut.i_tile, [{"address": 3}])
        assert ctx.get(dut.idle)
        await put_many(ctx, dut.i, tile.rows)
        for _ in range(10):
            assert not ctx.get(dut.o.valid)
            assert not ctx.get(dut.idle)
            await ctx.tick()
        ctx.set(dut.flush, 1)
        beats = await get_many(ctx, dut.o, 1, limit=3)
        assert beats[0]["address"] == 0
        assert beats[0]["strobe"] == 0b11000
        assert ctx.get(dut.idle)

    simulate(dut, run)


def test_a_row_waits_for_its_tile():
    config = make_config(2, 4)
    fields = tensor(config, raw=False, width=1, channels=2)
    tiles = [Tile(random.Random(k), config, fields, 32 * k, 1, 1, 2) for k in range(3)]
    bench = Bench(config, fields, tiles, stalls=(0.0, 0.9, 0.0), seed=3)
    bench.run()


@pytest.mark.parametrize("seed", range(3))
def test_reset_with_beats_held(seed):
    bench = random_bench(40 + seed, 3, 8)
    reset = Signal()
    dut = bench.dut

    async def run(ctx):
        bench.set_fields(ctx)
        ctx.set(dut.i_tile.payload.address, 5)
        ctx.set(dut.i_tile.valid, 1)
        await ctx.tick()
        # Nobody takes the beats; rows fill what the writer holds.
        rows = [row for tile in bench.tiles for row in tile.rows]
        for row in rows[: 2 + 3 * seed]:
            ctx.set(dut.i.payload, row)
            ctx.set(dut.i.valid, 1)
            await ctx.tick()
        for port in (dut.i.valid, dut.i_tile.valid):
            ctx.set(port, 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        assert ctx.get(dut.idle)
        assert not ctx.get(dut.o.valid)
        started.append(True)

    started: list[bool] = []

    def after(bench_):
        async def wait(ctx):
            while not started:
                await ctx.tick()
            bench.written = 0
            await bench_(ctx)

        return wait

    simulate(
        dut, run, after(bench.produce_rows), after(bench.produce_tiles), after(bench.consume),
        background=[bench.count_written], reset=reset,
    )  # fmt: skip
    bench.check()
