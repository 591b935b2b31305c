"""The tiles that may be best, with a lower bound of the cycles of each.

Both engine orders, every mode that suits the layer, and every size of a tile along extents of few
outputs or channels. Larger extents are thinned out: the smallest size of each trip count (halos,
fetches and sums depend on little else), that size rounded up to whole lanes, words and beats, and
sizes that take fewer steps of lanes than smaller ones, or read less as a halo falls into the
padding. A lower bound of the estimate leaves few candidates to estimate.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloconv.planner.config import EngineConfig
from haloconv.planner.estimate import (
    INPUT_CYCLES,
    TURN_CYCLES,
    Axis,
    EngineTerms,
    Floats,
    Ints,
    axis_geometry,
    ceil,
    estimate_sizes,
    input_extents,
)
from haloconv.planner.layer import ConvLayer
from haloconv.planner.tile import Tile
from haloconv.planner.traffic import is_channelwise

__all__ = ["OBJECTIVES", "Block", "Channels", "Pairs", "Space", "candidate_blocks"]

OBJECTIVES = ("cycles", "bytes", "storage")
"""What a search may put first; the other two break ties in this order."""
FEW_OUTPUTS = 12
"""Rows or columns of at most this many are tried with every tile size."""
FEW_CHANNELS = 32
"""Channels of at most this many are tried with every tile size."""
MANY = 96
"""Outputs along an axis of which every tile size may be tried without waiting long."""


def _per_trip(extent: int) -> Ints:
    """Return the smallest size for each number of tiles that ``extent`` can be cut into."""
    size = np.arange(1, extent + 1)
    trips = ceil(extent, size)
    return size[np.append(True, trips[1:] != trips[:-1])]


@lru_cache(maxsize=512)
def _every_size(
    out: int, extent: int, pad: int, stride: int, window: int
) -> tuple[Axis, tuple[int, ...]]:
    """Return every tile size along an axis, and those that read less than any smaller one.

    Of the sizes with the same number of tiles a larger one reads less where a halo falls into the
    padding.
    """
    every = input_extents(out, extent, pad, stride, window, np.arange(1, out + 1))
    keep = every.size[_new_least(every.trips, every.total)]
    return every, tuple(keep.tolist())


@lru_cache(maxsize=512)
def _rounded(extent: int, few: int, *steps: int) -> Ints:
    """Return the smallest sizes by trip count, and those that suit lanes or words of ``steps``.

    All sizes of an extent of at most ``few``.
    """
    if extent <= few:
        return np.arange(1, extent + 1)
    base = _per_trip(extent)
    every = np.arange(1, extent + 1)
    trips = ceil(extent, every)
    edge = extent - (trips - 1) * every
    sizes = [base]
    for step in set(steps) - {1}:
        sizes.append(np.minimum(ceil(base, step) * step, extent))
        # Sizes whose tiles, the last one included, take fewer steps than any smaller size.
        taken = (trips - 1) * ceil(every, step) + ceil(edge, step)
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


def _axis_sizes(layer: ConvLayer, axis: int, *steps: int) -> Axis:
    """Return sizes worth trying along rows or columns.

    Smallest sizes by trip count, those rounded up, and sizes that read less than smaller ones.
    Where the padding exceeds half a window, tiles differ much in what they read for the same work,
    and every size is tried.
    """
    every, less = _every_size(*axis_geometry(layer, axis))
    out = every.size.size
    if 2 * max(layer.pads[2 * axis : 2 * axis + 2]) > layer.window[axis] and out <= MANY:
        return every
    keep = np.zeros(out, dtype=bool)
    keep[np.array(less) - 1] = True
    keep[_rounded(out, FEW_OUTPUTS, *steps) - 1] = True
    return every.take(np.flatnonzero(keep))


@dataclass(frozen=True)
class Pairs:
    """Pairs of tile height and width; arrays of P elements (or P x 1, to meet channels).

    ``reads`` is the exact sum of input positions of all tiles, ``row_sum`` the rows of all tiles
    and ``row_first`` of the first as the estimate counts them. ``steps`` and ``positions`` are
    what K and D multiply over all tiles, ``steps_last`` and ``positions_last`` in the last.
    ``positions_first`` are those of the first. ``words`` is what the channel words of a tile
    multiply in the input buffer.
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
    steps_last: Floats
    positions_last: Floats
    positions_first: Floats
    words: Floats

    def at(self, index: Any) -> "Pairs":
        return Pairs(**{name: value[index] for name, value in vars(self).items()})

    def least(self) -> "Pairs":
        return Pairs(**{name: value.min(keepdims=True) for name, value in vars(self).items()})


