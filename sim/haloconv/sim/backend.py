"""Run an engine on a memory image, in any of the simulators, behind one call."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, SupportsIndex

import numpy as np

from haloconv.planner.registers import COUNTERS, Register, built_counters
from haloconv.planner.validate import check_int
from haloconv.sim.backends.job import (
    BackendUnavailable,
    BuildError,
    Job,
    Outcome,
    SimulationTimeout,
)
from haloconv.sim.memory import (
    MemoryTraffic,
    ProtocolError,
    Stalls,
    check_base,
    check_faults,
    check_outstanding,
    image_bytes,
    stall_thresholds,
)

__all__ = [
    "BACKENDS",
    "BackendChoice",
    "BackendUnavailable",
    "BuildError",
    "ProtocolError",
    "RunResult",
    "SimulationTimeout",
    "choose_backend",
    "run",
]

_MODULES = {
    "amaranth": "haloconv.sim.backends.amaranth_backend",
    "cxxrtl": "haloconv.sim.backends.cxxrtl",
    "verilator": "haloconv.sim.backends.verilator",
}
BACKENDS = (*_MODULES, "auto")
"""Names that ``backend=`` takes."""


@dataclass(frozen=True)
class BackendChoice:
    """A simulator and why it was taken."""

    name: str
    reason: str


def _module(name: str) -> ModuleType:
    return import_module(_MODULES[name])


def choose_backend(backend: str = "auto", *, vcd: bool = False) -> BackendChoice:
    """Decide which simulator runs.

    Parameters
    ----------
    backend : {"amaranth", "cxxrtl", "verilator", "auto"}
        ``auto`` takes CXXRTL when this machine can build it, else Amaranth's simulator.
    vcd : bool
        A waveform is wanted, which only Amaranth's simulator writes.

    Raises
    ------
    ValueError
        For an unknown name, or a waveform from a compiled simulator.
    BackendUnavailable
        If this machine cannot run the simulator that was asked for; says what to install.
    """
    if not isinstance(backend, str):
        raise TypeError(f"Backend must be a name, not {backend!r}")
    if backend not in BACKENDS:
        raise ValueError(f"Backend must be one of {', '.join(BACKENDS)}, not {backend!r}")
    if backend == "auto":
        if vcd:
            return BackendChoice("amaranth", "amaranth: the one simulator that writes VCD")
        missing = _module("cxxrtl").unavailable()
        if missing is None:
            return BackendChoice("cxxrtl", "cxxrtl: a C++ compiler and pyosys are here")
        return BackendChoice("amaranth", f"amaranth: {missing}")
    if vcd and backend != "amaranth":
        raise ValueError(f"VCD must be written with the amaranth backend, not {backend!r}")
    missing = _module(backend).unavailable()
    if missing is not None:
        raise BackendUnavailable(f"The {backend} backend cannot run here: {missing}")
    return BackendChoice(backend, f"{backend}: asked for")


@dataclass(frozen=True)
class RunResult:
    """Memory, registers and counters after the engine stopped.

    Attributes
    ----------
    memory : numpy.ndarray of uint8
        The image after the run, same length.
    cycles_simulated : int
        Clock cycles from the end of the reset until the host saw that the engine had stopped.
        The engine's own count, from its start on, is ``counters["cycles"]``.
    status, error_code, error_detail : int
        The registers of these names.
    counters : dict of str to int
        By the names of :data:`haloconv.planner.registers.COUNTERS`; those that are built.
    registers : dict of str to int
        The other registers by lower-case name.
    traffic : MemoryTraffic
        Requests, beats and bytes as the memory model counted them.
    backend : BackendChoice
        What ran, and why.
    seconds : float
        Wall time, a build included.
    descriptor_cycles : tuple of int
        Engine cycles of each descriptor that finished; they add up to ``counters["cycles"]``.
    """

    memory: np.ndarray = field(repr=False)
    cycles_simulated: int
    status: int
    error_code: int
    error_detail: int
    counters: dict[str, int]
    registers: dict[str, int] = field(repr=False)
    traffic: MemoryTraffic
    backend: BackendChoice
    seconds: float = field(compare=False)
    descriptor_cycles: tuple[int, ...] = ()

    @property
    def done(self) -> bool:
        """Whether the engine finished without error."""
        return self.status & 0b110 == 0b010


def run(
    dut: Any,
    image: bytes | bytearray | np.ndarray,
    *,
    program_address: SupportsIndex,
    latency: SupportsIndex = 16,
    stalls: Stalls = 0.0,
    seed: SupportsIndex = 0,
    max_cycles: SupportsIndex = 1_000_000,
    backend: str = "amaranth",
    outstanding: SupportsIndex | None = None,
    faults: Iterable[Sequence[SupportsIndex]] = (),
    base: SupportsIndex = 0,
    abort_at: SupportsIndex | None = None,
    optimize: SupportsIndex | None = None,
    vcd: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> RunResult:
    """Reset an engine, start its program and run it until it stops.

    The host writes the program address in cycles 0 and 1 and the start bit in cycle 2, then reads
    STATUS every cycle until the engine is no longer busy, then reads every register. The same
    arguments give the same cycles, counters and memory on every backend.

    Parameters
    ----------
    dut : wiring.Component
        With the ports ``memory: Out(MemorySignature(...))`` and ``registers:
        In(RegisterSignature())`` in the clock domain ``sync``. It is elaborated anew in each call.
    image : bytes or numpy.ndarray of uint8
        Memory content before the run; it is not changed.
    program_address : int
        Byte address of the program.
    latency, stalls, seed, outstanding, faults, base
        See :class:`haloconv.sim.memory.MemoryModel`.
    max_cycles : int
        Cycles after which a run that has not finished is given up.
    backend : {"amaranth", "cxxrtl", "verilator", "auto"}
        See :func:`choose_backend`.
    abort_at : int or None
        Cycle (at least 3) in which the host writes the abort bit.
    optimize : int or None
        Level of the C++ compiler, 0 to 3, for the compiled backends; None takes what builds and
        runs best for the backend.
    vcd : path or None
        Write a waveform there (amaranth backend only).
    progress : callable or None
        Called now and then with the number of cycles so far.

    Returns
    -------
    RunResult

    Raises
    ------
    TypeError, ValueError
        For arguments out of bounds.
    BackendUnavailable
        If the backend cannot run on this machine.
    BuildError
        If a tool fails while the simulator is built.
    ProtocolError
        If the engine breaks the rules of a memory port.
    SimulationTimeout
        If the engine has not stopped after ``max_cycles``.
    OSError
        If ``vcd`` cannot be written.
    """
    started = time.perf_counter()
    choice = choose_backend(backend, vcd=vcd is not None)
    try:
        payload = dut.memory.write.payload
        address_bits, bus_bytes = len(payload.address), len(payload.strobe)
        _ = dut.registers.read_data
    except AttributeError as error:
        raise TypeError(
            f"Device under test must have the ports `memory` and `registers`, not {dut!r}"
        ) from error
    job = Job(
        image=image_bytes(image),
        address_bits=address_bits,
        bus_bytes=bus_bytes,
        base=check_base(base, bus_bytes),
        program_address=check_int("Program address", program_address, 0, 2**64 - 1),
        latency=check_int("Latency", latency, 1, 2**31 - 1),
        stalls=_shares(stalls),
        seed=check_int("Seed", seed, 0, 2**32 - 1),
        outstanding=check_outstanding(outstanding),
        faults=check_faults(faults),
        max_cycles=check_int("Maximum cycles", max_cycles, 1, 2**62),
        abort_at=None if abort_at is None else check_int("Abort cycle", abort_at, 3),
        optimize=None if optimize is None else check_int("Optimization level", optimize, 0, 3),
        vcd=None if vcd is None else Path(vcd),
        progress=progress,
    )
    outcome: Outcome = _module(choice.name).simulate(dut, job)
    return _result(outcome, choice, time.perf_counter() - started)


def _shares(stalls: Stalls) -> tuple[float, float, float]:
    stall_thresholds(stalls)  # checks type and range
    shares = tuple(stalls) if isinstance(stalls, Iterable) else (stalls,) * 3
    request, data, write = (float(share) for share in shares)
    return request, data, write


def _result(outcome: Outcome, choice: BackendChoice, seconds: float) -> RunResult:
    words = outcome.words
    counters = {
        name: words[register] | words[register + 1] << 32
        for name, register in built_counters(words[Register.OPTIONS]).items()
    }
    registers = {
        register.name.lower(): words[register]
        for register in Register
        if register not in COUNTERS.values()
    }
    return RunResult(
        memory=outcome.memory,
        cycles_simulated=outcome.cycles,
        status=words[Register.STATUS],
        error_code=words[Register.ERROR_CODE],
        error_detail=words[Register.ERROR_DETAIL],
        counters=counters,
        registers=registers,
        traffic=outcome.traffic,
        backend=choice,
        seconds=seconds,
        descriptor_cycles=_descriptor_cycles(outcome.finished_at, counters["cycles"]),
    )


def _descriptor_cycles(finished_at: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Tell the cycles of the descriptors apart; the last ends with the program."""
    if not finished_at:
        return ()
    first = total - (finished_at[-1] - finished_at[0])
    return (first, *(later - before for before, later in pairwise(finished_at)))
