"""Places of multipliers and block RAM: each its own, and neighbours of what they work with."""

import re
from collections import Counter
from typing import Any

import pytest

from haloconv.flow.place_route.floorplan import FABRICS, place_blocks

SITE = re.compile(r"X(\d+)/Y(\d+)/(MULT18_[0145]|EBR[0-3])")


def engine(lanes: int, splits: int, *, shares: int = 1, units: int = 1, prefix: str = "datapath."):
    """Cells of an engine of ``lanes`` x ``splits``, beside a multiplier and a LUT of others."""
    names = {f"lanes.product_{m}_{r}_multiplier" for m in range(lanes) for r in range(splits)}
    for unit in range(units):
        parts = ("low_low", "low_high", "high_low", "high_high")
        names |= {f"drain.requantizer_{unit}.{part}_multiplier" for part in parts}
    memories = {
        f"halo.bank_{copy}_{index}.0.{half}"
        for copy in range(shares)
        for index in range(splits // shares)
        for half in range(2)
    }
    memories |= {f"weights$12.memory.0.{piece}" for piece in range(-(-lanes * splits // 4))}
    memories |= {f"drain.bank.0.{unit}" for unit in range(units)}
    cells: dict[str, Any] = {
        prefix + name: {"type": kind, "attributes": {}}
        for kind, group in (("MULT18X18D", names), ("DP16KD", memories))
        for name in group
    }
    cells["other"] = {"type": "MULT18X18D", "attributes": {}}
    cells["datapath.lanes.product_0_0_multiplier_LUT4_A"] = {"type": "LUT4", "attributes": {}}
    return {"cells": cells}


def sites(module) -> dict[str, tuple[int, int, str]]:
    found = {}
    for name, cell in module["cells"].items():
        if place := cell["attributes"].get("BEL"):
            match = SITE.fullmatch(place)
            assert match is not None, place
            assert match[3].startswith("MULT") == (cell["type"] == "MULT18X18D")
            found[name] = int(match[1]), int(match[2]), match[3]
    return found


def stripe(column: int, fabric) -> int:
    return max(index for index, first in enumerate(fabric.stripes) if first <= column)


@pytest.mark.parametrize(("die", "multipliers", "memories"), [
    ("45k", 72, 108), ("85k", 156, 208),
])  # fmt: skip
def test_a_die_has_as_many_as_its_data_sheet_says(die, multipliers, memories):
    fabric = FABRICS[die]
    assert 4 * len(fabric.stripes) * len(fabric.multipliers) == multipliers
    assert 4 * len(fabric.stripes) * len(fabric.memories) == memories


@pytest.mark.parametrize("prefix", ["datapath.", "system.engine.datapath."])
@pytest.mark.parametrize(
    ("lanes", "splits", "shares", "units"),
    [(8, 8, 4, 8), (4, 4, 2, 4), (3, 5, 1, 3), (2, 2, 2, 1), (16, 4, 2, 4)],
)
def test_every_block_has_a_site_of_its_own_on_its_rows(lanes, splits, shares, units, prefix):
    fabric = FABRICS["85k"]
    module = engine(lanes, splits, shares=shares, units=units, prefix=prefix)
    count = place_blocks(module, fabric)
    placed = sites(module)
    assert count == len(placed) == len(module["cells"]) - 2
    assert "other" not in placed
    assert max(Counter(placed.values()).values()) == 1
    for column, row, name in placed.values():
        assert row in (fabric.multipliers if name.startswith("MULT") else fabric.memories)
        assert column - fabric.stripes[stripe(column, fabric)] < 9


def test_a_split_lane_and_its_memories_share_a_stripe():
    fabric = FABRICS["85k"]
    module = engine(8, 8, shares=4, units=8)
    place_blocks(module, fabric)
    stripes: dict[int, set[int]] = {r: set() for r in range(8)}
    for name, (column, row, _) in sites(module).items():
        at = stripe(column, fabric)
        if match := re.search(r"product_(\d)_(\d)_", name):
            stripes[int(match[2])].add(at)
            assert row == (10 if int(match[1]) < 4 else 34)
        elif match := re.search(r"bank_(\d)_(\d)\.", name):
            stripes[2 * int(match[1]) + int(match[2])].add(at)
            assert row == 22
        elif match := re.search(r"weights.*\.(\d+)$", name):
            stripes[int(match[1]) // 2].add(at)
            assert row == 22
        elif match := re.search(r"requantizer_(\d)", name):
            stripes[int(match[1])].add(at)
            assert row == 58
    # In the middle of the thirteen stripes, side by side.
    assert [stripes[r] for r in range(8)] == [{r + 3} for r in range(8)]


@pytest.mark.parametrize(
    "module",
    [
        engine(16, 16),  # more multipliers than two rows have
        {"cells": {"other": {"type": "MULT18X18D", "attributes": {}}}},
    ],
)
def test_what_does_not_fit_the_plan_is_left_to_the_placer(module):
    assert place_blocks(module, FABRICS["85k"]) == 0
    assert not sites(module)


def test_what_finds_no_site_is_left_to_the_placer():
    # 26 x 4 lanes take two rows of multipliers, and their requantisers more than the third has.
    module = engine(26, 4, units=14)
    count = place_blocks(module, FABRICS["85k"])
    placed = sites(module)
    assert count == len(placed)
    multipliers = [name for name in module["cells"] if name.endswith("multiplier")]
    assert len([name for name in multipliers if name in placed]) == 156 < len(multipliers)
