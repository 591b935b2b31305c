r"""Marks in RTLIL that say which block a cell or signal comes from.

Names do not say it: flattening gives a net that crosses blocks several names and keeps any, and
gates are named after nets. Two attributes do. Yosys hands ``src`` on, through every pass and
technology map, to the flip-flops, carries, memories and multipliers that a cell becomes; here it
holds the block instead of a place in a source file. :data:`DRIVER` on a wire holds the block that
drives it; wires keep attributes as long as they are there.
"""

import re
from collections.abc import Iterator

__all__ = ["DRIVER", "SOURCE", "TOP_BLOCK", "block_name", "mark_blocks"]

TOP_BLOCK = "top"
"""Block of the design's own gates, outside all instances."""

SOURCE = "block:"
"""What the ``src`` of a cell begins with, before its block."""
DRIVER = "haloconv_driver"
"""Attribute of a wire that is driven in a block."""

_MODULE = re.compile(r"^module \\(\S+)$")
_CELL = re.compile(r"^  cell \\(\S+) ")
_PORT = re.compile(r"^    connect \\(\S+) (.*)$")
_WIRE = re.compile(r"^  wire (?:.* )?\\(\S+)$")
_DIRECTION = re.compile(r"^  wire .*\b(input|output) \d+ ")


def mark_blocks(text: str, top: str) -> str:
    """Return RTLIL of a hierarchy with the block of each cell, process, memory and signal.

    Parameters
    ----------
    text : str
        As Amaranth writes it: the module of an instance is called by its path from ``top`` on.
    top : str
        The top module.
    """
    lines = text.split("\n")
    outputs = {(module, name) for module, name, way in _ports(lines) if way == "output"}
    inputs = {(module, name) for module, name, way in _ports(lines) if way == "input"}
    modules = {line.split("\\", 1)[1] for line in lines if _MODULE.match(line)}
    passed = set(_connected(lines, modules, outputs))
    marked: list[str] = []
    module = block = ""
    for line in lines:
        if line.startswith("module "):
            module = line.split("\\", 1)[1]
            block = block_name(module.removeprefix(top).lstrip("."))
        elif wire := _WIRE.match(line):
            name = (module, wire[1])
            if name not in inputs and name not in passed:
                marked.append(f'  attribute \\{DRIVER} "{block}"')
        elif line.startswith(("  cell ", "  process ", "  memory ")):
            marked.append(f'  attribute \\src "{SOURCE}{block}"')
        marked.append(line)
    return "\n".join(marked)


def block_name(path: str) -> str:
    """Return the block of an instance path.

    Where a signal has the same name Amaranth adds ``$`` and a number to the instance's; the block
    is called without.
    """
    return re.sub(r"\$\d+", "", path) or TOP_BLOCK


def _ports(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (module, port, direction)."""
    module = ""
    for line in lines:
        if line.startswith("module "):
            module = line.split("\\", 1)[1]
        elif (wire := _WIRE.match(line)) and (way := _DIRECTION.match(line)):
            yield module, wire[1], way[1]


def _connected(
    lines: list[str], modules: set[str], outputs: set[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield (module, wire) for wires that an instance in the module drives."""
    module = instance = ""
    for line in lines:
        if line.startswith("module "):
            module = line.split("\\", 1)[1]
        elif cell := _CELL.match(line):
            instance = cell[1] if cell[1] in modules else ""
        elif line.startswith("  cell "):
            instance = ""
        elif instance and (port := _PORT.match(line)) and (instance, port[1]) in outputs:
            for name in re.findall(r"\\(\S+)", port[2]):
                yield module, name
