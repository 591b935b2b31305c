"""The memories of engines, against those of the elaborated hardware."""

import re
from collections import Counter
from typing import Any

import pytest
from amaranth.hdl import Fragment, Shape
from amaranth.hdl._mem import MemoryInstance

from haloconv.flow.explore.memories import FAMILIES, Memory, memories, memory_primitives
from haloconv.flow.synthesis.rtlil import Target
from haloconv.planner.config import EngineConfig
from haloconv.rtl.engine import Engine

CONFIGS = [
    EngineConfig(),
    EngineConfig(
        out_lanes=2, split_lanes=2, bus_bytes=4, input_bytes=512, weight_bytes=512,
        psum_bytes=1024, bias_bytes=64, weight_zero_points=False,
    ),
    EngineConfig(out_lanes=1, split_lanes=3, bus_bytes=1, psum_bytes=0, units=("max_pool",)),
    EngineConfig(
        out_lanes=16, split_lanes=4, bus_bytes=16, requant_lanes=4, units=("elementwise",)
    ),
    EngineConfig(
        out_lanes=4, split_lanes=8, input_bytes=2048, bus_bytes=32, address_bits=20,
        requant_lanes=1, weight_bytes=96,
    ),
]  # fmt: skip
SIZED = re.compile(r"\.(halo|weights|drain|rows)\.|elementwise.*table")
"""Memories whose size follows from the configuration."""


def built(config: EngineConfig) -> dict[str, tuple[int, int, int]]:
    """Return (width, depth, read ports) of each memory of an elaborated engine."""
    found: dict[str, tuple[int, int, int]] = {}

    def walk(fragment: Any, path: str) -> None:
        if isinstance(fragment, MemoryInstance):
            data = fragment._data
            found[path] = Shape.cast(data.shape).width, data.depth, len(fragment._read_ports)
        for subfragment, name, *_ in fragment.subfragments:
            walk(subfragment, f"{path}.{name}")

    walk(Fragment.get(Engine(config), Target("ecp5")), "")
    return found


def test_every_memory_is_known() -> None:
    fixed: set[int] = set()
    for config in CONFIGS:
        known: Counter[tuple[int, int, int]] = Counter()
        for memory in memories(config):
            known[memory.width, memory.depth, memory.reads] += memory.count
        real = built(config)
        sized = Counter(shape for path, shape in real.items() if SIZED.search(path))
        assert sized == known, config
        # All others come to as many block RAMs in every engine.
        others = [shape for path, shape in real.items() if not SIZED.search(path)]
        family = FAMILIES["ecp5"]
        fixed.add(
            sum(
                family.blocks(Memory("", *shape[:2], reads=shape[2]))
                for shape in others
                if family.in_blocks(Memory("", *shape[:2], reads=shape[2]))
            )
        )
    assert len(fixed) == 1


@pytest.mark.parametrize(
    ("memory", "blocks", "in_blocks"),
    [
        # Measured one by one with Yosys 0.70, synth_lattice -family ecp5, on block_memory.
        (Memory("", 72, 512), 2, True),
        (Memory("", 72, 1024), 4, True),
        (Memory("", 18, 1024), 1, True),
        (Memory("", 9, 2048), 1, True),
        (Memory("", 18, 2048), 2, True),
        (Memory("", 40, 700), 3, True),
        (Memory("", 36, 513), 2, True),
        (Memory("", 256, 248), 8, True),
        (Memory("", 36, 64), 1, True),
        (Memory("", 36, 48), 1, True),
        (Memory("", 33, 48), 1, True),
        (Memory("", 18, 128), 1, True),
        (Memory("", 12, 128), 1, True),
        (Memory("", 5, 240), 1, True),
        (Memory("", 4, 400), 1, True),
        (Memory("", 32, 64, reads=2), 2, True),
        (Memory("", 263, 64, block=True), 8, True),
        (Memory("", 17, 64, block=True), 1, True),
        (Memory("", 24, 64), 1, True),
        (Memory("", 23, 64), 1, True),
        (Memory("", 32, 48), 1, True),
        (Memory("", 9, 128), 1, True),
        (Memory("", 36, 32), 1, False),
        (Memory("", 12, 112), 1, False),
        (Memory("", 4, 256), 1, False),
        (Memory("", 72, 32), 2, False),
        (Memory("", 128, 20), 4, False),
        (Memory("", 128, 200, clocked=False), 4, False),
    ],
)
def test_block_rams_of_the_ecp5(memory: Memory, blocks: int, in_blocks: bool) -> None:
    family = FAMILIES["ecp5"]
    assert (family.blocks(memory), family.in_blocks(memory)) == (blocks, in_blocks)


def test_families_without_a_description() -> None:
    with pytest.raises(ValueError, match="family must be one of ecp5, not 'virtex'"):
        memory_primitives(EngineConfig(), "virtex")
