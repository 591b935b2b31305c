"""``haloconv verify``: many layers in RTL, held against other implementations and their plans."""

from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haloconv.flow import report
from haloconv.flow.options import (
    EngineOptions,
    engine_options,
    json_option,
    latency_option,
    seed_option,
)
from haloconv.flow.progress import progress
from haloconv.planner.config import EngineConfig
from haloconv.planner.requantization import ROUNDINGS

if TYPE_CHECKING:
    from haloconv.sim.verify import Task, Verification

__all__ = ["verify"]

CASES = Path("tests/data/cases")
"""Where a checkout keeps the given cases."""
SHOWN = 20
"""Failures that the report lists one by one; JSON holds them all."""

_backend_option = click.option(
    "--backend",
    type=click.Choice(["amaranth", "cxxrtl", "verilator", "auto"]),
    default="auto",
    show_default=True,
    help="Simulator; auto is a compiled one where there is one.",
)
_jobs_option = click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes."
)


@click.group()
def verify() -> None:
    """Simulate many layers and compare every output, byte and cycle count.

    Outputs must be the expected ones, bytes those of the plan for each tensor, and cycles within
    1 % of the plan where no port stalls at random. Exit code 1 means that something differs. Each
    of the commands takes --json.
    """


@verify.command()
@click.option(
    "--cases",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=CASES,
    show_default=True,
    help="Folder of index.json and its .npz files.",
)
@click.option(
    "--all", "everything", is_flag=True, help="The whole product; thousands of runs, half an hour."
)
@click.option("--only", metavar="NAME", help="One case.")
@latency_option
@_backend_option
@_jobs_option
@json_option
def cases(
    folder: Path,
    everything: bool,
    only: str | None,
    latency: int,
    backend: str,
    jobs: int,
    as_json: bool,
) -> int:
    """Run named cases against the outputs that their files hold.

    On 8x8, 4x4, 1x1, 16x4 and 3x5 lanes; int32 sums and every rounding mode; with and without
    stalls; in full buffers with planned tiles and with tiles that split every dimension, and in
    buffers so small that the planner must split. Each case meets each result once, in engines that
    take turns; --all takes every combination.
    """
    if not (folder / "index.json").is_file():
        raise click.BadParameter(
            f"{folder} holds no index.json; name a folder of cases", param_hint="--cases"
        )
    from haloconv.sim.cases import load_cases
    from haloconv.sim.verify import LANES, RESULTS, case_tasks, spread_tasks

    found = [case for case in load_cases(folder) if only in (None, case.name)]
    if not found:
        raise click.BadParameter(f"{only!r} is no case of {folder}", param_hint="--only")
    base = EngineConfig(roundings=ROUNDINGS)
    configs = [replace(base, out_lanes=pm, split_lanes=pr) for pm, pr in LANES]
    arguments: dict[str, Any] = {"backend": backend, "latency": latency}
    if everything:
        tasks = case_tasks(found, configs, RESULTS, (0.0, 0.3), small=True, split=True, **arguments)
    else:
        tasks = spread_tasks(found, configs, **arguments)
    record = {"backend": backend, "cases": str(folder), "latency": latency}
    return _run(tasks, jobs, backend, as_json, record)


@verify.command()
@click.option("--count", type=click.IntRange(min=1), default=100, show_default=True,
              help="Layers.")  # fmt: skip
@seed_option
@click.option(
    "--max-macs",
    type=click.IntRange(min=64),
    default=20_000,
    show_default=True,
    help="Largest layer in multiply-accumulates.",
)
@click.option(
    "--result",
    "results",
    type=click.Choice(["raw", *ROUNDINGS]),
    multiple=True,
    help="What layers may end in; may be repeated.  [default: all]",
)
@click.option(
    "--cases-per-engine",
    type=click.IntRange(min=1),
    help="Layers that share an engine.  [default: 1, or 25 where engines are compiled]",
)
@_backend_option
@_jobs_option
@json_option
def random(
    count: int,
    seed: int,
    max_macs: int,
    results: tuple[str, ...],
    cases_per_engine: int | None,
    backend: str,
    jobs: int,
    as_json: bool,
) -> int:
    """Run random layers on random engines with random stalls against the golden model.

    Layers are numbered from --seed on. A failure shows the call that makes the same case again.
    """
    from haloconv.sim.randoms import RESULTS
    from haloconv.sim.verify import random_tasks

    tasks = random_tasks(
        count,
        seed,
        max_macs=max_macs,
        roundings=results or RESULTS,
        backend=backend,
        cases_per_engine=cases_per_engine,
    )
    record = {"backend": backend, "count": count, "max_macs": max_macs, "seed": seed}
    return _run(tasks, jobs, backend, as_json, record)


