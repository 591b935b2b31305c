# amaranth: UnusedElaboratable=no
"""The multiply lanes against sums in numpy."""

import numpy as np
import pytest
from amaranth.hdl import Signal

from haloconv.planner.config import EngineConfig
from haloconv.rtl.mac_lanes import MacLanes
from haloconv.sim.streams import plain, simulate

LANES = ((1, 1), (3, 5), (8, 2), (4, 4), (2, 7))


def make(lanes, split, *, weight_zero_points=True):
    config = EngineConfig(out_lanes=lanes, split_lanes=split, weight_zero_points=weight_zero_points)
    return MacLanes(config)


def wrapped(values):
    """int64 sums modulo 2**32, as int32."""
    return (np.asarray(values, np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


class Model:
    """Sums (Pr, Pm) by definition."""

    def __init__(self, lanes, split, channel_mode):
        self.channel_mode = channel_mode
        self.sums = np.zeros((split, lanes), np.int64)

    def step(self, operands, weights, first):
        products = operands.astype(np.int64) * weights
        if first:
            self.sums[:] = 0
        if self.channel_mode:
            self.sums[0] += products.sum(axis=1)
        else:
            self.sums += products.T

    def check(self, seen):
        columns = 1 if self.channel_mode else len(self.sums)
        np.testing.assert_array_equal(np.array(seen)[:columns], wrapped(self.sums)[:columns])


async def play(ctx, dut, model, steps):
    """Play (operands, weights, first) or None for a pause; check the sums behind every step."""
    history = []
    for index in range(len(steps) + dut.latency):
        step = steps[index] if index < len(steps) else None
        ctx.set(dut.valid, int(step is not None))
        if step is not None:
            operands, weights, first = step
            ctx.set(dut.operands, operands.tolist())
            ctx.set(dut.weights, weights.tolist())
            ctx.set(dut.first, int(first))
        else:
            ctx.set(dut.first, index & 1)  # without valid it means nothing
        if index >= dut.latency:
            passed = history[index - dut.latency]
            if passed is not None:
                model.step(*passed)
                begun = True
            else:
                begun = any(item is not None for item in history[: index - dut.latency])
            if begun:
                model.check(plain(ctx.get(dut.sums)))
        history.append(step)
        await ctx.tick()


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("channel_mode", [True, False])
@pytest.mark.parametrize("pauses", [0.0, 0.4])
def test_random_groups(lanes, channel_mode, pauses):
    dut = make(*lanes)
    rng = np.random.default_rng([*lanes, channel_mode])
    steps = []
    for _ in range(8):
        for index in range(rng.integers(1, 9)):
            if rng.random() < pauses:
                steps.append(None)
            operands, weights = (rng.integers(-255, 256, lanes) for _ in range(2))
            steps.append((operands, weights, index == 0))

    async def bench(ctx):
        ctx.set(dut.channel_mode, int(channel_mode))
        await play(ctx, dut, Model(*lanes, channel_mode), steps)

    simulate(dut, bench)


@pytest.mark.parametrize("channel_mode", [True, False])
@pytest.mark.parametrize(
    ("operand", "weight"), [(255, 255), (-255, 255), (255, -255), (-255, -255), (-128, -128)]
)
def test_extremes_everywhere(channel_mode, operand, weight):
    dut = make(3, 5)
    step = (np.full((3, 5), operand), np.full((3, 5), weight))

    async def bench(ctx):
        ctx.set(dut.channel_mode, int(channel_mode))
        steps = [(*step, index == 0) for index in range(6)]
        await play(ctx, dut, Model(3, 5, channel_mode), steps)

    simulate(dut, bench)


@pytest.mark.parametrize("channel_mode", [True, False])
def test_weights_of_eight_bits(channel_mode):
    dut = make(2, 3, weight_zero_points=False)
    step = (np.full((2, 3), -255), np.full((2, 3), -128))

    async def bench(ctx):
        ctx.set(dut.channel_mode, int(channel_mode))
        assert dut.weights[0][0].shape().width == 8
        await play(ctx, dut, Model(2, 3, channel_mode), [(*step, index == 0) for index in range(4)])

    simulate(dut, bench)


def test_an_intermediate_wrap_cancels():
    # 64 lanes in a tree: 517 steps of 64 * 255 * 255 pass 2**31, as many back give 0 again.
    dut = make(1, 64)
    up = (np.full((1, 64), 255), np.full((1, 64), 255))
    down = (np.full((1, 64), -255), np.full((1, 64), 255))
    count = 517

    async def bench(ctx):
        ctx.set(dut.channel_mode, 1)
        ctx.set(dut.valid, 1)
        for step, first, steps in ((up, 1, 1), (up, 0, count - 1), (down, 0, count)):
            ctx.set(dut.operands, step[0].tolist())
            ctx.set(dut.weights, step[1].tolist())
            ctx.set(dut.first, first)
            for _ in range(steps):
                await ctx.tick()
        ctx.set(dut.valid, 0)
        # What is left in the pipeline is all that is missing.
        missing = [np.array(plain(ctx.get(dut.sums)))[0, 0]]
        for _ in range(dut.latency - 1):
            await ctx.tick()
            missing.append(np.array(plain(ctx.get(dut.sums)))[0, 0])
        product = 64 * 255 * 255
        assert count * product > 2**31
        assert missing == [2 * product, product, 0]

    simulate(dut, bench)


def test_a_reset_in_mid_group():
    dut = make(2, 2)
    rng = np.random.default_rng(5)
    reset = Signal()

    def group(count):
        return [
            (rng.integers(-255, 256, (2, 2)), rng.integers(-255, 256, (2, 2)), index == 0)
            for index in range(count)
        ]

    async def bench(ctx):
        await play(ctx, dut, Model(2, 2, False), group(3))
        ctx.set(dut.valid, 1)
        await ctx.tick()
        ctx.set(dut.valid, 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        # The step caught by the reset never reaches a sum.
        before = plain(ctx.get(dut.sums))
        for _ in range(dut.latency + 1):
            await ctx.tick()
            assert plain(ctx.get(dut.sums)) == before
        await play(ctx, dut, Model(2, 2, False), group(5))

    simulate(dut, bench, reset=reset)


def test_the_maximum_of_products():
    config = EngineConfig(out_lanes=2, split_lanes=3, units=("max_pool",))
    dut = MacLanes(config)
    rng = np.random.default_rng(9)
    groups = [rng.integers(-255, 256, (count, 2, 3)) for count in (1, 4, 7, 2)]
    groups.append(np.full((3, 2, 3), -255))

    async def bench(ctx):
        ctx.set(dut.maximum, 1)
        ctx.set(dut.weights, [[1] * 3] * 2)
        for group in groups:
            for index, operands in enumerate(group):
                ctx.set(dut.valid, 0)  # a pause changes nothing
                await ctx.tick()
                ctx.set(dut.operands, operands.tolist())
                ctx.set(dut.first, int(index == 0))
                ctx.set(dut.valid, 1)
                await ctx.tick()
            ctx.set(dut.valid, 0)
            for _ in range(dut.latency - 1):
                await ctx.tick()
            np.testing.assert_array_equal(plain(ctx.get(dut.sums)), group.max(axis=0).T)

    simulate(dut, bench)


def test_sums_of_an_engine_that_can_pool():
    config = EngineConfig(out_lanes=2, split_lanes=3, units=("max_pool",))
    dut = MacLanes(config)
    rng = np.random.default_rng(10)
    steps = [
        (rng.integers(-255, 256, (2, 3)), rng.integers(-255, 256, (2, 3)), index % 5 == 0)
        for index in range(20)
    ]

    async def bench(ctx):
        await play(ctx, dut, Model(2, 3, False), steps)

    simulate(dut, bench)
