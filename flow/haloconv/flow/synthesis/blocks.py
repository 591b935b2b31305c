"""Which block each primitive of a flattened netlist belongs to."""

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Set
from typing import Any

from haloconv.flow.synthesis.marks import DRIVER, SOURCE, TOP_BLOCK, block_name

__all__ = ["BLOCK", "attribute_blocks", "block_cells", "top_module"]

BLOCK = "haloconv_block"
"""Attribute that names the block of a cell."""
_NO_HARDWARE = ("$scopeinfo",)
_MEMORY = re.compile(r"(.+)\.\d+\.\d+")
"""Name of a piece of a memory: path, word and bit."""


def top_module(netlist: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the top module of a netlist that ``write_json`` wrote.

    Raises
    ------
    ValueError
        If no module is marked as top.
    """
    for module in netlist["modules"].values():
        if int(module["attributes"].get("top", "0"), 2):
            return module
    raise ValueError("Netlist must have a module that is marked as top, and has none")


def attribute_blocks(module: Mapping[str, Any]) -> None:
    """Give each cell of a flattened module the attribute :data:`BLOCK`.

    Flip-flops, carries and multipliers carry a mark through synthesis, and memories keep their
    name. LUTs and the multiplexers between them come out of the technology mapper without, so
    theirs is told from the net that they drive: the block that drives the signal on it or, on
    nets between gates, the block of most neighbours: of what reads it, and of what the gate reads
    as far as that is no such gate itself.
    """
    cells = module["cells"]
    instances = {name for name, cell in cells.items() if cell["type"] == "$scopeinfo"}
    drivers = _drivers(module)
    readers: dict[int, list[str]] = {}
    for name, cell in cells.items():
        for bit in _inputs(cell):
            readers.setdefault(bit, []).append(name)

    known: dict[str, str] = {}
    for name, cell in cells.items():
        block = _marked(cell)
        if block is None and (memory := _MEMORY.fullmatch(name)):
            block = _instance(memory[1], instances)
        if block is None:
            block = _deepest(drivers[bit] for bit in _outputs(cell) if bit in drivers)
        if block is not None:
            known[name] = block

    makers = {bit: name for name, cell in cells.items() for bit in _outputs(cell)}
    sinks: dict[str, set[str]] = {}
    votes: dict[str, Counter[str]] = {}
    for name, cell in cells.items():
        if name not in known:
            sinks[name] = {reader for bit in _outputs(cell) for reader in readers.get(bit, ())}
            sources = {makers[bit] for bit in _inputs(cell) if bit in makers}
            votes[name] = Counter(known[source] for source in sources if source in known)
    _vote(sinks, votes, known)
    for name, cell in cells.items():
        cell["attributes"][BLOCK] = known[name]


def _vote(
    sinks: Mapping[str, Set[str]], votes: Mapping[str, Counter[str]], known: dict[str, str]
) -> None:
    """Add to ``known`` what is not there yet: the block of most votes, the first by name of equals.

    Each sink adds a vote to those given, from the known sinks backwards. Loops of gates do not
    occur in a synchronous design; if one does, it is opened at its first cell.
    """
    sources: dict[str, list[str]] = {}
    waits: dict[str, int] = {}
    for name, after in sinks.items():
        unknown = [sink for sink in after if sink in sinks]
        waits[name] = len(unknown)
        for sink in unknown:
            sources.setdefault(sink, []).append(name)
    rest = deque(sinks)
    ready = [name for name in sinks if not waits[name]]
    while rest:
        name = ready.pop() if ready else rest.popleft()
        if name in known:
            continue
        counts = votes[name] + Counter(known[sink] for sink in sinks[name] if sink in known)
        known[name] = min(counts, key=lambda block: (-counts[block], block), default=TOP_BLOCK)
        for source in sources.get(name, ()):
            waits[source] -= 1
            if not waits[source]:
                ready.append(source)


def block_cells(module: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """Return the cells of each block by type; together they are all cells of the module."""
    counts: dict[str, Counter[str]] = {}
    for cell in module["cells"].values():
        if cell["type"] not in _NO_HARDWARE:
            counts.setdefault(cell["attributes"][BLOCK], Counter())[cell["type"]] += 1
    return counts


def _instance(name: str, instances: Set[str]) -> str:
    """Return the block of the deepest instance whose path begins a name."""
    while "." in name:
        name = name.rpartition(".")[0]
        if name in instances:
            return block_name(name)
    return TOP_BLOCK


def _inputs(cell: Mapping[str, Any]) -> list[int]:
    return _bits(cell, "input")


def _outputs(cell: Mapping[str, Any]) -> list[int]:
    return _bits(cell, "output")


def _bits(cell: Mapping[str, Any], direction: str) -> list[int]:
    """Return the nets at a cell's ports of a direction, constants left out."""
    return [
        bit
        for port, bits in cell["connections"].items()
        if cell["port_directions"].get(port) == direction
        for bit in bits
        if isinstance(bit, int)
    ]


def _drivers(module: Mapping[str, Any]) -> dict[int, str]:
    """Return the block that drives each net, where a marked signal is on it."""
    found: dict[int, str] = {}
    for net in module["netnames"].values():
        block = net["attributes"].get(DRIVER)
        if block is not None:
            for bit in net["bits"]:
                if isinstance(bit, int):
                    found[bit] = max(block, found.get(bit, block), key=_depth)
    return found


def _marked(cell: Mapping[str, Any]) -> str | None:
    """Return the block in a cell's ``src``; shared cells have several."""
    return _deepest(
        part.removeprefix(SOURCE)
        for part in cell["attributes"].get("src", "").split("|")
        if part.startswith(SOURCE)
    )


def _deepest(blocks: Iterable[str]) -> str | None:
    """Return the innermost of some blocks, None where there are none."""
    return max(blocks, key=_depth, default=None)


def _depth(block: str) -> tuple[int, str]:
    return (-1 if block == TOP_BLOCK else block.count("."), block)
