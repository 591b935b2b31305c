"""What the compiled simulators share: netlist, harness, and the library's C interface."""

import ctypes
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from haloconv.rtl.convert import to_rtlil
from haloconv.sim.backends.build_cache import compiler, run_tool
from haloconv.sim.backends.job import (
    REGISTER_WORDS,
    RESET_CYCLES,
    Job,
    Outcome,
    PortState,
    SimulationTimeout,
    timeout_message,
)
from haloconv.sim.memory import (
    MemoryTraffic,
    ProtocolError,
    Violation,
    stall_thresholds,
    violation_message,
)

__all__ = ["HARNESS", "TOP", "compile_library", "harness_text", "netlist", "run_library"]

HARNESS = Path(__file__).parent.parent / "harness"
"""Folder of the C++ sources."""
TOP = "device"
"""Name of the top module in netlists."""
SLICE_CYCLES = 1 << 16
"""Cycles that the library runs before Python looks for Ctrl-C and reports progress; some 0.1 s."""

_netlists: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def netlist(dut: Any) -> str:
    """Return a device as RTLIL without source paths; kept, as elaborating takes a while."""
    text = _netlists.get(dut)
    if text is None:
        text = to_rtlil(dut, name=TOP)
        _netlists[dut] = text
    return text


@cache
def harness_text() -> str:
    """Return all C++ sources, for the cache key."""
    return "".join(path.read_text(encoding="utf-8") for path in sorted(HARNESS.iterdir()))


def compile_library(
    job: Job, sources: list[str], options: list[str], folder: Path, *, what: str
) -> Path:
    """Compile sources in a folder into a shared library.

    Raises
    ------
    BuildError
        If the compiler fails.
    """
    cxx = compiler()
    assert cxx is not None  # `unavailable` was asked before
    library = folder / "simulator.so"
    command = [cxx, "-shared", "-fPIC", "-DNDEBUG", *options, *definitions(job)]
    command += [f"-I{folder}", f"-I{HARNESS}", "-o", str(library), *sources]
    run_tool(f"The C++ compiler ({what})", command, folder)
    return library


def definitions(job: Job) -> list[str]:
    """Return the macros that size the harness."""
    values: Mapping[str, int] = {
        "ADDRESS_BITS": job.address_bits,
        "BUS_BYTES": job.bus_bytes,
        "RESET_CYCLES": RESET_CYCLES,
        "REGISTER_WORDS": REGISTER_WORDS,
    }
    return [f"-DHALOCONV_{name}={value}" for name, value in values.items()]


class _Fault(ctypes.Structure):
    _fields_ = [("start", ctypes.c_uint64), ("end", ctypes.c_uint64)]


class _Config(ctypes.Structure):
    _fields_ = [
        ("image", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("base", ctypes.c_uint64),
        ("program_address", ctypes.c_uint64),
        ("latency", ctypes.c_uint64),
        ("thresholds", ctypes.c_uint64 * 3),
        ("seed", ctypes.c_uint64),
        ("outstanding", ctypes.c_uint64),
        ("faults", ctypes.POINTER(_Fault)),
        ("fault_count", ctypes.c_uint64),
        ("max_cycles", ctypes.c_uint64),
        ("abort_at", ctypes.c_uint64),
    ]


_PORT_FIELDS = (
    "status",
    "request_valid",
    "request_ready",
    "request_address",
    "request_beats",
    "data_valid",
    "data_ready",
    "beats_owed",
    "write_valid",
    "write_ready",
    "write_address",
)


class _Result(ctypes.Structure):
    _fields_ = [
        ("cycle", ctypes.c_uint64),
        ("cycles", ctypes.c_uint64),
        ("words", ctypes.c_uint64 * REGISTER_WORDS),
        ("requests", ctypes.c_uint64),
        ("read_beats", ctypes.c_uint64),
        ("write_beats", ctypes.c_uint64),
        ("written_bytes", ctypes.c_uint64),
        ("violation", ctypes.c_uint64),
        ("bad_address", ctypes.c_uint64),
        ("bad_beats", ctypes.c_uint64),
        *((name, ctypes.c_uint64) for name in _PORT_FIELDS),
        ("finished_at", ctypes.POINTER(ctypes.c_uint64)),
        ("finished_count", ctypes.c_uint64),
    ]


_RUNNING, _FINISHED, _VIOLATION, _TIMEOUT = range(4)


@cache
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.haloconv_create.argtypes = [ctypes.POINTER(_Config)]
    library.haloconv_create.restype = ctypes.c_void_p
    library.haloconv_run.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.haloconv_run.restype = ctypes.c_int
    library.haloconv_result.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Result)]
    library.haloconv_result.restype = None
    library.haloconv_destroy.argtypes = [ctypes.c_void_p]
    library.haloconv_destroy.restype = None
    return library


def run_library(path: Path, job: Job) -> Outcome:
    """Run a job in a compiled simulator.

    Raises
    ------
    ProtocolError
        If the device breaks the rules of a memory port.
    SimulationTimeout
        If it is not finished after ``job.max_cycles``.
    """
    library = _load(path)
    memory = np.frombuffer(job.image, dtype=np.uint8).copy()
    faults = (_Fault * len(job.faults))(*job.faults)
    config = _Config(
        image=memory.ctypes.data,
        size=len(memory),
        base=job.base,
        program_address=job.program_address,
        latency=job.latency,
        thresholds=(ctypes.c_uint64 * 3)(*stall_thresholds(job.stalls)),
        seed=job.seed,
        outstanding=job.outstanding or 0,
        faults=ctypes.cast(faults, ctypes.POINTER(_Fault)),
        fault_count=len(job.faults),
        max_cycles=job.max_cycles,
        abort_at=job.abort_at or 0,
    )
    result = _Result()
    handle = library.haloconv_create(ctypes.byref(config))
    try:
        state = _RUNNING
        while state == _RUNNING:
            # ctypes lets go of the interpreter lock, and a signal is served between slices.
            state = library.haloconv_run(handle, SLICE_CYCLES)
            if job.progress is not None:
                library.haloconv_result(handle, ctypes.byref(result))
                job.progress(result.cycle)
        library.haloconv_result(handle, ctypes.byref(result))
        finished_at = tuple(result.finished_at[: result.finished_count])
    finally:
        library.haloconv_destroy(handle)
    if state == _VIOLATION:
        raise ProtocolError(
            violation_message(
                Violation(result.violation),
                cycle=result.cycle,
                address=result.bad_address,
                beats=result.bad_beats,
                bus_bytes=job.bus_bytes,
            )
        )
    if state == _TIMEOUT:
        ports = PortState(**{name: getattr(result, name) for name in _PORT_FIELDS})
        raise SimulationTimeout(timeout_message(job.max_cycles, ports))
    traffic = MemoryTraffic(
        result.requests, result.read_beats, result.write_beats, result.written_bytes
    )
    return Outcome(memory, result.cycles, tuple(result.words), traffic, finished_at)
