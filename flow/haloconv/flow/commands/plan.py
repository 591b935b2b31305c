"""``haloconv plan``: tiles, storage, traffic and cycles of each layer."""

from pathlib import Path

import click

from haloconv.flow import report
from haloconv.flow.files import write_text
from haloconv.flow.options import (
    EngineOptions,
    engine_options,
    figure_option,
    json_option,
    latency_option,
    objective_option,
    source_arguments,
)
from haloconv.flow.progress import progress
from haloconv.flow.source import read_source

__all__ = ["plan"]


@click.command()
@source_arguments
@engine_options
@objective_option
@latency_option
@click.option("--raw", is_flag=True, help="int32 sums out instead of int8 results.")
@figure_option
@json_option
def plan(
    path: Path | None,
    words: str | None,
    only: str | None,
    target: str,
    engine: EngineOptions,
    objective: str,
    latency: int,
    raw: bool,
    figure: Path | None,
    as_json: bool,
) -> None:
    """Cut the layers of SOURCE into tiles and say what that costs.

    One layer gets a full sheet, several a table with a row each.
    """
    from haloconv.planner.plan import plan_layer

    source = read_source(path, words, only, target)
    several = len(source.items) > 1
    if figure is not None and several:
        raise click.UsageError(
            f"--figure draws one layer, but {source.name} has {len(source.items)}; "
            "choose with --only"
        )
    with progress() as step:
        step("sizing the engine")
        config = engine.build(source.layers, latency=latency, objective=objective)
        plans = []
        for number, item in enumerate(source.items):
            step(f"planning {item.title}", number, len(source.items))
            try:
                plans.append(plan_layer(item.layer, config, objective, latency=latency, raw=raw))
            except ValueError as error:
                raise click.ClickException(f"layer {item.long_title}: {error}") from error
    if figure is not None:
        from haloconv.flow.figure import plan_figure

        name = "" if words is not None else source.items[0].name
        write_text(figure, plan_figure(plans[0], name))
        if str(figure) == "-":
            return
    if as_json:
        report.print_json(
            {
                "config": config.to_dict(),
                "layers": [
                    report.plan_record(item, entry)
                    for item, entry in zip(source.items, plans, strict=True)
                ],
                "skipped": list(source.skipped),
                "source": source.name,
                "totals": report.totals_record(plans),
            }
        )
        return
    out = report.console()
    out.print(report.config_lines(config))
    if several:
        out.print(report.plan_table(source.items, plans))
    else:
        out.print(report.plan_sheet(source.items[0], plans[0]))
    if source.skipped:
        out.print(f"not planned, as no convolution: {', '.join(source.skipped)}")
