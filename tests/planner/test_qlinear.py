"""Quantised sums against ONNX Runtime and against the real sum; tables against both."""

import hashlib

import numpy as np
import pytest

from haloconv.planner.qlinear import QLinearSum, table_operator

GRID = np.arange(-128, 128)


def f32(*values):
    return tuple(float(np.float32(v)) for v in values)


# Rule, and the first 16 digits of the SHA-256 of what QLinearAdd of ONNX Runtime 1.32 makes of
# every pair of codes (first operand down, second across), uint8 codes less 128.
RULES = {
    ((0.05, 0.031, 0.06), (3, -9, -20), False): "4688fba38a62663d",
    ((0.05, 0.031, 0.06), (3, -9, -20), True): "896aed3a7cb37ab1",
    ((0.0137, 0.09, 0.1), (-128, -128, -128), True): "83f8d8e1c86783be",
    ((0.5, 0.5, 1.0), (0, 0, 0), False): "a130cc43b88b13f8",
    ((0.02, 0.3, 0.004), (100, -100, 0), True): "b41c87766ab78865",
    ((0.077, 0.0513, 0.0911), (17, 4, -31), False): "48a0b37846a3100f",
}


@pytest.mark.parametrize("key", RULES)
def test_every_pair_hashes_as_onnxruntime(key):
    scales, zero_points, unsigned = key
    rule = QLinearSum(f32(*scales), zero_points, unsigned)
    found = rule.every_pair()
    assert found.shape == (256, 256)
    assert hashlib.sha256(found.astype(np.int8).tobytes()).hexdigest()[:16] == RULES[key]


@pytest.mark.parametrize("key", RULES)
def test_codes_are_near_the_real_sum(key):
    (sa, sb, sy), (za, zb, zy), unsigned = key
    real = ((GRID[:, None] - za) * sa + (GRID[None, :] - zb) * sb) / sy + zy
    found = QLinearSum(f32(sa, sb, sy), (za, zb, zy), unsigned).every_pair()
    assert np.abs(found - np.clip(real, -128, 127)).max() <= 0.5 + 1e-4


def evaluated(operator):
    """The engine's sum of both tables at every pair, rounding mode "double"."""
    total = operator.first.astype(np.int64)[:, None] + operator.second.astype(np.int64)[None, :]
    assert np.abs(total).max() < 2**31
    high = (total * operator.multiplier + (1 << 30)) >> 31
    right = -operator.shift
    rest = high & ((1 << right) - 1)
    found = (high >> right) + (rest > ((1 << right) - 1 >> 1) + (high < 0))
    return np.clip(found + operator.zero_point, *operator.clamp)


@pytest.mark.parametrize("seed", range(12))
def test_tables_give_the_same_codes(seed):
    rng = np.random.default_rng(seed)
    scales = f32(*(rng.random(3) * 0.1 + 0.01))
    zero_points = tuple(int(z) for z in rng.integers(-60, 60, 3))
    rule = QLinearSum(scales, zero_points, bool(seed % 2), (zero_points[2], 120))
    operator = rule.tables()
    if operator is None:
        pytest.skip(f"a sum lies next to a half at seed {seed}")
    np.testing.assert_array_equal(evaluated(operator), rule.every_pair())


def test_most_scales_have_tables():
    found = [
        QLinearSum(f32(*(np.random.default_rng(seed).random(3) * 0.1 + 0.01)), (3, -7, 11)).tables()
        for seed in range(12)
    ]
    assert sum(operator is not None for operator in found) >= 8


def test_halves_to_even_have_no_tables():
    rule = QLinearSum((0.5, 0.5, 1.0), (0, 0, 0))
    assert rule.codes(np.array([1, 3, -1]), np.array([0, 0, 0])).tolist() == [0, 2, 0]
    assert rule.tables() is None


def test_sums_beyond_any_table_have_none():
    assert QLinearSum(f32(1e9, 1.0, 1.0), (0, 0, 0)).tables() is None


def test_table_of_results_has_a_scale_of_one():
    operator = table_operator(GRID[::-1])
    assert operator.second is None and operator.first.dtype == np.int32
    assert operator.first.tolist() == GRID[::-1].tolist()
    # 2**30 * 2**(1 - 31), and nothing added
    assert (operator.multiplier, operator.shift, operator.zero_point) == (1 << 30, 1, 0)
