# amaranth: UnusedElaboratable=no
"""The multiply lanes against sums in numpy."""

import numpy as np
import pytest
from amaranth.hdl import Signal, signed

from haloconv.planner.config import EngineConfig
from haloconv.rtl.mac_lanes import MacLanes, sum_shape
from haloconv.sim.streams import plain, simulate

LANES = ((1, 1), (3, 5), (8, 2), (4, 4), (2, 7))


def make(lanes, split, *, weight_zero_points=True, weight_words=32):
    config = EngineConfig(
        out_lanes=lanes, split_lanes=split, weight_zero_points=weight_zero_points,
        weight_bytes=weight_words * lanes * split,
    )  # fmt: skip
    return MacLanes(config)


class Model:
    """Sums (Pr, Pm) by definition."""

    def __init__(self, lanes, split):
        self.sums = np.zeros((split, lanes), np.int64)
        self.ended = False

    def step(self, operands, weights, last):
        if self.ended:
            self.sums[:] = 0
        self.sums += (operands.astype(np.int64) * weights).T
        self.ended = last


async def play(ctx, dut, model, steps):
    """Play (operands, weights, last) or None for a pause; check the sums behind every step."""
    history = []
    for index in range(len(steps) + dut.latency):
        step = steps[index] if index < len(steps) else None
        ctx.set(dut.valid, int(step is not None))
        if step is not None:
            operands, weights, last = step
            ctx.set(dut.operands, operands.tolist())
            ctx.set(dut.weights, weights.tolist())
            ctx.set(dut.last, int(last))
        else:
            ctx.set(dut.last, index & 1)  # without valid it means nothing
        if index >= dut.latency:
            passed = history[index - dut.latency]
            if passed is not None:
                model.step(*passed)
                np.testing.assert_array_equal(plain(ctx.get(dut.sums)), model.sums)
        history.append(step)
        await ctx.tick()


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("pauses", [0.0, 0.4])
def test_random_groups(lanes, pauses):
    dut = make(*lanes)
    rng = np.random.default_rng(lanes)
    steps = []
    for _ in range(8):
        count = rng.integers(1, 9)
        for index in range(count):
            if rng.random() < pauses:
                steps.append(None)
            operands, weights = (rng.integers(-255, 256, lanes) for _ in range(2))
            steps.append((operands, weights, index == count - 1))

    async def bench(ctx):
        await play(ctx, dut, Model(*lanes), steps)

    simulate(dut, bench)


@pytest.mark.parametrize(
    ("operand", "weight"), [(255, 255), (-255, 255), (255, -255), (-255, -255), (-128, -128)]
)
@pytest.mark.parametrize("weight_words", [1, 2, 33, 128])
def test_the_longest_groups_of_extremes(operand, weight, weight_words):
    dut = make(3, 5, weight_words=weight_words)
    step = (np.full((3, 5), operand), np.full((3, 5), weight))

    async def bench(ctx):
        group = [(*step, index == weight_words - 1) for index in range(weight_words)]
        await play(ctx, dut, Model(3, 5), group * 2)

    simulate(dut, bench)


@pytest.mark.parametrize("weight_words", [1, 64])
def test_weights_of_eight_bits(weight_words):
    dut = make(2, 3, weight_zero_points=False, weight_words=weight_words)
    step = (np.full((2, 3), -255), np.full((2, 3), -128))

    async def bench(ctx):
        assert dut.weights[0][0].shape().width == 8
        group = [(*step, index == weight_words - 1) for index in range(weight_words)]
        await play(ctx, dut, Model(2, 3), group * 2)

    simulate(dut, bench)


@pytest.mark.parametrize(
    ("weight_words", "zero_points", "width"),
    [
        (1, True, 17), (1, False, 16), (128, True, 24), (129, True, 24), (130, True, 25),
        (2**15, True, 32), (2**18, True, 32),
    ],
)  # fmt: skip
def test_sums_are_as_wide_as_the_longest_group_needs(weight_words, zero_points, width):
    config = EngineConfig(
        out_lanes=1, split_lanes=1, input_bytes=64, weight_bytes=weight_words,
        weight_zero_points=zero_points,
    )  # fmt: skip
    assert sum_shape(config) == signed(width)


