"""The TFLite reader: real models against their layer table, and each refusal on built files."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

from haloconv.planner.errors import UnsupportedModel
from haloconv.planner.tflite import conv_layers, read_tflite

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location(
    "tflite_builder", ROOT / "tests" / "support" / "tflite_builder.py"
)
assert _spec is not None and _spec.loader is not None
builder = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(builder)
T, Op, build = builder.T, builder.Op, builder.build

MODELS = ROOT.parent / "shared" / "models"
TABLE = MODELS / "layers.json"
NAMES = (
    "resnet8_cifar10_int8",
    "kws_dscnn_int8",
    "ad01_autoencoder_int8",
    "person_detect_int8",
    "person_detect_int8_litert",
    "micro_speech_int8",
    "hello_world_int8",
    "mnv1_025_partial_int8",
    "mobilenetv2_035_160_int8",
    "ssd_slim_120x160_int8",
    "mobilenetv2_100_224_ptq_int8",
)


@pytest.mark.parametrize("name", NAMES)
def test_real_models_against_their_layer_table(name):
    path = MODELS / f"{name}.tflite"
    if not path.exists() or not TABLE.exists():
        pytest.skip("the public models are not beside the checkout")
    listed = json.loads(TABLE.read_text())[path.name]["layers"]
    listed = {
        entry["index"]: entry
        for entry in listed
        if entry["op"] in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    }
    layers = conv_layers(path)
    assert [data.index for data in layers] == sorted(listed)
    for data in layers:
        entry, layer = listed[data.index], data.layer
        assert data.operator == entry["op"]
        assert data.input_tensor == entry["input_tensors"][0]
        assert [data.output_tensor] == entry["output_tensors"]
        assert layer.in_zero_point == entry["zp_in"]
        assert data.requantization.zero_point == entry["zp_out"]
        assert list(data.requantization.clamp) == entry["clamp"]
        assert layer.macs * entry["out_shape"][0] == entry["macs"]
        assert data.weights.size == entry["weight_bytes"]
        if entry["op"] != "FULLY_CONNECTED":
            assert list(layer.kernel) == entry["kernel"]
            assert list(layer.stride) == entry["stride"]
            assert list(layer.dilation) == entry["dilation"]
            assert list(layer.pads) == entry["pads_tblr"]
            assert list(layer.input_shape) == entry["in_shape"]
            assert list(layer.output_shape) == entry["out_shape"]
            assert layer.groups == entry["groups"]
        if "multiplier_range" not in entry:  # the table lists it for convolutions only
            continue
        how = data.requantization
        live = how.multiplier != 0
        scales = how.multiplier[live] * 2.0 ** (how.shift[live] - 31)
        low, high = entry["multiplier_range"]
        if live.all():
            assert [scales.min(), scales.max()] == pytest.approx([low, high], rel=2**-30)
            assert [how.shift.min(), how.shift.max()] == entry["shift_range"]
        else:
            # Channels whose scale is below 2**-32 of one count as 0 here.
            assert low < 2.0**-32 and scales.max() == pytest.approx(high, rel=2**-30)
        assert data.bias is not None
        assert int(np.abs(data.bias.astype(np.int64)).max()) == entry["bias_abs_max"]
        assert data.weight_zero_points is None


# One small convolution, from which each test departs in one point.

W = np.arange(-9, 9, dtype=np.int8).reshape(1, 3, 3, 2)
BIAS = np.array([7], np.int32)


def conv(x=None, w=None, bias=None, y=None, options=None, kind="CONV_2D", inputs=(0, 1, 2)):
    """Return a file: 5x6x2 input, 3x3 kernel, SAME, one output channel."""
    tensors = [
        x or T((1, 5, 6, 2), (0.5,), (-3,)),
        w or T(W.shape, (0.25,), (0,), data=W),
        bias or T((1,), (0.125,), (0,), data=BIAS),
        y or T((1, 5, 6, 1), (0.75,), (11,), name="out"),
    ]
    return build(tensors, [Op(kind, inputs, (3,), options or {})])


def load(tmp_path, blob):
    path = tmp_path / "m.tflite"
    path.write_bytes(blob)
    return path


def test_tensor_and_operator_table(tmp_path):
    model = read_tflite(load(tmp_path, conv(options={"FusedActivationFunction": 3})))
    assert (model.name, model.description) == ("m.tflite", "made for a test")
    assert (model.inputs, model.outputs) == ((0,), (3,))
    x, w, bias, y = model.tensors
    assert (x.shape, x.dtype, x.data, x.name) == ((1, 5, 6, 2), "int8", None, "t0")
    assert x.scales.tolist() == [0.5] and x.zero_points.tolist() == [-3]
    np.testing.assert_array_equal(w.data, W)
    assert bias.dtype == "int32" and bias.data.tolist() == [7]
    assert (y.index, y.name, y.is_variable, y.is_sparse) == (3, "out", False, False)
    (op,) = model.operators
    assert (op.kind, op.inputs, op.outputs, op.version) == ("CONV_2D", (0, 1, 2), (3,), 1)
    assert op.options == {
        "stride": (1, 1),
        "padding": "SAME",
        "dilation": (1, 1),
        "activation": "RELU6",
    }


def test_convolution(tmp_path):
    path = load(tmp_path, conv(options={"FusedActivationFunction": 1}))
    for target, rounding in (("tflm", "double"), ("litert", "double"), ("xnnpack", "fp32")):
        (data,) = conv_layers(path, target)
        assert data.requantization.rounding == rounding
    (data,) = conv_layers(path)
    layer = data.layer
    assert (data.index, data.name, data.operator) == (0, "out", "CONV_2D")
    assert (layer.input_shape, layer.weight_shape) == ((1, 5, 6, 2), (1, 3, 3, 2))
    assert (layer.pads, layer.in_zero_point, layer.has_bias) == ((1, 1, 1, 1), -3, True)
    np.testing.assert_array_equal(data.weights, W)
    assert data.bias is not None and data.bias.tolist() == [7]
    assert data.weight_zero_points is None
    how = data.requantization
    # 0.5 * 0.25 / 0.75 = 1/6 = 2/3 * 2**-2
    assert (how.multiplier.tolist(), how.shift.tolist()) == ([round(2**32 / 3)], [-2])
    assert (how.zero_point, how.clamp) == (11, (11, 127))
    (data,) = conv_layers(path, "xnnpack")
    assert data.requantization.scale.tolist() == [np.float32(1 / 6)]


def test_valid_padding_stride_and_dilation(tmp_path):
    blob = conv(
        x=T((1, 9, 8, 2), zero_points=(0,)),
        y=T((1, 3, 2, 1)),
        options={
            "Padding": 1,
            "StrideH": 2,
            "StrideW": 3,
            "DilationHFactor": 2,
            "DilationWFactor": 1,
        },
    )
    (data,) = conv_layers(load(tmp_path, blob))
    layer = data.layer
    assert (layer.stride, layer.dilation, layer.pads) == ((2, 3), (2, 1), (0, 0, 0, 0))
    assert layer.output_shape == (1, 3, 2, 1)


def test_absent_bias_and_zero_points(tmp_path):
    for inputs in ((0, 1), (0, 1, -1)):
        blob = conv(x=T((1, 5, 6, 2)), w=T(W.shape, data=W), inputs=inputs)
        (data,) = conv_layers(load(tmp_path, blob))
        assert data.bias is None and not data.layer.has_bias
        assert data.layer.in_zero_point == 0


def test_grouped_convolution(tmp_path):
    w = np.zeros((6, 3, 3, 2), np.int8)
    blob = conv(x=T((1, 5, 6, 4)), w=T(w.shape, data=w), y=T((1, 5, 6, 6)), inputs=(0, 1))
    (data,) = conv_layers(load(tmp_path, blob))
    assert data.layer.groups == 2


def test_weight_zero_points_come_along(tmp_path):
    w = np.zeros((3, 3, 3, 2), np.int8)
    blob = conv(
        w=T(w.shape, (0.5, 0.25, 1.0), (1, -2, 0), data=w), y=T((1, 5, 6, 3)), inputs=(0, 1)
    )
    (data,) = conv_layers(load(tmp_path, blob))
    assert data.weight_zero_points is not None
    assert data.weight_zero_points.tolist() == [1, -2, 0]
    # 0.5 * (0.5, 0.25, 1.0) / 0.5
    assert data.requantization.shift.tolist() == [0, -1, 1]
    (one,) = conv_layers(load(tmp_path, conv(w=T(W.shape, (0.5,), (9,), data=W))))
    assert one.weight_zero_points is not None and one.weight_zero_points.tolist() == [9]


def depthwise(channels, multiplier, dimension=3, scales=None, shape=None):
    outputs = channels * multiplier
    w = np.arange(9 * outputs).astype(np.int8).reshape(shape or (1, 3, 3, outputs))
    return w, conv(
        x=T((1, 5, 6, channels)),
        w=T(w.shape, scales or (0.5,) * outputs, data=w, dimension=dimension),
        y=T((1, 5, 6, outputs)),
        kind="DEPTHWISE_CONV_2D",
        options={"DepthMultiplier": multiplier},
        inputs=(0, 1),
    )


@pytest.mark.parametrize(("channels", "multiplier", "groups"), [(4, 1, 4), (3, 2, 3), (1, 8, 1)])
def test_depthwise(tmp_path, channels, multiplier, groups):
    w, blob = depthwise(channels, multiplier)
    (data,) = conv_layers(load(tmp_path, blob))
    assert data.layer.groups == groups
    assert data.weights.shape == (channels * multiplier, 3, 3, 1)
    for m in range(channels * multiplier):
        np.testing.assert_array_equal(data.weights[m, :, :, 0], w[0, :, :, m])


def fully(x=(1, 2, 2, 3), w=(5, 12), y=(1, 5), scales=(0.5,), options=None):
    data = np.zeros(w, np.int8)
    tensors = [T(x), T(w, scales, data=data), T(y)]
    return build(tensors, [Op("FULLY_CONNECTED", (0, 1), (2,), options or {})])


def test_fully_connected(tmp_path):
    path = load(tmp_path, fully())
    for target, rounding in (("tflm", "double"), ("litert", "away"), ("xnnpack", "fp32")):
        (data,) = conv_layers(path, target)
        assert data.requantization.rounding == rounding
        assert data.layer.input_shape == (1, 1, 1, 12)
        assert data.layer.output_shape == (1, 1, 1, 5)
        assert data.weights.shape == (5, 1, 1, 12)
    (rows,) = conv_layers(load(tmp_path, fully(x=(7, 12), y=(7, 5), scales=(0.5,) * 5)))
    assert rows.layer.output_shape == (1, 1, 1, 5)


def test_other_operators_are_skipped_or_refused(tmp_path):
    tensors = [T((1, 5)), T((1, 5), name="soft"), T((1, 5))]
    ops = [Op("SOFTMAX", (0,), (1,)), Op("CUSTOM", (1,), (2,), custom="Mine")]
    path = load(tmp_path, build(tensors, ops))
    assert conv_layers(path) == []
    message = "m.tflite: SOFTMAX (operator 0, 'soft') is not supported: only CONV_2D, "
    with pytest.raises(UnsupportedModel, match=re.escape(message)):
        conv_layers(path, skip_other=False)
    assert read_tflite(path).operators[1].kind == "CUSTOM Mine"


def test_tiny_scale_becomes_zero(tmp_path):
    blob = conv(w=T(W.shape, (2.0**-40,), data=W), y=T((1, 5, 6, 1), (1.0,)))
    (data,) = conv_layers(load(tmp_path, blob))
    assert data.requantization.multiplier.tolist() == [0]
    assert data.requantization.shift.tolist() == [0]


UINT8 = T((1, 5, 6, 2), dtype="uint8")
HUGE = np.zeros((1, 256, 1, 2), np.int8)
REFUSALS = {
    "input must be int8, not uint8": conv(x=UINT8),
    "input must be int8, not float32": conv(x=T((1, 5, 6, 2), None, dtype="float32")),
    "input must be int8, not int16": conv(x=T((1, 5, 6, 2), dtype="int16")),
    "weights must be int8, not float32": conv(w=T(W.shape, None, data=W.astype(np.float32))),
    "output must be int8, not int32": conv(y=T((1, 5, 6, 1), dtype="int32")),
    "weights must be quantised, but the file gives no scale": conv(w=T(W.shape, None, data=W)),
    "output must have as many zero points as scales, not 2 and 1": conv(
        y=T((1, 5, 6, 1), (0.5,), (0, 0))
    ),
    "scales of the output must be positive and finite": conv(y=T((1, 5, 6, 1), (0.0,))),
    "scales of the weights must be positive and finite": conv(
        w=T(W.shape, (float("nan"),), data=W)
    ),
    "zero point of the input must be within -128..127, not 128": conv(
        x=T((1, 5, 6, 2), (0.5,), (128,))
    ),
    "input must have one scale, not 2": conv(x=T((1, 5, 6, 2), (0.5, 0.5))),
    "weights must be constant, not computed": conv(w=T(W.shape)),
    "weights must be dense, not sparse": conv(w=T(W.shape, data=W, sparse=True)),
    "weights must have 1 or 1 scales, not 3": conv(w=T(W.shape, (1.0,) * 3, data=W)),
    "scales of the weights must run along dimension 0, the output channels, not 3": conv(
        w=T((2, 3, 3, 2), (1.0, 1.0), data=np.zeros((2, 3, 3, 2), np.int8), dimension=3),
        y=T((1, 5, 6, 2)),
    ),
    "scales of the weights must run along dimension 3, the output channels, not 0": depthwise(
        4, 1, dimension=0
    )[1],
    "bias must be int32, not int64": conv(bias=T((1,), data=BIAS.astype(np.int64))),
    "bias must be constant": conv(bias=T((1,), dtype="int32")),
    "bias must have shape (1,), not (2,)": conv(bias=T((2,), data=np.zeros(2, np.int32))),
    "zero point of the bias must be 0": conv(bias=T((1,), (0.1,), (4,), data=BIAS)),
    "activation must be one of NONE, RELU, RELU_N1_TO_1, RELU6, not 'TANH'": conv(
        options={"FusedActivationFunction": 4}
    ),
    "padding must be SAME or VALID, not code 7": conv(options={"Padding": 7}),
    "stride and dilation must be at least 1, not (0, 1) and (1, 1)": conv(options={"StrideH": 0}),
    "output must have shape (1, 3, 6, 1) by the geometry, not (1, 5, 6, 1)": conv(
        options={"StrideH": 2}
    ),
    "input must have shape (N, H, W, C), not (5, 12)": conv(x=T((5, 12))),
    "weights must have four dimensions, not shape (18,)": conv(w=T((18,), data=W.ravel())),
    "weights of shape (1, 3, 3, 2) do not divide 3 input channels into groups": conv(
        x=T((1, 5, 6, 3))
    ),
    "weights of shape (1, 3, 3, 2) do not divide 4 input channels into groups": conv(
        x=T((1, 5, 6, 4))
    ),
    "kernel must be at most 255, not 256": conv(
        x=T((1, 300, 6, 2)), w=T(HUGE.shape, data=HUGE), y=T((1, 300, 6, 1))
    ),
    "the dilated kernel must fit the padded input": conv(x=T((1, 2, 6, 2)), options={"Padding": 1}),
    "shift must be within -31..31, not 39": conv(x=T((1, 5, 6, 2), (2.0**40,))),
    "weights must have shape (1, Rh, Rw, 4 * 1) for 4 input channels and depth multiplier 1, "
    "not (3, 3, 1, 4)": depthwise(4, 1, shape=(3, 3, 1, 4))[1],
    "weights must be stored plainly, not as SHUFFLED4x16INT8": fully(options={"WeightsFormat": 1}),
    "weights must have shape (M, C), not (5, 3, 4)": fully(w=(5, 3, 4)),
    "input must be rows of 7 values, but its shape is (1, 2, 2, 3)": fully(w=(5, 7)),
    "output must be rows of 5 values, 5 in all, but its shape is (1, 6)": fully(y=(1, 6)),
    "in_channels must be at most 65535, not 65536": fully(x=(1, 65536), w=(1, 65536), y=(1, 1)),
    "it must have an input, weights, perhaps a bias, and one output": conv(inputs=(0, -1)),
    "the file holds no options for it": build(
        [T((1, 5, 6, 2)), T(W.shape, data=W), T((1, 5, 6, 1))],
        [Op("CONV_2D", (0, 1), (2,), None)],
    ),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_refusals_name_operator_place_and_reason(tmp_path, message):
    path = load(tmp_path, REFUSALS[message])
    place = r"m\.tflite: \w+ \(operator 0, '\w+'\) is not supported: .*"
    with pytest.raises(UnsupportedModel, match=place + re.escape(message)):
        conv_layers(path)


def test_scale_beyond_float32_is_refused_for_xnnpack(tmp_path):
    path = load(tmp_path, conv(x=T((1, 5, 6, 2), (1e-38,)), w=T(W.shape, (1e-30,), data=W)))
    with pytest.raises(UnsupportedModel, match="scale must be positive and finite"):
        conv_layers(path, "xnnpack")


def test_unknown_target(tmp_path):
    with pytest.raises(ValueError, match="target must be one of tflm, litert, xnnpack, not 'x'"):
        conv_layers(load(tmp_path, conv()), "x")


def test_files_that_are_no_model(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_tflite(tmp_path / "absent.tflite")
    for blob in (b"", b"\x89PNG\r\n\x1a\n" + bytes(40)):
        with pytest.raises(UnsupportedModel, match=r"m.tflite must be a TFLite model"):
            read_tflite(load(tmp_path, blob))
    ops = [Op("SOFTMAX", (0,), (1,))]
    with pytest.raises(UnsupportedModel, match="must have schema version 3, not 2"):
        read_tflite(load(tmp_path, build([T((1,)), T((1,))], ops, version=2)))
    with pytest.raises(UnsupportedModel, match="must hold one graph, not 2"):
        read_tflite(load(tmp_path, build([T((1,)), T((1,))], ops, graphs=2)))
    with pytest.raises(UnsupportedModel, match="damaged: there is no tensor 9 among 2"):
        read_tflite(load(tmp_path, build([T((1,)), T((1,))], [Op("SOFTMAX", (9,), (1,))])))
    short = T((3,), data=np.zeros(2, np.int8))
    with pytest.raises(UnsupportedModel, match="takes 3 bytes, but the file holds 2"):
        read_tflite(load(tmp_path, build([T((1,)), short], ops)))


def test_every_truncation_is_refused_or_harmless(tmp_path):
    blob = conv()
    refused = 0
    for length in range(0, len(blob), 3):
        path = load(tmp_path, blob[:length])
        try:
            conv_layers(path)
        except UnsupportedModel as error:
            refused += 1
            assert in_plain_words(error)
    assert refused > len(blob) // 3 // 2


def in_plain_words(error):
    """Nothing of what the accessors raised shows in the message."""
    return not re.search(r"Error|error:|unpack_from|buffer|object|subscript", str(error))


def test_a_file_cut_short(tmp_path):
    blob = conv()
    with pytest.raises(
        UnsupportedModel,
        match=r"^m\.tflite is damaged or cut short: a place that it refers to is not in its 200 "
        r"bytes; fetch or convert it again$",
    ):
        read_tflite(load(tmp_path, blob[:200]))


def test_random_damage_never_escapes(tmp_path):
    rng = np.random.default_rng(11)
    blob = np.frombuffer(conv(), np.uint8)
    refused = 0
    for _ in range(400):
        broken = blob.copy()
        spots = rng.integers(8, blob.size, 4)
        broken[spots] = rng.integers(0, 256, 4)
        try:
            conv_layers(load(tmp_path, broken.tobytes()))
        except UnsupportedModel as error:
            refused += 1
            assert in_plain_words(error), error
    assert refused > 40
