"""Traffic formulas against a walk over the loop nest that counts bytes one tile at a time."""

import itertools
import random

import pytest

from haloconv.planner.layer import ConvLayer
from haloconv.planner.tile import Tile
from haloconv.planner.traffic import (
    TensorBytes,
    is_channelwise,
    loop_trips,
    moved_bytes,
    span_extents,
    unique_bytes,
)

ALL_ORDERS = ["".join(p) for p in itertools.permutations("hwmc")]


def random_layer(rng: random.Random) -> ConvLayer:
    """Draw a small layer of any kind: pads beyond tiles, strides beyond kernels, groups."""
    while True:
        kind = rng.choice(["dense", "grouped", "depthwise", "multiplied"])
        groups = {"dense": 1, "grouped": 2}.get(kind) or rng.randint(2, 5)
        per_in = 1 if kind in ("depthwise", "multiplied") else rng.randint(1, 5)
        per_out = {"depthwise": 1, "multiplied": rng.randint(2, 3)}.get(kind) or rng.randint(1, 5)
        try:
            return ConvLayer(
                in_height=rng.randint(1, 9),
                in_width=rng.randint(1, 9),
                in_channels=groups * per_in,
                out_channels=groups * per_out,
                kernel=(rng.randint(1, 4), rng.randint(1, 4)),
                stride=(rng.randint(1, 5), rng.randint(1, 5)),
                dilation=(rng.randint(1, 3), rng.randint(1, 3)),
                pads=(rng.randint(0, 7), rng.randint(0, 7), rng.randint(0, 7), rng.randint(0, 7)),
                groups=groups,
                has_bias=rng.random() < 0.7,
            )
        except ValueError:
            continue  # the kernel does not fit the padded input


def random_tile(rng: random.Random, layer: ConvLayer) -> Tile:
    depthwise = is_channelwise(layer)
    return Tile(
        rng.randint(1, layer.out_height),
        rng.randint(1, layer.out_width),
        1 if depthwise else rng.randint(1, layer.group_in_channels),
        rng.randint(1, layer.out_channels if depthwise else layer.group_out_channels),
    )


def positions(start: int, size: int, total: int, stride: int, window: int) -> range:
    """Padded input coordinates under outputs start .. start+size-1 that exist."""
    stop = min(start + size, total)
    return range(start * stride, (stop - 1) * stride + window)


def walk(layer: ConvLayer, tile: Tile, order: str, raw: bool) -> TensorBytes:
    """Run the loop nest and count the bytes of each operand whenever its tile index changes."""
    depthwise = is_channelwise(layer)
    groups = 1 if depthwise else layer.groups
    channels_in = 1 if depthwise else layer.in_channels // groups
    channels_out = layer.out_channels // groups
    starts = {
        "h": range(0, layer.out_height, tile.height),
        "w": range(0, layer.out_width, tile.width),
        "m": range(0, channels_out, tile.out_channels),
        "c": range(0, channels_in, tile.in_channels),
    }
    moved = dict.fromkeys(("input", "weight", "bias", "sums", "output"), 0)
    held: dict[str, tuple[int, ...]] = {}
    summed: dict[tuple[int, ...], int] = {}
    out_bytes = 4 if raw else 1
    dirty: tuple[tuple[int, ...], int] | None = None  # sums in the engine: index, elements

    def let_go() -> None:
        """Write the sums in the engine out: finished, or as int32 to come back later."""
        if dirty is None:
            return
        index, elements = dirty
        if summed[index] == channels_in:
            moved["output"] += elements * out_bytes
        else:
            moved["sums"] += 4 * elements

    for g in range(groups):
        for at in itertools.product(*(starts[x] for x in order)):
            now = dict(zip(order, at, strict=True))
            h, w, m, c = now["h"], now["w"], now["m"], now["c"]
            tm = min(tile.out_channels, channels_out - m)
            tc = tm if depthwise else min(tile.in_channels, channels_in - c)
            inputs = (h, w, m) if depthwise else (g, h, w, c)
            if held.get("input") != inputs:
                held["input"] = inputs
                rows = [
                    y
                    for y in positions(
                        h, tile.height, layer.out_height, layer.stride[0], layer.window[0]
                    )
                    if 0 <= y - layer.pads[0] < layer.in_height
                ]
                columns = [
                    x
                    for x in positions(
                        w, tile.width, layer.out_width, layer.stride[1], layer.window[1]
                    )
                    if 0 <= x - layer.pads[2] < layer.in_width
                ]
                moved["input"] += len(rows) * len(columns) * tc
            weights = (m,) if depthwise else (g, m, c)
            if held.get("weight") != weights:
                held["weight"] = weights
                moved["weight"] += tm * (1 if depthwise else tc) * layer.taps
            if layer.has_bias and c == 0 and held.get("bias") != (g, m):
                held["bias"] = (g, m)
                moved["bias"] += 4 * tm
            psum = (g, h, w, m)
            elements = (
                min(tile.height, layer.out_height - h) * min(tile.width, layer.out_width - w) * tm
            )
            if held.get("sums") != psum:
                let_go()
                if psum in summed:
                    moved["sums"] += 4 * elements
                held["sums"] = psum
            summed[psum] = summed.get(psum, 0) + (1 if depthwise else tc)
            dirty = (psum, elements)
    let_go()
    return TensorBytes(**moved)


