"""Which block each primitive of a flattened netlist belongs to."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["TOP_BLOCK", "block_cells", "block_names", "block_of", "top_module"]

TOP_BLOCK = "top"
"""Block of what belongs to no instance: the design's own gates."""


def top_module(netlist: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the top module of a netlist that ``write_json`` wrote."""
    for module in netlist["modules"].values():
        if int(module["attributes"].get("top", "0"), 2):
            return module
    raise ValueError("Netlist must have a module marked as top, and has none")


def block_names(cells: Mapping[str, Any]) -> dict[str, str]:
    """Return the instances of a flattened module: the prefix of their names, and the block.

    ``flatten`` leaves a ``$scopeinfo`` cell for each. Where a signal has the same name Amaranth
    adds ``$`` and a number to the instance's; the block is called without.
    """
    return {
        name: re.sub(r"\$\d+", "", name)
        for name, cell in cells.items()
        if cell["type"] == "$scopeinfo"
    }


def block_of(name: str, instances: Mapping[str, str]) -> str:
    """Return the block of a cell or net: the deepest instance whose path begins its name."""
    end = len(name)
    while (end := name.rfind(".", 0, end)) > 0:
        block = instances.get(name[:end])
        if block is not None:
            return block
    return TOP_BLOCK


def block_cells(cells: Mapping[str, Any], ignored: Iterable[str] = ()) -> dict[str, Counter[str]]:
    """Return the cells of each block by type; together they are all cells of the module.

    Flip-flops, memories and multipliers keep their names through synthesis. LUTs come out of the
    technology mapper without one; ``autoname`` has named them after the nets they drive or, failing
    that, read, so a LUT between two blocks counts to either.
    """
    instances = block_names(cells)
    counts: dict[str, Counter[str]] = {TOP_BLOCK: Counter()}
    for block in instances.values():
        counts[block] = Counter()
    skipped = {"$scopeinfo", *ignored}
    for name, cell in cells.items():
        if cell["type"] not in skipped:
            counts[block_of(name, instances)][cell["type"]] += 1
    return counts
