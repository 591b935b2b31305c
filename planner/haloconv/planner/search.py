"""The search for the best tile of a layer.

Each candidate has three figures: estimated cycles, moved bytes and storage bytes. The search
returns a least one, compared by the chosen objective first and the other two after it. The cycles
of the chosen plan are then worked out tile by tile by the schedule.

What is searched
----------------
Both engine orders, every mode that suits the layer, and every size of a tile along extents of few
outputs or channels. Larger extents are thinned out: the smallest size of each trip count (halos,
fetches and sums depend on little else), that size rounded up to whole lanes, words and beats, and
sizes that take fewer steps of lanes than smaller ones, or read less as a halo falls into the
padding. A lower bound of the estimate leaves few candidates to estimate, and a walk over the
neighbours of the winner ends the search. Tests hold the result against every tile of random
layers; with thinning forced upon small extents, about one result in a thousand was not the least,
by up to 2 percent.

The estimate
------------
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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.latency import lanes_latency
from haloconv.planner.layer import ConvLayer
from haloconv.planner.storage import Storage, tile_storage
from haloconv.planner.tile import ORDERS, Tile, tile_words
from haloconv.planner.traffic import is_channelwise, loop_trips, moved_bytes
from haloconv.planner.validate import check_int

__all__ = ["OBJECTIVES", "Candidate", "estimate_cycles", "search_tiles", "size_engine"]

OBJECTIVES = ("cycles", "bytes", "storage")
"""What a search may put first; the other two break ties in this order."""

START_CYCLES = 44
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
"""From the last sum of a group, behind the lanes, to the release of the tile's parameters."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """A tile, how the engine runs it, and its three figures."""

    tile: Tile
    mode: str
    order: str
    estimated_cycles: int
    moved_bytes: int
    storage: Storage

    def figures(self, objective: str = "cycles") -> tuple[int, int, int]:
        """Return the three figures, the objective first, then cycles, bytes, storage."""
        values = {
            "cycles": self.estimated_cycles,
            "bytes": self.moved_bytes,
            "storage": self.storage.double_buffered,
        }
        rest = [values[name] for name in OBJECTIVES if name != objective]
        return values[objective], rest[0], rest[1]


