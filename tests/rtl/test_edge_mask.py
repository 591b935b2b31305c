"""Edges against coordinates of the tensor, for each kernel position of each output of a tile."""

import random

import pytest

from haloconv.planner.config import EngineConfig
from haloconv.rtl.edge_mask import EdgeMask
from haloconv.sim.streams import simulate

LATENCY = 3


def steps_of(rows, columns, kernel, words):
    """(output row, column step, kernel row, kernel column, loops reached) of each step."""
    loops = [
        (row, column, u, v, word)
        for row in range(rows)
        for column in range(columns)
        for u in range(kernel[0])
        for v in range(kernel[1])
        for word in range(words)
    ]
    for row, column, u, v, word in loops:
        reached = {}
        before = word == words - 1
        for name, ends in (
            ("tap", True),
            ("tap_row", v == kernel[1] - 1),
            ("group", u == kernel[0] - 1),
            ("column", True),
            ("row", column == columns - 1),
            ("end", row == rows - 1),
        ):
            before = before and ends
            reached[name] = int(before)
        yield row, column, u, v, reached


@pytest.mark.parametrize("channel_mode", [0, 1])
@pytest.mark.parametrize("split_lanes", [1, 4, 5, 8])
def test_masks(split_lanes, channel_mode):
    seed = f"{split_lanes} {channel_mode}"
    rng = random.Random(seed)
    config = EngineConfig(out_lanes=1, split_lanes=split_lanes, input_bytes=32 * split_lanes**2)
    dut = EdgeMask(config)
    width = 1 if channel_mode else split_lanes
    inside_seen = set()

    async def bench(ctx):
        ctx.set(dut.channel_mode, channel_mode)
        for _ in range(8):
            stride = rng.randint(1, 4), rng.randint(1, 4)
            dilation = rng.randint(1, 3), rng.randint(1, 5)
            kernel = rng.randint(1, 3), rng.randint(1, 3)
            pads = rng.randint(0, 3), rng.randint(0, 6)
            height, in_width = rng.randint(1, 9), rng.randint(1, 20)
            rows, columns, words = rng.randint(1, 3), rng.randint(1, 2), rng.randint(1, 2)
            top, first = rng.randint(0, 3) * stride[0] - pads[0], rng.randint(0, 3)
            span = (rows - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1
            quotient, remainder = divmod(dilation[1], stride[1])
            low, high = divmod(pads[1], stride[1]), divmod(pads[1] + in_width, stride[1])
            descriptor = {
                "stride_h": stride[0], "stride_w": stride[1], "dilation_h": dilation[0],
                "dilation_q": quotient, "dilation_p": remainder, "low_p": low[1], "high_p": high[1],
            }  # fmt: skip
            for name, value in descriptor.items():
                ctx.set(dut.descriptor[name], value)
            tile = {
                "skip_rows": max(0, -top), "low_q": low[0] - first, "high_q": high[0] - first,
                "inside_rows": max(0, min(top + span, height) - max(0, top)),
            }  # fmt: skip
            ctx.set(dut.tile, tile)
            ctx.set(dut.advance, 0)
            ctx.set(dut.restart, 1)
            await ctx.tick().repeat(2)
            ctx.set(dut.restart, 0)
            due, now = {}, 0
            for row, column, u, v, reached in steps_of(rows, columns, kernel, words):
                ctx.set(dut.reached, reached)
                y = top + row * stride[0] + u * dilation[0]
                x = (first + column * width) * stride[1] - pads[1] + v * dilation[1]
                for advance in [0] * rng.choice((0, 0, 2)) + [1]:
                    ctx.set(dut.advance, advance)
                    if advance:
                        due[now + LATENCY] = [
                            0 <= y < height and 0 <= x + lane * stride[1] < in_width
                            for lane in range(width)
                        ]
                    await ctx.tick()
                    now += 1
                    check(ctx, due.pop(now, None))
            ctx.set(dut.advance, 0)
            while due:
                await ctx.tick()
                now += 1
                check(ctx, due.pop(now, None))

    def check(ctx, expected):
        if expected is None:
            return
        mask = ctx.get(dut.mask)
        assert [bool(mask >> lane & 1) for lane in range(width)] == expected, seed
        inside_seen.update(expected)

    simulate(dut, bench)
    assert inside_seen == {False, True}
