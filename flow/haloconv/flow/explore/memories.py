"""The memories of an engine, and the primitives that they take."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import results_room
from haloconv.rtl.halo_buffer import halo_shares
from haloconv.rtl.widths import row_pieces

__all__ = ["Memory", "Primitives", "memories", "memory_primitives"]


@dataclass(frozen=True)
class Memory:
    """``count`` memories of ``depth`` words of ``width`` bits.

    ``clocked`` ones can be block RAM, ``block`` ones must be; each of ``reads`` ports has a copy.
    Each ``granule`` of bits has a write enable, if there are any.
    """

    name: str
    width: int
    depth: int
    count: int = 1
    clocked: bool = True
    block: bool = False
    reads: int = 1
    granule: int = 0


def memories(config: EngineConfig) -> Iterator[Memory]:
    """Return the memories whose size follows from the configuration.

    Register file, queues and programs, which are the same in every engine, are not among them.
    Tests hold them against those of the elaborated engine.
    """
    q, pm, pr = config.results_per_cycle, config.out_lanes, config.split_lanes
    shares = halo_shares(config)
    yield Memory("halo", 9 * config.word_bytes, 2 * config.input_words * shares, pr)
    weight = 9 if config.weight_zero_points else 8
    yield Memory("weights", pm * pr * weight, 2 * config.weight_words, granule=weight)
    if config.psum_words:
        yield Memory("sums", 32 * q, config.psum_words)
    rows = 2 * config.channel_groups * config.group_steps
    yield Memory("biases", 32, rows, q)
    yield Memory("scales", 38, rows, q)
    # Packed results, how many, what advances after them, and the last beat's worth of bytes.
    row = 32 * q + q.bit_length() + 3 + (row_pieces(config) - 1).bit_length()
    yield Memory("rows", row, 1 << math.ceil(math.log2(results_room(config))), block=True)
    if "elementwise" in config.built_units:
        yield Memory("tables", 32, 512, q)


@dataclass(frozen=True)
class Primitives:
    """How a family builds memories.

    Parameters
    ----------
    widths : dict of int to int
        Words of one block RAM at each of its widths in bits.
    lut_bits, lut_words : int
        Size of a small memory in LUTs.
    block_cost, lut_cost : float
        Of one of each, as synthesis weighs them (Yosys' ``memory_libmap``).
    """

    widths: Mapping[int, int]
    lut_bits: int
    lut_words: int
    block_cost: float
    lut_cost: float

    def blocks(self, memory: Memory) -> int:
        """Return the block RAMs of a memory that is built of them."""
        each = min(
            self._columns(memory, width) * -(-memory.depth // words)
            for width, words in self.widths.items()
        )
        return each * memory.reads * memory.count

    def _columns(self, memory: Memory, width: int) -> int:
        """Block RAMs side by side, each ``width`` bits wide; nine bits have an enable."""
        granules = memory.width // (memory.granule or memory.width)
        if granules == 1:
            return -(-memory.width // width)
        if width >= memory.granule:
            return -(-granules // (width // 9))
        return granules * -(-memory.granule // width)

    def in_blocks(self, memory: Memory) -> bool:
        """Whether synthesis takes block RAM rather than LUTs."""
        if memory.block or not memory.clocked:
            return memory.block
        words = -(-memory.depth // self.lut_words)
        granule = memory.granule or memory.width
        cells = memory.width // granule * -(-granule // self.lut_bits) * words
        # Half a LUT to choose between two of them for each bit.
        luts = (self.lut_cost * cells + 0.5 * memory.width * (words - 1)) * memory.reads
        blocks = self.blocks(memory) // memory.count
        return luts > self.block_cost * blocks


# The costs of Yosys 0.70's brams_16kd.txt and lutrams_trellis.txt. The first says 128 a block; a
# memory that would cost 127.5 in LUTs goes into a block, if no word is read as it is written.
FAMILIES = {
    "ecp5": Primitives({36: 512, 18: 1024, 9: 2048, 4: 4096, 2: 8192, 1: 16384}, 4, 16, 127.0, 4.0),
}


def memory_primitives(config: EngineConfig, family: str) -> int:
    """Return the block RAMs of an engine's :func:`memories`.

    Raises
    ------
    ValueError
        For a family whose memories are not described.
    """
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, not {family!r}")
    primitives = FAMILIES[family]
    return sum(
        primitives.blocks(memory) for memory in memories(config) if primitives.in_blocks(memory)
    )
