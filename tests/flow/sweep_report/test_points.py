"""``sweep.json`` is read as docs/sweep.md describes it, and refused where it is wrong."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.sweep_report.points import Sweep, read_sweep
from haloconv.planner.config import EngineConfig
from haloconv.planner.tile import Tile


def test_every_field_is_read(sweep: Sweep, content: dict[str, Any], builder: Any) -> None:
    assert (sweep.family, sweep.clock_mhz, sweep.missing) == ("ecp5", 100.0, 0)
    assert sweep.workloads == ("residual", "separable")
    assert len(sweep.points) == len(content["points"])
    for point, given in zip(sweep.points, content["points"], strict=True):
        assert point.id == given["id"]
        assert point.area == given["area"]
        assert point.blocks == given["blocks"]
        assert list(point.fmax_runs) == given["fmax_runs"]
        assert point.fmax_mhz == given["fmax_mhz"]
        for name, run in point.workloads.items():
            record = given["workloads"][name]
            assert (run.cycles, run.fps) == (record["cycles"], record["fps"])
            shapes = [layer.shape for layer in run.layers]
            assert shapes == [*builder.WORKLOADS[name], None]
            first = record["layers"][0]
            assert run.layers[0].tile == Tile(**first["tile"])
            assert run.layers[0].mode == first["mode"]
    point = sweep.points[0]
    assert point.config == EngineConfig.from_dict(content["points"][0]["config"])
    assert point.lanes == "2x2"


def test_failed_points_keep_what_worked(sweep: Sweep, builder: Any) -> None:
    part, nothing = sweep.points[-2:]
    assert part.error == builder.HOSTILE
    assert part.area is not None
    assert list(part.workloads) == ["separable"]
    assert nothing.config is None and nothing.area is None and nothing.blocks == {}
    assert nothing.lanes == "?"


def test_a_file_or_a_folder(folder: Path, sweep: Sweep) -> None:
    assert read_sweep(folder / "sweep.json") == sweep


def test_blocks_may_be_null(content: dict[str, Any], tmp_path: Path) -> None:
    changed = copy.deepcopy(content)
    changed["points"][-1]["blocks"] = None
    (tmp_path / "sweep.json").write_text(json.dumps(changed), encoding="utf-8")
    assert read_sweep(tmp_path).points[-1].blocks == {}


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (["format"], 2, r"format must be 1, not 2; sweep again"),
        (["points"], {}, r"points must be a list, not \{\}"),
        (["points", 0], 3, r"point 1: it must be an object, not 3"),
        (["points", 1, "status"], "fine", r"point 2: status must be ok or failed, not 'fine'"),
        (["points", 1, "config"], None, r"point 2: config is missing"),
        (["points", 1, "config", "bus_bytes"], 3, r"point 2: bus_bytes must be a power of two"),
        (["points", 1, "config", "speed"], 3, r"point 2: 'speed' is no engine parameter"),
        (["points", 2, "area", "luts"], -1, r"point 3: luts must be a whole number"),
        (["points", 2, "area", "luts"], 1.5, r"point 3: luts must be a whole number"),
        (["points", 2, "fmax_mhz"], "fast", r"point 3: fmax_mhz must be a number"),
        (["points", 2, "fmax_mhz"], float("nan"), r"point 3: fmax_mhz must be a number"),
        (
            ["points", 3, "workloads", "residual", "cycles"],
            None,
            r"point 4: workload 'residual': cycles must be a whole number",
        ),
        (
            ["points", 3, "workloads", "residual", "layers", 0, "mode"],
            "fast",
            r"point 4: workload 'residual': mode and order must be known ones, not 'fast'",
        ),
        (
            ["points", 3, "workloads", "residual", "layers", 0, "layer", "in_height"],
            0,
            r"point 4: workload 'residual': in_height must be",
        ),
    ],
)
def test_wrong_files_are_refused(
    content: dict[str, Any], tmp_path: Path, where: list[Any], value: Any, message: str
) -> None:
    changed = copy.deepcopy(content)
    place: Any = changed
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    (tmp_path / "sweep.json").write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_sweep(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "3"])
def test_no_sweep_at_all(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sweep.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"sweep\.json"):
        read_sweep(path)
