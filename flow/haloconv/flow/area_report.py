"""Tables of what an engine costs on an FPGA, and of the clock that it reaches there."""

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from haloconv.flow.report import count, new_table, percent
from haloconv.flow.synthesis.area import Area

if TYPE_CHECKING:
    from haloconv.flow.place_route import PlacementResult
    from haloconv.flow.synthesis import MappedDesign

__all__ = ["area_sheet", "placement_sheet"]

_COLUMNS = {
    "luts": "LUTs",
    "carries": "carries",
    "ffs": "FFs",
    "lut_rams": "LUT RAMs",
    "dsps": "DSPs",
    "block_rams": "block RAMs",
    "large_rams": "large RAMs",
}
_LUT4_FAMILIES = ("ecp5", "nexus")
"""Families where a carry primitive takes the place of two LUT4s."""


def area_sheet(result: "MappedDesign") -> RenderableType:
    """Return the primitives of a design, block by block and in all, and how they were counted."""
    lut4 = result.family in _LUT4_FAMILIES
    table = new_table("block", *_COLUMNS.values(), *(["LUT4 + 2 carries"] if lut4 else []))
    blocks = sorted(result.blocks.items(), key=lambda item: (-item[1].lut4, item[0]))
    for block, area in blocks:
        _add_row(table, block, area, lut4)
    table.add_section()
    _add_row(table, "total", result.area, lut4)
    return Group(table, Text(f"{result.family}, {result.tool}, {result.seconds:.1f} s"))


def _add_row(table: Table, name: str, area: Area, lut4: bool) -> None:
    counts = area.to_dict()
    cells = [count(counts[column]) for column in _COLUMNS]
    table.add_row(name, *cells, *([count(area.lut4)] if lut4 else []))


def placement_sheet(result: "PlacementResult") -> RenderableType:
    """Return clock, seeds, critical path of the median run, and utilisation."""
    median = result.median_run
    speed = f" speed {result.speed}" if result.speed else ""
    head = (
        f"{result.device} {result.package}{speed}: {result.fmax_mhz:.1f} MHz, "
        f"median of {len(result.runs)} "
        f"{'seeds' if len(result.runs) > 1 else 'seed'}, target {result.frequency:g} MHz"
    )
    seeds = new_table("seed", "MHz", "critical path ns", "through", left=1)
    seeds.columns[3].justify = "left"
    seeds.columns[3].no_wrap = False
    for run in result.runs:
        path = run.critical_path
        through = "" if path is None else " > ".join(stage.block for stage in path.stages)
        delay = "-" if path is None else f"{path.delay_ns:.2f}"
        seeds.add_row(str(run.seed), f"{run.fmax_mhz:.1f}", delay, through)
    parts: list[RenderableType] = [Text(head), seeds]
    if median.critical_path is not None:
        path = median.critical_path
        table = new_table(
            "block", "cells", "logic ns", "routing ns", "ns",
            title=f"critical path of seed {median.seed}: {path.start} to {path.end}",
        )  # fmt: skip
        for stage in path.stages:
            table.add_row(
                stage.block,
                str(stage.cells),
                f"{stage.logic_ns:.2f}",
                f"{stage.routing_ns:.2f}",
                f"{stage.delay_ns:.2f}",
            )
        parts.append(table)
    used = new_table("resource", "used", "available", "share")
    for name, (taken, available) in median.utilisation.items():
        used.add_row(name, count(taken), count(available), percent(taken / available))
    parts.append(used)
    if result.bitstream is not None:
        parts.append(Text(f"wrote {result.bitstream}"))
    parts.append(Text(f"{result.tool}, {result.seconds:.1f} s"))
    return Group(*parts)
