"""Whole boards compiled through CXXRTL, some thousand times faster than in Amaranth's simulator."""

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from haloconv.rtl.convert import to_rtlil
from haloconv.sim.backends import cxxrtl
from haloconv.sim.backends.build_cache import (
    cached_file,
    compiler,
    compiler_version,
    digest,
    run_tool,
)
from haloconv.sim.backends.job import BackendUnavailable
from haloconv.sim.board.serial_line import LineError
from haloconv.sim.board.simulated import QUIET_BYTES

__all__ = ["CompiledBoard", "compile_board"]

_DEVICE = Path(__file__).with_name("board_device.cc")
_OPTIONS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-DNDEBUG")
# As in backends/cxxrtl.py, which says why.
_YOSYS = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for command in sys.argv[1:]:
    libyosys.run_pass(command, design)
"""


def _runtime() -> Path:
    spec = find_spec("pyosys")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "share" / "include" / "backends" / "cxxrtl" / "runtime"


def compile_board(system: Any, *, platform: Any = None, cells: Sequence[str] = ()) -> Path:
    """Return the library of a system, from the cache where it is there.

    Parameters
    ----------
    system : BoardSystem
    platform : object or None
        That it is elaborated for.
    cells : sequence of str
        Verilog of the primitives that it then holds.

    Raises
    ------
    BackendUnavailable
        If pyosys or a C++ compiler is missing.
    BuildError
        If a tool fails.
    """
    missing = cxxrtl.unavailable()
    if missing is not None:
        raise BackendUnavailable(f"A board cannot be simulated here: {missing}")
    text = to_rtlil(system, name="device", platform=platform)
    commands = ["read_rtlil device.il"]
    commands += [f"read_verilog cells_{index}.v" for index in range(len(cells))]
    commands += ["hierarchy -top device", "proc"] if cells else []
    commands += ["write_cxxrtl -noflatten -O6 -g0 -header device.cc"]

    def build(folder: Path) -> Path:
        (folder / "device.il").write_text(text, encoding="utf-8")
        for index, verilog in enumerate(cells):
            (folder / f"cells_{index}.v").write_text(verilog, encoding="utf-8")
        run_tool("Yosys (write_cxxrtl)", [sys.executable, "-c", _YOSYS, *commands], folder)
        unit = '#include "device.cc"\n' + _DEVICE.read_text(encoding="utf-8")
        (folder / "unit.cc").write_text(unit, encoding="utf-8")
        cxx = compiler()
        assert cxx is not None  # `unavailable` was asked before
        command = [cxx, *_OPTIONS, f"-I{folder}", f"-I{_runtime()}", "-o", "board.so", "unit.cc"]
        run_tool("The C++ compiler (board)", command, folder)
        return folder / "board.so"

    key = digest(
        "board",
        text,
        *cells,
        _YOSYS,
        *commands,
        _DEVICE.read_text(encoding="utf-8"),
        version("pyosys"),
        compiler_version(),
        *_OPTIONS,
    )
    return cached_file(key, ".so", build)


@cache
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    count, handle = ctypes.c_uint64, ctypes.c_void_p
    for name, result, arguments in (
        ("create", handle, [count, count, count]),
        ("destroy", None, [handle]),
        ("send", None, [handle, ctypes.c_char_p, count]),
        ("read", count, [handle, ctypes.c_char_p, count, count]),
        ("cycle", count, [handle]),
        ("faults", count, [handle]),
    ):
        function = getattr(library, f"haloconv_board_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class CompiledBoard:
    """A compiled board, as a transport of the host program.

    Time passes only while bytes are waited for.

    Parameters
    ----------
    library : Path
        From :func:`compile_board`.
    bit_cycles : int
        Clock cycles of a bit.
    clock_hz : float
    gaps : int
        Most idle cycles between two bytes that are sent, drawn at random.
    seed : int
        Of the gaps.
    """

    def __init__(
        self,
        library: Path,
        *,
        bit_cycles: int,
        clock_hz: float = 1e6,
        gaps: int = 0,
        seed: int = 0,
    ) -> None:
        self._library = _load(library)
        self._clock_hz = clock_hz
        self._quiet = 10 * bit_cycles * QUIET_BYTES
        self._handle = self._library.haloconv_board_create(bit_cycles, gaps, seed)

    @property
    def cycle(self) -> int:
        """Clock cycles so far."""
        return int(self._library.haloconv_board_cycle(self._handle))

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._library.haloconv_board_send(self._handle, bytes(data), len(data))

    def read(self, count: int) -> bytes:
        """Return ``count`` bytes, or fewer once the line has been quiet for long.

        Raises
        ------
        LineError
            If the board sent something that is no byte.
        """
        buffer = ctypes.create_string_buffer(count)
        found = self._library.haloconv_board_read(self._handle, buffer, count, self._quiet)
        if self._library.haloconv_board_faults(self._handle):
            raise LineError(f"Before cycle {self.cycle} a start or stop bit was wrong")
        return buffer.raw[:found]

    def drain(self) -> None:
        """Throw away what comes in until the line is quiet."""
        while self.read(4096):
            pass

    def seconds(self) -> float:
        """Return the time that passed for the board."""
        return self.cycle / self._clock_hz

    def close(self) -> None:
        """Free the simulation."""
        if self._handle is not None:
            self._library.haloconv_board_destroy(self._handle)
            self._handle = None