@pytest.mark.parametrize("seed", range(8))
def test_moved_bytes_agree_with_a_walk_in_all_orders(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        layer = random_layer(rng)
        tile = random_tile(rng, layer)
        raw = rng.random() < 0.3
        for order in ALL_ORDERS:
            want = walk(layer, tile, order, raw)
            assert moved_bytes(layer, tile, order, raw) == want, (layer, tile, order, raw)


@pytest.mark.parametrize("seed", range(4))
def test_unique_bytes_agree_with_marking_every_tap(seed: int) -> None:
    rng = random.Random(100 + seed)
    for _ in range(50):
        layer = random_layer(rng)
        touched = set()
        for oh, ow, i, j in itertools.product(
            range(layer.out_height),
            range(layer.out_width),
            range(layer.kernel[0]),
            range(layer.kernel[1]),
        ):
            y = oh * layer.stride[0] + i * layer.dilation[0] - layer.pads[0]
            x = ow * layer.stride[1] + j * layer.dilation[1] - layer.pads[2]
            if 0 <= y < layer.in_height and 0 <= x < layer.in_width:
                touched.add((y, x))
        figures = unique_bytes(layer)
        assert figures.input == len(touched) * layer.in_channels, layer
        assert figures.output == layer.out_height * layer.out_width * layer.out_channels
        assert figures.weight * layer.groups == (
            layer.out_channels * layer.in_channels * layer.kernel[0] * layer.kernel[1]
        )
        assert figures.bias == (4 * layer.out_channels if layer.has_bias else 0)
        assert figures.sums == 0
        assert unique_bytes(layer, raw=True).output == 4 * figures.output
        for order in ("hwmc", "cmwh"):
            moved = moved_bytes(layer, random_tile(rng, layer), order)
            assert moved.input >= figures.input
            assert moved.total >= figures.total


def test_a_worked_layer() -> None:
    # 4x4x2 -> 4x4x5, 3x3, pad 1: a tile of 2x2 outputs has 4x4 positions, 3x3 inside.
    layer = ConvLayer(4, 4, 2, 5, (3, 3), pads=(1, 1, 1, 1))
    tile = Tile(2, 2, 1, 2)
    assert span_extents(layer, 0, 2) == (3, 3)
    trips = loop_trips(layer, tile)
    assert (trips.groups, trips.h, trips.w, trips.m, trips.c) == (1, 2, 2, 3, 2)
    assert trips.tiles == 24
    # c innermost: everything moves with every tile. 2 channels * 6*6 * 3; 90 weights * 4.
    assert moved_bytes(layer, tile, "hwmc") == TensorBytes(216, 360, 80, 0, 80)
    # m outermost, c unsplit: the weights stay, and so does the bias.
    assert moved_bytes(layer, Tile(2, 2, 2, 2), "mhwc") == TensorBytes(216, 90, 20, 0, 80)
    # c outside: the sums of all 80 outputs leave once and come back once, 4 bytes each way.
    assert moved_bytes(layer, tile, "chwm").sums == 640
    assert unique_bytes(layer) == TensorBytes(32, 90, 20, 0, 80)
    assert unique_bytes(layer).total == 222


def test_stride_beyond_the_kernel_leaves_bytes_untouched() -> None:
    # 1x1, stride 2 on 5x6: rows 0, 2, 4 and columns 0, 2, 4 are touched.
    layer = ConvLayer(5, 6, 3, 1, (1, 1), stride=(2, 2), has_bias=False)
    assert unique_bytes(layer).input == 27
    # One tile spans 5x5; tiles of one output span 1x1 each.
    assert moved_bytes(layer, Tile(3, 3, 3, 1), "hwmc").input == 75
    assert moved_bytes(layer, Tile(1, 1, 3, 1), "hwmc").input == 27


def test_tiles_in_the_padding_move_nothing() -> None:
    layer = ConvLayer(2, 2, 1, 1, (1, 1), pads=(3, 3, 0, 0))
    assert span_extents(layer, 0, 2) == (0, 1, 1, 0)
    assert moved_bytes(layer, Tile(2, 2, 1, 1), "hwmc").input == 4


def test_depthwise_channels_move_with_their_own_tile() -> None:
    layer = ConvLayer(4, 4, 6, 6, (3, 3), pads=(1, 1, 1, 1), groups=6)
    for order in ALL_ORDERS:
        assert moved_bytes(layer, Tile(4, 4, 1, 2), order) == TensorBytes(96, 54, 24, 0, 96)
    # h outside m: the weights of three tiles of channels come again for each half.
    assert moved_bytes(layer, Tile(2, 4, 1, 2), "hwmc") == TensorBytes(144, 108, 48, 0, 96)


def test_tiles_larger_than_the_layer_are_the_layer() -> None:
    layer = ConvLayer(4, 4, 2, 5, (3, 3))
    for order in ALL_ORDERS:
        assert moved_bytes(layer, Tile(9, 9, 9, 9), order) == unique_bytes(layer)


def test_errors_name_the_value() -> None:
    layer = ConvLayer(4, 4, 6, 6, (3, 3), groups=6)
    with pytest.raises(ValueError, match="permutation of 'hwmc', not 'hwm'"):
        moved_bytes(layer, Tile(1, 1, 1, 1), "hwm")
    with pytest.raises(ValueError, match="1 input channel, not 2"):
        loop_trips(layer, Tile(1, 1, 2, 1))
