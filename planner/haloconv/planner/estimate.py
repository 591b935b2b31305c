"""The estimated cycles of a tile, which the search compares.

Tiles run in the order of their loops, and the load of one tile runs while the one before computes::

    cycles = START + load(0) + sum of max(busy(i - 1), load(i)) of the others + busy(last) + END

``busy`` = max(compute + TURN, write beats). With t = tile sizes (smaller at the edges),
taps = Rh*Rw, g over groups of at most Pm output channels, v channels in g, K cycles of multiplying
a group and D of draining it:

* a group: max(K, D). Serial requantisers take P = 32 cycles a row of results, and no register
  takes the sums over: the lanes hold them until the last row was taken, and 2 cycles more, so
  that a group takes max(K + D - P + 2, D)
* channel mode: compute = th*tw * sum over g, K = taps*ceil(tc/Pr), D = P*ceil(v/Q)
* row mode: compute = th * sum over runs of n <= Pr columns and over g, K = taps*tc (depthwise:
  taps), D = n*P*ceil(v/Q); P = 1 but for serial requantisers
* writes, with the last channel tile: th*tw * sum_g ceil(v*out/bus) beats; ceil(th*tw*M*out/bus)
  where a tile holds all M channels and writes them in the order of memory (channel mode, or
  M <= Pm)
* input load: rows*columns * max(ceil(tc/word), ceil(tc/bus)); a tile with all channels of the
  tensor reads whole rows: rows * max(columns*ceil(C/word), ceil(columns*C/bus)). INPUT more
  beside weights
* weight load: max(chunks, ceil(bytes/bus)), chunks = tm*taps*ceil(tc/Pr) in channel mode,
  ceil(tm/Pm)*taps*tc in row mode, ceil(tm/Pm)*taps in depthwise mode
* bias: max(tm, ceil(4*tm/bus)), or 1 where there is none; scales of 6 bytes a channel (5 without
  weight zero points, none for raw sums) likewise and what :meth:`EngineTerms.scales` says;
  PARAMETER more. Where every tile brings its own, K and DRAIN more and the way through the lanes,
  as their table is free only when the tile before has reached the drain; not in the first tile
* every tile load: LOAD and the latency of the memory, as a buffer half is asked for only when the
  tile before has left it. Tiles are worked out in SEQUENCE cycles each, which is the least that a
  tile takes. Where none is worked out ahead (``tiles_ahead`` = 0) these come before the load, and
  the tile before the last must have been written: then two tiles take no less than busy + load
  and the way of a result to the writer

START holds the latency of the memory and the descriptor, END the way of a result to the writer. A
tile loads what its index changes, as in :func:`~haloconv.planner.traffic.moved_bytes`. Every tile
but the last along an axis counts with the rows of the fullest of them.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import fetch_cycles
from haloconv.planner.latency import (
    chunk_bytes,
    hold_cycles,
    release_latency,
    result_latency,
    row_cycles,
    scale_entry_bytes,
)
from haloconv.planner.layer import ConvLayer
from haloconv.planner.schedule import SEQUENCE
from haloconv.planner.tile import Tile
from haloconv.planner.timeline import ReadTimeline, WriteTimeline

__all__ = [
    "END_CYCLES",
    "INPUT_CYCLES",
    "LOAD_CYCLES",
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


def _cycles_to_take() -> int:
    """Cycles from a request to the first chunk at the loader, beside the latency of the memory."""
    latency = 16  # long enough that nothing else holds the bytes up
    reads = ReadTimeline(1, 1, latency)
    reads.ask(0, 1)
    return reads.take(1, 0) - latency


def _cycles_to_end() -> int:
    """Cycles from the last row of results at the writer until everything has been written."""
    writes = WriteTimeline(1)
    writes.row(0, 0, 1)
    return writes.idle_at


START_CYCLES = 5 + SEQUENCE
"""From start to the first tile load, beside the descriptor and the latency of the memory."""
END_CYCLES = _cycles_to_end() + 1
"""From the first row of the last group of sums at the writer to the end of the last write."""

TURN_CYCLES = 2
"""From the last step of a tile to the first of the next.

