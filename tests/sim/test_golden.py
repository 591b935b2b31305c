"""The golden model against given cases, plain loops, exact fractions and hand-worked numbers."""

import time
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import ROUNDINGS, Requantization
from haloconv.sim.cases import load_cases
from haloconv.sim.golden import (
    Quantized,
    add,
    average_pool,
    convolve,
    golden_layer,
    max_pool,
    mean,
    multiply,
    pad,
    requantize,
    rescale,
    subtract,
)

CASES = load_cases(Path(__file__).parents[1] / "data" / "cases")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_given_cases(case):
    acc = convolve(case.layer, case.x, case.w, case.bias, case.zw)
    assert acc.dtype == np.int32
    np.testing.assert_array_equal(acc, case.acc)
    for rounding in ROUNDINGS:
        found = golden_layer(
            case.layer, case.x, case.w, case.bias, case.requantization(rounding), case.zw
        )
        assert found.dtype == np.int8
        np.testing.assert_array_equal(found, case.expected[rounding], err_msg=rounding)


def loops(layer, x, w, bias, zw):
    """Return the sums by the definition, one product at a time in Python integers."""
    height, width, depth = layer.in_height, layer.in_width, layer.in_channels // layer.groups
    per_group = layer.out_channels // layer.groups
    top, bottom, left, right = layer.pads
    reach_v = (layer.kernel[0] - 1) * layer.dilation[0]
    reach_h = (layer.kernel[1] - 1) * layer.dilation[1]
    rows = range(-top, height + bottom - reach_v, layer.stride[0])
    columns = range(-left, width + right - reach_h, layer.stride[1])
    out = np.zeros((x.shape[0], len(rows), len(columns), layer.out_channels), np.int64)
    for n, (i, r), (j, c), m in product(
        range(x.shape[0]), enumerate(rows), enumerate(columns), range(layer.out_channels)
    ):
        total = int(bias[m])
        for u, v, k in product(range(layer.kernel[0]), range(layer.kernel[1]), range(depth)):
            y, z = r + u * layer.dilation[0], c + v * layer.dilation[1]
            if 0 <= y < height and 0 <= z < width:
                code = int(x[n, y, z, m // per_group * depth + k])
                total += (code - layer.in_zero_point) * (int(w[m, u, v, k]) - int(zw[m]))
        out[n, i, j, m] = total
    return out


@pytest.mark.parametrize("seed", range(24))
def test_convolve_against_plain_loops(seed):
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 4))
    kernel = tuple(int(k) for k in rng.integers(1, 4, 2))
    dilation = tuple(int(d) for d in rng.integers(1, 3, 2))
    layer = ConvLayer(
        in_height=int(rng.integers((kernel[0] - 1) * dilation[0] + 1, 9)),
        in_width=int(rng.integers((kernel[1] - 1) * dilation[1] + 1, 9)),
        in_channels=groups * int(rng.integers(1, 4)),
        out_channels=groups * int(rng.integers(1, 4)),
        kernel=kernel,
        stride=tuple(int(s) for s in rng.integers(1, 4, 2)),
        dilation=dilation,
        pads=tuple(int(p) for p in rng.integers(0, 5, 4)),
        groups=groups,
        in_zero_point=int(rng.integers(-128, 128)),
    )
    x = rng.integers(-128, 128, (2, *layer.input_shape[1:])).astype(np.int8)
    w = rng.integers(-128, 128, layer.weight_shape).astype(np.int8)
    bias = rng.integers(-(2**20), 2**20, layer.out_channels).astype(np.int32)
    zw = rng.integers(-128, 128, layer.out_channels).astype(np.int32)
    np.testing.assert_array_equal(convolve(layer, x, w, bias, zw), loops(layer, x, w, bias, zw))
    zero = np.zeros(layer.out_channels, int)
    np.testing.assert_array_equal(convolve(layer, x, w), loops(layer, x, w, zero, zero))


def test_scalar_weight_zero_point_applies_to_every_channel():
    layer = ConvLayer(1, 1, 1, 2, (1, 1), in_zero_point=-1)
    x = np.full((1, 1, 1, 1), 3, np.int8)
    w = np.array([5, -5], np.int8).reshape(2, 1, 1, 1)
    # (3 + 1) * (5 - 7) and (3 + 1) * (-5 - 7)
    np.testing.assert_array_equal(convolve(layer, x, w, None, 7).ravel(), [-8, -48])


