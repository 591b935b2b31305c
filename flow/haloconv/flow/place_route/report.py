"""What nextpnr's report says: clock, critical path by block, utilisation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from haloconv.flow.synthesis.blocks import BLOCK
from haloconv.flow.synthesis.marks import TOP_BLOCK

__all__ = ["CriticalPath", "PathStage", "cell_blocks", "critical_path", "slowest_clock"]


@dataclass(frozen=True)
class PathStage:
    """A stretch of a path inside one block.

    Attributes
    ----------
    block : str
        As :func:`~haloconv.flow.synthesis.synthesize` names it.
    logic_ns, routing_ns : float
        Delay in cells (clock to output and setup included), and on the nets that they drive.
    cells : int
        Cells passed, those of carry chains included.
    """

    block: str
    logic_ns: float
    routing_ns: float
    cells: int

    @property
    def delay_ns(self) -> float:
        """Delay in nanoseconds."""
        return self.logic_ns + self.routing_ns


@dataclass(frozen=True)
class CriticalPath:
    """The slowest path of a clock.

    Attributes
    ----------
    start, end : str
        Cells that it runs between.
    stages : tuple of PathStage
        Its blocks from start to end.
    """

    start: str
    end: str
    stages: tuple[PathStage, ...]

    @property
    def delay_ns(self) -> float:
        """Delay in nanoseconds."""
        return sum(stage.delay_ns for stage in self.stages)


def slowest_clock(report: Mapping[str, Any]) -> tuple[str, float]:
    """Return the clock that misses its target most, and the frequency in MHz that it reaches.

    Raises
    ------
    ValueError
        If no register is clocked.
    """
    clocks = report["fmax"]
    if not clocks:
        raise ValueError("Design must have a clocked register to have a clock frequency")
    name = min(clocks, key=lambda clock: clocks[clock]["achieved"] / clocks[clock]["constraint"])
    return name, float(clocks[name]["achieved"])


def cell_blocks(module: Mapping[str, Any]) -> dict[str, str]:
    """Return the block of each cell of a netlist that went through synthesis here."""
    return {
        name: cell["attributes"].get(BLOCK, TOP_BLOCK) for name, cell in module["cells"].items()
    }


def critical_path(
    report: Mapping[str, Any], clock: str, blocks: Mapping[str, str]
) -> CriticalPath | None:
    """Return the slowest path from and to a clock, None where it has none."""
    for path in report["critical_paths"]:
        if path["from"] == path["to"] == f"posedge {clock}":
            return _path(path["path"], blocks)
    return None


def _path(steps: list[Mapping[str, Any]], blocks: Mapping[str, str]) -> CriticalPath:
    stages: list[PathStage] = []
    previous = ""
    for step in steps:
        # A net belongs to the block that drives it.
        cell = step["from"]["cell"]
        block = block_of_cell(cell, blocks)
        delay = float(step["delay"])
        routing = step["type"] == "routing"
        logic_ns, routing_ns = (0.0, delay) if routing else (delay, 0.0)
        new = int(cell != previous)
        previous = cell
        if stages and stages[-1].block == block:
            last = stages.pop()
            stages.append(
                PathStage(
                    block, last.logic_ns + logic_ns, last.routing_ns + routing_ns, last.cells + new
                )
            )
        else:
            stages.append(PathStage(block, logic_ns, routing_ns, new))
    return CriticalPath(steps[0]["from"]["cell"], steps[-1]["to"]["cell"], tuple(stages))


def block_of_cell(name: str, blocks: Mapping[str, str]) -> str:
    """Return the block of a cell after packing, which adds to the names of what it splits."""
    while name:
        if name in blocks:
            return blocks[name]
        name = re.sub(r"(^|[_$])[^_$]*$", "", name)
    return TOP_BLOCK
