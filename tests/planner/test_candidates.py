"""The candidates' figures and bounds against the definitions, tile by tile."""

import random

import numpy as np
import pytest

from haloconv.planner.candidates import OBJECTIVES, candidate_blocks
from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.storage import tile_storage
from haloconv.planner.tile import Tile, check_fit
from haloconv.planner.traffic import is_channelwise, moved_bytes

from ..support.search_cases import every_tile, extents, modes, random_config, random_layer, walk


@pytest.mark.parametrize("seed", range(3))
def test_figures_and_bounds_of_every_candidate(seed: int) -> None:
    rng = random.Random(f"candidates {seed}")
    for _ in range(12):
        layer, config = random_layer(rng, 5, 200), random_config(rng)
        raw, latency = rng.random() < 0.3, rng.randint(0, 30)
        for block in candidate_blocks(layer, config, raw, latency):
            space, mode = block.space, block.space.engine.mode
            pairs, channels = space.pairs.at(np.s_[:, None]), block.channels
            fits = block.fits(pairs, channels)
            figures = {name: block.figure(name, pairs, channels) for name in OBJECTIVES}
            floors = {name: block.floor(name) for name in OBJECTIVES}
            for i, j in np.ndindex(*fits.shape):
                tile = Tile(
                    int(space.h.size[space.pairs.h[i]]),
                    int(space.w.size[space.pairs.w[i]]),
                    int(channels.tc[j]),
                    int(channels.tm[j]),
                )
                case = (layer, config, mode, block.order, tile)
                assert fits[i, j] == (check_fit(layer, config, tile, mode) is None), case
                want = {
                    "cycles": walk(layer, config, mode, block.order, tile, latency, raw),
                    "bytes": moved_bytes(layer, tile, block.order, raw).total,
                    "storage": tile_storage(layer, tile).double_buffered,
                }
                assert figures["cycles"][i, j] <= want["cycles"], case
                for name in ("bytes", "storage"):
                    value = np.broadcast_to(figures[name], fits.shape)[i, j]
                    assert value == want[name], (name, case)
                for name in OBJECTIVES:
                    assert floors[name][j] <= want[name], (name, case)
            at = np.nonzero(fits)
            if at[0].size:
                got = block.cycles(space.pairs.at(at[0]), channels.at(at[1]))
                tiles = [
                    Tile(
                        int(space.h.size[space.pairs.h[i]]),
                        int(space.w.size[space.pairs.w[i]]),
                        int(channels.tc[j]),
                        int(channels.tm[j]),
                    )
                    for i, j in zip(*at, strict=True)
                ]
                walked = [walk(layer, config, mode, block.order, t, latency, raw) for t in tiles]
                assert got.tolist() == walked


def listed(layer: ConvLayer, config: EngineConfig) -> set[tuple[str, Tile]]:
    """Return mode and tile of every candidate that fits."""
    found: set[tuple[str, Tile]] = set()
    for block in candidate_blocks(layer, config, False, 16):
        space = block.space
        fits = block.fits(space.pairs.at(np.s_[:, None]), block.channels)
        for i, j in zip(*np.nonzero(fits), strict=True):
            h, w = space.h.size[space.pairs.h[i]], space.w.size[space.pairs.w[i]]
            tile = Tile(int(h), int(w), int(block.channels.tc[j]), int(block.channels.tm[j]))
            found.add((space.engine.mode, tile))
    return found


@pytest.mark.parametrize("seed", range(2))
def test_every_tile_of_small_layers_is_a_candidate(seed: int) -> None:
    rng = random.Random(f"all {seed}")
    for _ in range(10):
        layer, config = random_layer(rng, 6, 600), random_config(rng)
        if max(extents(layer)[:2]) > 12:
            continue
        want = {
            (mode, tile)
            for mode in modes(layer)
            for tile in every_tile(layer)
            if check_fit(layer, config, tile, mode) is None
        }
        assert listed(layer, config) == want, (layer, config)


def test_large_layers_are_thinned_out() -> None:
    layer = ConvLayer(100, 5, 200, 4, (1, 1))
    config = EngineConfig(
        input_bytes=1 << 20, weight_bytes=1 << 20, psum_bytes=1 << 20, bias_bytes=1 << 12
    )
    tiles = {tile for _, tile in listed(layer, config)}
    heights = {tile.height for tile in tiles}
    # The smallest height of each trip count: 100 in 1, 2, 3, ... tiles.
    assert {100, 50, 34, 25, 20, 17, 1} <= heights
    assert not {99, 51, 49, 35} & heights
    # Widths of at most 12 all are; channels in whole words of 8 beside those by trip count.
    assert {tile.width for tile in tiles} == {1, 2, 3, 4, 5}
    channels = {tile.in_channels for tile in tiles}
    assert {200, 100, 104, 67, 72, 1} <= channels
    assert not {199, 101, 69} & channels


def test_orders_that_cannot_be_better_are_left_out() -> None:
    config = EngineConfig()
    depthwise = ConvLayer(16, 16, 32, 32, (3, 3), pads=(1, 1, 1, 1), groups=32)
    assert is_channelwise(depthwise)
    assert {block.order for block in candidate_blocks(depthwise, config, False, 16)} == {"mhwc"}
    dense = ConvLayer(16, 16, 32, 32, (3, 3), pads=(1, 1, 1, 1))
    for block in candidate_blocks(dense, config, False, 16):
        # Split input channels: "mhwc" loads parameters less often and the rest as often.
        assert block.order == "mhwc" or not block.split
