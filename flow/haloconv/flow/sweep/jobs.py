"""The pieces of work of a sweep, and how a worker does one."""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from haloconv.flow.sweep.digest import source_digest
from haloconv.flow.sweep.space import FmaxSettings, Point
from haloconv.flow.sweep.workloads import Work, resolve, run_work
from haloconv.flow.tools import ToolError
from haloconv.planner.config import EngineConfig
from haloconv.planner.tile import Tile

__all__ = ["KINDS", "Job", "Outcome", "Tools", "run_job", "sources"]

KINDS = ("sizing", "synthesis", "placement", "workload")
"""Kinds of work, each with its table."""

_SOURCES = {
    "sizing": ("haloconv.flow.sweep.workloads",),
    "synthesis": (
        "haloconv.flow.synthesis.worker",
        "haloconv.flow.synthesis.blocks",
        "haloconv.flow.synthesis.output_registers",
    ),
    "placement": ("haloconv.flow.place_route.run",),
    "workload": ("haloconv.flow.sweep.workloads",),
}


def sources(kind: str) -> str:
    """Return the digest of what decides the results of a kind of work."""
    found = source_digest(*_SOURCES[kind])
    if kind == "placement":
        return f"{sources('synthesis')}-{found}"
    return f"{found}-amaranth-{version('amaranth')}" if kind == "synthesis" else found


def _synthesize(config: EngineConfig, family: str, *, netlist: Path | None = None) -> Any:
    from haloconv.flow.synthesis import synthesize

    return synthesize(config, family, netlist=netlist)


def _place(netlist: Path, settings: FmaxSettings, seed: int) -> Mapping[str, Any]:
    from haloconv.flow.place_route import place_and_route

    result = place_and_route(
        netlist,
        settings.device,
        package=settings.package,
        speed=settings.speed or None,
        seeds=(seed,),
        frequency=settings.frequency_mhz,
    )
    (run,) = result.to_dict()["runs"]
    return run


def _tool(family: str) -> str:
    from haloconv.flow.synthesis.run import TOOLS

    for package, module in TOOLS.items():
        if find_spec(module) is not None:
            return f"{package} {version(package)}"
    raise ToolError("a sweep needs Yosys; run pip install 'haloconv[synth]'")


def _placer(family: str) -> str:
    package = f"yowasp-nextpnr-{family}"
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        raise ToolError(f"fmax needs nextpnr; run pip install {package}") from None


@dataclass(frozen=True)
class Tools:
    """What synthesises and places; each must be importable by workers.

    Parameters
    ----------
    synthesize : callable(config, family, netlist=path or None)
        Returns a :class:`~haloconv.flow.synthesis.SynthesisResult`.
    place : callable(netlist, settings, seed)
        Returns a mapping with ``fmax_mhz``.
    tool, placer : callable(family)
        Name and version of the two tools.
    """

    synthesize: Callable[..., Any] = _synthesize
    place: Callable[[Path, FmaxSettings, int], Mapping[str, Any]] = _place
    tool: Callable[[str], str] = _tool
    placer: Callable[[str], str] = _placer


@dataclass(frozen=True, eq=False)
class Job:
    """One piece of work.

    Parameters
    ----------
    kind : str
        Of :data:`KINDS`.
    key : str
        Digest that names the result.
    title : str
        For progress.
    asked : dict
        What was asked, as JSON; kept beside the result.
    weight : float
        Rough cost in seconds, for order and time left.
    arguments : dict
        Of the function that does it.
    """

    kind: str
    key: str
    title: str
    asked: Mapping[str, Any]
    weight: float
    arguments: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Outcome:
    """What a job gave.

    Parameters
    ----------
    output : dict or None
        None where it failed.
    error : str or None
        One sentence.
    seconds : float
    lost : bool
        The worker's process died, or is not fit for this sweep; the next run tries again.
    """

    output: Mapping[str, Any] | None = None
    error: str | None = None
    seconds: float = 0.0
    lost: bool = False


def run_job(job: Job) -> Outcome:
    """Do a piece of work; an error is part of the outcome."""
    started = time.perf_counter()

    def seconds() -> float:
        return round(time.perf_counter() - started, 3)

    try:
        if sources(job.kind) != job.arguments["sources"]:
            return Outcome(
                error="the worker's haloconv is not the one that the sweep was started with, "
                "or was changed meanwhile; run it again with the same everywhere",
                lost=True,
            )
        work = {name: value for name, value in job.arguments.items() if name != "sources"}
        return Outcome(_WORKERS[job.kind](**work), seconds=seconds())
    except (ValueError, TypeError, ToolError, OSError) as error:
        return Outcome(error=" ".join(str(error).split()), seconds=seconds())
    except Exception as error:  # a fault of one point must not end the others
        text = f"{type(error).__name__}: {error}"
        return Outcome(error=" ".join(text.split()), seconds=seconds())


def _size(
    point: Point, sizing: list[Work], needs: list[Work], objective: str, latency: int
) -> dict[str, Any]:
    return {"config": resolve(point, sizing, needs, objective, latency).to_dict()}


def _build(config: EngineConfig, family: str, tools: Tools, tool: str) -> dict[str, Any]:
    _check_tool(tools.tool(family), tool)
    return _synthesis_record(tools.synthesize(config, family))


def _check_tool(found: str, wanted: str) -> None:
    if found != wanted:
        raise ToolError(f"the worker has {found}, but the sweep was started with {wanted}")


def _synthesis_record(result: Any) -> dict[str, Any]:
    """Return what a sweep keeps of a synthesis."""
    record = result.to_dict()
    return {
        "area": record["area"] | {"lut4": result.area.lut4},
        "blocks": {
            path: area.to_dict() | {"lut4": area.lut4} for path, area in result.blocks.items()
        },
        "cells": record["cells"],
        "seconds": record["seconds"],
        "tool": record["tool"],
    }


def _route(
    config: EngineConfig,
    family: str,
    settings: FmaxSettings,
    seeds: tuple[int, ...],
    tools: Tools,
    tool: str,
    placer: str,
) -> dict[str, Any]:
    """Synthesise once and place and route with each seed; a seed that fails says why."""
    _check_tool(tools.tool(family), tool)
    _check_tool(tools.placer(family), placer)
    with tempfile.TemporaryDirectory(prefix="haloconv-sweep-") as folder:
        netlist = Path(folder, "netlist.json")
        synthesis = _synthesis_record(tools.synthesize(config, family, netlist=netlist))
        runs: dict[str, dict[str, Any]] = {}
        for seed in seeds:
            started = time.perf_counter()
            try:
                run = dict(tools.place(netlist, settings, seed))
            except (ValueError, ToolError, OSError) as error:
                run = {"error": " ".join(str(error).split())}
            runs[str(seed)] = run | {"seconds": round(time.perf_counter() - started, 3)}
    return {"synthesis": synthesis, "runs": runs}


def _plan(
    work: Work, config: EngineConfig, tile: Tile | None, latency: int, objective: str
) -> dict[str, Any]:
    return run_work(work, config, tile, latency=latency, objective=objective)


_WORKERS: dict[str, Callable[..., dict[str, Any]]] = {
    "sizing": _size,
    "synthesis": _build,
    "placement": _route,
    "workload": _plan,
}
