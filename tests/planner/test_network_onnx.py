"""The ONNX importer: which node each operator becomes, layouts, and each refusal."""

import re
import sys

import numpy as np
import pytest

from haloconv.planner.errors import UnsupportedModel
from haloconv.planner.network import ConvNode, ElementwiseNode, HostNode, MoveNode
from haloconv.planner.network_onnx import read_onnx_network

F = np.float32


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'haloconv\[onnx\]'"):
        read_onnx_network(b"")


def test_only_onnxruntime_is_a_target():
    with pytest.raises(ValueError, match="target of an ONNX model must be ort, not 'tflm'"):
        read_onnx_network(b"", target="tflm")


def package():
    return pytest.importorskip("onnx", reason="the package onnx is not installed")


def build(nodes, constants=None, x=("uint8", (1, 2, 5, 6)), output=("uint8", None), **more):
    """Return the bytes of a graph from x to y; nodes are (operator, inputs, output, attributes)."""
    onnx = package()
    types = {"uint8": 2, "int8": 3, "float32": 1, "int32": 6, "int64": 7}
    inputs = {"x": x} | more
    made = [
        onnx.helper.make_node(
            kind,
            list(sources),
            [result] if isinstance(result, str) else result,
            **attributes,
            name=f"n{i}",
            domain="com.microsoft" if kind[:2] == "QG" or kind in MICROSOFT else "",
        )
        for i, (kind, sources, result, attributes) in enumerate(nodes)
    ]
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        made,
        "g",
        [info(name, types[kind], shape) for name, (kind, shape) in inputs.items()],
        [info("y", types[output[0]], output[1])],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    opsets = [("", 17), ("com.microsoft", 1)]
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets]
    return onnx.helper.make_model(graph, opset_imports=imports).SerializeToString()


MICROSOFT = ("QLinearAdd", "QLinearConcat", "QLinearAveragePool", "QLinearGlobalAveragePool")
W = np.arange(54, dtype=np.uint8).reshape(3, 2, 3, 3)
CONSTANTS = {
    "sx": F(0.5),
    "zx": np.uint8(120),
    "w": W,
    "sw": F(0.25),
    "zw": np.uint8(130),
    "sy": F(0.75),
    "zy": np.uint8(100),
    "b": np.array([1, 2, 3], np.int32),
}
CONV = ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b")


def conv(constants=None, attributes=None, inputs=CONV, **more):
    attributes = {"pads": [1, 2, 0, 3]} if attributes is None else attributes
    return build([("QLinearConv", inputs, "y", attributes)], CONSTANTS | (constants or {}), **more)


def kinds(network):
    return [type(node) for node in network.nodes]


def test_convolution_of_uint8_codes():
    network = read_onnx_network(conv())
    assert kinds(network) == [HostNode, MoveNode, ConvNode, MoveNode, HostNode]
    shift, into, node, out, back = network.nodes
    assert isinstance(node, ConvNode) and node.requantization is not None
    assert (shift.operator, shift.options, back.options) == ("Shift", {"by": -128}, {"by": 128})
    assert into.options == {"permutation": (0, 2, 3, 1)}
    assert out.options == {"permutation": (0, 3, 1, 2)}
    assert (node.index, node.name, node.operator) == (0, "n0", "QLinearConv")
    layer = node.layer
    assert layer.input_shape == (1, 5, 6, 2)
    assert layer.pads == (1, 0, 2, 3)
    assert layer.in_zero_point == -8
    assert node.weights.dtype == np.int8 and node.weights.shape == (3, 3, 3, 2)
    for m, c, row, column in ((0, 0, 0, 0), (2, 1, 2, 1), (1, 0, 2, 2)):
        assert node.weights[m, row, column, c] == int(W[m, c, row, column]) - 128
    assert node.weight_zero_points is not None
    assert node.weight_zero_points.tolist() == [2, 2, 2]
    assert node.bias is not None and node.bias.tolist() == [1, 2, 3]
    how = node.requantization
    assert how.rounding == "fp32" and how.scale.tolist() == [F(0.5) * F(0.25) / F(0.75)]
    assert (how.zero_point, how.clamp) == (-28, (-128, 127))
    x, y = network.tensors[network.inputs[0]], network.tensors[network.outputs[0]]
    assert (x.name, x.dtype, x.shape) == ("x", "uint8", (1, 2, 5, 6))
    assert (y.name, y.dtype, y.shape) == ("y", "uint8", (1, 3, 4, 9))


