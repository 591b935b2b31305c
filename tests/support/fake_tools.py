"""Stands for synthesis and place and route in sweeps: quick, counted, and failing as it is told.

Tests import it by its own name with this folder on the path, so that worker processes find it too.
What it does is told by the environment, which they inherit. Run as a program it sweeps:
``python fake_tools.py SPACE.toml DIR JOBS``.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from haloconv.flow.sweep.jobs import Tools
from haloconv.flow.sweep.space import FmaxSettings
from haloconv.flow.synthesis import Area, SynthesisError, SynthesisResult
from haloconv.planner.config import EngineConfig

REFUSED, DEADLY = 17, 18
"""Address bits of an engine that synthesis refuses, and of one that kills its worker."""


def note(text: str) -> None:
    """Add a line to the file that the environment names; one write, so lines stay whole."""
    handle = os.open(os.environ["FAKE_CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


def area_of(config: EngineConfig) -> Area:
    """Return what the pretended synthesis gives."""
    lanes = config.lanes
    return Area(luts=1000 + 100 * lanes, ffs=900 + 80 * lanes, carries=200 + 8 * lanes, dsps=lanes)


def synthesize(config: EngineConfig, family: str, *, netlist: Path | None = None) -> Any:
    """Pretend to synthesise."""
    note(f"synthesize {config.out_lanes}x{config.split_lanes} {config.bus_bytes} {os.getpid()}")
    time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
    if config.address_bits == REFUSED:
        raise SynthesisError("Synthesis ended\n with signal 6")
    if config.address_bits == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    area = area_of(config)
    if netlist is not None:
        netlist.write_text(str(config.lanes))
    return SynthesisResult(
        config=config, family=family, area=area, cells={"LUT4": area.luts},
        blocks={"top": Area(), "datapath": area}, tool=tool(family), seconds=1.5, netlist=netlist,
    )  # fmt: skip


def place(netlist: Path, settings: FmaxSettings, seed: int) -> Mapping[str, Any]:
    """Pretend to place and route: slower with lanes, 1 MHz from seed to seed."""
    note(f"place {seed}")
    if seed == 13:
        raise SynthesisError("no place found")
    return {"fmax_mhz": settings.frequency_mhz + seed - int(netlist.read_text()) / 8}


def tool(family: str) -> str:
    """Return the pretended tool."""
    return os.environ.get("FAKE_TOOL", "fake 1")


def placer(family: str) -> str:
    """Return the pretended placer."""
    return "fake placer 1"


TOOLS = Tools(synthesize, place, tool, placer)


def main() -> None:
    """Sweep in this process, to be killed."""
    # Workers must find the tools under the name that tests import them by, not as this program.
    import fake_tools  # pyright: ignore[reportMissingImports]

    from haloconv.flow.sweep.results import results_record, write_results
    from haloconv.flow.sweep.runner import Sweep
    from haloconv.flow.sweep.space import read_space
    from haloconv.flow.sweep.store import Store
    from haloconv.flow.sweep.workers import LocalWorkers

    folder, jobs = Path(sys.argv[2]), int(sys.argv[3])
    with Store(folder) as store:
        space = read_space(Path(sys.argv[1]))
        sweep = Sweep(space, store, lambda: LocalWorkers(jobs), tools=fake_tools.TOOLS)
        sweep.run()
        write_results(folder, results_record(sweep))


if __name__ == "__main__":
    main()
