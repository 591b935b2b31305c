"""MAC utilisation of real layers on 8 x 8 lanes with 8-byte ports, latency 16 and 32 KiB.

python bench/utilisation.py [--planned] [--models FOLDER]

Each layer runs on two engines: ``EngineConfig()``, and one whose 32 KiB are split over the buffers
as suits the layers. Predicted cycles come from the planner, measured ones from the RTL.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import plan_layer
from haloconv.planner.requantization import Requantization
from haloconv.planner.sizing import size_engine
from haloconv.planner.tflite import conv_layers, read_tflite
from haloconv.sim.layer import simulate_layer

BUDGET = 32 * 1024
ROUNDINGS = ("double", "away")
MODELS = Path(__file__).parents[2] / "shared" / "models"
NETWORKS = ("resnet8_cifar10_int8", "kws_dscnn_int8", "mnv1_025_partial_int8")

# The shapes that the targets name, for checkouts without the models.
NAMED = {
    "resnet8 first 32x32x3 -> 16": ConvLayer(32, 32, 3, 16, (3, 3), pads=(1, 1, 1, 1)),
    "resnet8 32x32x16 -> 16": ConvLayer(32, 32, 16, 16, (3, 3), pads=(1, 1, 1, 1)),
    "resnet8 32x32x16 -> 32 stride 2": ConvLayer(
        32, 32, 16, 32, (3, 3), stride=(2, 2), pads=(0, 1, 0, 1)
    ),
    "resnet8 16x16x32 -> 32": ConvLayer(16, 16, 32, 32, (3, 3), pads=(1, 1, 1, 1)),
    "resnet8 16x16x32 -> 64 stride 2": ConvLayer(
        16, 16, 32, 64, (3, 3), stride=(2, 2), pads=(0, 1, 0, 1)
    ),
    "resnet8 8x8x64 -> 64": ConvLayer(8, 8, 64, 64, (3, 3), pads=(1, 1, 1, 1)),
    "depthwise 24x24x32": ConvLayer(24, 24, 32, 32, (3, 3), pads=(1, 1, 1, 1), groups=32),
}


def layers_of(folder: Path) -> dict[str, ConvLayer]:
    """Return the named shapes, then the layers of the networks that are in the folder."""
    found = dict(NAMED)
    for name in NETWORKS:
        path = folder / f"{name}.tflite"
        if not path.exists():
            continue
        for data in conv_layers(read_tflite(path), "litert"):
            found[f"{name} {data.index} {data.operator.lower()}"] = data.layer
    return found


def engines(layers: list[ConvLayer]) -> Iterator[tuple[str, EngineConfig]]:
    """Return the two engines with their titles."""
    yield "EngineConfig()", EngineConfig(roundings=ROUNDINGS)
    yield f"{BUDGET} bytes split for the layers", size_engine(layers, BUDGET, roundings=ROUNDINGS)


def measure(layer: ConvLayer, config: EngineConfig) -> int:
    """Return the cycles of the RTL on random data."""
    rng = np.random.default_rng(0)
    bias = rng.integers(-1000, 1000, layer.out_channels, dtype=np.int32)
    result = simulate_layer(
        layer,
        config,
        inputs=rng.integers(-128, 128, layer.input_shape, dtype=np.int8),
        weights=rng.integers(-127, 128, layer.weight_shape, dtype=np.int8),
        bias=bias if layer.has_bias else None,
        requantization=Requantization(multiplier=2**30, shift=-9),
        backend="auto",
    )
    return result.cycles


def main(argv: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--planned", action="store_true", help="do not simulate")
    parser.add_argument("--models", type=Path, default=MODELS, help="folder of .tflite files")
    arguments = parser.parse_args(argv)
    layers = layers_of(arguments.models)
    out = Console(width=None if sys.stdout.isatty() else 140)
    for title, config in engines(list(layers.values())):
        out.print(
            f"\n{title}: {config.input_bytes} input, {config.weight_bytes} weights (both twice), "
            f"{config.psum_bytes} sums, {config.bias_bytes} biases = {config.budget_bytes} bytes"
        )
        table = Table("layer", "tile", "mode", "predicted", "measured", "use")
        for name, layer in layers.items():
            plan = plan_layer(layer, config)
            cycles = plan.cycles if arguments.planned else measure(layer, config)
            tile = plan.tile
            table.add_row(
                name,
                f"{tile.height}x{tile.width}x{tile.in_channels} -> {tile.out_channels}",
                f"{plan.mode} {plan.order}",
                f"{plan.cycles:,}",
                "-" if arguments.planned else f"{cycles:,}",
                f"{100 * layer.macs / (config.lanes * cycles):.1f} %",
            )
        out.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
