"""Workload files and layers in words: the given networks, and a good error for each mistake."""

import json
import re
from pathlib import Path

import pytest

from haloconv.planner.errors import PlanError
from haloconv.planner.layer import ConvLayer
from haloconv.planner.workload import parse_layer, read_workload

WORKLOADS = Path(__file__).parents[3] / "shared" / "workloads"
CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
NAMES = (
    "alexnet_grouped",
    "deeplab_aspp_33x33",
    "deeplabv3_mobilenetv2_513",
    "efficientnet_b0",
    "efficientnet_lite0",
    "espcn_x3_640x360",
    "fsrcnn_x2_540p",
    "mobilenet_v1_1.0_224",
    "mobilenet_v2_1.0_224",
    "resnet50_v1_5",
    "resnext50_stage_grouped",
    "unet_256",
    "vgg16",
    "yolov3_tiny_416",
)


@pytest.mark.parametrize("name", NAMES)
def test_given_workloads(name):
    path = WORKLOADS / f"{name}.json"
    if not path.exists():
        pytest.skip("the workload files are not beside the checkout")
    table = json.loads(path.read_text())
    workload = read_workload(path)
    assert (workload.name, workload.source) == (table["name"], table["source"])
    listed = [entry for entry in table["layers"] if entry["op"] in CONVOLUTIONS]
    others = [entry for entry in table["layers"] if entry["op"] not in CONVOLUTIONS]
    assert [layer.name for layer in workload.layers] == [entry["name"] for entry in listed]
    assert [(entry.name, entry.operator) for entry in workload.skipped] == [
        (entry["name"], entry["op"]) for entry in others
    ]
    for layer, entry in zip(workload.layers, listed, strict=True):
        assert layer.macs == entry["macs"]
        assert layer.out_channels * layer.taps * layer.group_in_channels == entry["weight_bytes"]
        assert layer.has_bias == (entry["bias_bytes"] > 0)
        if entry["op"] != "FULLY_CONNECTED":
            assert list(layer.output_shape) == entry["out_shape"]
            assert list(layer.pads) == entry["pads_tblr"]
    skipped_macs = sum(entry.get("macs", 0) for entry in others)
    assert sum(layer.macs for layer in workload.layers) + skipped_macs == table["total_macs"]


ENTRY = {
    "name": "one",
    "op": "CONV_2D",
    "in_shape": [1, 8, 9, 4],
    "out_shape": [1, 4, 9, 6],
    "kernel": [3, 3],
    "stride": [2, 1],
    "padding": "SAME",
    "groups": 2,
}


def write(tmp_path, *entries, **table):
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"name": "net", "layers": list(entries)} | table))
    return path


def test_small_file(tmp_path):
    pool = {"name": "up", "op": "TRANSPOSE_CONV"}
    depthwise = {
        "op": "DEPTHWISE_CONV_2D",
        "in_shape": [1, 5, 5, 3],
        "out_shape": [1, 3, 3, 6],
        "kernel": [3, 3],
        "bias_bytes": 0,
    }
    dense = {"name": "fc", "op": "FULLY_CONNECTED", "in_shape": [1, 2, 2, 6], "out_shape": [1, 7]}
    workload = read_workload(write(tmp_path, ENTRY, pool, depthwise, dense))
    assert (workload.name, workload.source) == ("net", "")
    assert [str(entry) for entry in workload.skipped] == ["up (TRANSPOSE_CONV)"]
    assert workload.layers == (
        ConvLayer(8, 9, 4, 6, (3, 3), (2, 1), pads=(0, 1, 1, 1), groups=2, name="one"),
        ConvLayer(5, 5, 3, 6, (3, 3), groups=3, has_bias=False, name="layer 2"),
        ConvLayer(1, 1, 24, 7, (1, 1), name="fc"),
    )


