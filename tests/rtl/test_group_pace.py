# amaranth: UnusedElaboratable=no
"""The pace of groups of sums against counts of cycles and rows."""

import random

import pytest
from amaranth.hdl import Signal

from haloconv.planner.config import EngineConfig
from haloconv.rtl.group_pace import GroupPace
from haloconv.sim.streams import simulate


def make(lanes, *, spare=3):
    out_lanes, split_lanes, q = lanes
    config = EngineConfig(
        out_lanes=out_lanes, split_lanes=split_lanes, requant_lanes=q, input_bytes=4096,
        bias_bytes=16 * out_lanes,
    )  # fmt: skip
    return config, GroupPace(config, room=split_lanes * config.group_steps + spare)


@pytest.mark.parametrize(("room", "error"), [(15, ValueError), ("16", TypeError)])
def test_room_for_a_group_at_least(room, error):
    config, _ = make((4, 4, 1))
    with pytest.raises(error, match="room"):
        GroupPace(config, room=room)


@pytest.mark.parametrize("channel_mode", [0, 1])
@pytest.mark.parametrize("lanes", [(1, 1, None), (4, 4, 1), (3, 5, 2), (8, 2, 3), (2, 8, None)])
def test_random_groups(lanes, channel_mode):
    """Groups of random sizes; the last step of each waits for the drain before and for room."""
    rng = random.Random(f"{lanes} {channel_mode}")
    config, dut = make(lanes)
    room, q = lanes[1] * config.group_steps + 3, config.results_per_cycle
    waits = {"drain": 0, "room": 0}

    async def bench(ctx):
        free, drained_at, now = room, 0, 0
        ctx.set(dut.channel_mode, channel_mode)

        async def cycle(**inputs):
            """One cycle, in which a row may leave the room."""
            nonlocal free, now
            back = int(free < room and rng.random() < 0.2)
            values = dict.fromkeys(("load", "begin", "issue"), 0) | inputs
            for name, value in values.items():
                ctx.set(getattr(dut, name), value)
            ctx.set(dut.returned, back)
            await ctx.tick()
            free += back
            now += 1

        for _ in range(120):
            last_group, last_column = rng.getrandbits(1), rng.getrandbits(1)
            channels, columns = rng.randint(1, lanes[0]), rng.randint(1, lanes[1])
            last_c = int(rng.random() < 0.8)
            tile = {"m_tail": channels, "column_tail": columns, "last_c": last_c}
            ctx.set(dut.tile, tile)
            ctx.set(dut.last_group, last_group)
            ctx.set(dut.last_column, last_column)
            await cycle(load=1, begin=1)
            channels = channels if last_group else lanes[0]
            columns = columns if last_column else lanes[1]
            if channel_mode:
                columns = 1
            assert (ctx.get(dut.channels), ctx.get(dut.columns)) == (channels, columns)
            rows = columns * -(-channels // q)
            for _ in range(rng.choice((0, 0, 3))):
                await cycle(load=1)
            taken = rows if last_c else 0
            while True:
                fits = free >= taken
                assert ctx.get(dut.ready) == (now >= drained_at and fits)
                if ctx.get(dut.ready):
                    break
                waits["room" if now >= drained_at else "drain"] += 1
                await cycle()
            drained_at = now + rows
            free -= taken
            await cycle(issue=1)
        while free < room:
            assert not ctx.get(dut.free)
            await cycle()
        assert ctx.get(dut.free)

    simulate(dut, bench)
    assert waits["room"]
    if not channel_mode and lanes[1] > 2:
        assert waits["drain"]


def test_reset_gives_back_the_room():
    _, dut = make((2, 8, None))
    reset = Signal()

    async def bench(ctx):
        ctx.set(dut.tile, {"last_c": 1, "m_tail": 2, "column_tail": 8})
        for name in ("load", "begin", "issue"):
            ctx.set(getattr(dut, name), 1)
        await ctx.tick().repeat(2)
        assert not ctx.get(dut.ready) and not ctx.get(dut.free)
        for name in ("load", "begin", "issue"):
            ctx.set(getattr(dut, name), 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        assert ctx.get(dut.ready) and ctx.get(dut.free)

    simulate(dut, bench, reset=reset)
