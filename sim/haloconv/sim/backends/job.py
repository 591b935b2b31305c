"""What every simulator is given, what it gives back, and how it fails."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from haloconv.planner.registers import Register
from haloconv.sim.errors import SimulationError
from haloconv.sim.memory import MemoryTraffic

__all__ = [
    "REGISTER_WORDS",
    "RESET_CYCLES",
    "BackendUnavailable",
    "BuildError",
    "Job",
    "Outcome",
    "PortState",
    "SimulationTimeout",
    "timeout_message",
]

RESET_CYCLES = 2
"""Cycles under reset before cycle 0."""
REGISTER_WORDS = max(Register) + 2
"""Words read after the run; the last register is the low word of a counter."""


class BackendUnavailable(SimulationError):
    """A simulator was asked for that this machine cannot run; says what to install."""


class BuildError(SimulationError):
    """A tool failed while a simulator was built; carries the tail of the tool's log."""


class SimulationTimeout(SimulationError):
    """The device was still busy after ``max_cycles``; says what each port was waiting for."""


@dataclass(frozen=True)
class Job:
    """One run: memory, program and limits. All values are checked by ``backend.run``."""

    image: bytes
    address_bits: int
    bus_bytes: int
    base: int
    program_address: int
    latency: int
    stalls: tuple[float, float, float]
    seed: int
    outstanding: int | None
    faults: tuple[tuple[int, int], ...]
    max_cycles: int
    abort_at: int | None
    optimize: int | None
    vcd: Path | None
    progress: Callable[[int], None] | None


@dataclass(frozen=True)
class Outcome:
    """Memory and registers after a run, and the cycles in which descriptors were seen finished."""

    memory: np.ndarray
    cycles: int
    words: tuple[int, ...]
    traffic: MemoryTraffic
    finished_at: tuple[int, ...] = ()


@dataclass(frozen=True)
class PortState:
    """Levels of the memory ports in the cycle in which a run was given up."""

    status: int
    request_valid: int
    request_ready: int
    request_address: int
    request_beats: int
    data_valid: int
    data_ready: int
    beats_owed: int
    write_valid: int
    write_ready: int
    write_address: int


def timeout_message(max_cycles: int, state: PortState) -> str:
    """Return the sentence of a :class:`SimulationTimeout`, the same for every backend."""
    bits = [name for bit, name in enumerate(("busy", "done", "error")) if state.status >> bit & 1]
    if not state.request_valid:
        request = "nothing requested"
    elif state.request_ready:
        request = f"request at {state.request_address:#x} just accepted"
    else:
        request = (
            f"{state.request_beats} beats at {state.request_address:#x} wait for the memory's ready"
        )
    if not state.beats_owed:
        beat = "no beat owed"
    elif state.data_valid:
        beat = f"{state.beats_owed} beats owed, " + (
            "one just accepted" if state.data_ready else "the first waits for the engine's ready"
        )
    else:
        beat = f"{state.beats_owed} beats owed, the memory has not raised valid yet"
    if not state.write_valid:
        write = "nothing offered"
    elif state.write_ready:
        write = f"beat at {state.write_address:#x} just accepted"
    else:
        write = f"beat at {state.write_address:#x} waits for the memory's ready"
    return (
        f"The engine is still not finished after {max_cycles} cycles "
        f"(STATUS {' and '.join(bits) or 'idle'}): read_request: {request}; "
        f"read_data: {beat}; write: {write}; raise max_cycles if the work is that long"
    )
