# amaranth: UnusedElaboratable=no
"""Segments of random tiles in order, within two halves of each kind of operand."""

import importlib.util
import random
from pathlib import Path

import numpy as np
import pytest
from amaranth import Signal
from amaranth.back import rtlil

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import FIELDS
from haloconv.rtl.segment_walker import SegmentWalker, scale_entry_bytes
from haloconv.sim.streams import get_many, put_many, simulate

from ..support.kept_fields import kept_fields

_spec = importlib.util.spec_from_file_location(
    "tile_walk", Path(__file__).parents[1] / "support" / "tile_walk.py"
)
assert _spec is not None and _spec.loader is not None
walk = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(walk)

KINDS = ("parameters", "weights", "input")


def set_descriptor(ctx, dut, descriptor):
    ctx.set(dut.descriptor, kept_fields(descriptor))


def plain_fields(**values):
    """Raw bits of a descriptor of which only some fields matter."""
    return sum(values.get(field.name, 0) << field.bit for field in FIELDS)


def tile_record(**values):
    record = dict.fromkeys(
        (
            *("new_parameters", "new_weights", "new_input", "bias_address", "scale_address"),
            *("weight_address", "input_address", "tile_m", "weight_length", "input_length"),
            *("rows", "columns"),
        ),
        0,
    )
    assert not set(values) - set(record)
    return record | values


def test_scale_entries():
    assert scale_entry_bytes(EngineConfig()) == 6
    assert scale_entry_bytes(EngineConfig(weight_zero_points=False)) == 5


def test_elaborates():
    for config in walk.CONFIGS.values():
        rtlil.convert(SegmentWalker(config), emit_src=False)


def test_by_hand():
    dut = SegmentWalker(EngineConfig())
    tile = tile_record(
        new_parameters=1, new_weights=1, new_input=1, bias_address=0x100, scale_address=0x200,
        weight_address=0x301, input_address=0x1003, tile_m=5, weight_length=45, input_length=4,
        rows=2, columns=3,
    )  # fmt: skip
    runs = [(0x100, 20), (0x200, 30), (0x301, 45)]
    pixels = [(0x1003, 4), (0x100A, 4), (0x1011, 4), (0x1067, 4), (0x106E, 4), (0x1075, 4)]
    rows = [(0x1003, 4), (0x1067, 4)]
    got = []

    async def bench(ctx):
        for flags, expected in (
            ({"has_bias": 1, "load_scale": 1, "row_segments": 0}, [*runs, *pixels]),
            ({"has_bias": 1, "load_scale": 0, "row_segments": 1}, [runs[0], runs[2], *rows]),
            ({"has_bias": 0, "load_scale": 1, "row_segments": 1}, [*runs[1:], *rows]),
            ({"has_bias": 0, "load_scale": 0, "row_segments": 1}, [runs[2], *rows]),
        ):
            ctx.set(
                dut.descriptor,
                kept_fields(plain_fields(in_pixel_pitch=7, in_row_pitch=100, **flags)),
            )
            ctx.set(dut.i.payload, tile)
            ctx.set(dut.i.valid, 1)
            segments = await get_many(ctx, dut.o, len(expected))
            got.append([(s["address"], s["length"]) for s in segments] == expected)
            ctx.set(dut.i.valid, 0)
            for kind in KINDS:
                ctx.set(getattr(dut, f"release_{kind}"), 1)
            await ctx.tick()
            for kind in KINDS:
                ctx.set(getattr(dut, f"release_{kind}"), 0)

    simulate(dut, bench)
    assert got == [True] * 4


