"""From a network to a bitstream: engine and memory sized, netlist, place and route, host files."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from haloconv.flow.boards.board import Board
from haloconv.flow.boards.manifest import IMAGE, MANIFEST, Manifest, make_manifest
from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.network import Network
from haloconv.planner.network_program import (
    EngineRun,
    NetworkProgram,
    compile_network,
    needed_options,
)
from haloconv.rtl.board.on_chip_memory import read_latency
from haloconv.rtl.board.system import BoardSystem
from haloconv.rtl.board.uart import bit_cycles

__all__ = [
    "BoardBuild",
    "BoardDesign",
    "build_board",
    "design_board",
    "engine_defaults",
    "memory_for",
]

TOP = "top"
REPORT = "report.json"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class BoardDesign:
    """What is put on a board, before any tool runs.

    Attributes
    ----------
    board : Board
    program : NetworkProgram
    memory_bytes : int
    clock_hz : float
    baud, cycles : int
        Of the serial line, and clock cycles of a bit.
    """

    board: Board
    program: NetworkProgram
    memory_bytes: int
    clock_hz: float
    baud: int
    cycles: int

    def system(self) -> BoardSystem:
        """Return the design without pins and clock."""
        return BoardSystem(
            self.program.config,
            memory_bytes=self.memory_bytes,
            bit_cycles=self.cycles,
            technology=self.board.technology,
        )

    def manifest(self, *, model: Path, bitstream: str) -> Manifest:
        """Return what the host program has to know; ``model`` lies in the folder of the build."""
        return make_manifest(
            self.program,
            board=self.board.name,
            clock_hz=self.clock_hz,
            baud=self.baud,
            bit_cycles=self.cycles,
            memory_bytes=self.memory_bytes,
            technology=self.board.technology,
            model=model.name,
            model_sha256=hashlib.sha256(model.read_bytes()).hexdigest(),
            bitstream=bitstream,
        )


@dataclass(frozen=True)
class BoardBuild:
    """What a build left in its folder.

    Attributes
    ----------
    design : BoardDesign
    files : tuple of str
    report : dict
        What report.json holds.
    """

    design: BoardDesign
    files: tuple[str, ...]
    report: dict[str, Any]


def memory_for(board: Board, image_bytes: int, bus_bytes: int) -> int:
    """Return the bytes of on-chip memory for an image: whole banks.

    Raises
    ------
    PlanError
        If the board has no room for them.
    """
    step = board.memory_step * bus_bytes
    size = -(-image_bytes // step) * step
    if image_bytes > board.most_memory:
        raise PlanError(
            f"the network needs {image_bytes} bytes of memory, but {board.title} has "
            f"{board.most_memory} on chip; choose a smaller network or another board"
        )
    if size > board.most_memory:
        raise PlanError(
            f"the network needs {image_bytes} bytes of memory, which are {size} in banks for ports "
            f"of {bus_bytes} bytes, but {board.title} has {board.most_memory} on chip; choose a "
            "narrower --bus"
        )
    return size


def _check_bus(board: Board, bus_bytes: int) -> None:
    """Refuse ports that the board's memory cannot have."""
    if bus_bytes not in board.bus_bytes:
        *others, last = map(str, board.bus_bytes)
        widths = f"{', '.join(others)} or {last}"
        raise ValueError(
            f"on the {board.title}, the memory ports must be {widths} bytes wide, not {bus_bytes}; "
            f"choose --bus {widths}"
        )


def engine_defaults(board: Board, network: Network) -> dict[str, Any]:
    """Return what suits a board's engine, without what the network rules out."""
    values = dict(board.engine)
    roundings, units = needed_options(network)
    if "elementwise" in units or "fp32" in roundings:
        values.pop("serial_requantizers", None)
    return values


def design_board(
    board: Board,
    network: Network,
    config: EngineConfig,
    *,
    clock_hz: float | None = None,
    baud: int | None = None,
    objective: str = "cycles",
) -> BoardDesign:
    """Compile a network for an engine on a board.

    Parameters
    ----------
    board : Board
    network : Network
    config : EngineConfig
        Its ``address_bits`` are set to what the memory needs.
    clock_hz : float or None
        None takes the board's usual clock.
    baud : int or None
        None takes the board's usual rate.
    objective : {"cycles", "bytes", "storage"}
        Of the tile search.

    Raises
    ------
    ValueError
        If the network, the ports, the clock or the rate do not suit the board.
    """
    _check_bus(board, config.bus_bytes)
    clock = board.clock(board.clock_hz if clock_hz is None else clock_hz)
    rate = board.baud if baud is None else baud
    cycles = bit_cycles(clock, rate)
    latency = read_latency(board.technology)
    program = compile_network(network, config, latency=latency, objective=objective)
    if not any(isinstance(step, EngineRun) for step in program.steps):
        raise PlanError(
            f"{network.name} has no operator that the engine runs; there is nothing to build"
        )
    memory = memory_for(board, int(program.image.size), config.bus_bytes)
    # No wider than the memory, which saves adders all over the engine.
    bits = max(16, (memory - 1).bit_length())
    program = replace(program, config=replace(program.config, address_bits=bits))
    return BoardDesign(board, program, memory, clock, rate, cycles)


