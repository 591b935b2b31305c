"""Reads a network from a model file of any supported kind."""

from os import PathLike
from pathlib import Path

from haloconv.planner.errors import UnsupportedModel
from haloconv.planner.network import Network

__all__ = ["read_network"]


def read_network(path: str | PathLike[str], target: str | None = None) -> Network:
    """Return the network of a .tflite or .onnx file.

    Parameters
    ----------
    path : path
    target : str or None
        Whose rounding to follow: "tflm" (default), "litert" or "xnnpack" for .tflite, "ort" for
        .onnx.

    Raises
    ------
    UnsupportedModel
        For another suffix, or a model that haloconv does not run, with operator, place and reason.
    ValueError
        For a target that the kind of file does not have.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".tflite":
        from haloconv.planner.network_tflite import read_tflite_network

        return read_tflite_network(path, target="tflm" if target is None else target)
    if suffix == ".onnx":
        from haloconv.planner.network_onnx import read_onnx_network

        return read_onnx_network(path, target="ort" if target is None else target)
    raise UnsupportedModel(
        f"a model must be a .tflite or .onnx file, not {str(path)!r}; convert it first"
    )