def test_worst_products_are_exact():
    layer = ConvLayer(4, 4, 64, 1, (3, 3), pads=(1, 1, 1, 1), in_zero_point=127)
    x = np.full((1, 4, 4, 64), -128, np.int8)
    w = np.full((1, 3, 3, 64), -128, np.int8)
    sums = convolve(layer, x, w, np.array([-7], np.int32), 127)
    # 255 * 255 for each product; 9, 6 or 4 taps are in bounds.
    assert int(sums[0, 1, 1, 0]) == 9 * 64 * 255 * 255 - 7
    assert int(sums[0, 0, 1, 0]) == 6 * 64 * 255 * 255 - 7
    assert int(sums[0, 3, 0, 0]) == 4 * 64 * 255 * 255 - 7


@pytest.mark.parametrize("sign", [1, -1])
def test_sum_outside_int32_is_refused(sign):
    layer = ConvLayer(1, 1, 1, 1, (1, 1))
    x = np.full((1, 1, 1, 1), sign, np.int8)
    edge = 2**31 - 1 if sign > 0 else -(2**31)
    w = np.zeros((1, 1, 1, 1), np.int8)
    bias = np.array([edge], np.int32)
    assert int(convolve(layer, x, w, bias)[0, 0, 0, 0]) == edge
    w[:] = 1
    with pytest.raises(ValueError, match=f"sums must fit int32, but one is {edge + sign};"):
        convolve(layer, x, w, bias)


def test_convolve_refuses_wrong_arrays():
    layer = ConvLayer(4, 4, 2, 3, (3, 3))
    x = np.zeros((1, 4, 4, 2), np.int8)
    w = np.zeros((3, 3, 3, 2), np.int8)
    for bad, error, message in (
        ((x.astype(np.uint8), w), TypeError, "inputs must be int8, not uint8"),
        ((x, w.astype(np.int16)), TypeError, "weights must be int8, not int16"),
        ((x[0], w), ValueError, r"inputs must have shape \(N, 4, 4, 2\), not \(4, 4, 2\)"),
        ((x, w[:2]), ValueError, r"weights must have shape \(3, 3, 3, 2\), not \(2, 3, 3, 2\)"),
        ((x, w, np.zeros(3)), TypeError, "bias must hold integers, not float64"),
        ((x, w, np.zeros(2, int)), ValueError, r"bias must have shape \(3,\), not \(2,\)"),
        ((x, w, None, np.zeros(2, int)), ValueError, r"weight_zero_points must have shape \(3,\)"),
    ):
        with pytest.raises(error, match=message):
            convolve(layer, *bad)


def floor_half(value: Fraction) -> int:
    return (value + Fraction(1, 2)).__floor__()


def half_away(value: Fraction) -> int:
    return floor_half(value) if value >= 0 else -floor_half(-value)


def half_even(value: Fraction) -> int:
    return round(value)


def to_float32(value: Fraction) -> Fraction:
    """Round to 24 significant bits, halves to even (no subnormals in these tests)."""
    if value == 0:
        return value
    unit = Fraction(1)
    while abs(value) / unit >= 2**24:
        unit *= 2
    while abs(value) / unit < 2**23:
        unit /= 2
    return half_even(value / unit) * unit


