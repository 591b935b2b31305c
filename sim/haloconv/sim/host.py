"""Operators that run on the host, in numpy: functions without a unit, and data movement.

Written from the definition of the reference kernels' arithmetic; every fixed-point step is an
exact integer.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.planner.network import HostNode, MoveNode, Network, NetworkTensor
from haloconv.sim import golden

__all__ = ["logistic", "resize_bilinear", "run_host", "run_move", "softmax", "softmax_float"]

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]

_ONE = (1 << 31) - 1
"""1 with no integer bits, as close as an int32 comes."""


# Fixed-point arithmetic on raw int32 values with 31 - integer_bits fraction bits


def _saturate(values: Int64) -> Int64:
    return np.clip(values, -(1 << 31), _ONE)


def _product(a: Any, b: Any) -> Int64:
    """Return a * b * 2**-31, halves away from zero."""
    exact = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    return _saturate(np.sign(exact) * ((np.abs(exact) + (1 << 30)) >> 31))


def _shift_right(values: Int64, bits: Any) -> Int64:
    """Return values / 2**bits, halves away from zero."""
    bits = np.asarray(bits, np.int64)
    half = np.where(bits > 0, np.int64(1) << np.maximum(bits - 1, 0), 0)
    return np.sign(values) * ((np.abs(values) + half) >> bits)


def _exp_below_zero(a: Int64, integer_bits: int) -> Int64:
    """Return exp(a), no integer bits, of a <= 0 with ``integer_bits`` (at most 5)."""
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    # a = -(a whole number of quarters) + (a rest in -1/4..0): a polynomial for the rest, and one
    # factor for each bit of the quarters.
    rest = (a & (quarter - 1)) - quarter
    x = (rest << integer_bits) + (1 << 28)  # around -1/8
    x2 = _product(x, x)
    x3, x4 = _product(x2, x), _product(x2, x2)
    third = 715827883
    tail = _shift_right(_product(_shift_right(x4, 2) + x3, third) + x2, 1)
    at_eighth = 1895147668  # exp(-1/8)
    result = _saturate(at_eighth + _product(at_eighth, x + tail))
    quarters = rest - a
    for exponent, factor in (
        (-2, 1672461947),
        (-1, 1302514674),
        (0, 790015084),
        (1, 290630308),
        (2, 39332535),
        (3, 720401),
        (4, 242),
    ):
        if exponent < integer_bits:
            bit = quarters >> (fraction_bits + exponent) & 1
            result = np.where(bit == 1, _product(result, factor), result)
    return np.where(a == 0, _ONE, result)


def _one_over_one_plus(a: Int64) -> Int64:
    """Return 1 / (1 + a) for a in 0..1, both without integer bits."""
    # (a + 1) / 2, halves up, then three Newton steps for its reciprocal with 2 integer bits.
    half = (a + _ONE + 1) >> 1
    x = 1515870810 + _product(half, -1010580540)  # 48/17 - 32/17 * half
    for _ in range(3):
        error = (1 << 29) - _product(half, x)
        x = x + _saturate(_product(x, error) << 2)
    return _saturate(x << 1)


def _greater_than_one(scale: float) -> tuple[int, int]:
    """Return (q, e) with scale = q * 2**(e - 31), q rounded half away."""
    fraction, e = math.frexp(scale)
    q = math.floor(fraction * 2.0**31 + 0.5)
    return (q >> 1, e + 1) if q == 1 << 31 else (q, e)


def _input_radius(integer_bits: int, left: int) -> int:
    """Return the largest input difference that does not leave ``integer_bits``."""
    return math.floor(((1 << integer_bits) - 1) * 2.0 ** (31 - integer_bits) / 2.0**left)


def softmax(codes: Array, scale: float, beta: float = 1.0) -> npt.NDArray[np.int8]:
    """Return the softmax along the last axis as TensorFlow Lite Micro computes it.

    Parameters
    ----------
    codes : int8 array
    scale : float
        Of ``codes``; their zero point does not matter.
    beta : float

    Returns
    -------
    int8 array of the same shape
        Scale 1/256, zero point -128.
    """
    x = np.asarray(codes).astype(np.int64)
    q, left = _greater_than_one(min(float(beta) * float(scale) * 2.0**26, 2.0**31 - 1.0))
    difference = x - x.max(axis=-1, keepdims=True)
    near = difference >= -_input_radius(5, left)
    scaled = _product(np.where(near, difference, 0) << max(left, 0), q)
    terms = np.where(near, _exp_below_zero(scaled, 5), 0)
    total = _shift_right(terms, 12).sum(axis=-1, keepdims=True)  # 12 integer bits
    # total = 2**over * (1 + rest)
    bits = np.vectorize(int.bit_length, otypes=[np.int64])(total)
    over = bits - 20
    rest = (total << (32 - bits)) - (np.int64(1) << 31)
    reciprocal = _one_over_one_plus(rest)
    result = _shift_right(_product(reciprocal, terms), over + 31 - 8)
    return np.where(near, np.clip(result - 128, -128, 127), -128).astype(np.int8)


def softmax_float(codes: Array, scale: float, beta: float = 1.0) -> npt.NDArray[np.int8]:
    """Return the softmax along the last axis as LiteRT computes it: float32 and a table of exp.

    Parameters and result as :func:`softmax`.
    """
    x = np.asarray(codes).astype(np.int64)
    step = np.float32(-(np.float32(scale) * np.float32(beta)))
    below = np.arange(256, dtype=np.float32) * step
    table = np.exp(below.astype(np.float64)).astype(np.float32)
    terms = table[x.max(axis=-1, keepdims=True) - x]
    # One after the other: float32 sums depend on the order.
    total = np.cumsum(terms, axis=-1, dtype=np.float32)[..., -1:]
    inverse = np.float32(1.0) / (total * np.float32(1 / 256))
    result = np.rint(terms * inverse).astype(np.int64)
    return np.clip(result - 128, -128, 127).astype(np.int8)


def logistic(codes: Array, scale: float, zero_point: int) -> npt.NDArray[np.int8]:
    """Return 1 / (1 + exp(-x)) as the reference kernel computes it.

    Parameters
    ----------
    codes : int8 array
    scale : float
    zero_point : int
        Of ``codes``.

    Returns
    -------
    int8 array of the same shape
        Scale 1/256, zero point -128.
    """
    x = np.asarray(codes).astype(np.int64) - zero_point
    q, e = _greater_than_one(float(scale) * 2.0**27)
    radius = _input_radius(4, e)
    inside = np.clip(x, -radius, radius)
    magnitude = np.abs(_shift_right(_product(inside << max(e, 0), q), max(-e, 0)))
    positive = _one_over_one_plus(_exp_below_zero(-magnitude, 4))
    result = np.where(x < 0, _ONE - positive, positive)
    result = np.where(magnitude == 0, 1 << 30, result)
    found = np.clip(_shift_right(result, 23) - 128, -128, 127)
    found = np.where(x <= -radius, -128, np.where(x >= radius, 127, found))
    return found.astype(np.int8)


def resize_bilinear(
    codes: Array,
    size: tuple[int, int],
    *,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> npt.NDArray[np.int8]:
    """Return the codes (N, H, W, C) resized to ``size``, with positions to 1/1024."""
    x = np.asarray(codes).astype(np.int64)

    def positions(extent: int, wanted: int) -> tuple[Int64, Int64, Int64]:
        """Positions before and after each output's, and its distance from the first."""
        if align_corners and wanted > 1:
            step = (1024 * (extent - 1) + (wanted - 1) // 2) // (wanted - 1)
        else:
            step = (1024 * extent + wanted // 2) // wanted
        at = np.arange(wanted, dtype=np.int64) * step
        if half_pixel_centers:
            at = at + step // 2 - 512
        before = np.maximum(np.where(at < 0, 0, at >> 10), 0)
        after = np.minimum((at + 1023) >> 10, extent - 1)
        return before, after, at - (before << 10)

    top, bottom, down = positions(x.shape[1], size[0])
    left, right, across = positions(x.shape[2], size[1])
    down, across = down[:, None, None], across[:, None]
    rows = [x[:, rows] for rows in (top, bottom)]
    above, below = (row[:, :, left] * (1024 - across) + row[:, :, right] * across for row in rows)
    total = above * (1024 - down) + below * down
    return _shift_right(total, 20).astype(np.int8)


# Nodes

_Function = Callable[[HostNode, list[Array], Network], Array]


def run_host(
    node: HostNode, tensors: Mapping[int, Array], network: Network
) -> list[npt.NDArray[Any]]:
    """Return the outputs of a node that runs on the host.

    Parameters
    ----------
    node : HostNode
    tensors : mapping of tensor index to array
        At least the node's inputs, in the shapes and types of the network.
    network : Network
        For scales, constants, and the target whose rounding is followed.

    Raises
    ------
    ValueError
        If the operator is unknown or an input is missing.
    """
    function = _FUNCTIONS.get(node.operator)
    if function is None:
        raise ValueError(
            f"a host operator must be one of {', '.join(_FUNCTIONS)}, not {node.operator!r}"
        )
    arrays = [_value(i, tensors, network) for i in node.options.get("operands", node.inputs)]
    output = network.tensors[node.outputs[0]]
    return [function(node, arrays, network).reshape(output.shape)]


def _value(index: int, tensors: Mapping[int, Array], network: Network) -> Array:
    if index in tensors:
        return tensors[index].reshape(network.tensors[index].shape)
    data = network.tensors[index].data
    if data is None:
        raise ValueError(f"tensors must hold tensor {index}, but hold {sorted(tensors)}")
    return data


def _ends(node: HostNode, network: Network) -> tuple[NetworkTensor, NetworkTensor]:
    return network.tensors[node.inputs[0]], network.tensors[node.outputs[0]]


def _run_softmax(node: HostNode, arrays: list[Array], network: Network) -> Array:
    # XNNPACK leaves SOFTMAX on int8 to the optimised kernel of LiteRT.
    function = softmax_float if network.target == "xnnpack" else softmax
    return function(arrays[0], _ends(node, network)[0].scale, node.options["beta"])


def _run_logistic(node: HostNode, arrays: list[Array], network: Network) -> Array:
    x = _ends(node, network)[0]
    return logistic(arrays[0], x.scale, x.zero_point)


def _run_quantize(node: HostNode, arrays: list[Array], network: Network) -> Array:
    x, y = _ends(node, network)
    limits = np.iinfo(y.dtype)
    if np.issubdtype(arrays[0].dtype, np.floating):
        # The limits keep the conversion to integers defined.
        real, step = arrays[0].astype(np.float32), np.float32(y.scale)
        if network.target == "xnnpack":
            whole = np.rint(real * (np.float32(1) / step))
        else:
            quotient = real / step
            whole = np.trunc(quotient)
            whole = whole + np.where(np.abs(quotient - whole) >= 0.5, np.sign(quotient), 0)
        codes = np.clip(whole, -(2.0**24), 2.0**24).astype(np.int64)
    else:
        codes = golden.rescale(arrays[0].astype(np.int64) - x.zero_point, x.scale / y.scale)
    return np.clip(codes + y.zero_point, limits.min, limits.max).astype(y.dtype)


def _run_dequantize(node: HostNode, arrays: list[Array], network: Network) -> Array:
    x, _ = _ends(node, network)
    return ((arrays[0].astype(np.int64) - x.zero_point) * np.float64(x.scale)).astype(np.float32)


def _run_binary(node: HostNode, arrays: list[Array], network: Network) -> Array:
    function = {"ADD": golden.add, "SUB": golden.subtract, "MUL": golden.multiply}[node.operator]
    a, b = (
        golden.Quantized(codes, network.tensors[i].scale, network.tensors[i].zero_point)
        for codes, i in zip(arrays, node.options["operands"], strict=True)
    )
    y = network.tensors[node.outputs[0]]
    return function(a, b, y.scale, y.zero_point, node.options["clamp"])


def _run_pool(node: HostNode, arrays: list[Array], network: Network) -> Array:
    average = node.operator == "AVERAGE_POOL_2D"
    function = golden.average_pool if average else golden.max_pool
    o = node.options
    return function(arrays[0], o["kernel"], o["stride"], o["pads"], o["clamp"])


def _run_mean(node: HostNode, arrays: list[Array], network: Network) -> Array:
    x, y = _ends(node, network)
    a = golden.Quantized(arrays[0], x.scale, x.zero_point)
    return golden.mean(a, node.options["axes"], y.scale, y.zero_point, node.options["keep_dims"])


def _run_resize(node: HostNode, arrays: list[Array], network: Network) -> Array:
    o = node.options
    return resize_bilinear(
        arrays[0],
        o["size"],
        align_corners=o["align_corners"],
        half_pixel_centers=o["half_pixel_centers"],
    )


def _run_gather(node: HostNode, arrays: list[Array], network: Network) -> Array:
    return arrays[0][:, node.options["rows"]][:, :, node.options["columns"]]


# Operators of ONNX, as ONNX Runtime computes them. Zero points are those of int8 codes; where the
# model has uint8, the runtime sees codes and zero points 128 above.


def _run_shift(node: HostNode, arrays: list[Array], network: Network) -> Array:
    codes = arrays[0].astype(np.int64) + node.options["by"]
    return codes.astype(_ends(node, network)[1].dtype)


def _run_onnx_quantize(node: HostNode, arrays: list[Array], network: Network) -> Array:
    quotient = arrays[0].astype(np.float32) / np.float32(node.options["scale"])
    whole = np.clip(np.rint(quotient), -(2.0**24), 2.0**24).astype(np.int64)
    return np.clip(whole + node.options["zero_point"], -128, 127).astype(np.int8)


def _run_onnx_dequantize(node: HostNode, arrays: list[Array], network: Network) -> Array:
    codes = arrays[0].astype(np.int64) - node.options["zero_point"]
    return codes.astype(np.float32) * np.float32(node.options["scale"])


def _run_pair_table(node: HostNode, arrays: list[Array], network: Network) -> Array:
    """The sum of every pair of codes is given."""
    operands = [codes.astype(np.int64) + 128 for codes in arrays]
    if "constant" in node.options:
        constant = node.options["constant"].astype(np.int64) + 128
        operands.insert(0 if node.options["constant_first"] else 1, constant)
    return node.options["table"][operands[0], operands[1]]


def _run_onnx_average(node: HostNode, arrays: list[Array], network: Network) -> Array:
    o = node.options
    (in_scale, scale), (in_zero, zero_point) = o["scales"], o["zero_points"]
    top, bottom, left, right = o["pads"]
    edges = ((0, 0), (top, bottom), (left, right), (0, 0))
    real = (arrays[0].astype(np.int64) - in_zero).astype(np.float32) * np.float32(in_scale)
    real = np.pad(real, edges)
    inside = np.pad(np.ones(arrays[0].shape[1:3], np.int64), edges[1:3])
    if o["count_include_pad"]:
        inside[:] = 1
    (rows, columns), (step_v, step_h) = o["kernel"], o["stride"]
    height = (real.shape[1] - rows) // step_v + 1
    width = (real.shape[2] - columns) // step_h + 1
    total = np.zeros((real.shape[0], height, width, real.shape[3]), np.float32)
    count = np.zeros((height, width), np.int64)
    # One position after the other: float32 sums depend on the order.
    for row in range(rows):
        for column in range(columns):
            down = slice(row, row + (height - 1) * step_v + 1, step_v)
            across = slice(column, column + (width - 1) * step_h + 1, step_h)
            total += real[:, down, across]
            count += inside[down, across]
    shift = 128 if o["unsigned"] else 0
    mean = total / count[:, :, None].astype(np.float32)
    code = np.rint(mean / np.float32(scale) + np.float32(zero_point + shift))
    return np.clip(code.astype(np.int64) - shift, *o["clamp"]).astype(np.int8)


_FUNCTIONS: dict[str, _Function] = {
    "ADD": _run_binary,
    "Add": _run_pair_table,
    "AveragePool": _run_onnx_average,
    "DequantizeLinear": _run_onnx_dequantize,
    "QLinearAdd": _run_pair_table,
    "QLinearAveragePool": _run_onnx_average,
    "QuantizeLinear": _run_onnx_quantize,
    "Shift": _run_shift,
    "AVERAGE_POOL_2D": _run_pool,
    "DEQUANTIZE": _run_dequantize,
    "LOGISTIC": _run_logistic,
    "MAX_POOL_2D": _run_pool,
    "MEAN": _run_mean,
    "MUL": _run_binary,
    "QUANTIZE": _run_quantize,
    "RESIZE_BILINEAR": _run_resize,
    "RESIZE_NEAREST_NEIGHBOR": _run_gather,
    "SOFTMAX": _run_softmax,
    "SUB": _run_binary,
}


def run_move(node: MoveNode, arrays: Sequence[Array], shape: Sequence[int]) -> Array:
    """Return the output of a node that only moves data.

    Parameters
    ----------
    node : MoveNode
    arrays : sequence of arrays
        The node's inputs, in the shapes of the network.
    shape : sequence of int
        Of the output.

    Raises
    ------
    ValueError
        If ``kind`` is unknown or the shapes do not fit it.
    """
    x, o = np.asarray(arrays[0]), node.options
    if node.kind == "view":
        moved = x
    elif node.kind == "concatenate":
        moved = np.concatenate([np.asarray(a) for a in arrays], axis=o["axis"])
    elif node.kind == "pad":
        moved = np.pad(x, o["pads"], constant_values=x.dtype.type(o["fill"]))
    elif node.kind == "slice":
        ranges = zip(o["begin"], o["end"], o["strides"], strict=True)
        moved = x[tuple(slice(*bounds) for bounds in ranges)]
    elif node.kind == "transpose":
        moved = x.transpose(o["permutation"])
    elif node.kind == "repeat":
        moved = x
        for axis, factor in enumerate(o["factors"]):
            moved = moved.repeat(factor, axis=axis)
    else:
        raise ValueError(
            f"kind must be view, concatenate, pad, slice, transpose or repeat, not {node.kind!r}"
        )
    return np.ascontiguousarray(moved).reshape(tuple(shape))
