"""Dots lie under the roof, and what bounds them is what the layer says."""

from dataclasses import replace
from typing import Any

import pytest

from haloconv.flow.sweep_report.points import Layer, Sweep
from haloconv.flow.sweep_report.roofline import layer_dot, roof, roofline_chart
from haloconv.planner.config import EngineConfig

LAYER = Layer("a", 1000, 4000, 1000, 16000, None, None, None, None)
ENGINE = EngineConfig(out_lanes=8, split_lanes=8, bus_bytes=8)


def test_dot() -> None:
    dot = layer_dot(LAYER, ENGINE)
    assert dot is not None
    # 16000 MACs for 4000 bytes in 1000 cycles; the ridge is at 64 / 8 = 8.
    assert (dot.intensity, dot.rate, dot.bound) == (4.0, 16.0, "reads")
    written = layer_dot(replace(LAYER, write_bytes=5000), ENGINE)
    assert written is not None and (written.intensity, written.bound) == (3.2, "writes")
    dense = layer_dot(replace(LAYER, macs=32000), ENGINE)
    assert dense is not None and dense.bound == "lanes"


@pytest.mark.parametrize("field", ["macs", "cycles"])
def test_layers_without_a_place(field: str) -> None:
    assert layer_dot(replace(LAYER, **{field: 0}), ENGINE) is None
    assert layer_dot(replace(LAYER, read_bytes=0, write_bytes=0), ENGINE) is None


def test_roof() -> None:
    dot = layer_dot(LAYER, ENGINE)
    assert dot is not None
    assert roof(ENGINE, [dot]) == [(2.0, 16.0), (8.0, 64), (16.0, 64)]
    assert roof(ENGINE, []) == [(4.0, 32.0), (8.0, 64), (16.0, 64)]


def test_no_planned_layer_breaks_the_roof(sweep: Sweep) -> None:
    seen = 0
    for point in sweep.points:
        if point.config is None:
            continue
        for run in point.workloads.values():
            for layer in run.layers:
                dot = layer_dot(layer, point.config)
                if dot is None:
                    continue
                seen += 1
                most = min(point.config.lanes, dot.intensity * point.config.bus_bytes)
                assert dot.rate <= most
    assert seen > 50


def test_chart_takes_its_data_by_name() -> None:
    chart: Any = roofline_chart()
    assert set(chart["datasets"]) == {"roof", "layers"}
    assert {entry["name"] for entry in chart["params"]} == {"chosen", "across", "up"}