def test_channels_have_scales_and_zero_points():
    constants = {"sw": np.array([0.5, 0.25, 1], F), "zw": np.array([128, 128, 7], np.uint8)}
    node = read_onnx_network(conv(constants)).nodes[2]
    assert isinstance(node, ConvNode) and node.requantization is not None
    assert node.requantization.scale.size == 3
    assert node.weight_zero_points is not None
    assert node.weight_zero_points.tolist() == [0, 0, -121]
    constants["zw"] = np.full(3, 128, np.uint8)
    node = read_onnx_network(conv(constants)).nodes[2]
    assert isinstance(node, ConvNode) and node.weight_zero_points is None


def test_groups_strides_dilations_and_auto_pad():
    constants = {"w": np.ones((4, 1, 2, 2), np.uint8), "b": np.zeros(4, np.int32)}
    given = {"group": 2, "strides": [2, 1], "dilations": [1, 2], "auto_pad": "SAME_LOWER"}
    node = read_onnx_network(conv(constants, given)).nodes[2]
    assert isinstance(node, ConvNode)
    layer = node.layer
    assert (layer.groups, layer.stride, layer.dilation) == (2, (2, 1), (1, 2))
    assert layer.pads == (1, 0, 1, 1)


def test_images_of_one_channel_need_no_transposition():
    constants = {"w": np.ones((1, 1, 3, 3), np.uint8), "b": np.zeros(1, np.int32)}
    network = read_onnx_network(conv(constants, {}, x=("int8", (1, 1, 5, 6)), inputs=INT8))
    moves = [node.kind for node in network.nodes if isinstance(node, MoveNode)]
    assert moves == ["view", "view"]


INT8 = ("x", "sx", "zi", "w", "sw", "zw", "sy", "zi", "b")
CONSTANTS["zi"] = np.int8(-5)


def test_int8_models_need_no_shift():
    network = read_onnx_network(conv(x=("int8", (2, 2, 5, 6)), inputs=INT8, output=("int8", None)))
    assert kinds(network) == [MoveNode, ConvNode, MoveNode]
    node = network.nodes[1]
    assert isinstance(node, ConvNode)
    assert (node.batch, node.layer.in_zero_point) == (2, -5)


def test_sums_of_conv_integer_stay_int32():
    nodes = [("ConvInteger", ("x", "w", "zx", "zw"), "y", {})]
    network = read_onnx_network(build(nodes, CONSTANTS, output=("int32", None)))
    assert kinds(network) == [HostNode, MoveNode, ConvNode, MoveNode]
    node = network.nodes[2]
    assert isinstance(node, ConvNode)
    assert (node.requantization, node.bias, node.layer.has_bias) == (None, None, False)
    y = network.tensors[network.outputs[0]]
    assert (y.dtype, y.shape) == ("int32", (1, 3, 3, 4))


def test_inputs_can_be_fixed():
    blob = conv(
        w=("uint8", (3, 2, 3, 3)), inputs=("x", "sx", "zx", "v", *CONV[4:]), v=("uint8", ())
    )
    with pytest.raises(UnsupportedModel, match="its weights 'v' must be constant"):
        read_onnx_network(blob)
    network = read_onnx_network(blob, constants={"v": W})
    assert len(network.inputs) == 1


M = np.arange(12, dtype=np.uint8).reshape(4, 3)