def exact_requantize(acc, q, e, scale, rounding, zero_point, clamp):
    """Return one code from the definition in fractions."""
    if rounding == "fp32":
        value = half_even(to_float32(to_float32(Fraction(acc)) * Fraction(float(scale))))
    elif rounding in ("double", "double_up"):
        b = floor_half(Fraction(acc * q * 2 ** max(e, 0), 2**31))
        value = Fraction(b, 2 ** max(-e, 0))
        value = half_away(value) if rounding == "double" else floor_half(value)
    else:
        value = Fraction(acc * q) * Fraction(2) ** (e - 31)
        value = floor_half(value) if rounding == "single" else half_away(value)
    return min(max(value + zero_point, clamp[0]), clamp[1])


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("seed", range(4))
def test_requantize_against_fractions(seed, rounding):
    rng = np.random.default_rng([seed, ROUNDINGS.index(rounding)])
    channels = 200
    # Values near the int8 range for most shifts, the int32 range with all shifts for the rest.
    e = rng.integers(-31, 32, channels)
    q = rng.integers(2**30, 2**31, channels)
    q[:4] = 0, 2**30, 2**31 - 1, 2**30
    scale = (q * 2.0 ** (e - 31)).astype(np.float32)
    scale[0] = 1e-30
    acc = rng.integers(-(2**31), 2**31, (6, channels))
    near = np.round(rng.integers(-300, 300, (4, channels)) / 2 / scale)
    near = np.clip(near, -(2.0**31), 2.0**31 - 1)
    acc[:4] = near.astype(np.int64)
    acc[4, ::2] = -(2**31)
    acc[4, 1::2] = 2**31 - 1
    zero_point, clamp = int(rng.integers(-128, 128)), (-100, 120)
    if rounding == "fp32":
        how = Requantization(scale=scale, zero_point=zero_point, clamp=clamp, rounding=rounding)
    else:
        how = Requantization(q, e, zero_point, clamp, rounding)
    expected = [
        [
            exact_requantize(int(a), int(q[m]), int(e[m]), scale[m], rounding, zero_point, clamp)
            for m, a in enumerate(row)
        ]
        for row in acc
    ]
    np.testing.assert_array_equal(requantize(acc.astype(np.int32), how), expected)


# docs/arithmetic.md: the halves tell the modes apart.
HALVES = {
    "double": [-4, -2, -1, 1, 3],
    "double_up": [-3, -1, 0, 1, 3],
    "single": [-3, -1, 0, 1, 3],
    "away": [-4, -2, -1, 1, 3],
    "fp32": [-4, -2, 0, 0, 2],
}


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_halves(rounding):
    acc = np.array([-7, -3, -1, 1, 5], np.int32)[:, None]
    how = Requantization([2**30], [0], rounding=rounding, scale=np.array([0.5], np.float32))
    if rounding.startswith("double"):
        # The first step must leave the half to the second: scale 1/2 as 2**30 * 2**-30 / 2 ** 1.
        acc, how = 2 * acc, Requantization([2**30], [-1], rounding=rounding)
    np.testing.assert_array_equal(requantize(acc, how).ravel(), HALVES[rounding])


def test_figures_that_tell_modes_apart():
    def one(acc, q, e, rounding):
        how = Requantization([q], [e], rounding=rounding)
        return int(requantize(np.array([acc], np.int32), how)[0])

    # 7984 * 1583594044 * 2**-40 = 11.499; the first rounding lifts it to the half.
    assert one(7984, 1583594044, -9, "double") == 12
    assert one(7984, 1583594044, -9, "single") == 11
    # -585 * 1527099593 * 2**-37 = -6.5000005; the first rounding makes it a tie.
    assert one(-585, 1527099593, -6, "double") == -7
    assert one(-585, 1527099593, -6, "double_up") == -6
    assert one(-585, 1527099593, -6, "single") == -7


def test_one_scale_serves_all_channels_and_wrong_counts_are_refused():
    sums = np.array([[8, -8]], np.int32)
    np.testing.assert_array_equal(
        requantize(sums, Requantization([2**30], [-1], zero_point=3)), [[5, 1]]
    )
    with pytest.raises(ValueError, match=r"multiplier must hold 1 or 2 entries.*not \(3,\)"):
        requantize(sums, Requantization([2**30] * 3, [0]))
    with pytest.raises(ValueError, match=r"shift must hold 1 or 2 entries.*not \(3,\)"):
        requantize(sums, Requantization([2**30], [0, 0, 0]))
    with pytest.raises(ValueError, match=r"scale must hold 1 or 2 entries.*not \(3,\)"):
        requantize(sums, Requantization(rounding="fp32", scale=np.ones(3, np.float32)))
    with pytest.raises(TypeError, match="sums must hold integers, not float64"):
        requantize(sums * 1.0, Requantization([2**30], [0]))
    with pytest.raises(ValueError, match="sums must fit int32"):
        requantize(np.array([2**31]), Requantization([2**30], [0]))


def test_raw_sums_where_nothing_requantises():
    layer = ConvLayer(1, 1, 1, 1, (1, 1), has_bias=False)
    one = np.full((1, 1, 1, 1), 100, np.int8)
    found = golden_layer(layer, one, one)
    assert found.dtype == np.int32 and found.tolist() == [[[[10000]]]]