Lanes that hold their sums for serial requantisers are through with it by then. There it counts all
the same: tiles small and large would take equally long, and the smallest win by a shorter first
load, for many more bytes.
"""
LOAD_CYCLES = _cycles_to_take() + 3
"""What a tile load takes beside its chunks and the latency of the memory."""
INPUT_CYCLES = 2
"""What a load of inputs takes beside its chunks, behind other operands."""
PARAMETER_CYCLES = 1
"""What a load of biases and scales takes beside its chunks."""
DRAIN_CYCLES = 1
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

    ``full`` are the inputs under the fullest tile but the last, ``edge`` under the last, ``total``
    the exact sum over all tiles.
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


@lru_cache(maxsize=64)
def _scale_cycles(config: EngineConfig, most: int) -> Ints:
    """Return the cycles to load the scales of up to ``most`` channels."""
    size, bus = scale_entry_bytes(config), config.bus_bytes
    entries = np.arange(most + 1)
    late = (entries * size - 1) % bus + 1 < 2 * size - chunk_bytes(config)
    late[0] = False
    return np.maximum(entries + np.cumsum(late), ceil(entries * size, bus))


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
    def outside(self) -> int:
        """Cycles before the first tile load and behind the last multiplication."""
        config = self.config
        start = START_CYCLES + fetch_cycles(config.bus_bytes) + self.latency
        return start + END_CYCLES + result_latency(config)

    @property
    def drain(self) -> int:
        """Drain cycles of Pm channels."""
        return self.config.group_steps * row_cycles(self.config)

    @property
    def held(self) -> bool:
        """True where no register takes the sums over, so that lanes hold them for the drain."""
        return row_cycles(self.config) > 1

    def exposed(self, k: Any, groups: Any = 1) -> Any:
        """Return what :meth:`group` takes for ``groups`` of sums that multiply ``k`` cycles in all.

        Lanes that hold their sums go on once the last row was taken. Of each group's multiplying
        only that row's own cycles are hidden, less those that clear the sums.
        """
        if not self.held:
            return k
        return k - groups * (row_cycles(self.config) + 1 - hold_cycles(self.config, 1))

    def group(self, exposed: Any, drain: Any) -> Any:
        """Cycles of a group of sums; of sums over many groups, a lower bound of theirs."""
        return drain + np.maximum(exposed, 0) if self.held else np.maximum(exposed, drain)

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
    def lead(self) -> int:
        """Cycles before a load in which its tile is worked out; 0 where that was done ahead."""
        return 0 if self.config.tiles_ahead else SEQUENCE + 1

    @property
    def load(self) -> int:
        """Cycles of a tile load beside its chunks."""
        return LOAD_CYCLES + self.latency + self.lead

    def table_wait(self, tc: Any) -> Any:
        """Cycles more until biases and scales can be asked for where every tile brings its own."""
        steps = ceil(tc, self.config.split_lanes) if self.mode == "channel" else tc
        released = self.layer.taps * steps + release_latency(self.config)
        return np.maximum(released + (DRAIN_CYCLES - self.lead), 0)

    def parameters(self, tm: Any) -> Any:
        """Cycles to load biases and scales of a tile."""
        # The walker takes a cycle to pass over biases that are not there.
        biases = np.maximum(tm, ceil(4 * tm, self.config.bus_bytes))
        cycles = PARAMETER_CYCLES + (biases if self.layer.has_bias else tm * 0 + 1)
        return cycles if self.raw else cycles + self.scales(tm)

    def scales(self, tm: Any) -> Any:
        """Cycles to load scales.

        The loader's string of bytes is a beat longer than the largest chunk, and a beat can be
        taken two cycles after it came. So an entry waits a cycle where its last beat had no room
        before the entry before was taken.
        """
        return _scale_cycles(self.config, int(np.max(tm)))[tm]

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


def busy_cycles(engine: EngineTerms, th: Ints, tw: Ints, tc: Ints, tm: Ints, last: Any) -> Ints:
    """Cycles of tiles at the lanes and the writer, by their sizes; ``last`` in loop c: written."""
    config, taps = engine.config, engine.layer.taps
    pm, pr, bus = config.out_lanes, config.split_lanes, config.bus_bytes
    full_groups, rest = tm // pm, tm % pm
    some, drain, drain_rest = rest > 0, engine.drain, engine.drains(rest)
    if engine.mode == "channel":
        exposed = engine.exposed(taps * ceil(tc, pr))
        whole, part = engine.group(exposed, drain), engine.group(exposed, drain_rest)
        compute = th * tw * (full_groups * whole + some * part)
    else:
        exposed = engine.exposed(taps * tc)

        def run(columns: Any) -> Any:
            whole = engine.group(exposed, columns * drain)
            return full_groups * whole + some * engine.group(exposed, columns * drain_rest)

        left = tw % pr
        compute = th * (tw // pr * run(pr) + (left > 0) * run(left))
    beats: Ints = where(
        engine.in_order(tm),
        ceil(th * tw * (engine.layer.out_channels * engine.out_bytes), bus),
        th * tw * engine.write_row(tm),
    )
    busy: Ints = np.maximum(compute + TURN_CYCLES, last * beats)
    return busy


def estimate_sizes(engine: EngineTerms, order: str, h: Axis, w: Axis, tc: Ints, tm: Ints) -> Ints:
    """Estimate the cycles of N candidates; every array has N elements.

    The tiles fall into classes by their place in each loop: first, middle or last. Arrays have an
    axis for each loop, outermost first, of 3 places (or 1, where all candidates have one tile);
    then N. Axes of 1 at the front may be missing.
    """
    config, layer = engine.config, engine.layer
    channels_in, channels_out = engine.channels_in, engine.channels_out
    trips_m, trips_c = ceil(channels_out, tm), ceil(channels_in, tc)
    trips = {"h": h.trips, "w": w.trips, "m": trips_m, "c": trips_c}
    full = {"h": h.size, "w": w.size, "m": tm, "c": tc}
    edge = {
        "h": h.edge_size,
        "w": w.edge_size,
        "m": channels_out - (trips_m - 1) * tm,
        "c": channels_in - (trips_c - 1) * tc,
    }

    one = np.ones_like(tc)
    several = {loop: n > 1 for loop, n in trips.items()}
    spreads = {loop: bool(more.any()) for loop, more in several.items()}

    def spread(loop: str, *places: Any) -> Any:
        """Lay values by place along the axis of a loop."""
        if not spreads[loop]:
            return places[0]
        shape = [1] * len(order) + [-1]
        shape[order.index(loop)] = len(places)
        return np.array(places).reshape(shape)

    def by_place(loop: str, full: Ints, edge: Ints) -> Ints:
        if not spreads[loop]:
            return edge
        return spread(loop, np.where(several[loop], full, edge), full, edge)

    count: Any = one
    first: dict[str, Any] = {}
    before: dict[str, Ints] = {}
    wraps: Any = np.ones(1, dtype=bool)
    for loop in reversed(order):
        n = trips[loop]
        count = count * spread(loop, one, np.maximum(n - 2, 0), several[loop] * one)
        first[loop] = spread(loop, *np.eye(3, 1, dtype=bool))
        # The tile before is the last of all loops inside the one that goes on.
        ended = where(first[loop], edge[loop], full[loop])
        before[loop] = where(wraps, ended, by_place(loop, full[loop], edge[loop]))
        wraps = wraps & first[loop]
    busy = busy_cycles(engine, before["h"], before["w"], before["c"], before["m"], first["c"])

    size_m, size_c = (by_place(loop, full[loop], edge[loop]) for loop in "mc")
    depthwise = engine.mode == "depthwise"
    channels = size_m if depthwise else size_c
    columns = by_place("w", w.full, w.edge)
    row = engine.input_row(columns, channels, channels == layer.in_channels)
    many_m, many_c, many_hw = several["m"], several["c"], several["h"] | several["w"]
    every_m = many_m if order == "hwmc" else np.zeros_like(many_m)
    first_hw = first["h"] & first["w"]
    moves_input = first["m"] | many_c | depthwise | (many_hw if order == "mhwc" else False)
    moves_weight = first_hw | many_c | every_m
    moves_parameters = first["c"] & (first_hw | every_m)
    wait = (every_m | ~many_hw) * ~many_c * engine.table_wait(tc)
    load = moves_input * (by_place("h", h.full, h.edge) * row)
    load = load + moves_weight * engine.weights(size_c, size_m)
    load = load + (moves_input & moves_weight) * INPUT_CYCLES
    load = load + moves_parameters * (engine.parameters(size_m) + wait) + engine.load

    each = np.maximum(busy, load)
    if config.tiles_ahead:
        each = np.maximum(each, SEQUENCE)
    else:
        # A tile is worked out only when the one before the last is written.
        each = np.maximum(each, first["c"] * ceil(busy + load + result_latency(config), 2))
    tiles: Ints = (each * count).reshape(-1, tc.size).sum(axis=0) * engine.groups
    # Nothing comes before the first tile, which does not wait; nothing behind the last.
    load, each = (x.reshape(-1, tc.size)[0] for x in (load, each))
    last = busy_cycles(engine, edge["h"], edge["w"], edge["c"], edge["m"], True)
    return tiles + (load - wait - engine.lead - each) + last + engine.outside


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
