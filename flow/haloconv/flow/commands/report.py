"""``haloconv report``: the page of a sweep, and its plot for papers."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from haloconv.flow.files import write_text
from haloconv.flow.progress import progress
from haloconv.flow.report import count

if TYPE_CHECKING:
    from haloconv.flow.sweep_report.pareto import Axis
    from haloconv.flow.sweep_report.points import Sweep

__all__ = ["report"]

DASH = Path("-")


@click.command()
@click.argument(
    "folder", metavar="DIR", type=click.Path(exists=True, dir_okay=True, path_type=Path)
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="The page; DIR/report.html unless a plot alone is asked for.",
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
    help="Area in the plot: lut4 (luts where carries are free), ffs, dsps, block_rams, large_rams "
    "or budget_bytes.",
)
@click.option(
    "--y", "up", type=click.Choice(["cycles", "fps"]), help="Cycles or frames a second in the plot."
)
@click.option("--workload", metavar="NAME", help="The workload in the plot; the first one.")
@click.option("--title", help="Title of page and plot.")
def report(
    folder: Path,
    output: Path | None,
    svg: Path | None,
    png: Path | None,
    across: str | None,
    up: str | None,
    workload: str | None,
    title: str | None,
) -> None:
    """Show the sweep in DIR: one HTML page that works offline, or its plot for papers.

    DIR is what `haloconv sweep -o DIR` wrote; its sweep.json by itself will do, too.
    """
    from haloconv.flow.sweep_report.points import read_sweep

    _need_extra()
    sweep = read_sweep(folder)
    if not sweep.points:
        raise click.ClickException(f"{folder} has no points yet; run haloconv sweep first")
    if output is None and svg is None and png is None:
        output = (folder if folder.is_dir() else folder.parent) / "report.html"
    if output == DASH and svg == DASH:
        raise click.UsageError("only one of -o and --svg may be -, as both would go to stdout")
    with progress() as step:
        if svg is not None or png is not None:
            step("drawing the plot")
            _write_plots(sweep, svg, png, across, up, workload, title)
        elif any(option is not None for option in (across, up, workload)):
            raise click.UsageError(
                "--x, --y and --workload choose the plot of --svg or --png; the page has them all"
            )
        if output is not None:
            from haloconv.flow.sweep_report.page import build_page

            text = build_page(sweep, title or _title(sweep), step)
            write_text(output, text)
            if output != DASH:
                click.echo(f"{output}: {count(len(text.encode()))} bytes", err=True)


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


def _title(sweep: "Sweep") -> str:
    return f"Engines on {_family(sweep)}"


def _write_plots(
    sweep: "Sweep",
    svg: Path | None,
    png: Path | None,
    across: str | None,
    up: str | None,
    workload: str | None,
    title: str | None,
) -> None:
    from haloconv.flow.sweep_report.chart import pareto_chart
    from haloconv.flow.sweep_report.paper import png_of, svg_of
    from haloconv.flow.sweep_report.pareto import area_axes, choose_axis, rate_axes

    x, y = choose_axis(area_axes(sweep), across), choose_axis(rate_axes(sweep), up)
    if workload is None:
        workload = sweep.workloads[0]
    elif workload not in sweep.workloads:
        raise click.BadParameter(
            f"{workload!r} is no workload of this sweep; it has {', '.join(sweep.workloads)}",
            param_hint="--workload",
        )
    chart = pareto_chart(sweep, workload, x, y)
    rows = chart["datasets"]["points"]
    if not rows:
        raise click.ClickException(
            f"no point has both {x.label} and {y.label} of {workload}, so there is nothing to plot"
        )
    front = sum(row["front"] == "yes" for row in rows)
    heading = title or f"{_title(sweep)}: {_phrase(x)} against {_phrase(y)} of {workload}"
    subtitle = f"{len(rows)} engines, {front} on the Pareto front; the pale ones are bettered"
    if svg is not None:
        write_text(svg, svg_of(chart, heading, subtitle))
    if png is not None:
        png.parent.mkdir(parents=True, exist_ok=True)
        png.write_bytes(png_of(chart, heading, subtitle))
    for path in (svg, png):
        if path is not None and path != DASH:
            click.echo(f"{path}: {count(path.stat().st_size)} bytes", err=True)


def _phrase(axis: "Axis") -> str:
    """Return a label within a sentence: words in lower case, LUT4 and DSP as they are."""
    first, _, rest = axis.label.partition(" ")
    return " ".join(filter(None, (first.lower() if first.istitle() else first, rest)))
