"""``haloconv build``: a bitstream of an engine with a network's memory, for a board."""

from dataclasses import replace
from pathlib import Path

import click

from haloconv.flow import report
from haloconv.flow.options import (
    EngineOptions,
    PositiveNumber,
    engine_options,
    json_option,
    model_arguments,
    objective_option,
)
from haloconv.flow.progress import progress

__all__ = ["build"]

MEANINGS = {
    "image.bin": "what the host loads: descriptors, weights, tables",
    "manifest.json": "what the host program needs to know",
    "report.json": "area by block, clock, utilisation",
    "top.tcl": "builds the bitstream in Vivado",
    "top.v": "the design",
}


@click.command()
@model_arguments
@click.option(
    "--board",
    type=click.Choice(["ulx3s_85f", "icebreaker", "arty_a7_35", "arty_a7_100"]),
    required=True,
    help="Board to build for.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder for the files; it is made where it does not exist.",
)
@click.option("--clock", type=PositiveNumber("MHz"), metavar="MHZ", help="Clock of the engine.")
@click.option("--baud", type=click.IntRange(min=1), help="Rate of the serial line.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Runs of place and route; the fastest is taken.",
)
@engine_options
@objective_option
@json_option
def build(
    model: Path,
    target: str | None,
    board: str,
    output: Path,
    clock: float | None,
    baud: int | None,
    seeds: int,
    engine: EngineOptions,
    objective: str,
    as_json: bool,
) -> int:
    """Build a board's bitstream for the network of MODEL, a .tflite or .onnx file.

    The engine and the on-chip memory are sized for the network; lanes, ports, buffers and clock
    that are not given are those that suit the board. Beside the bitstream stands what
    `haloconv host` needs. Exit code 1 means that the clock is not met. For the Arty A7, whose tool
    is Vivado, Verilog, constraints and a script are written.
    """
    from haloconv.flow.boards import board_named
    from haloconv.flow.boards.build import build_board, design_board, engine_defaults
    from haloconv.planner.network_file import read_network
    from haloconv.rtl.board.on_chip_memory import read_latency

    chosen = board_named(board)
    network = read_network(model, target=target)
    if engine.config is None:
        buffers = ("input_bytes", "weight_bytes", "psum_bytes", "bias_bytes")
        given = {name for name, value in vars(engine).items() if value is not None}
        if given & set(buffers):
            given.add("budget")
        defaults = engine_defaults(chosen, network)
        engine = replace(engine, **{n: v for n, v in defaults.items() if n not in given})
    with progress() as step:
        step("sizing the engine")
        latency = read_latency(chosen.technology)
        config = engine.build_for_network(network, latency=latency, objective=objective)
        step("compiling the network")
        design = design_board(
            chosen,
            network,
            config,
            clock_hz=None if clock is None else clock * 1e6,
            baud=baud,
            objective=objective,
        )
        built = build_board(design, model, output, seeds=seeds, progress=step)
    values = built.report
    code = 0 if values.get("clock_met", True) else 1
    if as_json:
        report.print_json(values | {"files": list(built.files)})
        return code
    out = report.console()
    out.print(report.config_lines(design.program.config), soft_wrap=True)
    out.print(
        f"{chosen.title}: {report.count(design.memory_bytes)} bytes of memory on chip, "
        f"{report.count(design.program.image.size)} used; {design.clock_hz / 1e6:g} MHz; serial "
        f"line at {design.baud:,} baud; {report.count(design.program.cycles)} cycles predicted, "
        f"{design.clock_hz / max(design.program.cycles, 1):.1f} inferences a second on the engine",
        soft_wrap=True,
    )
    if "fmax_mhz" in values:
        use = report.new_table("resource", "used", "available", "share")
        for name, entry in sorted(values["utilisation"].items()):
            used, available = entry["used"], entry["available"]
            share = report.percent(used / available) if available else "-"
            use.add_row(name, report.count(used), report.count(available), share)
        out.print(use)
        verdict = "met" if values["clock_met"] else "NOT met; choose a lower --clock"
        out.print(
            f"{values['fmax_mhz']:.1f} MHz reached, {design.clock_hz / 1e6:g} MHz {verdict}",
            soft_wrap=True,
        )
    table = report.new_table("file", "what it holds", "bytes", left=2)
    for name in built.files:
        meaning = MEANINGS.get(name)
        if meaning is None:
            kinds = {chosen.bitstream: "the bitstream", chosen.constraints: "pins and clocks"}
            meaning = kinds.get(Path(name).suffix, "the network, for the host program")
        table.add_row(str(output / name), meaning, report.count((output / name).stat().st_size))
    out.print(table)
    file = f"{output / 'top'}{chosen.bitstream}"
    out.print(f"load it: {chosen.program.format(file=file, name=output / 'top')}", soft_wrap=True)
    return code
