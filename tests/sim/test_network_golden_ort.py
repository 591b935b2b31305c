"""Imported ONNX models against ONNX Runtime and against the standard's own test cases."""

from functools import cache

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import UnsupportedModel
from haloconv.planner.network import ConvNode, HostNode
from haloconv.planner.network_onnx import read_onnx_network
from haloconv.sim.network import run_network
from haloconv.sim.network_golden import golden_network

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
F = np.float32

SMALL = EngineConfig(
    out_lanes=2,
    split_lanes=2,
    bus_bytes=4,
    input_bytes=512,
    weight_bytes=512,
    psum_bytes=256,
    bias_bytes=64,
)
ENGINE = EngineConfig(
    out_lanes=4,
    split_lanes=4,
    bus_bytes=4,
    input_bytes=2048,
    weight_bytes=2048,
    psum_bytes=1024,
    bias_bytes=128,
    roundings=("double", "fp32"),
    units=("elementwise", "max_pool"),
)


@cache
def node_tests():
    from onnx.backend.test.loader import load_model_tests

    return {test.name: test for test in load_model_tests(kind="node")}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        "test_convinteger_with_padding",
        "test_convinteger_without_padding",
        "test_qlinearconv",
        "test_matmulinteger",
        "test_maxpool_2d_uint8",
        "test_qlinearmatmul_2D_int8_float32",
        "test_qlinearmatmul_2D_uint8_float32",
        "test_qlinearmatmul_3D_int8_float32",
        "test_qlinearmatmul_3D_uint8_float32",
    ],
)
def test_cases_of_the_standard(name):
    if name not in node_tests():
        pytest.skip(f"this release of onnx has no {name}")
    test = node_tests()[name]
    names = [value.name for value in test.model.graph.input]
    given, expected = test.data_sets[0]
    fixed = dict(zip(names[1:], given[1:], strict=True))  # all but the first input are weights
    network = read_onnx_network(test.model.SerializeToString(), constants=fixed)
    found = golden_network(network, [given[0]])[network.outputs[0]]
    assert found.dtype == expected[0].dtype
    np.testing.assert_array_equal(found, expected[0])
    result = run_network(network, SMALL, inputs=[given[0]], backend="amaranth")
    assert result.outputs[0].dtype == expected[0].dtype
    np.testing.assert_array_equal(result.outputs[0], expected[0])
    assert any(isinstance(node, ConvNode) for node in network.nodes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("test_qlinearmatmul_2D_uint8_float16", "QLinearMatMul"),
        ("test_dequantizelinear_blocked", "DequantizeLinear"),
        ("test_quantizelinear_axis", "QuantizeLinear"),
        ("test_dynamicquantizelinear", "DynamicQuantizeLinear"),
        ("test_maxpool_2d_default", "MaxPool"),
        ("test_averagepool_3d_default", "AveragePool"),
    ],
)
def test_other_cases_of_the_standard_are_refused_by_name(name, operator):
    if name not in node_tests():
        pytest.skip(f"this release of onnx has no {name}")
    test = node_tests()[name]
    names = [value.name for value in test.model.graph.input]
    fixed = dict(zip(names[1:], test.data_sets[0][0][1:], strict=True))
    with pytest.raises(UnsupportedModel, match=rf"model\.onnx: {operator} \(node 0, "):
        read_onnx_network(test.model.SerializeToString(), constants=fixed)


# ONNX Runtime


