"""The Pareto plot holds the sweep's numbers, its front and readable axes."""

from dataclasses import replace
from typing import Any

import pytest

from haloconv.flow.sweep_report.chart import COLORS, SHAPES, pareto_chart
from haloconv.flow.sweep_report.pareto import area_axes, pairs, pareto_front, rate_axes
from haloconv.flow.sweep_report.points import Sweep


@pytest.mark.parametrize("up", [0, 1], ids=["cycles", "fps"])
@pytest.mark.parametrize("across", [0, 2, 4], ids=["lut4", "dsps", "budget_bytes"])
def test_points_and_front(sweep: Sweep, across: int, up: int) -> None:
    x, y = area_axes(sweep)[across], rate_axes(sweep)[up]
    chart = pareto_chart(sweep, "separable", x, y)
    entries = pairs(sweep, "separable", x, y)
    front = pareto_front(entries, y)
    rows = chart["datasets"]["points"]
    assert {(row["id"], row["x"], row["y"]) for row in rows} == {
        (pair.point.id, pair.x, pair.y) for pair in entries
    }
    on_front = {row["id"] for row in rows if row["front"] == "yes"}
    assert on_front == {pair.point.id for pair in front}
    # They come last, so that no pale point hides them.
    assert {row["id"] for row in rows[-len(front) :]} == on_front
    assert chart["datasets"]["front"] == [{"x": pair.x, "y": pair.y} for pair in front]
    tagged = [row for row in rows if row["tag"] is not None]
    assert tagged and all(row["id"] in on_front and row["tag"] == row["lanes"] for row in tagged)
    for channel, axis in (("x", x), ("y", y)):
        encoding = chart["layer"][0]["encoding"][channel]
        assert encoding["title"] == axis.title
        low, high = encoding["scale"]["domain"]
        values = [getattr(pair, channel) for pair in entries]
        assert low <= min(values) and max(values) < high
        logarithmic = max(values) >= 10 * min(values)
        assert encoding["scale"]["type"] == ("log" if logarithmic else "linear")
        if logarithmic:
            assert all(low <= tick <= high for tick in encoding["axis"]["values"])
            assert len(encoding["axis"]["values"]) >= 2


def test_lanes_have_a_colour_and_a_shape_of_their_own(sweep: Sweep) -> None:
    chart: Any = pareto_chart(sweep, "separable", area_axes(sweep)[0], rate_axes(sweep)[0])
    (dots,) = [layer for layer in chart["layer"] if layer.get("name") == "dots"]
    color, shape = dots["encoding"]["color"]["scale"], dots["encoding"]["shape"]["scale"]
    # By lanes, not by text: 16x8 comes last.
    assert color["domain"] == shape["domain"] == ["2x2", "4x4", "8x4", "8x8", "16x8"]
    assert len(set(zip(color["range"], shape["range"], strict=True))) == 5
    # Numbers without a common factor: colour and shape together last for 42 kinds.
    assert len(set(zip(COLORS * 7, SHAPES * 6, strict=True))) == 42


def test_one_point(sweep: Sweep) -> None:
    one = replace(sweep, points=sweep.points[:1])
    chart = pareto_chart(one, "separable", area_axes(one)[0], rate_axes(one)[0])
    assert len(chart["datasets"]["front"]) == 1
    low, high = chart["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < chart["datasets"]["front"][0]["x"] < high


def test_a_workload_without_results(sweep: Sweep) -> None:
    chart = pareto_chart(sweep, "unknown", area_axes(sweep)[0], rate_axes(sweep)[0])
    assert chart["datasets"] == {"points": [], "front": []}
