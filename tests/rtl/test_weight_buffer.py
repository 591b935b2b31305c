# amaranth: UnusedElaboratable=no
"""Weight words by rows: what is written is read, at the stated latency."""

import random

import pytest
from amaranth import signed
from amaranth.back import rtlil

from haloconv.planner.config import EngineConfig
from haloconv.rtl.weight_buffer import WeightBuffer, weight_shape
from haloconv.sim.streams import plain, simulate

LANES = [(1, 1), (3, 5), (8, 2), (4, 4)]


def engine(lanes, zero_points=True):
    return EngineConfig(
        out_lanes=lanes[0],
        split_lanes=lanes[1],
        weight_bytes=11 * lanes[0] * lanes[1],
        weight_zero_points=zero_points,
    )


def test_weight_shape():
    assert weight_shape(EngineConfig()) == signed(9)
    assert weight_shape(EngineConfig(weight_zero_points=False)) == signed(8)


def test_elaborates():
    for lanes in LANES:
        rtlil.convert(WeightBuffer(engine(lanes)), emit_src=False)


@pytest.mark.parametrize("zero_points", [True, False])
@pytest.mark.parametrize("lanes", LANES)
def test_random_writes_and_reads(lanes, zero_points):
    out_lanes, split_lanes = lanes
    rng = random.Random(f"{lanes} {zero_points}")
    config = engine(lanes, zero_points)
    dut = WeightBuffer(config)
    words = 2 * config.weight_words
    assert words == 22
    top = 255 if zero_points else 127
    # Memories start as zeros; word -> rows.
    model = [[[0] * split_lanes for _ in range(out_lanes)] for _ in range(words)]
    pending = []

    async def bench(ctx):
        for cycle in range(300):
            # Few addresses, so that reads meet writes of the cycles around them.
            write, read = (
                rng.randrange(words if cycle > 150 else 3),
                rng.randrange(words if cycle > 150 else 3),
            )
            # Nobody reads what is being written.
            rows = rng.getrandbits(out_lanes) if write != read else 0
            data = [
                [rng.choice((-top - 1, top, rng.randint(-top, top))) for _ in range(split_lanes)]
                for _ in range(out_lanes)
            ]
            ctx.set(dut.write_rows, rows)
            ctx.set(dut.write_address, write)
            ctx.set(dut.write_data, data)
            ctx.set(dut.read_address, read)
            # A read sees the writes of the cycles before its own.
            pending.append([list(row) for row in model[read]])
            for lane in range(out_lanes):
                if rows >> lane & 1:
                    model[write][lane] = data[lane]
            await ctx.tick()
            if len(pending) == dut.latency:
                assert plain(ctx.get(dut.data)) == pending.pop(0)

    assert dut.latency == 2
    simulate(dut, bench, check_loops=False)
