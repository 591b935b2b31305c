"""Imported networks against LiteRT and TensorFlow Lite Micro: real models, single operators."""

import hashlib
import importlib.util
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from haloconv.planner.network import ConvNode, ElementwiseNode, HostNode, MoveNode
from haloconv.planner.network_tflite import read_tflite_network
from haloconv.sim.network_golden import feed_network, golden_network

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
HASHES = MODELS / "golden_ref.json"
SLOW = pytest.mark.slow


def model(name):
    path = MODELS / f"{name}.tflite"
    if not path.exists() or not HASHES.exists():
        pytest.skip("the public models are not beside the checkout")
    return path


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def seeded(network):
    """Inputs as the recipe in golden_ref.json makes them."""
    found = []
    for index in network.inputs:
        tensor, rng = network.tensors[index], np.random.default_rng(0)
        low, high = (0, 256) if tensor.dtype == "uint8" else (-128, 128)
        found.append(rng.integers(low, high, tensor.shape).astype(tensor.dtype))
    return found


# Tensors that the reference holds and the network does not: PAD that became pads.
FUSED = {"ssd_slim_120x160_int8": 15}


@pytest.mark.parametrize(
    "name",
    [
        "resnet8_cifar10_int8",
        "kws_dscnn_int8",
        "ad01_autoencoder_int8",
        "person_detect_int8_litert",
        "micro_speech_int8",
        "hello_world_int8",
        "mnv1_025_partial_int8",
        "mobilenetv2_035_160_int8",
        "ssd_slim_120x160_int8",
        pytest.param("mobilenetv2_100_224_ptq_int8", marks=SLOW),
    ],
)
def test_every_tensor_hashes_as_litert(name):
    path = model(name)
    network = read_tflite_network(path, "litert")
    values = golden_network(network, seeded(network))
    entries = json.loads(HASHES.read_text())[path.name]["ops"]
    absent = [entry["op"] for entry in entries if entry["tensor"] not in values]
    assert absent == ["PAD"] * FUSED.get(name, 0)
    for entry in entries:
        if entry["tensor"] in values:
            found = values[entry["tensor"]]
            assert list(found.shape) == entry["shape"]
            assert found.dtype.name == entry["dtype"]
            assert digest(found) == entry["sha256"], f"{entry['op']} at {entry['index']}"


# SHA-256 of the outputs of tflite-micro 0.dev20261023182759 on the seeded input.
TFLM = {
    "ad01_autoencoder_int8": ["514a5227c028edbe6b190e6a2ad4b91876fd439d03eb5eda6a375fd2656f03b2"],
    "hello_world_int8": ["c19a797fa1fd590cd2e5b42d1cf5f246e29b91684e2f87404b81dc345c7a56a0"],
    "kws_dscnn_int8": ["048f67162d8b80be39f64b2e1d58d8eb775c7c17499acb993ae2c0e46eb4fb7e"],
    "micro_speech_int8": ["e724808642d616c4d71efdbfbe216553fedb7bf6765b86d1c8c4a98f16dd1e99"],
    "mnv1_025_partial_int8": ["5cd3316e28776ba76963d3ae496ff3ffb85d5a1aabe8864e22280201aacb9de0"],
    "mobilenetv2_035_160_int8": [
        "5e75034c59be733a47a6f869c9f645a32998460792046e99866766a9953f253b"
    ],
    "mobilenetv2_100_224_ptq_int8": [
        "7f530e44c3541d8f53e02dde270876c9b4de510948505c07dc9188d8ff74f598"
    ],
    "person_detect_int8": ["d4d1e8882a19c7d856d2bf4c64d6f1ba651451b3707e8d624f7766c7893b308d"],
    "person_detect_int8_litert": [
        "d4d1e8882a19c7d856d2bf4c64d6f1ba651451b3707e8d624f7766c7893b308d"
    ],
    "resnet8_cifar10_int8": ["2340d96eb028b17429e796225d7df492dc59bfe9f8b6b29f3109fa726987962b"],
    "ssd_slim_120x160_int8": [
        "e2ac52770cf8aaa321d304c0159fdf768cdfb2c52a499216753e28e1165fb1e4",
        "d8959947967df12ef8bcee3e680c04d94e00aee6b87a709a74e4a79bb7df233b",
    ],
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SLOW if "224" in name else ()) for name in TFLM]
)
def test_outputs_hash_as_tflm(name):
    network = read_tflite_network(model(name), "tflm")
    values = golden_network(network, seeded(network))
    assert [digest(values[index]) for index in network.outputs] == TFLM[name]


