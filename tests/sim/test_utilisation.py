"""MAC utilisation at 8 x 8 lanes, 8-byte ports, latency 16 and 32 KiB.

bench/utilisation.py prints the table. Shares are worked from multiply-accumulates and cycles alone.
"""

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import plan_layer
from haloconv.planner.requantization import Requantization
from haloconv.planner.sizing import size_engine
from haloconv.sim.backend import choose_backend
from haloconv.sim.golden import golden_layer
from haloconv.sim.layer import simulate_layer

CHOICE = choose_backend("auto")
# The modes that test_models.py builds in too, so that both share a build.
FIXED = EngineConfig(roundings=("double", "away"))

SAME, SAME_EVEN = (1, 1, 1, 1), (0, 1, 0, 1)
TARGETS = {
    "first": (ConvLayer(32, 32, 3, 16, (3, 3), pads=SAME), 0.75),
    "32x32x16-16": (ConvLayer(32, 32, 16, 16, (3, 3), pads=SAME), 0.90),
    "32x32x16-32s2": (ConvLayer(32, 32, 16, 32, (3, 3), stride=(2, 2), pads=SAME_EVEN), 0.90),
    "16x16x32-32": (ConvLayer(16, 16, 32, 32, (3, 3), pads=SAME), 0.90),
    "16x16x32-64s2": (ConvLayer(16, 16, 32, 64, (3, 3), stride=(2, 2), pads=SAME_EVEN), 0.90),
    "8x8x64-64": (ConvLayer(8, 8, 64, 64, (3, 3), pads=SAME), 0.90),
    "depthwise": (ConvLayer(24, 24, 32, 32, (3, 3), pads=SAME, groups=32), 0.75),
}
"""The 3x3 layers of ResNet-8 and a depthwise layer of width 24, and the shares they must reach."""

MACS = {
    "first": 32 * 32 * 16 * 9 * 3,
    "32x32x16-16": 32 * 32 * 16 * 9 * 16,
    "32x32x16-32s2": 16 * 16 * 32 * 9 * 16,
    "16x16x32-32": 16 * 16 * 32 * 9 * 32,
    "16x16x32-64s2": 8 * 8 * 64 * 9 * 32,
    "8x8x64-64": 8 * 8 * 64 * 9 * 64,
    "depthwise": 24 * 24 * 32 * 9,
}


def test_the_engine_is_the_one_of_the_targets() -> None:
    assert (FIXED.lanes, FIXED.bus_bytes, FIXED.budget_bytes) == (64, 8, 32 * 1024)


@pytest.fixture(scope="module")
def sized() -> EngineConfig:
    config = size_engine([layer for layer, _ in TARGETS.values()], 32 * 1024)
    assert config.budget_bytes <= 32 * 1024
    assert (config.out_lanes, config.split_lanes, config.bus_bytes) == (8, 8, 8)
    return config


@pytest.mark.parametrize("name", TARGETS)
def test_predicted(name: str, sized: EngineConfig) -> None:
    """Tests of layers and models hold predicted cycles against the RTL's, to the cycle."""
    layer, share = TARGETS[name]
    for config in (FIXED, sized):
        plan = plan_layer(layer, config, latency=16)
        assert MACS[name] / (64 * plan.cycles) >= share, (name, config)
        assert plan.utilisation == MACS[name] / (64 * plan.cycles)


@pytest.mark.slow
@pytest.mark.skipif(
    CHOICE.name == "amaranth", reason=f"takes a compiled simulator; this machine: {CHOICE.reason}"
)
@pytest.mark.parametrize("name", TARGETS)
def test_measured(name: str) -> None:
    layer, share = TARGETS[name]
    rng = np.random.default_rng(1)
    arrays = {
        "inputs": rng.integers(-128, 128, layer.input_shape, dtype=np.int8),
        "weights": rng.integers(-127, 128, layer.weight_shape, dtype=np.int8),
        "bias": rng.integers(-1000, 1000, layer.out_channels, dtype=np.int32),
        "requantization": Requantization(multiplier=2**30, shift=-9),
    }
    result = simulate_layer(layer, FIXED, latency=16, backend="auto", **arrays)
    assert MACS[name] / (64 * result.cycles) >= share
    assert result.cycles == result.plan.cycles
    assert result.bytes_read + result.bytes_written == result.plan.moved_bytes.total
    np.testing.assert_array_equal(result.output, golden_layer(layer, **arrays))
