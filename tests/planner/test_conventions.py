"""Model file conventions against hand-worked figures, brute force and exact fractions."""

from fractions import Fraction

import numpy as np
import pytest

from haloconv.planner.conventions import activation_clamp, fixed_point, float32_scale, same_pads


@pytest.mark.parametrize(
    ("extent", "kernel", "stride", "dilation", "pads"),
    [
        ((32, 32), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        ((8, 16), (3, 3), (2, 2), (1, 1), (0, 1, 0, 1)),
        ((49, 10), (10, 4), (2, 2), (1, 1), (4, 5, 1, 1)),
        ((11, 11), (3, 3), (1, 1), (2, 2), (2, 2, 2, 2)),
        ((67, 5), (1, 1), (3, 3), (1, 1), (0, 0, 0, 0)),
        ((1, 32), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        ((4, 4), (2, 2), (1, 1), (1, 1), (0, 1, 0, 1)),
    ],
)
def test_same_pads(extent, kernel, stride, dilation, pads):
    assert same_pads(extent, kernel, stride, dilation) == pads


def test_same_pads_give_ceil_outputs_with_the_least_pad():
    for size in range(1, 14):
        for taps in range(1, 6):
            for step in range(1, 5):
                for gap in range(1, 4):
                    before, after, *_ = same_pads((size, 1), (taps, 1), (step, 1), (gap, 1))
                    window = (taps - 1) * gap + 1

                    def outputs(total, size=size, window=window, step=step):
                        return len(range(0, size + total - window + 1, step))

                    least = next(n for n in range(99) if outputs(n) >= -(-size // step))
                    assert before + after == least
                    assert outputs(before + after) == -(-size // step)
                    assert after - before in (0, 1)


@pytest.mark.parametrize(
    ("scale", "multiplier", "shift"),
    [
        (1.0, 2**30, 1),
        (0.5, 2**30, 0),
        (0.75, 3 * 2**29, 0),
        (0.0, 0, 0),
        # The fraction rounds up to 2**31 and carries into the exponent.
        (1 - 2.0**-33, 2**30, 1),
        # Half of the last place, away from zero.
        (0.5 + 2.0**-32, 2**30 + 1, 0),
        (0.5 + 2.0**-32 - 2.0**-50, 2**30, 0),
        (2.0**-32, 2**30, -31),
        (2.0**-33, 0, 0),
        # Carried to the last exponent that remains.
        (2.0**-32 * (1 - 2.0**-33), 2**30, -31),
        (2.0**31 - 1, 2**31 - 1, 31),
    ],
)
def test_fixed_point_by_hand(scale, multiplier, shift):
    found = fixed_point(np.array([scale]))
    assert [int(part[0]) for part in found] == [multiplier, shift]


def test_fixed_point_is_the_nearest_31_bit_fraction():
    rng = np.random.default_rng(7)
    scales = rng.uniform(0.5, 1.0, 500) * 2.0 ** rng.integers(-30, 31, 500)
    multiplier, shift = fixed_point(scales)
    for scale, q, e in zip(scales, multiplier, shift, strict=True):
        unit = Fraction(2) ** (int(e) - 31)
        assert 2**30 <= q < 2**31
        assert abs(Fraction(float(scale)) - int(q) * unit) <= unit / 2


def test_float32_scale_rounds_twice():
    x, w, y = (np.float32(v) for v in (0.1, 0.3, 0.7))
    # Product and quotient rounded by hand to 24 bits, as exact fractions.
    product = Fraction(float(x)) * Fraction(float(w))

    def to_float32(value):
        exponent = -26 if value < Fraction(1, 4) else -24
        while not 2**23 <= value * Fraction(2) ** -exponent < 2**24:
            exponent += 1 if value * Fraction(2) ** -exponent >= 2**24 else -1
        return round(value * Fraction(2) ** -exponent) * Fraction(2) ** exponent

    expected = to_float32(to_float32(product) / Fraction(float(y)))
    found = float32_scale(x, np.array([w]), y)
    assert found.dtype == np.float32
    assert Fraction(float(found[0])) == expected


@pytest.mark.parametrize(
    ("activation", "scale", "zero_point", "clamp"),
    [
        ("NONE", 0.1, -20, (-128, 127)),
        ("RELU", 0.1, -20, (-20, 127)),
        ("RELU6", 0.1, -20, (-20, 40)),
        ("RELU6", 4.0, 3, (3, 5)),  # 6 / 4 = 1.5, away from zero
        ("RELU6", 0.01, -128, (-128, 127)),
        ("RELU_N1_TO_1", 0.4, 10, (7, 13)),  # 2.5, away from zero on both sides
        ("RELU_N1_TO_1", 1e-40, 0, (-128, 127)),
        ("RELU", 0.1, 127, (127, 127)),
    ],
)
def test_activation_clamp(activation, scale, zero_point, clamp):
    assert activation_clamp(activation, np.float32(scale), zero_point) == clamp


def test_unknown_activation_is_refused():
    with pytest.raises(ValueError, match=r"activation must be one of NONE, RELU.*not 'TANH'"):
        activation_clamp("TANH", 1.0, 0)