def bitmap(path):
    """Return the pixels of an uncompressed BMP file, (H, W) grey or (H, W, 3) RGB."""
    data = path.read_bytes()
    (start,) = struct.unpack_from("<I", data, 10)
    width, height = struct.unpack_from("<ii", data, 18)
    (bits,) = struct.unpack_from("<H", data, 28)
    row = (width * bits + 31) // 32 * 4
    pixels = np.frombuffer(data, np.uint8, row * height, start).reshape(height, row)
    pixels = pixels[::-1, : width * bits // 8]  # bottom row first
    return pixels if bits == 8 else pixels.reshape(height, width, 3)[:, :, ::-1]


@pytest.mark.parametrize("name", ["person_detect_int8", "person_detect_int8_litert"])
@pytest.mark.parametrize(("picture", "scores"), [("person", [4, -4]), ("no_person", [77, -77])])
def test_person_detection_on_sample_images(name, picture, scores):
    network = read_tflite_network(model(name))
    grey = bitmap(MODELS / f"{picture}.bmp")
    x = (grey.astype(np.int16) - 128).astype(np.int8).reshape(1, 96, 96, 1)
    assert golden_network(network, x)[network.outputs[0]].ravel().tolist() == scores


@SLOW
def test_mobilenet_finds_the_egyptian_cat():
    network = read_tflite_network(model("mobilenetv2_100_224_ptq_int8"))
    x = bitmap(MODELS / "resized_cat_224.bmp")[None]
    best = int(golden_network(network, x)[network.outputs[0]].argmax())
    labels = (MODELS / "imagenet_labels.txt").read_text().splitlines()
    assert labels[best] == "Egyptian cat"


# One operator at a time


def q(shape, scale=0.05, zero_point=0, data=None, dtype="int8"):
    return T(shape, (scale,), (zero_point,), data=data, dtype=dtype)


def numbers(values):
    array = np.array(values, np.int32)
    return T(array.shape, None, data=array)


def floats(shape):
    return T(shape, None, dtype="float32")


def unary(kind, x, y, options=None):
    return [x, y], [Op(kind, (0,), (1,), options)], (0,)


def binary(kind, a, b, activation=0):
    y = q((1, 6, 7, 3), 0.06, -20)
    inputs = tuple(i for i, t in enumerate((a, b)) if t.data is None)
    options = {"FusedActivationFunction": activation}
    return [a, b, y], [Op(kind, (0, 1), (2,), options)], inputs


def pool(kind, padding, activation):
    shape = (2, 9, 6, 5) if padding == "SAME" else (2, 7, 4, 5)
    options = {
        "Padding": ["SAME", "VALID"].index(padding),
        "StrideH": 1,
        "StrideW": 2,
        "FilterHeight": 3,
        "FilterWidth": 4,
        "FusedActivationFunction": activation,
    }
    return unary(kind, q((2, 9, 11, 5), 0.05, 3), q(shape, 0.05, 3), options)


def mean(axes, keep, shape):
    tensors = [q((2, 7, 5, 6), 0.05, 3), numbers(axes), q(shape, 0.03, -9)]
    return tensors, [Op("MEAN", (0, 1), (2,), {"KeepDims": keep})], (0,)


def resize(kind, extent, size, **options):
    tensors = [q((2, *extent, 3)), numbers(size), q((2, *size, 3))]
    return tensors, [Op(kind, (0, 1), (2,), options)], (0,)


def moving(kind, shape, constants, out_shape, options=None):
    tensors = [q(shape, 0.05, 7), *map(numbers, constants), q(out_shape, 0.05, 7)]
    count = len(tensors) - 1
    return tensors, [Op(kind, tuple(range(count)), (count,), options)], (0,)


A, B = q((1, 6, 7, 3), 0.05, 3), q((1, 6, 7, 3), 0.031, -9)
ROW = q((3,), 0.031, -9, np.array([1, 2, -100], np.int8))
ONE = q((), 0.031, -9, np.array(77, np.int8))
CODES, UNIT = (1, 256), (1 / 256, -128)
OFF_CORNER = {"AlignCorners": 0, "HalfPixelCenters": 1}
CORNERS = {"AlignCorners": 1, "HalfPixelCenters": 0}
CASES = {
    "logistic": (unary("LOGISTIC", q(CODES, 0.05, 3), q(CODES, *UNIT)), HostNode),
    "logistic wide": (unary("LOGISTIC", q(CODES, 0.2, -20), q(CODES, *UNIT)), HostNode),
    "logistic flat": (unary("LOGISTIC", q(CODES, 0.001, -128), q(CODES, *UNIT)), HostNode),
    "softmax": (unary("SOFTMAX", q((40, 100), 0.0746), q((40, 100), *UNIT), {"Beta": 1.0}), None),
    "softmax beta": (unary("SOFTMAX", q((40, 9), 0.1), q((40, 9), *UNIT), {"Beta": 0.5}), None),
    "add": (binary("ADD", A, B), ElementwiseNode),
    "add relu": (binary("ADD", A, B, 1), ElementwiseNode),
    "add relu6": (binary("ADD", A, B, 3), ElementwiseNode),
    "add one": (binary("ADD", A, ONE), ElementwiseNode),
    "one add": (binary("ADD", ONE, A), ElementwiseNode),
    "add row": (binary("ADD", A, ROW), HostNode),
    "add broadcast": (binary("ADD", A, q((1, 1, 1, 3), 0.031, -9)), HostNode),
    "sub": (binary("SUB", A, B), ElementwiseNode),
    "sub one": (binary("SUB", A, ONE), ElementwiseNode),
    "one sub": (binary("SUB", ONE, A), ElementwiseNode),
    "row sub": (binary("SUB", ROW, A), HostNode),
    "mul": (binary("MUL", A, B), HostNode),
    "mul one": (binary("MUL", A, ONE), ElementwiseNode),
    "one mul": (binary("MUL", ONE, A, 1), ElementwiseNode),
    "mul row": (binary("MUL", A, ROW), HostNode),
    "relu": (unary("RELU", q(CODES, 0.05, 3), q(CODES, 0.06, -20)), ElementwiseNode),
    "relu6": (unary("RELU6", q(CODES, 0.05, 3), q(CODES, 0.05, 3)), ElementwiseNode),
    "relu1": (unary("RELU_N1_TO_1", q(CODES, 0.05, 3), q(CODES, 0.06, 3)), ElementwiseNode),
    "average same": (pool("AVERAGE_POOL_2D", "SAME", 0), HostNode),
    "average valid": (pool("AVERAGE_POOL_2D", "VALID", 0), ConvNode),
    "average relu": (pool("AVERAGE_POOL_2D", "VALID", 1), ConvNode),
    "maximum same": (pool("MAX_POOL_2D", "SAME", 1), ConvNode),
    "maximum valid": (pool("MAX_POOL_2D", "VALID", 0), ConvNode),
    "mean": (mean([1, 2], 1, (2, 1, 1, 6)), None),
    "mean flat": (mean([-2, 1], 0, (2, 6)), None),
    "mean channels": (mean([-1], 1, (2, 7, 5, 1)), HostNode),
    "mean all": (mean([1, 2, 3], 0, (2,)), HostNode),
    "quantize": (unary("QUANTIZE", q(CODES, 0.05, 3), q(CODES, 0.03, -9)), ElementwiseNode),
    "quantize uint8": (
        unary("QUANTIZE", q(CODES, 0.05, 130, dtype="uint8"), q(CODES, 0.05, 2)),
        HostNode,
    ),
    "quantize scale": (
        unary("QUANTIZE", q(CODES, 0.05, 130, dtype="uint8"), q(CODES, 0.03, 2)),
        HostNode,
    ),
    "quantize float": (unary("QUANTIZE", floats((1, 999)), q((1, 999), 0.03, 2)), HostNode),
    "dequantize": (unary("DEQUANTIZE", q(CODES, 0.03, 2), floats(CODES)), HostNode),
    "nearest": (resize("RESIZE_NEAREST_NEIGHBOR", (3, 4), (9, 8)), MoveNode),
    "nearest half": (resize("RESIZE_NEAREST_NEIGHBOR", (3, 5), (9, 20), **OFF_CORNER), MoveNode),
    "nearest odd": (resize("RESIZE_NEAREST_NEIGHBOR", (7, 6), (5, 13)), HostNode),
    "nearest corners": (resize("RESIZE_NEAREST_NEIGHBOR", (4, 5), (8, 10), **CORNERS), MoveNode),
    "bilinear": (resize("RESIZE_BILINEAR", (4, 5), (8, 13)), HostNode),
    "bilinear half": (resize("RESIZE_BILINEAR", (7, 5), (5, 20), **OFF_CORNER), HostNode),
    "bilinear corners": (resize("RESIZE_BILINEAR", (3, 5), (9, 10), **CORNERS), HostNode),
    "strided": (
        moving(
            "STRIDED_SLICE",
            (1, 9, 8, 3),
            ([0, 1, 0, 0], [0, -1, 0, 0], [1, 2, 3, 1]),
            (1, 4, 3, 3),
            {"BeginMask": 13, "EndMask": 13},
        ),
        MoveNode,
    ),
    "strided shrink": (
        moving(
            "STRIDED_SLICE",
            (1, 9, 8, 3),
            ([0, -2, 0, 0], [0, -1, 0, 0], [1, 1, 1, 1]),
            (1, 8, 3),
            {"BeginMask": 13, "EndMask": 13, "ShrinkAxisMask": 2},
        ),
        MoveNode,
    ),
    "slice": (
        moving("SLICE", (1, 9, 8, 3), ([0, 2, 1, 0], [1, -1, 4, 2]), (1, 7, 4, 2)),
        MoveNode,
    ),
    "transpose": (moving("TRANSPOSE", (1, 9, 8, 3), ([0, 3, 1, 2],), (1, 3, 9, 8)), MoveNode),
    "pad": (
        moving("PAD", (1, 9, 8, 3), ([[0, 0], [1, 2], [3, 0], [1, 0]],), (1, 12, 11, 4)),
        MoveNode,
    ),
    "pad value": (
        (
            [
                q((1, 9, 8, 3), 0.05, 7),
                numbers([[0, 0], [1, 2], [3, 0], [0, 0]]),
                q((1,), 0.05, 7, np.array([-50], np.int8)),
                q((1, 12, 11, 3), 0.05, 7),
            ],
            [Op("PADV2", (0, 1, 2), (3,), None)],
            (0,),
        ),
        MoveNode,
    ),
}


def case(name, folder):
    """Return the file of a case and its inputs."""
    (tensors, operators, fed), _ = CASES[name]
    path = folder / "m.tflite"
    path.write_bytes(build(tensors, operators, fed))
    rng, inputs = np.random.default_rng(3), []
    for index in fed:
        shape, dtype = tensors[index].shape, tensors[index].dtype
        if dtype == "float32":
            x = (rng.random(shape) * 20 - 10).astype(np.float32)
            x[0, :256] = np.float32(0.03) * (np.arange(-128, 128) + 0.5).astype(np.float32)
        elif shape == CODES:
            x = np.arange(256, dtype=np.uint8).view(dtype).reshape(shape)
        else:
            x = rng.integers(-128, 128, shape).astype(dtype)
        inputs.append(x)
    return path, inputs


# First 16 digits of the SHA-256 of what LiteRT 2.3.0's reference kernels make of them.
# tflite-micro gives the same for all but RELU_N1_TO_1, which it lacks.
LITERT = {
    "logistic": "94ab15c678f260b5",
    "logistic wide": "845fec442485e916",
    "logistic flat": "ff77713421893789",
    "softmax": "51a0940ced58aa8c",
    "softmax beta": "2728e43e6e183fbe",
    "add": "2737b93c5767c302",
    "add relu": "1dbb552f22086a79",
    "add relu6": "6ae37936aec6bcf7",
    "add one": "7b85b7aeaff13043",
    "one add": "7b85b7aeaff13043",
    "add row": "1ec79aca361b88fc",
    "add broadcast": "b809307cc3bd84a0",
    "sub": "1e216387e530720b",
    "sub one": "ab8f49dbe53b6e63",
    "one sub": "db9ddb35ebab2a94",
    "row sub": "fbc6c0509d1b2e90",
    "mul": "733e731237481dc3",
    "mul one": "72c39514f09560af",
    "one mul": "44bafddda077085d",
    "mul row": "db0757bfa122f687",
    "relu": "57650519b44c6b74",
    "relu6": "1ae1c1ea5531b1d1",
    "relu1": "cbe61c6894c6a5f9",
    "average same": "6fe51343d1992407",
    "average valid": "0ff1e5c06beecdab",
    "average relu": "dd3d7f42fe3301f7",
    "maximum same": "e63d5b64113eae3e",
    "maximum valid": "59dcd6d141985579",
    "mean": "8a02bb2b30adb948",
    "mean flat": "8a02bb2b30adb948",
    "mean channels": "35f8c050053805c4",
    "mean all": "9921e6d942070e9f",
    "quantize": "946fc01c93e01154",
    "quantize uint8": "2bae3a9530e35152",
    "quantize scale": "8cf4f8c27cc0a98f",
    "quantize float": "c4fce8bbeed4ac71",
    "dequantize": "b4cfeb805fbe040e",
    "nearest": "e0b9cd8227c64bc5",
    "nearest half": "f5c7e38829e4680f",
    "nearest odd": "adfa371db93f6854",
    "nearest corners": "5ccbc7d7aaba32cd",
    "bilinear": "3d70f86be273c2ae",
    "bilinear half": "6bab0fc278c8d921",
    "bilinear corners": "6fe02f31248e4059",
    "strided": "f7984077942e8960",
    "strided shrink": "b53e3f942ff090e5",
    "slice": "d5193cca83945b33",
    "transpose": "b4956a1d865d6f7a",
    "pad": "34811123b4515e46",
    "pad value": "a3d95b851d756050",
}


@pytest.mark.parametrize("name", CASES)
def test_single_operators_hash_as_litert(name, tmp_path):
    path, inputs = case(name, tmp_path)
    for target in ("litert", "tflm"):
        network = read_tflite_network(path, target)
        (node,) = network.nodes
        if CASES[name][1] is not None:
            assert type(node) is CASES[name][1]
        output = network.outputs[0]
        found = golden_network(network, inputs)[output]
        tensor = network.tensors[output]
        assert (found.shape, found.dtype) == (tensor.shape, np.dtype(tensor.dtype))
        assert digest(found)[:16] == LITERT[name]


def test_every_case_has_its_hash():
    assert set(LITERT) == set(CASES)


# First 16 digits of what LiteRT 2.3.0 makes of them with its default delegate, XNNPACK.
XNNPACK = {
    "softmax": "51a0940ced58aa8c",
    "average same": "6fe51343d1992407",
    "maximum same": "e63d5b64113eae3e",
    "quantize uint8": "2bae3a9530e35152",
    "quantize float": "7bc30d9e5d3035a6",
    "dequantize": "b4cfeb805fbe040e",
}


@pytest.mark.parametrize("name", XNNPACK)
def test_xnnpack_has_borders_of_its_own(name, tmp_path):
    path, inputs = case(name, tmp_path)
    network = read_tflite_network(path, "xnnpack")
    found = golden_network(network, inputs)[network.outputs[0]]
    assert digest(found)[:16] == XNNPACK[name]


# Inputs


def small(tmp_path):
    path, (a, b) = case("add", tmp_path)
    return read_tflite_network(path), a, b


def test_inputs_by_order_and_by_index(tmp_path):
    network, a, b = small(tmp_path)
    by_order = golden_network(network, [a, b])
    by_index = golden_network(network, {1: b, 0: a})
    np.testing.assert_array_equal(by_order[2], by_index[2])
    assert set(by_order) == {0, 1, 2}


def test_inputs_are_checked(tmp_path):
    network, a, b = small(tmp_path)
    with pytest.raises(ValueError, match="inputs must be 2 arrays, not 1"):
        feed_network(network, a)
    with pytest.raises(ValueError, match=r"inputs must be given for tensors \[0, 1\], not \[0\]"):
        feed_network(network, {0: a})
    with pytest.raises(TypeError, match="input 't1' must be int8, not uint8"):
        feed_network(network, [a, b.view(np.uint8)])
    with pytest.raises(ValueError, match=r"input 't0' must have shape \(1, 6, 7, 3\), not \(6,"):
        feed_network(network, [a[0], b])
