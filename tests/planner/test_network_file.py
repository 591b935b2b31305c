"""Model files by their suffix."""

import re

import pytest

from haloconv.planner.errors import UnsupportedModel
from haloconv.planner.network_file import read_network


@pytest.mark.parametrize("name", ["model.h5", "model", "model.tflite.zip"])
def test_other_suffixes_are_refused(name):
    message = f"a model must be a .tflite or .onnx file, not '{name}'"
    with pytest.raises(UnsupportedModel, match=re.escape(message)):
        read_network(name)


def test_suffixes_choose_the_reader(tmp_path):
    path = tmp_path / "M.TFLITE"
    path.write_bytes(b"no model at all")
    with pytest.raises(UnsupportedModel, match="must be a TFLite model"):
        read_network(path)
    with pytest.raises(ValueError, match="target of an ONNX model must be ort, not 'litert'"):
        read_network(tmp_path / "m.onnx", "litert")


def test_targets_reach_the_reader(tmp_path):
    with pytest.raises(ValueError, match="target must be one of tflm, litert, xnnpack, not 'ort'"):
        read_network(tmp_path / "m.tflite", "ort")