def build_board(
    design: BoardDesign,
    model: Path,
    folder: Path,
    *,
    seeds: int = 1,
    progress: Progress = lambda step: None,
) -> BoardBuild:
    """Make a board's files in a folder.

    Parameters
    ----------
    design : BoardDesign
    model : Path
        The network's file, which is copied for the host program.
    folder : Path
        Made where it does not exist.
    seeds : int
        Runs of place and route; the fastest is taken.
    progress : callable
        Told what comes next.

    Returns
    -------
    BoardBuild
        Its report says whether the clock is met.

    Raises
    ------
    ToolError
        If a tool is missing or fails, as when the design does not fit.
    OSError
        If a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    board = design.board
    progress("elaborating the design")
    top = board.top(design.system(), design.clock_hz)
    plan = board.platform().build(top, name=TOP, do_build=False, emit_src=False)
    files: dict[str, bytes] = {}
    report: dict[str, Any] = {
        "board": board.name,
        "clock_mhz": design.clock_hz / 1e6,
        "config": design.program.config.to_dict(),
        "memory_bytes": design.memory_bytes,
        "predicted_cycles": design.program.cycles,
    }
    constraints = f"{TOP}{board.constraints}"
    (folder / constraints).write_text(_text(plan, constraints), encoding="utf-8")
    bitstream = ""
    if board.bitstream:
        bitstream = f"{TOP}{board.bitstream}"
        report |= _implement(design, _text(plan, f"{TOP}.il"), folder, seeds, progress)
    else:
        for name in (f"{TOP}.v", f"{TOP}.tcl"):
            files[name] = _text(plan, name).encode()
    program = design.program
    copied = f"model{model.suffix}"
    shutil.copyfile(model, folder / copied)
    files[IMAGE] = program.image.tobytes()
    files[MANIFEST] = design.manifest(model=folder / copied, bitstream=bitstream).to_text().encode()
    files[REPORT] = (json.dumps(report, sort_keys=True, indent=2) + "\n").encode()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    names = [*files, constraints, copied, *([bitstream] if bitstream else [])]
    return BoardBuild(design, tuple(sorted(names)), report)


def _text(plan: Any, name: str) -> str:
    content = plan.files[name]
    return content.decode() if isinstance(content, bytes) else content


def _implement(
    design: BoardDesign, rtlil: str, folder: Path, seeds: int, progress: Progress
) -> dict[str, Any]:
    """Synthesise, place, route and pack; return what the report says of it."""
    # These import tools that only a build needs.
    from haloconv.flow.place_route import place_and_route
    from haloconv.flow.synthesis.rtlil import plain_names, unchecked_reads
    from haloconv.flow.synthesis.run import synthesize_rtlil

    board = design.board
    netlist = folder / f"{TOP}.json"
    progress(f"synthesising for {board.family}")
    mapped = synthesize_rtlil(
        unchecked_reads(plain_names(rtlil)), board.family, top=TOP, netlist=netlist
    )
    try:
        placed = place_and_route(
            netlist,
            board.device,
            package=board.package,
            speed=board.speed or None,
            seeds=range(1, seeds + 1),
            frequency=design.clock_hz / 1e6,
            constraints=folder / f"{TOP}{board.constraints}",
            bitstream=folder / f"{TOP}{board.bitstream}",
            progress=lambda done, total: progress(f"placing and routing, {done} of {total} done"),
        )
    finally:
        # Some hundred times the size of the bitstream, and of no use to anybody.
        netlist.unlink(missing_ok=True)
    best = max(placed.runs, key=lambda run: run.fmax_mhz)
    return {
        "area": mapped.area.to_dict(),
        "blocks": {name: area.to_dict() for name, area in mapped.blocks.items()},
        "clock_met": best.fmax_mhz >= design.clock_hz / 1e6,
        "fmax_mhz": best.fmax_mhz,
        "place_and_route": placed.tool,
        "seed": best.seed,
        "slowest_clock": best.clock,
        "synthesis": mapped.tool,
        "utilisation": {
            name: {"available": available, "used": used}
            for name, (used, available) in best.utilisation.items()
        },
    }