def test_rows_times_a_matrix():
    blob = build(
        [("QLinearMatMul", CONV[:8], "y", {})], CONSTANTS | {"w": M}, x=("uint8", (2, 5, 4))
    )
    network = read_onnx_network(blob)
    assert kinds(network) == [HostNode, ConvNode, HostNode]
    node = network.nodes[1]
    assert isinstance(node, ConvNode)
    assert (node.batch, node.layer.in_channels) == (10, 4)
    np.testing.assert_array_equal(node.weights[:, 0, 0, :], M.T.astype(int) - 128)
    assert network.tensors[network.outputs[0]].shape == (2, 5, 3)


def test_gemm_with_transposed_weights():
    inputs = ("x", "sx", "zx", "w", "sw", "zw", "b", "sy", "zy")
    for transposed, weights in ((0, M), (1, M.T)):
        blob = build(
            [("QGemm", inputs, "y", {"transB": transposed})],
            CONSTANTS | {"w": np.ascontiguousarray(weights)},
            x=("uint8", (2, 4)),
        )
        node = read_onnx_network(blob).nodes[1]
        assert isinstance(node, ConvNode)
        np.testing.assert_array_equal(node.weights[:, 0, 0, :], M.T.astype(int) - 128)


def test_batches_of_matrices_are_cut_and_joined():
    weights = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    blob = build(
        [("QLinearMatMul", CONV[:8], "y", {})], CONSTANTS | {"w": weights}, x=("uint8", (2, 5, 4))
    )
    nodes = read_onnx_network(blob).nodes
    assert [node.operator for node in nodes] == [
        "Shift",
        "Slice",
        "QLinearMatMul",
        "Slice",
        "QLinearMatMul",
        "Concat",
        "Shift",
    ]


# Between DequantizeLinear and QuantizeLinear


def qdq(nodes, constants=None, **more):
    """Return a graph whose nodes read xd, the dequantised x, and write yf, quantised as y."""
    first = ("DequantizeLinear", ("x", "sx", "zx"), "xd", {})
    last = ("QuantizeLinear", ("yf", "sy", "zy"), "y", {})
    weights = [
        ("DequantizeLinear", ("w", "sw", "zw"), "wd", {"axis": 0}),
        ("DequantizeLinear", ("b", "sb"), "bd", {"axis": 0}),
    ]
    constants = CONSTANTS | {"sb": F(0.125)} | (constants or {})
    return build([first, *weights, *nodes, last], constants, **more)


def test_float_convolution_with_activation():
    blob = qdq([("Conv", ("xd", "wd", "bd"), "c", {}), ("Relu", ("c",), "yf", {})])
    network = read_onnx_network(blob)
    node = network.nodes[2]
    assert isinstance(node, ConvNode) and node.requantization is not None
    assert (node.operator, node.name, node.index) == ("Conv", "n3", 3)
    assert node.requantization.clamp == (-28, 127)
    assert node.requantization.scale.tolist() == [F(0.5) * F(0.25) / F(0.75)]
    blob = qdq(
        [("Conv", ("xd", "wd"), "c", {}), ("Clip", ("c", "lo", "hi"), "yf", {})],
        {"lo": F(-1.5), "hi": F(6)},
    )
    node = read_onnx_network(blob).nodes[2]
    assert isinstance(node, ConvNode) and node.requantization is not None
    assert node.requantization.clamp == (-30, -20)  # -1.5 / 0.75 - 28 and 6 / 0.75 - 28


def test_float_gemm():
    blob = qdq(
        [("Flatten", ("xd",), "f", {}), ("Gemm", ("f", "wd", "bd"), "yf", {"transB": 1})],
        {"w": np.ones((3, 60), np.uint8), "sw": F([0.25] * 3), "zw": np.full(3, 128, np.uint8)},
    )
    nodes = read_onnx_network(blob).nodes
    # Shift, NHWC, NCHW again, flat, product, shift
    assert [node.operator for node in nodes] == [
        *("Shift", "Transpose", "Transpose", "Flatten", "Gemm", "Shift")
    ]


