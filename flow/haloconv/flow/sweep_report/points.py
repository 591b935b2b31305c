"""The results of a sweep, read from its ``sweep.json`` and checked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.tile import MODES, ORDERS, Tile

__all__ = ["FORMAT", "RESOURCES", "Layer", "Point", "Sweep", "Workload", "read_sweep"]

FORMAT = 1
"""The version of ``sweep.json`` that is read; docs/sweep.md describes it."""

RESOURCES = ("luts", "ffs", "carries", "lut_rams", "dsps", "block_rams", "large_rams", "lut4")
"""What an area counts, as docs/sweep.md has it."""


@dataclass(frozen=True)
class Layer:
    """One layer of a workload on the engine of a point.

    ``tile``, ``mode``, ``order`` and ``shape`` are None for an elementwise layer.
    """

    name: str
    cycles: int
    read_bytes: int
    write_bytes: int
    macs: int
    mode: str | None
    order: str | None
    tile: Tile | None
    shape: ConvLayer | None


@dataclass(frozen=True)
class Workload:
    """A workload on the engine of a point; ``fps`` are frames a second."""

    cycles: int
    read_bytes: int
    write_bytes: int
    macs: int
    utilisation: float | None
    fps: float | None
    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class Point:
    """One engine of a sweep and what it costs.

    A failed point has ``error``, and keeps what did work. ``config`` is None only where the
    point never became an engine. ``tile`` is one that all layers run with; None where each has its
    own. Areas hold the names of :data:`RESOURCES` that are known.
    """

    number: int
    id: str
    config: EngineConfig | None
    tile: Tile | None
    error: str | None
    area: Mapping[str, int] | None
    blocks: Mapping[str, Mapping[str, int]]
    fmax_mhz: float | None
    fmax_runs: tuple[float, ...]
    seconds: float | None
    workloads: Mapping[str, Workload]

    @property
    def lanes(self) -> str:
        """Output by split lanes, "8x8"; "?" without an engine."""
        config = self.config
        return "?" if config is None else f"{config.out_lanes}x{config.split_lanes}"


@dataclass(frozen=True)
class Sweep:
    """All points of a sweep, in its order; ``missing`` more are not built yet."""

    family: str
    clock_mhz: float | None
    points: tuple[Point, ...]
    missing: int = 0

    @cached_property
    def workloads(self) -> tuple[str, ...]:
        """Names of the workloads that any point ran, in order of first occurrence."""
        return tuple(dict.fromkeys(name for point in self.points for name in point.workloads))


class _Problem(Exception):
    """What is wrong, without the place."""


def read_sweep(path: str | Path) -> Sweep:
    """Return the sweep of a folder, or of a ``sweep.json`` itself.

    Raises
    ------
    OSError
        If the file cannot be opened.
    ValueError
        If it is no sweep, or one of another format, with file, point and field.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "sweep.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON, but: {error}") from None
    try:
        table = _table(content, "the file")
        if table.get("format") != FORMAT:
            raise _Problem(
                f"format must be {FORMAT}, not {table.get('format')!r}; sweep again with this "
                "version of haloconv"
            )
        family = _text(table, "family")
        clock = _number(table, "clock_mhz", none=True)
        entries = _list(table, "points")
        missing = _whole(table, "missing") if "missing" in table else 0
    except _Problem as problem:
        raise ValueError(f"{path}: {problem}") from None
    points: list[Point] = []
    for number, entry in enumerate(entries, 1):
        try:
            points.append(_point(number, _table(entry, "it")))
        except (_Problem, ValueError, TypeError) as problem:
            raise ValueError(f"{path}, point {number}: {problem}") from None
    return Sweep(family, clock, tuple(points), missing)


