"""Places tensors in memory so that those alive at the same time do not overlap."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Lifetime", "allocate"]


@dataclass(frozen=True)
class Lifetime:
    """A block of memory: ``size`` bytes, needed from step ``first`` to step ``last``."""

    key: int
    size: int
    first: int
    last: int


def allocate(blocks: Iterable[Lifetime], alignment: int) -> tuple[dict[int, int], int]:
    """Return an offset for each block's key, and the bytes that all of them take.

    Largest blocks first, each at the lowest offset that is free for its whole life. Offsets are
    multiples of ``alignment``.
    """
    placed: list[tuple[Lifetime, int]] = []
    offsets: dict[int, int] = {}
    total = 0
    for block in sorted(blocks, key=lambda item: (-item.size, item.first, item.key)):
        busy = sorted(
            (offset, offset + other.size)
            for other, offset in placed
            if other.first <= block.last and block.first <= other.last
        )
        at = 0
        for start, end in busy:
            if at + block.size <= start:
                break
            at = max(at, -(-end // alignment) * alignment)
        placed.append((block, at))
        offsets[block.key] = at
        total = max(total, at + block.size)
    return offsets, total
