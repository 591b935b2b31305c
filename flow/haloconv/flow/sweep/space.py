"""SPACE.toml: which engines to build and what to run on them (docs/sweep.md)."""

import itertools
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from haloconv.flow.place_route.devices import DEVICES, check_speed, device_of
from haloconv.flow.sweep.digest import canonical
from haloconv.flow.synthesis.area import FAMILIES
from haloconv.planner.candidates import OBJECTIVES
from haloconv.planner.config import UNITS, EngineConfig
from haloconv.planner.requantization import ROUNDINGS
from haloconv.planner.tile import Tile

__all__ = ["BUFFERS", "FmaxSettings", "Point", "Space", "SpaceError", "WorkloadEntry", "read_space"]

BUFFERS = ("input_bytes", "weight_bytes", "psum_bytes", "bias_bytes")
_BYTES = (*BUFFERS, "budget_bytes")
_NAMES = {"roundings": ROUNDINGS, "units": UNITS}
_FLAGS = tuple(field.name for field in fields(EngineConfig) if isinstance(field.default, bool))
_PLAIN = tuple(
    field.name for field in fields(EngineConfig) if field.name not in (*_BYTES, *_NAMES, *_FLAGS)
)
_KEYS = ("lanes", *_PLAIN, *_BYTES, *_NAMES, *_FLAGS, "tile")


class SpaceError(ValueError):
    """A SPACE.toml that does not hold up, with the key at fault."""


@dataclass(frozen=True)
class Point:
    """One engine as the space describes it; buffers may still have to be sized.

    Parameters
    ----------
    parameters : dict
        Arguments of :class:`~haloconv.planner.config.EngineConfig`, those that were given.
    budget_bytes : int or None
        To be split over the buffers.
    tile : Tile or None
        Runs every layer, cut to it.
    """

    parameters: Mapping[str, Any]
    budget_bytes: int | None = None
    tile: Tile | None = None

    @property
    def sizes_to_tile(self) -> bool:
        """Whether the buffers are to be as large as the tile needs."""
        given = any(name in self.parameters for name in BUFFERS)
        return self.tile is not None and self.budget_bytes is None and not given

    def to_dict(self) -> dict[str, Any]:
        """Return what was given as plain JSON types."""
        record: dict[str, Any] = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in sorted(self.parameters.items())
        }
        if self.budget_bytes is not None:
            record["budget_bytes"] = self.budget_bytes
        if self.tile is not None:
            record["tile"] = tile_dict(self.tile)
        return record


@dataclass(frozen=True)
class FmaxSettings:
    """Where and how the clock is measured: place and route of ``seeds`` at ``frequency_mhz``."""

    device: str
    package: str
    speed: str
    seeds: tuple[int, ...]
    frequency_mhz: float

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON types."""
        return {
            "device": self.device,
            "frequency_mhz": self.frequency_mhz,
            "package": self.package,
            "seeds": list(self.seeds),
            "speed": self.speed,
        }


@dataclass(frozen=True)
class WorkloadEntry:
    """A workload as the space names it: a file, or layers in words."""

    name: str
    file: Path | None = None
    words: tuple[str, ...] = ()
    target: str | None = None


@dataclass(frozen=True)
class Space:
    """Everything a sweep builds."""

    family: str
    points: tuple[Point, ...]
    workloads: tuple[WorkloadEntry, ...]
    clock_mhz: float = 100.0
    latency: int = 16
    objective: str = "cycles"
    size_for: tuple[str, ...] = ()
    fmax: FmaxSettings | None = None


def tile_dict(tile: Tile) -> dict[str, int]:
    """Return a tile as plain JSON types."""
    return {field.name: getattr(tile, field.name) for field in fields(tile)}


def read_space(path: Path) -> Space:
    """Return the space that a SPACE.toml describes.

    Raises
    ------
    OSError
        If the file cannot be opened.
    SpaceError
        If it is no TOML, holds an unknown key, or a value that does not hold up.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path} must be TOML, but: {error}") from None
    try:
        return parse_space(table, path.parent)
    except SpaceError as error:
        raise SpaceError(f"{path}: {error}") from None