@dataclass(frozen=True)
class Channels:
    """Pairs of tile input and output channels; arrays of J elements.

    ``multiply``, ``drain`` and ``write`` are cycles a step or position over all channel tiles,
    ``multiply`` as :meth:`~haloconv.planner.estimate.EngineTerms.exposed` counts them;
    ``*_m`` over the last output-channel tile, ``*_last`` over the last tile of all. ``trips``
    counts the channel tiles, ``passes`` those of loop m (1 for depthwise). ``weight``
    and ``parameter`` are load cycles over all channel tiles, ``*_first`` of the first; ``wait`` is
    what a tile waits for its tables where every tile brings its own. ``load`` indexes the tables
    of input loads, ``words`` and ``sums`` are words of the input buffer and of the bank at one
    position.
    """

    tc: Ints
    tm: Ints
    load: Ints
    passes: Floats
    trips: Floats
    multiply: Floats
    multiply_m: Floats
    multiply_last: Floats
    drain: Floats
    drain_m: Floats
    drain_last: Floats
    write: Floats
    write_m: Floats
    weight: Floats
    weight_first: Floats
    parameter: Floats
    parameter_first: Floats
    wait: Floats
    words: Floats
    sums: Floats
    held: Floats
    """Input channels that a tile stores."""
    stored: Floats
    """Bytes of weights (twice) and biases that a tile stores."""

    def at(self, index: Any) -> "Channels":
        return Channels(**{name: value[index] for name, value in vars(self).items()})


