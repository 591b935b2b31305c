"""``haloconv sweep``: area, clock and cycles of every point of a space of engines."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from haloconv.flow import report
from haloconv.flow.options import json_option
from haloconv.flow.sweep.jobs import Job, Outcome
from haloconv.flow.tools import ToolError, processors

__all__ = ["sweep"]


@click.command()
@click.argument(
    "space_file",
    metavar="SPACE.toml",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "-o",
    "--output",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps what is known and gets the results.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Points at a time.  [default: the cores of this machine]",
)
@click.option("--dask", metavar="ADDRESS", help="Scheduler of a Dask cluster that does the work.")
@click.option("--retry-failed", is_flag=True, help="Try once more what failed before.")
@json_option
def sweep(
    space_file: Path,
    folder: Path,
    jobs: int | None,
    dask: str | None,
    retry_failed: bool,
    as_json: bool,
) -> int:
    """Build every engine of SPACE.toml and plan every workload on it.

    Area comes from synthesis, the clock from place and route where SPACE.toml asks for it, cycles
    and bytes from the planner. What is known in the output folder is not computed again; a sweep
    that was ended goes on where it was. Exit code 1 means that points failed; the others are there.
    docs/sweep.md describes SPACE.toml and the results.
    """
    from haloconv.flow.sweep.results import results_record, results_table, write_results
    from haloconv.flow.sweep.runner import Sweep
    from haloconv.flow.sweep.space import read_space
    from haloconv.flow.sweep.store import Store
    from haloconv.flow.sweep.workers import DaskWorkers, LocalWorkers, Workers

    if dask is not None and jobs is not None:
        raise click.UsageError("--jobs and --dask exclude each other; a cluster has its own width")
    space = read_space(space_file)
    started = time.monotonic()

    def workers() -> Workers:
        if dask is not None:
            return DaskWorkers(dask)
        return LocalWorkers(jobs or processors())

    with Store(folder) as store, _watch() as watch:
        try:
            run = Sweep(space, store, workers, watch=watch, retry_failed=retry_failed)
        except ToolError as error:
            raise click.ClickException(str(error)) from None
        try:
            run.run()
        finally:
            record = results_record(run)
            write_results(folder, record)
    failed = [point for point in record["points"] if point["status"] == "failed"]
    code = 1 if failed else 0
    if as_json:
        report.print_json(record)
        return code
    out = report.console()
    out.print(results_table(record))
    for point in failed:
        out.print(f"FAILED {point['id']}: {point['error']}", soft_wrap=True)
        out.print(f"       {point['given']}", soft_wrap=True)
    out.print(
        f"{len(record['points'])} points, {len(failed)} failed; {run.computed} results computed in "
        f"{time.monotonic() - started:.1f} s, all else was known; see {folder / 'sweep.json'} and "
        f"{folder / 'sweep.csv'}",
        soft_wrap=True,
    )
    return code


class _Bar:
    """Shows how a sweep goes; time left comes from the weight of the work."""

    def __init__(self, bar: Progress | None) -> None:
        self.bar = bar
        self.task = None if bar is None else bar.add_task("looking up", total=None)
        self.jobs = self.count = self.failed = 0

    def begin(self, jobs: int, weight: float) -> None:
        """Start a bar for so many jobs."""
        self.jobs, self.count, self.failed = jobs, 0, 0
        if self.bar is not None and self.task is not None:
            self.bar.reset(self.task, total=weight, description=f"0 of {jobs} done")

    def done(self, job: Job, outcome: Outcome) -> None:
        """Show that a job is finished."""
        self.count += 1
        self.failed += outcome.error is not None
        if self.bar is not None and self.task is not None:
            failed = f", {self.failed} failed" if self.failed else ""
            text = f"{self.count} of {self.jobs} done{failed}; {job.title}"
            self.bar.update(self.task, advance=job.weight, description=text[:80])


@contextmanager
def _watch() -> Iterator[_Bar]:
    """Give a bar on a terminal, silence elsewhere."""
    screen = report.error_console()
    if not screen.is_terminal:
        yield _Bar(None)
        return
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        # Points take a minute each, so that the pace shows over many minutes only.
        speed_estimate_period=3600,
    ) as bar:
        yield _Bar(bar)