def parse_space(table: Mapping[str, Any], folder: Path) -> Space:
    """Return the space of a parsed SPACE.toml whose files are beside ``folder``."""
    known = ("family", "clock_mhz", "latency", "objective", "size_for", "engine", "grid", "exclude",
             "points", "fmax", "workloads")  # fmt: skip
    _refuse_unknown(table, known, "the space")
    family = table.get("family", "ecp5")
    if family not in FAMILIES:
        raise SpaceError(f"family must be one of {', '.join(FAMILIES)}, not {family!r}")
    objective = table.get("objective", "cycles")
    if objective not in OBJECTIVES:
        raise SpaceError(f"objective must be one of {', '.join(OBJECTIVES)}, not {objective!r}")
    workloads = _workloads(_table(table, "workloads"), folder)
    names = [entry.name for entry in workloads]
    size_for = table.get("size_for", names)
    if not isinstance(size_for, list) or not all(name in names for name in size_for):
        raise SpaceError(
            f"size_for must be a list of workloads of the space ({', '.join(names) or 'none'}), "
            f"not {size_for!r}"
        )
    points = _points(table)
    if not points:
        if "exclude" in table:
            raise SpaceError("the space has no points; exclude leaves none of them")
        raise SpaceError("the space has no points; add a table grid or points")
    for point in points:
        if not size_for and (point.budget_bytes is not None or point.sizes_to_tile):
            what = "budget_bytes" if point.budget_bytes is not None else "tile"
            raise SpaceError(f"{what} needs workloads to size the buffers for; add some")
    return Space(
        family=family,
        points=points,
        workloads=workloads,
        clock_mhz=_number(table, "clock_mhz", 100.0),
        latency=_integer("latency", table.get("latency", 16)),
        objective=objective,
        size_for=tuple(size_for),
        fmax=_fmax(_table(table, "fmax"), family) if "fmax" in table else None,
    )


