"""The axes of the trade-off, and the engines on its Pareto front."""

from collections.abc import Iterable
from dataclasses import dataclass

from haloconv.flow.sweep_report.points import Point, Sweep

__all__ = [
    "AREA_KEYS",
    "RATE_KEYS",
    "Axis",
    "Pair",
    "area_axes",
    "area_value",
    "choose_axis",
    "pairs",
    "pareto_front",
    "rate_axes",
]

AREA_KEYS = ("lut4", "luts", "ffs", "dsps", "block_rams", "large_rams", "budget_bytes")
RATE_KEYS = ("cycles", "fps")

CARRY_FAMILIES = {"ecp5": "a CCU2C counts as two", "nexus": "a CCU2 counts as two"}
"""Families whose carry primitives take LUT sites; the others are compared by their LUTs."""


@dataclass(frozen=True)
class Axis:
    """One axis: its key, a short label, a title with its unit, and which way is better."""

    key: str
    label: str
    title: str
    more_is_better: bool = False


@dataclass(frozen=True)
class Pair:
    """A point's place in the plot."""

    point: Point
    x: float
    y: float


def area_axes(sweep: Sweep) -> list[Axis]:
    """Return what can be compared on the x axis, the most telling first; less is better.

    Left out is what no point knows, and what is zero throughout.
    """
    logic = (
        Axis("lut4", "LUT4", f"LUT4 ({CARRY_FAMILIES[sweep.family]})")
        if sweep.family in CARRY_FAMILIES
        else Axis("luts", "LUTs", "LUTs")
    )
    axes = [
        logic,
        Axis("ffs", "Flip-flops", "Flip-flops"),
        Axis("dsps", "DSP blocks", "DSP blocks"),
        Axis("block_rams", "Block RAMs", "Block RAMs"),
        Axis("large_rams", "Large RAMs", "Large RAM blocks"),
        Axis("budget_bytes", "Buffer bytes", "Buffers (bytes)"),
    ]
    return [axis for axis in axes if any(area_value(point, axis.key) for point in sweep.points)]


def rate_axes(sweep: Sweep) -> list[Axis]:
    """Return what can be compared on the y axis, as far as any point knows it."""
    clocks = {point.fmax_mhz is not None for point in sweep.points if point.workloads}
    if clocks == {True}:
        clock = "at the engine's Fmax"
    elif sweep.clock_mhz is None:
        clock = "at the engine's Fmax, where known"
    else:
        clock = f"at {sweep.clock_mhz:g} MHz"
        if True in clocks:
            clock = f"at Fmax, else {clock}"
    axes = (
        Axis("cycles", "Cycles", "Cycles a frame"),
        Axis("fps", "Frames a second", f"Frames a second, {clock}", more_is_better=True),
    )
    runs = [run for point in sweep.points for run in point.workloads.values()]
    return [axis for axis in axes if any(getattr(run, axis.key) for run in runs)]


def choose_axis(axes: Iterable[Axis], key: str | None) -> Axis:
    """Return the axis of a key, or the first.

    Raises
    ------
    ValueError
        If the sweep has none of that key.
    """
    known = {axis.key: axis for axis in axes}
    if not known:
        raise ValueError("no point of the sweep has area and cycles, so there is nothing to plot")
    if key is None:
        return next(iter(known.values()))
    if key not in known:
        raise ValueError(f"{key} is not known of this sweep; plot {', '.join(known)}")
    return known[key]


def area_value(point: Point, key: str) -> int | None:
    """Return what a point costs, None where it is not known."""
    if key == "budget_bytes":
        return None if point.config is None else point.config.budget_bytes
    return None if point.area is None else point.area.get(key)


def pairs(sweep: Sweep, workload: str, x: Axis, y: Axis) -> list[Pair]:
    """Return the points that have both values; failed ones may have them as well."""
    found: list[Pair] = []
    for point in sweep.points:
        run = point.workloads.get(workload)
        across = area_value(point, x.key)
        up = None if run is None else getattr(run, y.key)
        if across is not None and up is not None:
            found.append(Pair(point, across, up))
    return found


def pareto_front(entries: Iterable[Pair], y: Axis) -> list[Pair]:
    """Return the pairs that no other betters, by rising area.

    A pair betters another where it is at least as good on both axes and better on one; equal
    pairs stand side by side. On the x axis less is always better.
    """
    sign = -1 if y.more_is_better else 1
    front: list[Pair] = []
    for entry in sorted(entries, key=lambda pair: (pair.x, sign * pair.y)):
        last = front[-1] if front else None
        if last is None or sign * entry.y < sign * last.y or (entry.x, entry.y) == (last.x, last.y):
            front.append(entry)
    return front
