"""Arrays, images and seeded codes as inputs, and each refusal."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloconv.flow.network_inputs import network_inputs, read_input, seeded_inputs
from haloconv.planner.network import Network, NetworkTensor

MODELS = Path(__file__).parents[2].parent / "shared" / "models"


def tensor(*shape: int, dtype: str = "int8") -> NetworkTensor:
    return NetworkTensor(0, "image", shape, dtype)


def network(*tensors: NetworkTensor) -> Network:
    return Network("net", "tflm", dict(enumerate(tensors)), (), tuple(range(len(tensors))), ())


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("int8", -128, 127), ("uint8", 0, 255), ("float32", -1, 1)]
)
def test_seeded_values_fill_their_range(dtype: str, low: int, high: int) -> None:
    (values,) = seeded_inputs(network(tensor(1, 64, 64, 3, dtype=dtype)), 5)
    assert values.dtype == dtype and values.shape == (1, 64, 64, 3)
    assert low <= values.min() < low + 0.01 * (high - low)
    assert high - 0.01 * (high - low) < values.max() <= high
    (again,) = seeded_inputs(network(tensor(1, 64, 64, 3, dtype=dtype)), 5)
    (other,) = seeded_inputs(network(tensor(1, 64, 64, 3, dtype=dtype)), 6)
    assert np.array_equal(values, again) and not np.array_equal(values, other)


def test_seeded_input_is_that_of_the_recorded_hashes() -> None:
    record = MODELS / "golden_ref.json"
    if not record.exists():
        pytest.skip("the recorded hashes are not beside this checkout")
    # The first operator of this model is a RESHAPE: its result is the input.
    first = json.loads(record.read_text())["micro_speech_int8.tflite"]["ops"][0]
    assert first["op"] == "RESHAPE"
    (values,) = seeded_inputs(network(tensor(1, 1960)), 0)
    assert hashlib.sha256(values.tobytes()).hexdigest() == first["sha256"]


def test_no_random_values_for_other_types() -> None:
    with pytest.raises(ValueError, match="input 'image' is int32, for which no random values"):
        seeded_inputs(network(tensor(1, 4, dtype="int32")), 0)


def test_array_as_it_is_or_without_the_batch(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.int8).reshape(1, 2, 4, 3)
    np.save(tmp_path / "whole.npy", values)
    np.save(tmp_path / "item.npy", np.asfortranarray(values[0]))
    for name in ("whole.npy", "item.npy"):
        read = read_input(tmp_path / name, tensor(1, 2, 4, 3))
        assert np.array_equal(read, values) and read.flags.c_contiguous


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((1, 2, 4, 3), np.uint8), "holds uint8, but input 'image' takes int8"),
        (np.zeros((1, 4, 2, 3), np.int8), "holds 1x4x2x3, but input 'image' takes 1x2x4x3"),
        (np.array(3, np.int8), "holds scalar, but input 'image' takes 1x2x4x3"),
        (np.array([object()]), "is no .npy file of numbers: Object arrays cannot be loaded"),
    ],
)
def test_arrays_refused(tmp_path: Path, values: Any, message: str) -> None:
    np.save(tmp_path / "x.npy", values, allow_pickle=True)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_input(tmp_path / "x.npy", tensor(1, 2, 4, 3))


def test_broken_arrays_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"no array")
    with pytest.raises(ValueError, match=r"x\.npy is no \.npy file of numbers"):
        read_input(tmp_path / "x.npy", tensor(1, 2))


def image(path: Path, samples: Any, mode: str | None = None) -> Path:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    made = pillow.fromarray(np.asarray(samples, np.uint8))
    (made if mode is None else made.convert(mode)).save(path)
    return path


GREY = np.array([[0, 1, 127, 2], [128, 200, 255, 3]])
RGB = np.arange(24).reshape(2, 4, 3) * 11


@pytest.mark.parametrize("suffix", ["png", "bmp", "pgm"])
def test_grey_image(tmp_path: Path, suffix: str) -> None:
    path = image(tmp_path / f"x.{suffix}", GREY)
    read = read_input(path, tensor(1, 2, 4, 1))
    # Codes by hand: 128 less than the sample.
    assert read.dtype == np.int8
    assert read[0, :, :, 0].tolist() == [[-128, -127, -1, -126], [0, 72, 127, -125]]
    read = read_input(path, tensor(1, 2, 4, 1, dtype="uint8"))
    assert read.dtype == np.uint8 and np.array_equal(read[0, :, :, 0], GREY)
    read = read_input(path, tensor(1, 1, 2, 4))
    assert read.tolist() == [[[[-128, -127, -1, -126], [0, 72, 127, -125]]]]


@pytest.mark.parametrize("suffix", ["png", "bmp", "ppm"])
def test_colour_image(tmp_path: Path, suffix: str) -> None:
    path = image(tmp_path / f"x.{suffix}", RGB)
    assert np.array_equal(read_input(path, tensor(1, 2, 4, 3, dtype="uint8"))[0], RGB)
    first = read_input(path, tensor(1, 3, 2, 4, dtype="uint8"))
    assert np.array_equal(first[0], np.moveaxis(RGB, 2, 0))


def test_image_with_a_palette(tmp_path: Path) -> None:
    path = image(tmp_path / "x.png", RGB, "P")
    assert read_input(path, tensor(1, 2, 4, 3)).shape == (1, 2, 4, 3)


@pytest.mark.parametrize(
    ("samples", "mode", "target", "message"),
    [
        (GREY, None, tensor(1, 4, 2, 1), "is 4x2 pixels, but input 'image' takes 2x4; scale"),
        (GREY, None, tensor(1, 2, 4, 3), "is grey, but input 'image' takes 3 channels; convert"),
        (RGB, None, tensor(1, 2, 4, 1), "is RGB, but input 'image' takes 1 channel; convert"),
        (RGB, "RGBA", tensor(1, 2, 4, 3), "has samples of kind RGBA; save it as 8-bit grey or RGB"),
        (GREY, "1", tensor(1, 2, 4, 1), "has samples of kind 1; save it"),
        (GREY, None, tensor(1, 8), "is taken as an image, but input 'image' of 1x8 is none"),
        (GREY, None, tensor(2, 2, 4, 1), "input 'image' of 2x2x4x1 is none; give an array"),
        (GREY, None, tensor(1, 2, 4, 1, dtype="float32"), "takes float32, whose scale an image"),
    ],
)
def test_images_refused(
    tmp_path: Path, samples: Any, mode: str | None, target: NetworkTensor, message: str
) -> None:
    path = image(tmp_path / "x.png", samples, mode)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_input(path, target)


def test_not_an_image(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    (tmp_path / "x.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"x\.png is neither a \.npy file nor an image"):
        read_input(tmp_path / "x.png", tensor(1, 2, 4, 1))


def test_images_without_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    (tmp_path / "x.png").write_bytes(b"")
    message = re.escape("images need Pillow: pip install 'haloconv[images]'")
    with pytest.raises(ValueError, match=message):
        read_input(tmp_path / "x.png", tensor(1, 2, 4, 1))


def test_one_file_for_each_input(tmp_path: Path) -> None:
    two = network(tensor(1, 2), tensor(1, 3))
    for extent in (2, 3):
        np.save(tmp_path / f"{extent}.npy", np.full((1, extent), extent, np.int8))
    files = [tmp_path / "2.npy", tmp_path / "3.npy"]
    assert [values.tolist() for values in network_inputs(two, files, 0)] == [[[2, 2]], [[3, 3, 3]]]
    assert [values.shape for values in network_inputs(two, [], 0)] == [(1, 2), (1, 3)]
    with pytest.raises(ValueError, match="net takes 2 inputs, but 1 were given; repeat --input"):
        network_inputs(two, files[:1], 0)
