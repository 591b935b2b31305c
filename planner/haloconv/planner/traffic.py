"""Bytes between memory and engine: the least a layer needs, and what a tiled plan moves.

The two figures answer different questions and are never shown as one. Formulas and their worked
cases: docs/formulas.md, "Traffic".
"""

from dataclasses import dataclass

import numpy as np

from haloconv.planner.layer import ConvLayer
from haloconv.planner.tile import Tile

__all__ = [
    "LoopTrips",
    "TensorBytes",
    "is_channelwise",
    "loop_trips",
    "moved_bytes",
    "span_extents",
    "unique_bytes",
]


@dataclass(frozen=True)
class TensorBytes:
    """Bytes by tensor.

    ``sums`` counts int32 partial sums that leave the engine and come back; ``output`` the finished
    elements. Requantisation parameters and programs are no tensors and are counted elsewhere.
    """

    input: int
    weight: int
    bias: int
    sums: int
    output: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.input + self.weight + self.bias + self.sums + self.output


@dataclass(frozen=True)
class LoopTrips:
    """Trips of each tile loop; ``groups`` is always the outermost."""

    groups: int
    h: int
    w: int
    m: int
    c: int

    @property
    def tiles(self) -> int:
        """Tiles of the layer."""
        return self.groups * self.h * self.w * self.m * self.c


def is_channelwise(layer: ConvLayer) -> bool:
    """Return True for depthwise layers of multiplier 1, whose m and c loops are one.

    They run in "depthwise" mode; every other grouped layer runs group by group as a dense layer.
    """
    return layer.is_depthwise and layer.out_channels == layer.in_channels


