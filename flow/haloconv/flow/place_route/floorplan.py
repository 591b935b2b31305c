"""Where multipliers and block RAM of an engine go on an ECP5.

These stand in rows of their own that run across the chip, four of either in a stripe nine columns
wide. nextpnr spreads them over those rows without regard to what they feed: half of all wire goes
to and from them then, some of it across half the chip. The engine's structure says better: a split
lane's multipliers, its weights and its copy of the halo buffer share a stripe, so each stripe adds
up its own products, and a requantiser stands at the end of each.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["FABRICS", "Fabric", "place_blocks"]


@dataclass(frozen=True)
class Fabric:
    """Rows of multipliers and block RAM of a die, in nextpnr's coordinates.

    Attributes
    ----------
    stripes : tuple of int
        First column of each stripe.
    multipliers, memories : tuple of int
        Rows of either.
    """

    stripes: tuple[int, ...]
    multipliers: tuple[int, ...]
    memories: tuple[int, ...]


FABRICS = {
    "45k": Fabric((4, 13, 22, 31, 42, 51, 60, 69, 78), (22, 46), (10, 34, 58)),
    "85k": Fabric(
        (4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114), (10, 34, 58), (22, 46, 70, 82)
    ),
}
"""By the size in nextpnr's option for a device; those with one row of multipliers are left out."""

_SITES = {
    "MULT18X18D": ((0, "MULT18_0"), (1, "MULT18_1"), (4, "MULT18_4"), (5, "MULT18_5")),
    "DP16KD": ((0, "EBR0"), (2, "EBR1"), (4, "EBR2"), (6, "EBR3")),
}
"""Sites of a stripe in a row: column within the stripe, name."""

_LANE = re.compile(r"lanes\.product_(\d+)_(\d+)_multiplier$")
_HALO = re.compile(r"halo\.bank_(\d+)_(\d+)\.(\d+)\.(\d+)$")
_WEIGHTS = re.compile(r"weights(?:\$\d+)?\.memory\.(\d+)\.(\d+)$")
_REQUANTIZER = re.compile(r"requantizer_(\d+)\.(\w+)_multiplier$")
_SUMS = re.compile(r"drain\.bank\.(\d+)\.(\d+)$")


class _Sites:
    """Free sites of a die."""

    def __init__(self, fabric: Fabric) -> None:
        rows = {"MULT18X18D": fabric.multipliers, "DP16KD": fabric.memories}
        self._stripes = fabric.stripes
        self._free = {
            kind: {
                (stripe, row, place)
                for stripe in range(len(fabric.stripes))
                for row in rows[kind]
                for place in range(len(sites))
            }
            for kind, sites in _SITES.items()
        }

    def take(self, kind: str, stripe: int, row: int) -> str | None:
        """Take the site nearest to a stripe and row; return its name, None if all are taken."""

        def distance(site: tuple[int, int, int]) -> tuple[int, int, tuple[int, int, int]]:
            across = abs(self._stripes[site[0]] - self._stripes[stripe])
            return across + abs(site[1] - row), across, site

        if not self._free[kind]:
            return None
        found = min(self._free[kind], key=distance)
        self._free[kind].remove(found)
        column, name = _SITES[kind][found[2]]
        return f"X{self._stripes[found[0]] + column}/Y{found[1]}/{name}"


def place_blocks(module: Mapping[str, Any], fabric: Fabric) -> int:
    """Give the multipliers and memories of an engine's datapath places, in the netlist.

    Parameters
    ----------
    module : dict
        Top module of a flat netlist in primitives of the ECP5; it gets attributes ``BEL``. A
        netlist without lanes, or with more than the die has stripes for, is left as it is.
    fabric : Fabric

    Returns
    -------
    int
        Cells that have a place.
    """
    cells = module["cells"]
    lanes = {(int(at[2]), int(at[1])): name for name, at in _found(cells, _LANE)}
    columns = -(-len(lanes) // 8)
    if not lanes or columns > len(fabric.stripes):
        return 0
    sites = _Sites(fabric)
    first = (len(fabric.stripes) - columns + 1) // 2
    near, far = fabric.multipliers[0], fabric.multipliers[1]
    between = min(fabric.memories, key=lambda row: abs(2 * row - near - far))
    behind = fabric.memories[min(fabric.memories.index(between) + 1, len(fabric.memories) - 1)]
    places: dict[str, str | None] = {}

    # Lanes in the order of their split lanes, eight to a stripe: above and below their memories.
    order = sorted(lanes)
    stripe_of: dict[int, int] = {}
    for number, lane in enumerate(order):
        stripe = first + number // 8
        stripe_of.setdefault(lane[0], stripe)
        places[lanes[lane]] = sites.take("MULT18X18D", stripe, far if number % 8 >= 4 else near)
    halo = [(int(at[1]), int(at[2]), name) for name, at in _found(cells, _HALO)]
    memories = 1 + max((index for _, index, _ in halo), default=0)
    weights = [(int(at[2]), name) for name, at in _found(cells, _WEIGHTS)]
    pieces = 1 + max((piece for piece, _ in weights), default=0)
    wanted = [(stripe_of.get(copy * memories + index, first), name) for copy, index, name in halo]
    wanted += [(first + piece * columns // pieces, name) for piece, name in weights]
    for stripe, name in sorted(wanted):
        places[name] = sites.take("DP16KD", stripe, between)

    # What comes behind them, spread over the same stripes. The queue of results is not: all of it
    # waits for the writer.
    requantizers = [(int(at[1]), name) for name, at in _found(cells, _REQUANTIZER)]
    units = 1 + max((unit for unit, _ in requantizers), default=0)
    for unit, name in sorted(requantizers):
        places[name] = sites.take(
            "MULT18X18D", first + unit * columns // units, fabric.multipliers[-1]
        )
    sums = [(int(at[2]), name) for name, at in _found(cells, _SUMS)]
    pieces = 1 + max((piece for piece, _ in sums), default=0)
    for piece, name in sorted(sums):
        places[name] = sites.take("DP16KD", first + piece * columns // pieces, behind)

    placed = {name: place for name, place in places.items() if place is not None}
    for name, place in placed.items():
        cells[name]["attributes"]["BEL"] = place
    return len(placed)


def _found(
    cells: Mapping[str, Any], pattern: re.Pattern[str]
) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield multipliers and memories whose name ends as the pattern says."""
    for name, cell in cells.items():
        if cell["type"] in _SITES and (match := pattern.search(name)):
            yield name, match
