# amaranth: UnusedElaboratable=no
"""Rows of weights and their zero points, in channel mode and in the row modes."""

import random

import pytest
from amaranth import Signal
from amaranth.back import rtlil

from haloconv.planner.config import EngineConfig
from haloconv.rtl.weight_placer import WeightPlacer
from haloconv.sim.streams import plain, simulate

LANES = [(1, 1), (3, 5), (8, 2), (4, 4), (2, 7)]


def engine(out_lanes, split_lanes, zero_points=True):
    return EngineConfig(
        out_lanes=out_lanes,
        split_lanes=split_lanes,
        weight_bytes=16 * out_lanes * split_lanes,
        bias_bytes=12 * out_lanes,
        weight_zero_points=zero_points,
    )


def test_elaborates():
    for lanes in LANES:
        for zero_points in (True, False):
            rtlil.convert(WeightPlacer(engine(*lanes, zero_points)), emit_src=False)


@pytest.mark.parametrize("zero_points", [True, False])
@pytest.mark.parametrize("channel_mode", [True, False])
@pytest.mark.parametrize("lanes", LANES)
def test_random_chunks(lanes, channel_mode, zero_points):
    out_lanes, split_lanes = lanes
    seed = f"{lanes} {channel_mode} {zero_points}"
    rng = random.Random(seed)
    config = engine(out_lanes, split_lanes, zero_points)
    dut = WeightPlacer(config)
    width = max(lanes)
    groups = config.channel_groups
    assert groups == 3
    table = {(group, row): None for group in range(groups) for row in range(out_lanes)}

    async def bench(ctx):
        async def write_zero_point(group, row):
            value = rng.choice((-128, 127, rng.randint(-128, 127)))
            table[group, row] = value
            ctx.set(dut.zero_point, {"row": row, "group": group, "value": value, "enable": 1})
            await ctx.tick()
            ctx.set(dut.zero_point, {"row": row, "group": group, "value": ~value, "enable": 0})

        for group, row in table:
            await write_zero_point(group, row)
        ctx.set(dut.channel_mode, channel_mode)
        for _ in range(120):
            if rng.random() < 0.1:
                await write_zero_point(rng.randrange(groups), rng.randrange(out_lanes))
            subtract = rng.random() < 0.7
            row, group = rng.randrange(out_lanes), rng.randrange(groups)
            count = rng.randint(1, split_lanes if channel_mode else out_lanes)
            word = rng.randrange(2 * config.weight_words)
            data = [rng.choice((-128, 127, rng.randint(-128, 127))) for _ in range(width)]
            take = rng.random() < 0.8
            ctx.set(dut.subtract, subtract)
            ctx.set(dut.take, take)
            ctx.set(dut.place, {"word": word, "row": row, "group": group, "count": count})
            ctx.set(dut.data, data)
            await ctx.tick()
            # The inputs may already be something else.
            ctx.set(dut.take, 0)
            ctx.set(dut.place.as_value(), rng.getrandbits(16))
            ctx.set(dut.data.as_value(), rng.getrandbits(8 * width))
            for _ in range(dut.latency - 1):
                assert ctx.get(dut.rows) == 0
                await ctx.tick()
            rows, found = ctx.get(dut.rows), plain(ctx.get(dut.weights))
            if not take:
                assert rows == 0
                continue
            assert ctx.get(dut.address) == word
            subtracts = subtract and zero_points
            if channel_mode:
                assert rows == 1 << row
                zero = table[group, row] if subtracts else 0
                inside = [value - zero for value in data[:count]]
                assert found[row] == (inside + [0] * split_lanes)[:split_lanes]
            else:
                assert rows == (1 << out_lanes) - 1
                for lane in range(count):
                    zero = table[group, lane] if subtracts else 0
                    assert found[lane] == [data[lane] - zero] * split_lanes

    simulate(dut, bench, check_loops=False)


@pytest.mark.parametrize(("zero_points", "latency"), [(True, 2), (False, 1)])
def test_latency_and_a_chunk_every_cycle(zero_points, latency):
    dut = WeightPlacer(engine(2, 2, zero_points))
    assert dut.latency == latency

    async def bench(ctx):
        ctx.set(dut.channel_mode, 1)
        ctx.set(dut.take, 1)
        seen = []
        for index in range(12):
            ctx.set(dut.data, [index, -index])
            ctx.set(dut.place, {"word": index, "row": index % 2, "group": 0, "count": 2})
            await ctx.tick()
            seen.append((ctx.get(dut.address), plain(ctx.get(dut.weights))[0]))
        assert seen[latency - 1 :] == [(n, [n, -n]) for n in range(12 - latency + 1)]

    simulate(dut, bench, check_loops=False)


def test_extremes_need_nine_bits():
    dut = WeightPlacer(engine(1, 2))

    async def bench(ctx):
        for zero, weight, offset in ((127, -128, -255), (-128, 127, 255), (-128, -128, 0)):
            ctx.set(dut.zero_point, {"row": 0, "group": 0, "value": zero, "enable": 1})
            await ctx.tick()
            ctx.set(dut.channel_mode, 1)
            ctx.set(dut.subtract, 1)
            ctx.set(dut.take, 1)
            ctx.set(dut.data, [weight, weight])
            ctx.set(dut.place, {"word": 0, "row": 0, "group": 0, "count": 2})
            await ctx.tick().repeat(dut.latency)
            assert plain(ctx.get(dut.weights)) == [[offset, offset]]

    simulate(dut, bench)


def test_reset_takes_back_the_write():
    dut, reset = WeightPlacer(engine(3, 5)), Signal()

    async def bench(ctx):
        ctx.set(dut.take, 1)
        await ctx.tick().repeat(dut.latency)
        assert ctx.get(dut.rows) == 0b111
        ctx.set(reset, 1)
        ctx.set(dut.take, 0)
        await ctx.tick()
        assert ctx.get(dut.rows) == 0
        # Nor does one that was under way come later.
        ctx.set(reset, 0)
        await ctx.tick()
        assert ctx.get(dut.rows) == 0

    simulate(dut, bench, reset=reset)