def loop_trips(layer: ConvLayer, tile: Tile) -> LoopTrips:
    """Return the trips of the tile loops, ceil(extent / tile) each.

    A channelwise layer has a single group of M channels and no loop c.

    Raises
    ------
    ValueError
        If a tile of a channelwise layer has more than one input channel.
    """
    height = -(-layer.out_height // tile.height)
    width = -(-layer.out_width // tile.width)
    if is_channelwise(layer):
        if tile.in_channels != 1:
            raise ValueError(
                f"a tile of a depthwise layer must have 1 input channel, not {tile.in_channels}; "
                "each of its output channels brings its own"
            )
        return LoopTrips(1, height, width, -(-layer.out_channels // tile.out_channels), 1)
    return LoopTrips(
        layer.groups,
        height,
        width,
        -(-layer.group_out_channels // tile.out_channels),
        -(-layer.group_in_channels // tile.in_channels),
    )


def span_extents(layer: ConvLayer, axis: int, size: int) -> tuple[int, ...]:
    """Return the input rows (axis 0) or columns (axis 1) inside the tensor under each tile.

    Tile i of ``size`` outputs spans (t-1)S + (R-1)D + 1 inputs from i*size*S - pad, t being its
    outputs that exist; what lies outside the tensor is generated and not counted. A tile wholly
    in the padding has 0.
    """
    out = (layer.out_height, layer.out_width)[axis]
    extent = (layer.in_height, layer.in_width)[axis]
    pad = layer.pads[2 * axis]
    stride, window = layer.stride[axis], layer.window[axis]
    rows: list[int] = []
    for first in range(0, out, size):
        last = min(first + size, out) - 1
        begin = max(first * stride - pad, 0)
        end = min(last * stride + window - pad, extent)
        rows.append(max(end - begin, 0))
    return tuple(rows)


def _touched(layer: ConvLayer, axis: int) -> int:
    """Count the input rows (axis 0) or columns (axis 1) under at least one tap."""
    out = (layer.out_height, layer.out_width)[axis]
    extent = (layer.in_height, layer.in_width)[axis]
    starts = np.arange(out) * layer.stride[axis] - layer.pads[2 * axis]
    hit = np.zeros(extent, dtype=bool)
    for tap in range(layer.kernel[axis]):
        positions = starts + tap * layer.dilation[axis]
        hit[positions[(positions >= 0) & (positions < extent)]] = True
    return int(hit.sum())


def unique_bytes(layer: ConvLayer, raw: bool = False) -> TensorBytes:
    """Return the bytes that move if every touched tensor byte moves exactly once.

    No schedule moves fewer. An input byte is touched if some tap of some window falls on it: rows
    and columns that a stride beyond the window or a dilation skips, or that are left over at the
    end, are not. Weights, and 4 bytes of bias a channel where there is one, are all touched;
    outputs take 1 byte, or 4 with ``raw`` (int32 sums out).
    """
    outputs = layer.out_height * layer.out_width * layer.out_channels
    return TensorBytes(
        input=layer.in_channels * _touched(layer, 0) * _touched(layer, 1),
        weight=layer.out_channels * layer.group_in_channels * layer.taps,
        bias=4 * layer.out_channels if layer.has_bias else 0,
        sums=0,
        output=outputs * (4 if raw else 1),
    )


def moved_bytes(layer: ConvLayer, tile: Tile, order: str, raw: bool = False) -> TensorBytes:
    """Return the bytes that a plan moves with its tile loops nested in ``order``.

    An operand moves only when its tile index changes; halos move again with every tile, clipped
    to the tensor; edge tiles move only what is valid. With n_x trips of loop x, and inner(op) the
    innermost loop of more than one trip that the operand depends on::

        input  = C * sum_h(rows) * sum_w(columns) * (n_m if m lies outside inner(input), else 1)
        weight = M * C/groups * taps * product of n_h, n_w that lie outside inner(weight)
        sums   = 8 * OH*OW*M * (v - 1),  v = n_c if c lies outside inner(sums), else 1
        bias   = 4 * M * (product of n_h, n_w that lie outside m, if n_m > 1)
        output = OH*OW*M, 4 times that with ``raw``

    The input depends on h, w, c; the weights on m, c; the sums on h, w, m. Depthwise layers of
    multiplier 1 have no loop c, and their input depends on m. Convolution groups are the outermost
    loop of every operand. The first channel tile of an output starts from the bias, so the bias is
    not wanted again in later ones.

    Parameters
    ----------
    layer : ConvLayer
    tile : Tile
        Larger than the layer is as large as the layer.
    order : str
        A permutation of "hwmc", outer to inner. The engine runs those of
        :data:`~haloconv.planner.tile.ORDERS`.
    raw : bool
        int32 sums instead of int8 results.

    Raises
    ------
    ValueError
        For an order that is no permutation of "hwmc".
    """
    if sorted(order) != sorted("hwmc"):
        raise ValueError(f"order must be a permutation of 'hwmc', not {order!r}")
    trips = loop_trips(layer, tile)
    count = {"h": trips.h, "w": trips.w, "m": trips.m, "c": trips.c}

    def outside(loops: str, operand: str) -> int:
        """Multiply the trips of ``loops`` that lie outside the operand's innermost real loop."""
        inner = max((order.index(x) for x in operand if count[x] > 1), default=-1)
        product = 1
        for loop in loops:
            if order.index(loop) < inner:
                product *= count[loop]
        return product

    rows = sum(span_extents(layer, 0, tile.height))
    columns = sum(span_extents(layer, 1, tile.width))
    outputs = layer.out_height * layer.out_width * layer.out_channels
    weights = layer.out_channels * layer.group_in_channels * layer.taps
    passes = 1 if is_channelwise(layer) else outside("m", "hwc")
    return TensorBytes(
        input=layer.in_channels * rows * columns * passes,
        weight=weights * outside("hw", "mc"),
        bias=4 * layer.out_channels * outside("hw", "m") if layer.has_bias else 0,
        sums=8 * outputs * (outside("c", "hwm") - 1),
        output=outputs * (4 if raw else 1),
    )
