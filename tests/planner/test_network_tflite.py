"""The TFLite importer: which node each operator becomes, and each refusal on built files."""

import importlib.util
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from haloconv.planner.errors import UnsupportedModel
from haloconv.planner.network import ConvNode, ElementwiseNode, HostNode, MoveNode
from haloconv.planner.network_tflite import read_tflite_network

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location(
    "tflite_builder", ROOT / "tests" / "support" / "tflite_builder.py"
)
assert _spec is not None and _spec.loader is not None
builder = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(builder)
T, Op, build = builder.T, builder.Op, builder.build
builder.TABLES |= {
    "STRIDED_SLICE": "StridedSliceOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
}
MODELS = ROOT.parent / "shared" / "models"

# Operators of each model by kind of node. PAD is absent: all of it becomes pads.
PARTS = {
    "resnet8_cifar10_int8": (11, 3, 1, ["SOFTMAX"]),
    "kws_dscnn_int8": (11, 0, 1, ["SOFTMAX"]),
    "ad01_autoencoder_int8": (10, 0, 0, []),
    "person_detect_int8": (29, 0, 1, ["SOFTMAX"]),
    "person_detect_int8_litert": (29, 0, 1, ["SOFTMAX"]),
    "micro_speech_int8": (2, 0, 1, ["SOFTMAX"]),
    "hello_world_int8": (3, 0, 0, []),
    "mnv1_025_partial_int8": (2, 0, 0, []),
    "mobilenetv2_035_160_int8": (54, 12, 1, ["SOFTMAX"]),
    "ssd_slim_120x160_int8": (42, 0, 10, ["SOFTMAX"]),
}


@pytest.mark.parametrize("name", PARTS)
def test_public_models(name):
    path = MODELS / f"{name}.tflite"
    if not path.exists():
        pytest.skip("the public models are not beside the checkout")
    for target in ("tflm", "litert"):
        network = read_tflite_network(path, target)
        count = Counter(type(node) for node in network.nodes)
        host = [node.operator for node in network.nodes if isinstance(node, HostNode)]
        found = (count[ConvNode], count[ElementwiseNode], count[MoveNode], host)
        assert found == PARTS[name]
        assert (network.name, network.target) == (path.name, target)
        made = set(network.inputs)
        for node in network.nodes:
            assert made.issuperset(node.inputs)
            made.update(node.outputs)
        assert made == set(network.tensors) and made.issuperset(network.outputs)


def test_uint8_border_of_a_public_model():
    path = MODELS / "mobilenetv2_100_224_ptq_int8.tflite"
    if not path.exists():
        pytest.skip("the public models are not beside the checkout")
    network = read_tflite_network(path)
    first, last = network.nodes[0], network.nodes[-1]
    assert isinstance(first, HostNode) and isinstance(last, HostNode)
    assert (first.operator, last.operator) == ("QUANTIZE", "QUANTIZE")
    dtypes = [network.tensors[i].dtype for i in (*network.inputs, *network.outputs)]
    assert dtypes == ["uint8", "uint8"]
    tensor = network.tensors[network.inputs[0]]
    assert (tensor.scale, tensor.zero_point) == (float(np.float32(1 / 127.5)), 127)


# Built files


def q(shape, scale=0.5, zero_point=0, data=None, dtype="int8", name=""):
    return T(shape, (scale,), (zero_point,), data=data, dtype=dtype, name=name)


def numbers(values):
    array = np.array(values, np.int32)
    return T(array.shape, None, data=array)


def load(folder, tensors, operators, inputs=(0,), outputs=(), target="tflm"):
    path = folder / "m.tflite"
    path.write_bytes(build(tensors, operators, inputs, outputs))
    return read_tflite_network(path, target)


W = np.ones((2, 3, 3, 2), np.int8)


def padded(pads, *, options=None, fill=None, outputs=(), last=None):
    """Return tensors and operators of PAD and a 3x3 convolution behind it."""
    height, width = 5 + sum(pads[1]), 6 + sum(pads[2])
    tensors = [
        q((1, 5, 6, 2), zero_point=-3),
        numbers(pads),
        q((1, height, width, 2), zero_point=-3),
        q(W.shape, data=W),
        last or q((1, height - 2, width - 2, 2)),
    ]
    first, extra = Op("PAD", (0, 1), (2,), None), []
    if fill is not None:
        tensors.append(q((1,), zero_point=-3, data=np.array([fill], np.int8)))
        first = Op("PADV2", (0, 1, 5), (2,), None)
    conv = Op("CONV_2D", (2, 3), (4,), {"Padding": 1} if options is None else options)
    return tensors, [first, conv, *extra], (0,), outputs or (4,)


