"""Engine configurations: derived sizes worked by hand, round trips and each refusal."""

import dataclasses
import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError, UnsupportedModel
from haloconv.planner.network import ConvNode, MoveNode, Network
from haloconv.planner.network_file import read_network

_spec = importlib.util.spec_from_file_location(
    "small_network", Path(__file__).parents[1] / "support" / "small_network.py"
)
assert _spec is not None and _spec.loader is not None
small: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(small)


def test_default_engine_by_hand():
    config = EngineConfig()
    assert (config.out_lanes, config.split_lanes, config.lanes) == (8, 8, 64)
    # A word of a bank feeds 8 lanes; 8 banks of 8 bytes make 64 bytes a row.
    assert (config.word_bytes, config.word_steps) == (8, 1)
    assert config.input_words == 4096 // 64
    assert config.weight_words == 8192 // 64
    assert config.results_per_cycle == 8 and config.group_steps == 1
    assert config.psum_words == 7936 // 32
    assert config.channel_groups == 256 // 32
    assert config.budget_bytes == 2 * (4096 + 8192) + 7936 + 256 == 32768
    # 64 channels: a second bias, and multiplier, shift and flags twice, and a zero point.
    assert config.allowance_bytes == 64 * 15
    assert dataclasses.replace(config, weight_zero_points=False).allowance_bytes == 64 * 14
    assert config.built_roundings == ("double",)


@pytest.mark.parametrize(
    ("out_lanes", "split_lanes", "word_bytes", "word_steps"),
    [(8, 8, 8, 1), (12, 8, 16, 2), (16, 4, 16, 4), (4, 16, 16, 1), (1, 1, 1, 1), (5, 3, 6, 2)],
)
def test_words_hold_whole_steps_of_both_lane_counts(out_lanes, split_lanes, word_bytes, word_steps):
    config = EngineConfig(
        out_lanes=out_lanes, split_lanes=split_lanes, input_bytes=65536, bias_bytes=4096
    )
    assert (config.word_bytes, config.word_steps) == (word_bytes, word_steps)
    # The least multiple of the split lanes that also feeds every output lane.
    least = next(n for n in range(1, 999) if n % split_lanes == 0 and n >= out_lanes)
    assert config.word_bytes == least
    assert config.input_words == 65536 // (split_lanes * word_bytes)


def test_requantisers_and_steps():
    config = EngineConfig(out_lanes=20, bias_bytes=256)
    assert config.results_per_cycle == 8 and config.group_steps == 3
    config = EngineConfig(out_lanes=20, requant_lanes=5, bias_bytes=256, psum_bytes=1000)
    assert config.results_per_cycle == 5 and config.group_steps == 4
    assert config.psum_words == 50
    assert config.channel_groups == 3
    assert EngineConfig(psum_bytes=0).psum_words == 0


