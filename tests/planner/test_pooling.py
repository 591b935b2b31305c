"""Requantisations that divide, against integer division."""

import math

import numpy as np
import pytest

from haloconv.planner.pooling import (
    MAX_POOL_TAPS,
    average_pool_requantization,
    max_pool_requantization,
    mean_requantization,
)

SEED = 11
RANDOM = np.random.default_rng(SEED).integers(65, 4096, 24).tolist()
COUNTS = sorted({*range(1, 50), 63, 64, 65, 125, 127, 128, 255, 1023, 2047, 4095, 4096, *RANDOM})


def away(sums, how):
    """The rounding mode "away": scale and round the magnitude, ties up, then the sign."""
    q, right = int(how.multiplier[0]), 31 - int(how.shift[0])
    magnitude = (np.abs(sums) * q + (1 << (right - 1))) >> right
    return np.sign(sums) * magnitude


def divided(sums, n):
    """The average of the reference kernels, in truncating division."""
    magnitude = np.where(sums > 0, (sums + n // 2) // n, (n // 2 - sums) // n)
    return np.where(sums > 0, magnitude, -magnitude)


@pytest.mark.parametrize("n", COUNTS)
def test_average_of_every_sum(n):
    how = average_pool_requantization(n)
    sums = np.arange(-128 * n, 127 * n + 1, dtype=np.int64)
    np.testing.assert_array_equal(away(sums, how), divided(sums, n))


@pytest.mark.parametrize("n", [255 * 255, 255 * 254, 1 << 16, 3 * 5 * 7 * 11 * 13, (1 << 22) - 1])
def test_average_around_every_half_up_to_the_bound(n):
    how = average_pool_requantization(n)
    halves = np.arange(-128, 128, dtype=np.int64) * n + n // 2
    sums = (halves[:, None] + np.arange(-2, 4)).ravel()
    np.testing.assert_array_equal(away(sums, how), divided(sums, n))


def test_average_clamps_and_keeps_the_zero_point():
    how = average_pool_requantization(9, (-128, 5))
    assert (how.rounding, how.zero_point, how.clamp) == ("away", 0, (-128, 5))


@pytest.mark.parametrize("n", [0, -1, MAX_POOL_TAPS + 1])
def test_average_over_too_many_positions_is_refused(n):
    with pytest.raises(ValueError, match=rf"must be over 1\.\.{MAX_POOL_TAPS} positions, not {n}"):
        average_pool_requantization(n)


def test_maximum_has_a_scale_of_one():
    how = max_pool_requantization((-100, 100))
    # 2**30 * 2**(1 - 31)
    assert (how.multiplier.tolist(), how.shift.tolist()) == ([1 << 30], [1])
    assert (how.zero_point, how.clamp, how.rounding) == (-128, (-100, 100), "double")


def test_mean_by_hand():
    # Equal scales: q = 2**30, e = 1. Four positions: k = 2, q' = 2**32 / 4, e' = -1.
    how = mean_requantization(4, 0.5, 0.5, -3)
    assert (how.multiplier.tolist(), how.shift.tolist()) == ([1 << 30], [-1])
    assert (how.zero_point, how.clamp, how.rounding) == (-3, (-128, 127), "double")
    # 1.5 = 0.75 * 2: q = 3 * 2**29, e = 1. Five positions: k = 2, q' = 3 * 2**31 / 5 cut off.
    how = mean_requantization(5, 1.5, 1.0, 0)
    assert (how.multiplier.tolist(), how.shift.tolist()) == ([3 * 2**31 // 5], [-1])


@pytest.mark.parametrize("n", [2, 16, 49, 63, 100])
def test_mean_scales_by_the_quotient(n):
    try:
        how = mean_requantization(n, 0.0235, 0.0190, 7)
    except ValueError as error:
        assert "multiplier" in str(error)  # the quotient has fewer bits than a scale must have
        assert math.frexp(0.0235 / 0.0190)[0] * 2 ** (n.bit_length() - 1) / n < 0.5
        return
    real = float(how.multiplier[0]) * 2.0 ** (int(how.shift[0]) - 31)
    assert real == pytest.approx(0.0235 / 0.0190 / n, rel=2**-29)
