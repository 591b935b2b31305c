"""The reader is chosen by the suffix of the file."""

from pathlib import Path

import pytest

from haloconv.planner.errors import UnsupportedModel
from haloconv.planner.network_file import read_network

from ..support.small_network import residual


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "residual.tflite"
    path.write_bytes(residual())
    return path


def test_tflite_files(model):
    network = read_network(model)
    assert network.target == "tflm"
    assert [node.operator for node in network.nodes] == ["DEPTHWISE_CONV_2D", "ADD", "MAX_POOL_2D"]
    assert read_network(str(model), target="litert").target == "litert"


def test_suffixes_in_capitals(model):
    shouting = model.rename(model.with_name("MODEL.TFLITE"))
    assert len(read_network(shouting).nodes) == 3


@pytest.mark.parametrize("name", ["model.pb", "model", "tflite"])
def test_other_files_are_refused(name):
    with pytest.raises(UnsupportedModel, match=f"must be a .tflite or .onnx file, not '{name}'"):
        read_network(Path(name))


def test_targets_of_other_kinds_are_refused(model):
    with pytest.raises(ValueError, match=r"target must be .*, not 'ort'"):
        read_network(model, target="ort")


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_network(tmp_path / "none.tflite")


def test_onnx_files_go_to_their_own_reader(tmp_path):
    path = tmp_path / "model.ONNX"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="target of an ONNX model must be ort, not 'litert'"):
        read_network(path, target="litert")