def test_roundings_keep_the_order_of_their_codes():
    config = EngineConfig(roundings=("fp32", "double", "fp32"))
    assert config.roundings == config.built_roundings == ("double", "fp32")
    # No mode at all: raw int32 out is always there.
    assert EngineConfig(roundings=()).built_roundings == ()


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(),
        EngineConfig(out_lanes=4, requant_lanes=2, roundings=("away",), address_bits=20),
    ],
)
def test_round_trip_and_digest(config):
    again = EngineConfig.from_dict(config.to_dict())
    assert again == config and again.digest == config.digest
    assert re.fullmatch("[0-9a-f]{12}", config.digest)
    other = dataclasses.replace(config, bus_bytes=16)
    assert other.digest != config.digest


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"out_lanes": 0}, ValueError, "out_lanes must be at least 1, not 0"),
        ({"out_lanes": 65}, ValueError, "out_lanes must be at most 64, not 65"),
        ({"split_lanes": 8.0}, TypeError, "split_lanes must be an integer, not 8.0"),
        ({"split_lanes": 65}, ValueError, "split_lanes must be at most 64, not 65"),
        ({"bus_bytes": 6}, ValueError, "bus_bytes must be a power of two, not 6"),
        ({"bus_bytes": 64}, ValueError, "bus_bytes must be at most 32, not 64"),
        ({"requant_lanes": 9}, ValueError, "requant_lanes must be at most 8, not 9"),
        ({"requant_lanes": 0}, ValueError, "requant_lanes must be at least 1, not 0"),
        ({"input_bytes": 63}, ValueError, "input_bytes must be at least 64, not 63"),
        ({"input_bytes": 1 << 25}, ValueError, "input_bytes must be at most 16777216"),
        ({"weight_bytes": 63}, ValueError, "weight_bytes must be at least 64, not 63"),
        ({"psum_bytes": -1}, ValueError, "psum_bytes must be at least 0, not -1"),
        ({"bias_bytes": 31}, ValueError, "bias_bytes must be at least 32, not 31"),
        ({"roundings": "double"}, TypeError, "roundings must be a tuple of names, not 'double'"),
        ({"roundings": {"double"}}, TypeError, "roundings must be a tuple of names"),
        (
            {"roundings": ("doble",)},
            ValueError,
            "roundings must be of double, double_up, single, away, fp32, not 'doble'",
        ),
        (
            {"serial_requantizers": True, "roundings": ("double", "fp32")},
            ValueError,
            "serial_requantizers must be False where 'fp32' is built, not True",
        ),
        (
            {"serial_requantizers": True, "units": ("elementwise",)},
            ValueError,
            "serial_requantizers must be False where 'elementwise' is built, not True",
        ),
        ({"serial_requantizers": 1}, TypeError, "serial_requantizers must be "),
        ({"counters": 1}, TypeError, "counters must be "),
        ({"address_bits": 15}, ValueError, "address_bits must be at least 16, not 15"),
        ({"address_bits": 65}, ValueError, "address_bits must be at most "),
    ],
)
def test_refusals(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        EngineConfig(**arguments)


def test_unknown_parameter_of_a_dictionary():
    with pytest.raises(ValueError, match="'lanes' is no engine parameter; known are "):
        EngineConfig.from_dict({"lanes": 8})


def test_parameters_are_named():
    with pytest.raises(TypeError):
        EngineConfig(8)  # type: ignore[misc]


@pytest.fixture
def residual(tmp_path: Path) -> Path:
    """A depthwise convolution, ADD and maximum pooling."""
    path = tmp_path / "residual.tflite"
    path.write_bytes(small.residual())
    return path


def test_an_engine_for_a_network_has_what_it_needs(residual):
    config = EngineConfig.for_network(residual, 4096, 4, 2, bus_bytes=4, latency=8)
    assert (config.out_lanes, config.split_lanes, config.bus_bytes) == (4, 2, 4)
    assert config.budget_bytes <= 4096
    assert config.units == ("elementwise", "max_pool")
    assert config.roundings == ("double",)
    assert config.weight_zero_points is False
    # Three weights of four channels, their biases and a tile of the input have to be there.
    assert config.weight_bytes >= 3 * 3 * 4 and config.bias_bytes >= 4 * 4
    again = EngineConfig.for_network(
        read_network(residual), 4096, out_lanes=4, split_lanes=2, bus_bytes=4, latency=8
    )
    assert again == config
    assert EngineConfig.for_network(residual).lanes == 64


def test_options_win_over_what_the_network_needs(residual):
    config = EngineConfig.for_network(
        residual, 4096, 4, 2, units=(), roundings=("double", "away"), weight_zero_points=True
    )
    assert config.units == () and config.roundings == ("double", "away")
    assert config.weight_zero_points is True


def test_weight_zero_points_are_built_where_one_is_not_zero(residual):
    network = read_network(residual)

    def with_zero_points(value: int) -> Network:
        first, *rest = network.nodes
        assert isinstance(first, ConvNode)
        zeros = np.array([0, 0, value, 0], np.int8)
        changed = dataclasses.replace(first, weight_zero_points=zeros)
        return dataclasses.replace(network, nodes=(changed, *rest))

    for value in (0, 3):
        config = EngineConfig.for_network(with_zero_points(value), 4096, 4, 2)
        assert config.weight_zero_points is (value != 0)


def test_refused_networks(residual, tmp_path):
    with pytest.raises(PlanError, match="a budget of 40 bytes is too small"):
        EngineConfig.for_network(residual, 40)
    with pytest.raises(TypeError, match="input_bytes must be left to the budget"):
        EngineConfig.for_network(residual, input_bytes=64)
    with pytest.raises(UnsupportedModel, match=r"a model must be a \.tflite or \.onnx file"):
        EngineConfig.for_network(tmp_path / "model.h5")
    node = MoveNode(index=0, name="a", operator="RESHAPE", inputs=(0,), outputs=(1,), kind="view")
    network = read_network(residual)
    with pytest.raises(PlanError, match="has no layer that uses the buffers of an engine"):
        EngineConfig.for_network(dataclasses.replace(network, nodes=(node,)))