FULL = {"op": "FULLY_CONNECTED", "in_shape": [1, 5], "out_shape": [1, 7]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "name must be a text, not 3"),
        ({"op": None}, "('one'): op must be a text, not None"),
        ({"op": ...}, "('one'): op is missing"),
        ({"in_shape": ...}, "in_shape is missing"),
        ({"in_shape": [8, 9, 4]}, "in_shape must be a list of 4 integers, not [8, 9, 4]"),
        ({"in_shape": [1, 8, 9, True]}, "in_shape must be a list of 4 integers"),
        ({"in_shape": [1, 0, 9, 4]}, "in_height must be at least 1, not 0"),
        ({"out_shape": "big"}, "out_shape must be a list of 4 integers, not 'big'"),
        (
            {"out_shape": [1, 8, 9, 6]},
            "out_shape must be [1, 4, 9, 6] by the geometry, not [1, 8, 9, 6]",
        ),
        ({"kernel": ...}, "kernel is missing"),
        ({"kernel": [3]}, "kernel must be a list of 2 integers, not [3]"),
        ({"kernel": [0, 3]}, "kernel must be at least 1, not [0, 3]"),
        ({"stride": [0, 1]}, "stride must be at least 1, not [0, 1]"),
        ({"dilation": [1.5, 1]}, "dilation must be a list of 2 integers, not [1.5, 1]"),
        ({"pads_tblr": [1, 1]}, "pads_tblr must be a list of 4 integers, not [1, 1]"),
        ({"pads_tblr": [-1, 0, 0, 0]}, "pads must be at least 0, not -1"),
        ({"padding": "EXPLICIT"}, "padding must be SAME or VALID where pads_tblr is missing"),
        ({"groups": 3}, "groups must divide in_channels 4, not 3"),
        ({"groups": "2"}, "groups must be an integer, not '2'"),
        (
            {"op": "DEPTHWISE_CONV_2D"},
            "groups of a DEPTHWISE_CONV_2D must be its 4 input channels, not 2",
        ),
        ({"bias_bytes": "none"}, "bias_bytes must be an integer, not 'none'"),
        (FULL | {"in_shape": ...}, "in_shape is missing"),
        (FULL | {"in_shape": [5]}, "in_shape must be a list of at least 2 integers, not [5]"),
        (FULL | {"out_shape": [1, "x"]}, "out_shape must be a list of 2 integers, not [1, 'x']"),
        (FULL | {"in_shape": [1, 70000]}, "in_channels must be at most 65535, not 70000"),
    ],
)
def test_wrong_layers_name_file_layer_and_field(tmp_path, change, message):
    entry = {key: value for key, value in (ENTRY | change).items() if value is not ...}
    with pytest.raises(PlanError, match=r"^w\.json, layer 0.*" + re.escape(message)):
        read_workload(write(tmp_path, entry))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "w.json must be JSON, but: "),
        ("[1]", "w.json must hold an object with name and layers"),
        ('{"layers": 3}', "w.json: layers must be a list of at least one object"),
        ('{"layers": []}', "w.json: layers must be a list of at least one object"),
        ('{"name": 5, "layers": []}', "w.json: name must be a text, not 5"),
        ('{"layers": [7]}', "w.json, layer 0: it must be an object, not 7"),
    ],
)
def test_wrong_files(tmp_path, text, message):
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=re.escape(message)):
        read_workload(path)
    with pytest.raises(FileNotFoundError):
        read_workload(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("text", "layer"),
    [
        ("32x32x16 k3 s1 p1 m32", ConvLayer(32, 32, 16, 32, (3, 3), pads=(1, 1, 1, 1))),
        ("1x1x33 m10", ConvLayer(1, 1, 33, 10, (1, 1))),
        (
            "49x10x1 m8 k10x4 psame s2",
            ConvLayer(49, 10, 1, 8, (10, 4), (2, 2), pads=(4, 5, 1, 1)),
        ),
        (
            "  7x9x4\tp1,2,0,3 z-128 s2x1 d1x2 g2 m6 k3 nobias ",
            ConvLayer(7, 9, 4, 6, (3, 3), (2, 1), (1, 2), (1, 2, 0, 3), 2, -128, False),
        ),
        ("8x8x6 dw k3", ConvLayer(8, 8, 6, 6, (3, 3), groups=6)),
        ("8x8x6 m12 k3 dw z7", ConvLayer(8, 8, 6, 12, (3, 3), groups=6, in_zero_point=7)),
        ("8x8x1 dw m8", ConvLayer(8, 8, 1, 8, (1, 1))),
    ],
)
def test_layers_in_words(text, layer):
    assert parse_layer(text) == layer


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a layer must be HxWxC then any of"),
        ("k3 m4", "a layer must begin with its input HxWxC such as 32x32x16, not 'k3'"),
        ("32x32 m4", "a layer must begin with its input HxWxC such as 32x32x16, not '32x32'"),
        ("8x8x4 m4 q3", "'q3' is unknown in a layer; it must be HxWxC then any of k3 or k3x5"),
        ("8x8x4 m4 K3", "'K3' is unknown in a layer"),
        ("8x8x4 m4 k3 k5", "'k5' repeats 'k3'; a layer must say each thing once"),
        ("8x8x4 dw dw", "'dw' repeats 'dw'"),
        ("8x8x4 m4 k", "kernel k must be like k3 or k3x5, not 'k'"),
        ("8x8x4 m4 k3x3x3", "kernel k must be like k3 or k3x5, not 'k3x3x3'"),
        ("8x8x4 m4 k-3", "kernel k must be like k3 or k3x5, not 'k-3'"),
        ("8x8x4 m4 s2,1", "stride s must be like s2 or s2x1, not 's2,1'"),
        ("8x8x4 m4 d2x", "dilation d must be like d2 or d2x1, not 'd2x'"),
        ("8x8x4 m4 p1,1", "pads p must be like p1, p0,1,0,1 (top, bottom, left, right) or psame"),
        ("8x8x4 m4 psome", "or psame, not 'psome'"),
        ("8x8x4 m", "output channels m must be like m32, not 'm'"),
        ("8x8x4 m4 gx", "groups g must be like g4, not 'gx'"),
        ("8x8x4 m4 z1.5", "input zero point z must be like z3 or z-128, not 'z1.5'"),
        ("8x8x4 k3", "a layer must say its output channels, such as m32 (or dw)"),
        ("8x8x4 dw g4", "dw and 'g4' contradict; dw sets the groups to C"),
        ("8x8x4 m4 s0", "sizes, kernel, stride and dilation must be at least 1 in '8x8x4 m4 s0'"),
        ("0x8x4 m4", "must be at least 1 in '0x8x4 m4'"),
        ("8x8x4 m4 z128", "layer '8x8x4 m4 z128': in_zero_point must be at most 127, not 128"),
        ("8x8x4 m4 g3", "layer '8x8x4 m4 g3': groups must divide in_channels 4, not 3"),
        ("8x8x4 dw m6", "groups must divide out_channels 6, not 4"),
        ("2x2x4 m4 k3", "the dilated kernel must fit the padded input"),
        ("8x8x0 m4", "in_channels must be at least 1, not 0"),
        ("8x8x4 m4 k300", "kernel must be at most 255, not 300"),
    ],
)
def test_wrong_words(text, message):
    with pytest.raises(PlanError, match=re.escape(message)):
        parse_layer(text)


def test_a_layer_is_a_text():
    with pytest.raises(TypeError, match=r"a layer must be a text such as '.*', not 3"):
        parse_layer(3)  # type: ignore[arg-type]