def test_changes_of_scale_and_activations_are_tables():
    (node,) = [
        node
        for node in read_onnx_network(qdq([("Relu", ("xd",), "yf", {})])).nodes
        if isinstance(node, ElementwiseNode)
    ]
    table = node.function.first
    # Code 120 is 0 and becomes 100; code 123 is 1.5 and becomes 102.
    assert table[120] + 128 == 100 and table[123] + 128 == 102
    assert table.min() == -28 and node.function.second is None


def test_equal_scales_are_views():
    blob = qdq([("Relu", ("xd",), "yf", {})], {"sy": F(0.5), "zy": np.uint8(0), "zx": np.uint8(0)})
    assert not any(isinstance(node, ElementwiseNode) for node in read_onnx_network(blob).nodes)


def test_maximum_is_taken_of_codes():
    given = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}
    blob = qdq([("MaxPool", ("xd",), "yf", given)], {"sy": F(0.5), "zy": np.uint8(120)})
    (node,) = [node for node in read_onnx_network(blob).nodes if isinstance(node, ConvNode)]
    assert node.maximum and node.layer.pads == (1, 1, 0, 0)
    assert node.layer.output_shape == (1, 3, 3, 2)


def test_global_mean_is_a_depthwise_convolution():
    blob = qdq([("GlobalAveragePool", ("xd",), "yf", {})])
    (node,) = [node for node in read_onnx_network(blob).nodes if isinstance(node, ConvNode)]
    assert node.requantization is not None
    assert (node.layer.kernel, node.layer.groups, node.layer.in_zero_point) == ((5, 6), 2, -8)
    assert node.requantization.scale.tolist() == [F(0.5) / (F(0.75) * F(30))]


def test_float_averages_run_on_the_host():
    blob = qdq([("AveragePool", ("xd",), "yf", {"kernel_shape": [2, 2]})])
    node = next(n for n in read_onnx_network(blob).nodes if n.operator == "AveragePool")
    assert isinstance(node, HostNode)
    assert node.options["zero_points"] == (-8, -28) and node.options["unsigned"]


@pytest.mark.parametrize(("scale", "kind"), [(0.73, ElementwiseNode), (0.5, HostNode)])
def test_sums_run_on_the_engine_where_integers_agree(scale, kind):
    # 0.25 / 0.5 makes exact halves, which go to even codes.
    constants = {"sx": F(0.25), "sy": F(scale), "z2": np.uint8(3)}
    blob = build(
        [("QLinearAdd", ("x", "sx", "zx", "v", "sx", "z2", "sy", "zy"), "y", {})],
        CONSTANTS | constants,
        v=("uint8", (1, 2, 5, 6)),
    )
    node = next(n for n in read_onnx_network(blob).nodes if n.operator == "QLinearAdd")
    assert type(node) is kind and len(node.inputs) == 2


def test_concatenation_brings_inputs_to_the_scale_of_the_output():
    blob = build(
        [("QLinearConcat", ("sy", "zy", "x", "sx", "zx", "v", "sy", "zy"), "y", {"axis": 1})],
        CONSTANTS,
        v=("uint8", (1, 3, 5, 6)),
    )
    network = read_onnx_network(blob)
    tables = [node for node in network.nodes if isinstance(node, ElementwiseNode)]
    (join,) = [n for n in network.nodes if isinstance(n, MoveNode) and n.kind == "concatenate"]
    assert len(tables) == 1 and join.options == {"axis": 3}
    assert network.tensors[network.outputs[0]].shape == (1, 5, 5, 6)


def test_float_border():
    nodes = [
        ("QuantizeLinear", ("x", "sx", "zx"), "q", {}),
        ("DequantizeLinear", ("q", "sx", "zx"), "y", {}),
    ]
    blob = build(nodes, CONSTANTS, x=("float32", ("batch", 3)), output=("float32", None))
    network = read_onnx_network(blob)
    assert [node.operator for node in network.nodes] == ["QuantizeLinear", "DequantizeLinear"]
    assert network.tensors[network.inputs[0]].shape == (1, 3)
    assert network.nodes[0].options == {"scale": F(0.5), "zero_point": -8}


