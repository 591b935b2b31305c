"""Random layers and engines for the search, and the least figures of every tile there is."""

import itertools
import random
from collections.abc import Callable, Iterator

from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.estimate import END_CYCLES, LOAD_CYCLES, estimate_cycles
from haloconv.planner.latency import (
    hold_cycles,
    release_latency,
    result_latency,
    row_cycles,
)
from haloconv.planner.layer import ConvLayer
from haloconv.planner.search import search_tiles
from haloconv.planner.storage import tile_storage
from haloconv.planner.tile import ORDERS, Tile, check_fit
from haloconv.planner.traffic import is_channelwise, moved_bytes

__all__ = [
    "best_of_all",
    "estimated",
    "every_tile",
    "extents",
    "found",
    "modes",
    "random_config",
    "random_layer",
    "walk",
]


def up(a: int, b: int) -> int:
    return -(-a // b)


def modes(layer: ConvLayer) -> tuple[str, ...]:
    return ("depthwise",) if is_channelwise(layer) else ("channel", "row")


def extents(layer: ConvLayer) -> tuple[int, int, int, int]:
    """Outputs down and across, input and output channels of the loops."""
    if is_channelwise(layer):
        return layer.out_height, layer.out_width, 1, layer.out_channels
    return (
        layer.out_height,
        layer.out_width,
        layer.group_in_channels,
        layer.group_out_channels,
    )


def walk(
    layer: ConvLayer,
    config: EngineConfig,
    mode: str,
    order: str,
    tile: Tile,
    latency: int,
    raw: bool,
) -> int:
    """Estimate the cycles tile by tile, in plain integers, as the module's text defines them."""
    height, width, in_channels, out_channels = extents(layer)
    pm, pr, q = config.out_lanes, config.split_lanes, config.results_per_cycle
    bus, taps, out_bytes = config.bus_bytes, layer.taps, 4 if raw else 1
    size = {
        "h": (tile.height, height),
        "w": (tile.width, width),
        "m": (tile.out_channels, out_channels),
        "c": (tile.in_channels, in_channels),
    }

    def cut(loop: str) -> list[tuple[int, int]]:
        step, end = size[loop]
        return [(start, min(step, end - start)) for start in range(0, end, step)]

    def inputs(loop: str, axis: int) -> dict[int, int]:
        """Input rows or columns by tile; all but the last count as the fullest of them."""
        stride, window, pad = layer.stride[axis], layer.window[axis], layer.pads[2 * axis]
        extent = (layer.in_height, layer.in_width)[axis]
        parts = cut(loop)
        inside = [
            sum(
                0 <= y < extent
                for y in range(a * stride - pad, (a + n - 1) * stride - pad + window)
            )
            for a, n in parts
        ]
        fullest = max(inside[:-1], default=0)
        counted = [fullest] * (len(parts) - 1) + inside[-1:]
        return {start: count for (start, _), count in zip(parts, counted, strict=True)}

    def group(k: int, results: int) -> int:
        """Cycles from one group of sums to the next."""
        return max(k + hold_cycles(config, results) - 1, results * row_cycles(config))

    rows, columns = inputs("h", 0), inputs("w", 1)
    ahead = config.tiles_ahead > 0
    size_of_scale = 6 if config.weight_zero_points else 5
    chunk = max(config.word_bytes, pr, pm, size_of_scale)
    cycles = 51 + 320 // min(bus, 4) + latency + END_CYCLES + result_latency(config)
    held: dict[str, tuple[int, ...]] = {}
    before: tuple[int, bool, bool] | None = None
    for g in range(1 if mode == "depthwise" else layer.groups):
        for at in itertools.product(*(cut(loop) for loop in order)):
            (h, th), (w, tw), (m, tm), (c, tc) = (
                at[order.index("h")],
                at[order.index("w")],
                at[order.index("m")],
                at[order.index("c")],
            )
            valid = [min(pm, tm - x) for x in range(0, tm, pm)]
            if mode == "channel":
                k = taps * up(tc, pr)
                compute = th * tw * sum(group(k, up(v, q)) for v in valid)
            else:
                k = taps * (1 if mode == "depthwise" else tc)
                runs = [min(pr, tw - x) for x in range(0, tw, pr)]
                compute = th * sum(group(k, n * up(v, q)) for v in valid for n in runs)
            beats = 0
            written = c + tc == in_channels
            if written:
                beats = th * tw * sum(up(v * out_bytes, bus) for v in valid)
                if tm == layer.out_channels and (mode == "channel" or tm <= pm):
                    beats = up(th * tw * tm * out_bytes, bus)
            busy = max(compute + 2, beats)
            load = LOAD_CYCLES + latency
            index = (h, w, m) if mode == "depthwise" else (g, h, w, c)
            new_input = held.get("input") != index
            if new_input:
                held["input"] = index
                channels = tm if mode == "depthwise" else tc
                words = up(channels, pm if mode == "depthwise" else config.word_bytes)
                if channels == layer.in_channels:
                    row = max(columns[w] * words, up(columns[w] * channels, bus))
                else:
                    row = columns[w] * max(words, up(channels, bus))
                load += rows[h] * row
            if held.get("weight") != (g, m, c):
                held["weight"] = (g, m, c)
                chunks = tm * up(tc, pr) if mode == "channel" else len(valid) * tc
                load += max(taps * chunks, up(tm * tc * taps, bus)) + 2 * new_input
            parameters = c == 0 and held.get("parameter") != (g, m)
            wait = 0 if ahead else 47
            if parameters:
                held["parameter"] = (g, m)
                load += 1 + (max(tm, up(4 * tm, bus)) if layer.has_bias else 1)
                if not raw:
                    load += scale_cycles(tm, size_of_scale, bus, chunk)
                if before is None or before[1]:
                    wait = max(wait, k + release_latency(config) + 1)
            if before is None:
                cycles += load
            else:
                load += wait
                cycles += max(load, before[0], 46 * ahead)
                if not ahead and before[2]:
                    half = up(load + before[0] + result_latency(config), 2)
                    cycles += max(0, half - max(load, before[0]))
            before = busy, parameters, written
    assert before is not None
    return cycles + before[0]


def scale_cycles(count: int, size: int, bus: int, chunk: int) -> int:
    """Count the cycles of so many entries of the scale table, each after the one before.

    An entry waits a cycle where its last beat had no room until the entry before was taken: a
    string of bytes holds a beat more than a chunk, and a beat is taken two cycles after it came.
    """
    cycles = 0
    for end in range(size, count * size + 1, size):
        before_beat = (end - 1) // bus * bus
        taken_before = end - 2 * size
        cycles += 1 + (before_beat - taken_before > chunk)
    return max(cycles, up(count * size, bus))


def random_layer(rng: random.Random, channels: int, tiles: int) -> ConvLayer:
    """Draw a layer with at most ``tiles`` different tiles."""
    while True:
        kind = rng.choice(["dense", "dense", "grouped", "depthwise", "multiplied"])
        groups = {"dense": 1, "grouped": 2}.get(kind) or rng.randint(2, 9)
        one = kind in ("depthwise", "multiplied")
        per_in = 1 if one else rng.randint(1, channels)
        per_out = {"depthwise": 1, "multiplied": 2}.get(kind) or rng.randint(1, channels)
        pointwise = rng.random() < 0.4
        try:
            layer = ConvLayer(
                in_height=rng.randint(1, 14),
                in_width=rng.randint(1, 14),
                in_channels=groups * per_in,
                out_channels=groups * per_out,
                kernel=(1, 1) if pointwise else (rng.randint(1, 5), rng.randint(1, 5)),
                stride=(1, 1) if rng.random() < 0.4 else (rng.randint(1, 3), rng.randint(1, 3)),
                dilation=(rng.randint(1, 2), rng.randint(1, 2)),
                pads=(rng.randint(0, 3), rng.randint(0, 3), rng.randint(0, 3), rng.randint(0, 3)),
                groups=groups,
                has_bias=rng.random() < 0.7,
                name="drawn",
            )
        except ValueError:
            continue
        height, width, in_channels, out_channels = extents(layer)
        if height * width * in_channels * out_channels <= tiles:
            return layer


def random_config(rng: random.Random) -> EngineConfig:
    """Draw an engine of a few lanes and small buffers."""
    pm, pr = rng.choice([1, 2, 3, 4, 8]), rng.choice([1, 2, 3, 4, 8])
    word = pr * up(pm, pr)
    return EngineConfig(
        out_lanes=pm,
        split_lanes=pr,
        bus_bytes=rng.choice([1, 2, 4, 8, 16]),
        requant_lanes=rng.randint(1, pm),
        input_bytes=pr * word * rng.choice([1, 2, 4, 8, 16, 50]),
        weight_bytes=pm * pr * rng.choice([1, 4, 9, 20, 50, 100]),
        psum_bytes=rng.choice([0, 4 * pm, 64 * pm, 1000]),
        bias_bytes=4 * pm * rng.choice([1, 2, 4]),
        weight_zero_points=rng.random() < 0.5,
        tiles_ahead=rng.choice([0, 1, 4, 4]),
        serial_requantizers=rng.random() < 0.3,
    )


def every_tile(layer: ConvLayer) -> Iterator[Tile]:
    for sizes in itertools.product(*(range(1, extent + 1) for extent in extents(layer))):
        yield Tile(*sizes)


def best_of_all(
    layer: ConvLayer,
    config: EngineConfig,
    objective: str,
    cycles: Callable[[str, str, list[Tile]], list[int]],
    raw: bool,
) -> tuple[int, int, int] | None:
    """Return the least figures of every mode, order and tile that fits."""
    figures: list[tuple[int, int, int]] = []
    for mode, order in itertools.product(modes(layer), ORDERS):
        tiles = [t for t in every_tile(layer) if check_fit(layer, config, t, mode) is None]
        if not tiles:
            continue
        for tile, count in zip(tiles, cycles(mode, order, tiles), strict=True):
            moved = moved_bytes(layer, tile, order, raw).total
            stored = tile_storage(layer, tile).double_buffered
            figures.append(
                {
                    "cycles": (count, moved, stored),
                    "bytes": (moved, count, stored),
                    "storage": (stored, count, moved),
                }[objective]
            )
    return min(figures, default=None)


def estimated(
    layer: ConvLayer, config: EngineConfig, latency: int, raw: bool
) -> Callable[[str, str, list[Tile]], list[int]]:
    def cycles(mode: str, order: str, tiles: list[Tile]) -> list[int]:
        values = estimate_cycles(layer, config, mode, order, tiles, latency=latency, raw=raw)
        return values.tolist()

    return cycles


def found(
    layer: ConvLayer, config: EngineConfig, objective: str, latency: int, raw: bool
) -> tuple[int, int, int] | None:
    """Return the figures that the search finds, worked out anew from its tile."""
    try:
        result = search_tiles(layer, config, objective, latency, raw)
    except PlanError:
        return None
    assert check_fit(layer, config, result.tile, result.mode) is None
    cycles = walk(layer, config, result.mode, result.order, result.tile, latency, raw)
    assert result.estimated_cycles == cycles
    moved = moved_bytes(layer, result.tile, result.order, raw).total
    assert result.moved_bytes == moved
    assert result.storage == tile_storage(layer, result.tile, config, result.mode)
    stored = result.storage.double_buffered
    figures = {
        "cycles": (cycles, moved, stored),
        "bytes": (moved, cycles, stored),
        "storage": (stored, cycles, moved),
    }[objective]
    assert result.figures(objective) == figures
    return figures
