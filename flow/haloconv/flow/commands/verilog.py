"""``haloconv verilog``: the engine as Verilog, and its description as JSON."""

from pathlib import Path

import click

from haloconv.flow import report
from haloconv.flow.files import write_text
from haloconv.flow.options import (
    EngineOptions,
    engine_options,
    json_option,
    latency_option,
    objective_option,
    source_arguments,
)
from haloconv.flow.progress import progress
from haloconv.flow.source import read_layers

__all__ = ["verilog"]


@click.command()
@source_arguments
@engine_options
@objective_option
@latency_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=Path("haloconv_engine.v"),
    show_default=True,
    help="Verilog file; the description goes beside it as .json. - prints the Verilog.",
)
@json_option
def verilog(
    path: Path | None,
    words: str | None,
    only: str | None,
    target: str,
    engine: EngineOptions,
    objective: str,
    latency: int,
    output: Path,
    as_json: bool,
) -> None:
    """Write the engine as Verilog, and its registers and descriptor as JSON.

    SOURCE is only needed for --budget, which sizes the buffers for its layers. --json prints the
    description to stdout, in place of the Verilog if that was to go there.
    """
    from haloconv.flow.export import engine_description_text, engine_verilog

    layers = read_layers(path, words, only, target)
    with progress() as step:
        step("sizing the engine")
        config = engine.build(layers, latency=latency, objective=objective)
        step("generating Verilog")
        text = "" if as_json and str(output) == "-" else engine_verilog(config)
    description = engine_description_text(config)
    if str(output) != "-":
        write_text(output, text)
        write_text(output.with_suffix(".json"), description)
    if as_json:
        click.echo(description, nl=False)
    elif str(output) == "-":
        click.echo(text, nl=False)
    else:
        out = report.console()
        out.print(report.config_lines(config))
        out.print(f"wrote {output} ({report.count(len(text.splitlines()))} lines)")
        out.print(f"wrote {output.with_suffix('.json')}")
