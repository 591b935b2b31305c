"""Table look-ups against the definition of the operators, in Python's own integers."""

import math

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import decode
from haloconv.planner.elementwise import (
    ElementwiseAddresses,
    add_operator,
    describe_elementwise,
    elementwise_bytes,
    elementwise_cycles,
    pack_scale,
    pack_tables,
    product_operator,
    rescale_operator,
)

F = np.float32
CODES = range(-128, 128)
SOME = (-128, -127, -77, -1, 0, 1, 3, 50, 126, 127)


def fixed(real):
    """(q, e) with real = q * 2**(e - 31), q rounded half away from zero."""
    fraction, e = math.frexp(real)
    q = math.floor(fraction * 2**31 + 0.5)
    if q == 2**31:
        q, e = 2**30, e + 1
    return (0, 0) if e < -31 else (q, e)


def scaled(value, q, e):
    """value * q * 2**(e - 31): doubled high half, then a rounding shift, ties away from zero."""
    left, right = max(e, 0), max(-e, 0)
    b = ((value << left) * q + 2**30) >> 31
    rest = b & ((1 << right) - 1)
    return (b >> right) + (rest > ((1 << right) - 1 >> 1) + (b < 0))


def looked_up(operator, a, b=None):
    total = int(operator.first[a + 128])
    if b is not None:
        total += int(operator.second[b + 128])
    assert -(2**31) <= total < 2**31
    y = scaled(total, operator.multiplier, operator.shift) + operator.zero_point
    return min(max(y, operator.clamp[0]), operator.clamp[1])


def summed(sign, scales, zeros, out, out_zero, clamp, a, b):
    twice = 2 * max(scales)
    x = [
        scaled((code - zero) << 20, *fixed(scale / twice))
        for code, zero, scale in zip((a, b), zeros, scales, strict=True)
    ]
    y = scaled(x[0] + sign * x[1], *fixed(twice / (2**20 * out))) + out_zero
    return min(max(y, clamp[0]), clamp[1])


QUANTIZATIONS = [
    ((0.05, 0.031), (3, -9), 0.06, -20, (-128, 127)),
    ((0.031, 0.5), (-128, 127), 0.4, 5, (5, 127)),
    ((0.25, 0.25), (0, 0), 0.5, 0, (-128, 127)),
    ((1e-4, 3.0), (10, -100), 0.02, 127, (-100, 60)),
]


@pytest.mark.parametrize("subtract", [False, True])
@pytest.mark.parametrize("how", QUANTIZATIONS)
def test_sums_of_two_tensors(how, subtract):
    scales, zeros, out, out_zero, clamp = how
    scales, out = tuple(float(F(s)) for s in scales), float(F(out))
    operator = add_operator(scales, zeros, out, out_zero, clamp, subtract=subtract)
    assert operator.second is not None
    sign = -1 if subtract else 1
    for a in CODES:
        for b in SOME:
            expected = summed(sign, scales, zeros, out, out_zero, clamp, a, b)
            assert looked_up(operator, a, b) == expected
            if not subtract:
                continue
            assert looked_up(operator, b, a) == summed(
                sign, scales, zeros, out, out_zero, clamp, b, a
            )


@pytest.mark.parametrize("subtract", [False, True])
def test_sums_with_a_constant_take_one_table(subtract):
    scales, zeros, out, out_zero, clamp = QUANTIZATIONS[0]
    for constant in SOME:
        operator = add_operator(
            scales, zeros, out, out_zero, clamp, subtract=subtract, constant=constant
        )
        assert operator.second is None
        sign = -1 if subtract else 1
        for a in CODES:
            expected = summed(sign, scales, zeros, out, out_zero, clamp, a, constant)
            assert looked_up(operator, a) == expected


@pytest.mark.parametrize("how", QUANTIZATIONS)
def test_products_with_a_constant(how):
    scales, zeros, out, out_zero, clamp = how
    real = scales[0] * scales[1] / out
    for constant in SOME:
        operator = product_operator(scales, zeros, out, out_zero, clamp, constant=constant)
        assert operator.second is None
        for a in CODES:
            y = scaled((a - zeros[0]) * (constant - zeros[1]), *fixed(real)) + out_zero
            assert looked_up(operator, a) == min(max(y, clamp[0]), clamp[1])


