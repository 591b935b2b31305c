"""Whole-model activations: hashes of LiteRT's reference kernels, and built graphs by hand."""

import hashlib
import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

from haloconv.planner.errors import UnsupportedModel
from haloconv.planner.tflite import read_tflite
from haloconv.sim.reference import reference_tensors

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location(
    "tflite_builder", ROOT / "tests" / "support" / "tflite_builder.py"
)
assert _spec is not None and _spec.loader is not None
builder = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(builder)
T, Op, build = builder.T, builder.Op, builder.build

MODELS = ROOT.parent / "shared" / "models"
GOLDEN = MODELS / "golden_ref.json"
# Operators that the golden model leaves out, with what follows them.
LEFT_OUT = {
    "ad01_autoencoder_int8": [],
    "hello_world_int8": [],
    "kws_dscnn_int8": ["SOFTMAX"],
    "micro_speech_int8": ["SOFTMAX"],
    "mnv1_025_partial_int8": [],
    "mobilenetv2_035_160_int8": ["SOFTMAX"],
    "mobilenetv2_100_224_ptq_int8": ["SOFTMAX", "QUANTIZE"],
    "person_detect_int8": ["SOFTMAX"],
    "person_detect_int8_litert": ["SOFTMAX"],
    "resnet8_cifar10_int8": ["SOFTMAX"],
    "ssd_slim_120x160_int8": ["SOFTMAX"],
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_every_activation_of_real_models(name):
    path = MODELS / f"{name}.tflite"
    if not path.exists() or not GOLDEN.exists():
        pytest.skip("the public models are not beside the checkout")
    golden = json.loads(GOLDEN.read_text())
    # LiteRT loads only the repaired copy of person_detect; both hold the same network.
    listed = golden.get(path.name) or golden[f"{name}_litert.tflite"]
    model = read_tflite(path)
    tensor = model.tensors[model.inputs[0]]
    limits = np.iinfo(tensor.dtype)
    rng = np.random.default_rng(0)
    x = rng.integers(limits.min, limits.max + 1, tensor.shape).astype(tensor.dtype)
    values = reference_tensors(model, x)
    left_out = []
    for entry, operator in zip(listed["ops"], model.operators, strict=True):
        (output,) = operator.outputs
        if output not in values:
            left_out.append(entry["op"])
            continue
        found = np.ascontiguousarray(values[output])
        assert list(found.shape) == entry["shape"]
        assert hashlib.sha256(found.tobytes()).hexdigest() == entry["sha256"], entry
    assert left_out == LEFT_OUT[name]


def run(tmp_path, tensors, operators, inputs, **arguments):
    path = tmp_path / "m.tflite"
    ports = tuple(i for i, t in enumerate(tensors) if t.name == "in")
    path.write_bytes(build(tensors, operators, ports))
    return reference_tensors(path, inputs, **arguments)


X = np.array([1, -2, 3, 4, -5, 6, 7, 8, -9], np.int8).reshape(1, 3, 3, 1)


def test_chain_of_operators_by_hand(tmp_path):
    """PAD, MAX_POOL_2D, CONV_2D, RESHAPE, MEAN, CONCATENATION with figures worked by hand."""
    widths = np.array([[0, 0], [1, 0], [0, 1], [0, 0]], np.int32)
    double = np.full((1, 1, 1, 1), 2, np.int8)
    tensors = [
        T(X.shape, (1.0,), (-1,), name="in"),
        T((4, 2), None, data=widths),
        T((1, 4, 4, 1), (1.0,), (-1,)),
        T((1, 2, 2, 1), (1.0,), (-1,)),
        T((1, 1, 1, 1), (0.5,), (0,), data=double),
        T((1, 2, 2, 1), (1.0,), (-1,)),
        T((2,), None, data=np.array([1, 4], np.int32)),
        T((1, 4), (1.0,), (-1,)),
        T((2,), None, data=np.array([1, -2], np.int32)),
        T((1, 1), (2.0,), (3,)),
        T((1, 8), (1.0,), (-1,)),
    ]
    pool = {"FilterHeight": 2, "FilterWidth": 2, "StrideH": 2, "StrideW": 2, "Padding": 1}
    operators = [
        Op("PAD", (0, 1), (2,), None),
        Op("MAX_POOL_2D", (2,), (3,), pool),
        Op("CONV_2D", (3, 4), (5,), {"Padding": 1}),
        Op("RESHAPE", (5, 6), (7,)),
        Op("MEAN", (5, 8), (9,)),
        Op("CONCATENATION", (7, 7), (10,), {"Axis": 1}),
    ]
    values = run(tmp_path, tensors, operators, X)
    assert set(values) == {0, 2, 3, 5, 7, 9, 10}
    padded = [[-1, -1, -1, -1], [1, -2, 3, -1], [4, -5, 6, -1], [7, 8, -9, -1]]
    assert values[2][0, :, :, 0].tolist() == padded
    assert values[3].ravel().tolist() == [1, 3, 8, 6]
    # The weight's real value is 2 * 0.5 = 1, so that the convolution copies.
    assert values[5].ravel().tolist() == [1, 3, 8, 6]
    assert values[7].tolist() == [[1, 3, 8, 6]]
    # Real values 2, 4, 9, 7: mean 5.5 is 2.75 steps of 2.0, rounded to 3 and moved by 3.
    assert values[9].tolist() == [[6]]
    assert values[10].tolist() == [[1, 3, 8, 6, 1, 3, 8, 6]]


def test_same_average_pool_and_fused_activations(tmp_path):
    pool = {"FilterHeight": 2, "FilterWidth": 2, "StrideH": 2, "StrideW": 2}
    tensors = [T(X.shape, (1.0,), (0,), name="in")]
    tensors += [T((1, 2, 2, 1), (1.0,), (0,)) for _ in range(4)]
    operators = [
        Op("AVERAGE_POOL_2D", (0,), (1,), pool | {"FusedActivationFunction": 1}),
        Op("ADD", (1, 1), (2,), {"FusedActivationFunction": 3}),
        Op("SUB", (1, 2), (3,)),
        Op("MUL", (1, 3), (4,)),
    ]
    values = run(tmp_path, tensors, operators, [X])
    # (1-2+4-5)/4 = -0.5 -> -1 -> 0; (3+6)/2 = 4.5 -> 5; (7+8)/2 = 7.5 -> 8; -9 -> 0
    assert values[1].ravel().tolist() == [0, 5, 8, 0]
    assert values[2].ravel().tolist() == [0, 6, 6, 0]
    assert values[3].ravel().tolist() == [0, -1, 2, 0]
    assert values[4].ravel().tolist() == [0, -5, 16, 0]


def test_quantize_moves_the_zero_point(tmp_path):
    tensors = [
        T((4,), (0.5,), (128,), dtype="uint8", name="in"),
        T((4,), (0.5,), (0,)),
        T((4,), (0.25,), (0,)),
    ]
    x = np.array([0, 1, 128, 255], np.uint8)
    values = run(tmp_path, tensors[:2], [Op("QUANTIZE", (0,), (1,), None)], {0: x})
    assert values[1].tolist() == [-128, -127, 0, 127]
    with pytest.raises(UnsupportedModel, match="only a change of zero point is covered"):
        run(tmp_path, tensors, [Op("QUANTIZE", (0,), (2,), None)], x)


def test_fully_connected_takes_rows_and_rounds_by_target(tmp_path):
    w = np.array([[1, 1]], np.int8)
    tensors = [
        T((3, 2), (0.5,), (0,), name="in"),
        T((1, 2), (1.0,), (0,), data=w),
        T((3, 1), (2.0,), (0,)),
    ]
    x = np.array([[2, 4], [-2, -4], [-1, 0]], np.int8)
    op = [Op("FULLY_CONNECTED", (0, 1), (2,))]
    # Sums 6, -6, -1 times 1/4: 1.5, -1.5, -0.25.
    assert run(tmp_path, tensors, op, x)[2].ravel().tolist() == [2, -2, 0]
    # Even halves: 1.5 and -1.5 are nearest to the even 2 and -2.
    assert run(tmp_path, tensors, op, x, target="xnnpack")[2].ravel().tolist() == [2, -2, 0]
    # Sum -2 is the half -0.5: away from zero for litert, to the even 0 for xnnpack. With the whole
    # scale in one shift (1/4 is 2**30 * 2**-1) tflm agrees with litert.
    half = np.array([[-2, 0], [2, 0], [0, 0]], np.int8)
    assert run(tmp_path, tensors, op, half)[2].ravel().tolist() == [-1, 1, 0]
    assert run(tmp_path, tensors, op, half, target="xnnpack")[2].ravel().tolist() == [0, 0, 0]


CONV = [
    T(X.shape, name="in"),
    T(X.shape),
    T((1, 1, 1, 1), data=np.ones((1, 1, 1, 1), np.int8)),
    T(X.shape, name="out"),
]


def test_what_follows_an_uncovered_operator(tmp_path):
    tail = [Op("SOFTMAX", (0,), (1,)), Op("RESHAPE", (1,), (3,))]
    assert set(run(tmp_path, CONV, tail, X)) == {0}
    message = "SOFTMAX (operator 0, 't1') is not supported: operator 1, CONV_2D, needs its result"
    with pytest.raises(UnsupportedModel, match=re.escape(message)):
        run(tmp_path, CONV, [Op("SOFTMAX", (0,), (1,)), Op("CONV_2D", (1, 2), (3,))], X)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ([X, X], ValueError, "inputs must be 1 arrays, one for each input of the model, not 2"),
        ({7: X}, ValueError, "inputs must hold tensor 0 ('in')"),
        (X.astype(np.uint8), TypeError, "input 'in' must be int8, not uint8"),
        (X[0], ValueError, "input 'in' must have shape (1, 3, 3, 1), not (3, 3, 1)"),
    ],
)
def test_wrong_inputs(tmp_path, inputs, error, message):
    with pytest.raises(error, match=re.escape(message)):
        run(tmp_path, CONV, [Op("CONV_2D", (0, 2), (3,))], inputs)


