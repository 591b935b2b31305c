"""Time the tile search over the layers of a workload file, one search after another.

Usage: python bench/search_speed.py [workload.json] [--objective cycles] [--repeats 3]

Without a file it takes shared/workloads/resnet50_v1_5.json beside the checkout. The least of the
repeats counts, as the others share the machine; a first search of each layer is not timed, since
numpy's first calls are slow. Exit code 1 if the mean exceeds --limit milliseconds.
"""

import argparse
import sys
import time
from pathlib import Path

from haloconv.planner.candidates import OBJECTIVES
from haloconv.planner.config import EngineConfig
from haloconv.planner.search import search_tiles
from haloconv.planner.workload import read_workload

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "workloads" / "resnet50_v1_5.json"


def main(argv: list[str] | None = None) -> int:
    """Print a table of layers and the mean; return the exit code."""
    parser = argparse.ArgumentParser(description="Time the tile search over a workload.")
    parser.add_argument("workload", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--objective", choices=OBJECTIVES, default="cycles")
    parser.add_argument("--repeats", type=int, default=3, help="searches of each layer")
    parser.add_argument("--limit", type=float, default=5.0, help="most milliseconds on average")
    arguments = parser.parse_args(argv)
    if arguments.repeats < 1:
        parser.error(f"--repeats must be at least 1, not {arguments.repeats}")
    if not arguments.workload.exists():
        parser.error(f"{arguments.workload} does not exist; name a workload file")

    workload, config = read_workload(arguments.workload), EngineConfig()
    if not workload.layers:
        parser.error(f"{arguments.workload} holds no convolution")
    print(f"{'layer':<12} {'input':>15} {'M':>5}  {'mode':<9} {'order':<5} {'tile':<20} {'ms':>6}")
    total = 0.0
    for layer in workload.layers:
        found = search_tiles(layer, config, arguments.objective)
        least = float("inf")
        for _ in range(arguments.repeats):
            began = time.perf_counter()
            search_tiles(layer, config, arguments.objective)
            least = min(least, 1000 * (time.perf_counter() - began))
        total += least
        tile = found.tile
        sizes = f"{tile.height} x {tile.width} x {tile.in_channels} x {tile.out_channels}"
        shape = f"{layer.in_height} x {layer.in_width} x {layer.in_channels}"
        print(
            f"{layer.name:<12} {shape:>15} {layer.out_channels:>5}  {found.mode:<9} "
            f"{found.order:<5} {sizes:<20} {least:>6.2f}"
        )
    mean = total / len(workload.layers)
    print(f"{workload.name}: {len(workload.layers)} layers, {mean:.2f} ms a layer on average")
    return 0 if mean <= arguments.limit else 1


if __name__ == "__main__":
    sys.exit(main())
