"""``haloconv report``: the page of a sweep, and its plot for papers."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haloconv.flow.files import write_text
from haloconv.flow.options import json_option
from haloconv.flow.progress import progress
from haloconv.flow.report import count, print_json

if TYPE_CHECKING:
    from haloconv.flow.sweep_report.pareto import Axis
    from haloconv.flow.sweep_report.points import Sweep

__all__ = ["report"]

DASH = Path("-")


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="The page; DIR/report.html where nothing else is asked for.",
)
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Write the Pareto plot for papers, as SVG.",
)
@click.option(
    "--png", type=click.Path(dir_okay=False, path_type=Path), help="The same as PNG, 300 dpi."
)
@click.option(
    "--x",
    "across",
    metavar="AREA",
    help="Area in plot and JSON: lut4 (luts where carries are free), ffs, dsps, block_rams, "
    "large_rams or budget_bytes.",
)
@click.option(
    "--y",
    "up",
    type=click.Choice(["cycles", "fps"]),
    help="Cycles or frames a second in plot and JSON.",
)
@click.option("--workload", metavar="NAME", help="The workload in plot and JSON; the first one.")
@click.option("--title", help="Title of page and plot.")
@json_option
def report(
    folder: Path,
    output: Path | None,
    svg: Path | None,
    png: Path | None,
    across: str | None,
    up: str | None,
    workload: str | None,
    title: str | None,
    as_json: bool,
) -> None:
    """Show the sweep in DIR: one HTML page that works offline, or its plot for papers.

    DIR is what `haloconv sweep -o DIR` wrote; its sweep.json by itself will do, too. --json prints
    the engines of the Pareto front.
    """
    from haloconv.flow.sweep_report.points import read_sweep

    if [output == DASH, svg == DASH, as_json].count(True) > 1:
        raise click.UsageError("only one of -o -, --svg - and --json may write to stdout")
    if folder.is_dir() and not (folder / "sweep.json").exists():
        raise click.ClickException(f"{folder} has no sweep.json; make it with haloconv sweep")
    sweep = read_sweep(folder)
    if not sweep.points:
        raise click.ClickException(f"{folder} has no points yet; run haloconv sweep first")
    plotted = svg is not None or png is not None or as_json
    if output is None and not plotted:
        output = (folder if folder.is_dir() else folder.parent) / "report.html"
    if not plotted and any(option is not None for option in (across, up, workload)):
        raise click.UsageError(
            "--x, --y and --workload choose the plot of --svg, --png and --json; the page has all"
        )
    if output is not None or svg is not None or png is not None:
        _need_extra()
    heading = title or f"Engines on {_family(sweep)}"
    with progress() as step:
        if plotted:
            step("drawing the plot")
            x, y, workload = _choose(sweep, across, up, workload)
            _write_plots(sweep, (x, y), workload, svg, png, title)
            if as_json:
                print_json(_front_record(sweep, workload, x, y))
        if output is not None:
            from haloconv.flow.sweep_report.page import build_page

            write_text(output, build_page(sweep, heading, step))
    for path in (output, svg, png):
        if path is not None and path != DASH:
            click.echo(f"{path}: {count(path.stat().st_size)} bytes", err=True)


def _need_extra() -> None:
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        raise click.ClickException(
            "haloconv report draws with vl-convert; run pip install 'haloconv[report]'"
        ) from None


def _family(sweep: "Sweep") -> str:
    from haloconv.flow.sweep_report.page import FAMILY_NAMES

    return FAMILY_NAMES.get(sweep.family, sweep.family)


def _choose(
    sweep: "Sweep", across: str | None, up: str | None, workload: str | None
) -> "tuple[Axis, Axis, str]":
    """Return the axes and the workload that were asked for, or the first of each."""
    from haloconv.flow.sweep_report.pareto import area_axes, choose_axis, rate_axes

    x, y = choose_axis(area_axes(sweep), across), choose_axis(rate_axes(sweep), up)
    if workload is None:
        workload = sweep.workloads[0]
    elif workload not in sweep.workloads:
        raise click.BadParameter(
            f"{workload!r} is no workload of this sweep; it has {', '.join(sweep.workloads)}",
            param_hint="--workload",
        )
    return x, y, workload


def _write_plots(
    sweep: "Sweep",
    axes: "tuple[Axis, Axis]",
    workload: str,
    svg: Path | None,
    png: Path | None,
    title: str | None,
) -> None:
    if svg is None and png is None:
        return
    from haloconv.flow.sweep_report.chart import pareto_chart
    from haloconv.flow.sweep_report.paper import png_of, svg_of

    x, y = axes
    chart = pareto_chart(sweep, workload, x, y)
    rows = chart["datasets"]["points"]
    if not rows:
        raise click.ClickException(
            f"no point has both {x.label} and {y.label} of {workload}, so there is nothing to plot"
        )
    front = sum(row["front"] == "yes" for row in rows)
    heading = title or (
        f"Engines on {_family(sweep)}: {_phrase(x)} against {_phrase(y)} of {workload}"
    )
    subtitle = f"{len(rows)} engines, {front} on the Pareto front; the pale ones are bettered"
    if svg is not None:
        write_text(svg, svg_of(chart, heading, subtitle))
    if png is not None:
        png.parent.mkdir(parents=True, exist_ok=True)
        png.write_bytes(png_of(chart, heading, subtitle))


def _phrase(axis: "Axis") -> str:
    """Return a label within a sentence: words in lower case, LUT4 and DSP as they are."""
    first, _, rest = axis.label.partition(" ")
    return " ".join(filter(None, (first.lower() if first.istitle() else first, rest)))


def _front_record(sweep: "Sweep", workload: str, x: "Axis", y: "Axis") -> dict[str, Any]:
    from haloconv.flow.sweep_report.labels import engine_words, telling_parameters
    from haloconv.flow.sweep_report.pareto import pairs, pareto_front

    entries = pairs(sweep, workload, x, y)
    telling = telling_parameters(sweep)
    return {
        "family": sweep.family,
        "workload": workload,
        "x": x.key,
        "y": y.key,
        "points": len(entries),
        "front": [
            {
                "id": pair.point.id,
                "number": pair.point.number,
                "engine": engine_words(pair.point, telling),
                "config": None if pair.point.config is None else pair.point.config.to_dict(),
                "x": pair.x,
                "y": pair.y,
            }
            for pair in pareto_front(entries, y)
        ],
    }