@pytest.mark.parametrize("stalls", [(0.0, 0.0, 1.0), (0.3, 0.5, 0.3), (0.0, 0.0, 0.05)])
@pytest.mark.parametrize("name", walk.CONFIGS)
def test_random_layers(name, stalls):
    """``stalls``: of tiles, of segments, and the chance that a used half is released in a cycle."""
    config = walk.CONFIGS[name]
    seed = [list(walk.CONFIGS).index(name), int(100 * stalls[2])]
    numbers, rng = np.random.default_rng(seed), random.Random(seed[0])
    dut, reset = SegmentWalker(config), Signal()
    payload_bits = dut.i.payload.as_value()
    mask = (1 << config.address_bits) - 1

    async def bench(ctx):
        for trial in range(6):
            mode, order = ("channel", "row", "depthwise")[trial % 3], ("hwmc", "mhwc")[trial // 3]
            case = walk.random_case(numbers, config, mode, order)
            tiles = case.tiles[:24]
            # Segments with the kind and the tile that they belong to.
            expected = []
            for number, at in enumerate(tiles):
                todo = case.segments(at)
                parameters = (case.layer.has_bias + case.load_scale) * at.new_parameters
                kinds = ["parameters"] * parameters + ["weights"] * at.new_weights
                kinds += ["input"] * (len(todo) - len(kinds))
                expected += [
                    (address & mask, length, kind, number)
                    for (address, length), kind in zip(todo, kinds, strict=True)
                ]
            expected = expected[:400]
            set_descriptor(ctx, dut, case.descriptor)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            begun = {kind: set() for kind in KINDS}
            released = dict.fromkeys(KINDS, 0)
            sent = at_end = idle = 0
            got = []
            valid = False
            while len(got) < len(expected) or at_end < 5:
                if not valid and sent < len(tiles) and rng.random() >= stalls[0]:
                    unused = {"input_address": 0, "input_length": 1}
                    ctx.set(dut.i.payload, unused | case.fetch_record(tiles[sent]))
                    valid = True
                ctx.set(dut.i.valid, valid)
                if not valid:
                    ctx.set(payload_bits, rng.getrandbits(len(payload_bits)))
                ctx.set(dut.o.ready, rng.random() >= stalls[1])
                before = dict(released)
                for kind in KINDS:
                    # What a tile passed over without a segment is in use all the same.
                    used = used_halves(case, tiles, kind, begun, sent)
                    free = used > released[kind] and rng.random() < stalls[2]
                    ctx.set(getattr(dut, f"release_{kind}"), free)
                    released[kind] += free
                _, _, taken, came, segment = await ctx.tick().sample(
                    dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready, dut.o.payload
                )
                idle = 0 if came or taken else idle + 1
                assert idle < 600, f"stuck after segment {len(got)} of {seed}, trial {trial}"
                if taken:
                    sent += 1
                    valid = False
                if came and len(got) < len(expected):
                    address, length, kind, number = expected[len(got)]
                    assert (segment.address, segment.length) == (address, length)
                    begun[kind].add(number)
                    got.append(segment)
                    # A release of this very cycle comes too late for it.
                    in_use = used_halves(case, tiles, kind, begun, sent) - before[kind]
                    assert in_use <= 2
                elif came:
                    assert len(expected) == 400  # the rest of a cut list
                if len(got) == len(expected):
                    at_end += 1

    simulate(dut, bench, reset=reset, max_cycles=200_000)


def used_halves(case, tiles, kind, begun, sent):
    """Halves taken by tiles that were passed on, or whose first segment of the kind was asked."""
    done = {number for number in range(sent) if getattr(tiles[number], f"new_{kind}")}
    return len(done | begun[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_the_third_half_waits_for_a_release(kind):
    dut = SegmentWalker(EngineConfig())
    tile = tile_record(
        **{f"new_{kind}": 1}, tile_m=1, weight_length=1, input_length=1, rows=1, columns=1
    )
    count = []

    async def watch(ctx):
        ctx.set(dut.o.ready, 1)
        async for _, _, came in ctx.tick().sample(dut.o.valid):
            count.append(came)

    async def bench(ctx):
        ctx.set(dut.descriptor, kept_fields(plain_fields(has_bias=1, row_segments=1)))
        ctx.set(dut.i.payload, tile)
        ctx.set(dut.i.valid, 1)
        await ctx.tick().repeat(40)
        assert sum(count) == 2
        release = getattr(dut, f"release_{kind}")
        for total in (3, 4):
            ctx.set(release, 1)
            await ctx.tick()
            ctx.set(release, 0)
            await ctx.tick().repeat(20)
            assert sum(count) == total
        # Two at once, one after the other, make two.
        ctx.set(release, 1)
        await ctx.tick().repeat(2)
        ctx.set(release, 0)
        await ctx.tick().repeat(20)
        assert sum(count) == 6

    simulate(dut, bench, background=[watch])


def test_empty_input_and_absent_tables_take_halves_too():
    dut = SegmentWalker(EngineConfig())
    tile = tile_record(new_parameters=1, new_input=1, tile_m=1, rows=0, columns=0)
    taken = []

    async def watch(ctx):
        async for _, _, gone, asked in ctx.tick().sample(dut.i.valid & dut.i.ready, dut.o.valid):
            assert not asked
            taken.append(gone)

    async def bench(ctx):
        ctx.set(dut.i.payload, tile)
        ctx.set(dut.i.valid, 1)
        await ctx.tick().repeat(40)
        assert sum(taken) == 2
        for kind in ("parameters", "input"):
            ctx.set(getattr(dut, f"release_{kind}"), 1)
            await ctx.tick()
            ctx.set(getattr(dut, f"release_{kind}"), 0)
            await ctx.tick().repeat(20)
        assert sum(taken) == 3

    simulate(dut, bench, background=[watch])


def test_a_segment_a_cycle_within_an_operand():
    dut = SegmentWalker(EngineConfig())
    tile = tile_record(new_input=1, input_length=3, rows=4, columns=5)
    cycles = []

    async def bench(ctx):
        ctx.set(dut.descriptor, kept_fields(plain_fields(in_pixel_pitch=3, in_row_pitch=50)))
        ctx.set(dut.o.ready, 1)
        await put_many(ctx, dut.i, [tile])

    async def watch(ctx):
        cycle = 0
        async for _, _, came in ctx.tick().sample(dut.o.valid):
            if came:
                cycles.append(cycle)
            cycle += 1

    simulate(dut, bench, background=[watch])
    assert cycles == list(range(cycles[0], cycles[0] + 20))


def test_payload_holds_while_it_waits():
    dut = SegmentWalker(EngineConfig())
    tiles = [
        tile_record(
            new_parameters=1, new_weights=1, new_input=1, bias_address=16, scale_address=32,
            weight_address=64, input_address=128 + number, tile_m=2, weight_length=9,
            input_length=2, rows=2, columns=2,
        )
        for number in range(2)
    ]  # fmt: skip

    async def source(ctx):
        ctx.set(
            dut.descriptor, kept_fields(plain_fields(has_bias=1, load_scale=1, in_row_pitch=40))
        )
        await put_many(ctx, dut.i, tiles, stalls=0.3, seed=1)

    async def sink(ctx):
        # get_many checks that valid and payload hold.
        segments = await get_many(ctx, dut.o, 14, stalls=0.7, seed=2)
        assert [s["length"] for s in segments] == [8, 12, 9, 2, 2, 2, 2] * 2

    simulate(dut, source, sink)
