"""Run networks on the simulated engine of 8 x 8 lanes and 64 KiB and print what they take.

Usage: python bench/networks.py [MODEL ...] [--backend auto] [--target litert] [--sized]

Without models it takes the .tflite files of shared/models beside the checkout, the largest aside.
Inputs are random codes of a fixed seed: cycles do not depend on them. Exit code 1 if a network
takes more cycles than its limit, or is over 1 % off its prediction. The first row's time holds the
build of the engine, unless an earlier run left it in the cache.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from haloconv.planner.config import EngineConfig
from haloconv.planner.network import Network
from haloconv.planner.network_file import read_network
from haloconv.planner.network_program import compile_network
from haloconv.sim.backend import BACKENDS
from haloconv.sim.network import run_program

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "models"
DEFAULT = (
    "resnet8_cifar10_int8",
    "kws_dscnn_int8",
    "person_detect_int8_litert",
    "ad01_autoencoder_int8",
    "micro_speech_int8",
    "hello_world_int8",
    "mnv1_025_partial_int8",
    "mobilenetv2_035_160_int8",
    "ssd_slim_120x160_int8",
)
LIMITS = {
    "resnet8_cifar10_int8": 225_000,
    "kws_dscnn_int8": 60_000,
    "person_detect_int8_litert": 165_000,
    "person_detect_int8": 165_000,
}
"""Most cycles, by the name of the file."""
ENGINE = EngineConfig(
    input_bytes=8192,
    weight_bytes=16384,
    psum_bytes=15872,
    bias_bytes=512,
    roundings=("double", "away"),
    units=("elementwise", "max_pool"),
)
"""Buffers of 64 KiB in all; one engine for all networks, so that it is built once."""


def random_inputs(network: Network) -> list[np.ndarray]:
    """Return codes of a fixed seed for each input."""
    rng = np.random.default_rng(0)
    found = []
    for index in network.inputs:
        tensor = network.tensors[index]
        if np.dtype(tensor.dtype).kind == "f":
            found.append((rng.random(tensor.shape) * 2 - 1).astype(tensor.dtype))
            continue
        limits = np.iinfo(tensor.dtype)
        codes = rng.integers(limits.min, limits.max + 1, tensor.shape)
        found.append(codes.astype(tensor.dtype))
    return found


def main(argv: list[str] | None = None) -> int:
    """Print a row for each network; return the exit code."""
    parser = argparse.ArgumentParser(description="Run networks on the simulated engine.")
    parser.add_argument("models", nargs="*", type=Path, help=".tflite or .onnx files")
    parser.add_argument("--backend", choices=BACKENDS, default="auto")
    parser.add_argument("--target", help="rounding to follow; litert for the public models")
    parser.add_argument(
        "--sized", action="store_true", help="an engine of 64 KiB for each network, built for it"
    )
    arguments = parser.parse_args(argv)
    models, target = arguments.models, arguments.target
    if not models:
        models = [FOLDER / f"{name}.tflite" for name in DEFAULT]
        target = target or "litert"
    for path in models:
        if not path.exists():
            parser.error(f"{path} does not exist; name model files")

    print(
        f"{'network':<28} {'cycles':>10} {'predicted':>10} {'limit':>9} {'use of':>7} "
        f"{'host':>7} {'moved':>8} {'time':>7} {'cycles':>8}\n"
        f"{'':<28} {'':>10} {'':>10} {'':>9} {'lanes':>7} "
        f"{'share':>7} {'KiB':>8} {'s':>7} {'a second':>8}"
    )
    good = True
    for path in models:
        network = read_network(path, target=target)
        config = EngineConfig.for_network(network, 65536) if arguments.sized else ENGINE
        program = compile_network(network, config)
        inputs = random_inputs(network)
        began = time.perf_counter()
        result = run_program(program, inputs, backend=arguments.backend)
        seconds = time.perf_counter() - began
        report = result.report()
        limit = LIMITS.get(path.stem)
        good &= limit is None or report.cycles <= limit
        good &= abs(report.cycles - report.predicted_cycles) <= 0.01 * report.cycles
        print(
            f"{path.stem:<28} {report.cycles:>10} {report.predicted_cycles:>10} "
            f"{limit or '':>9} {report.utilisation:>7.1%} {report.host_share:>7.1%} "
            f"{report.moved_bytes / 1024:>8.0f} {seconds:>7.1f} {report.cycles / seconds:>8.0f}",
            flush=True,
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
