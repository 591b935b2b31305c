"""Golden model: the bit-exact int8 arithmetic in plain numpy.

Written from the arithmetic definition (docs/arithmetic.md) and from nothing else: it shares no
code with planner or RTL, and of a layer it reads the stored fields only. Sums are exact integers,
``>>`` is an arithmetic shift that rounds towards minus infinity.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import Requantization

__all__ = [
    "Quantized",
    "add",
    "average_pool",
    "convolve",
    "golden_layer",
    "max_pool",
    "mean",
    "multiply",
    "pad",
    "requantize",
    "rescale",
    "subtract",
]

Array = npt.NDArray[Any]

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


def convolve(
    layer: ConvLayer,
    inputs: Array,
    weights: Array,
    bias: Array | None = None,
    weight_zero_points: Array | int | None = None,
) -> npt.NDArray[np.int32]:
    """Return the int32 sums of a convolution.

    acc[n, oh, ow, m] = bias[m] + sum over kernel rows, columns and channels of
    (x - Zx) * (w - Zw[m]); a padded position contributes 0.

    Parameters
    ----------
    layer : ConvLayer
        The geometry and the input zero point.
    inputs : int8 array, shape (N, H, W, C)
        Any batch N.
    weights : int8 array, shape (M, Rh, Rw, C / groups)
        Block g of the output channels reads block g of the input channels.
    bias : int32 array, shape (M,), or None
        None stands for zeros.
    weight_zero_points : int array, shape (M,), or int, or None
        Zw; None stands for 0.

    Returns
    -------
    int32 array, shape (N, OH, OW, M)

    Raises
    ------
    TypeError
        If an array has another type.
    ValueError
        If an array has another shape, or if a sum leaves int32.
    """
    inputs, weights = np.asarray(inputs), np.asarray(weights)
    channels, outputs, groups = layer.in_channels, layer.out_channels, layer.groups
    rows, columns = layer.kernel
    for name, array in (("inputs", inputs), ("weights", weights)):
        if array.dtype != np.int8:
            raise TypeError(f"{name} must be int8, not {array.dtype}")
    if inputs.ndim != 4 or inputs.shape[1:] != (layer.in_height, layer.in_width, channels):
        raise ValueError(
            f"inputs must have shape (N, {layer.in_height}, {layer.in_width}, {channels}), "
            f"not {inputs.shape}"
        )
    if weights.shape != (outputs, rows, columns, channels // groups):
        raise ValueError(
            f"weights must have shape {(outputs, rows, columns, channels // groups)}, "
            f"not {weights.shape}"
        )
    start = np.zeros(outputs, np.int64)
    if bias is not None:
        start = _per_channel("bias", bias, outputs)
    zero_points = np.zeros(outputs, np.int64)
    if weight_zero_points is not None:
        zero_points = np.asarray(weight_zero_points)
        if zero_points.ndim == 0:
            zero_points = np.repeat(zero_points, outputs)
        zero_points = _per_channel("weight_zero_points", zero_points, outputs)

    # float64 keeps the matrix products in BLAS and stays exact: no layer within the limits of
    # ConvLayer sums up to more than 65535 * 255 * 255 products of 255 * 255, which is below 2**53.
    top, bottom, left, right = layer.pads
    x = inputs.astype(np.float64) - layer.in_zero_point
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    w = weights.astype(np.float64) - zero_points[:, None, None, None]
    (step_v, step_h), (gap_v, gap_h) = layer.stride, layer.dilation
    count = x.shape[0]
    height = (x.shape[1] - ((rows - 1) * gap_v + 1)) // step_v + 1
    width = (x.shape[2] - ((columns - 1) * gap_h + 1)) // step_h + 1
    sums = np.zeros((count, height, width, outputs), np.float64)
    for row in range(rows):
        for column in range(columns):
            first_v, first_h = row * gap_v, column * gap_h
            tap = x[
                :,
                first_v : first_v + (height - 1) * step_v + 1 : step_v,
                first_h : first_h + (width - 1) * step_h + 1 : step_h,
            ]
            _add_tap(sums, tap, w[:, row, column], groups)
    exact = sums.astype(np.int64) + start
    low, high = int(exact.min(initial=0)), int(exact.max(initial=0))
    if low < _INT32_MIN or high > _INT32_MAX:
        worst = high if high > _INT32_MAX else low
        raise ValueError(f"sums must fit int32, but one is {worst}; scale the layer down")
    return exact.astype(np.int32)


def _add_tap(sums: Array, tap: Array, weights: Array, groups: int) -> None:
    """Add one kernel position: ``tap`` (N, OH, OW, C) times ``weights`` (M, C / groups)."""
    per_group = weights.shape[0] // groups
    if groups == 1:
        sums += np.matmul(tap, weights.T)
    elif weights.shape[1] == 1:
        sums += np.repeat(tap, per_group, axis=3) * weights[:, 0]
    else:
        for group, block in enumerate(np.split(weights, groups)):
            depth = weights.shape[1]
            sums[..., group * per_group : (group + 1) * per_group] += np.matmul(
                tap[..., group * depth : (group + 1) * depth], block.T
            )


def _per_channel(name: str, values: Any, count: int) -> npt.NDArray[np.int64]:
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"{name} must hold integers, not {array.dtype}")
    if array.shape != (count,):
        raise ValueError(f"{name} must have shape ({count},), not {array.shape}")
    return array.astype(np.int64)


def requantize(sums: Array, requantization: Requantization) -> npt.NDArray[np.int8]:
    """Return the int8 codes of int32 sums.

    Parameters
    ----------
    sums : integer array, shape (..., M)
        Each within int32.
    requantization : Requantization
        Scale for each of the M channels or one for all, rounding mode, zero point and clamp.

    Returns
    -------
    int8 array of the same shape

    Raises
    ------
    TypeError
        If the sums are no integers.
    ValueError
        If a sum leaves int32 or the number of channels does not match.
    """
    sums = np.asarray(sums)
    if not np.issubdtype(sums.dtype, np.integer):
        raise TypeError(f"sums must hold integers, not {sums.dtype}")
    acc = sums.astype(np.int64)
    if acc.min(initial=0) < _INT32_MIN or acc.max(initial=0) > _INT32_MAX:
        raise ValueError("sums must fit int32")
    if requantization.rounding == "fp32":
        scaled = _round_fp32(acc, _broadcast("scale", requantization.scale, acc))
    else:
        q = _broadcast("multiplier", requantization.multiplier, acc).astype(np.int64)
        e = _broadcast("shift", requantization.shift, acc).astype(np.int64)
        scaled = _ROUND[requantization.rounding](acc, q, e)
    low, high = requantization.clamp
    return np.clip(scaled + requantization.zero_point, low, high).astype(np.int8)


def _broadcast(name: str, values: Any, acc: Array) -> Array:
    array = np.asarray(values)
    channels = acc.shape[-1] if acc.ndim else 1
    if array.shape not in ((1,), (channels,)):
        raise ValueError(
            f"{name} must hold 1 or {channels} entries, one for each channel, not {array.shape}"
        )
    return array


def _doubled_high(acc: Array, q: Any, e: Any) -> Array:
    """b = ((acc << left) * q + 2**30) >> 31 with left = max(e, 0)."""
    # A value beyond 2**31 before the product leaves at least 2**30 after it (or 0 where q is 0),
    # far outside int8 and no longer shifted, so that limiting it keeps the clamped result exact
    # and the product within int64.
    shifted = np.clip(acc << np.maximum(e, 0), -(2**31), 2**31)
    return (shifted * q + 2**30) >> 31


def _round_double(acc: Array, q: Any, e: Any) -> Array:
    b = _doubled_high(acc, q, e)
    right = np.maximum(-e, 0)
    rest = b - ((b >> right) << right)
    half = (np.int64(1) << np.maximum(right - 1, 0)) - 1 + (b < 0)
    return np.where(right > 0, (b >> right) + (rest > half), b)


def _round_double_up(acc: Array, q: Any, e: Any) -> Array:
    b = _doubled_high(acc, q, e)
    right = np.maximum(-e, 0)
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
    return (b + half) >> right


def _round_single(acc: Array, q: Any, e: Any) -> Array:
    # |acc * q| < 2**62 and the half is at most 2**61, so int64 holds the sum.
    right = 31 - e
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
    return (acc * q + half) >> right


def _round_away(acc: Array, q: Any, e: Any) -> Array:
    return np.sign(acc) * _round_single(np.abs(acc), q, e)


def _round_fp32(acc: Array, scale: Array) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        product = acc.astype(np.float32) * scale.astype(np.float32)
    # np.rint rounds halves to even; the limit only keeps the conversion to int64 defined.
    return np.clip(np.rint(product), -(2.0**20), 2.0**20).astype(np.int64)


_ROUND = {
    "double": _round_double,
    "double_up": _round_double_up,
    "single": _round_single,
    "away": _round_away,
}


def golden_layer(
    layer: ConvLayer,
    inputs: Array,
    weights: Array,
    bias: Array | None = None,
    requantization: Requantization | None = None,
    weight_zero_points: Array | int | None = None,
) -> Array:
    """Return the layer's output: :func:`convolve`, then :func:`requantize`.

    Returns
    -------
    array, shape (N, OH, OW, M)
        int8, or the raw int32 sums where ``requantization`` is None.

    Raises
    ------
    TypeError, ValueError
        As the two functions.
    """
    sums = convolve(layer, inputs, weights, bias, weight_zero_points)
    return sums if requantization is None else requantize(sums, requantization)


# Other int8 operators of TFLite, needed to carry activations from one convolution to the next.


@dataclass(frozen=True)
class Quantized:
    """An int8 tensor with the scale and the zero point of its codes.

    Parameters
    ----------
    codes : int8 array
    scale : float
        A float32 value, as model files store it.
    zero_point : int
    """

    codes: Array
    scale: float
    zero_point: int


def _fixed_point(scale: float) -> tuple[int, int]:
    """Return (q, e) with scale = q * 2**(e - 31) rounded half away from zero."""
    fraction, e = math.frexp(scale)
    q = (int(fraction * 2**53) + 2**21) >> 22
    if q == 2**31:
        q, e = 2**30, e + 1
    return (0, 0) if e < -31 else (q, e)


def rescale(values: Array, scale: float) -> npt.NDArray[np.int64]:
    """Return int32 ``values`` times a real ``scale`` in the rounding mode "double"."""
    q, e = _fixed_point(float(scale))
    return _round_double(np.asarray(values).astype(np.int64), np.int64(q), np.int64(e))


def _codes(values: Array, zero_point: int, clamp: tuple[int, int]) -> npt.NDArray[np.int8]:
    return np.clip(values + zero_point, *clamp).astype(np.int8)


def _combine(
    a: Quantized,
    b: Quantized,
    sign: int,
    scale: float,
    zero_point: int,
    clamp: tuple[int, int],
) -> npt.NDArray[np.int8]:
    # Plain floats first: numpy would divide a float32 by a Python float in float32.
    a_scale, b_scale = float(a.scale), float(b.scale)
    twice = 2.0 * max(a_scale, b_scale)
    left = (a.codes.astype(np.int64) - a.zero_point) << 20
    right = (b.codes.astype(np.int64) - b.zero_point) << 20
    total = rescale(left, a_scale / twice) + sign * rescale(right, b_scale / twice)
    return _codes(rescale(total, twice / (2**20 * float(scale))), zero_point, clamp)


def add(
    a: Quantized,
    b: Quantized,
    scale: float,
    zero_point: int,
    clamp: tuple[int, int] = (-128, 127),
) -> npt.NDArray[np.int8]:
    """Return the codes of a + b with output ``scale`` and ``zero_point``; shapes broadcast."""
    return _combine(a, b, 1, scale, zero_point, clamp)


def subtract(
    a: Quantized,
    b: Quantized,
    scale: float,
    zero_point: int,
    clamp: tuple[int, int] = (-128, 127),
) -> npt.NDArray[np.int8]:
    """Return the codes of a - b with output ``scale`` and ``zero_point``; shapes broadcast."""
    return _combine(a, b, -1, scale, zero_point, clamp)


def multiply(
    a: Quantized,
    b: Quantized,
    scale: float,
    zero_point: int,
    clamp: tuple[int, int] = (-128, 127),
) -> npt.NDArray[np.int8]:
    """Return the codes of a * b with output ``scale`` and ``zero_point``; shapes broadcast."""
    product = (a.codes.astype(np.int64) - a.zero_point) * (b.codes.astype(np.int64) - b.zero_point)
    factor = float(a.scale) * float(b.scale) / float(scale)
    return _codes(rescale(product, factor), zero_point, clamp)


def _windows(
    codes: Array,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pads: tuple[int, int, int, int],
    fill: int,
) -> tuple[Array, Array]:
    """Return (taps, N, OH, OW, C) values, ``fill`` out of bounds, and (OH, OW) in-bounds counts."""
    top, bottom, left, right = pads
    edges = ((top, bottom), (left, right))
    x = np.pad(codes.astype(np.int64), ((0, 0), *edges, (0, 0)), constant_values=fill)
    inside = np.pad(np.ones(codes.shape[1:3], np.int64), edges)
    height = (x.shape[1] - kernel[0]) // stride[0] + 1
    width = (x.shape[2] - kernel[1]) // stride[1] + 1
    taps, counts = [], np.zeros((height, width), np.int64)
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            rows = slice(row, row + (height - 1) * stride[0] + 1, stride[0])
            columns = slice(column, column + (width - 1) * stride[1] + 1, stride[1])
            taps.append(x[:, rows, columns])
            counts += inside[rows, columns]
    return np.stack(taps), counts


def average_pool(
    codes: Array,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    clamp: tuple[int, int] = (-128, 127),
) -> npt.NDArray[np.int8]:
    """Return the average of the codes (N, H, W, C) over in-bounds positions, halves away from 0.

    Input and output share scale and zero point.
    """
    taps, counts = _windows(codes, kernel, stride, pads, 0)
    total, n = taps.sum(axis=0), counts[:, :, None]
    magnitude = (np.abs(total) + n // 2) // n
    return _codes(np.sign(total) * magnitude, 0, clamp)


def max_pool(
    codes: Array,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    clamp: tuple[int, int] = (-128, 127),
) -> npt.NDArray[np.int8]:
    """Return the maximum of the codes (N, H, W, C) over in-bounds positions."""
    taps, _ = _windows(codes, kernel, stride, pads, -128)
    return _codes(taps.max(axis=0), 0, clamp)


def mean(
    a: Quantized, axes: tuple[int, ...], scale: float, zero_point: int, keep_dims: bool = False
) -> npt.NDArray[np.int8]:
    """Return the codes of the mean over ``axes`` with output ``scale`` and ``zero_point``."""
    n = math.prod(a.codes.shape[axis] for axis in axes)
    total = a.codes.astype(np.int64).sum(axis=axes, keepdims=keep_dims) - a.zero_point * n
    q, e = _fixed_point(float(a.scale) / float(scale))
    # The division by n goes into the multiplier, with as many fraction bits as int64 leaves.
    k = min(n.bit_length() - 1, 32, 31 + e)
    q, e = (q << k) // n, e - k
    return _codes(_round_double(total, np.int64(q), np.int64(e)), zero_point, (-128, 127))


def pad(codes: Array, widths: Any, zero_point: int) -> npt.NDArray[np.int8]:
    """Return the codes with ``widths`` (a (before, after) pair for each axis) of ``zero_point``."""
    return np.pad(codes, widths, constant_values=np.int8(zero_point))