def test_transposition_of_images():
    nodes = [("Transpose", ("x",), "y", {"perm": [0, 2, 3, 1]})]
    network = read_onnx_network(build(nodes))
    y = network.tensors[network.outputs[0]]
    assert y.shape == (1, 5, 6, 2)


# Refusals: nodes, constants and more for build


def single(kind, inputs, attributes=None, constants=None, **more):
    return lambda: build(
        [(kind, inputs, "y", attributes or {})], CONSTANTS | (constants or {}), **more
    )


REFUSALS = {
    "QLinearConv (node 0, 'n0') is not supported: its zero point of the input must": lambda: conv(
        {"zx": np.zeros(2, np.uint8)}
    ),
    "a zero point must have the type of its tensor": lambda: conv({"zx": np.int8(0)}),
    "its scale of the input must be float32, not float16": lambda: conv({"sx": np.float16(1)}),
    "its scale of the weights must be positive": lambda: conv({"sw": F(0)}),
    "its output scale must be one number, not 2": lambda: conv({"sy": F([1, 2])}),
    "its output must be uint8 or int8, not int32": lambda: conv({"zy": np.int32(0)}),
    "weights must be uint8 or int8, not int32": lambda: conv({"w": W.astype(np.int32)}),
    "weights must have shape (M, C, Rh, Rw), not (3, 2)": lambda: conv({"w": W[:, :, 0, 0]}),
    "weights of shape (3, 2, 3, 3) in 2 groups must fit the input's 2 channels": lambda: conv(
        attributes={"group": 2}
    ),
    "weights must have 1 or 3 zero points, not 2": lambda: conv({"zw": np.ones(2, np.uint8)}),
    "weights must have 1 or 3 scales, not 2": lambda: conv({"sw": F([1, 1])}),
    "its bias must hold 3 numbers, not 2": lambda: conv({"b": np.zeros(2, np.int32)}),
    "its bias must be int32, not float32": lambda: conv({"b": np.zeros(3, F)}),
    "its input must have shape (N, C, H, W), not (1, 2, 5)": lambda: conv(x=("uint8", (1, 2, 5))),
    "auto_pad must be NOTSET, VALID or SAME, not SOME": lambda: conv(
        attributes={"auto_pad": "SOME"}
    ),
    "the dilated kernel must fit the padded input": lambda: conv(attributes={"dilations": [9, 9]}),
    "input 'x' must have a fixed shape; set the extent of axis 2": lambda: conv(
        x=("uint8", (1, 2, "h", 6))
    ),
    "input 'x' must be float32, uint8 or int8, not type 7": lambda: conv(x=("int64", (1, 2, 5, 6))),
    "Sigmoid (node 0, 'n0') is not supported: known operators are Add, ": single("Sigmoid", ("x",)),
    "its input 'w' is a constant; fold it": single("MaxPool", ("w",), {"kernel_shape": [1, 1]}),
    "its float result must be quantised before it leaves the graph": lambda: build(
        [("DequantizeLinear", ("x", "sx", "zx"), "d", {}), ("Relu", ("d",), "y", {})], CONSTANTS
    ),
    "its float result must be read by one quantiser only": lambda: qdq(
        [
            ("Relu", ("xd",), "yf", {}),
            ("QuantizeLinear", ("yf", "sx", "zx"), "other", {}),
        ]
    ),
    "its input 'x' must come from DequantizeLinear": lambda: qdq([("Conv", ("x", "wd"), "yf", {})]),
    "it must have a computed input and constant int8 or uint8 weights": lambda: qdq(
        [("Conv", ("xd", "xd"), "yf", {})]
    ),
    "scales of the weights must run along axis 0, not 1": lambda: build(
        [
            ("DequantizeLinear", ("x", "sx", "zx"), "xd", {}),
            ("DequantizeLinear", ("w", "sw", "zw"), "wd", {"axis": 1}),
            ("Conv", ("xd", "wd"), "yf", {}),
            ("QuantizeLinear", ("yf", "sy", "zy"), "y", {}),
        ],
        CONSTANTS | {"sw": F([1, 1]), "zw": np.zeros(2, np.uint8)},
    ),
    "the scale of its bias must be the product of the scales": lambda: qdq(
        [("Conv", ("xd", "wd", "bd"), "yf", {})], {"sb": F(0.2)}
    ),
    "its bias must be constant int32 codes": lambda: qdq([("Conv", ("xd", "wd", "xd"), "yf", {})]),
    "alpha must be 1.0, not 0.5": single(
        "QGemm", (*CONV[:6], "", "sy", "zy"), {"alpha": 0.5}, x=("uint8", (2, 4))
    ),
    "it must multiply rows by a constant matrix, not shapes (2, 5) and (4, 3)": single(
        "QLinearMatMul", CONV[:8], {}, {"w": M}, x=("uint8", (2, 5))
    ),
    "it must multiply as many matrices, not shapes (2, 5, 4) and (3, 4, 3)": single(
        "QLinearMatMul", CONV[:8], {}, {"w": np.ones((3, 4, 3), np.uint8)}, x=("uint8", (2, 5, 4))
    ),
    "its indices are not supported": lambda: build(
        [("MaxPool", ("x",), ["y", "i"], {"kernel_shape": [2, 2]})]
    ),
    "dilations must be 1, not (2, 2)": single(
        "MaxPool", ("x",), {"kernel_shape": [2, 2], "dilations": [2, 2]}
    ),
    "channels_last must be 0": single(
        "QLinearAveragePool",
        ("x", "sx", "zx", "sy", "zy"),
        {"kernel_shape": [2, 2], "channels_last": 1},
    ),
    "ceil_mode must be 0": single(
        "QLinearAveragePool",
        ("x", "sx", "zx", "sy", "zy"),
        {"kernel_shape": [2, 2], "ceil_mode": 1},
    ),
    "shapes must differ along axis 1 only": single(
        "Concat", ("x", "v"), {"axis": 1}, v=("uint8", (1, 2, 5, 5))
    ),
    "axis must be within -4..3, not 4": single("Concat", ("x", "x"), {"axis": 4}),
    "operands must have matching shapes": single(
        "QLinearAdd", ("x", "sx", "zx", "v", "sx", "zx", "sy", "zy"), v=("uint8", (1, 2, 5, 5))
    ),
    "shape [7] must hold as many values as (1, 2, 5, 6)": single(
        "Reshape", ("x", "n"), {}, {"n": np.array([7], np.int64)}
    ),
    "it is damaged: IndexError": single("MaxPool", (), {"kernel_shape": [1, 1]}),
    "output 'y' is made by no node": lambda: build(
        [("MaxPool", ("x",), "z", {"kernel_shape": [1, 1]})]
    ),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_refusals_name_operator_place_and_reason(reason):
    package()
    with pytest.raises(UnsupportedModel, match=r"model\.onnx: .*" + re.escape(reason)):
        read_onnx_network(REFUSALS[reason]())


def test_what_is_no_model():
    package()
    with pytest.raises(UnsupportedModel, match=r"model\.onnx must be an ONNX model: "):
        read_onnx_network(b"\xff\xff\xff nothing")


@pytest.mark.parametrize("empty", [True, False])
def test_a_network_of_nothing(empty):
    package()
    with pytest.raises(UnsupportedModel, match=r"model\.onnx must have at least one node"):
        read_onnx_network(b"" if empty else build([]))


def test_file_names_the_network(tmp_path):
    path = tmp_path / "small.onnx"
    path.write_bytes(conv())
    assert read_onnx_network(path).name == "small.onnx"
