"""The estimate against a walk of the loops, a layer by hand, and the schedule."""

import dataclasses
import itertools
import random

import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.estimate import END_CYCLES, LOAD_CYCLES, TURN_CYCLES, estimate_cycles
from haloconv.planner.latency import result_latency
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
    # 46 to work the tile out and 5, 80 for the descriptor. Load: LOAD + 16, 4 pixels of two words 8
    # and 2, 8*2 rows of weights 16, 8 biases and 1, 8 scales with 2 that wait for their beats.
    # Compute: 4 pixels of two steps, and 2. Writes: 4 beats.
    layer, config = ConvLayer(2, 2, 16, 8, (1, 1)), EngineConfig()
    outside = 46 + 5 + 80 + 16 + result_latency(config) + END_CYCLES
    load = LOAD_CYCLES + 16
    got = estimate_cycles(layer, config, "channel", "hwmc", [Tile(2, 2, 16, 8)])
    assert got.tolist() == [outside + (load + 8 + 2 + 16 + 9 + 10) + 10]
    # Two tiles of one row each: the second loads its 4 words in less than the 46 in which tiles are
    # worked out. Compute: 2 pixels of two steps, and 2.
    got = estimate_cycles(layer, config, "channel", "hwmc", [Tile(1, 2, 16, 8)])
    assert got.tolist() == [outside + (load + 4 + 2 + 16 + 9 + 10) + 46 + 6]
    # Without tiles ahead these come first, 46 + 1.
    single = dataclasses.replace(config, tiles_ahead=0)
    got = estimate_cycles(layer, single, "channel", "hwmc", [Tile(1, 2, 16, 8)])
    assert got.tolist() == [outside + (load + 4 + 2 + 16 + 9 + 10) + (47 + load + 4) + 6]


def test_estimate_beside_serial_requantizers_by_hand() -> None:
    # 3x3, 32 -> 8 channels, no padding, a pixel a group: 36 steps, then 2 to clear the lanes, as
    # the 32 cycles of the one row of results have passed but for the last before.
    layer, config = ConvLayer(6, 6, 32, 8, (3, 3)), EngineConfig(serial_requantizers=True)
    tile = Tile(4, 4, 32, 8)
    one = estimate_cycles(layer, config, "channel", "hwmc", [tile]).item()
    more = dataclasses.replace(layer, in_height=7)
    tile = dataclasses.replace(tile, height=5)
    taller = estimate_cycles(more, config, "channel", "hwmc", [tile]).item()
    assert taller - one == 4 * (36 + 2) + 6 * 4  # A row more, which is loaded too.
    # Two lanes a requantiser: 4 rows of results a group, of which the lanes hold all but one.
    config = dataclasses.replace(config, requant_lanes=2)
    slower = estimate_cycles(
        layer, config, "channel", "hwmc", [dataclasses.replace(tile, height=4)]
    )
    assert slower.item() - one == 16 * 3 * 32
    # Fewer steps than a row's cycles hide behind it: 9 steps, 32 cycles a row.
    thin = dataclasses.replace(layer, in_channels=8)
    tiles = [Tile(4, 4, 8, 8)]
    fast = EngineConfig(requant_lanes=2)
    difference = estimate_cycles(thin, config, "channel", "hwmc", tiles) - estimate_cycles(
        thin, fast, "channel", "hwmc", tiles
    )
    latencies = result_latency(config) - result_latency(fast)
    assert difference.item() - latencies == 16 * (4 * 32 - 9)


ENGINES = (
    EngineConfig(),
    EngineConfig(out_lanes=4, split_lanes=4, weight_zero_points=False, bus_bytes=16),
    EngineConfig(serial_requantizers=True),
)


@pytest.mark.parametrize("config", ENGINES)
@pytest.mark.parametrize("latency", [4, 16, 60])
@pytest.mark.parametrize("has_bias", [False, True])
def test_estimate_of_single_tiles_is_the_schedule(
    config: EngineConfig, latency: int, has_bias: bool
) -> None:
    """A cycle more or less at start or end, or in any of the loads, fails here."""
    # 9 and 36 steps a group: more than a requantiser's row, so that lanes that hold sums wait.
    layer = ConvLayer(8, 8, 32, 16, (3, 3), has_bias=has_bias)
    tile = Tile(6, 6, 32, 16)
    got = estimate_cycles(layer, config, "channel", "hwmc", [tile], latency=latency)
    cycles = schedule_layer(layer, config, tile, "channel", "hwmc", latency=latency).cycles
    # Lanes that hold their sums are through with the turn before they go on.
    assert got.item() == cycles + (TURN_CYCLES if config.serial_requantizers else 0)


@pytest.mark.parametrize("config", ENGINES)
@pytest.mark.parametrize("latency", [100])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("kind", ["input", "weights", "both", "depthwise"])
def test_estimate_of_tiles_that_wait_for_loads_is_the_schedule(
    config: EngineConfig, latency: int, has_bias: bool, raw: bool, kind: str
) -> None:
    """What four tiles more take, when the lanes have nothing else to wait for."""

    def cycles(tiles: int) -> tuple[int, int]:
        case = {
            "input": (ConvLayer(tiles, 2, 8, 4, (1, 1)), Tile(1, 2, 8, 4), "channel", "mhwc"),
            "weights": (
                ConvLayer(3, 3, 16, 8 * tiles, (3, 3)), Tile(1, 1, 16, 8), "channel", "hwmc",
            ),
            "both": (
                ConvLayer(1, 2, 16 * tiles, 4, (1, 1)), Tile(1, 2, 16, 4), "channel", "mhwc",
            ),
            "depthwise": (
                ConvLayer(4, 3, 8 * tiles, 8 * tiles, (3, 3), groups=8 * tiles),
                Tile(2, 1, 1, 8), "depthwise", "mhwc",
            ),
        }[kind]  # fmt: skip
        layer, tile, mode, order = case
        layer = dataclasses.replace(layer, has_bias=has_bias)
        got = estimate_cycles(layer, config, mode, order, [tile], latency=latency, raw=raw)
        want = schedule_layer(layer, config, tile, mode, order, latency=latency, raw=raw)
        assert want.causes["load"] >= tiles - 2
        return got.item(), want.cycles

    few, many = cycles(8), cycles(12)
    assert many[0] - few[0] == many[1] - few[1]


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
        for config in (
            EngineConfig(),
            small,
            dataclasses.replace(small, serial_requantizers=True),
            dataclasses.replace(small, serial_requantizers=True, tiles_ahead=0, requant_lanes=1),
        ):
            found = search_tiles(layer, config, latency=latency)
            cycles = schedule_layer(
                layer, config, found.tile, found.mode, found.order, latency=latency
            ).cycles
            assert abs(found.estimated_cycles - cycles) <= 0.02 * cycles, (layer, config)