def test_real_layer_takes_seconds():
    layer = ConvLayer(224, 224, 3, 64, (7, 7), (2, 2), pads=(3, 3, 3, 3))
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, layer.input_shape).astype(np.int8)
    w = rng.integers(-128, 128, layer.weight_shape).astype(np.int8)
    start = time.monotonic()
    assert convolve(layer, x, w).shape == layer.output_shape
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(
    ("scale", "values", "expected"),
    [
        (0.5, [-7, -3, 3, 7, 2**31 - 1], [-4 + 1, -2 + 1, 2, 4, 2**30]),
        (0.25, [-6, -2, 2, 6], [-2, -1, 1, 2]),
        (3.0, [5, -5], [15, -15]),
        (2.0**-33, [2**31 - 1], [0]),
    ],
)
def test_rescale(scale, values, expected):
    # 0.5 is q = 2**30, e = 0: the only rounding is the first one, which takes halves up.
    assert rescale(np.array(values), scale).tolist() == expected


def codes(*values):
    return np.array(values, np.int8)


def test_add_and_subtract_by_hand():
    # Real values: a = (12 - 2) * 0.5 = 5, b = (-3 + 1) * 0.25 = -0.5; sum 4.5, difference 5.5.
    a, b = Quantized(codes(12), 0.5, 2), Quantized(codes(-3), 0.25, -1)
    assert add(a, b, 0.125, 10).tolist() == [46]
    assert subtract(a, b, 0.125, 10).tolist() == [54]
    assert add(a, b, 0.125, 10, (0, 40)).tolist() == [40]
    # A tie of the last step goes away from zero: 4.5 / 1 and -5.5 / 1.
    assert add(a, b, 1.0, 0).tolist() == [5]
    assert subtract(b, a, 1.0, 0).tolist() == [-6]


def test_add_broadcasts():
    a = Quantized(codes(1, 2, 3, 4).reshape(1, 2, 1, 2), 1.0, 0)
    b = Quantized(codes(10, 20).reshape(1, 1, 1, 2), 1.0, 0)
    assert add(a, b, 1.0, 0).ravel().tolist() == [11, 22, 13, 24]


def test_multiply_by_hand():
    # (12 - 2) * 0.5 times (-7 + 1) * 0.25 = -7.5, in steps of 0.5 is -15.
    a, b = Quantized(codes(12), 0.5, 2), Quantized(codes(-7), 0.25, -1)
    assert multiply(a, b, 0.5, 3).tolist() == [-12]
    assert multiply(a, b, 0.5, 3, (-10, 10)).tolist() == [-10]


def test_pools_by_hand():
    x = codes(1, 2, -3, -4, -5, -6, 7, 8, 9).reshape(1, 3, 3, 1)
    found = average_pool(x, (2, 2), (2, 2), (0, 1, 0, 1))
    # Corners: (1+2-4-5)/4 = -1.5 away from zero, (-3-6)/2 = -4.5, (7+8)/2 = 7.5, 9.
    assert found.ravel().tolist() == [-2, -5, 8, 9]
    assert max_pool(x, (2, 2), (2, 2), (0, 1, 0, 1)).ravel().tolist() == [2, -3, 8, 9]
    assert max_pool(x, (2, 2), (1, 1), clamp=(0, 6)).ravel().tolist() == [2, 2, 6, 6]
    # Pads before the tensor count as little as those after it.
    assert average_pool(x, (2, 2), (2, 2), (1, 0, 1, 0)).ravel().tolist() == [1, -1, 2, 2]


def test_mean_by_hand():
    a = Quantized(np.arange(12, dtype=np.int8).reshape(1, 2, 3, 2), 0.5, 1)
    # Channel 0 holds 0, 2, .. 10: mean 5 is (5 - 1) * 0.5 = 2.0; channel 1 is 2.5.
    assert mean(a, (1, 2), 0.25, -3).tolist() == [[5, 7]]
    assert mean(a, (1, 2), 0.25, -3, keep_dims=True).shape == (1, 1, 1, 2)


def test_pad_fills_with_the_zero_point():
    found = pad(codes(5).reshape(1, 1, 1, 1), ((0, 0), (1, 0), (0, 2), (0, 0)), -7)
    assert found.dtype == np.int8
    assert found[0, :, :, 0].tolist() == [[-7, -7, -7], [5, -7, -7]]