def _refuse_unknown(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise SpaceError(f"{key!r} is no key of {where}; known are {', '.join(known)}")


def _table(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise SpaceError(f"{key} must be a table, not {value!r}")
    return value


def _tables(table: Mapping[str, Any], key: str, one: bool = False) -> Sequence[Mapping[str, Any]]:
    value: Any = table.get(key, [])
    if one and isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise SpaceError(f"{key} must be an array of tables [[{key}]], not {value!r}")
    return value


def _integer(key: str, value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SpaceError(f"{key} must be an integer of at least {least}, not {value!r}")
    return value


def _number(table: Mapping[str, Any], key: str, default: float) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        raise SpaceError(f"{key} must be a number above 0, not {value!r}")
    return float(value)


# Points


def _bytes(key: str, value: Any) -> int:
    match = re.fullmatch(r"(\d+)\s*([km]?)(?:i?b)?", str(value).strip(), re.IGNORECASE)
    if match is None or isinstance(value, bool) or not isinstance(value, int | str):
        raise SpaceError(f"{key} must be a number of bytes such as 32768 or '32k', not {value!r}")
    return int(match[1]) << {"": 0, "k": 10, "m": 20}[match[2].lower()]


def _lanes(key: str, value: Any) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)\s*[xX]\s*(\d+)", value) if isinstance(value, str) else None
    if match is None:
        raise SpaceError(f"{key} must be output by split lanes such as '8x8', not {value!r}")
    return int(match[1]), int(match[2])


def _tile(key: str, value: Any) -> Tile:
    match = None
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+)\s*x\s*(\d+)\s*x\s*(\d+)\s*->\s*(\d+)", value.strip())
    if match is None or "0" in match.groups():
        raise SpaceError(
            f"{key} must be rows x columns x input channels -> output channels such as "
            f"'8x8x16->32', not {value!r}"
        )
    return Tile(*map(int, match.groups()))


def _names(key: str, value: Any) -> tuple[str, ...]:
    known = _NAMES[key]
    given = value
    if isinstance(value, str):
        given = [] if value.strip() == "none" else [part.strip() for part in value.split(",")]
    if not isinstance(given, list) or not all(name in known for name in given):
        raise SpaceError(f"{key} must be of {', '.join(known)}, or 'none', not {value!r}")
    return tuple(name for name in known if name in given)


def _truth(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SpaceError(f"{key} must be true or false, not {value!r}")
    return value


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "lanes": _lanes,
    "tile": _tile,
    **dict.fromkeys(_FLAGS, _truth),
    **dict.fromkeys(_PLAIN, lambda key, value: _integer(key, value, 0)),
    **dict.fromkeys(_BYTES, _bytes),
    **dict.fromkeys(_NAMES, _names),
}


def _values(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a table of single values, read; lanes are taken apart."""
    _refuse_unknown(table, _KEYS, where)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key == "lanes":
            if "out_lanes" in table or "split_lanes" in table:
                raise SpaceError(f"{where} must have lanes, or out_lanes and split_lanes, not both")
            values["out_lanes"], values["split_lanes"] = _lanes(key, value)
        else:
            values[key] = _READERS[key](key, value)
    return values


def _points(table: Mapping[str, Any]) -> tuple[Point, ...]:
    common = _values(_table(table, "engine"), "engine")
    exclusions = [_exclusion(entry) for entry in _tables(table, "exclude")]
    given: list[dict[str, Any]] = []
    for grid in _tables(table, "grid", one=True):
        _refuse_unknown(grid, _KEYS, "grid")
        for key, values in grid.items():
            if not isinstance(values, list) or not values:
                raise SpaceError(f"{key} of grid must be a list of values, not {values!r}")
        for choice in itertools.product(*grid.values()):
            values = common | _values(dict(zip(grid, choice, strict=True)), "grid")
            if not any(_matches(values, exclusion) for exclusion in exclusions):
                given.append(values)
    given += [common | _values(entry, "points") for entry in _tables(table, "points")]
    points: dict[str, Point] = {}
    for values in given:
        point = _point(values)
        points.setdefault(canonical(point.to_dict()), point)
    return tuple(points.values())


def _exclusion(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a point must match: for each key any of its values."""
    if not entry:
        raise SpaceError("exclude must name at least one key; an empty one would leave no point")
    choices = {
        key: value if isinstance(value, list) and key not in _NAMES else [value]
        for key, value in entry.items()
    }
    return [
        _values(dict(zip(choices, choice, strict=True)), "exclude")
        for choice in itertools.product(*choices.values())
    ]


def _matches(values: Mapping[str, Any], exclusion: list[dict[str, Any]]) -> bool:
    return any(
        all(key in values and values[key] == wanted for key, wanted in choice.items())
        for choice in exclusion
    )


def _point(values: dict[str, Any]) -> Point:
    parameters = dict(values)
    budget, tile = parameters.pop("budget_bytes", None), parameters.pop("tile", None)
    point = Point(parameters, budget, tile)
    if budget is not None:
        for name in BUFFERS:
            if name in parameters:
                raise SpaceError(f"budget_bytes and {name} exclude each other; leave out one")
    arguments: dict[str, Any] = dict(parameters)
    if budget is not None or point.sizes_to_tile:
        arguments.update(input_bytes=1 << 24, weight_bytes=1 << 24, bias_bytes=1 << 18)
    try:
        EngineConfig(**arguments)
    except (TypeError, ValueError) as error:
        words = canonical(point.to_dict())
        raise SpaceError(f"{error} (in the point {words}; exclude it)") from None
    return point


# The clock and the workloads


def _fmax(table: Mapping[str, Any], family: str) -> FmaxSettings:
    _refuse_unknown(table, [field.name for field in fields(FmaxSettings)], "fmax")
    families = sorted({device.family for device in DEVICES.values()})
    if family not in families:
        raise SpaceError(
            f"fmax is measured for {' and '.join(families)}, not for {family}; leave it out"
        )
    try:
        device = device_of(table.get("device", ""))
    except ValueError as error:
        raise SpaceError(f"fmax: {error}") from None
    if device.family != family:
        raise SpaceError(f"device must be one of family {family}, not {device.name!r}")
    package = table.get("package", device.package)
    if not isinstance(package, str):
        raise SpaceError(f"package must be a name such as {device.package!r}, not {package!r}")
    speed = table.get("speed", device.speed)
    if isinstance(speed, bool) or not isinstance(speed, int | str):
        raise SpaceError(f"speed must be a grade such as 6, not {speed!r}")
    if "speed" in table:
        try:
            check_speed(device, str(speed))
        except ValueError as error:
            raise SpaceError(f"fmax: {error}") from None
    seeds = table.get("seeds", 3)
    if not isinstance(seeds, list):
        seeds = list(range(1, 1 + _integer("seeds", seeds)))
    if not seeds or len(set(seeds)) < len(seeds):
        raise SpaceError(f"seeds must be a number or a list of different seeds, not {seeds!r}")
    return FmaxSettings(
        device=device.name,
        package=package,
        speed=str(speed),
        seeds=tuple(_integer("seeds", seed, 0) for seed in seeds),
        frequency_mhz=_number(table, "frequency_mhz", device.frequency),
    )


def _workloads(table: Mapping[str, Any], folder: Path) -> tuple[WorkloadEntry, ...]:
    entries: list[WorkloadEntry] = []
    for name, value in table.items():
        values = {"file": value} if isinstance(value, str) else value
        if not isinstance(values, dict):
            raise SpaceError(f"workload {name} must be a file or a table, not {value!r}")
        _refuse_unknown(values, ("file", "layer", "layers", "target"), f"workload {name}")
        sources = [key for key in ("file", "layer", "layers") if key in values]
        if len(sources) != 1:
            raise SpaceError(f"workload {name} must have one of file, layer and layers")
        target = values.get("target")
        words = values.get("layers", [values["layer"]] if "layer" in values else [])
        if not isinstance(words, list) or not all(isinstance(text, str) for text in words):
            raise SpaceError(f"the layers of workload {name} must be words, not {words!r}")
        file = values.get("file")
        if file is None and not words:
            raise SpaceError(f"workload {name} must have at least one layer")
        if file is not None and not isinstance(file, str):
            raise SpaceError(f"the file of workload {name} must be a path, not {file!r}")
        if target is not None and target not in ("tflm", "litert", "xnnpack", "ort"):
            raise SpaceError(
                f"target of workload {name} must be tflm, litert, xnnpack or ort, not {target!r}"
            )
        path = None if file is None else folder / file
        if path is not None and not path.is_file():
            raise SpaceError(f"the file of workload {name} must exist, but {path} does not")
        entries.append(WorkloadEntry(name, path, tuple(words), target))
    return tuple(entries)
