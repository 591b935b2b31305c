"""Memories that never read and write a word in the same cycle."""

from amaranth import *
from amaranth.lib.memory import Memory

from haloconv.planner.validate import check_int

__all__ = ["BLOCK_WORDS", "SMALL_BLOCK_WORDS", "block_memory"]

BLOCK_WORDS = 512
"""Words of a block RAM at its full width, on the ECP5 and the 7 series."""
SMALL_BLOCK_WORDS = 256
"""The same on the iCE40."""


def block_memory(bits: int, depth: int) -> Memory:
    """Return a memory of ``depth`` words for block RAM whose user never reads a word that is
    written in the same cycle.

    Amaranth promises the old word then, and synthesis adds registers and multiplexers where block
    RAM does not keep the promise. The attribute takes it back: such a read gives anything.
    """
    depth = check_int("depth", depth, 1)
    return Memory(  # pyright: ignore[reportCallIssue]  # stubs know strings only
        shape=unsigned(bits),
        depth=depth,
        init=[],
        attrs={"no_rw_check": 1},  # pyright: ignore[reportArgumentType]
    )
