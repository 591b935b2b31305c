"""Words for the engines of a sweep: what tells one from the other."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from haloconv.flow.report import tile_words
from haloconv.flow.sweep_report.points import Point, Sweep

__all__ = [
    "Parameter",
    "bytes_words",
    "engine_words",
    "parameter_value",
    "telling_parameters",
    "varying_parameters",
]


@dataclass(frozen=True)
class Parameter:
    """An engine parameter that differs between points: key, label for a column, and unit."""

    key: str
    label: str
    unit: str = ""


PARAMETERS = (
    Parameter("bus_bytes", "Ports", "B"),
    Parameter("input_bytes", "Input half", "B"),
    Parameter("weight_bytes", "Weight half", "B"),
    Parameter("psum_bytes", "Sums", "B"),
    Parameter("bias_bytes", "Biases", "B"),
    Parameter("requant_lanes", "Requantisers"),
    Parameter("roundings", "Rounding"),
    Parameter("weight_zero_points", "Weight zero points"),
    Parameter("units", "Units"),
    Parameter("address_bits", "Address", "bit"),
    Parameter("tiles_ahead", "Tiles ahead"),
    Parameter("serial_requantizers", "Serial requantisers"),
    Parameter("counters", "Counters"),
    Parameter("tile", "Tile"),
)
DERIVED = ("requant_lanes",)
SPLIT = ("input_bytes", "weight_bytes", "psum_bytes", "bias_bytes")
"""Parameters that mostly follow from the lanes, and from the bytes of all buffers."""


def parameter_value(point: Point, key: str) -> Any:
    """Return a parameter as a number or a word; None without an engine."""
    if key == "tile":
        return "by layer" if point.tile is None else tile_words(point.tile)
    config = point.config
    if config is None:
        return None
    if key == "requant_lanes":
        return config.results_per_cycle
    if key in ("roundings", "units"):
        return ", ".join(getattr(config, f"built_{key}")) or "none"
    value = getattr(config, key)
    return ("yes" if value else "no") if isinstance(value, bool) else value


def varying_parameters(sweep: Sweep) -> list[Parameter]:
    """Return the parameters, beside lanes and buffer bytes, that differ between points.

    Most sweeps vary the total of the buffers and leave its split, and the requantisers, to their
    defaults; these count only where points are alike without them.
    """
    points = [point for point in sweep.points if point.config is not None]
    found = [
        entry
        for entry in PARAMETERS
        if len({parameter_value(point, entry.key) for point in points}) > 1
    ]
    chosen = [entry for entry in found if entry.key not in DERIVED and entry.key not in SPLIT]
    for keys in (DERIVED, SPLIT):
        wider = [entry for entry in found if entry in chosen or entry.key in keys]
        if _groups(points, wider) > _groups(points, chosen):
            chosen = wider
    return chosen


def telling_parameters(sweep: Sweep) -> list[Parameter]:
    """Return the fewest varying parameters that tell the points apart, taken in order."""
    points = [point for point in sweep.points if point.config is not None]
    chosen: list[Parameter] = []
    for entry in varying_parameters(sweep):
        if _groups(points, [*chosen, entry]) > _groups(points, chosen):
            chosen.append(entry)
    return chosen


def _groups(points: Iterable[Point], parameters: Iterable[Parameter]) -> int:
    """Return how many points can be told apart by lanes, buffers and ``parameters``."""
    keys = [parameter.key for parameter in parameters]
    return len(
        {
            (
                point.lanes,
                point.config and point.config.budget_bytes,
                *(parameter_value(point, key) for key in keys),
            )
            for point in points
        }
    )


def bytes_words(number: int) -> str:
    """Return a number of bytes: "32 KiB" where it is whole, else "2,500 B"."""
    if number and number % 1024 == 0:
        return f"{number // 1024:,} KiB"
    return f"{number:,} B"


def engine_words(point: Point, parameters: Iterable[Parameter]) -> str:
    """Return an engine in words: lanes, buffers, and what else varies."""
    if point.config is None:
        return "no engine"
    words = [f"{point.lanes} lanes", f"{bytes_words(point.config.budget_bytes)} buffers"]
    for parameter in parameters:
        value = parameter_value(point, parameter.key)
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        unit = f" {parameter.unit}" if parameter.unit else ""
        words.append(f"{parameter.label.lower()} {shown}{unit}")
    return ", ".join(words)