class Space:
    """All candidates of a layer in one mode that may be best and fit the engine."""

    def __init__(self, engine: EngineTerms) -> None:
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

    def _make_pairs(self) -> Pairs:
        engine, h, w = self.engine, self.h, self.w
        layer, pr = engine.layer, engine.config.split_lanes
        span_h = (h.size - 1) * layer.stride[0] + layer.window[0]
        span_w = (w.size - 1) * layer.stride[1] + layer.window[1]
        groups_w = (w.trips - 1) * ceil(w.size, pr) + ceil(w.edge_size, pr)
        if engine.mode == "channel":
            words_h, words_w = span_h, span_w
        else:
            phases = np.minimum(layer.stride[1], span_w)
            words_h, words_w = span_h, phases * ceil(ceil(span_w, layer.stride[1]), pr)
        least = 1 if engine.mode == "depthwise" else ceil(int(self.tc[0]), engine.config.word_bytes)
        index_h, index_w = np.nonzero(
            np.multiply.outer(words_h, words_w * least) <= self.input_limit
        )
        size_h, size_w = h.size[index_h], w.size[index_w]
        positions = np.full(index_h.size, layer.out_height * layer.out_width)
        last = h.edge_size[index_h] * w.edge_size[index_w]
        if engine.mode == "channel":
            steps, steps_last = positions, last
        else:
            steps = layer.out_height * groups_w[index_w]
            steps_last = h.edge_size[index_h] * ceil(w.edge_size[index_w], pr)
        row_first = np.where(h.trips > 1, h.full, h.edge)
        return Pairs(
            h=index_h,
            w=index_w,
            tiles=(h.trips[index_h] * w.trips[index_w]).astype(float),
            span=(span_h[index_h] * span_w[index_w]).astype(float),
            reads=(h.total[index_h] * w.total[index_w]).astype(float),
            row_sum=((h.trips - 1) * h.full + h.edge)[index_h].astype(float),
            row_first=row_first[index_h].astype(float),
            steps=steps.astype(float),
            positions=positions.astype(float),
            steps_last=steps_last.astype(float),
            positions_last=last.astype(float),
            positions_first=(size_h * size_w).astype(float),
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
            trips = ceil(engine.channels_out, channels)
            last = engine.channels_out - (trips - 1) * channels
            more = trips - 1
            all_first = more * one + table(first, last)
            full, edge = more * full + table(w.full, last), more * edge + table(w.edge, last)
        else:
            all_first = one
        self.load_one = one.astype(float)
        self.load_first = all_first.astype(float)
        self.load_all = ((w.trips - 1)[:, None] * full + edge).astype(float)

    def channels(self, split: bool) -> Channels:
        """Return the channel pairs that fit the weight buffer and the tables.

        ``split`` takes those that cut the input channels, otherwise those that do not.
        """
        engine = self.engine
        layer, config, taps = engine.layer, engine.config, engine.layer.taps
        pm, pr = config.out_lanes, config.split_lanes
        extent = engine.channels_in
        tc = self.tc[self.tc < extent] if split else self.tc[-1:]
        tm = self.tm
        groups = ceil(tm, pm)
        steps = ceil(tc, pr) if engine.mode == "channel" else tc
        fit = np.multiply.outer(steps, groups * taps) <= config.weight_words
        fit &= groups <= config.channel_groups
        k, j = np.nonzero(fit)
        trips_m, trips_c = ceil(engine.channels_out, tm), ceil(extent, tc)
        edge_m = engine.channels_out - (trips_m - 1) * tm
        edge_c = extent - (trips_c - 1) * tc
        steps_edge = ceil(edge_c, pr) if engine.mode == "channel" else edge_c
        steps_all = (trips_c - 1) * steps + steps_edge
        groups_edge = ceil(edge_m, pm)
        groups_all = (trips_m - 1) * groups + groups_edge
        drain, drain_edge = engine.drains(tm), engine.drains(edge_m)
        drain_all = (trips_m - 1) * drain + drain_edge
        write = np.where(
            engine.in_order(tm),
            layer.out_channels * engine.out_bytes / config.bus_bytes,
            engine.write_row(tm),
        )
        write_edge = np.where(engine.in_order(tm), write, engine.write_row(edge_m))
        write_all = (trips_m - 1) * write + write_edge
        exposed = engine.exposed
        parameter = engine.parameters(tm)
        parameter_all = (trips_m - 1) * parameter + engine.parameters(edge_m)
        weight_full = engine.weights(tc[:, None], tm)
        weight_all = (trips_c - 1)[:, None] * (
            (trips_m - 1) * weight_full + engine.weights(tc[:, None], edge_m)
        ) + ((trips_m - 1) * engine.weights(edge_c[:, None], tm))
        weight_all = weight_all + engine.weights(edge_c[:, None], edge_m)
        depthwise = engine.mode == "depthwise"
        offset = 0 if split else self.tc.size - 1
        words = groups[j] if depthwise else ceil(tc, config.word_bytes)[k]
        pair_c, pair_m = tc[k], tm[j]
        return Channels(
            tc=pair_c,
            tm=pair_m,
            load=j if depthwise else k + offset,
            passes=(np.ones(j.size) if depthwise else trips_m[j].astype(float)),
            trips=(trips_m[j] * trips_c[k]).astype(float),
            multiply=exposed(
                taps * steps_all[k] * groups_all[j], trips_c[k] * groups_all[j]
            ).astype(float),
            multiply_m=exposed(
                taps * steps_all[k] * groups_edge[j], trips_c[k] * groups_edge[j]
            ).astype(float),
            multiply_last=exposed(taps * steps_edge[k] * groups_edge[j], groups_edge[j]).astype(
                float
            ),
            drain=(trips_c[k] * drain_all[j]).astype(float),
            drain_m=(trips_c[k] * drain_edge[j]).astype(float),
            drain_last=drain_edge[j].astype(float),
            write=write_all[j],
            write_m=write_edge[j],
            weight=weight_all[k, j].astype(float),
            weight_first=weight_full[k, j].astype(float),
            parameter=parameter_all[j].astype(float),
            parameter_first=parameter[j].astype(float),
            wait=engine.table_wait(pair_c).astype(float),
            words=words.astype(float),
            sums=engine.drain_rows(tm)[j].astype(float),
            held=(pair_m if depthwise else pair_c).astype(float),
            stored=(2 * pair_m * pair_c * taps + 4 * pair_m).astype(float),
        )


@dataclass(frozen=True)
class Block:
    """Candidates of one mode and order that split the input channels, or do not.

    The functions of ``pairs`` and ``channels`` broadcast: P x 1 against J gives every candidate,
    N against N a list of them. ``loads`` are input rows' cycles: first tile, first tiles, all.
    """

    space: Space
    order: str
    split: bool
    channels: Channels

    def fits(self, pairs: Pairs, channels: Channels) -> NDArray[np.bool_]:
        config = self.space.engine.config
        fit = pairs.words * channels.words <= self.space.input_limit
        if self.split:
            fit &= pairs.positions_first * channels.sums <= config.psum_words
        return fit

    def loads(self, pairs: Pairs, channels: Channels) -> tuple[Floats, Floats, Floats]:
        space = self.space
        first = pairs.row_first
        return (
            first * space.load_one[pairs.w, channels.load],
            first * space.load_first[pairs.w, channels.load],
            pairs.row_sum * space.load_all[pairs.w, channels.load],
        )

    def _reloads(self, pairs: Pairs, channels: Channels) -> Floats:
        """Times that the input moves: once for each m tile where loop m lies outside it."""
        if self.split:
            return channels.passes
        if self.order == "hwmc":
            return np.ones_like(channels.passes)
        return np.where(pairs.tiles > 1, channels.passes, 1.0)

    def bound(self, pairs: Pairs, channels: Channels) -> Floats:
        """Return a lower bound of the estimated cycles.

        A sum of maxima is at least the maximum of the sums, over each class of tiles that load
        the same operands. Each load is held against the tile before, so the loads of the first
        tiles of a loop meet the last tiles of it at the lanes.
        """
        engine = self.space.engine
        c, tiles = channels, pairs.tiles
        one, firsts, every = self.loads(pairs, channels)
        busy_last = TURN_CYCLES + engine.group(
            pairs.steps_last * c.multiply_last, pairs.positions_last * c.drain_last
        )
        load_first = one + (c.weight_first + c.parameter_first + (engine.load + INPUT_CYCLES))
        reloads = self._reloads(pairs, channels)
        wait: Floats | float = 0.0
        other: Floats | float = 0.0

        def busy(
            steps: Floats, positions: Floats, turns: Floats, k: Floats, d: Floats, beats: Floats
        ) -> Floats:
            compute = engine.group(steps * k, positions * d) + TURN_CYCLES * turns
            return np.maximum(compute, positions * beats)

        if self.split:
            count = tiles * c.trips
            load = every * reloads + tiles * c.weight
            load = load + (c.parameter + (engine.load + INPUT_CYCLES) * count)
            whole = busy(pairs.steps, pairs.positions, count, c.multiply, c.drain, c.write)
        elif self.order == "hwmc":
            # The tiles of the first output channels load the input, the others do not.
            wait = c.wait
            each = c.weight_first + c.parameter_first + wait + (engine.load + INPUT_CYCLES)
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
            other = np.maximum(tiles * each + (engine.load + wait) * count, rest)
        else:
            # The first tile of each m loads weights, the others only inputs.
            wait = np.where(tiles > 1, 0.0, c.wait)
            load = firsts * reloads + (
                c.weight + c.parameter + (engine.load + wait) * c.trips + INPUT_CYCLES * reloads
            )
            whole = busy(
                pairs.steps_last, pairs.positions_last, c.trips, c.multiply, c.drain, c.write
            )
            count = (tiles - 1) * c.trips
            rest = busy(
                pairs.steps - pairs.steps_last,
                pairs.positions - pairs.positions_last,
                count,
                c.multiply,
                c.drain,
                c.write,
            )
            load_rest = (every - firsts) * reloads + engine.load * count
            other = np.maximum(load_rest, rest)
        # load(0) + busy(last) + max of what is left of the first class
        result = np.maximum(whole + load_first, load - wait + busy_last) + other
        if engine.groups > 1:
            result = result + (engine.groups - 1) * (np.maximum(whole, load) + other)
        return result + (engine.outside - engine.lead)

    def moved(self, pairs: Pairs, channels: Channels) -> Floats:
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

    def stored(self, pairs: Pairs, channels: Channels) -> Floats:
        """Return the double-buffered storage bytes."""
        return (
            2 * pairs.span * channels.held
            + 4 * pairs.positions_first * channels.tm
            + channels.stored
        )

    def figure(self, objective: str, pairs: Pairs, channels: Channels) -> Floats:
        """Return the objective; for cycles its lower bound."""
        if objective == "cycles":
            return self.bound(pairs, channels)
        if objective == "bytes":
            return self.moved(pairs, channels)
        return self.stored(pairs, channels)

    def cycles(self, pairs: Pairs, channels: Channels) -> Ints:
        """Return the estimate itself of N candidates."""
        space = self.space
        h, w = space.h.take(pairs.h), space.w.take(pairs.w)
        return estimate_sizes(space.engine, self.order, h, w, channels.tc, channels.tm)

    def least(
        self, objective: str, pairs: Pairs, channels: Channels
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
        compute = engine.group(pairs.steps.min() * c.multiply, pairs.positions.min() * c.drain)
        busy = np.maximum(compute + TURN_CYCLES * count, pairs.positions.min() * c.write)
        result = engine.groups * np.maximum(load, busy)
        return result + (engine.outside - engine.lead)


def candidate_blocks(
    layer: ConvLayer, config: EngineConfig, raw: bool, latency: int
) -> list[Block]:
    """Return the candidates by mode and order.

    With split input channels "mhwc" loads the biases and scales less often than "hwmc" and
    everything else as often, so "hwmc" is left out there; likewise where one loop has one trip,
    and for depthwise layers, whose input moves once in any order. Now and then it would win all
    the same, as a long load meets a long tile before.
    """
    blocks: list[Block] = []
    for mode in ("depthwise",) if is_channelwise(layer) else ("channel", "row"):
        space = Space(EngineTerms(layer, config, mode, raw, latency))
        if not space.pairs.h.size:
            continue
        whole = space.channels(split=False)
        if whole.tm.size:
            blocks.append(Block(space, "mhwc", False, whole))
            several = whole.passes > 1
            if several.any():
                blocks.append(Block(space, "hwmc", False, whole.at(several)))
        if mode != "depthwise" and config.psum_words and space.tc.size > 1:
            cut = space.channels(split=True)
            if cut.tm.size:
                blocks.append(Block(space, "mhwc", True, cut))
    return blocks
