"""The estimate against a walk of the loops, a layer by hand, and the schedule."""

import dataclasses
import itertools
import random

import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.estimate import estimate_cycles
from haloconv.planner.latency import release_latency
from haloconv.planner.layer import ConvLayer
from haloconv.planner.schedule import schedule_layer
from haloconv.planner.search import search_tiles
from haloconv.planner.tile import ORDERS, Tile
from haloconv.planner.traffic import is_channelwise

from ..support.search_cases import extents, modes, random_config, random_layer, walk


@pytest.mark.parametrize("seed", range(4))
def test_estimate_agrees_with_a_walk_over_the_tiles(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        layer, config = random_layer(rng, 12, 20000), random_config(rng)
        raw, latency = rng.random() < 0.3, rng.randint(0, 40)
        tiles = [Tile(*(rng.randint(1, n + 1) for n in extents(layer))) for _ in range(4)]
        if is_channelwise(layer):
            tiles = [dataclasses.replace(t, in_channels=1) for t in tiles]
        for mode, order in itertools.product(modes(layer), ORDERS):
            got = estimate_cycles(layer, config, mode, order, tiles, latency=latency, raw=raw)
            want = [walk(layer, config, mode, order, t, latency, raw) for t in tiles]
            assert got.tolist() == want, (layer, config, mode, order, tiles)


def test_estimate_of_a_layer_by_hand() -> None:
    # 1x1, 16 -> 8 channels on 2x2 pixels, one tile, 8 x 8 lanes, Q = 8, an 8-byte bus, latency 16.
    # Load: 7 + 16 + 2, 4 pixels of two words 8, 8*2 rows of weights 16, 8 biases, 8 scales, and
    # 2 steps + 10 through the lanes and the drain + 5 for their table: 82. Compute: 4 pixels of
    # two steps, and 2. Writes: 4 beats. 126 + 16 + 82 + 10 + 30 cycles.
    layer = ConvLayer(2, 2, 16, 8, (1, 1))
    assert release_latency(EngineConfig()) == 10
    got = estimate_cycles(layer, EngineConfig(), "channel", "hwmc", [Tile(2, 2, 16, 8)])
    assert got.tolist() == [264]
    # Two tiles of one row each: the second waits for its 4 words, 7 + 16 + 2 + 4 against 4 + 2.
    got = estimate_cycles(layer, EngineConfig(), "channel", "hwmc", [Tile(1, 2, 16, 8)])
    assert got.tolist() == [126 + 16 + 78 + 6 + 29 + 30]


@pytest.mark.parametrize("latency", [1, 16, 60])
def test_estimate_is_near_the_schedule(latency: int) -> None:
    """The schedule walks the blocks of the engine and is held against the hardware's counters."""
    small = EngineConfig(
        out_lanes=4,
        split_lanes=4,
        bus_bytes=4,
        input_bytes=1024,
        weight_bytes=1024,
        psum_bytes=2048,
        bias_bytes=64,
    )
    for layer in (
        ConvLayer(32, 32, 3, 16, (3, 3), pads=(1, 1, 1, 1)),
        ConvLayer(32, 32, 16, 32, (3, 3), (2, 2), pads=(0, 1, 0, 1)),
        ConvLayer(8, 8, 64, 64, (3, 3), pads=(1, 1, 1, 1)),
        ConvLayer(49, 10, 1, 64, (10, 4), (2, 2), pads=(4, 5, 1, 1)),
        ConvLayer(25, 5, 64, 64, (3, 3), pads=(1, 1, 1, 1), groups=64),
        ConvLayer(25, 5, 64, 64, (1, 1)),
        ConvLayer(1, 1, 640, 128, (1, 1)),
        ConvLayer(14, 14, 32, 32, (3, 3), pads=(1, 1, 1, 1), groups=4),
    ):
        for config in (EngineConfig(), small):
            found = search_tiles(layer, config, latency=latency)
            cycles = schedule_layer(
                layer, config, found.tile, found.mode, found.order, latency=latency
            ).cycles
            assert abs(found.estimated_cycles - cycles) <= 0.05 * cycles, (layer, config)