@pytest.mark.parametrize(("scale", "out"), [(0.05, 0.03), (0.03, 0.05), (0.5, 0.5), (2.0, 0.01)])
def test_rescaling(scale, out):
    operator = rescale_operator(scale, 7, out, -9, (-120, 120))
    for a in CODES:
        y = scaled(a - 7, *fixed(scale / out)) - 9
        assert looked_up(operator, a) == min(max(y, -120), 120)


def test_equal_scales_leave_codes_as_they_are():
    operator = rescale_operator(0.1, -3, 0.1, -3)
    assert [looked_up(operator, a) for a in CODES] == list(CODES)


# What the engine is given


def test_tables_are_little_endian_words_from_code_minus_128_on():
    one = rescale_operator(0.5, 3, 0.5, 3)
    packed = pack_tables(one)
    assert packed.dtype == np.uint8 and packed.size == 1024
    assert packed[:4].tolist() == [0x7D, 0xFF, 0xFF, 0xFF]  # -128 - 3
    assert packed[4 * 131 : 4 * 131 + 4].tolist() == [0, 0, 0, 0]
    two = add_operator((0.5, 0.5), (0, 1), 1.0, 0)
    packed = pack_tables(two)
    assert packed.size == 2048
    # Halves of the larger scale: codes less zero point, times 2**19.
    assert packed[4 * 129 : 4 * 129 + 4].tolist() == [0, 0, 8, 0]
    assert packed[1024 + 4 * 129 : 1024 + 4 * 129 + 4].tolist() == [0, 0, 0, 0]


def test_scale_entry():
    operator = rescale_operator(0.25, 0, 0.5, 0)  # 1/2 = 2**30 * 2**(0 - 31)
    for config, size in ((EngineConfig(), 6), (EngineConfig(weight_zero_points=False), 5)):
        entry = pack_scale(operator, config)
        assert entry.tolist() == [0, 0, 0, 0x40, 0, 0][:size]
    operator = rescale_operator(0.125, 0, 0.5, 0)
    assert pack_scale(operator, EngineConfig())[4] == 0xFF  # shift -1


def test_descriptor():
    addresses = ElementwiseAddresses(0x1000, 0x2000, 0x3000, 0x4000, 0x5000)
    operator = add_operator((0.5, 0.5), (0, 1), 1.0, -7, (-7, 100))
    fields = decode(describe_elementwise(operator, 1234, addresses, last=True))
    expected = {
        "binary": 1,
        "last": 1,
        "elements": 1234,
        "out_zero_point": -7,
        "clamp_low": -7,
        "clamp_high": 100,
        "input_address": 0x1000,
        "weight_address": 0x2000,
        "bias_address": 0x3000,
        "scale_address": 0x4000,
        "output_address": 0x5000,
    }
    assert {name: fields[name] for name in expected} == expected
    one = rescale_operator(0.5, 0, 0.5, 0)
    fields = decode(describe_elementwise(one, 7, addresses, last=False))
    assert (fields["binary"], fields["last"], fields["elements"]) == (0, 0, 7)


def test_bytes_are_those_of_the_tensors():
    assert elementwise_bytes(rescale_operator(0.5, 0, 0.5, 0), 100) == (100, 100)
    assert elementwise_bytes(add_operator((0.5, 0.5), (0, 0), 1.0, 0), 100) == (200, 100)


@pytest.mark.parametrize("bus", [4, 8, 16])
@pytest.mark.parametrize("binary", [False, True])
def test_long_tensors_are_paced_by_port_and_requantisers(bus, binary):
    config = EngineConfig(bus_bytes=bus, units=("elementwise",))
    operator = rescale_operator(0.5, 0, 0.5, 0)
    if binary:
        operator = add_operator((0.5, 0.5), (0, 0), 1.0, 0)
    operands = 2 if binary else 1
    # Eight elements a cycle at most, and of both operands no more than the read port brings.
    least = max(operands / bus, operands / 8)
    short, long = (elementwise_cycles(operator, n, config) for n in (40_000, 140_000))
    assert 100_000 * least <= long - short <= 100_000 * least * 1.3 + 64
    entries = 256 * operands * 4 / bus
    assert elementwise_cycles(operator, 1, config) > entries