@pytest.fixture(scope="module")
def runtime():
    return pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def session(runtime, model):
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    # Without it int8 activations become uint8 here and there on x86, what then no longer fuses is
    # computed in float32, and results depend on the order of sums.
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def graph(nodes, x, y, constants):
    tensor = onnx.helper.make_tensor_value_info
    made = onnx.helper.make_graph(
        nodes,
        "g",
        [tensor("x", *x)],
        [tensor("y", *y)],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(made, opset_imports=opsets)
    model.ir_version = 9
    return model


def small_cnn(rng, end):
    """A float network with every operator that quantisers know and the importer takes."""
    constants = {"low": F(0), "high": F(6)}
    nodes = []

    def weights(name, *shape):
        constants[name] = (rng.normal(size=shape) * 0.3).astype(F)
        return name

    def add(kind, inputs, output, **attributes):
        nodes.append(onnx.helper.make_node(kind, inputs, [output], f"n_{output}", **attributes))
        return output

    x = add(
        "Conv",
        ["x", weights("w1", 8, 3, 3, 3), weights("b1", 8)],
        "c1",
        strides=[2, 2],
        pads=[0, 1, 1, 0],
    )
    x = add("Relu", [x], "r1")
    same = {"group": 8, "pads": [1, 1, 1, 1]}
    y = add("Conv", [x, weights("w2", 8, 1, 3, 3), weights("b2", 8)], "c2", **same)
    y = add("Clip", [y, "low", "high"], "k2")
    y = add("Conv", [y, weights("w3", 8, 8, 1, 1), weights("b3", 8)], "c3")
    x = add("Add", [x, y], "a1")
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    p = add("MaxPool", [x], "m1", **window)
    grouped = {"group": 2, "auto_pad": "SAME_UPPER"}
    z = add("Conv", [p, weights("w4", 6, 4, 3, 3), weights("b4", 6)], "c4", **grouped)
    z = add("Relu", [z], "r4")
    q = add("Concat", [p, z], "cc", axis=1)
    q = add("AveragePool", [q], "ap", kernel_shape=[2, 2], strides=[1, 1])
    if end == "Gemm":
        g = add("Flatten", [add("GlobalAveragePool", [q], "g")], "fl")
        add("Gemm", [g, weights("w5", 10, 14), weights("b5", 10)], "y", transB=1)
    else:
        g = add("MatMul", [add("Flatten", [q], "fl"), weights("w5", 14 * 9, 10)], "y0")
        add("Add", [g, weights("b5", 10)], "y")
    return graph(nodes, (1, [1, 3, 16, 16]), (1, [1, 10]), constants)


@pytest.mark.parametrize("end", ["Gemm", "MatMul"])
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize(
    ("activations", "weights", "per_channel"),
    [("QUInt8", "QUInt8", False), ("QUInt8", "QInt8", True), ("QInt8", "QInt8", False)],
)
def test_quantised_networks_equal_onnxruntime(
    runtime, tmp_path, end, form, activations, weights, per_channel
):
    from onnxruntime import quantization

    rng = np.random.default_rng(17)
    plain, quantised = tmp_path / "float.onnx", tmp_path / "quantised.onnx"
    onnx.save(small_cnn(rng, end), plain)

    class Samples(quantization.CalibrationDataReader):
        left = 8

        def get_next(self):
            self.left -= 1
            return {"x": rng.normal(size=(1, 3, 16, 16)).astype(F)} if self.left >= 0 else None

    quantization.quantize_static(
        plain,
        quantised,
        Samples(),
        quant_format=quantization.QuantFormat[form],
        activation_type=quantization.QuantType[activations],
        weight_type=quantization.QuantType[weights],
        per_channel=per_channel,
        # 7 bits: processors without VNNI saturate sums of two products of 8 bits.
        reduce_range=weights == "QInt8",
    )
    run = session(runtime, str(quantised))
    network = read_onnx_network(quantised)
    assert sum(isinstance(node, ConvNode) for node in network.nodes) >= 6
    for _ in range(12):
        x = rng.normal(size=(1, 3, 16, 16)).astype(F)
        (expected,) = run.run(None, {"x": x})
        found = golden_network(network, [x])[network.outputs[0]]
        np.testing.assert_array_equal(found, expected)
    # The last of them on the engine; one engine serves all networks.
    result = run_network(network, ENGINE, inputs=[x], backend="auto")
    np.testing.assert_array_equal(result.outputs[0], expected)
    assert result.cycles == pytest.approx(result.program.cycles, rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_random_convolutions_equal_onnxruntime(runtime, seed):
    rng = np.random.default_rng(seed)
    groups, kernel = int(rng.integers(1, 4)), rng.integers(1, 4, 2).tolist()
    channels, outputs = groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    kind = np.uint8 if rng.integers(2) else np.int8
    low = 0 if kind is np.uint8 else -128
    attributes = {
        "group": groups,
        "strides": rng.integers(1, 3, 2).tolist(),
        "dilations": rng.integers(1, 3, 2).tolist(),
    }
    if seed % 4 == 0:
        attributes |= {"auto_pad": ["SAME_UPPER", "SAME_LOWER"][seed // 4 % 2]}
        attributes["dilations"] = [1, 1]
    else:
        attributes["pads"] = rng.integers(0, 3, 4).tolist()
    many = outputs if rng.integers(2) else 1
    scale = (rng.random(many) * 0.02 + 0.005).astype(F)
    constants = {
        "sx": F(rng.random() * 0.1 + 0.01),
        "zx": kind(rng.integers(low, low + 256)),
        "w": (rng.integers(-60, 60, (outputs, channels // groups, *kernel)) + low + 128).astype(
            kind
        ),
        "sw": scale if many > 1 else scale[0],
        "zw": np.full(many, rng.integers(low + 100, low + 156), kind)
        if many > 1
        else kind(rng.integers(low + 100, low + 156)),
        "sy": F(rng.random() * 0.1 + 0.02),
        "zy": kind(rng.integers(low + 100, low + 156)),
        "b": rng.integers(-2000, 2000, outputs).astype(np.int32),
    }
    if kind is np.int8:  # the runtime asks for symmetric int8 weights
        constants["zw"] = np.zeros_like(constants["zw"])
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
    node = onnx.helper.make_node("QLinearConv", names, ["y"], **attributes)
    shape = [2, channels, 9, 8]
    element = 2 if kind is np.uint8 else 3
    model = graph([node], (element, shape), (element, None), constants).SerializeToString()
    x = rng.integers(low, low + 256, shape).astype(kind)
    (expected,) = session(runtime, model).run(None, {"x": x})
    network = read_onnx_network(model)
    found = golden_network(network, [x])[network.outputs[0]]
    assert found.dtype == kind
    np.testing.assert_array_equal(found, expected)
    result = run_network(network, ENGINE, inputs=[x], backend="auto")
    np.testing.assert_array_equal(result.outputs[0], expected)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [2, 3], "strides": [2, 1]},
        {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [3, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        {},
    ],
)
def test_averages_equal_onnxruntime(runtime, kind, attributes):
    rng = np.random.default_rng(3)
    operator = "QLinearAveragePool" if attributes else "QLinearGlobalAveragePool"
    low = 0 if kind is np.uint8 else -128
    element, shape = (2 if kind is np.uint8 else 3), [2, 5, 8, 8]
    for equal in (True, False):
        sx = F(rng.random() * 0.1 + 0.01)
        zx = kind(low + 120)
        constants = {
            "sx": sx,
            "zx": zx,
            "sy": sx if equal else F(rng.random() * 0.1 + 0.01),
            "zy": zx if equal else kind(low + 140),
        }
        names = ["x", "sx", "zx", "sy", "zy"]
        node = onnx.helper.make_node(operator, names, ["y"], domain="com.microsoft", **attributes)
        model = graph([node], (element, shape), (element, None), constants).SerializeToString()
        x = rng.integers(low, low + 256, shape).astype(kind)
        (expected,) = session(runtime, model).run(None, {"x": x})
        network = read_onnx_network(model)
        (at,) = [node for node in network.nodes if node.operator == operator]
        assert type(at) is (HostNode if attributes else ConvNode)
        found = golden_network(network, [x])[network.outputs[0]]
        np.testing.assert_array_equal(found, expected)