PADS = [[0, 0], [1, 2], [0, 3], [0, 0]]


def test_pad_becomes_pads(tmp_path):
    network = load(tmp_path, *padded(PADS))
    (node,) = network.nodes
    assert isinstance(node, ConvNode)
    assert (node.inputs, node.index, node.operator) == ((0,), 1, "CONV_2D")
    assert (node.layer.in_height, node.layer.in_width) == (5, 6)
    assert (node.layer.pads, node.layer.in_zero_point) == ((1, 2, 0, 3), -3)
    assert node.layer.output_shape == network.tensors[4].shape
    assert 2 not in network.tensors


def test_pad_adds_to_the_pads_of_the_convolution(tmp_path):
    (node,) = load(tmp_path, *padded(PADS, options={"Padding": 0}, last=q((1, 8, 9, 2)))).nodes
    assert isinstance(node, ConvNode)
    assert node.layer.pads == (2, 3, 1, 4)


def test_fill_with_the_zero_point_becomes_pads(tmp_path):
    (node,) = load(tmp_path, *padded(PADS, fill=-3)).nodes
    assert isinstance(node, ConvNode)


@pytest.mark.parametrize("why", ["another fill", "an output", "another reader"])
def test_pad_that_stays(tmp_path, why):
    tensors, operators, inputs, outputs = padded(PADS, fill=9 if why == "another fill" else None)
    if why == "an output":
        outputs = (4, 2)
    if why == "another reader":
        tensors.append(q((1, 144), zero_point=-3))
        operators.append(Op("RESHAPE", (2,), (5,), {}))
    nodes = load(tmp_path, tensors, operators, inputs, outputs).nodes
    assert isinstance(nodes[0], MoveNode) and isinstance(nodes[1], ConvNode)
    fill = 9 if why == "another fill" else -3
    assert nodes[0].kind == "pad"
    assert nodes[0].options == {"pads": ((0, 0), (1, 2), (0, 3), (0, 0)), "fill": fill}
    assert nodes[1].layer.pads == (0, 0, 0, 0)


def test_fully_connected_rows_are_a_batch(tmp_path):
    w = np.ones((3, 4), np.int8)
    tensors = [q((2, 5, 4)), q((3, 4), data=w), q((2, 5, 3))]
    (node,) = load(tmp_path, tensors, [Op("FULLY_CONNECTED", (0, 1), (2,))]).nodes
    assert isinstance(node, ConvNode)
    assert (node.batch, node.layer.input_shape) == (10, (1, 1, 1, 4))


def test_batch_of_images(tmp_path):
    tensors = [q((4, 5, 6, 2)), q(W.shape, data=W), q((4, 5, 6, 2))]
    (node,) = load(tmp_path, tensors, [Op("CONV_2D", (0, 1), (2,))]).nodes
    assert isinstance(node, ConvNode)
    assert node.batch == 4


POOL = {"FilterHeight": 2, "FilterWidth": 3, "StrideH": 2, "StrideW": 3}


