"""Figures as SVG: a plan's tiles, storage and timeline; GEMM traffic over the tile size."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import drawsvg

from haloconv.flow.report import count, percent, tile_words
from haloconv.flow.source import layer_words
from haloconv.planner.layer import ConvLayer

if TYPE_CHECKING:
    from haloconv.planner.plan import Plan

__all__ = ["curve_figure", "plan_figure", "tile_figure"]

FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
WIDTH = 1000
MARGIN = 36
GRID_TOP = 96
GRID_ROOM = (WIDTH - 3 * MARGIN) / 2
INK, FAINT, LINE = "#1d2733", "#5b6672", "#c3cad3"
TILE, HALO, CORE = "#3f7cb8", "#f2b46b", "#fbe3c2"
STALL = "#d9534f"
TENSOR_COLORS = {
    "input": ("#3f7cb8", "#d5e5f4"),
    "weights": ("#46914f", "#d8ecda"),
    "partial sums": ("#c4603a", "#f8ddd1"),
    "biases": ("#7a5ca8", "#e6dcf3"),
}
SHOWN_TILES = 24
"""Tiles of the timeline; later ones repeat the pattern."""


def _text(
    target: Any,
    text: str,
    x: float,
    y: float,
    size: float = 13,
    *,
    anchor: str = "start",
    color: str = INK,
    bold: bool = False,
) -> None:
    target.append(
        drawsvg.Text(
            text,
            size,
            round(x, 2),
            round(y, 2),
            text_anchor=anchor,
            fill=color,
            font_weight="bold" if bold else "normal",
        )
    )


def _box(
    target: Any, x: float, y: float, width: float, height: float, title: str = "", **style: Any
) -> None:
    """Append a rectangle; ``title`` shows when the pointer rests on it."""
    rectangle = drawsvg.Rectangle(
        round(x, 2), round(y, 2), round(max(width, 0.0), 2), round(max(height, 0.0), 2), **style
    )
    if title:
        rectangle.append_title(title)
    target.append(rectangle)


def _line(target: Any, x1: float, y1: float, x2: float, y2: float, **style: Any) -> None:
    target.append(drawsvg.Line(round(x1, 2), round(y1, 2), round(x2, 2), round(y2, 2), **style))


def _sheet(height: float) -> drawsvg.Drawing:
    drawing = drawsvg.Drawing(WIDTH, math.ceil(height), font_family=FONT)
    drawing.append(drawsvg.Rectangle(0, 0, WIDTH, math.ceil(height), rx=8, fill="#ffffff"))
    return drawing


def _svg(drawing: drawsvg.Drawing) -> str:
    text = drawing.as_svg()
    if not isinstance(text, str):
        raise TypeError(f"drawsvg gave {type(text).__name__} instead of text")
    return text.rstrip() + "\n"


def _spans(layer: ConvLayer, axis: int, size: int) -> list[tuple[int, int]]:
    """Return the first input row (column) and the one after the last under each tile."""
    outputs = (layer.out_height, layer.out_width)[axis]
    stride, window, pad = layer.stride[axis], layer.window[axis], layer.pads[2 * axis]
    spans: list[tuple[int, int]] = []
    for first in range(0, outputs, size):
        last = min(first + size, outputs) - 1
        spans.append((first * stride - pad, last * stride + window - pad))
    return spans


def _own(spans: Sequence[tuple[int, int]], index: int) -> tuple[int, int]:
    """Return the part of a span that no neighbour reads; empty parts have no length."""
    begin, end = spans[index]
    for other, span in enumerate(spans):
        if other < index:
            begin = max(begin, span[1])
        elif other > index:
            end = min(end, span[0])
    return begin, max(begin, end)


def plan_figure(plan: "Plan", name: str = "") -> str:
    """Return the figure of a plan as SVG text.

    Three parts: the tile grid over input and output with the halo of one tile, the storage of a
    tile against the budget, and the first tiles' loads, computing and drains over time.
    """
    return _figure(plan, name, timeline=True)


def tile_figure(plan: "Plan") -> str:
    """Return the first two parts of :func:`plan_figure` as SVG text: tile grid and storage.

    Neither needs the schedule of the layer, which is what takes time.
    """
    return _figure(plan, "", timeline=False)


def _figure(plan: "Plan", name: str, *, timeline: bool) -> str:
    layer = plan.layer
    scale = _grid_scale(layer)
    grid_height = 78 + scale * max(layer.padded_height, layer.out_height)
    storage_top = GRID_TOP + grid_height + 24
    timeline_top = storage_top + 212
    drawing = _sheet(timeline_top + (204 if timeline else -24))
    title = f"{name}: {layer_words(layer)}" if name else layer_words(layer)
    _text(drawing, title, MARGIN, 38, 20, bold=True)
    costs = (
        f": {count(plan.cycles)} cycles, {percent(plan.utilisation)} of the lanes used, "
        f"{count(plan.moved_bytes.total)} bytes moved"
        if timeline
        else ""
    )
    _text(
        drawing,
        f"tile {tile_words(plan.tile)}, order {plan.order}, {plan.mode} mode on "
        f"{plan.config.out_lanes}x{plan.config.split_lanes} lanes{costs}",
        MARGIN,
        62,
        13,
        color=FAINT,
    )
    _draw_grid(drawing, plan, scale, GRID_TOP, grid_height)
    _draw_storage(drawing, plan, storage_top)
    if timeline:
        _draw_timeline(drawing, plan, timeline_top)
    return _svg(drawing)


def _grid_scale(layer: ConvLayer) -> float:
    """Return the drawn size of one position, so that input and output fit side by side."""
    return min(
        GRID_ROOM / max(layer.padded_width, layer.out_width),
        300 / max(layer.padded_height, layer.out_height),
    )


def _draw_grid(
    drawing: drawsvg.Drawing, plan: "Plan", scale: float, top: float, height: float
) -> None:
    layer, tile = plan.layer, plan.tile
    rows, columns = _spans(layer, 0, tile.height), _spans(layer, 1, tile.width)
    # A tile with neighbours on both sides shows its halo best.
    at_row = 1 if len(rows) > 2 else 0
    at_column = 1 if len(columns) > 2 else 0
    pads_top, _, pads_left, _ = layer.pads
    y = top + 28

    # Input: the pads are generated, so they are drawn apart from the tensor.
    x = MARGIN
    _text(
        drawing,
        f"Input {layer.in_height}x{layer.in_width}x{layer.in_channels}",
        x,
        top + 12,
        14,
        bold=True,
    )
    origin_x, origin_y = x + pads_left * scale, y + pads_top * scale
    _box(
        drawing,
        x,
        y,
        layer.padded_width * scale,
        layer.padded_height * scale,
        fill="#f3f4f6",
        stroke=LINE,
        stroke_dasharray="3 3",
    )
    _box(
        drawing,
        origin_x,
        origin_y,
        layer.in_width * scale,
        layer.in_height * scale,
        fill="#ffffff",
        stroke=FAINT,
    )
    row, column = rows[at_row], columns[at_column]
    own_row, own_column = _own(rows, at_row), _own(columns, at_column)
    _box(
        drawing,
        origin_x + column[0] * scale,
        origin_y + row[0] * scale,
        (column[1] - column[0]) * scale,
        (row[1] - row[0]) * scale,
        f"input span of the tile: {row[1] - row[0]} rows, {column[1] - column[0]} columns",
        fill=HALO,
        stroke="#c08a1e",
    )
    if own_row[1] > own_row[0] and own_column[1] > own_column[0]:
        _box(
            drawing,
            origin_x + own_column[0] * scale,
            origin_y + own_row[0] * scale,
            (own_column[1] - own_column[0]) * scale,
            (own_row[1] - own_row[0]) * scale,
            fill=CORE,
        )
    if len(rows) <= 64 and len(columns) <= 64:
        for begin, _ in rows[1:]:
            _line(
                drawing,
                origin_x,
                origin_y + begin * scale,
                origin_x + layer.in_width * scale,
                origin_y + begin * scale,
                stroke=TILE,
                stroke_width=0.7,
                stroke_dasharray="4 3",
            )
        for begin, _ in columns[1:]:
            _line(
                drawing,
                origin_x + begin * scale,
                origin_y,
                origin_x + begin * scale,
                origin_y + layer.in_height * scale,
                stroke=TILE,
                stroke_width=0.7,
                stroke_dasharray="4 3",
            )

    # Output: the tile grid itself.
    x = 2 * MARGIN + GRID_ROOM
    _text(
        drawing,
        f"Output {layer.out_height}x{layer.out_width}x{layer.out_channels}: "
        f"{len(rows)}x{len(columns)} tiles",
        x,
        top + 12,
        14,
        bold=True,
    )
    _box(
        drawing,
        x,
        y,
        layer.out_width * scale,
        layer.out_height * scale,
        fill="#ffffff",
        stroke=FAINT,
    )
    first_row, first_column = at_row * tile.height, at_column * tile.width
    _box(
        drawing,
        x + first_column * scale,
        y + first_row * scale,
        (min(first_column + tile.width, layer.out_width) - first_column) * scale,
        (min(first_row + tile.height, layer.out_height) - first_row) * scale,
        "the tile whose halo is shown",
        fill="#a9c8e6",
    )
    for index in range(1, len(rows)):
        at = y + index * tile.height * scale
        _line(drawing, x, at, x + layer.out_width * scale, at, stroke=TILE, stroke_width=1)
    for index in range(1, len(columns)):
        at = x + index * tile.width * scale
        _line(drawing, at, y, at, y + layer.out_height * scale, stroke=TILE, stroke_width=1)

    legend_y = top + height - 14
    x = MARGIN
    for fill, stroke, label in (
        ("#a9c8e6", TILE, "one tile"),
        (CORE, "#c08a1e", "input that it alone reads"),
        (HALO, "#c08a1e", "halo: read by neighbours too"),
        ("#f3f4f6", LINE, "padding: generated, never fetched"),
    ):
        _box(drawing, x, legend_y - 11, 14, 14, fill=fill, stroke=stroke)
        _text(drawing, label, x + 20, legend_y, 12, color=FAINT)
        x += 44 + 6.6 * len(label)


def _draw_storage(drawing: drawsvg.Drawing, plan: "Plan", top: float) -> None:
    config, storage = plan.config, plan.storage
    parts = (
        ("input", 2, storage.input, config.input_bytes),
        ("weights", 2, storage.weight, config.weight_bytes),
        ("partial sums", 1, storage.psum, config.psum_bytes),
        ("biases", 1, storage.bias, config.bias_bytes),
    )
    _text(
        drawing,
        f"Storage: budget {count(config.budget_bytes)} bytes",
        MARGIN,
        top + 4,
        14,
        bold=True,
    )
    total = config.budget_bytes + config.allowance_bytes
    scale = (WIDTH - 2 * MARGIN - 10) / total
    x, y = float(MARGIN), top + 18.0
    for label, copies, used, built in parts:
        strong, weak = TENSOR_COLORS[label]
        idle = label == "partial sums" and storage.psum_idle
        for half in range(copies):
            which = f" half {'AB'[half]}" if copies == 2 else ""
            _box(
                drawing,
                x,
                y,
                built * scale,
                40,
                f"{label}{which}: {used} of {built} bytes",
                fill=weak,
                stroke="#ffffff",
                stroke_width=1,
            )
            if not idle:
                _box(drawing, x, y, min(used, built) * scale, 40, fill=strong)
            if copies == 2 and built * scale > 20:
                _text(drawing, "AB"[half], x + 5, y + 14, 11, color="#ffffff")
            x += built * scale
    _line(drawing, x, y - 5, x, y + 46, stroke=INK, stroke_width=1.5)
    _box(
        drawing,
        x + 10,
        y,
        config.allowance_bytes * scale,
        40,
        f"allowance outside the budget: {config.allowance_bytes} bytes",
        fill="#e3e6ea",
        stroke=FAINT,
        stroke_dasharray="3 2",
    )
    y += 68
    rows: list[tuple[str, str, str]] = []
    for label, copies, used, built in parts:
        times = "2 x " if copies == 2 else ""
        text = f"{label}: {times}{count(used)} of {times}{count(built)} bytes"
        if label == "partial sums" and storage.psum_idle:
            text = (
                f"partial sums: {count(used)} bytes stay in the lanes, "
                f"the bank of {count(built)} is idle"
            )
        rows.append((TENSOR_COLORS[label][0], "none", text))
    rows.append(
        (
            "#e3e6ea",
            FAINT,
            f"beside the budget: {count(config.allowance_bytes)} bytes of scales and second biases",
        )
    )
    for index, (fill, stroke, text) in enumerate(rows):
        x = MARGIN + (index % 2) * (WIDTH / 2 - MARGIN + 8)
        _box(drawing, x, y + 24 * (index // 2) - 11, 14, 14, fill=fill, stroke=stroke)
        _text(drawing, text, x + 20, y + 24 * (index // 2), 12, color=FAINT)
    _text(
        drawing,
        f"one tile {count(storage.single)} bytes, double-buffered "
        f"{count(storage.double_buffered)} bytes; strong colour: occupied, pale: built",
        MARGIN,
        y + 78,
        12,
        color=FAINT,
    )


def _ticks(end: float, most: int = 8) -> list[float]:
    """Return round numbers from 0 to ``end``, at most ``most`` steps."""
    if end <= 0:
        return [0.0]
    rough = end / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [index * step for index in range(int(end / step + 1e-9) + 1)]


def _draw_timeline(drawing: drawsvg.Drawing, plan: "Plan", top: float) -> None:
    tiles = plan.schedule.tiles[:SHOWN_TILES]
    all_tiles = len(plan.schedule.tiles)
    shown = (
        f"first {len(tiles)} of {all_tiles} tiles"
        if all_tiles > len(tiles)
        else (f"all {all_tiles} tiles" if all_tiles > 1 else "one tile")
    )
    _text(drawing, f"Timeline: {shown}", MARGIN, top + 4, 14, bold=True)
    _text(
        drawing,
        "load: from a tile's turn to its last operand, waiting for a free buffer half included",
        WIDTH - MARGIN,
        top + 4,
        11,
        anchor="end",
        color=FAINT,
    )
    left, right = MARGIN + 66, WIDTH - MARGIN
    end = max(tile.drain_end for tile in tiles)
    scale = (right - left) / end
    rows = {"load": top + 20, "compute": top + 58, "drain": top + 96}
    bottom = top + 134
    for tick in _ticks(end):
        at = left + tick * scale
        _line(drawing, at, top + 16, at, bottom, stroke="#e6e9ed", stroke_width=1)
        _text(drawing, count(round(tick)), at, bottom + 16, 11, anchor="middle", color=FAINT)
    _text(drawing, "cycles", right, bottom + 32, 11, anchor="end", color=FAINT)
    for label, y in rows.items():
        _text(drawing, label, left - 10, y + 20, 12, anchor="end", color=FAINT)

    shades = {
        "load": ("#3f7cb8", "#7fabd6"),
        "compute": ("#46914f", "#86bf8d"),
        "drain": ("#c4603a", "#e29b7e"),
    }
    for number, tile in enumerate(tiles):
        for label, begin, stop in (
            ("load", tile.load_start, tile.load_end),
            ("compute", tile.compute_start, tile.compute_end),
            ("drain", tile.compute_end, tile.drain_end),
        ):
            if stop <= begin:
                continue
            # Short drains of long tiles would not show.
            width = max((stop - begin) * scale, 1.0)
            x = left + begin * scale
            _box(
                drawing,
                x,
                rows[label],
                width,
                30,
                f"tile {number}: {label} {begin} to {stop}",
                fill=shades[label][number % 2],
            )
            if width > 9 * len(str(number)) + 4:
                _text(
                    drawing,
                    str(number),
                    x + width / 2,
                    rows[label] + 20,
                    11,
                    anchor="middle",
                    color="#ffffff",
                )
    for before, after in pairwise(tiles):
        gap = (after.compute_start - before.compute_end) * scale
        if gap >= 0.5:
            _box(
                drawing,
                left + before.compute_end * scale,
                rows["compute"] + 12,
                gap,
                6,
                f"stall of {after.compute_start - before.compute_end} cycles",
                fill=STALL,
            )
    schedule = plan.schedule
    _box(drawing, MARGIN, bottom + 37, 14, 6, fill=STALL)
    _text(
        drawing,
        f"lanes wait: {count(schedule.load_stall_cycles)} cycles for operands, "
        f"{count(schedule.drain_stall_cycles)} for drain or writes, in the whole layer of "
        f"{count(plan.cycles)} cycles",
        MARGIN + 20,
        bottom + 44,
        12,
        color=FAINT,
    )


def curve_figure(
    title: str,
    subtitle: str,
    x_label: str,
    xs: Sequence[int],
    series: Sequence[tuple[str, Sequence[int]]],
    marked: int,
    note: str = "",
    unit: Callable[[float], str] = count,
) -> str:
    """Return curves of bytes over the tile size as SVG text, both axes logarithmic.

    Parameters
    ----------
    title, subtitle, x_label, note : str
    xs : sequence of int
        Ascending, from 1.
    series : sequence of (label, bytes)
        One value for each of ``xs``.
    marked : int
        The tile size whose values are marked and written out.
    unit : callable
        Writes a value of the vertical axis.
    """
    height = 520
    drawing = _sheet(height)
    _text(drawing, title, MARGIN, 38, 20, bold=True)
    _text(drawing, subtitle, MARGIN, 62, 13, color=FAINT)
    left, right, top, bottom = MARGIN + 84, WIDTH - MARGIN, 92, height - 92
    values = [value for _, ys in series for value in ys]
    low = 10 ** math.floor(math.log10(min(values)))
    high = 10 ** math.ceil(math.log10(max(values)))
    high = max(high, 10 * low)
    x_high = max(xs[-1], 2)

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + (right - left) * math.log(x) / math.log(x_high),
            bottom - (bottom - top) * math.log(y / low) / math.log(high / low),
        )

    decade = low
    while decade <= high:
        for factor in (1, 2, 5):
            if decade * factor > high:
                break
            _, y = at(1, decade * factor)
            _line(drawing, left, y, right, y, stroke="#d5dae0" if factor == 1 else "#eef0f3")
            if factor == 1 or high / low <= 100:
                _text(
                    drawing, unit(decade * factor), left - 8, y + 4, 11, anchor="end", color=FAINT
                )
        decade *= 10
    power = 1
    while power <= x_high:
        x, _ = at(power, low)
        _line(drawing, x, top, x, bottom, stroke="#eef0f3")
        _text(drawing, count(power), x, bottom + 16, 11, anchor="middle", color=FAINT)
        power *= 2
    _text(drawing, x_label, (left + right) / 2, bottom + 36, 12, anchor="middle", color=FAINT)
    _text(drawing, "bytes", left - 8, top - 10, 12, anchor="end", color=FAINT)

    place = list(xs).index(marked)
    for index, (label, ys) in enumerate(series):
        color = (TILE, "#c4603a", "#46914f")[index % 3]
        points = [round(number, 2) for x, y in zip(xs, ys, strict=True) for number in at(x, y)]
        if len(xs) > 1:
            drawing.append(
                drawsvg.Lines(
                    *points, fill="none", stroke=color, stroke_width=2.2, stroke_linejoin="round"
                )
            )
        x, y = at(marked, ys[place])
        drawing.append(drawsvg.Circle(round(x, 2), round(y, 2), 5, fill=color, stroke="#ffffff"))
        legend = MARGIN + 84 + index * 430
        _line(drawing, legend, height - 34, legend + 24, height - 34, stroke=color, stroke_width=3)
        _text(
            drawing,
            f"{label}: {count(ys[place])} bytes at t = {marked}",
            legend + 32,
            height - 30,
            12,
            color=INK,
        )
    if note:
        _text(drawing, note, MARGIN + 84, height - 10, 11, color=FAINT)
    return _svg(drawing)
