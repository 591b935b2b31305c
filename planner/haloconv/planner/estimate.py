"""The estimated cycles of a tile, which the search compares.

Tiles run in the order of their loops, and the load of one tile runs while another computes::

    cycles = START + latency + load(0) + busy(0) + sum of max(busy, load) of the others + END

so each load is held against the computing of its own tile, which stands for its neighbour's of
nearly the same size. ``busy`` = max(compute + TURN, write beats). With t = tile sizes (smaller at
the edges), taps = Rh*Rw, g over groups of at most Pm output channels, v channels in g, K cycles of
multiplying and D of draining:

* channel mode: compute = th*tw * sum_g max(K, D), K = taps*ceil(tc/Pr), D = ceil(v/Q)
* row mode: compute = th * sum over runs of n <= Pr columns, sum_g max(K, D), K = taps*tc
  (depthwise: taps), D = n*ceil(v/Q)
* writes, with the last channel tile: th*tw * sum_g ceil(v*out/bus) beats; ceil(th*tw*M*out/bus)
  where a tile holds all M channels and writes them in the order of memory (channel mode, or
  M <= Pm)
* input load: rows*columns * max(ceil(tc/word), ceil(tc/bus)); a tile with all channels of the
  tensor reads whole rows: rows * max(columns*ceil(C/word), ceil(columns*C/bus))
* weight load: max(chunks, ceil(bytes/bus)), chunks = tm*taps*ceil(tc/Pr) in channel mode,
  ceil(tm/Pm)*taps*tc in row mode, ceil(tm/Pm)*taps in depthwise mode
* bias: max(tm, ceil(4*tm/bus)); scales of 6 bytes a channel (5 without weight zero points, none
  for raw sums) alike; where either is loaded, K and DRAIN more, as their table is free only when
  the tile before it has reached the drain
* every tile load: LOAD and the latency of the memory, as a buffer half is asked for only when the
  tile before has left it; INPUT more where the input moves

A tile loads what its index changes, as in :func:`~haloconv.planner.traffic.moved_bytes`. Every
tile but the last along an axis counts with the rows of the fullest of them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import release_latency, row_cycles
from haloconv.planner.layer import ConvLayer
from haloconv.planner.tile import Tile

__all__ = [
    "END_CYCLES",
    "INPUT_CYCLES",
    "START_CYCLES",
    "TURN_CYCLES",
    "Axis",
    "EngineTerms",
    "Floats",
    "Ints",
    "axis_geometry",
    "ceil",
    "estimate_cycles",
    "estimate_sizes",
    "input_extents",
    "layer_axis",
    "where",
]

START_CYCLES = 126
"""From start to the first tile load, beside the latency of the memory: program and set-up."""
END_CYCLES = 30
"""From the last multiplication to the last write: drain, requantiser and write port."""

TURN_CYCLES = 2
"""From the last step of a tile to the first of the next."""
LOAD_CYCLES = 7
"""What a tile load takes beside its chunks and the latency of the memory."""
INPUT_CYCLES = 2
"""What a load of inputs takes beside its chunks."""
DRAIN_CYCLES = 5
"""From the release of a tile's parameters to the first request for the next ones."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def ceil(a: Any, b: Any) -> Any:
    return -(-a // b)


def where(condition: Any, then: Any, other: Any) -> Any:
    """Choose element by element, as numpy.where, whose stub loses the type of its result."""
    return np.where(condition, then, other)  # pyright: ignore[reportUnknownVariableType]


@dataclass(frozen=True)
class Axis:
    """Tile sizes along the rows or the columns, and what they read; arrays of equal length.

    ``first`` and ``full`` are the inputs under the first and under the fullest tile but the last,
    ``edge`` under the last, ``total`` the exact sum over all tiles.
    """

    size: Ints
    trips: Ints
    edge_size: Ints
    full: Ints
    edge: Ints
    total: Ints

    def take(self, index: Ints) -> "Axis":
        return Axis(
            self.size[index],
            self.trips[index],
            self.edge_size[index],
            self.full[index],
            self.edge[index],
            self.total[index],
        )


def axis_geometry(layer: ConvLayer, axis: int) -> tuple[int, int, int, int, int]:
    """Return outputs, inputs, pad before, stride and window along the rows or the columns."""
    return (
        (layer.out_height, layer.out_width)[axis],
        (layer.in_height, layer.in_width)[axis],
        layer.pads[2 * axis],
        layer.stride[axis],
        layer.window[axis],
    )


def layer_axis(layer: ConvLayer, axis: int, size: Ints) -> Axis:
    return input_extents(*axis_geometry(layer, axis), size)


def input_extents(out: int, extent: int, pad: int, stride: int, window: int, size: Ints) -> Axis:
    """Work out the input extents of every tile of every size, all sizes at once."""
    trips = -(-out // size)
    starts = np.cumsum(trips) - trips
    step = np.repeat(size, trips)
    first = (np.arange(step.size) - np.repeat(starts, trips)) * step
    begin = np.clip(first * stride - pad, 0, extent)
    end = (np.minimum(first + step, out) - 1) * stride + (window - pad)
    inputs = np.maximum(np.minimum(end, extent) - begin, 0)
    total = np.add.reduceat(inputs, starts)
    last = starts + trips - 1
    edge = inputs[last]
    inputs[last] = 0
    full = np.maximum.reduceat(inputs, starts)
    return Axis(size, trips, out - (trips - 1) * size, full, edge, total)


@dataclass(frozen=True)
class EngineTerms:
    """Numbers of one layer on one engine in one mode, under short names for the formulas."""

    layer: ConvLayer
    config: EngineConfig
    mode: str
    raw: bool
    latency: int

    @property
    def channels_in(self) -> int:
        """Input channels of the loop c; 1 for depthwise."""
        return 1 if self.mode == "depthwise" else self.layer.group_in_channels

    @property
    def channels_out(self) -> int:
        """Output channels of the loop m."""
        layer = self.layer
        return layer.out_channels if self.mode == "depthwise" else layer.group_out_channels

    @property
    def groups(self) -> int:
        """Convolution groups that run one after the other."""
        return 1 if self.mode == "depthwise" else self.layer.groups

    @property
    def out_bytes(self) -> int:
        return 4 if self.raw else 1

    @property
    def drain(self) -> int:
        """Drain cycles of Pm channels."""
        return self.config.group_steps * row_cycles(self.config)

    def drain_rows(self, channels: Any) -> Any:
        """Rows of up to Q sums of the channels of a tile at one position."""
        full, rest = channels // self.config.out_lanes, channels % self.config.out_lanes
        return full * self.config.group_steps + ceil(rest, self.config.results_per_cycle)

    def drains(self, channels: Any) -> Any:
        """Drain cycles of the channels of a tile at one position."""
        return self.drain_rows(channels) * row_cycles(self.config)

    def input_row(self, columns: Any, channels: Any, tensor: Any) -> Any:
        """Cycles to load a row of ``columns`` pixels; ``tensor`` where all channels are read."""
        config, every = self.config, self.layer.in_channels
        per_word = config.out_lanes if self.mode == "depthwise" else config.word_bytes
        chunks = ceil(channels, per_word)
        pixels = columns * np.maximum(chunks, ceil(channels, config.bus_bytes))
        row = np.maximum(columns * chunks, ceil(columns * every, config.bus_bytes))
        return where(tensor, row, pixels)

    def weights(self, tc: Any, tm: Any) -> Any:
        """Cycles to load the weights of a tile."""
        config, taps = self.config, self.layer.taps
        if self.mode == "channel":
            chunks = tm * (taps * ceil(tc, config.split_lanes))
        else:
            chunks = ceil(tm, config.out_lanes) * (taps * tc)
        return np.maximum(chunks, ceil(tm * tc * taps, config.bus_bytes))

    @property
    def load(self) -> int:
        """Cycles of a tile load beside its chunks."""
        return LOAD_CYCLES + self.latency

    def parameters(self, tm: Any, k: Any) -> Any:
        """Cycles to load biases and scales of a tile; ``k`` of multiplying a group of sums."""
        bus = self.config.bus_bytes
        if self.raw and not self.layer.has_bias:
            return (tm + k) * 0
        cycles = k + (release_latency(self.config) + DRAIN_CYCLES)
        if self.layer.has_bias:
            cycles = cycles + np.maximum(tm, ceil(4 * tm, bus))
        if not self.raw:
            each = 6 if self.config.weight_zero_points else 5
            cycles = cycles + np.maximum(tm, ceil(each * tm, bus))
        return cycles

    def write_row(self, tm: Any) -> Any:
        """Write beats of a tile's channels at one position, each group on its own."""
        lanes, bus, out = self.config.out_lanes, self.config.bus_bytes, self.out_bytes
        return tm // lanes * ceil(lanes * out, bus) + ceil(tm % lanes * out, bus)

    def in_order(self, tm: Any) -> Any:
        """True where a tile writes its bytes in the order of memory."""
        every = self.layer.out_channels
        if self.mode != "channel" and every > self.config.out_lanes:
            return tm < 0
        return tm == every


def estimate_sizes(engine: EngineTerms, order: str, h: Axis, w: Axis, tc: Ints, tm: Ints) -> Ints:
    """Estimate the cycles of N candidates; every array has N elements.

    The tiles fall into classes by loop m (first, middle, last), loops h and w (the first tile;
    full or edge on each axis), and loop c (first, middle, last): arrays of up to (3, 5, 3, N).
    """
    config, taps = engine.config, engine.layer.taps
    pm, pr, bus = config.out_lanes, config.split_lanes, config.bus_bytes
    channels_in, channels_out = engine.channels_in, engine.channels_out
    one = np.ones_like(tc)

    def thirds(size: Ints, extent: int) -> tuple[Ints, Ints, Ints]:
        """Trips, then sizes and counts of the first, the middle and the last tile."""
        trips = ceil(extent, size)
        sizes = np.stack([np.minimum(size, extent), size, extent - (trips - 1) * size])
        counts = np.stack([one, np.maximum(trips - 2, 0), (trips > 1) * one])
        if trips.max() == 1:
            return trips, sizes[:1], counts[:1]
        return trips, sizes, counts

    trips_m, size_m, count_m = thirds(tm, channels_out)
    trips_c, size_c, count_c = thirds(tc, channels_in)
    size_m, count_m = size_m[:, None, None], count_m[:, None, None]
    size_c, count_c = size_c[None, None], count_c[None, None]
    # Class 0 is the first tile; 1..4 are the others by (full, edge) rows and columns.
    whole_h, whole_w = h.trips - 1, w.trips - 1
    count_hw = np.stack([one, whole_h * whole_w, whole_h, whole_w, one])
    first = np.where(whole_h > 0, np.where(whole_w > 0, 1, 2), np.where(whole_w > 0, 3, 4))
    count_hw[first, np.arange(first.size)] -= 1
    first_h, first_w = whole_h > 0, whole_w > 0

    def spread(axis_full: Ints, axis_edge: Ints, starts: Any, edges: tuple[int, ...]) -> Ints:
        parts = [np.where(starts, axis_full, axis_edge)]
        parts += [axis_edge if edge else axis_full for edge in edges]
        return np.stack(parts)[None, :, None]

    th = spread(h.size, h.edge_size, first_h, (0, 0, 1, 1))
    rows = spread(h.full, h.edge, first_h, (0, 0, 1, 1))
    tw = spread(w.size, w.edge_size, first_w, (0, 1, 0, 1))
    columns = spread(w.full, w.edge, first_w, (0, 1, 0, 1))
    count_hw = count_hw[None, :, None]

    full_groups, rest = size_m // pm, size_m % pm
    drain, drain_rest = engine.drain, engine.drains(rest)
    some = rest > 0
    if engine.mode == "channel":
        k = taps * ceil(size_c, pr)
        compute = th * tw * (full_groups * np.maximum(k, drain) + some * np.maximum(k, drain_rest))
    else:
        k = taps * size_c
        left = tw % pr
        whole = full_groups * np.maximum(k, pr * drain) + some * np.maximum(k, pr * drain_rest)
        part = full_groups * np.maximum(k, left * drain) + some * np.maximum(k, left * drain_rest)
        compute = th * (tw // pr * whole + (left > 0) * part)
    beats: Ints = where(
        engine.in_order(size_m),
        ceil(th * tw * (engine.layer.out_channels * engine.out_bytes), bus),
        th * tw * engine.write_row(size_m),
    )
    # Written with the last channel tile, which is the first where there is only one.
    last_c = np.zeros(size_c.shape, dtype=bool)
    last_c[..., -1, :] = True
    last_c[..., 0, :] |= trips_c == 1
    busy = np.maximum(compute + TURN_CYCLES, last_c * beats)

    depthwise = engine.mode == "depthwise"
    channels = size_m if depthwise else size_c
    row = engine.input_row(columns, channels, channels == engine.layer.in_channels)
    load_input = rows * row + INPUT_CYCLES
    load_weight = engine.weights(size_c, size_m)
    load_parameters = engine.parameters(size_m, k)

    at_m = np.array([True, False, False])[: len(size_m), None, None, None]
    at_hw = np.array([True, False, False, False, False])[:, None, None]
    at_c = np.array([True, False, False])[: size_c.shape[2], None]
    many_m, many_c, many_hw = trips_m > 1, trips_c > 1, h.trips * w.trips > 1
    m_inside = order == "hwmc"
    moves_input = at_m | many_c | depthwise | ((not m_inside) & many_hw)
    moves_weight = at_hw | many_c | (m_inside & many_m)
    moves_parameters = at_c & (at_hw | (m_inside & many_m))
    load = moves_input * load_input + moves_weight * load_weight
    load = load + moves_parameters * load_parameters + engine.load

    times = np.maximum(busy, load) * (count_m * count_hw * count_c)
    tiles: Ints = times.sum(axis=(0, 1, 2)) * engine.groups
    exposed: Ints = np.minimum(
        np.broadcast_to(busy, times.shape)[0, 0, 0], np.broadcast_to(load, times.shape)[0, 0, 0]
    )
    return tiles + exposed + (START_CYCLES + END_CYCLES + engine.latency)


def estimate_cycles(
    layer: ConvLayer,
    config: EngineConfig,
    mode: str,
    order: str,
    tiles: NDArray[np.integer[Any]] | list[Tile],
    *,
    latency: int = 16,
    raw: bool = False,
) -> Ints:
    """Return the estimated cycles of many tiles of a layer by the formula of this module.

    Parameters
    ----------
    layer : ConvLayer
    config : EngineConfig
    mode, order : str
        Of :data:`~haloconv.planner.tile.MODES` and :data:`~haloconv.planner.tile.ORDERS`.
    tiles : list of Tile, or int array of shape (N, 4)
        Height, width, input channels, output channels. Larger than the layer is as the layer.
    latency : int
        Cycles from a read request to its first beat.
    raw : bool
        int32 sums instead of int8 results.

    Returns
    -------
    int64 array of shape (N,)
    """
    sizes = (
        [(t.height, t.width, t.in_channels, t.out_channels) for t in tiles]
        if isinstance(tiles, list)
        else tiles
    )
    engine = EngineTerms(layer, config, mode, raw, latency)
    table = np.asarray(sizes, dtype=np.int64).reshape(-1, 4)
    limit = (layer.out_height, layer.out_width, engine.channels_in, engine.channels_out)
    table = np.minimum(table, limit)
    h = layer_axis(layer, 0, table[:, 0])
    w = layer_axis(layer, 1, table[:, 1])
    return estimate_sizes(engine, order, h, w, table[:, 2], table[:, 3])
