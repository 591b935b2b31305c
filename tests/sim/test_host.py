"""Host operators: exact results of the reference kernels, and data movement by numpy's means.

The kernels of whole files are held against LiteRT in test_network_golden.py.
"""

import hashlib

import numpy as np
import pytest

from haloconv.planner.network import HostNode, MoveNode, Network, NetworkTensor
from haloconv.sim.host import logistic, resize_bilinear, run_host, run_move, softmax, softmax_float

CODES = np.arange(-128, 128).astype(np.int8)


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def rows(count, length, seed=0):
    return np.random.default_rng(seed).integers(-60, 61, (count, length)).astype(np.int8)


# First 16 digits of the SHA-256 of what LiteRT 2.3.0's reference kernel (the same as
# tflite-micro's) and its default kernel make of rows(400, length) at a scale and beta 1.
SOFTMAX = {
    (0.01, 5): ("92878aa7c9939a12", "92878aa7c9939a12"),
    (0.03, 12): ("b0b4f0f7c3e665d7", "fc11ba185c07bb85"),
    (0.1718, 12): ("f4510698126c5552", "f4510698126c5552"),
    (0.3, 301): ("e83b308f75825491", "e83b308f75825491"),
    (1.0, 40): ("f4c67865781c1756", "f4c67865781c1756"),
}


@pytest.mark.parametrize(("scale", "length"), SOFTMAX)
def test_softmax_hashes_as_the_kernels(scale, length):
    codes, (fixed, floating) = rows(400, length), SOFTMAX[scale, length]
    assert digest(softmax(codes, np.float32(scale))) == fixed
    assert digest(softmax_float(codes, np.float32(scale))) == floating


def test_the_two_softmax_kernels_differ():
    assert any(fixed != floating for fixed, floating in SOFTMAX.values())


@pytest.mark.parametrize("function", [softmax, softmax_float])
def test_softmax_is_near_the_real_one(function):
    codes = rows(200, 10, seed=1)
    real = np.exp(codes * 0.05)
    real /= real.sum(axis=-1, keepdims=True)
    found = (function(codes, np.float32(0.05)).astype(int) + 128) / 256
    assert np.abs(found - real).max() < 1 / 256


@pytest.mark.parametrize("function", [softmax, softmax_float])
def test_softmax_of_equal_and_of_distant_codes(function):
    even = function(np.full((1, 4), -7, np.int8), np.float32(0.1))
    assert even.tolist() == [[-64] * 4]  # 1/4
    sure = function(np.array([[127, -128]], np.int8), np.float32(1.0))
    assert sure.tolist() == [[127, -128]]  # 1 saturates
    # Whatever the zero point: only differences count.
    np.testing.assert_array_equal(
        function(np.array([[-100, -90, -80]], np.int8), np.float32(0.07)),
        function(np.array([[100, 110, 120]], np.int8), np.float32(0.07)),
    )


def test_softmax_beta_scales_the_differences():
    codes = rows(20, 6)
    np.testing.assert_array_equal(
        softmax(codes, np.float32(0.125), 0.5), softmax(codes, np.float32(0.0625), 1.0)
    )


# LOGISTIC of every code by scale and zero point; where the values come from, see SOFTMAX.
LOGISTIC = {
    (0.05, 3): "9dfb6a14e013284c",
    (0.2, -20): "d7408bb093d2bf96",
    (0.001, -128): "23761fad7788dc17",
    (0.0314, 127): "022b33cdcd1ec8f4",
    (0.5, 0): "5858f444b3a9b253",
}


@pytest.mark.parametrize(("scale", "zero_point"), LOGISTIC)
def test_logistic_hashes_as_the_kernel(scale, zero_point):
    found = logistic(CODES, np.float32(scale), zero_point)
    assert digest(found) == LOGISTIC[scale, zero_point]
    real = 256 / (1 + np.exp(-(CODES.astype(int) - zero_point) * scale)) - 128
    assert np.abs(found - np.clip(real, -128, 127)).max() <= 1


def test_logistic_of_zero_is_a_half():
    assert logistic(np.array([7], np.int8), 0.1, 7).tolist() == [0]


def test_bilinear_by_hand():
    x = np.array([[0, 100], [40, -60]], np.int8).reshape(1, 2, 2, 1)
    # Positions 0, 1/2, 1 and 3/2, the last held at the border.
    found = resize_bilinear(x, (4, 4))[0, :, :, 0]
    assert found.tolist() == [
        [0, 50, 100, 100],
        [20, 20, 20, 20],
        [40, -10, -60, -60],
        [40, -10, -60, -60],
    ]
    # Corners on corners: positions 0, 1/2 and 1.
    found = resize_bilinear(x, (3, 3), align_corners=True)[0, :, :, 0]
    assert found.tolist() == [[0, 50, 100], [20, 20, 20], [40, -10, -60]]
    # Centres: positions -1/4, 1/4, 3/4 and 5/4.
    found = resize_bilinear(x[:, :1], (1, 4), half_pixel_centers=True)[0, :, :, 0]
    assert found.tolist() == [[0, 25, 75, 100]]


# Nodes


def network(x, y, target="tflm"):
    return Network("m", target, {0: x, 1: y}, (), (0,), (1,))


