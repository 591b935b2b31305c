"""Options become an engine, or one sentence about what is wrong."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import click
import pytest

from haloconv.flow.options import BYTES, LANES, ROUNDING_LIST, UNIT_LIST, EngineOptions
from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.network_file import read_network

_spec = importlib.util.spec_from_file_location(
    "small_network", Path(__file__).parents[1] / "support" / "small_network.py"
)
assert _spec is not None and _spec.loader is not None
small: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(small)

LAYER = ConvLayer(16, 16, 8, 16, (3, 3), pads=(1, 1, 1, 1))


@pytest.mark.parametrize(
    ("text", "size"),
    [("100", 100), ("32k", 32768), ("32KiB", 32768), ("2 kb", 2048), ("1M", 1048576), (7, 7)],
)
def test_byte_counts(text: Any, size: int) -> None:
    assert BYTES.convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "-1", "1.5k", "10G", "many"])
def test_byte_counts_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no number of bytes; write 32768"):
        BYTES.convert(text, None, None)


def test_lanes() -> None:
    assert LANES.convert("16x4", None, None) == (16, 4)
    with pytest.raises(click.BadParameter, match="'8' is no pair of lane counts; write 8x8"):
        LANES.convert("8", None, None)
    assert LANES.convert("64x1", None, None) == (64, 1)
    for lanes in ("0x4", "4x0", "65x4", "4x65"):
        with pytest.raises(click.BadParameter, match=f"'{lanes}' must be two lane counts from 1"):
            LANES.convert(lanes, None, None)


def test_roundings() -> None:
    assert ROUNDING_LIST.convert("double, fp32", None, None) == ("double", "fp32")
    with pytest.raises(click.BadParameter, match="'nearest' is no rounding mode; known are double"):
        ROUNDING_LIST.convert("double,nearest", None, None)


def test_units() -> None:
    assert UNIT_LIST.convert("elementwise, max_pool", None, None) == ("elementwise", "max_pool")
    assert UNIT_LIST.convert("none", None, None) == ()
    with pytest.raises(click.BadParameter, match="'add' is no unit; known are elementwise, max_p"):
        UNIT_LIST.convert("add", None, None)


def test_nothing_said_is_the_default_engine() -> None:
    assert EngineOptions().build() == EngineConfig()


def test_every_option_reaches_the_engine() -> None:
    options = EngineOptions(
        lanes=(4, 2),
        bus_bytes=16,
        input_bytes=1024,
        weight_bytes=2048,
        psum_bytes=512,
        bias_bytes=64,
        requant_lanes=2,
        roundings=("single", "double"),
        units=("max_pool",),
        address_bits=24,
    )
    assert options.build() == EngineConfig(
        out_lanes=4,
        split_lanes=2,
        bus_bytes=16,
        input_bytes=1024,
        weight_bytes=2048,
        psum_bytes=512,
        bias_bytes=64,
        requant_lanes=2,
        roundings=("double", "single"),
        units=("max_pool",),
        address_bits=24,
    )


def test_options_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    saved = EngineConfig(out_lanes=4, split_lanes=4, bus_bytes=4, roundings=("away",))
    path.write_text(json.dumps(saved.to_dict()), encoding="utf-8")
    assert EngineOptions(config=path).build() == saved
    built = EngineOptions(config=path, bus_bytes=2).build()
    assert (built.bus_bytes, built.out_lanes, built.roundings) == (2, 4, ("away",))


def test_a_description_serves_as_the_file(tmp_path: Path) -> None:
    """The JSON that ``haloconv verilog`` writes holds the parameters under "config"."""
    path = tmp_path / "engine.json"
    saved = EngineConfig(out_lanes=2, split_lanes=4)
    path.write_text(json.dumps({"config": saved.to_dict(), "ports": []}), encoding="utf-8")
    assert EngineOptions(config=path).build() == saved


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON file"),
        ("[1]", "must hold an object of engine parameters"),
        ('{"lanes": 3}', "'lanes' is no engine parameter"),
        ('{"out_lanes": "8"}', "out_lanes must be an integer, not '8'"),
        ('{"bus_bytes": 3}', "bus_bytes must be a power of two, not 3"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "engine.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(click.ClickException, match=message):
        EngineOptions(config=path).build()


def test_budget_excludes_single_buffers() -> None:
    options = EngineOptions(budget=8192, psum_bytes=0)
    with pytest.raises(click.UsageError, match="--budget and --psum-bytes exclude each other"):
        options.build([LAYER])


def test_budget_needs_layers() -> None:
    with pytest.raises(click.UsageError, match="--budget needs layers"):
        EngineOptions(budget=8192).build()


def test_budget_is_kept() -> None:
    built = EngineOptions(budget=8192, lanes=(4, 4), roundings=("fp32",)).build([LAYER])
    assert built.budget_bytes <= 8192
    assert (built.out_lanes, built.split_lanes, built.roundings) == (4, 4, ("fp32",))


@pytest.fixture
def network(tmp_path: Path) -> Any:
    path = tmp_path / "residual.tflite"
    path.write_bytes(small.residual())
    return read_network(path)


def test_a_network_sizes_its_engine(network: Any) -> None:
    config = EngineOptions(lanes=(4, 2), bus_bytes=4).build_for_network(network, latency=8)
    assert config == EngineConfig.for_network(network, 65536, 4, 2, bus_bytes=4, latency=8)
    options = EngineOptions(lanes=(4, 2), budget=512, units=("max_pool",), roundings=("away",))
    assert options.build_for_network(network) == EngineConfig.for_network(
        network, 512, 4, 2, units=("max_pool",), roundings=("away",)
    )


def test_given_buffers_are_kept_for_a_network(network: Any, tmp_path: Path) -> None:
    config = EngineOptions(weight_bytes=1024).build_for_network(network)
    # Rounding modes and units are left open: the network's compiler builds what it needs.
    assert config == EngineConfig(weight_bytes=1024)
    path = tmp_path / "engine.json"
    path.write_text(json.dumps(EngineConfig(out_lanes=4, bias_bytes=64).to_dict()))
    options = EngineOptions(config=path, bus_bytes=4)
    assert options.build_for_network(network) == EngineConfig(
        out_lanes=4, bias_bytes=64, bus_bytes=4
    )
    sized = EngineOptions(config=path, budget=2048).build_for_network(network)
    assert sized == EngineConfig.for_network(network, 2048, 4, weight_zero_points=True)


def test_a_network_with_a_budget_and_a_buffer(network: Any) -> None:
    with pytest.raises(click.UsageError, match="--budget and --input-bytes exclude each other"):
        EngineOptions(budget=512, input_bytes=64).build_for_network(network)