@pytest.mark.parametrize(
    ("op", "output", "message"),
    [
        (
            Op("MAX_POOL_2D", (0,), (1,), {"FilterHeight": 1, "FilterWidth": 1}),
            T(X.shape, (0.25,)),
            "input and output must have the same quantisation",
        ),
        (Op("MAX_POOL_2D", (0,), (1,), None), T(X.shape), "the file gives no kernel for it"),
        (Op("MAX_POOL_2D", (0,), (1,)), T(X.shape), "kernel and stride must be at least 1"),
        (Op("ADD", (0,), (1,)), T(X.shape), "it must have an input 1"),
        (Op("ADD", (0, 2), (1,)), T(X.shape), "nothing computes its input 'lost'"),
        (
            Op("ADD", (0, 0), (1,), {"FusedActivationFunction": 4}),
            T(X.shape),
            "activation must be one of NONE",
        ),
        (Op("ADD", (0, 0), (1,)), T(X.shape, dtype="int16"), "must be int8 with one scale"),
        (Op("ADD", (0, 0), (1,)), T((1, 3, 3, 2)), "its output must have shape (1, 3, 3, 2)"),
        (
            Op("CONCATENATION", (0,), (1,), {"Axis": 3, "FusedActivationFunction": 1}),
            T(X.shape),
            "a fused activation does not apply to it",
        ),
    ],
)
def test_impossible_operators(tmp_path, op, output, message):
    tensors = [T(X.shape, name="in"), output, T(X.shape, name="lost")]
    with pytest.raises(UnsupportedModel, match=re.escape(message)):
        run(tmp_path, tensors, [op], X)