def host(operator, **options):
    return HostNode(
        index=0, name="n", operator=operator, inputs=(0,), outputs=(1,), options=options
    )


def tensor(index, shape, dtype="int8", scale=0.5, zero_point=0, data=None):
    return NetworkTensor(index, f"t{index}", shape, dtype, scale, zero_point, data)


def test_quantize_rounds_halves_by_target():
    x = np.array([-1.25, -0.75, -0.25, 0.25, 0.75, 1.25, 0.2499, 1e9, -1e9], np.float32)
    ends = tensor(0, x.shape, "float32", 0.0), tensor(1, x.shape, "int8", 0.5, 3)
    (away,) = run_host(host("QUANTIZE"), {0: x}, network(*ends))
    assert away.tolist() == [0, 1, 2, 4, 5, 6, 3, 127, -128]
    (even,) = run_host(host("QUANTIZE"), {0: x}, network(*ends, target="xnnpack"))
    assert even.tolist() == [1, 1, 3, 3, 5, 5, 3, 127, -128]


def test_uint8_and_int8_differ_by_128():
    x = np.arange(256, dtype=np.uint8)
    ends = tensor(0, (256,), "uint8", 0.5, 127), tensor(1, (256,), "int8", 0.5, -1)
    (found,) = run_host(host("QUANTIZE"), {0: x}, network(*ends))
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, CODES)
    back = tensor(0, (256,), "int8", 0.5, -1), tensor(1, (256,), "uint8", 0.5, 127)
    (found,) = run_host(host("QUANTIZE"), {0: CODES}, network(*back))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, x)


def test_dequantize():
    ends = tensor(0, (3,), "int8", 0.25, 3), tensor(1, (3,), "float32", 0.0)
    (found,) = run_host(host("DEQUANTIZE"), {0: np.array([-128, 3, 127], np.int8)}, network(*ends))
    assert found.dtype == np.float32
    assert found.tolist() == [-32.75, 0.0, 31.0]


def test_operands_come_in_order_and_from_constants():
    row = np.array([10, -20], np.int8)
    graph = Network(
        "m",
        "tflm",
        {0: tensor(0, (2, 2)), 1: tensor(1, (2, 2)), 2: tensor(2, (2,), data=row)},
        (),
        (0,),
        (1,),
    )
    node = host("SUB", operands=(2, 0), clamp=(-15, 127))
    (found,) = run_host(node, {0: np.array([[1, 2], [3, -4]], np.int8)}, graph)
    assert found.tolist() == [[9, -15], [7, -15]]  # 10 - 1, -20 - 2, 10 - 3, -20 + 4


def test_what_is_missing_is_named():
    ends = tensor(0, (3,)), tensor(1, (3,))
    with pytest.raises(ValueError, match=r"must be one of ADD, .*, not 'TANH'"):
        run_host(host("TANH"), {0: np.zeros(3, np.int8)}, network(*ends))
    with pytest.raises(ValueError, match=r"tensors must hold tensor 0, but hold \[5\]"):
        run_host(host("LOGISTIC"), {5: np.zeros(3, np.int8)}, network(*ends))


def move(kind, arrays, shape, **options):
    inputs = tuple(range(len(arrays)))
    node = MoveNode(
        index=0, name="n", operator="X", inputs=inputs, outputs=(9,), kind=kind, options=options
    )
    return run_move(node, arrays, shape).tolist()


def test_moves():
    x = np.arange(6, dtype=np.int8).reshape(1, 2, 3)
    assert move("view", [x], (3, 2)) == [[0, 1], [2, 3], [4, 5]]
    assert move("concatenate", [x, x[:, :, :1]], (1, 2, 4), axis=2) == [
        [[0, 1, 2, 0], [3, 4, 5, 3]]
    ]
    assert move("pad", [x[:, :, :1]], (1, 3, 2), pads=((0, 0), (1, 0), (0, 1)), fill=-9) == [
        [[-9, -9], [0, -9], [3, -9]]
    ]
    options = {"begin": (0, 1, 0), "end": (1, 2, 3), "strides": (1, 1, 2)}
    assert move("slice", [x], (2,), **options) == [3, 5]
    assert move("transpose", [x], (3, 1, 2), permutation=(2, 0, 1)) == [
        [[0, 3]],
        [[1, 4]],
        [[2, 5]],
    ]
    assert move("repeat", [x], (1, 4, 3), factors=(1, 2, 1)) == [
        [[0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]
    ]


def test_move_results_own_their_bytes_in_order():
    x = np.arange(6, dtype=np.int8).reshape(2, 3)
    node = MoveNode(
        index=0,
        name="n",
        operator="TRANSPOSE",
        inputs=(0,),
        outputs=(1,),
        kind="transpose",
        options={"permutation": (1, 0)},
    )
    found = run_move(node, [x], (3, 2))
    assert found.flags["C_CONTIGUOUS"] and found.tobytes() == bytes([0, 3, 1, 4, 2, 5])


def test_unknown_move():
    with pytest.raises(ValueError, match=r"kind must be view, .* or repeat, not 'spin'"):
        move("spin", [np.zeros(1, np.int8)], (1,))
