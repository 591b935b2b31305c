"""Array checks: each message, and the int32 guard against every extreme input."""

import re
from itertools import product

import numpy as np
import pytest

from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import Requantization
from haloconv.sim.arrays import check_arrays, sum_bounds

LAYER = ConvLayer(4, 5, 2, 3, (3, 3))
X = np.zeros((1, 4, 5, 2), np.int8)
W = np.zeros((3, 3, 3, 2), np.int8)
B = np.zeros(3, np.int32)


def test_good_arrays_come_back_contiguous():
    x = np.asfortranarray(np.arange(80, dtype=np.int8).reshape(2, 4, 5, 2))
    found = check_arrays(LAYER, x, W[::-1], B, -5, Requantization([2**30], [0]))
    np.testing.assert_array_equal(found.inputs, x)
    assert found.inputs.flags.c_contiguous and found.weights.flags.c_contiguous
    assert found.inputs.dtype == np.int8 and found.bias is not None
    assert found.weight_zero_points is not None
    assert found.weight_zero_points.dtype == np.int32
    assert found.weight_zero_points.tolist() == [-5, -5, -5]
    bare = check_arrays(ConvLayer(4, 5, 2, 3, (3, 3), has_bias=False), X, W)
    assert bare.bias is None and bare.weight_zero_points is None
    listed = check_arrays(LAYER, X, W, B, np.array([1, 2, 3], np.int8))
    assert listed.weight_zero_points is not None
    assert listed.weight_zero_points.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"inputs": X.tolist()}, TypeError, "inputs must be a numpy array, not list"),
        ({"inputs": X.astype(np.uint8)}, TypeError, "inputs must be int8, not uint8"),
        ({"inputs": X[0]}, ValueError, "inputs must have shape (N, 4, 5, 2), not (4, 5, 2)"),
        ({"inputs": X[:0]}, ValueError, "inputs must have shape (N, 4, 5, 2), not (0, 4, 5, 2)"),
        (
            {"inputs": X.swapaxes(1, 2)},
            ValueError,
            "inputs must have shape (N, 4, 5, 2), not (1, 5, 4, 2)",
        ),
        ({"weights": W.astype(np.float32)}, TypeError, "weights must be int8, not float32"),
        (
            {"weights": W[:2]},
            ValueError,
            "weights must have shape (M, Rh, Rw, C / groups) = (3, 3, 3, 2), not (2, 3, 3, 2)",
        ),
        ({"bias": B.astype(np.int64)}, TypeError, "bias must be int32, not int64"),
        ({"bias": B[:2]}, ValueError, "bias must have shape (3,), not (2,)"),
        ({"bias": None}, ValueError, "bias must be given for a layer that has one"),
        (
            {"weight_zero_points": 0.5},
            TypeError,
            "weight_zero_points must hold integers, not float64",
        ),
        (
            {"weight_zero_points": np.zeros(2, int)},
            ValueError,
            "weight_zero_points must be one integer or have shape (3,), not (2,)",
        ),
        (
            {"weight_zero_points": np.array([0, 128, 0])},
            ValueError,
            "weight_zero_points must be within -128..127, not 128",
        ),
        ({"weight_zero_points": -129}, ValueError, "must be within -128..127, not -129"),
        (
            {"requantization": Requantization([2**30] * 2, [0])},
            ValueError,
            "multiplier of the requantization must hold 1 or 3 entries, one for each output",
        ),
        (
            {"requantization": Requantization([2**30], [0] * 4)},
            ValueError,
            "shift of the requantization must hold 1 or 3 entries",
        ),
        (
            {"requantization": Requantization(rounding="fp32", scale=np.ones(2, np.float32))},
            ValueError,
            "scale of the requantization must hold 1 or 3 entries",
        ),
    ],
)
def test_refusals(change, error, message):
    arguments = {"inputs": X, "weights": W, "bias": B} | change
    with pytest.raises(error, match=re.escape(message)):
        check_arrays(LAYER, **arguments)


def test_bias_without_a_bias_layer_is_refused():
    with pytest.raises(ValueError, match="bias must be None for a layer without one"):
        check_arrays(ConvLayer(4, 5, 2, 3, (3, 3), has_bias=False), X, W, B)


@pytest.mark.parametrize("seed", range(8))
def test_bounds_are_the_extremes_over_inputs(seed):
    # Each product is linear in its x, so that the corners of the input range hold the extremes.
    rng = np.random.default_rng(seed)
    zero_point = [-128, 127, *rng.integers(-128, 128, 6)][seed]
    layer = ConvLayer(2, 2, 2, 2, (2, 2), in_zero_point=int(zero_point))
    w = rng.integers(-128, 128, layer.weight_shape)
    zw = rng.integers(-128, 128, 2)
    bias = rng.integers(-1000, 1000, 2)
    flat = (w - zw[:, None, None, None]).reshape(2, 8)
    corners = np.array(list(product((-128, 127), repeat=8)))
    sums = (corners - zero_point) @ flat.T + bias
    low, high = sum_bounds(layer, w.astype(np.int8), bias.astype(np.int32), zw.astype(np.int32))
    assert low.tolist() == sums.min(axis=0).tolist()
    assert high.tolist() == sums.max(axis=0).tolist()


def test_int32_guard_at_its_edge():
    layer = ConvLayer(1, 1, 1, 2, (1, 1), in_zero_point=-28)
    x = np.zeros((1, 1, 1, 1), np.int8)
    w = np.array([100, 100], np.int8).reshape(2, 1, 1, 1)
    # x - Zx spans -100..155, so the sums span bias - 10000 .. bias + 15500.
    top, floor = 2**31 - 1 - 15500, -(2**31) + 10000
    check_arrays(layer, x, w, np.array([floor, top], np.int32))
    with pytest.raises(ValueError, match="output channel 1 can reach 2147483648;"):
        check_arrays(layer, x, w, np.array([floor, top + 1], np.int32))
    with pytest.raises(ValueError, match="output channel 0 can reach -2147483649;"):
        check_arrays(layer, x, w, np.array([floor - 1, top], np.int32))


def test_bias_near_2_to_the_30_of_real_models_passes():
    layer = ConvLayer(8, 8, 256, 1, (3, 3), in_zero_point=-128)
    x = np.zeros((1, 8, 8, 256), np.int8)
    w = np.full((1, 3, 3, 256), -127, np.int8)
    for bias in (2**30, -(2**30)):
        check_arrays(layer, x, w, np.array([bias], np.int32))
