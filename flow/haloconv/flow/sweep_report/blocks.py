"""Area by block as a tree, from areas by instance path."""

from collections.abc import Mapping
from dataclasses import dataclass

from haloconv.flow.sweep_report.points import RESOURCES, Point

__all__ = ["Block", "block_tree"]


@dataclass(frozen=True)
class Block:
    """A block with everything inside it; ``parts`` are its blocks, the largest first."""

    path: str
    name: str
    area: Mapping[str, int]
    parts: tuple["Block", ...]


def block_tree(point: Point) -> tuple[Block, ...]:
    """Return the outermost blocks of a point, each with everything inside it.

    The areas of a sweep are without the blocks inside. What a block has beside its parts is a part
    called "own logic", so that parts always add up to their block.
    """
    if not point.blocks:
        return ()
    paths = dict(point.blocks)
    for path in point.blocks:
        while "." in path:
            path = path.rpartition(".")[0]
            # A level that only holds others has no entry of its own.
            paths.setdefault(path, {})
    keys = [key for key in RESOURCES if any(key in area for area in point.blocks.values())]
    children: dict[str, list[str]] = {}
    for path in paths:
        children.setdefault(path.rpartition(".")[0], []).append(path)

    def build(path: str) -> Block:
        parts = [build(child) for child in children.get(path, [])]
        own = {key: paths[path].get(key, 0) for key in keys}
        area = {key: own[key] + sum(part.area[key] for part in parts) for key in keys}
        if parts and any(own.values()):
            parts.append(Block(f"{path}.", "own logic", own, ()))
        return Block(path, path.rpartition(".")[2], area, _sorted(parts))

    return _sorted([build(path) for path in children[""]])


def _sorted(blocks: list[Block]) -> tuple[Block, ...]:
    return tuple(
        sorted(
            blocks,
            key=lambda block: (
                -block.area.get("lut4", block.area.get("luts", 0)),
                -block.area.get("ffs", 0),
                block.path,
            ),
        )
    )