def test_average_pooling_is_a_depthwise_convolution(tmp_path):
    tensors = [q((1, 4, 6, 5), zero_point=7), q((1, 2, 2, 5), zero_point=7)]
    (node,) = load(tmp_path, tensors, [Op("AVERAGE_POOL_2D", (0,), (1,), POOL)]).nodes
    assert isinstance(node, ConvNode)
    layer, how = node.layer, node.requantization
    assert (layer.groups, layer.kernel, layer.stride) == (5, (2, 3), (2, 3))
    assert (layer.in_zero_point, layer.has_bias, node.bias, node.maximum) == (0, False, None, False)
    assert node.weights.shape == (5, 2, 3, 1) and np.all(node.weights == 1)
    # 1/6 = 2/3 * 2**-2, rounded up
    assert how is not None
    assert (how.multiplier.tolist(), how.shift.tolist()) == ([2**32 // 3 + 1], [-2])
    assert (how.zero_point, how.clamp, how.rounding) == (0, (-128, 127), "away")


def test_maximum_pooling_keeps_its_pads(tmp_path):
    tensors = [q((1, 5, 7, 1), zero_point=7), q((1, 3, 3, 1), zero_point=7)]
    options = POOL | {"Padding": 0, "FusedActivationFunction": 1}
    (node,) = load(tmp_path, tensors, [Op("MAX_POOL_2D", (0,), (1,), options)]).nodes
    assert isinstance(node, ConvNode) and node.requantization is not None
    assert node.maximum and node.layer.groups == 1
    assert (node.layer.pads, node.layer.in_zero_point) == ((0, 1, 1, 1), -128)
    assert node.requantization.clamp == (7, 127)


def test_kernels_beyond_the_engine_run_on_the_host(tmp_path):
    tensors = [q((1, 300, 2, 1)), q((1, 1, 1, 1))]
    options = {"FilterHeight": 300, "FilterWidth": 2, "StrideH": 1, "StrideW": 1, "Padding": 1}
    for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        (node,) = load(tmp_path, tensors, [Op(kind, (0,), (1,), options)]).nodes
        assert isinstance(node, HostNode)
        assert node.options == {
            "kernel": (300, 2),
            "stride": (1, 1),
            "pads": (0, 0, 0, 0),
            "clamp": (-128, 127),
        }
    tensors.insert(1, numbers([1, 2]))
    (node,) = load(tmp_path, tensors, [Op("MEAN", (0, 1), (2,), {"KeepDims": True})]).nodes
    assert isinstance(node, HostNode)
    assert node.options == {"axes": (1, 2), "keep_dims": True}


def test_mean_over_the_image_is_a_depthwise_convolution(tmp_path):
    tensors = [q((2, 4, 2, 3), zero_point=7), numbers([2, 1]), q((2, 3), zero_point=-5)]
    (node,) = load(tmp_path, tensors, [Op("MEAN", (0, 1), (2,), {})]).nodes
    assert isinstance(node, ConvNode) and node.requantization is not None
    assert (node.layer.kernel, node.layer.in_zero_point, node.batch) == ((4, 2), 7, 2)
    # 1 = 2**30 * 2**(1 - 31), divided by 8 with three more bits
    how = node.requantization
    assert (how.multiplier.tolist(), how.shift.tolist()) == ([1 << 30], [-2])
    assert (how.zero_point, how.rounding) == (-5, "double")


def test_constant_operand_costs_one_table(tmp_path):
    one = q((1, 1), 0.25, 3, np.array([[9]], np.int8))
    for kind in ("ADD", "SUB", "MUL"):
        for inputs, fed in (((0, 1), 0), ((1, 0), 0)):
            tensors = [q((1, 6)), one, q((1, 6))]
            (node,) = load(tmp_path, tensors, [Op(kind, inputs, (2,))], (fed,)).nodes
            assert isinstance(node, ElementwiseNode)
            assert (node.inputs, node.function.second) == ((0,), None)


def test_operands_of_equal_shape_need_two_tables(tmp_path):
    tensors = [q((1, 6)), q((1, 6), 0.25), q((1, 6))]
    (node,) = load(tmp_path, tensors, [Op("SUB", (0, 1), (2,))], (0, 1)).nodes
    assert isinstance(node, ElementwiseNode)
    assert node.inputs == (0, 1) and node.function.second is not None


def test_host_operands_keep_their_order_and_constants(tmp_path):
    row = q((6,), 0.25, 3, np.arange(6, dtype=np.int8))
    network = load(tmp_path, [q((1, 6)), row, q((1, 6))], [Op("SUB", (1, 0), (2,))])
    (node,) = network.nodes
    assert isinstance(node, HostNode)
    assert (node.inputs, node.options["operands"]) == ((0,), (1, 0))
    data = network.tensors[1].data
    assert data is not None and data.tolist() == list(range(6))


def test_concatenation_of_other_scales_is_rescaled_first(tmp_path):
    tensors = [q((1, 2, 3)), q((1, 2, 4), 0.25), q((1, 2, 7))]
    network = load(tmp_path, tensors, [Op("CONCATENATION", (0, 1), (2,), {"Axis": -1})], (0, 1))
    rescale, join = network.nodes
    assert isinstance(rescale, ElementwiseNode) and isinstance(join, MoveNode)
    assert (rescale.inputs, rescale.outputs, join.inputs) == ((1,), (3,), (0, 3))
    assert (join.kind, join.options) == ("concatenate", {"axis": 2})
    new = network.tensors[3]
    assert (new.name, new.shape, new.scale) == ("t1 rescaled", (1, 2, 4), 0.5)


def test_views_and_slices(tmp_path):
    for kind, shape in (("SQUEEZE", (3, 4)), ("EXPAND_DIMS", (1, 1, 3, 4)), ("RESHAPE", (12,))):
        (node,) = load(tmp_path, [q((1, 3, 4)), q(shape)], [Op(kind, (0,), (1,), {})]).nodes
        assert isinstance(node, MoveNode)
        assert (node.kind, node.operator) == ("view", kind)
    tensors = [q((1, 9)), numbers([0, 7]), numbers([1, -1]), numbers([1, 3]), q((1, 1))]
    (node,) = load(tmp_path, tensors, [Op("STRIDED_SLICE", (0, 1, 2, 3), (4,), {})]).nodes
    assert isinstance(node, MoveNode)
    assert node.options == {"begin": (0, 7), "end": (1, 8), "strides": (1, 3)}


def test_targets(tmp_path):
    w = np.ones((3, 4), np.int8)
    tensors = [q((1, 4)), q((3, 4), data=w), q((1, 3))]
    for target, rounding in (("tflm", "double"), ("litert", "away"), ("xnnpack", "fp32")):
        ops = [Op("FULLY_CONNECTED", (0, 1), (2,))]
        (node,) = load(tmp_path, tensors, ops, target=target).nodes
        assert isinstance(node, ConvNode) and node.requantization is not None
        assert node.requantization.rounding == rounding
    with pytest.raises(ValueError, match="target must be one of tflm, litert, xnnpack, not 'ort'"):
        load(tmp_path, tensors, [Op("FULLY_CONNECTED", (0, 1), (2,))], target="ort")


# Refusals: message to (tensors, operators, inputs), and a target where it matters


def one(kind, x, y, options=None):
    return [x, y], [Op(kind, (0,), (1,), options)], (0,)


def two(kind, a, b, y, options=None):
    return [a, b, y], [Op(kind, (0, 1), (2,), {} if options is None else options)], (0,)


X, UNIT = q((1, 6)), q((1, 6), 1 / 256, -128)
IMAGE = q((1, 4, 6, 2))
UINT8 = q((1, 6), dtype="uint8")
REFUSALS = {
    "known operators are ADD, AVERAGE_POOL_2D, CONCATENATION": one("TANH", X, X),
    "'t0' must be int8, not int16": one("RELU", q((1, 6), dtype="int16"), X),
    "'t0' must have one scale, not 0": one("RELU", T((1, 6), None), X),
    "scale of 't1' must be positive, not 0.0": one("RELU", X, q((1, 6), 0.0)),
    "zero point of 't0' must be within -128..127, not 200": one("RELU", q((1, 6), 1, 200), X),
    "zero point of 't0' must be within 0..255, not -1": one(
        "QUANTIZE", q((1, 6), 0.5, -1, dtype="uint8"), X
    ),
    "'t0' must be int8 or uint8 or float32, not int32": one(
        "QUANTIZE", q((1, 6), dtype="int32"), X
    ),
    "'t1' must be int8 or uint8, not int16": one("QUANTIZE", X, q((1, 6), dtype="int16")),
    "'t1' must be float32, not int8": one("DEQUANTIZE", X, X),
    "output must have shape (1, 6), not (1, 5)": one("RELU", X, q((1, 5))),
    "input and output must have the same scale and zero point, not 0.5, 0 and 0.25, 0": one(
        "RESHAPE", X, q((6,), 0.25), {}
    ),
    "shape (5,) must hold as many values as (1, 6)": one("RESHAPE", X, q((5,)), {}),
    "it must have 1 to 2 inputs and one output, not 3 and 1": (
        [X, X],
        [Op("RESHAPE", (0, 0, 0), (1,), {})],
        (0,),
    ),
    "it must have 2 inputs and one output, not 1 and 1": one("ADD", X, X, {}),
    "the file holds no options for it": one("SOFTMAX", X, UNIT),
    "output must have scale 1/256 and zero point -128, not 0.5 and 0": one("SOFTMAX", X, X, {}),
    "output must have scale 1/256 and zero point -128, not 0.5 and -128": one(
        "LOGISTIC", X, q((1, 6), 0.5, -128)
    ),
    "operands must have matching shapes, not (1, 6) and (1, 5)": two("ADD", X, q((1, 5)), X),
    "activation must be one of NONE, RELU, RELU_N1_TO_1, RELU6, not 'TANH'": two(
        "MUL", X, X, X, {"FusedActivationFunction": 4}
    ),
    "input must have shape (N, H, W, C), not (1, 6)": one("MAX_POOL_2D", X, X, POOL),
    "kernel and stride must be at least 1, not (0, 3) and (2, 3)": one(
        "MAX_POOL_2D", IMAGE, IMAGE, POOL | {"FilterHeight": 0}
    ),
    "output must have shape (1, 2, 2, 2), not (1, 4, 6, 2)": one(
        "AVERAGE_POOL_2D", IMAGE, IMAGE, POOL
    ),
    "axes must be within -2..1, not [2]": two("MEAN", X, numbers([2]), X),
    "axes must be constant integers": two("MEAN", X, X, X),
    "paddings must be 4 integers, not [1, 2]": two("PAD", X, numbers([1, 2]), X),
    "paddings must not be negative, not [0, 0, -1, 0]": two("PAD", X, numbers([0, 0, -1, 0]), X),
    "its fill must be a constant int8 code": (
        [X, numbers([0, 0, 0, 0]), X, X],
        [Op("PADV2", (0, 1, 2), (3,))],
        (0, 2),
    ),
    "activation must be NONE, not RELU": two(
        "CONCATENATION", X, X, q((2, 6)), {"FusedActivationFunction": 1}
    ),
    "axis must be within 0..1, not 2": two("CONCATENATION", X, X, q((2, 6)), {"Axis": 2}),
    "shapes must differ along axis 0 only, not (1, 5), (2, 6)": two(
        "CONCATENATION", X, q((1, 5)), q((2, 6))
    ),
    "extents along axis 0 must add up to 3, not [1, 1]": two("CONCATENATION", X, X, q((3, 6))),
    "its new_axis mask must be 0": (
        [X, numbers([0, 0]), numbers([1, 6]), numbers([1, 1]), X],
        [Op("STRIDED_SLICE", (0, 1, 2, 3), (4,), {"NewAxisMask": 1})],
        (0,),
    ),
    "strides must be positive, not [1, -1]": (
        [X, numbers([0, 0]), numbers([1, 6]), numbers([1, -1]), X],
        [Op("STRIDED_SLICE", (0, 1, 2, 3), (4,), {})],
        (0,),
    ),
    "begin [0, 4] and size [1, 3] must lie within (1, 6)": (
        [X, numbers([0, 4]), numbers([1, 3]), X],
        [Op("SLICE", (0, 1, 2), (3,))],
        (0,),
    ),
    "permutation must name each axis, not [1, 1]": two("TRANSPOSE", X, numbers([1, 1]), X),
    "size must be positive, not [0, 6]": two(
        "RESIZE_BILINEAR", IMAGE, numbers([0, 6]), q((1, 0, 6, 2))
    ),
    "align_corners excludes half_pixel_centers": two(
        "RESIZE_NEAREST_NEIGHBOR",
        IMAGE,
        numbers([4, 6]),
        IMAGE,
        {"AlignCorners": 1, "HalfPixelCenters": 1},
    ),
    "input 't0' is a constant; fold it when converting": (
        *one("RELU", q((1, 6), data=np.zeros((1, 6), np.int8)), X)[:2],
        (),
    ),
    "input 't0' is made by no earlier operator": (*one("RELU", X, X)[:2], ()),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_refusals_name_operator_place_and_reason(tmp_path, message):
    place = r"m\.tflite: \w+ \(operator 0, 't\d'\) is not supported: "
    with pytest.raises(UnsupportedModel, match=place + re.escape(message)):
        load(tmp_path, *REFUSALS[message])


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (two("ADD", X, X, X), "XNNPACK rounds it in a way of its own; use the target litert"),
        (one("QUANTIZE", X, q((1, 6), 0.25)), "XNNPACK rounds a change of scale in a way"),
        (
            two("CONCATENATION", X, q((1, 6), 0.25), q((2, 6))),
            "'t1' must have the scale of the output 't2'",
        ),
    ],
)
def test_xnnpack_rounds_other_operators_differently(tmp_path, case, reason):
    tensors, operators, _ = case
    inputs = (0, 1) if len(tensors) == 3 else (0,)
    load(tmp_path, tensors, operators, inputs, target="litert")
    with pytest.raises(UnsupportedModel, match=re.escape(reason)):
        load(tmp_path, tensors, operators, inputs, target="xnnpack")


def test_relu6_of_tflm_keeps_the_scale(tmp_path):
    tensors, operators, _ = one("RELU6", X, q((1, 6), 0.25))
    load(tmp_path, tensors, operators, target="litert")
    with pytest.raises(UnsupportedModel, match="must have the same scale and zero point"):
        load(tmp_path, tensors, operators, target="tflm")


def test_output_that_nobody_makes(tmp_path):
    tensors, operators, _ = one("RELU", X, X)
    with pytest.raises(UnsupportedModel, match=r"m\.tflite: output 't2' is made by no operator"):
        load(tmp_path, [*tensors, X], operators, outputs=(1, 2))


def test_a_network_of_nothing(tmp_path):
    with pytest.raises(UnsupportedModel, match=r"m\.tflite must have at least one operator"):
        load(tmp_path, [X], [], outputs=(0,))
