"""``haloconv host``: loads a network into a board, runs it, and compares."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from haloconv.flow import report
from haloconv.flow.network_inputs import network_inputs
from haloconv.flow.network_report import node_title, output_lines, output_records
from haloconv.flow.options import input_option, json_option, seed_option
from haloconv.flow.progress import Step, progress

if TYPE_CHECKING:
    from haloconv.flow.boards.host_program import BoardProgram
    from haloconv.flow.boards.link import Transport

__all__ = ["host"]


@click.command()
@click.argument(
    "folder",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option("--port", help="Serial port of the board, such as /dev/ttyUSB1 or COM3.")
@click.option(
    "--simulate",
    is_flag=True,
    help="Run the board's design in a compiled simulator, down to the serial line.",
)
@input_option
@seed_option
@click.option("--check", is_flag=True, help="Compare the outputs with the numpy model.")
@click.option(
    "--runs", type=click.IntRange(min=1), default=1, show_default=True, help="Times to run it."
)
@json_option
def host(
    folder: Path,
    port: str | None,
    simulate: bool,
    inputs: tuple[Path, ...],
    seed: int,
    check: bool,
    runs: int,
    as_json: bool,
) -> int:
    """Run the network of DIR, made by `haloconv build`, on the board at a serial port.

    The board must have DIR's bitstream loaded. Inputs are random unless given. Prints the outputs
    and the engine's counters. Exit code 1 means that an output differs from the numpy model's.
    """
    from haloconv.flow.boards.host_program import BoardHost, read_program
    from haloconv.flow.boards.link import Link
    from haloconv.planner.registers import COUNTERS

    if (port is None) != simulate:
        raise click.UsageError("give --port, or --simulate in its place")
    program = read_program(folder)
    network = program.network
    arrays = network_inputs(network, inputs, seed)
    with progress() as step:
        step("opening the board")
        transport = _simulator(program) if port is None else _port(port, program)
        try:
            link = Link(transport)
            board = BoardHost(link, program)
            total = sum(end - start for start, end in program.manifest.load)
            link.progress = _show(step, total)
            loaded = board.load()
            link.progress = None
            step("running the network")
            result = board.run(arrays)
            same = all(_equal(result.outputs, board.run(arrays).outputs) for _ in range(runs - 1))
        finally:
            transport.close()
        different: list[str] = []
        if check:
            from haloconv.sim.network_golden import golden_network

            step("running the reference")
            expected = golden_network(network, arrays)
            different = [
                network.tensors[index].name
                for index, found in zip(network.outputs, result.outputs, strict=True)
                if not _equal([found], [expected[index]])
            ]
    code = 1 if different or not same else 0
    if as_json:
        report.print_json(
            {
                "board": program.manifest.board,
                "clock_mhz": program.manifest.clock_hz / 1e6,
                "counters": {name: result.counters.get(name) for name in COUNTERS},
                "different_outputs": different if check else None,
                "engine_seconds": result.engine_seconds,
                "loaded_bytes": loaded,
                "outputs": output_records(network, result.outputs),
                "predicted_cycles": program.manifest.predicted_cycles,
                "repeats": link.repeats,
                "runs": runs,
                "runs_equal": same,
                "seconds": result.seconds,
                "seed": seed,
            }
        )
        return code
    out = report.console()
    predicted, cycles = program.manifest.predicted_cycles, result.counters["cycles"]
    off = f", {100 * (cycles - predicted) / predicted:+.2f} % off" if predicted else ""
    out.print(
        f"{report.count(loaded)} bytes loaded, {link.repeats} batches repeated\n"
        f"{report.count(cycles)} cycles, {report.count(predicted)} predicted{off}; "
        f"{1000 * result.engine_seconds:.3g} ms at {program.manifest.clock_hz / 1e6:g} MHz",
        soft_wrap=True,
    )
    table = report.new_table("counter", "value")
    for name in COUNTERS:
        counted = name in result.counters
        value = report.count(result.counters[name]) if counted else "not built"
        table.add_row(name.replace("_", " "), value)
    out.print(table)
    out.print(output_lines(network, result.outputs), soft_wrap=True)
    if not same:
        out.print("DIFFERENT outputs from run to run")
    if different:
        names = ", ".join(node_title(name) for name in different)
        out.print(f"DIFFERENT from the reference: {names}", soft_wrap=True)
    elif check:
        count = len(network.outputs)
        out.print(
            f"all {count} outputs equal the reference's"
            if count > 1
            else "output equals the reference's"
        )
    return code


def _show(step: Step, total: int) -> Callable[[int], None]:
    """Return a callable that is told of each batch of bytes, frames included."""
    done = 0

    def show(count: int) -> None:
        nonlocal done
        done = min(done + count, total)
        step("loading descriptors and weights", done, total)

    return show


def _equal(first: list, second: list) -> bool:
    import numpy as np

    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def _port(port: str, program: "BoardProgram") -> "Transport":
    from haloconv.flow.boards.link import SerialTransport

    return SerialTransport(port, program.manifest.baud)


def _simulator(program: "BoardProgram") -> "Transport":
    from haloconv.rtl.board.system import BoardSystem
    from haloconv.sim.board.compiled import CompiledBoard, compile_board

    manifest = program.manifest
    system = BoardSystem(
        manifest.config,
        memory_bytes=manifest.memory_bytes,
        bit_cycles=manifest.bit_cycles,
        technology=manifest.technology,
    )
    return CompiledBoard(
        compile_board(system), bit_cycles=manifest.bit_cycles, clock_hz=manifest.clock_hz
    )
