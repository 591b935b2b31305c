"""Checks of the arrays that a user hands to a simulation, before anything runs."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import Requantization

__all__ = ["LayerArrays", "check_arrays", "sum_bounds"]

Array = npt.NDArray[Any]

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True, eq=False)
class LayerArrays:
    """Checked arrays of one layer, C-contiguous.

    Parameters
    ----------
    inputs : int8 array, shape (N, H, W, C)
    weights : int8 array, shape (M, Rh, Rw, C / groups)
    bias : int32 array, shape (M,), or None
    weight_zero_points : int32 array, shape (M,), or None
    """

    inputs: npt.NDArray[np.int8]
    weights: npt.NDArray[np.int8]
    bias: npt.NDArray[np.int32] | None
    weight_zero_points: npt.NDArray[np.int32] | None


def check_arrays(
    layer: ConvLayer,
    inputs: Array,
    weights: Array,
    bias: Array | None = None,
    weight_zero_points: Array | int | None = None,
    requantization: Requantization | None = None,
) -> LayerArrays:
    """Return the arrays ready for use, or say which one is wrong and how.

    Parameters
    ----------
    layer : ConvLayer
        What the arrays must match.
    inputs : int8 array, shape (N, H, W, C)
        N at least 1.
    weights : int8 array, shape (M, Rh, Rw, C / groups)
    bias : int32 array, shape (M,), or None
        Given exactly where the layer has a bias.
    weight_zero_points : integer array, shape (M,), or int, or None
        Within -128..127.
    requantization : Requantization or None
        Must hold one entry, or one for each output channel.

    Returns
    -------
    LayerArrays

    Raises
    ------
    TypeError
        If an array has the wrong type.
    ValueError
        If it has the wrong shape or range, or if the sums of an output channel can leave int32 for
        some input.
    """
    outputs = layer.out_channels
    x = _array("inputs", inputs, np.int8)
    shape = (layer.in_height, layer.in_width, layer.in_channels)
    if x.ndim != 4 or x.shape[1:] != shape or x.shape[0] < 1:
        expected = f"(N, {shape[0]}, {shape[1]}, {shape[2]})"
        raise ValueError(f"inputs must have shape {expected}, not {x.shape}")
    w = _array("weights", weights, np.int8)
    if w.shape != layer.weight_shape:
        raise ValueError(
            f"weights must have shape (M, Rh, Rw, C / groups) = {layer.weight_shape}, not {w.shape}"
        )
    if bias is None:
        if layer.has_bias:
            raise ValueError(
                "bias must be given for a layer that has one; pass it, or set has_bias=False"
            )
        b = None
    else:
        if not layer.has_bias:
            raise ValueError(
                "bias must be None for a layer without one; leave it out, or set has_bias=True"
            )
        b = _array("bias", bias, np.int32)
        if b.shape != (outputs,):
            raise ValueError(f"bias must have shape ({outputs},), not {b.shape}")
    zero_points = None
    if weight_zero_points is not None:
        zero_points = _zero_points(weight_zero_points, outputs)
    if requantization is not None:
        names = ("scale",) if requantization.rounding == "fp32" else ("multiplier", "shift")
        for name in names:
            found = np.shape(getattr(requantization, name))
            if found not in ((1,), (outputs,)):
                raise ValueError(
                    f"{name} of the requantization must hold 1 or {outputs} entries, one for each "
                    f"output channel, not shape {found}"
                )
    low, high = sum_bounds(layer, w, b, zero_points)
    wrong = np.flatnonzero((low < _INT32_MIN) | (high > _INT32_MAX))
    if wrong.size:
        channel = int(wrong[0])
        bound = int(high[channel]) if high[channel] > _INT32_MAX else int(low[channel])
        raise ValueError(
            f"sums must fit int32 for every input, but those of output channel {channel} can reach "
            f"{bound}; use smaller weights or bias, or split the input channels over two layers"
        )
    return LayerArrays(x, w, b, zero_points)


def sum_bounds(
    layer: ConvLayer,
    weights: Array,
    bias: Array | None = None,
    weight_zero_points: Array | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the lowest and the highest sum of each output channel over all int8 inputs.

    Each tap takes any x in -128..127, and 0 where it is padded; x = Zx gives 0 too, so that pads
    widen nothing.

    Returns
    -------
    low, high : int64 arrays, shape (M,)
    """
    differences = np.asarray(weights).astype(np.int64)
    if weight_zero_points is not None:
        differences = differences - np.asarray(weight_zero_points)[:, None, None, None]
    differences = differences.reshape(differences.shape[0], -1)
    rising = np.where(differences > 0, differences, 0).sum(axis=1)
    falling = np.where(differences < 0, -differences, 0).sum(axis=1)
    above, below = 127 - layer.in_zero_point, 128 + layer.in_zero_point
    start = np.zeros(1, np.int64) if bias is None else np.asarray(bias).astype(np.int64)
    return (
        start - rising * below - falling * above,
        start + rising * above + falling * below,
    )


def _array(name: str, values: Array, dtype: type[np.generic]) -> Array:
    if not isinstance(values, np.ndarray):
        raise TypeError(f"{name} must be a numpy array, not {type(values).__name__}")
    if values.dtype != dtype:
        raise TypeError(f"{name} must be {np.dtype(dtype)}, not {values.dtype}")
    return np.ascontiguousarray(values)


def _zero_points(values: Array | int, outputs: int) -> npt.NDArray[np.int32]:
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"weight_zero_points must hold integers, not {array.dtype}")
    if array.shape not in ((), (outputs,)):
        raise ValueError(
            f"weight_zero_points must be one integer or have shape ({outputs},), not {array.shape}"
        )
    wide = array.astype(np.int64)
    outside = wide[(wide < -128) | (wide > 127)]
    if outside.size:
        raise ValueError(f"weight_zero_points must be within -128..127, not {int(outside.flat[0])}")
    return np.ascontiguousarray(np.broadcast_to(wide, (outputs,))).astype(np.int32)
