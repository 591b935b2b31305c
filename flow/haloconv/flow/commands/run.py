"""``haloconv run``: a whole network on the simulated engine."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haloconv.flow import report
from haloconv.flow.network_inputs import network_inputs
from haloconv.flow.network_report import (
    first_difference,
    network_table,
    output_lines,
    output_records,
    total_lines,
)
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
from haloconv.flow.progress import Step, progress

if TYPE_CHECKING:
    from haloconv.planner.network_program import NetworkProgram
    from haloconv.sim.backend import BackendChoice

__all__ = ["run"]

INTERPRETED_RATE = 1000
"""Engine cycles that Amaranth's simulator manages a second, the order of magnitude."""


@click.command()
@model_arguments
@input_option
@click.option(
    "--reference", is_flag=True, help="Compare every tensor with the numpy model of the network."
)
@engine_options
@objective_option
@latency_option
@click.option(
    "--backend",
    type=click.Choice(["amaranth", "cxxrtl", "verilator", "auto"]),
    default="auto",
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
def run(
    model: Path,
    target: str | None,
    inputs: tuple[Path, ...],
    reference: bool,
    engine: EngineOptions,
    objective: str,
    latency: int,
    backend: str,
    stalls: float,
    seed: int,
    as_json: bool,
) -> int:
    """Run the network of MODEL, a .tflite or .onnx file, in the simulated engine.

    Prints the largest codes of each output, cycles and bytes of each operator, predicted and
    measured, and what the host has to do. Inputs are random unless given. Exit code 1 means that a
    tensor differs from the --reference.
    """
    from haloconv.planner.network_file import read_network
    from haloconv.planner.network_program import compile_network
    from haloconv.sim.backend import choose_backend
    from haloconv.sim.network import run_program

    network = read_network(model, target=target)
    arrays = network_inputs(network, inputs, seed)
    choice = choose_backend(backend)
    with progress() as step:
        step("sizing the engine")
        config = engine.build_for_network(network, latency=latency, objective=objective)
        step("compiling the network")
        program = compile_network(
            network, config, latency=latency, objective=objective, keep_tensors=reference
        )
        _notice(backend, choice, program)
        step(f"building the simulator ({choice.name})")
        result = run_program(
            program,
            arrays,
            backend=choice.name,
            keep_tensors=reference,
            latency=latency,
            stalls=stalls,
            seed=seed,
            progress=_show(step),
        )
        different = None
        if reference:
            from haloconv.sim.network_golden import golden_network

            step("running the reference")
            different = first_difference(result, golden_network(network, arrays))
    code = 0 if different is None else 1
    figures = result.report()
    if as_json:
        record: dict[str, Any] = figures.to_dict() | {
            "backend_reason": choice.reason,
            "config": program.config.to_dict(),
            "counters": result.counters,
            "inputs": [path.name for path in inputs],
            "latency": latency,
            "outputs": output_records(network, result.outputs),
            "reference": None,
            "seed": seed,
            "stalls": stalls,
        }
        if reference:
            record["reference"] = {
                "different_tensors": 0 if different is None else different[0],
                "equal": different is None,
                "first_difference": None if different is None else different[1],
                "tensors": _compared(result),
            }
        report.print_json(record)
        return code
    out = report.console()
    out.print(report.config_lines(program.config), soft_wrap=True)
    out.print(network_table(figures))
    out.print(total_lines(figures), soft_wrap=True)
    out.print(output_lines(network, result.outputs), soft_wrap=True)
    if different is not None:
        out.print(f"DIFFERENT from the reference: {different[1]}", soft_wrap=True)
    elif reference:
        out.print(f"all {_compared(result)} tensors equal the reference's")
    return code


def _notice(asked: str, choice: "BackendChoice", program: "NetworkProgram") -> None:
    """Say on stderr why a run takes long where no compiled simulator can be built."""
    if asked != "auto" or choice.name != "amaranth":
        return
    missing = choice.reason.removeprefix("amaranth: ")
    minutes = program.cycles / INTERPRETED_RATE / 60
    long = f", about {minutes:.0f} minutes for this network" if minutes >= 2 else ""
    report.error_console().print(
        f"no compiled simulator: {missing}; Amaranth's own takes some thousand times longer{long}",
        soft_wrap=True,
    )


def _show(step: Step) -> Callable[[int, int], None]:
    def show(cycles: int, total: int) -> None:
        # Random stalls take a run beyond what is predicted.
        step(f"simulating: {cycles:,} cycles", min(cycles, total), total)

    return show


def _compared(result: Any) -> int:
    """Return how many tensors a reference was compared with."""
    made = {index for node in result.program.network.nodes for index in node.outputs}
    return len(made & (set(result.tensors) | set(result.program.network.outputs)))
