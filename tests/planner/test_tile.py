"""Words of a tile in each memory, against enumeration of what is stored where."""

import re
from itertools import product

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.tile import MODES, ORDERS, Tile, TileWords, check_fit, tile_words


def test_codes():
    assert MODES == ("channel", "row", "depthwise")
    assert ORDERS == ("hwmc", "mhwc")


@pytest.mark.parametrize("name", ["height", "width", "in_channels", "out_channels"])
def test_tile_refusals(name):
    good = {"height": 1, "width": 2, "in_channels": 3, "out_channels": 4}
    assert Tile(**good) == Tile(1, 2, 3, 4)
    with pytest.raises(ValueError, match=f"tile {name} must be at least 1, not 0"):
        Tile(**(good | {name: 0}))
    with pytest.raises(TypeError, match=re.escape(f"tile {name} must be an integer, not 1.5")):
        Tile(**(good | {name: 1.5}))


def test_words_by_hand():
    layer = ConvLayer(16, 16, 20, 24, (3, 3))
    config = EngineConfig(out_lanes=8, split_lanes=4, requant_lanes=3, input_bytes=1 << 16)
    # Words of 8 channels in 4 banks. 4 x 6 outputs span 6 x 8 inputs; 20 channels are 3 words.
    tile = Tile(4, 6, 20, 20)
    # 144 words over 4 banks; 3 groups of 8 outputs, 9 taps, 5 steps of 4 channels.
    assert tile_words(layer, config, tile, "channel") == TileWords(36, 135, 0, 3)
    # 8 columns are 2 in each bank: 6 rows, 3 words; a weight word for every input channel.
    assert tile_words(layer, config, tile, "row") == TileWords(36, 540, 0, 3)
    # Split input channels: 4 x 6 pixels of 2 * 3 + 2 words of 3 sums (20 = 8 + 8 + 4 channels).
    split = Tile(4, 6, 8, 20)
    assert tile_words(layer, config, split, "channel") == TileWords(12, 54, 24 * 8, 3)
    # Depthwise: 20 channels are 3 groups of lanes, both in the bank words and in the weights.
    depthwise = ConvLayer(16, 16, 20, 20, (3, 3), groups=20)
    assert tile_words(depthwise, config, Tile(4, 6, 1, 20), "depthwise") == TileWords(36, 27, 0, 3)
    # Stride 2 spans 9 x 13; 7 columns of the first phase are 2 a bank, and so are 6 of the second.
    strided = ConvLayer(16, 16, 20, 24, (3, 3), (2, 2))
    assert tile_words(strided, config, tile, "row").input == 9 * 2 * 3 * 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(15))
def test_words_against_enumeration(seed, mode):
    rng = np.random.default_rng([seed, MODES.index(mode)])
    config = EngineConfig(
        out_lanes=int(rng.integers(1, 7)),
        split_lanes=int(rng.integers(1, 7)),
        requant_lanes=1,
        input_bytes=1 << 16,
    )
    kernel = tuple(int(n) for n in rng.integers(1, 4, 2))
    channels = int(rng.integers(2, 20))
    depthwise = mode == "depthwise"
    layer = ConvLayer(
        *(60, 60, channels, channels if depthwise else int(rng.integers(1, 20)), kernel),
        stride=tuple(int(n) for n in rng.integers(1, 5, 2)),
        dilation=tuple(int(n) for n in rng.integers(1, 3, 2)),
        groups=channels if depthwise else 1,
    )
    tile = Tile(
        int(rng.integers(1, 5)),
        int(rng.integers(1, 9)),
        1 if depthwise else int(rng.integers(1, channels + 1)),
        int(rng.integers(1, layer.out_channels + 1)),
    )
    found = tile_words(layer, config, tile, mode)
    rows, columns = layer.span(tile.height, tile.width)
    # Every input byte goes to a bank and to a word in it; no word holds more than word_bytes.
    stored = {}
    depth = tile.out_channels if depthwise else tile.in_channels
    per_word = config.out_lanes if depthwise else config.word_bytes
    highest = [-1] * 4
    for y, x, c in product(range(rows), range(columns), range(depth)):
        if mode == "channel":
            position = (y * columns + x) * -(-depth // per_word) + c // per_word
            bank, word = position % config.split_lanes, (position // config.split_lanes,)
        else:
            output, phase = divmod(x, layer.stride[1])
            bank = output % config.split_lanes
            word = (y, phase, c // per_word, output // config.split_lanes)
        stored.setdefault((bank, word), set()).add((y, x, c))
        for axis, coordinate in enumerate(word):
            highest[axis] = max(highest[axis], coordinate)
    assert max(len(cell) for cell in stored.values()) <= config.word_bytes
    assert found.input == np.prod([n + 1 for n in highest if n >= 0])
    # Every weight goes to a lane pair of a weight word.
    words = set()
    for m, u, v, c in product(
        range(tile.out_channels), range(kernel[0]), range(kernel[1]), range(tile.in_channels)
    ):
        step = c // config.split_lanes if mode == "channel" else c
        words.add((m // config.out_lanes, u, v, step))
    assert found.weight == len(words)
    assert found.groups == len({m // config.out_lanes for m in range(tile.out_channels)})
    # One requantiser: every sum has a word of its own.
    split = not depthwise and tile.in_channels < channels
    assert found.psum == (tile.height * tile.width * tile.out_channels if split else 0)


def test_fit_at_the_edge_of_each_memory():
    layer = ConvLayer(16, 16, 16, 16, (3, 3))
    tile = Tile(2, 2, 8, 16)
    # 16 positions over 8 banks of 8 bytes; 2 groups * 9 taps of 64 bytes; 4 pixels * 2 words of
    # 8 sums; 2 groups of 8 biases.
    exact = {"input_bytes": 128, "weight_bytes": 1152, "psum_bytes": 256, "bias_bytes": 64}
    assert check_fit(layer, EngineConfig(**exact), tile, "channel") is None
    for name, what, need, have in (
        ("input_bytes", "input", 2, 1),
        ("weight_bytes", "weight", 18, 17),
        ("psum_bytes", "partial-sum", 8, 7),
        ("bias_bytes", "channel group", 2, 1),
    ):
        config = EngineConfig(**(exact | {name: exact[name] - 1}))
        assert check_fit(layer, config, tile, "channel") == (
            f"the tile needs {need} {what} words but the engine holds {have}; "
            f"raise {name} or take a smaller tile"
        )


def test_unsplit_layers_need_no_accumulator_bank():
    layer = ConvLayer(16, 16, 8, 8, (3, 3))
    config = EngineConfig(psum_bytes=0)
    assert check_fit(layer, config, Tile(2, 2, 8, 8), "channel") is None
    reason = check_fit(layer, config, Tile(2, 2, 4, 8), "channel")
    assert reason is not None and "raise psum_bytes" in reason
