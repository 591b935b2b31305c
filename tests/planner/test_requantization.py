"""Requantisation parameters: normal forms and the message of each refusal."""

import re

import numpy as np
import pytest

from haloconv.planner.requantization import ROUNDINGS, Requantization

ONE = np.ones(1, np.float32)


def test_modes_in_the_order_of_their_codes():
    assert ROUNDINGS == ("double", "double_up", "single", "away", "fp32")


def test_normal_form():
    how = Requantization(2**30, np.int8(-3), 5, [-7, 9], "single")  # type: ignore[arg-type]
    assert how.multiplier.dtype == np.int64 and how.multiplier.tolist() == [2**30]
    assert how.shift.dtype == np.int64 and how.shift.tolist() == [-3]
    assert (how.zero_point, how.clamp, how.rounding) == (5, (-7, 9), "single")
    edge = Requantization([0, 2**30, 2**31 - 1], [-31, 0, 31])
    assert edge.multiplier.tolist() == [0, 2**30, 2**31 - 1]
    assert edge.clamp == (-128, 127)
    real = Requantization(rounding="fp32", scale=np.float32(0.25))
    assert real.scale.dtype == np.float32 and real.scale.tolist() == [0.25]


def test_channels():
    one = Requantization([2**30], [0, -1, -2])
    assert one.channels("multiplier", 3).tolist() == [2**30] * 3
    assert one.channels("shift", 3).tolist() == [0, -1, -2]
    with pytest.raises(ValueError, match=r"shift must hold 1 or 4 entries.*not shape \(3,\)"):
        one.channels("shift", 4)
    real = Requantization(rounding="fp32", scale=ONE)
    assert real.channels("scale", 2).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rounding": "up"}, ValueError, "rounding must be one of double, double_up, single, "),
        ({"zero_point": 128}, ValueError, "zero_point must be at most 127, not 128"),
        ({"zero_point": 0.0}, TypeError, "zero_point must be an integer, not 0.0"),
        ({"clamp": (0,)}, ValueError, "clamp must be 2 integers, not (0,)"),
        ({"clamp": (-129, 0)}, ValueError, "clamp must be at least -128, not -129"),
        (
            {"clamp": (1, 0)},
            ValueError,
            "clamp must be (low, high) with low <= high, not (1, 0)",
        ),
        ({"multiplier": None}, ValueError, "rounding 'double' needs multiplier and shift"),
        ({"shift": None}, ValueError, "rounding 'double' needs multiplier and shift"),
        ({"multiplier": 0.5}, TypeError, "multiplier must hold integers, not float64"),
        ({"shift": [1.0]}, TypeError, "shift must hold integers, not float64"),
        (
            {"multiplier": [2**30, 2**30 - 1]},
            ValueError,
            "at least 2**30 where shift is not negative, not 1073741823 with shift",
        ),
        ({"multiplier": 2**31}, ValueError, "within 0..2**31 - 1, not 2147483648"),
        ({"multiplier": -(2**30)}, ValueError, "within 0..2**31 - 1, not -1073741824"),
        ({"shift": [0, 32]}, ValueError, "shift must be within -31..31, not 32"),
        ({"shift": -32}, ValueError, "shift must be within -31..31, not -32"),
        ({"rounding": "fp32"}, ValueError, "rounding 'fp32' needs scale, a float32 for each"),
        ({"rounding": "fp32", "scale": [0.5]}, TypeError, "scale must be float32, not float64"),
        ({"rounding": "fp32", "scale": 0 * ONE}, ValueError, "scale must be positive and finite"),
        ({"rounding": "fp32", "scale": -ONE}, ValueError, "scale must be positive and finite"),
        (
            {"rounding": "fp32", "scale": np.float32("nan")},
            ValueError,
            "scale must be positive and finite",
        ),
        (
            {"rounding": "fp32", "scale": np.float32("inf")},
            ValueError,
            "scale must be positive and finite",
        ),
    ],
)
def test_refusals(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Requantization(**({"multiplier": 2**30, "shift": 0} | arguments))
