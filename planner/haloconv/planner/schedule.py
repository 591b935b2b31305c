"""When each tile loads, computes and drains: the cycles that a plan promises.

The walk follows the engine's blocks from event to event, in cycles since start:

* segment walker: a segment a cycle, while a buffer half is free and the queue of segments asked
  for has room;
* beats in order, one a cycle, ``latency`` after their request, held up while the loader's string
  of bytes is full;
* loader: a chunk a cycle once its bytes are there, and a few cycles between operands;
* lanes: a step a cycle; the last step of a group of sums waits for the drain of the group before,
  and for room behind the requantisers; beside serial requantisers its first step waits too;
* writer: a row of results a cycle, and as many cycles as the beats that it ends.

Rows of an operand and rows of outputs repeat. Once everything that decides what happens next stands
as it stood some rows before, the walk jumps over the repetitions. Tiles repeat too: one that meets
the engine as a tile before it did, with addresses that lie alike in beats and pages, takes that
tile's events, moved in time. So the cost hardly grows with the layer, and the cycles are those of
the walk row by row.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import gcd

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import fetch_cycles
from haloconv.planner.latency import (
    chunk_bytes,
    hold_cycles,
    lanes_latency,
    release_latency,
    result_latency,
    results_room,
    row_cycles,
    run_latency,
    scale_entry_bytes,
    segments_waiting,
)
from haloconv.planner.layer import ConvLayer
from haloconv.planner.tile import Tile
from haloconv.planner.timeline import BURST_BYTES, SEGMENTS_AHEAD, ReadTimeline, WriteTimeline

__all__ = ["CAUSES", "Schedule", "TileTiming", "schedule_layer"]

CAUSES: tuple[str, ...] = ("compute", "load", "drain", "write")
"""What decides when a tile's computing ends: its multiplications, the loads of its operands, the
drain of its sums, or the write port."""

SEQUENCE = 46
"""Cycles from tile to tile in the sequencer."""
JUMPS = True
"""Jump over repetitions; tests compare with the walk row by row."""


@dataclass(frozen=True)
class TileTiming:
    """Cycles of one tile since start: the first, and the one behind the last.

    ``index`` is (group, h, w, m, c). ``load_*`` is its turn at the loader, ``compute_*`` at the
    lanes; ``drain_end`` is behind its last result row. ``cause`` is one of :data:`CAUSES`.
    """

    index: tuple[int, int, int, int, int]
    load_start: int
    load_end: int
    compute_start: int
    compute_end: int
    drain_end: int
    load_stall: int
    drain_stall: int
    cause: str


@dataclass(frozen=True)
class Schedule:
    """Cycles of a layer, told apart.

    ``cycles`` is from start to the end of the last write: ``first_load_cycles`` before the first
    multiplication, ``compute_cycles`` of multiplications, ``load_stall_cycles`` between tiles,
    ``drain_stall_cycles`` for drain and writes, ``end_cycles`` behind the last multiplication.
    """

    cycles: int
    compute_cycles: int
    first_load_cycles: int
    load_stall_cycles: int
    drain_stall_cycles: int
    end_cycles: int
    tiles: tuple[TileTiming, ...] = field(repr=False)

    @property
    def causes(self) -> dict[str, int]:
        """Number of tiles for each cause of :data:`CAUSES`."""
        totals = dict.fromkeys(CAUSES, 0)
        for tile in self.tiles:
            totals[tile.cause] += 1
        return totals


@dataclass(frozen=True)
class _Extent:
    """One tile along one axis: outputs, and the inputs inside the tensor under them."""

    outputs: int
    first_output: int
    first_input: int
    inputs: int
    skip: int


@dataclass(frozen=True)
class _Step:
    """One tile of the loop nest and what is new in it."""

    index: tuple[int, int, int, int, int]
    new_input: bool
    new_weights: bool
    new_parameters: bool


@dataclass(frozen=True)
class _Computed:
    """A tile at the lanes: first step, last step of the first group of sums, last step."""

    start: int
    first_group: int
    end: int
    stall: int
    cause: str


@dataclass(frozen=True)
class _Repeat:
    """What a tile at the lanes did, relative to its first step."""

    first_group: int
    end: int
    last_group: int
    drain: int
    hold: int
    stalls: dict[str, int]
    writes: tuple[int, int, int, int | None]
    pops: tuple[int, ...]


class _States:
    """The states at the ends of some rows, to find the period with which they repeat."""

    def __init__(self) -> None:
        self._seen: dict[object, tuple[int, tuple[int, ...]]] = {}

    def look(self, state: object, index: int, *sums: int) -> tuple[int, list[int]] | None:
        """Note a state, or return the rows since it was there and the growth of ``sums``."""
        before = self._seen.get(state)
        if before is None:
            self._seen[state] = (index, sums)
            return None
        return index - before[0], [b - a for a, b in zip(before[1], sums, strict=True)]

    def forget(self) -> None:
        """Forget every state."""
        self._seen.clear()


def _extents(
    outputs: int, size: int, stride: int, window: int, pad: int, inputs: int
) -> list[_Extent]:
    extents: list[_Extent] = []
    for first in range(0, outputs, size):
        count = min(size, outputs - first)
        begin = first * stride - pad
        end = min(begin + (count - 1) * stride + window, inputs)
        start = max(begin, 0)
        extents.append(_Extent(count, first, start, max(0, end - start), max(0, -begin)))
    return extents


class _Walk:
    """The tiles of one layer, from start to end."""

    def __init__(
        self,
        layer: ConvLayer,
        config: EngineConfig,
        tile: Tile,
        mode: str,
        order: str,
        latency: int,
        raw: bool,
        load_scale: bool,
    ) -> None:
        self.layer, self.config, self.tile = layer, config, tile
        self.mode, self.order, self.latency = mode, order, latency
        self.out_bytes = 4 if raw else 1
        self.load_scale = load_scale
        self.depthwise = mode == "depthwise"
        self.group_count = 1 if self.depthwise else layer.groups
        self.group_in = layer.group_in_channels
        self.group_out = layer.out_channels if self.depthwise else layer.group_out_channels
        self.heights = _extents(
            layer.out_height, tile.height, layer.stride[0], layer.window[0], layer.pads[0],
            layer.in_height,
        )  # fmt: skip
        self.widths = _extents(
            layer.out_width, tile.width, layer.stride[1], layer.window[1], layer.pads[2],
            layer.in_width,
        )  # fmt: skip
        self.reads = ReadTimeline(
            config.bus_bytes, chunk_bytes(config), latency, run_latency(config),
            segments_waiting(config),
        )  # fmt: skip
        self.writes = WriteTimeline(config.bus_bytes)
        self.room = results_room(config)
        # Cycles in which the last rows of results left the room behind the requantisers.
        self.pops: deque[int] = deque([-1] * self.room, maxlen=self.room)
        self.loader_free = 0
        self.lanes_end = -1
        self.lanes_group = -1
        self.drain = self.hold = 0
        # What tiles did that met the engine in some state, relative to their first cycles.
        self.loads: dict[object, tuple[int, tuple[object, ...]]] = {}
        self.computes: dict[object, _Repeat] = {}
        self.page_marks: dict[tuple[int, int, int, int], tuple[tuple[int, int], ...]] = {}

    # --- the loop nest -----------------------------------------------------------------------

    def steps(self) -> Iterator[_Step]:
        """Tiles in the order of their loops; an operand is new when its tile index changes."""
        count_h, count_w = len(self.heights), len(self.widths)
        count_m = -(-self.group_out // self.tile.out_channels)
        count_c = 1 if self.depthwise else -(-self.group_in // self.tile.in_channels)
        before: dict[str, tuple[int, ...] | None] = dict.fromkeys("iwp")
        for g in range(self.group_count):
            if self.order == "hwmc":
                outer = (
                    (h, w, m)
                    for h in range(count_h)
                    for w in range(count_w)
                    for m in range(count_m)
                )
            else:
                outer = (
                    (h, w, m)
                    for m in range(count_m)
                    for h in range(count_h)
                    for w in range(count_w)
                )
            for h, w, m in outer:
                for c in range(count_c):
                    now: dict[str, tuple[int, ...] | None] = {
                        "i": (h, w, m) if self.depthwise else (g, h, w, c),
                        "w": (g, m, c),
                        "p": (g, m),
                    }
                    new = {key: now[key] != before[key] for key in now}
                    before = now
                    yield _Step((g, h, w, m, c), new["i"], new["w"], new["p"])

    def sizes(self, step: _Step) -> tuple[int, int]:
        """Output channels and input channels of a tile."""
        _, _, _, m, c = step.index
        channels_m = min(self.tile.out_channels, self.group_out - m * self.tile.out_channels)
        if self.depthwise:
            return channels_m, 1
        return channels_m, min(self.tile.in_channels, self.group_in - c * self.tile.in_channels)

    def channel_groups(self, channels: int) -> list[int]:
        """Output channels of each group of Pm."""
        lanes = self.config.out_lanes
        return [min(lanes, channels - first) for first in range(0, channels, lanes)]

    # --- loading -------------------------------------------------------------------------------

    def _rows(
        self,
        count: int,
        window: int,
        one: Callable[[int], None],
        taken: int,
        crosses: Callable[[int], bool] | None = None,
        settled: int = 0,
    ) -> None:
        """Do ``one(index)`` for ``count`` rows of ``taken`` bytes, and jump where they repeat.

        Every ``window`` rows the bytes lie in beats as before. Rows with ``crosses`` are segments
        of their own, ``settled`` of them ahead; it tells whether a segment of a row crosses a page.
        Such a segment takes longer, which matters where requests follow each other closely.
        """
        reads = self.reads
        asking = crosses is not None
        states = _States()
        strict = reads.tight = False
        index = 0
        while index < count:
            one(index)
            index += 1
            if not JUMPS or index % window or not settled <= index < count - window:
                continue
            end = count - window  # One window stays: the end of a segment may share its beat.
            if crosses is not None:
                if reads.tight and not strict:
                    strict = True
                    states.forget()
                if strict:
                    if any(crosses(row) for row in range(index - window, index)):
                        states.forget()
                    end = next((row for row in range(index, end) if crosses(row)), end)
            found = states.look(reads.state(asking=asking), index, reads.taken_at)
            if found is not None:
                period, (cycles,) = found
                times = (end - index) // period
                reads.jump(times * cycles, times * period * taken, asking=asking)
                index += times * period
                states.forget()

    def _weight_address(self, step: _Step) -> int:
        g, _, _, m, c = step.index
        tile = self.tile
        first = m * tile.out_channels
        if self.depthwise:
            return self.layer.taps * first
        channels_m, _ = self.sizes(step)
        first = (g * self.group_out + first) * self.group_in + c * tile.in_channels * channels_m
        return self.layer.taps * first

    def _load_weights(self, step: _Step, start: int) -> int:
        channels_m, channels_c = self.sizes(step)
        lanes, taps, bus = self.config.split_lanes, self.layer.taps, self.config.bus_bytes
        address = self._weight_address(step)
        self.reads.ask(address, channels_m * channels_c * taps)
        for members in self.channel_groups(channels_m):
            chunks: list[int] = []
            if self.mode == "channel":
                for first in range(0, channels_c, lanes):
                    chunks += [min(lanes, channels_c - first)] * members
            else:
                chunks = [members] * channels_c
            size = members * channels_c
            window = bus // gcd(size, bus)

            def tap(_: int, chunks: list[int] = chunks) -> None:
                for chunk in chunks:
                    self.reads.take(chunk, start)

            self._rows(taps, window, tap, size)
        return self.reads.taken_at + 1

    def _input_address(self, step: _Step, rows: _Extent, columns: _Extent) -> int:
        layer = self.layer
        g, _, _, m, c = step.index
        first = m * self.tile.out_channels if self.depthwise else g * self.group_in
        if not self.depthwise:
            first += c * self.tile.in_channels
        pixel = rows.first_input * layer.in_width + columns.first_input
        return pixel * layer.in_channels + first

    def _page_marks(
        self, address: int, rows: int, columns: int, channels: int
    ) -> tuple[tuple[int, int], ...]:
        """Return number and bursts of the input segments that cross a page."""
        layer, address = self.layer, address % BURST_BYTES
        key = (address, rows, columns, channels)
        marks = self.page_marks.get(key)
        if marks is not None:
            return marks
        whole = channels == layer.in_channels
        pitch = layer.in_width * layer.in_channels
        step, length = layer.in_channels, channels
        if whole:
            step, length = pitch, columns * channels
        found: list[tuple[int, int]] = []
        for row in range(rows):
            first = address + row * pitch
            end = first + (columns - 1) * layer.in_channels + channels
            page = first - first % BURST_BYTES + BURST_BYTES
            for at in range(page, end, BURST_BYTES):
                number, offset = divmod(at - first, step)
                mark = row * columns + number
                if 0 < offset < length and (not found or found[-1][0] != mark):
                    found.append((mark, self.reads.bursts(first + number * step, length)))
        marks = self.page_marks[key] = tuple(found)
        return marks

    def _load_input(self, step: _Step, rows: _Extent, columns: _Extent, start: int) -> int:
        layer, config = self.layer, self.config
        channels_m, channels_c = self.sizes(step)
        channels = channels_m if self.depthwise else channels_c
        word = config.out_lanes if self.depthwise else config.word_bytes
        pixel = [min(word, channels - first) for first in range(0, channels, word)]
        pitch = layer.in_width * layer.in_channels
        base = self._input_address(step, rows, columns)
        whole = channels == layer.in_channels
        bus = config.bus_bytes

        def row(index: int) -> None:
            address = base + index * pitch
            if whole:
                self.reads.ask(address, columns.inputs * channels)
            for column in range(columns.inputs):
                if not whole:
                    self.reads.ask(address + column * layer.in_channels, channels)
                for chunk in pixel:
                    self.reads.take(chunk, start)

        length = channels if not whole else columns.inputs * channels

        def crosses(index: int) -> bool:
            first = base + index * pitch
            end = first + (columns.inputs - 1) * layer.in_channels + channels
            step = pitch if whole else layer.in_channels
            page = first - first % BURST_BYTES + BURST_BYTES
            return any(0 < (at - first) % step < length for at in range(page, end, BURST_BYTES))

        window = bus // gcd(pitch, bus)
        # The walker gets ahead of the loader until its queue of segments is full.
        settled = SEGMENTS_AHEAD // (1 if whole else columns.inputs)
        self._rows(rows.inputs, window, row, columns.inputs * channels, crosses, settled)
        return self.reads.taken_at + 1

    def _parameters(self, step: _Step) -> list[tuple[int, int, int] | None]:
        """Address, length and chunk of the biases and of the scales; None for one not loaded."""
        g, _, _, m, _ = step.index
        channels_m, _ = self.sizes(step)
        first = g * self.group_out + m * self.tile.out_channels
        return [
            (size * first, size * channels_m, size) if present else None
            for present, size in (
                (self.layer.has_bias, 4),
                (self.load_scale, scale_entry_bytes(self.config)),
            )
        ]

    def _load_key(self, step: _Step, began: int, released: dict[str, int]) -> tuple[object, ...]:
        """Return all that decides how long a tile loads after ``began``."""
        reads, bus = self.reads, self.config.bus_bytes
        _, h, w, _, _ = step.index
        channels_m, channels_c = sizes = self.sizes(step)
        key: list[object] = [sizes, reads.outlook(began)]

        def waits(kind: str) -> int:
            return max(released[kind] - reads.walker_free, 0)

        def segment(address: int, length: int) -> tuple[int, int]:
            return address % bus, reads.bursts(address, length)

        if step.new_parameters:
            key.append(("parameters", waits("parameters")))
            key += [segment(at, length) for at, length, _ in filter(None, self._parameters(step))]
        if step.new_weights:
            key.append(("weights", waits("weights")))
            length = channels_m * channels_c * self.layer.taps
            key.append(segment(self._weight_address(step), length))
        rows, columns = self.heights[h], self.widths[w]
        if step.new_input:
            channels = channels_m if self.depthwise else channels_c
            address = self._input_address(step, rows, columns)
            extents = (rows.inputs, columns.inputs, rows.skip + columns.skip)
            key.append(("input", waits("input"), extents, address % bus))
            key.append(self._page_marks(address, rows.inputs, columns.inputs, channels))
        return tuple(key)

    def _load(self, step: _Step, handed_out: int, released: dict[str, int]) -> tuple[int, int]:
        """Load a tile's operands; return its first cycle at the loader and the last."""
        reads = self.reads
        began = max(self.loader_free, handed_out + 1)
        reads.walker_free = max(reads.walker_free, handed_out + 1)
        if not JUMPS:
            now = self._load_walked(step, began, released)
        else:
            key = self._load_key(step, began, released)
            known = self.loads.get(key)
            if known is None:
                now = self._load_walked(step, began, released)
                self.loads[key] = now - began, reads.save(began)
            else:
                now = began + known[0]
                reads.restore(known[1], began)
        self.loader_free = now + 1
        return began, now

    def _load_walked(self, step: _Step, began: int, released: dict[str, int]) -> int:
        """Load operand by operand; return the last cycle."""
        reads = self.reads
        _, h, w, _, _ = step.index
        now = began + 1
        if step.new_parameters:
            reads.walker_free = max(reads.walker_free, released["parameters"])
            for segment in self._parameters(step):
                if segment is not None:
                    address, length, size = segment
                    reads.ask(address, length)
                    for _ in range(length // size):
                        reads.take(size, now)
                    now = reads.taken_at + 1
                else:
                    reads.walker_free += 1
        else:
            reads.walker_free += 1
        now += 1
        if step.new_weights:
            reads.walker_free = max(reads.walker_free, released["weights"])
            now = self._load_weights(step, now)
        else:
            reads.walker_free += 1
        now += 1
        if step.new_input:
            reads.walker_free = max(reads.walker_free, released["input"])
        reads.walker_free += 1
        rows, columns = self.heights[h], self.widths[w]
        if step.new_input and rows.inputs and columns.inputs:
            now += columns.skip + rows.skip + 2
            now = self._load_input(step, rows, columns, now)
        return now

    # --- computing -----------------------------------------------------------------------------

    def _row_groups(self, width: int, channels: int) -> list[tuple[int, int, int, int]]:
        """(first column, columns, first channel, channels) of the groups of one output row."""
        lanes = 1 if self.mode == "channel" else self.config.split_lanes
        return [
            (column, min(lanes, width - column), number * self.config.out_lanes, members)
            for column in range(0, width, lanes)
            for number, members in enumerate(self.channel_groups(channels))
        ]

    def _compute(self, step: _Step, loaded: int) -> _Computed:
        """Run a tile through lanes, drain and writer."""
        layer, config = self.layer, self.config
        g, h, w, m, c = step.index
        channels_m, channels_c = self.sizes(step)
        rows, columns = self.heights[h], self.widths[w]
        if self.mode == "channel":
            length = layer.taps * -(-channels_c // config.split_lanes)
        else:
            length = layer.taps * channels_c
        last = c == (0 if self.depthwise else -(-self.group_in // self.tile.in_channels) - 1)
        q, out = config.results_per_cycle, self.out_bytes
        accept = max(self.lanes_end + 1, loaded + 1)
        start = accept + 2
        end = start - 1
        pixel = layer.out_channels * out
        base = (g * self.group_out + m * self.tile.out_channels) * out
        base += (rows.first_output * layer.out_width + columns.first_output) * pixel
        pitch = layer.out_width * pixel
        latency, pace = result_latency(config), row_cycles(config)
        writes, pops = self.writes, self.pops
        key: object = None
        if JUMPS:
            # The first group's last step comes no earlier; events before it hold nothing up.
            soonest = end + length
            key = (
                (rows.outputs, columns.outputs, channels_m, length, last),
                max(self.lanes_group + self.drain - soonest, 0),
                max(self.lanes_group + self.hold - start, 0),
            )
            if last:
                key = (
                    key,
                    base % config.bus_bytes,
                    writes.outlook(soonest + latency, base // config.bus_bytes),
                    tuple(max(pop + 1 - soonest, 0) for pop in pops),
                )
            known = self.computes.get(key)
            if known is not None:
                return self._repeated(known, start, last, base // config.bus_bytes)
        groups = self._row_groups(columns.outputs, channels_m)
        stalls = {"drain": 0, "write": 0}
        last_group = self.lanes_group
        drain, hold = self.drain, self.hold
        first_group = -1

        window = config.bus_bytes // gcd(pitch, config.bus_bytes)
        states = _States()
        index, repeats = 0, not JUMPS
        while index < rows.outputs:
            for first, count, channel, members in groups:
                free = end + length
                issue = max(free, last_group + drain, last_group + hold - 1 + length)
                stalls["drain"] += issue - free
                steps = -(-members // q)
                rows_held = count * steps
                drain, hold = rows_held * pace, hold_cycles(config, rows_held)
                if last:
                    # Room for all rows of the group, each freed by one row written.
                    freed = pops[rows_held - 1] + 1
                    stalls["write"] += max(0, freed - issue)
                    issue = max(issue, freed)
                    row = issue + latency
                    address = base + index * pitch + first * pixel + channel * out
                    for column in range(count):
                        for begin in range(0, members, q):
                            size = min(q, members - begin) * out
                            at = address + column * pixel + begin * out
                            pops.append(writes.row(row, at, size))
                            row += pace
                end = last_group = issue
                if first_group < 0:
                    first_group = issue
            index += 1
            if repeats or index % window or index + window >= rows.outputs:
                continue
            state: tuple[object, ...] = (last_group - end,)
            if last:
                beat = (base + index * pitch) // config.bus_bytes
                state += (writes.state(end, beat), *(max(pop + 1 - end, 0) for pop in pops))
            found = states.look(state, index, end, *stalls.values())
            if found is None:
                continue
            repeats = True
            period, (cycles, *stalled) = found
            times = (rows.outputs - index) // period
            index += times * period
            end += times * cycles
            last_group += times * cycles
            for kind, growth in zip(stalls, stalled, strict=True):
                stalls[kind] += times * growth
            if last:
                writes.jump(times * cycles, times * period * pitch // config.bus_bytes)
                pops.extend([pop + times * cycles for pop in pops])
        if JUMPS:
            self.computes[key] = _Repeat(
                first_group - start,
                end - start,
                last_group - start,
                drain,
                hold,
                stalls,
                writes.save(start, base // config.bus_bytes),
                tuple(pop - start for pop in pops) if last else (),
            )
        return self._computed(start, first_group, end, last_group, drain, hold, stalls)

    def _repeated(self, known: _Repeat, start: int, last: bool, beat: int) -> _Computed:
        """Do what a tile before did that met lanes, drain and writer alike."""
        if last:
            self.writes.restore(known.writes, start, beat)
            self.pops = deque((pop + start for pop in known.pops), maxlen=self.room)
        return self._computed(
            start,
            start + known.first_group,
            start + known.end,
            start + known.last_group,
            known.drain,
            known.hold,
            known.stalls,
        )

    def _computed(
        self,
        start: int,
        first_group: int,
        end: int,
        last_group: int,
        drain: int,
        hold: int,
        stalls: dict[str, int],
    ) -> _Computed:
        """Leave the lanes as a tile leaves them, and name what held it up."""
        waited = start - self.lanes_end - 1
        self.lanes_end, self.lanes_group, self.drain, self.hold = end, last_group, drain, hold
        stall = stalls["drain"] + stalls["write"]
        cause = "compute"
        if max(waited - 2, stall) > 0:
            cause = "load" if waited - 2 >= stall else max(stalls, key=lambda key: stalls[key])
        return _Computed(start, first_group, end, stall, cause)

    # --- all of it -----------------------------------------------------------------------------

    def run(self) -> Schedule:
        """Walk all tiles."""
        bus = self.config.bus_bytes
        # Start, request and its way through the splitter; words; then check and sequencer.
        handed_out = 3 + self.latency + fetch_cycles(bus) + 2 + SEQUENCE
        held: dict[str, list[int]] = {"parameters": [], "weights": [], "input": []}
        ahead = self.config.tiles_ahead
        accepts: deque[int] = deque(maxlen=max(1, ahead))
        written: deque[int] = deque(maxlen=max(1, ahead))
        timings: list[TileTiming] = []
        first = True
        for step in self.steps():
            if not first and not ahead:
                # The lanes and the writer are the last to take a tile.
                handed_out = max([*accepts, *written]) + 1
            if not first:
                handed_out += SEQUENCE
            if ahead and len(accepts) == ahead:
                handed_out = max(handed_out, accepts[0] + 1)
            if ahead and len(written) == ahead:
                handed_out = max(handed_out, written[0] + 1)
            # Two halves: a load may start once the tile that brought the one before has started.
            released = {kind: times[-1] if len(times) > 1 else 0 for kind, times in held.items()}
            load_start, loaded = self._load(step, handed_out, released)
            before = self.lanes_end
            final = step.index[4] == 0 if self.depthwise else self._is_last(step)
            if final:
                # The writer takes the tile's address once the tile before is written.
                written.append(self.writes.next_tile(handed_out + 1))
            work = self._compute(step, loaded)
            accept = work.start - 2
            accepts.append(accept)
            for kind, new in (("input", step.new_input), ("weights", step.new_weights)):
                if new:
                    held[kind].append(accept + 1)
            if step.new_parameters:
                # The drain gives them back when it takes the tile's first sums.
                held["parameters"].append(work.first_group + release_latency(self.config) + 1)
            drained = work.end + lanes_latency(self.config) + 1
            if final:
                drained = self.writes.popped_at + 1
            timings.append(
                TileTiming(
                    step.index, load_start, loaded + 1, work.start, work.end + 1, drained,
                    work.start - before - 1, work.stall, work.cause,
                )
            )  # fmt: skip
            first = False
        cycles = self.writes.idle_at + 2
        compute = sum(t.compute_end - t.compute_start - t.drain_stall for t in timings)
        first_load = timings[0].compute_start
        return Schedule(
            cycles=cycles,
            compute_cycles=compute,
            first_load_cycles=first_load,
            load_stall_cycles=sum(t.load_stall for t in timings[1:]),
            drain_stall_cycles=sum(t.drain_stall for t in timings),
            end_cycles=cycles - timings[-1].compute_end,
            tiles=tuple(timings),
        )

    def _is_last(self, step: _Step) -> bool:
        return step.index[4] == -(-self.group_in // self.tile.in_channels) - 1


def schedule_layer(
    layer: ConvLayer,
    config: EngineConfig,
    tile: Tile,
    mode: str,
    order: str,
    *,
    latency: int = 16,
    raw: bool = False,
    load_scale: bool | None = None,
) -> Schedule:
    """Walk the tiles of a layer and return the cycles of each.

    Parameters
    ----------
    layer, config, tile, mode, order
        A plan's choice; the tile must fit.
    latency : int
        Cycles from an accepted read request to its first beat.
    raw : bool
        int32 sums instead of int8 results.
    load_scale : bool or None
        Whether the scale table is fetched; None: for int8 results alone.
    """
    scale = not raw if load_scale is None else load_scale
    return _Walk(layer, config, tile, mode, order, latency, raw, scale).run()
