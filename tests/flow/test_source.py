"""Layers from words and files."""

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest

from haloconv.flow.source import layer_words, read_source
from haloconv.planner.layer import ConvLayer

SHARED = Path(__file__).parents[3] / "shared"


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (ConvLayer(32, 32, 16, 32, (3, 3), pads=(1, 1, 1, 1)), "32x32x16 k3 p1 m32"),
        (ConvLayer(9, 8, 4, 6, (1, 1), stride=(2, 2)), "9x8x4 k1 s2 m6"),
        (
            ConvLayer(20, 9, 6, 12, (5, 3), (2, 1), (1, 2), (1, 0, 2, 3), 3),
            "20x9x6 k5x3 s2x1 d1x2 p1,0,2,3 m12 g3",
        ),
        (
            ConvLayer(4, 4, 2, 2, (1, 1), groups=2, in_zero_point=-7, has_bias=False),
            "4x4x2 k1 m2 g2 z-7 nobias",
        ),
    ],
)
def test_layer_words(layer: ConvLayer, words: str) -> None:
    assert layer_words(layer) == words
    (item,) = read_source(None, words).items
    assert replace(item.layer, name="") == layer
    assert item.title == item.long_title == words


def test_geometry_alone() -> None:
    layer = ConvLayer(4, 4, 2, 2, (1, 1), in_zero_point=-7, has_bias=False)
    assert layer_words(layer, geometry=True) == "4x4x2 k1 m2"


def test_one_source_exactly(tmp_path: Path) -> None:
    for path, words in ((None, None), (tmp_path / "a.json", "8x8x1 k1 m1")):
        with pytest.raises(click.UsageError, match=r"give a SOURCE .* or a --layer"):
            read_source(path, words)


def test_unknown_kind_of_file(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match=r"neither a \.tflite model nor a \.json workload"):
        read_source(tmp_path / "model.pb", None)
    with pytest.raises(click.BadParameter, match=r"is an ONNX model, .* haloconv run or compile"):
        read_source(tmp_path / "model.onnx", None)


def workload(tmp_path: Path) -> Path:
    """Write a workload of two convolutions and a pooling."""
    conv = {
        "op": "CONV_2D",
        "in_shape": [1, 8, 8, 4],
        "out_shape": [1, 8, 8, 6],
        "kernel": [3, 3],
        "stride": [1, 1],
        "dilation": [1, 1],
        "padding": "SAME",
        "pads_tblr": [1, 1, 1, 1],
        "groups": 1,
    }
    layers = [
        {"index": 0, "name": "first", **conv},
        {
            "index": 1,
            "name": "pool",
            "op": "MAX_POOL_2D",
            "in_shape": [1, 8, 8, 6],
            "out_shape": [1, 4, 4, 6],
            "kernel": [2, 2],
            "stride": [2, 2],
            "padding": "VALID",
        },
        {"index": 2, "name": "second", **conv},
    ]
    path = tmp_path / "two.json"
    path.write_text(
        json.dumps({"name": "two", "source": "test", "layers": layers}), encoding="utf-8"
    )
    return path


def test_workload(tmp_path: Path) -> None:
    source = read_source(workload(tmp_path), None)
    assert source.name == "two"
    assert [item.name for item in source.items] == ["first", "second"]
    assert source.layers[0] == source.items[0].layer
    assert source.layers[0].out_channels == 6
    assert any("pool" in entry or "POOL" in entry for entry in source.skipped)


def test_only_by_name_and_index(tmp_path: Path) -> None:
    path = workload(tmp_path)
    (named,) = read_source(path, None, only="second").items
    (placed,) = read_source(path, None, only=str(named.index)).items
    assert named.name == placed.name == "second"
    with pytest.raises(click.BadParameter, match="'third' is no layer of two; it has 0 first"):
        read_source(path, None, only="third")


def test_model() -> None:
    path = SHARED / "models" / "resnet8_cifar10_int8.tflite"
    if not path.exists():
        pytest.skip("the shared models are not beside this checkout")
    source = read_source(path, None)
    # ResNet-8: seven 3x3 layers, two 1x1 shortcuts and the classifier; three ADDs between them.
    assert [item.name for item in source.items].count("conv_2d") == 9
    assert sum(entry.endswith("ADD") for entry in source.skipped) == 3
    assert all(item.data is not None for item in source.items)
    first = source.items[0]
    assert layer_words(first.layer, geometry=True) == "32x32x3 k3 p1 m16"
    assert first.title == "0 conv_2d"
    assert first.long_title.startswith("0 conv_2d (32x32x3 k3 p1 m16")
