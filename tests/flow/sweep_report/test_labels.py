"""Engines are told apart by what varies."""

from dataclasses import replace
from typing import Any

import pytest

from haloconv.flow.sweep_report.labels import (
    bytes_words,
    engine_words,
    telling_parameters,
    varying_parameters,
)
from haloconv.flow.sweep_report.points import Point, Sweep
from haloconv.planner.config import EngineConfig
from haloconv.planner.tile import Tile


def points(sweep: Sweep, *changes: dict[str, Any], tile: Tile | None = None) -> Sweep:
    made: list[Point] = []
    for index, change in enumerate(changes):
        config = EngineConfig(**change)
        made.append(replace(sweep.points[0], id=str(index), config=config, tile=None))
    if tile is not None:
        made[0] = replace(made[0], tile=tile)
    return replace(sweep, points=tuple(made))


def test_bytes() -> None:
    assert bytes_words(0) == "0 B"
    assert bytes_words(32768) == "32 KiB"
    assert bytes_words(2500) == "2,500 B"


@pytest.mark.parametrize(
    ("changes", "varying", "telling"),
    [
        ([{}], [], []),
        ([{}, {"bus_bytes": 4}], ["bus_bytes"], ["bus_bytes"]),
        # The lanes tell these apart already, so the ports are in the table alone.
        ([{}, {"bus_bytes": 4, "out_lanes": 4}], ["bus_bytes"], []),
        # The split of the buffers counts where the total is the same.
        ([{}, {"input_bytes": 8192}], [], []),
        (
            [{}, {"input_bytes": 4096 + 128, "weight_bytes": 8192 - 128}],
            ["input_bytes", "weight_bytes"],
            ["input_bytes"],
        ),
        ([{}, {"requant_lanes": 4}], ["requant_lanes"], ["requant_lanes"]),
        # They follow from the lanes where they were left to their default.
        ([{}, {"out_lanes": 4}], [], []),
        ([{}, {"input_bytes": 8192}, {"requant_lanes": 4}], ["requant_lanes"], ["requant_lanes"]),
        ([{}, {"roundings": ("fp32",)}], ["roundings"], ["roundings"]),
    ],
)
def test_parameters(
    sweep: Sweep, changes: list[dict[str, Any]], varying: list[str], telling: list[str]
) -> None:
    made = points(sweep, *changes)
    assert [entry.key for entry in varying_parameters(made)] == varying
    assert [entry.key for entry in telling_parameters(made)] == telling


def test_words(sweep: Sweep) -> None:
    made = points(sweep, {}, {"bus_bytes": 4}, {"weight_zero_points": False})
    words = [engine_words(point, telling_parameters(made)) for point in made.points]
    assert words == [
        "8x8 lanes, 32 KiB buffers, ports 8 B, weight zero points yes",
        "8x8 lanes, 32 KiB buffers, ports 4 B, weight zero points yes",
        "8x8 lanes, 32 KiB buffers, ports 8 B, weight zero points no",
    ]
    assert engine_words(replace(made.points[0], config=None), ()) == "no engine"


def test_tiles(sweep: Sweep) -> None:
    made = points(sweep, {}, {}, tile=Tile(4, 8, 16, 32))
    words = [engine_words(point, telling_parameters(made)) for point in made.points]
    assert words == [
        "8x8 lanes, 32 KiB buffers, tile 4x8x16 -> 32",
        "8x8 lanes, 32 KiB buffers, tile by layer",
    ]