def _ceil(a: Any, b: Any) -> Any:
    return -(-a // b)


def _where(condition: Any, then: Any, other: Any) -> Any:
    """Choose element by element, as numpy.where, whose stub loses the type of its result."""
    return np.where(condition, then, other)  # pyright: ignore[reportUnknownVariableType]


@dataclass(frozen=True)
class _Axis:
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

    def take(self, index: Ints) -> "_Axis":
        return _Axis(
            self.size[index],
            self.trips[index],
            self.edge_size[index],
            self.full[index],
            self.edge[index],
            self.total[index],
        )


def _geometry(layer: ConvLayer, axis: int) -> tuple[int, int, int, int, int]:
    """Return outputs, inputs, pad before, stride and window along the rows or the columns."""
    return (
        (layer.out_height, layer.out_width)[axis],
        (layer.in_height, layer.in_width)[axis],
        layer.pads[2 * axis],
        layer.stride[axis],
        layer.window[axis],
    )


def _axis(layer: ConvLayer, axis: int, size: Ints) -> _Axis:
    return _extents(*_geometry(layer, axis), size)


def _extents(out: int, extent: int, pad: int, stride: int, window: int, size: Ints) -> _Axis:
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
    return _Axis(size, trips, out - (trips - 1) * size, full, edge, total)


@lru_cache(maxsize=512)
def _every_size(
    out: int, extent: int, pad: int, stride: int, window: int
) -> tuple[_Axis, tuple[int, ...]]:
    """Return every tile size along an axis, and those that read less than any smaller one.

    Of the sizes with the same number of tiles a larger one reads less where a halo falls into the
    padding.
    """
    every = _extents(out, extent, pad, stride, window, np.arange(1, out + 1))
    keep = every.size[_new_least(every.trips, every.total)]
    return every, tuple(keep.tolist())


@dataclass(frozen=True)
class _Engine:
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
        return self.config.group_steps

    def drains(self, channels: Any) -> Any:
        """Drain cycles of the channels of a tile at one position."""
        full, rest = channels // self.config.out_lanes, channels % self.config.out_lanes
        return full * self.drain + _ceil(rest, self.config.results_per_cycle)

    def input_row(self, columns: Any, channels: Any, tensor: Any) -> Any:
        """Cycles to load a row of ``columns`` pixels; ``tensor`` where all channels are read."""
        config, every = self.config, self.layer.in_channels
        per_word = config.out_lanes if self.mode == "depthwise" else config.word_bytes
        chunks = _ceil(channels, per_word)
        pixels = columns * np.maximum(chunks, _ceil(channels, config.bus_bytes))
        row = np.maximum(columns * chunks, _ceil(columns * every, config.bus_bytes))
        return _where(tensor, row, pixels)

    def weights(self, tc: Any, tm: Any) -> Any:
        """Cycles to load the weights of a tile."""
        config, taps = self.config, self.layer.taps
        if self.mode == "channel":
            chunks = tm * (taps * _ceil(tc, config.split_lanes))
        else:
            chunks = _ceil(tm, config.out_lanes) * (taps * tc)
        return np.maximum(chunks, _ceil(tm * tc * taps, config.bus_bytes))

    @property
    def load(self) -> int:
        """Cycles of a tile load beside its chunks."""
        return LOAD_CYCLES + self.latency

    def parameters(self, tm: Any, k: Any) -> Any:
        """Cycles to load biases and scales of a tile; ``k`` of multiplying a group of sums."""
        bus = self.config.bus_bytes
        if self.raw and not self.layer.has_bias:
            return (tm + k) * 0
        cycles = k + (lanes_latency(self.config) + DRAIN_CYCLES)
        if self.layer.has_bias:
            cycles = cycles + np.maximum(tm, _ceil(4 * tm, bus))
        if not self.raw:
            each = 6 if self.config.weight_zero_points else 5
            cycles = cycles + np.maximum(tm, _ceil(each * tm, bus))
        return cycles

    def write_row(self, tm: Any) -> Any:
        """Write beats of a tile's channels at one position, each group on its own."""
        lanes, bus, out = self.config.out_lanes, self.config.bus_bytes, self.out_bytes
        return tm // lanes * _ceil(lanes * out, bus) + _ceil(tm % lanes * out, bus)

    def in_order(self, tm: Any) -> Any:
        """True where a tile writes its bytes in the order of memory."""
        every = self.layer.out_channels
        if self.mode != "channel" and every > self.config.out_lanes:
            return tm < 0
        return tm == every


def _estimate(engine: _Engine, order: str, h: _Axis, w: _Axis, tc: Ints, tm: Ints) -> Ints:
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
        trips = _ceil(extent, size)
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
    drain, drain_rest = engine.drain, _ceil(rest, config.results_per_cycle)
    some = rest > 0
    if engine.mode == "channel":
        k = taps * _ceil(size_c, pr)
        compute = th * tw * (full_groups * np.maximum(k, drain) + some * np.maximum(k, drain_rest))
    else:
        k = taps * size_c
        left = tw % pr
        whole = full_groups * np.maximum(k, pr * drain) + some * np.maximum(k, pr * drain_rest)
        part = full_groups * np.maximum(k, left * drain) + some * np.maximum(k, left * drain_rest)
        compute = th * (tw // pr * whole + (left > 0) * part)
    beats: Ints = _where(
        engine.in_order(size_m),
        _ceil(th * tw * (engine.layer.out_channels * engine.out_bytes), bus),
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
    engine = _Engine(layer, config, mode, raw, latency)
    table = np.asarray(sizes, dtype=np.int64).reshape(-1, 4)
    limit = (layer.out_height, layer.out_width, engine.channels_in, engine.channels_out)
    table = np.minimum(table, limit)
    h = _axis(layer, 0, table[:, 0])
    w = _axis(layer, 1, table[:, 1])
    return _estimate(engine, order, h, w, table[:, 2], table[:, 3])


# --- the candidates -------------------------------------------------------------------------


FEW_OUTPUTS = 12
"""Rows or columns of at most this many are tried with every tile size."""
FEW_CHANNELS = 32
"""Channels of at most this many are tried with every tile size."""
MANY = 96
"""Outputs along an axis of which every tile size may be tried without waiting long."""


def _per_trip(extent: int) -> Ints:
    """Return the smallest size for each number of tiles that ``extent`` can be cut into."""
    size = np.arange(1, extent + 1)
    trips = _ceil(extent, size)
    return size[np.append(True, trips[1:] != trips[:-1])]


@lru_cache(maxsize=512)
def _rounded(extent: int, few: int, *steps: int) -> Ints:
    """Return the smallest sizes by trip count, and those that suit lanes or words of ``steps``.

    All sizes of an extent of at most ``few``.
    """
    if extent <= few:
        return np.arange(1, extent + 1)
    base = _per_trip(extent)
    every = np.arange(1, extent + 1)
    trips = _ceil(extent, every)
    edge = extent - (trips - 1) * every
    sizes = [base]
    for step in set(steps) - {1}:
        sizes.append(np.minimum(_ceil(base, step) * step, extent))
        # Sizes whose tiles, the last one included, take fewer steps than any smaller size.
        taken = (trips - 1) * _ceil(every, step) + _ceil(edge, step)
        sizes.append(every[_new_least(trips, taken)])
    return np.unique(np.concatenate(sizes))


def _new_least(trips: Ints, values: Ints) -> NDArray[np.bool_]:
    """Tell where a value is less than all before it of the same trip count."""
    keep = np.zeros(trips.size, dtype=bool)
    last, least = 0, 0
    for index, (n, value) in enumerate(zip(trips.tolist(), values.tolist(), strict=True)):
        if n != last or value < least:
            keep[index] = True
            last, least = n, value
    return keep


def _axis_sizes(layer: ConvLayer, axis: int, *steps: int) -> _Axis:
    """Return sizes worth trying along rows or columns.

    Smallest sizes by trip count, those rounded up, and sizes that read less than smaller ones.
    Where the padding exceeds half a window, tiles differ much in what they read for the same work,
    and every size is tried.
    """
    every, less = _every_size(*_geometry(layer, axis))
    out = every.size.size
    if 2 * max(layer.pads[2 * axis : 2 * axis + 2]) > layer.window[axis] and out <= MANY:
        return every
    keep = np.zeros(out, dtype=bool)
    keep[np.array(less) - 1] = True
    keep[_rounded(out, FEW_OUTPUTS, *steps) - 1] = True
    return every.take(np.flatnonzero(keep))


@dataclass(frozen=True)
class _Pairs:
    """Pairs of tile height and width; arrays of P elements (or P x 1, to meet channels).

    ``reads`` is the exact sum of input positions of all tiles, ``row_sum`` the rows of all tiles
    and ``row_first`` of the first as the estimate counts them. ``steps`` and ``positions`` are
    what K and D multiply over all tiles, ``steps_first`` and ``positions_first`` in the first.
    ``words`` is what the channel words of a tile multiply in the input buffer.
    """

    h: Ints
    w: Ints
    tiles: Floats
    span: Floats
    reads: Floats
    row_sum: Floats
    row_first: Floats
    steps: Floats
    positions: Floats
    steps_first: Floats
    positions_first: Floats
    words: Floats

    def at(self, index: Any) -> "_Pairs":
        return _Pairs(**{name: value[index] for name, value in vars(self).items()})

    def least(self) -> "_Pairs":
        return _Pairs(**{name: value.min(keepdims=True) for name, value in vars(self).items()})


@dataclass(frozen=True)
class _Channels:
    """Pairs of tile input and output channels; arrays of J elements.

    ``multiply``, ``drain`` and ``write`` are cycles a step or position over all channel tiles;
    ``*_m`` over the first output-channel tile, ``*_first`` over the first tile of all. ``trips``
    counts the channel tiles, ``passes`` those of loop m (1 for depthwise). ``weight``
    and ``parameter`` are load cycles over all channel tiles. ``load`` indexes the tables of input
    loads, ``words`` and ``sums`` are words of the input buffer and of the bank at one position.
    """

    tc: Ints
    tm: Ints
    load: Ints
    passes: Floats
    trips: Floats
    multiply: Floats
    multiply_m: Floats
    multiply_first: Floats
    drain: Floats
    drain_m: Floats
    write: Floats
    write_m: Floats
    weight: Floats
    weight_first: Floats
    parameter: Floats
    parameter_first: Floats
    words: Floats
    sums: Floats
    held: Floats
    """Input channels that a tile stores."""
    stored: Floats
    """Bytes of weights (twice) and biases that a tile stores."""

    def at(self, index: Any) -> "_Channels":
        return _Channels(**{name: value[index] for name, value in vars(self).items()})


class _Space:
    """All candidates of a layer in one mode that may be best and fit the engine."""

    def __init__(self, engine: _Engine) -> None:
        self.engine = engine
        layer, config = engine.layer, engine.config
        pm, pr = config.out_lanes, config.split_lanes
        rows_of = () if engine.mode == "channel" else (pr,)
        self.h = _axis_sizes(layer, 0)
        self.w = _axis_sizes(layer, 1, *rows_of)
        self.tm = _rounded(
            engine.channels_out,
            FEW_CHANNELS,
            pm,
            config.results_per_cycle,
            max(1, config.bus_bytes // engine.out_bytes),
            config.bus_bytes,
        )
        self.tc = _rounded(
            engine.channels_in, FEW_CHANNELS, pr, config.word_bytes, config.bus_bytes
        )
        self.pairs = self._make_pairs()
        self._make_loads()

    def _make_pairs(self) -> _Pairs:
        engine, h, w = self.engine, self.h, self.w
        layer, pr = engine.layer, engine.config.split_lanes
        span_h = (h.size - 1) * layer.stride[0] + layer.window[0]
        span_w = (w.size - 1) * layer.stride[1] + layer.window[1]
        groups_w = (w.trips - 1) * _ceil(w.size, pr) + _ceil(w.edge_size, pr)
        if engine.mode == "channel":
            words_h, words_w = span_h, span_w
        else:
            phases = np.minimum(layer.stride[1], span_w)
            words_h, words_w = span_h, phases * _ceil(_ceil(span_w, layer.stride[1]), pr)
        least = (
            1 if engine.mode == "depthwise" else _ceil(int(self.tc[0]), engine.config.word_bytes)
        )
        index_h, index_w = np.nonzero(
            np.multiply.outer(words_h, words_w * least) <= self.input_limit
        )
        size_h, size_w = h.size[index_h], w.size[index_w]
        positions = np.full(index_h.size, layer.out_height * layer.out_width)
        first = size_h * size_w
        if engine.mode == "channel":
            steps, steps_first = positions, first
        else:
            steps = layer.out_height * groups_w[index_w]
            steps_first = size_h * _ceil(size_w, pr)
        row_first = np.where(h.trips > 1, h.full, h.edge)
        return _Pairs(
            h=index_h,
            w=index_w,
            tiles=(h.trips[index_h] * w.trips[index_w]).astype(float),
            span=(span_h[index_h] * span_w[index_w]).astype(float),
            reads=(h.total[index_h] * w.total[index_w]).astype(float),
            row_sum=((h.trips - 1) * h.full + h.edge)[index_h].astype(float),
            row_first=row_first[index_h].astype(float),
            steps=steps.astype(float),
            positions=positions.astype(float),
            steps_first=steps_first.astype(float),
            positions_first=first.astype(float),
            words=(words_h[index_h] * words_w[index_w]).astype(float),
        )

    @property
    def input_limit(self) -> int:
        config = self.engine.config
        banks = config.split_lanes if self.engine.mode == "channel" else 1
        return config.input_words * banks

    def _make_loads(self) -> None:
        """Tabulate the cycles to load a row by width and channels: first tile, first tiles, all."""
        engine, w = self.engine, self.w
        depthwise = engine.mode == "depthwise"
        channels = self.tm if depthwise else self.tc
        first = np.where(w.trips > 1, w.full, w.edge)

        def table(columns: Ints, channels: Ints) -> Ints:
            return engine.input_row(
                columns[:, None], channels, channels == engine.layer.in_channels
            )

        one, full, edge = table(first, channels), table(w.full, channels), table(w.edge, channels)
        if depthwise:
            trips = _ceil(engine.channels_out, channels)
            last = engine.channels_out - (trips - 1) * channels
            more = trips - 1
            all_first = more * one + table(first, last)
            full, edge = more * full + table(w.full, last), more * edge + table(w.edge, last)
        else:
            all_first = one
        self.load_one = one.astype(float)
        self.load_first = all_first.astype(float)
        self.load_all = ((w.trips - 1)[:, None] * full + edge).astype(float)

    def channels(self, split: bool) -> _Channels:
        """Return the channel pairs that fit the weight buffer and the tables.

        ``split`` takes those that cut the input channels, otherwise those that do not.
        """
        engine = self.engine
        layer, config, taps = engine.layer, engine.config, engine.layer.taps
        pm, pr = config.out_lanes, config.split_lanes
        extent = engine.channels_in
        tc = self.tc[self.tc < extent] if split else self.tc[-1:]
        tm = self.tm
        groups = _ceil(tm, pm)
        steps = _ceil(tc, pr) if engine.mode == "channel" else tc
        fit = np.multiply.outer(steps, groups * taps) <= config.weight_words
        fit &= groups <= config.channel_groups
        k, j = np.nonzero(fit)
        trips_m, trips_c = _ceil(engine.channels_out, tm), _ceil(extent, tc)
        edge_m = engine.channels_out - (trips_m - 1) * tm
        edge_c = extent - (trips_c - 1) * tc
        steps_edge = _ceil(edge_c, pr) if engine.mode == "channel" else edge_c
        steps_all = (trips_c - 1) * steps + steps_edge
        groups_all = (trips_m - 1) * groups + _ceil(edge_m, pm)
        drain, drain_edge = engine.drains(tm), engine.drains(edge_m)
        drain_all = (trips_m - 1) * drain + drain_edge
        write = np.where(
            engine.in_order(tm),
            layer.out_channels * engine.out_bytes / config.bus_bytes,
            engine.write_row(tm),
        )
        write_edge = np.where(engine.in_order(tm), write, engine.write_row(edge_m))
        write_all = (trips_m - 1) * write + write_edge
        multiply = taps * steps[:, None]
        parameter = engine.parameters(tm, multiply)
        parameter_all = (trips_m - 1) * parameter + engine.parameters(edge_m, multiply)
        weight_full = engine.weights(tc[:, None], tm)
        weight_all = (trips_c - 1)[:, None] * (
            (trips_m - 1) * weight_full + engine.weights(tc[:, None], edge_m)
        ) + ((trips_m - 1) * engine.weights(edge_c[:, None], tm))
        weight_all = weight_all + engine.weights(edge_c[:, None], edge_m)
        depthwise = engine.mode == "depthwise"
        offset = 0 if split else self.tc.size - 1
        words = groups[j] if depthwise else _ceil(tc, config.word_bytes)[k]
        pair_c, pair_m = tc[k], tm[j]
        return _Channels(
            tc=pair_c,
            tm=pair_m,
            load=j if depthwise else k + offset,
            passes=(np.ones(j.size) if depthwise else trips_m[j].astype(float)),
            trips=(trips_m[j] * trips_c[k]).astype(float),
            multiply=(taps * steps_all[k] * groups_all[j]).astype(float),
            multiply_m=(taps * steps_all[k] * groups[j]).astype(float),
            multiply_first=(taps * steps[k] * groups[j]).astype(float),
            drain=(trips_c[k] * drain_all[j]).astype(float),
            drain_m=(trips_c[k] * drain[j]).astype(float),
            write=write_all[j],
            write_m=write[j],
            weight=weight_all[k, j].astype(float),
            weight_first=weight_full[k, j].astype(float),
            parameter=parameter_all[k, j].astype(float),
            parameter_first=parameter[k, j].astype(float),
            words=words.astype(float),
            sums=drain[j].astype(float),
            held=(pair_m if depthwise else pair_c).astype(float),
            stored=(2 * pair_m * pair_c * taps + 4 * pair_m).astype(float),
        )


@dataclass(frozen=True)
class _Block:
    """Candidates of one mode and order that split the input channels, or do not.

    The functions of ``pairs`` and ``channels`` broadcast: P x 1 against J gives every candidate,
    N against N a list of them. ``loads`` are input rows' cycles: first tile, first tiles, all.
    """

    space: _Space
    order: str
    split: bool
    channels: _Channels

    def fits(self, pairs: _Pairs, channels: _Channels) -> NDArray[np.bool_]:
        config = self.space.engine.config
        fit = pairs.words * channels.words <= self.space.input_limit
        if self.split:
            fit &= pairs.positions_first * channels.sums <= config.psum_words
        return fit

    def loads(self, pairs: _Pairs, channels: _Channels) -> tuple[Floats, Floats, Floats]:
        space = self.space
        first = pairs.row_first
        return (
            first * space.load_one[pairs.w, channels.load],
            first * space.load_first[pairs.w, channels.load],
            pairs.row_sum * space.load_all[pairs.w, channels.load],
        )

    def _reloads(self, pairs: _Pairs, channels: _Channels) -> Floats:
        """Times that the input moves: once for each m tile where loop m lies outside it."""
        if self.split:
            return channels.passes
        if self.order == "hwmc":
            return np.ones_like(channels.passes)
        return np.where(pairs.tiles > 1, channels.passes, 1.0)

    def bound(self, pairs: _Pairs, channels: _Channels) -> Floats:
        """Return a lower bound of the estimated cycles.

        A sum of maxima is at least the maximum of the sums, over each class of tiles that load
        the same operands.
        """
        engine = self.space.engine
        c, tiles = channels, pairs.tiles
        one, firsts, every = self.loads(pairs, channels)
        busy_first = TURN_CYCLES + np.maximum(
            pairs.steps_first * c.multiply_first, pairs.positions_first * c.sums
        )
        load_first = one + (c.weight_first + c.parameter_first + (engine.load + INPUT_CYCLES))
        reloads = self._reloads(pairs, channels)
        other: Floats | float = 0.0

        def busy(
            steps: Floats, positions: Floats, turns: Floats, k: Floats, d: Floats, beats: Floats
        ) -> Floats:
            compute = np.maximum(steps * k, positions * d) + TURN_CYCLES * turns
            return np.maximum(compute, positions * beats)

        if self.split:
            count = tiles * c.trips
            load = every * reloads + tiles * c.weight
            load = load + (c.parameter + (engine.load + INPUT_CYCLES) * count)
            whole = busy(pairs.steps, pairs.positions, count, c.multiply, c.drain, c.write)
        elif self.order == "hwmc":
            # The tiles of the first output channels load the input, the others do not.
            each = c.weight_first + c.parameter_first + (engine.load + INPUT_CYCLES)
            load = every + tiles * each
            whole = busy(pairs.steps, pairs.positions, tiles, c.multiply_m, c.drain_m, c.write_m)
            each = c.weight - c.weight_first + c.parameter - c.parameter_first
            count = tiles * (c.trips - 1)
            rest = busy(
                pairs.steps,
                pairs.positions,
                count,
                c.multiply - c.multiply_m,
                c.drain - c.drain_m,
                c.write - c.write_m,
            )
            other = np.maximum(tiles * each + engine.load * count, rest)
        else:
            # The first tile of each m loads weights, the others only inputs.
            load = firsts * reloads + (
                c.weight + c.parameter + engine.load * c.trips + INPUT_CYCLES * reloads
            )
            whole = busy(
                pairs.steps_first, pairs.positions_first, c.trips, c.multiply, c.drain, c.write
            )
            count = (tiles - 1) * c.trips
            rest = busy(
                pairs.steps - pairs.steps_first,
                pairs.positions - pairs.positions_first,
                count,
                c.multiply,
                c.drain,
                c.write,
            )
            load_rest = (every - firsts) * reloads + (engine.load + INPUT_CYCLES) * count
            other = np.maximum(load_rest, rest)
        # load(0) + busy(0) + max of what is left of the first class
        result = np.maximum(whole + load_first, load + busy_first) + other
        if engine.groups > 1:
            result = result + (engine.groups - 1) * (np.maximum(whole, load) + other)
        return result + (START_CYCLES + END_CYCLES + engine.latency)

    def moved(self, pairs: _Pairs, channels: _Channels) -> Floats:
        """Return the moved bytes, as :func:`~haloconv.planner.traffic.moved_bytes` counts."""
        engine = self.space.engine
        layer = engine.layer
        outputs = layer.out_height * layer.out_width * layer.out_channels
        weights = layer.out_channels * layer.group_in_channels * layer.taps
        biases = 4 * layer.out_channels if layer.has_bias else 0
        moved = pairs.reads * self._reloads(pairs, channels) * layer.in_channels
        if self.order == "hwmc":
            moved = moved + pairs.tiles * (weights + biases)
        elif self.split:
            moved = moved + pairs.tiles * weights + biases
        else:
            moved = moved + (weights + biases)
        return moved + outputs * engine.out_bytes

    def stored(self, pairs: _Pairs, channels: _Channels) -> Floats:
        """Return the double-buffered storage bytes."""
        return (
            2 * pairs.span * channels.held
            + 4 * pairs.positions_first * channels.tm
            + channels.stored
        )

    def figure(self, objective: str, pairs: _Pairs, channels: _Channels) -> Floats:
        """Return the objective; for cycles its lower bound."""
        if objective == "cycles":
            return self.bound(pairs, channels)
        if objective == "bytes":
            return self.moved(pairs, channels)
        return self.stored(pairs, channels)

    def cycles(self, pairs: _Pairs, channels: _Channels) -> Ints:
        """Return the estimate itself of N candidates."""
        space = self.space
        h, w = space.h.take(pairs.h), space.w.take(pairs.w)
        return _estimate(space.engine, self.order, h, w, channels.tc, channels.tm)

    def least(
        self, objective: str, pairs: _Pairs, channels: _Channels
    ) -> tuple[tuple[float, ...], Tile]:
        """Return the least figures of N candidates, the objective first, and their tile."""
        cycles = self.cycles(pairs, channels).astype(float)
        moved = np.broadcast_to(self.moved(pairs, channels), cycles.shape)
        values = {"cycles": cycles, "bytes": moved, "storage": self.stored(pairs, channels)}
        keys = [values[objective], *(values[x] for x in OBJECTIVES if x != objective)]
        at = int(np.lexsort(keys[::-1])[0])
        tile = Tile(
            int(self.space.h.size[pairs.h[at]]),
            int(self.space.w.size[pairs.w[at]]),
            int(channels.tc[at]),
            int(channels.tm[at]),
        )
        return tuple(float(key[at]) for key in keys), tile

    def floor(self, objective: str) -> Floats:
        """Return a lower bound of the objective for each channel pair, whatever its tile."""
        engine, pairs, c = self.space.engine, self.space.pairs, self.channels
        if objective == "storage":
            return 2 * pairs.span.min() * c.held + 4 * c.tm + c.stored
        once = np.ones(1)
        if objective == "bytes":
            least = pairs.least()
            return self.moved(least, c) * once
        passes = c.passes if self.split else once
        rows = self.space.load_all.min(axis=0)[c.load] * pairs.row_sum.min()
        count = c.trips * pairs.tiles.min()
        load = rows * passes + c.weight + c.parameter + engine.load * count
        compute = np.maximum(pairs.steps.min() * c.multiply, pairs.positions.min() * c.drain)
        busy = np.maximum(compute + TURN_CYCLES * count, pairs.positions.min() * c.write)
        result = engine.groups * np.maximum(load, busy)
        return result + (START_CYCLES + END_CYCLES + engine.latency)


SLAB = 1 << 12
"""Candidates bounded at once: few, as each slab sharpens the best; enough to hide overhead."""
NEAR = 32
"""Channels up and down that the last step of the search tries."""
CHUNK = 128
"""Candidates estimated at once."""


def _least_needs(layer: ConvLayer, config: EngineConfig) -> list[tuple[str, dict[str, int]]]:
    """Return (mode, smallest buffers in bytes) of each way to run the layer at all.

    One output of one channel needs least of every buffer: with one input channel where the bank
    holds a sum, with all of them where there is no bank.
    """
    depthwise = is_channelwise(layer)
    needs: list[tuple[str, dict[str, int]]] = []
    for mode in ("depthwise",) if depthwise else ("channel", "row"):
        for channels in {1, 1 if depthwise else layer.group_in_channels}:
            words = tile_words(layer, config, Tile(1, 1, channels, 1), mode)
            sizes = {
                "input_bytes": words.input * config.split_lanes * config.word_bytes,
                "weight_bytes": words.weight * config.lanes,
                "psum_bytes": words.psum * 4 * config.results_per_cycle,
            }
            needs.append((mode, sizes))
    return needs


def _budget_of(sizes: dict[str, int]) -> int:
    return 2 * (sizes["input_bytes"] + sizes["weight_bytes"]) + sizes["psum_bytes"]


def _too_small(layer: ConvLayer, config: EngineConfig) -> str:
    """Say which buffers hold no tile of the layer and the smallest that do."""

    def missing(need: tuple[str, dict[str, int]]) -> dict[str, int]:
        return {name: size for name, size in need[1].items() if size > getattr(config, name)}

    def growth(need: tuple[str, dict[str, int]]) -> int:
        short = {name: size - getattr(config, name) for name, size in missing(need).items()}
        return _budget_of({name: short.get(name, 0) for name in need[1]})

    short = missing(min(_least_needs(layer, config), key=growth))
    wants = ", ".join(
        f"{name} {size} or more (now {getattr(config, name)}, {size - getattr(config, name)} too "
        "few)"
        for name, size in short.items()
    )
    return f"no tile of layer {layer.name!r} fits the engine: it takes {wants}"


def _blocks(layer: ConvLayer, config: EngineConfig, raw: bool, latency: int) -> list[_Block]:
    """Return the candidates by mode and order.

    With split input channels "mhwc" loads the biases and scales less often than "hwmc" and
    everything else as often, so "hwmc" is left out there; likewise where one loop has one trip,
    and for depthwise layers, whose input moves once in any order.
    """
    blocks: list[_Block] = []
    for mode in ("depthwise",) if is_channelwise(layer) else ("channel", "row"):
        space = _Space(_Engine(layer, config, mode, raw, latency))
        if not space.pairs.h.size:
            continue
        whole = space.channels(split=False)
        if whole.tm.size:
            blocks.append(_Block(space, "mhwc", False, whole))
            several = whole.passes > 1
            if several.any():
                blocks.append(_Block(space, "hwmc", False, whole.at(several)))
        if mode != "depthwise" and config.psum_words and space.tc.size > 1:
            cut = space.channels(split=True)
            if cut.tm.size:
                blocks.append(_Block(space, "mhwc", True, cut))
    return blocks


def _candidate(engine: _Engine, order: str, tile: Tile, cycles: int) -> Candidate:
    """Name the order of a tile as the first of those that are the same, and add its figures."""
    layer = engine.layer
    trips = loop_trips(layer, tile)
    if trips.m == 1 or trips.h * trips.w == 1:
        order = ORDERS[0]
    return Candidate(
        tile=tile,
        mode=engine.mode,
        order=order,
        estimated_cycles=cycles,
        moved_bytes=moved_bytes(layer, tile, order, engine.raw).total,
        storage=tile_storage(layer, tile, engine.config, engine.mode),
    )


def _neighbours(engine: _Engine, tile: Ints) -> Ints:
    """Return tiles that differ from ``tile`` in one size; shape (N, 4).

    Every other height and width; channels nearby, up to two tiles more or less.
    """
    layer = engine.layer
    extents = (layer.out_height, layer.out_width, engine.channels_in, engine.channels_out)
    parts: list[Ints] = []
    for axis, extent in enumerate(extents):
        size = int(tile[axis])
        if axis < 2:
            sizes = np.arange(1, extent + 1)
        else:
            trips = -(-extent // size)
            low = -(-extent // (trips + 2))
            high = extent if trips <= 3 else -(-extent // (trips - 3)) - 1
            sizes = np.arange(max(low, size - NEAR), min(high, size + NEAR) + 1)
        part = np.tile(tile, (sizes.size, 1))
        part[:, axis] = sizes
        parts.append(part[sizes != size])
    return np.concatenate(parts)


def _fits(engine: _Engine, tiles: Ints) -> NDArray[np.bool_]:
    """Tell which tiles of shape (N, 4) :func:`~haloconv.planner.tile.check_fit` accepts."""
    layer, config = engine.layer, engine.config
    pr, taps = config.split_lanes, layer.taps
    th, tw, tc, tm = tiles.T
    span_h = (th - 1) * layer.stride[0] + layer.window[0]
    span_w = (tw - 1) * layer.stride[1] + layer.window[1]
    groups = _ceil(tm, config.out_lanes)
    words = groups if engine.mode == "depthwise" else _ceil(tc, config.word_bytes)
    if engine.mode == "channel":
        inputs = _ceil(span_h * span_w * words, pr)
        weights = groups * taps * _ceil(tc, pr)
    else:
        phases = np.minimum(layer.stride[1], span_w)
        inputs = span_h * phases * words * _ceil(_ceil(span_w, layer.stride[1]), pr)
        weights = groups * taps * tc
    sums = th * tw * engine.drains(tm) * (tc < engine.channels_in)
    fit = (inputs <= config.input_words) & (weights <= config.weight_words)
    return fit & (sums <= config.psum_words) & (groups <= config.channel_groups)


def _figures(engine: _Engine, order: str, tiles: Ints) -> dict[str, Ints]:
    """Return the three figures of tiles of shape (N, 4)."""
    layer = engine.layer
    th, tw, tc, tm = tiles.T
    h, w = _axis(layer, 0, th), _axis(layer, 1, tw)
    depthwise = engine.mode == "depthwise"
    trips, split = _ceil(engine.channels_out, tm), tc < engine.channels_in
    count = h.trips * w.trips
    outside = split | ((order == "mhwc") & (count > 1)) if not depthwise else split
    again = (split | (trips > 1)) if order == "hwmc" else split
    weights = layer.out_channels * layer.group_in_channels * layer.taps
    biases = 4 * layer.out_channels if layer.has_bias else 0
    outputs = layer.out_height * layer.out_width * layer.out_channels * engine.out_bytes
    moved = layer.in_channels * h.total * w.total * np.where(outside, trips, 1)
    moved = moved + weights * np.where(again, count, 1) + outputs
    moved = moved + biases * (np.where(trips > 1, count, 1) if order == "hwmc" else 1)
    span = ((th - 1) * layer.stride[0] + layer.window[0]) * (
        (tw - 1) * layer.stride[1] + layer.window[1]
    )
    held = tm if depthwise else tc
    stored = 2 * (held * span + tm * tc * layer.taps) + 4 * th * tw * tm + 4 * tm
    return {
        "cycles": _estimate(engine, order, h, w, tc, tm),
        "bytes": moved,
        "storage": stored,
    }


def _polished(
    engine: _Engine, order: str, objective: str, tile: Tile, figures: tuple[float, ...]
) -> tuple[tuple[float, ...], str, Tile]:
    """Follow better neighbours until there is none; return figures, order and tile.

    The sizes tried in the search stand for others of the same trip count; roundings to bus words
    and clipped edges now and then make one of those a few cycles better.
    """
    here = np.array([tile.height, tile.width, tile.in_channels, tile.out_channels])
    names = [objective, *(name for name in OBJECTIVES if name != objective)]
    better = True
    while better:
        better = False
        tiles = _neighbours(engine, here)
        tiles = tiles[_fits(engine, tiles)]
        # The order matters where the input channels are not split (see _blocks).
        whole = tiles[(tiles[:, 2] == engine.channels_in) & (engine.mode != "depthwise")]
        for try_order, table in (("mhwc", tiles), ("hwmc", whole)):
            if not table.size:
                continue
            values = _figures(engine, try_order, table)
            keys = [values[name] for name in names]
            at = int(np.lexsort(keys[::-1])[0])
            best = tuple(float(key[at]) for key in keys)
            if best < figures:
                figures, order, here, better = best, try_order, table[at], True
    return figures, order, Tile(*here.tolist())


def search_tiles(
    layer: ConvLayer,
    config: EngineConfig,
    objective: str = "cycles",
    latency: int = 16,
    raw: bool = False,
) -> Candidate:
    """Return the best tile, mode and order of a layer on an engine.

    Parameters
    ----------
    layer : ConvLayer
    config : EngineConfig
    objective : str
        Of :data:`OBJECTIVES`: what to make least; the other two break ties, in that order.
    latency : int
        Cycles from a read request to its first beat.
    raw : bool
        int32 sums instead of int8 results.

    Returns
    -------
    Candidate
        Its figures are the least of all modes, engine orders and tiles that fit.

    Raises
    ------
    ValueError
        For an unknown objective.
    PlanError
        If no tile fits the engine, with the smallest buffers that work.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, not {objective!r}")
    best = np.inf
    found: list[tuple[_Block, Ints, Ints, Floats]] = []
    work: list[tuple[float, int, _Block, Ints, Floats]] = []
    for number, block in enumerate(_blocks(layer, config, raw, latency)):
        floor = block.floor(objective)
        ranked = np.argsort(floor, kind="stable")
        work.append((float(floor[ranked[0]]), number, block, ranked, floor[ranked]))
    for _, _, block, ranked, floor in sorted(work, key=lambda item: item[:2]):
        pairs = block.space.pairs
        columns = pairs.at(np.s_[:, None])
        width = max(1, SLAB // pairs.h.size)
        for start in range(0, ranked.size, width):
            if floor[start] > best:
                break
            part = ranked[start : start + width]
            channels = block.channels.at(part)
            value = block.figure(objective, columns, channels)
            i, j = np.nonzero(block.fits(columns, channels) & (value <= best))
            if not i.size:
                continue
            value = value[i, j]
            least = float(value.min())
            if objective == "cycles":
                # A bound is no estimate: work some out where they may spare bounds to come.
                if least < 0.99 * best:
                    top = np.argpartition(value, min(8, value.size) - 1)[:8]
                    exact = block.cycles(pairs.at(i[top]), channels.at(j[top]))
                    least = float(exact.min())
                else:
                    least = best
            if least < best:
                best = least
                keep = value <= best
                i, j, value = i[keep], j[keep], value[keep]
            found.append((block, i, part[j], value))
    if best == np.inf:
        raise PlanError(_too_small(layer, config))

    chosen: tuple[tuple[float, ...], _Block, Tile] | None = None
    second = 0 if objective == "cycles" else 1  # place of the cycles in the figures
    for block, i, j, value in found:
        keep = np.flatnonzero(value <= best)
        if not keep.size:
            continue
        pairs = block.space.pairs.at(i[keep])
        channels = block.channels.at(j[keep])
        bound = value[keep] if objective == "cycles" else block.bound(pairs, channels)
        rank = np.argsort(bound, kind="stable")
        for start in range(0, rank.size, CHUNK):
            part = rank[start : start + CHUNK]
            if chosen is not None and bound[part[0]] > chosen[0][second]:
                break
            figures, tile = block.least(objective, pairs.at(part), channels.at(part))
            if chosen is None or figures < chosen[0]:
                chosen = figures, block, tile
    assert chosen is not None  # what set `best` is among the candidates kept
    figures, block, tile = chosen
    engine = block.space.engine
    figures, order, tile = _polished(engine, block.order, objective, tile, figures)
    return _candidate(engine, order, tile, int(figures[second]))


# --- the split of a budget ------------------------------------------------------------------

SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85)
"""Shares of the double buffers that the first round of splits gives to the weights."""
SUM_SHARES = (0.0, 0.08, 0.2, 0.4)
"""Shares of the budget that the first round gives to partial sums."""
ROUNDS = 12
"""Most rounds of moving bytes between the buffers of the best split."""


@dataclass(frozen=True)
class _Split:
    """Words of the weight buffer and the bank, and groups of biases; the input has the rest."""

    weight: int
    sums: int
    groups: int


Cost = tuple[float, float, float]


class _Sizing:
    """A budget to be split over the buffers of an engine for a list of layers."""

    def __init__(
        self,
        layers: Sequence[ConvLayer],
        budget: int,
        base: EngineConfig,
        objective: str,
        latency: int,
    ) -> None:
        self.budget, self.base = budget, base
        self.objective, self.latency = objective, latency
        # Layers that differ in name or zero point alone cost the same.
        counts: dict[ConvLayer, int] = {}
        for layer in layers:
            key = replace(layer, name="", in_zero_point=0)
            counts[key] = counts.get(key, 0) + 1
        self.layers = list(counts)
        self.counts = counts
        self.input_unit = base.split_lanes * base.word_bytes
        self.weight_unit = base.lanes
        self.sum_unit = 4 * base.results_per_cycle
        self.group_unit = 4 * base.out_lanes
        self.most = self._most()
        self.seen: dict[_Split, Cost | None] = {}

    def _most(self) -> dict[str, int]:
        """Return the words and groups beyond which no layer gains."""
        most = {"input": 1, "weight": 1, "sums": 0, "groups": 1}
        for layer in self.layers:
            depthwise = is_channelwise(layer)
            whole = Tile(
                layer.out_height,
                layer.out_width,
                1 if depthwise else layer.group_in_channels,
                layer.out_channels if depthwise else layer.group_out_channels,
            )
            for mode in ("depthwise",) if depthwise else ("channel", "row"):
                words = tile_words(layer, self.base, whole, mode)
                steps = -(-whole.out_channels // self.base.out_lanes) * self.base.group_steps
                most["input"] = max(most["input"], words.input)
                most["weight"] = max(most["weight"], words.weight)
                most["groups"] = max(most["groups"], words.groups)
                if whole.in_channels > 1:
                    most["sums"] = max(most["sums"], whole.height * whole.width * steps)
        most["input"] = min(most["input"], (1 << 24) // self.input_unit)
        most["weight"] = min(most["weight"], (1 << 24) // self.weight_unit)
        most["sums"] = min(most["sums"], (1 << 24) // self.sum_unit)
        most["groups"] = min(most["groups"], (1 << 18) // self.group_unit)
        return most

    def least(self) -> tuple[int, _Split]:
        """Return the smallest budget that runs every layer, and its split.

        One output of one channel in channel mode needs least of every buffer, either with single
        input channels and one word of sums or with all input channels and none.
        """
        options: list[tuple[int, _Split]] = []
        for split in (True, False):
            words = [
                tile_words(
                    layer,
                    self.base,
                    Tile(1, 1, 1 if split or is_channelwise(layer) else layer.group_in_channels, 1),
                    "depthwise" if is_channelwise(layer) else "channel",
                )
                for layer in self.layers
            ]
            entry = _Split(max(w.weight for w in words), max(w.psum for w in words), 1)
            fixed = self._bytes(entry)
            options.append((fixed + 2 * self.input_unit * max(w.input for w in words), entry))
        return min(options, key=lambda option: option[0])

    def _bytes(self, split: _Split) -> int:
        """Return the bytes of everything but the input buffer."""
        return (
            2 * self.weight_unit * split.weight
            + self.sum_unit * split.sums
            + self.group_unit * split.groups
        )

    def config(self, split: _Split) -> EngineConfig | None:
        """Return the engine of a split, or None if nothing is left for the input."""
        words = (self.budget - self._bytes(split)) // (2 * self.input_unit)
        if words < 1 or split.weight < 1 or split.sums < 0 or split.groups < 1:
            return None
        return replace(
            self.base,
            input_bytes=self.input_unit * min(words, self.most["input"]),
            weight_bytes=self.weight_unit * split.weight,
            psum_bytes=self.sum_unit * split.sums,
            bias_bytes=self.group_unit * split.groups,
        )

    def clipped(self, weight: float, sums: float, groups: int) -> _Split:
        """Return a split within what the layers can use."""
        most = self.most
        return _Split(
            max(1, min(int(weight), most["weight"])),
            max(0, min(int(sums), most["sums"])),
            max(1, min(groups, most["groups"])),
        )

    def floors(self) -> None:
        """Work out what each layer costs if every buffer had the whole budget."""
        relaxed = replace(
            self.base,
            input_bytes=self.input_unit * self.most["input"],
            weight_bytes=self.weight_unit * self.most["weight"],
            psum_bytes=self.sum_unit * self.most["sums"],
            bias_bytes=self.group_unit * self.most["groups"],
        )
        whole = self.budget // 2
        relaxed = replace(
            relaxed,
            input_bytes=min(relaxed.input_bytes, max(self.input_unit, whole)),
            weight_bytes=min(relaxed.weight_bytes, max(self.weight_unit, whole)),
            psum_bytes=min(relaxed.psum_bytes, self.budget),
            bias_bytes=min(relaxed.bias_bytes, max(self.group_unit, self.budget)),
        )
        self.floor = {
            layer: self._figures(layer, relaxed)[0] * self.counts[layer] for layer in self.layers
        }
        self.layers.sort(key=lambda layer: -self.floor[layer])

    def _figures(self, layer: ConvLayer, config: EngineConfig) -> tuple[int, int, int]:
        return search_tiles(layer, config, self.objective, self.latency).figures(self.objective)

    def cost(self, split: _Split, best: Cost | None) -> Cost | None:
        """Return the figures of a split summed over the layers; None where it is worse than best.

        Layers that suffered most in the split before come first, so that a poor one ends early.
        """
        if split in self.seen:
            return self.seen[split]
        config = self.config(split)
        total = [0.0, 0.0, 0.0]
        rest = sum(self.floor.values())
        gaps: dict[ConvLayer, float] = {}
        self.seen[split] = None
        if config is None:
            return None
        for layer in self.layers:
            try:
                figures = self._figures(layer, config)
            except PlanError:
                return None
            count = self.counts[layer]
            total = [t + count * figure for t, figure in zip(total, figures, strict=True)]
            rest -= self.floor[layer]
            gaps[layer] = count * figures[0] - self.floor[layer]
            if best is not None and total[0] + rest > best[0]:
                self.layers.sort(key=lambda x: -gaps.get(x, 0.0))
                return None
        self.seen[split] = (total[0], total[1], total[2])
        return self.seen[split]

    def best(self, start: _Split) -> _Split:
        """Return the best split that is found, coarse to fine, from one that works."""
        self.floors()
        first = self.cost(start, None)
        assert first is not None  # least() works
        chosen, least = start, first

        def better(split: _Split) -> Cost | None:
            cost = self.cost(split, least)
            # Of equal splits that which leaves most to the input: it may help the next move.
            if cost and (*cost, self._bytes(split)) < (*least, self._bytes(chosen)):
                return cost
            return None

        for split in self._coarse():
            if cost := better(split):
                chosen, least = split, cost
        step, ideal = 4, sum(self.floor.values())
        for _ in range(ROUNDS):
            before = chosen
            for split in self._moves(chosen, step):
                if cost := better(split):
                    chosen, least = split, cost
            if chosen == before:
                step *= 2
            if step > 32 or least[0] <= ideal:
                break
        return chosen

    def _coarse(self) -> list[_Split]:
        half = 2 * self.weight_unit
        splits: list[_Split] = []
        groups = [g for g in (1, 2, 4, 8, 16, 32) if g <= self.most["groups"]]
        wide = self.most["groups"]
        for count in sorted({groups[len(groups) // 2], min(groups[-1], wide)}):
            left = self.budget - self.group_unit * count
            for share_sums in SUM_SHARES:
                sums = left * share_sums
                for share in SHARES:
                    weight = (left - sums) * share / half
                    splits.append(self.clipped(weight, sums / self.sum_unit, count))
        return list(dict.fromkeys(splits))

    def _moves(self, at: _Split, step: int) -> list[_Split]:
        """Return splits that move a part of a buffer into or out of another."""
        weight = max(1, at.weight // step)
        sums = max(1, at.sums // step)
        # Bytes of one buffer in words of another; the input gives or takes the difference.
        trade = max(1, sums * self.sum_unit // (2 * self.weight_unit))
        moves = [
            (at.weight + weight, at.sums, at.groups),
            (at.weight - weight, at.sums, at.groups),
            (at.weight, at.sums + sums, at.groups),
            (at.weight, at.sums - sums, at.groups),
            (at.weight + trade, at.sums - sums, at.groups),
            (at.weight - trade, at.sums + sums, at.groups),
            (at.weight, at.sums, at.groups + 1),
            (at.weight, at.sums, at.groups - 1),
            (at.weight, at.sums, at.groups * 2),
            (at.weight, at.sums, at.groups // 2),
            (at.weight, 0, at.groups),
        ]
        splits = [self.clipped(*move) for move in moves]
        return [split for split in dict.fromkeys(splits) if split != at]

    def trimmed(self, config: EngineConfig) -> EngineConfig:
        """Return the engine without the words that no plan uses."""
        uses = [
            search_tiles(layer, config, self.objective, self.latency).storage.words
            for layer in self.layers
        ]
        words = [use for use in uses if use is not None]
        return replace(
            config,
            input_bytes=self.input_unit * max(use.input for use in words),
            weight_bytes=self.weight_unit * max(use.weight for use in words),
            psum_bytes=self.sum_unit * max(use.psum for use in words),
            bias_bytes=self.group_unit * max(use.groups for use in words),
        )


def size_engine(
    layers: ConvLayer | Sequence[ConvLayer],
    budget_bytes: int,
    *,
    out_lanes: int = 8,
    split_lanes: int = 8,
    bus_bytes: int = 8,
    latency: int = 16,
    objective: str = "cycles",
    **options: Any,
) -> EngineConfig:
    """Split a storage budget over the buffers of an engine, to suit a list of layers.

    Splits are tried coarse to fine; each is worth the sum over the layers of the objective, as
    :func:`search_tiles` finds it. Words that none of the plans uses are not built.

    Parameters
    ----------
    layers : ConvLayer or sequence of ConvLayer
    budget_bytes : int
        Most bytes of :attr:`~haloconv.planner.config.EngineConfig.budget_bytes`.
    out_lanes, split_lanes, bus_bytes : int
        As in :class:`~haloconv.planner.config.EngineConfig`.
    latency : int
        Cycles from a read request to its first beat.
    objective : str
        Of :data:`OBJECTIVES`.
    **options
        Other parameters of the configuration, buffers aside.

    Raises
    ------
    TypeError, ValueError
        For parameters that the configuration refuses, or no layers.
    PlanError
        If the budget is too small for the layers, with the smallest that works.
    """
    every = (layers,) if isinstance(layers, ConvLayer) else tuple(layers)
    if not every:
        raise ValueError("layers must hold at least one layer to size an engine for, not none")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, not {objective!r}")
    budget = check_int("budget_bytes", budget_bytes, 1)
    for name in ("input_bytes", "weight_bytes", "psum_bytes", "bias_bytes"):
        if name in options:
            raise TypeError(f"{name} must be left to the budget, not {options[name]!r}")
    base = EngineConfig(
        out_lanes=out_lanes,
        split_lanes=split_lanes,
        bus_bytes=bus_bytes,
        input_bytes=1 << 24,
        weight_bytes=1 << 24,
        bias_bytes=1 << 18,
        **options,
    )
    sizing = _Sizing(every, budget, base, objective, latency)
    least, start = sizing.least()
    if budget < least:
        raise PlanError(
            f"a budget of {budget} bytes is too small for these layers on {out_lanes} x "
            f"{split_lanes} lanes; the smallest that works is {least}"
        )
    config = sizing.config(sizing.best(start))
    assert config is not None  # the split that it starts from works
    return sizing.trimmed(config)
