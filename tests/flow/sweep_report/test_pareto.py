"""The Pareto front against its definition, and the axes that a sweep offers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from haloconv.flow.sweep_report.pareto import (
    AREA_KEYS,
    Axis,
    Pair,
    area_axes,
    choose_axis,
    pairs,
    pareto_front,
    rate_axes,
)
from haloconv.flow.sweep_report.points import Sweep

CYCLES, FPS = Axis("cycles", "", ""), Axis("fps", "", "", more_is_better=True)


def betters(one: Pair, other: Pair, y: Axis) -> bool:
    sign = -1 if y.more_is_better else 1
    return (
        one.x <= other.x
        and sign * one.y <= sign * other.y
        and (one.x < other.x or sign * one.y < sign * other.y)
    )


@pytest.mark.parametrize("y", [CYCLES, FPS], ids=["cycles", "fps"])
@pytest.mark.parametrize("seed", range(20))
def test_front_is_what_none_betters(sweep: Sweep, seed: int, y: Axis) -> None:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    # Few values, so that ties on one axis and on both occur.
    entries = [
        Pair(replace(sweep.points[0], id=str(index)), float(a), float(b))
        for index, (a, b) in enumerate(rng.integers(1, 8, (int(rng.integers(1, 25)), 2)))
    ]
    wanted = {
        entry.point.id
        for entry in entries
        if not any(betters(other, entry, y) for other in entries)
    }
    front = pareto_front(entries, y)
    assert {entry.point.id for entry in front} == wanted
    assert len(front) == len(wanted)
    assert [entry.x for entry in front] == sorted(entry.x for entry in front)


def test_no_points_no_front() -> None:
    assert pareto_front([], CYCLES) == []


def test_axes_of_a_family(sweep: Sweep) -> None:
    axes = area_axes(sweep)
    assert [axis.key for axis in axes] == ["lut4", "ffs", "dsps", "block_rams", "budget_bytes"]
    assert {axis.key for axis in axes} <= set(AREA_KEYS)
    assert "CCU2C counts as two" in axes[0].title
    # A carry of a 7 series takes no LUT.
    assert area_axes(replace(sweep, family="xilinx"))[0].key == "luts"


@pytest.mark.parametrize(
    ("measured", "clock", "title"),
    [
        ("none", 100.0, "Frames a second, at 100 MHz"),
        ("all", 100.0, "Frames a second, at the engine's Fmax"),
        ("some", 100.0, "Frames a second, at Fmax, else at 100 MHz"),
        ("some", None, "Frames a second, at the engine's Fmax, where known"),
    ],
)
def test_the_clock_of_frames_is_said(
    sweep: Sweep, measured: str, clock: float | None, title: str
) -> None:
    points = tuple(
        replace(point, fmax_mhz=None if measured == "none" else 90.0)
        if measured != "some"
        else point
        for point in sweep.points
    )
    axes = rate_axes(replace(sweep, points=points, clock_mhz=clock))
    assert [axis.key for axis in axes] == ["cycles", "fps"]
    assert axes[1].title == title


def test_pairs_are_the_points_with_both_values(sweep: Sweep, content: Any) -> None:
    x, y = area_axes(sweep)[0], rate_axes(sweep)[0]
    for workload in sweep.workloads:
        wanted = [
            (given["area"]["lut4"], given["workloads"][workload]["cycles"])
            for given in content["points"]
            if given["area"] is not None and workload in given["workloads"]
        ]
        assert [(pair.x, pair.y) for pair in pairs(sweep, workload, x, y)] == wanted


def test_unknown_axes_are_refused(sweep: Sweep) -> None:
    assert choose_axis(area_axes(sweep), None).key == "lut4"
    assert choose_axis(area_axes(sweep), "dsps").key == "dsps"
    with pytest.raises(ValueError, match="luts is not known of this sweep; plot lut4, ffs"):
        choose_axis(area_axes(sweep), "luts")
    with pytest.raises(ValueError, match="nothing to plot"):
        choose_axis(area_axes(replace(sweep, points=())), None)
