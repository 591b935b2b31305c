"""``haloconv simulate``: layers in RTL, held against the golden model and the plan."""

from pathlib import Path

import click

from haloconv.flow import report
from haloconv.flow.checks import Check, check_layer, check_record
from haloconv.flow.options import (
    EngineOptions,
    engine_options,
    json_option,
    latency_option,
    objective_option,
    seed_option,
    source_arguments,
)
from haloconv.flow.progress import progress
from haloconv.flow.source import layer_words, read_source
from haloconv.planner.requantization import ROUNDINGS

__all__ = ["check_table", "simulate"]


@click.command()
@source_arguments
@engine_options
@objective_option
@latency_option
@click.option(
    "--rounding",
    type=click.Choice([*ROUNDINGS, "raw"]),
    default="double",
    show_default=True,
    help="For layers that are not read from a model; raw is int32 sums.",
)
@click.option(
    "--backend",
    type=click.Choice(["amaranth", "cxxrtl", "verilator", "auto"]),
    default="amaranth",
    show_default=True,
    help="Simulator; auto is a compiled one where there is one.",
)
@click.option(
    "--stalls",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Share of cycles in which each memory port stalls.",
)
@seed_option
@json_option
def simulate(
    path: Path | None,
    words: str | None,
    only: str | None,
    target: str,
    engine: EngineOptions,
    objective: str,
    latency: int,
    rounding: str,
    backend: str,
    stalls: float,
    seed: int,
    as_json: bool,
) -> int:
    """Run the layers of SOURCE in the simulated engine, cycle by cycle.

    Inputs are random; weights and scales are the model's, or random where SOURCE is no model. Every
    output is compared with the golden model, bytes and cycles with the plan. Exit code 1 means
    that an output or a byte count differs.
    """
    source = read_source(path, words, only, target)
    checks: list[Check] = []
    with progress() as step:
        step("sizing the engine")
        config = engine.build(source.layers, latency=latency, objective=objective)
        for number, item in enumerate(source.items):
            what = f"simulating {item.title}"
            step(what, number, len(source.items))
            try:
                checks.append(
                    check_layer(
                        item,
                        config,
                        rounding=rounding,
                        backend=backend,
                        latency=latency,
                        stalls=stalls,
                        seed=seed,
                        objective=objective,
                        progress=lambda cycles, what=what, number=number: step(
                            f"{what}: {cycles:,} cycles", number, len(source.items)
                        ),
                    )
                )
            except ValueError as error:
                raise click.ClickException(f"layer {item.long_title}: {error}") from error
    passed = all(check.passed for check in checks)
    if as_json:
        report.print_json(
            {
                "backend": backend,
                "config": config.to_dict(),
                "latency": latency,
                "layers": [check_record(check) for check in checks],
                "passed": passed,
                "seed": seed,
                "skipped": list(source.skipped),
                "source": source.name,
                "stalls": stalls,
            }
        )
        return 0 if passed else 1
    out = report.console()
    out.print(report.config_lines(config))
    out.print(check_table(checks))
    if source.skipped:
        out.print(f"not simulated, as no convolution: {', '.join(source.skipped)}")
    out.print(
        "every output equals the golden model's, every byte count the plan's"
        if passed
        else "DIFFERENT: see the rows above"
    )
    return 0 if passed else 1


def check_table(checks: list[Check]) -> "report.Table":
    """Return a row for each simulated layer."""
    table = report.new_table(
        "layer",
        "shape",
        "outputs",
        "different",
        "cycles predicted",
        "measured",
        "off by",
        "bytes predicted",
        "counted",
        "use",
        left=2,
    )
    for check in checks:
        plan, measured = check.result.plan, check.result.cycles
        table.add_row(
            check.item.title,
            layer_words(check.item.layer, geometry=True),
            report.count(check.outputs),
            report.count(check.differences),
            report.count(plan.cycles),
            report.count(measured),
            f"{100 * (measured - plan.cycles) / plan.cycles:+.2f} %",
            report.count(plan.moved_bytes.total),
            report.count(check.moved),
            report.percent(check.utilisation),
        )
    return table
