"""The Pareto plot as a Vega-Lite specification, for the page and for papers alike."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from haloconv.flow.sweep_report.labels import engine_words, telling_parameters
from haloconv.flow.sweep_report.pareto import Axis, Pair, pairs, pareto_front
from haloconv.flow.sweep_report.points import Sweep

__all__ = ["COLORS", "SHAPES", "SIZES", "pareto_chart"]

# Okabe and Ito's colours, which eyes of every kind tell apart; shapes say the same once more.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")

WIDTH, HEIGHT = 600, 380
"""Size of the plot for papers in pixels, without axes."""

SIZES: dict[str, Any] = {
    "axis": {"labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": 500, "titlePadding": 10},
    "legend": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 500},
    "title": {"fontSize": 15, "subtitleFontSize": 12, "anchor": "start", "offset": 14},
}


def pareto_chart(sweep: Sweep, workload: str, x: Axis, y: Axis) -> dict[str, Any]:
    """Return area against rate with the Pareto front, its engines labelled with their lanes.

    Two parameters are for the page: ``chosen``, the identity of a ringed point, and ``shown``,
    the identities that a filter leaves (null: all).
    """
    entries = pairs(sweep, workload, x, y)
    front = pareto_front(entries, y)
    tags = _tags(front, entries)
    parameters = telling_parameters(sweep)
    on_front = {pair.point.id for pair in front}
    rows = [
        {
            "id": pair.point.id,
            "number": pair.point.number,
            "engine": engine_words(pair.point, parameters),
            "lanes": pair.point.lanes,
            "x": pair.x,
            "y": pair.y,
            "front": "yes" if pair.point.id in on_front else "no",
            "tag": tags.get(pair.point.id),
        }
        # Those of the front are drawn last, hence on top.
        for pair in sorted(entries, key=lambda pair: pair.point.id in on_front)
    ]
    kinds = sorted({pair.point.lanes for pair in entries}, key=_lane_order)
    place = {
        "x": _encoding("x", x, [pair.x for pair in entries]),
        "y": _encoding("y", y, [pair.y for pair in entries]),
    }
    legend: dict[str, Any] = {"title": "Lanes (output x split)", "orient": "top", "symbolSize": 90}
    # As many in a row as there is room for.
    legend["columns"] = {"expr": "max(2, floor(width / 64))"}
    kind_scale = {
        "color": {
            "field": "lanes",
            "type": "nominal",
            "scale": {
                "domain": kinds,
                "range": [COLORS[at % len(COLORS)] for at in range(len(kinds))],
            },
            "legend": legend,
        },
        "shape": {
            "field": "lanes",
            "type": "nominal",
            "scale": {
                "domain": kinds,
                "range": [SHAPES[at % len(SHAPES)] for at in range(len(kinds))],
            },
            "legend": legend,
        },
    }
    hidden = "shown !== null && indexof(shown, datum.id) < 0"
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "config": SIZES,
        "datasets": {
            "points": rows,
            "front": [{"x": pair.x, "y": pair.y} for pair in front],
        },
        "data": {"name": "points"},
        "params": [{"name": "chosen", "value": None}, {"name": "shown", "value": None}],
        "layer": [
            {
                "data": {"name": "front"},
                "mark": {
                    "type": "line",
                    "interpolate": "step-after",
                    "strokeWidth": 1.5,
                    "style": "front",
                    "aria": False,
                },
                "encoding": place,
            },
            {
                "transform": [{"filter": "datum.id === chosen"}],
                "mark": {
                    "type": "point",
                    "shape": "circle",
                    "filled": False,
                    "size": 420,
                    "strokeWidth": 2.5,
                    "opacity": 1,
                    "style": "ring",
                    "aria": False,
                },
                "encoding": place,
            },
            {
                "name": "dots",
                "mark": {"type": "point", "filled": True, "size": 95, "cursor": "pointer"},
                "encoding": place
                | kind_scale
                | {
                    "opacity": {
                        "condition": [
                            {"test": hidden, "value": 0.06},
                            {"test": "datum.front === 'yes'", "value": 1},
                        ],
                        "value": 0.45,
                    },
                    "description": {"field": "engine"},
                    "tooltip": [
                        {"field": "engine", "title": "Engine"},
                        {"field": "x", "title": x.label, "format": ","},
                        {"field": "y", "title": y.label, "format": _tooltip_format(y)},
                        {"field": "front", "title": "Pareto front"},
                        {"field": "number", "title": "Point"},
                    ],
                },
            },
            {
                "transform": [{"filter": "datum.tag !== null"}],
                "mark": {
                    "type": "text",
                    # On the better side of the front, where neither line nor point can be.
                    "align": "right",
                    "baseline": "bottom" if y.more_is_better else "top",
                    "dx": -7,
                    "dy": -4 if y.more_is_better else 4,
                    "fontSize": 11,
                    "style": "tag",
                    "aria": False,
                },
                "encoding": place
                | {
                    "text": {"field": "tag"},
                    "opacity": {"condition": {"test": hidden, "value": 0.06}, "value": 1},
                },
            },
        ],
    }


def _lane_order(lanes: str) -> tuple[int, ...]:
    counts = [int(part) for part in lanes.split("x") if part.isdigit()]
    return math.prod(counts), *counts


def _tooltip_format(axis: Axis) -> str:
    return ",.2f" if axis.key == "fps" else ","


def _logarithmic(values: Sequence[float]) -> bool:
    """Tell whether an axis spans a decade or more, where a linear one would crowd the small."""
    return bool(values) and min(values) > 0 and max(values) >= 10 * min(values)


def _domain(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis: beyond the points, with room for labels on the near side."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if _logarithmic(values):
        factor = (high / low) ** 0.05
        return low / factor**1.8, high * factor
    span = (high - low) or max(high * 0.2, 1.0)
    return max(low - 0.09 * span, 0.0), high + 0.05 * span


def _encoding(channel: str, axis: Axis, values: Sequence[float]) -> dict[str, Any]:
    low, high = _domain(values)
    logarithmic = _logarithmic(values)
    look: dict[str, Any] = {"format": ",~f" if axis.key == "fps" else ",d", "labelOverlap": True}
    if logarithmic:
        look["values"] = _ticks(low, high)
    else:
        look["tickCount"] = 6
    if not logarithmic and high - low < 6 and axis.key != "fps":
        # Counts have no halves.
        look["tickMinStep"] = 1
    return {
        "field": channel,
        "type": "quantitative",
        "title": axis.title,
        "scale": {
            "type": "log" if logarithmic else "linear",
            "domain": [low, high],
            "nice": False,
        }
        | ({} if logarithmic else {"zero": False}),
        "axis": look,
    }


def _ticks(low: float, high: float) -> list[float]:
    """Return the round numbers within a logarithmic axis: 1, 2, 5 and 10 of up to four decades."""
    factors = (1, 2, 5) if high / low < 10**3.5 else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [factor * 10.0**decade for decade in decades for factor in factors]
    return [tick for tick in ticks if low <= tick <= high]


def _tags(front: Sequence[Pair], entries: Sequence[Pair]) -> dict[str, str]:
    """Return the labels of the front's points: the lanes, where there is room for them.

    A label is left out where the one before on the front is the same and near, and where it
    would lie on another label.
    """
    if not front:
        return {}
    place_x, place_y = _place([pair.x for pair in entries]), _place([pair.y for pair in entries])
    tags = {front[0].point.id: front[0].point.lanes}
    last = front[0]
    for _, pair in pairwise(front):
        near_x = abs(place_x(pair.x) - place_x(last.x)) * WIDTH
        near_y = abs(place_y(pair.y) - place_y(last.y)) * HEIGHT
        if near_x < 36 and near_y < 15:
            continue
        if pair.point.lanes == last.point.lanes and near_x < 150:
            continue
        tags[pair.point.id] = pair.point.lanes
        last = pair
    return tags


def _place(values: Sequence[float]) -> Any:
    """Return the function from a value to its place on the axis, 0..1."""
    low, high = _domain(values)
    if _logarithmic(values):
        return lambda value: math.log(value / low) / math.log(high / low)
    return lambda value: (value - low) / (high - low)