def test_a_sum_of_32_bits_wraps_and_comes_back():
    # As wide as int32, a sum may leave it on the way: the host asks that only of finished sums.
    dut = make(1, 1, weight_words=2**18)
    count = 2**31 // (255 * 255) + 1

    async def bench(ctx):
        ctx.set(dut.operands, [[255]])
        ctx.set(dut.valid, 1)
        for weight in (255, -255):
            ctx.set(dut.weights, [[weight]])
            for _ in range(count):
                await ctx.tick()
            # Until the last of them shows, what comes counts for nothing.
            ctx.set(dut.weights, [[0]])
            await ctx.tick().repeat(dut.latency - 1)
            if weight > 0:
                assert plain(ctx.get(dut.sums)) == [[count * 255**2 - 2**32]]
        assert plain(ctx.get(dut.sums)) == [[0]]

    simulate(dut, bench)


def test_a_reset_in_mid_group():
    dut = make(2, 2)
    rng = np.random.default_rng(5)
    reset = Signal()

    def group(count):
        return [
            (rng.integers(-255, 256, (2, 2)), rng.integers(-255, 256, (2, 2)), False)
            for _ in range(count)
        ]

    async def bench(ctx):
        await play(ctx, dut, Model(2, 2), group(3))
        ctx.set(dut.valid, 1)
        await ctx.tick()
        ctx.set(dut.valid, 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        # Neither what was summed nor the step caught by the reset is in the next group.
        await play(ctx, dut, Model(2, 2), group(5))

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
                ctx.set(dut.last, int(index == len(group) - 1))
                ctx.set(dut.valid, 1)
                await ctx.tick()
            ctx.set(dut.valid, 0)
            await ctx.tick().repeat(dut.latency - 1)
            np.testing.assert_array_equal(plain(ctx.get(dut.sums)), group.max(axis=0).T)

    assert dut.latency == 2
    simulate(dut, bench)


def test_sums_of_an_engine_that_can_pool():
    config = EngineConfig(out_lanes=2, split_lanes=3, units=("max_pool",))
    dut = MacLanes(config)
    rng = np.random.default_rng(10)
    steps = [
        (rng.integers(-255, 256, (2, 3)), rng.integers(-255, 256, (2, 3)), index % 5 == 4)
        for index in range(20)
    ]

    async def bench(ctx):
        await play(ctx, dut, Model(2, 3), steps)

    simulate(dut, bench)


@pytest.mark.parametrize("units", [(), ("max_pool",)])
@pytest.mark.parametrize("q", [1, 2])
def test_sums_stay_beside_serial_requantisers(q, units):
    config = EngineConfig(
        out_lanes=3, split_lanes=2, requant_lanes=q, roundings=("double",), units=units,
        serial_requantizers=True,
    )  # fmt: skip
    dut = MacLanes(config)
    assert dut.latency == 1
    rng = np.random.default_rng(q)

    async def bench(ctx):
        await ctx.tick().repeat(2)  # a reset clears the sums a cycle later
        for count in (1, 5, 2):
            model = Model(3, 2)
            for index in range(count):
                operands, weights = (rng.integers(-255, 256, (3, 2)) for _ in range(2))
                model.step(operands, weights, False)
                ctx.set(dut.operands, operands.tolist())
                ctx.set(dut.weights, weights.tolist())
                ctx.set(dut.last, int(index == count - 1))
                ctx.set(dut.valid, 1)
                await ctx.tick()
                ctx.set(dut.valid, 0)
                ctx.set(dut.operands, rng.integers(-255, 256, (3, 2)).tolist())
                await ctx.tick().repeat(int(rng.integers(0, 3)) + 1)
            np.testing.assert_array_equal(plain(ctx.get(dut.sums)), model.sums)
            expected = model.sums.copy()
            for column in (0, 0, 1):
                ctx.set(dut.shift, 1 << column)
                await ctx.tick()
                ctx.set(dut.shift, 0)
                expected[column] = [*expected[column][q:], *[0] * q][:3]
                np.testing.assert_array_equal(plain(ctx.get(dut.sums)), expected)
            # A product may come with the cycle after next.
            ctx.set(dut.clear, 3)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            await ctx.tick()
            np.testing.assert_array_equal(plain(ctx.get(dut.sums)), np.zeros((2, 3)))

    simulate(dut, bench)
