"""The examples that come with the checkout."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.network_file import read_network
from haloconv.sim.network import run_network
from haloconv.sim.network_golden import golden_network

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits"
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def sample(name: str) -> Any:
    return np.load(DIGITS / f"{name}.npy", allow_pickle=False)


@pytest.mark.parametrize("target", ["tflm", "litert"])
def test_every_digit_is_told(target: str) -> None:
    network = read_network(DIGITS / "digits.tflite", target=target)
    assert [node.operator for node in network.nodes] == [
        "CONV_2D", "CONV_2D", "MEAN", "FULLY_CONNECTED"
    ]  # fmt: skip
    for digit, name in enumerate(NAMES):
        scores = golden_network(network, [sample(name)])[network.outputs[0]]
        assert scores.shape == (1, 10)
        assert scores.argmax() == digit, name


# As TensorFlow Lite Micro and LiteRT's reference kernels computed them.
SCORES = {
    "two": [-45, -43, 46, -13, -92, -23, -30, -35, -45, -50],
    "seven": [-59, -58, -12, -21, -57, 9, -58, 18, -22, -33],
}


@pytest.mark.parametrize("name", SCORES)
def test_the_engine_gives_the_reference_scores(name: str) -> None:
    model = DIGITS / "digits.tflite"
    config = EngineConfig.for_network(model, 8192, 4, 4)
    assert config.budget_bytes <= 8192
    result = run_network(model, config, inputs=[sample(name)], backend="amaranth")
    assert result.outputs[0].tolist() == [SCORES[name]]
    report = result.report()
    assert report.host_share == 0 and report.moved_bytes == report.predicted_moved_bytes
    # 8*8*8*9 + 4*4*16*72 products of the convolutions, 256 of the mean, 160 of the last layer.
    assert report.macs == 4608 + 18432 + 256 + 160
    assert abs(result.cycles - report.predicted_cycles) <= 0.01 * report.predicted_cycles


def test_the_readme_counts_what_is_there() -> None:
    network: Any = read_network(DIGITS / "digits.tflite")
    nodes = [node for node in network.nodes if node.operator != "MEAN"]
    parameters = sum(node.weights.size + node.bias.size for node in nodes)
    stated = re.search(r"(\d+) parameters", (DIGITS / "README.md").read_text(encoding="utf-8"))
    assert stated is not None and int(stated[1]) == parameters
