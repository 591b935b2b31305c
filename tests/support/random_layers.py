"""Small random layers, tiles and arrays for tests of the engine and of its schedule."""

import random

import numpy as np

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.tile import Tile, check_fit

__all__ = ["random_arrays", "random_layer", "random_mode", "random_tile"]


def random_layer(
    rng: random.Random, *, extent: int = 9, channels: int = 12, most_macs: int = 10**9
) -> ConvLayer:
    """A dense, 1x1, grouped or depthwise layer with any stride, dilation and pads."""
    while True:
        kind = rng.choice(("dense", "dense", "depthwise", "depthwise", "grouped", "1x1"))
        kernel = (1, 1) if kind == "1x1" else (rng.randint(1, 4), rng.randint(1, 4))
        inputs, outputs, groups = rng.randint(1, channels), rng.randint(1, channels), 1
        if kind == "depthwise":
            inputs = groups = rng.randint(2, channels)
            outputs = inputs
        elif kind == "grouped":
            groups = rng.randint(2, 3)
            inputs, outputs = groups * rng.randint(1, 4), groups * rng.randint(1, 4)
        try:
            layer = ConvLayer(
                in_height=rng.randint(1, extent),
                in_width=rng.randint(1, extent + 2),
                in_channels=inputs,
                out_channels=outputs,
                kernel=kernel,
                stride=(rng.randint(1, 4), rng.randint(1, 4)),
                dilation=(rng.randint(1, 3), rng.randint(1, 3)),
                pads=(
                    rng.choice((0, 0, 1, 1, 2, 5)),
                    rng.choice((0, 0, 1, 1, 2, 5)),
                    rng.choice((0, 0, 1, 1, 2, 5)),
                    rng.choice((0, 0, 1, 1, 2, 5)),
                ),
                groups=groups,
                in_zero_point=rng.randint(-128, 127),
                has_bias=rng.random() < 0.7,
            )
        except ValueError:  # the window does not fit
            continue
        if layer.macs <= most_macs:
            return layer


def random_mode(rng: random.Random, layer: ConvLayer) -> str:
    """A mode that can run the layer."""
    if layer.is_depthwise and layer.in_channels == layer.out_channels:
        return "depthwise"
    return rng.choice(("channel", "row"))


def random_tile(
    rng: random.Random, layer: ConvLayer, config: EngineConfig, mode: str, *, split: bool = True
) -> Tile:
    """A tile that fits the engine; ``split`` allows several input channel tiles."""

    def pick(count: int) -> int:
        return rng.choice((count, rng.randint(1, count), min(count, rng.randint(1, 4))))

    depthwise = mode == "depthwise"
    for _ in range(5000):
        tile = Tile(
            pick(layer.out_height),
            pick(layer.out_width),
            1 if depthwise else pick(layer.group_in_channels) if split else layer.group_in_channels,
            pick(layer.out_channels if depthwise else layer.group_out_channels),
        )
        if check_fit(layer, config, tile, mode) is None:
            return tile
    raise AssertionError(f"no tile of {layer} in mode {mode} fits {config}")


def random_arrays(seed: int, layer: ConvLayer):
    """Inputs (1, H, W, C), weights (M, Rh, Rw, C / groups) and biases (M,) or None."""
    rng = np.random.default_rng(seed)
    inputs = rng.integers(-128, 128, layer.input_shape).astype(np.int8)
    weights = rng.integers(-128, 128, layer.weight_shape).astype(np.int8)
    bias = rng.integers(-(2**20), 2**20, layer.out_channels).astype(np.int32)
    return inputs, weights, bias if layer.has_bias else None