@verify.command()
@click.argument(
    "paths",
    metavar="MODEL.tflite...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--hashes",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON of SHA-256 of every operator's output, from another implementation.",
)
@click.option(
    "--target",
    type=click.Choice(["tflm", "litert", "xnnpack"]),
    default="litert",
    show_default=True,
    help="Whose arithmetic the models are read for.",
)
@engine_options
@latency_option
@click.option(
    "--stalls",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Share of cycles in which each memory port stalls.",
)
@seed_option
@_backend_option
@_jobs_option
@json_option
def models(
    paths: tuple[Path, ...],
    hashes: Path | None,
    target: str,
    engine: EngineOptions,
    latency: int,
    stalls: float,
    seed: int,
    backend: str,
    jobs: int,
    as_json: bool,
) -> int:
    """Run every convolution, depthwise and fully connected layer of models.

    Each layer is fed with what the golden model computes for it from seeded inputs. Its output must
    be the golden model's, or hash to what --hashes lists.
    """
    from haloconv.planner.tflite import conv_layers, read_tflite
    from haloconv.sim.verify import model_tasks

    tasks: list[Task] = []
    with progress() as step:
        step("reading the models and sizing the engine")
        found = [data for path in paths for data in conv_layers(read_tflite(path), target)]
        config = engine.build([data.layer for data in found], latency=latency)
        if config.roundings is None:
            # One engine for all models, so that it is compiled once.
            asked = {data.requantization.rounding for data in found}
            config = replace(config, roundings=tuple(name for name in ROUNDINGS if name in asked))
        for path in paths:
            step(f"computing the inputs of the layers of {path.name}")
            tasks += model_tasks(
                path,
                config,
                target=target,
                seed=seed,
                hashes=hashes,
                backend=backend,
                latency=latency,
                stalls=stalls,
            )
    record = {
        "backend": backend,
        "config": config.to_dict(),
        "hashes": None if hashes is None else str(hashes),
        "latency": latency,
        "models": [path.name for path in paths],
        "seed": seed,
        "stalls": stalls,
        "target": target,
    }
    return _run(tasks, jobs, backend, as_json, record, table=_model_table)


def _run(
    tasks: "Sequence[Task]",
    jobs: int,
    backend: str,
    as_json: bool,
    record: dict[str, Any],
    table: "Callable[[Sequence[Verification]], report.Table] | None" = None,
) -> int:
    """Run tasks with progress, print what they gave, and return the exit code."""
    from haloconv.sim.backend import choose_backend
    from haloconv.sim.verify import run_tasks

    choose_backend(backend)  # says what to install before anything runs
    results: list[Verification] = []
    failed = 0
    try:
        with progress() as step:
            for result in run_tasks(tasks, jobs):
                results.append(result)
                failed += not result.passed
                done = len(results)
                following = tasks[done].title if done < len(tasks) else "done"
                step(f"{failed} failed, {following}"[:90], done, len(tasks))
    except BrokenProcessPool:
        raise click.ClickException(
            f"a process died after {len(results)} of {len(tasks)} runs, killed or out of memory; "
            "use fewer --jobs"
        ) from None
    code = 1 if failed else 0
    if as_json:
        report.print_json(
            record
            | {
                "failed": failed,
                "passed": failed == 0,
                "results": [result.to_dict() for result in results],
            }
        )
        return code
    out = report.console()
    if table is not None:
        out.print(table(results))
    shown = [result for result in results if not result.passed]
    for result in shown[:SHOWN]:
        out.print(f"FAILED {result.title}: {result.complaint()}", soft_wrap=True)
        out.print(f"       {result.detail}", soft_wrap=True)
    if len(shown) > SHOWN:
        out.print(f"and {len(shown) - SHOWN} more failures, which --json lists")
    out.print(_summary(results, failed), soft_wrap=True)
    return code


def _summary(results: "Sequence[Verification]", failed: int) -> str:
    outputs = sum(result.outputs for result in results)
    moved = sum(sum(result.bytes_counted.values()) for result in results)
    timed = [result for result in results if not result.stalled and result.predicted_cycles]
    text = (
        f"{len(results)} runs, {failed} failed; {report.count(outputs)} outputs and "
        f"{report.count(moved)} bytes compared"
    )
    if timed:
        off = max(
            abs(result.cycles - result.predicted_cycles) / result.predicted_cycles
            for result in timed
        )
        same = sum(result.cycles == result.predicted_cycles for result in timed)
        text += (
            f"; of {len(timed)} runs without random stalls {same} took exactly the planned cycles, "
            f"the worst was {100 * off:.2f} % off"
        )
    return text


def _model_table(results: "Sequence[Verification]") -> "report.Table":
    table = report.new_table(
        "layer", "outputs", "different", "cycles planned", "measured", "bytes planned",
        "counted", "use",
    )  # fmt: skip
    for result in results:
        table.add_row(
            result.title,
            report.count(result.outputs),
            report.count(result.differences),
            report.count(result.predicted_cycles),
            report.count(result.cycles),
            report.count(sum(result.bytes_predicted.values())),
            report.count(sum(result.bytes_counted.values())),
            report.percent(result.utilisation),
        )
    return table
