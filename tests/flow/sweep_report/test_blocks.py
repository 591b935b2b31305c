"""Blocks form a tree whose sums are the point's area."""

from dataclasses import replace

from haloconv.flow.sweep_report.blocks import Block, block_tree
from haloconv.flow.sweep_report.points import Sweep


def flat(blocks: tuple[Block, ...]) -> dict[str, Block]:
    found: dict[str, Block] = {}
    for block in blocks:
        found |= {block.path: block} | flat(block.parts)
    return found


def test_sums(sweep: Sweep) -> None:
    point = sweep.points[4]
    tree = block_tree(point)
    assert point.area is not None
    for key, total in point.area.items():
        assert sum(block.area[key] for block in tree) == total
    blocks = flat(tree)
    for block in blocks.values():
        for key in block.area if block.parts else ():
            assert sum(part.area[key] for part in block.parts) == block.area[key]
    drain, lanes = point.blocks["datapath.drain"], point.blocks["datapath.lanes"]
    requantizer = point.blocks["datapath.drain.requantizer_0"]
    assert blocks["datapath.drain"].area["luts"] == drain["luts"] + requantizer["luts"]
    assert blocks["datapath.lanes"].area == lanes
    assert blocks["datapath.drain."].name == "own logic"
    assert blocks["datapath.drain."].area == drain
    assert [block.area["lut4"] for block in tree] == sorted(
        (block.area["lut4"] for block in tree), reverse=True
    )


def test_levels_without_an_entry(sweep: Sweep) -> None:
    point = sweep.points[0]
    area = {"luts": 3, "lut4": 3}
    (top,) = block_tree(replace(point, area=area, blocks={"a.b.c": area}))
    assert (top.path, top.parts[0].path, top.parts[0].parts[0].path) == ("a", "a.b", "a.b.c")
    assert top.area == area


def test_no_blocks(sweep: Sweep) -> None:
    assert block_tree(sweep.points[-1]) == ()
