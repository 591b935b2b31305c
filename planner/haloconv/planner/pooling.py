"""How pooling and means divide: the requantisation of depthwise layers with weights of one."""

import numpy as np

from haloconv.planner.conventions import fixed_point
from haloconv.planner.requantization import Requantization

__all__ = [
    "MAX_POOL_TAPS",
    "average_pool_requantization",
    "max_pool_requantization",
    "mean_requantization",
]

MAX_POOL_TAPS = 1 << 22
"""Most positions under which an average is exact for every sum of int8 codes."""


def average_pool_requantization(taps: int, clamp: tuple[int, int] = (-128, 127)) -> Requantization:
    """Return what divides the sum of ``taps`` int8 codes, halves away from zero.

    The multiplier is 2**right / n rounded up, right = 31 - shift. Rounded up, halves of the
    magnitude go up exactly; nothing else does as long as the excess of the product stays below the
    distance to the next half: with d = n * multiplier - 2**right < n, |s| * d < 2**(right - 1) for
    |s| <= 128 n. As 2**right > n * 2**30, this holds up to n = 2**22, and no engine's kernel has
    more than 255 * 255 positions.

    Raises
    ------
    ValueError
        If ``taps`` is outside 1..2**22.
    """
    if not 1 <= taps <= MAX_POOL_TAPS:
        raise ValueError(f"an average must be over 1..{MAX_POOL_TAPS} positions, not {taps}")
    right = 30 + (taps - 1).bit_length()
    multiplier = -(-(1 << right) // taps)
    return Requantization(
        multiplier=multiplier, shift=31 - right, zero_point=0, clamp=clamp, rounding="away"
    )


def max_pool_requantization(clamp: tuple[int, int] = (-128, 127)) -> Requantization:
    """Return what leaves codes with zero point -128 as they are: a scale of one."""
    return Requantization(
        multiplier=1 << 30, shift=1, zero_point=-128, clamp=clamp, rounding="double"
    )


def mean_requantization(
    taps: int, scale: float, out_scale: float, out_zero_point: int
) -> Requantization:
    """Return what turns sums over ``taps`` positions, zero point taken off, into their mean.

    The reference kernels divide the multiplier of scale / out_scale by the number of positions,
    with k more fraction bits, and let what remains be cut off.

    Raises
    ------
    ValueError
        If the quotient leaves the range of :class:`Requantization`.
    """
    multipliers, shifts = fixed_point(np.float64(float(scale) / float(out_scale)))
    q, e = int(multipliers), int(shifts)
    k = min(taps.bit_length() - 1, 32, 31 + e)
    return Requantization(
        multiplier=(q << k) // taps, shift=e - k, zero_point=out_zero_point, rounding="double"
    )
