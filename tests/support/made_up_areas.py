"""Areas that grow with engines by known laws, for tests of what is fitted to areas.

Test files load it by path, as importlib mode lets them import no siblings.
"""

import itertools
import random
from typing import Any

from haloconv.flow.explore.memories import memory_primitives
from haloconv.planner.config import EngineConfig

FIXED_BLOCKS = 3
"""Block RAMs that every engine has beside its sized memories."""
_NAMES = ("luts", "carries", "ffs", "lut_rams", "dsps", "block_rams", "large_rams")


def blocks_of(config: EngineConfig, noise: float = 0.0, seed: int = 0) -> dict[str, dict[str, int]]:
    """Return areas by block; ``noise`` is the relative spread of LUTs and carries."""
    rng = random.Random(f"{config.digest} {seed}")
    lanes, q, bus = config.lanes, config.results_per_cycle, config.bus_bytes
    memories = memory_primitives(config, "ecp5")
    values = {
        "top": (40, 3, 25 + config.address_bits, 0, 0, 0),
        "control": (900, 150, 1400, 12, 0, FIXED_BLOCKS),
        "datapath.lanes": (12 + 21 * lanes, 9 * lanes, 33 * lanes, 0, lanes, 0),
        "datapath.drain": (40 * q + 8 * config.out_lanes, 17 * q, 70 * q, 18 * q, 0, 0),
        "datapath.halo": (30 * config.split_lanes, 0, 12 * config.split_lanes, 0, 0, memories),
        "datapath.loader": (300 + 25 * bus, 60, 220 + 31 * bus, 0, 1, 0),
        "datapath.writer": (100 + 15 * bus, 20, 90 + 9 * q, 0, 0, 0),
        **{
            f"datapath.drain.requantizer_{lane}": (180, 55, 210, 0, 4, 0) for lane in range(q)
        },
    }  # fmt: skip
    areas: dict[str, dict[str, int]] = {}
    for path, counts in values.items():
        area = dict(zip(_NAMES, (*counts, 0), strict=True))
        for name in ("luts", "carries"):
            area[name] = round(area[name] * rng.uniform(1 - noise, 1 + noise))
        areas[path] = area
    return areas


def point(config: EngineConfig, noise: float = 0.0) -> dict[str, Any]:
    """Return what a sweep's results say of an engine."""
    blocks = blocks_of(config, noise)
    area = {name: sum(block[name] for block in blocks.values()) for name in _NAMES}
    return {"config": config.to_dict(), "area": area, "blocks": blocks}


def training(count: int = 40, noise: float = 0.0, seed: int = 1) -> dict[str, Any]:
    """Return a sweep of ``count`` engines."""
    rng = random.Random(seed)
    choices = list(itertools.product((1, 2, 3, 4, 8), (1, 2, 4, 6, 8), (2, 4, 8, 16), (1, 2)))
    rng.shuffle(choices)
    points = []
    for pm, pr, bus, divisor in choices[:count]:
        config = EngineConfig(
            out_lanes=pm,
            split_lanes=pr,
            bus_bytes=bus,
            requant_lanes=max(1, pm // divisor),
            roundings=("double",),
            units=(),
            weight_zero_points=rng.random() < 0.5,
            input_bytes=pr * pr * -(-pm // pr) * rng.choice((16, 64)),
            weight_bytes=pm * pr * rng.choice((32, 128)),
            psum_bytes=rng.choice((0, 2048)),
            bias_bytes=4 * pm * rng.choice((2, 8)),
            address_bits=rng.choice((20, 32)),
        )
        points.append(point(config, noise))
    return {"format": 1, "family": "ecp5", "points": points}
