"""What a network is fed with: arrays, images, or seeded random codes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.planner.network import Network, NetworkTensor

__all__ = ["network_inputs", "read_input", "seeded_inputs"]

Array = npt.NDArray[Any]


def network_inputs(network: Network, paths: Sequence[Path], seed: int) -> list[Array]:
    """Return the inputs of a network from files, one for each, or seeded where there are none.

    Raises
    ------
    OSError
        If a file cannot be read.
    ValueError
        If there are too few or too many files, or one does not suit its input.
    """
    if not paths:
        return seeded_inputs(network, seed)
    if len(paths) != len(network.inputs):
        raise ValueError(
            f"{network.name} takes {len(network.inputs)} inputs, but {len(paths)} were given; "
            "repeat --input in the order of the model's inputs"
        )
    return [
        read_input(path, network.tensors[index])
        for path, index in zip(paths, network.inputs, strict=True)
    ]


def seeded_inputs(network: Network, seed: int) -> list[Array]:
    """Return uniformly random inputs: every code of integers, floats from -1 to 1.

    Raises
    ------
    ValueError
        If an input is of another type.
    """
    rng = np.random.default_rng(seed)
    made: list[Array] = []
    for index in network.inputs:
        tensor = network.tensors[index]
        if tensor.dtype in ("int8", "uint8"):
            # Drawn wide and cast: numpy draws other numbers where the type is narrow.
            low = -128 if tensor.dtype == "int8" else 0
            made.append(rng.integers(low, low + 256, tensor.shape).astype(tensor.dtype))
        elif tensor.dtype == "float32":
            made.append((rng.random(tensor.shape) * 2 - 1).astype(np.float32))
        else:
            raise ValueError(
                f"input {tensor.name!r} is {tensor.dtype}, for which no random values are made; "
                "give it with --input"
            )
    return made


def read_input(path: Path, tensor: NetworkTensor) -> Array:
    """Return an input from a .npy file or an image.

    An array has the input's type and shape; a leading 1 may be missing. An image has 8 bits a
    sample, grey or RGB as the input has one or three channels, and exactly the input's size. Its
    samples are the codes of a uint8 input, and 128 less those of an int8 input.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it does not suit the input, or is an image and Pillow is missing.
    """
    if path.suffix == ".npy":
        return _read_array(path, tensor)
    return _read_image(path, tensor)


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _read_array(path: Path, tensor: NetworkTensor) -> Array:
    try:
        # Pickled objects would run code of the file.
        values = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is no .npy file of numbers: {error}") from None
    if not isinstance(values, np.ndarray):
        raise ValueError(f"{path} must hold one array; save it with numpy.save")
    if values.dtype != np.dtype(tensor.dtype):
        raise ValueError(
            f"{path} holds {values.dtype}, but input {tensor.name!r} takes {tensor.dtype}"
        )
    if values.shape != tensor.shape and (1, *values.shape) != tensor.shape:
        raise ValueError(
            f"{path} holds {_size(values.shape)}, but input {tensor.name!r} takes "
            f"{_size(tensor.shape)}"
        )
    return np.ascontiguousarray(values).reshape(tensor.shape)


def _layout(path: Path, tensor: NetworkTensor) -> tuple[int, int, int, bool]:
    """Return height, width, channels, and whether the channels come first."""
    shape = tensor.shape
    if len(shape) == 4 and shape[0] == 1:
        if shape[3] in (1, 3):
            return shape[1], shape[2], shape[3], False
        if shape[1] in (1, 3):
            return shape[2], shape[3], shape[1], True
    raise ValueError(
        f"{path} is taken as an image, but input {tensor.name!r} of {_size(shape)} is none; "
        "give an array in a .npy file"
    )


def _read_image(path: Path, tensor: NetworkTensor) -> Array:
    height, width, channels, channels_first = _layout(path, tensor)
    if tensor.dtype not in ("int8", "uint8"):
        raise ValueError(
            f"input {tensor.name!r} takes {tensor.dtype}, whose scale an image does not know; "
            "give an array in a .npy file"
        )
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ValueError(
            f"{path} is no .npy file, and images need Pillow: pip install 'haloconv[images]'"
        ) from None
    try:
        with Image.open(path) as image:
            # A palette stands for grey or colour.
            found = image.convert() if image.mode == "P" else image
            samples = np.asarray(found)
            mode = found.mode
    except UnidentifiedImageError:
        raise ValueError(f"{path} is neither a .npy file nor an image that Pillow knows") from None
    kinds = {"L": (1, "grey"), "RGB": (3, "RGB")}
    if mode not in kinds:
        raise ValueError(
            f"{path} has samples of kind {mode}; save it as 8-bit grey or RGB without transparency"
        )
    count, kind = kinds[mode]
    if samples.shape[:2] != (height, width):
        raise ValueError(
            f"{path} is {samples.shape[1]}x{samples.shape[0]} pixels, but input "
            f"{tensor.name!r} takes {width}x{height}; scale or cut it"
        )
    if count != channels:
        raise ValueError(
            f"{path} is {kind}, but input {tensor.name!r} takes "
            f"{channels} channel{'s' if channels > 1 else ''}; convert it"
        )
    codes = samples.reshape(height, width, channels).astype(np.int16)
    if tensor.dtype == "int8":
        codes -= 128
    if channels_first:
        codes = codes.transpose(2, 0, 1)
    return np.ascontiguousarray(codes, dtype=tensor.dtype).reshape(tensor.shape)