def _point(number: int, table: Mapping[str, Any]) -> Point:
    status = _text(table, "status")
    if status not in ("ok", "failed"):
        raise _Problem(f"status must be ok or failed, not {status!r}")
    error = (_text(table, "error", none=True) or "no reason given") if status == "failed" else None
    config = table.get("config")
    if config is None and error is None:
        raise _Problem("config is missing, though the point is ok")
    return Point(
        number=number,
        id=_text(table, "id") or "",
        config=None if config is None else EngineConfig.from_dict(dict(_table(config, "config"))),
        error=error,
        tile=_tile(table),
        area=_area(table.get("area"), "area"),
        blocks={
            name: _area(block, f"block {name!r}") or {}
            for name, block in _table(table.get("blocks") or {}, "blocks").items()
        },
        fmax_mhz=_number(table, "fmax_mhz", none=True),
        fmax_runs=tuple(_float(run, "fmax_runs") for run in table.get("fmax_runs") or ()),
        seconds=_number(table, "seconds", none=True),
        workloads={
            name: _workload(_table(entry, f"workload {name!r}"), name)
            for name, entry in _table(table.get("workloads") or {}, "workloads").items()
        },
    )


def _workload(table: Mapping[str, Any], name: str) -> Workload:
    try:
        return Workload(
            cycles=_whole(table, "cycles"),
            read_bytes=_whole(table, "read_bytes"),
            write_bytes=_whole(table, "write_bytes"),
            macs=_whole(table, "macs"),
            utilisation=_number(table, "utilisation", none=True),
            fps=_number(table, "fps", none=True),
            layers=tuple(
                _layer(_table(entry, "a layer")) for entry in _list(table, "layers", none=True)
            ),
        )
    except (_Problem, ValueError, TypeError) as problem:
        raise _Problem(f"workload {name!r}: {problem}") from None


def _layer(table: Mapping[str, Any]) -> Layer:
    shape = table.get("layer")
    mode, order = _text(table, "mode", none=True), _text(table, "order", none=True)
    if mode not in (None, *MODES) or order not in (None, *ORDERS):
        raise _Problem(f"mode and order must be known ones, not {mode!r} and {order!r}")
    return Layer(
        name=_text(table, "name") or "",
        cycles=_whole(table, "cycles"),
        read_bytes=_whole(table, "read_bytes"),
        write_bytes=_whole(table, "write_bytes"),
        macs=_whole(table, "macs"),
        mode=mode,
        order=order,
        tile=_tile(table),
        shape=None if shape is None else ConvLayer(**_known(ConvLayer, _table(shape, "layer"))),
    )


def _tile(table: Mapping[str, Any]) -> Tile | None:
    tile = table.get("tile")
    return None if tile is None else Tile(**_known(Tile, _table(tile, "tile")))


def _known(kind: Any, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass; what a record adds for its readers is left out."""
    names = {field.name for field in fields(kind)}
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in table.items()
        if key in names
    }


def _area(value: Any, what: str) -> dict[str, int] | None:
    if value is None:
        return None
    table = _table(value, what)
    return {key: _whole(table, key) for key in RESOURCES if table.get(key) is not None}


def _table(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _Problem(f"{what} must be an object, not {value!r:.60}")
    return value


def _list(table: Mapping[str, Any], key: str, *, none: bool = False) -> list[Any]:
    value = table.get(key)
    if value is None and none:
        return []
    if not isinstance(value, list):
        raise _Problem(f"{key} must be a list, not {value!r:.60}")
    return value


def _text(table: Mapping[str, Any], key: str, *, none: bool = False) -> Any:
    value = table.get(key)
    if not isinstance(value, str) and not (none and value is None):
        raise _Problem(f"{key} must be a text, not {value!r:.60}")
    return value


def _whole(table: Mapping[str, Any], key: str) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _Problem(f"{key} must be a whole number of at least 0, not {value!r:.60}")
    return value


def _float(value: Any, key: str) -> float:
    # NaN fails the comparison, too.
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e300:
        raise _Problem(f"{key} must be a number of at least 0, not {value!r:.60}")
    return float(value)


def _number(table: Mapping[str, Any], key: str, *, none: bool = False) -> float | None:
    value = table.get(key)
    return None if value is None and none else _float(value, key)
