"""``haloconv compile``: a network as Verilog, memory image, program, header and testbench."""

from pathlib import Path

import click

from haloconv.flow import report
from haloconv.flow.network_inputs import network_inputs
from haloconv.flow.options import (
    EngineOptions,
    engine_options,
    input_option,
    json_option,
    latency_option,
    model_arguments,
    objective_option,
    seed_option,
)
from haloconv.flow.progress import progress

__all__ = ["compile_model"]

MEANINGS = {
    "haloconv_engine.v": "the engine",
    "haloconv_engine.json": "its ports, registers and descriptor",
    "haloconv_network.h": "registers, programs and tensors for C",
    "image.bin": "descriptors, weights, tables, and room for tensors",
    "image.hex": "the same for $readmemh",
    "program.json": "tensors, steps and decoded descriptors",
    "testbench.v": "runs the programs and checks the whole memory",
}


@click.command("compile")
@model_arguments
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder for the files; it is made where it does not exist.",
)
@input_option
@engine_options
@objective_option
@latency_option
@seed_option
@json_option
def compile_model(
    model: Path,
    target: str | None,
    output: Path,
    inputs: tuple[Path, ...],
    engine: EngineOptions,
    objective: str,
    latency: int,
    seed: int,
    as_json: bool,
) -> None:
    """Compile the network of MODEL, a .tflite or .onnx file, for an engine of its own.

    Writes the engine as Verilog, the memory image that it runs from, the decoded program as JSON, a
    C header, and a Verilog testbench that checks the engine on an --input, which is random unless
    given. --json prints the program.
    """
    from haloconv.flow.network_files import network_files, program_text, write_files
    from haloconv.planner.network_file import read_network
    from haloconv.planner.network_program import EngineRun, compile_network

    network = read_network(model, target=target)
    arrays = network_inputs(network, inputs, seed)
    with progress() as step:
        step("sizing the engine")
        config = engine.build_for_network(network, latency=latency, objective=objective)
        step("compiling the network")
        program = compile_network(network, config, latency=latency, objective=objective)
        step("generating Verilog and what the testbench expects")
        files = network_files(program, arrays, latency=latency)
    write_files(output, files)
    if as_json:
        click.echo(program_text(program), nl=False)
        return
    out = report.console()
    out.print(report.config_lines(program.config), soft_wrap=True)
    runs = [item for item in program.steps if isinstance(item, EngineRun)]
    host = len(program.steps) - len(runs)
    out.print(
        f"{sum(1 for _ in program.planned)} operators in {len(runs)} "
        f"run{'s' if len(runs) > 1 else ''} of the engine, {host} on the host; "
        f"{report.count(program.cycles)} cycles predicted",
        soft_wrap=True,
    )
    table = report.new_table("file", "what it holds", "bytes", left=2)
    for name in sorted(files):
        meaning = MEANINGS.get(name, "memory of the testbench")
        table.add_row(str(output / name), meaning, report.count(len(files[name])))
    out.print(table)
