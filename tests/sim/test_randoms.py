"""Random cases: made again by their text, valid, and spread over the whole space."""

import re

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.requantization import ROUNDINGS
from haloconv.planner.tile import check_fit
from haloconv.sim.arrays import check_arrays
from haloconv.sim.golden import golden_layer
from haloconv.sim.randoms import KINDS, RESULTS, RandomCase, random_case, random_config

MANY = [random_case(seed, max_macs=5000) for seed in range(400)]


def same(a: RandomCase, b: RandomCase) -> bool:
    plain = ("kind", "layer", "config", "latency", "stalls", "stall_seed", "objective", "tile",
             "mode", "order", "result")  # fmt: skip
    if any(getattr(a, name) != getattr(b, name) for name in plain):
        return False
    values = [(getattr(a, name), getattr(b, name)) for name in ("inputs", "weights", "bias")]
    values.append((a.weight_zero_points, b.weight_zero_points))
    for name in ("multiplier", "shift", "scale", "zero_point", "clamp"):
        values.append((getattr(a.requantization, name, 0), getattr(b.requantization, name, 0)))
    return all(np.array_equal(x, y) for x, y in values)


@pytest.mark.parametrize("seed", [0, 3, 2**40])
def test_the_text_makes_the_case_again(seed: int) -> None:
    case = random_case(seed, max_macs=3000, roundings=("fp32", "raw"))
    assert repr(case) == f"random_case({seed}, max_macs=3000, roundings=('raw', 'fp32'))"
    again = eval(repr(case), {"random_case": random_case})
    assert same(case, again)
    assert not same(case, random_case(seed + 1, max_macs=3000, roundings=("fp32", "raw")))


def test_the_text_holds_a_given_engine() -> None:
    config = random_config(5)
    case = random_case(9, config=config)
    assert case.config == config
    names = {"random_case": random_case, "EngineConfig": EngineConfig}
    assert same(case, eval(repr(case), names))


def test_every_case_is_valid() -> None:
    for case in MANY:
        layer = case.layer
        assert layer.macs <= 5000, case
        assert case.inputs.shape[1:] == layer.input_shape[1:], case
        # Neither types, nor shapes, nor sums beyond int32 are refused, whatever the input.
        check_arrays(
            layer, case.inputs, case.weights, case.bias, case.weight_zero_points,
            case.requantization,
        )  # fmt: skip
        arrays = case.inputs, case.weights, case.bias, case.requantization
        output = golden_layer(layer, *arrays, case.weight_zero_points)
        assert output.dtype == (np.int32 if case.result == "raw" else np.int8), case
        assert case.result in ("raw", *case.config.built_roundings), case
        if case.weight_zero_points is not None:
            assert case.config.weight_zero_points, case
        if case.tile is not None:
            assert case.mode is not None
            assert check_fit(layer, case.config, case.tile, case.mode) is None, case
        assert set(case.arguments()) >= {"inputs", "weights", "tile", "stalls", "seed"}
        assert str(layer.kernel) in case.describe()


def test_the_whole_space_occurs() -> None:
    layers = [case.layer for case in MANY]
    assert {case.kind for case in MANY} == set(KINDS)
    assert {case.result for case in MANY} == set(RESULTS)
    assert {case.mode for case in MANY} == {None, "channel", "row", "depthwise"}
    assert {case.order for case in MANY} == {None, "hwmc", "mhwc"}
    assert {case.config.bus_bytes for case in MANY} == {1, 2, 4, 8, 16, 32}
    wanted = {
        "stride beyond the kernel": [
            any(s > k for s, k in zip(layer.stride, layer.kernel, strict=True)) for layer in layers
        ],
        "stride per axis": [layer.stride[0] != layer.stride[1] for layer in layers],
        "dilation per axis": [layer.dilation[0] != layer.dilation[1] for layer in layers],
        "a window in the padding alone": [
            layer.pads[0] >= layer.window[0] or layer.pads[2] >= layer.window[1] for layer in layers
        ],
        "four pads": [len(set(layer.pads)) == 4 for layer in layers],
        "height 1": [layer.in_height == 1 for layer in layers],
        "width 1": [layer.in_width == 1 for layer in layers],
        "one channel": [layer.in_channels == 1 for layer in layers],
        "one output": [layer.out_channels == 1 for layer in layers],
        "zero point -128": [layer.in_zero_point == -128 for layer in layers],
        "zero point 127": [layer.in_zero_point == 127 for layer in layers],
        "large kernel": [max(layer.kernel) > 6 for layer in layers],
        "no bias": [case.bias is None for case in MANY],
        "huge bias": [case.bias is not None and np.abs(case.bias).max() > 2**30 for case in MANY],
        "batch": [case.inputs.shape[0] == 2 for case in MANY],
        "one weight zero point": [isinstance(case.weight_zero_points, int) for case in MANY],
        "weight zero points": [isinstance(case.weight_zero_points, np.ndarray) for case in MANY],
        "weight -128": [bool((case.weights == -128).all()) for case in MANY],
        "no sums": [case.config.psum_bytes == 0 for case in MANY],
        "few requantisers": [
            case.config.results_per_cycle < case.config.out_lanes for case in MANY
        ],
        "stalls on every port": [min(case.stalls) > 0 for case in MANY],
        "one scale for all": [
            case.layer.out_channels > 1
            and case.requantization is not None
            and np.size(getattr(case.requantization, "scale", None)) == 1
            for case in MANY
        ],
        "left shift": [
            case.result not in ("raw", "fp32") and int(np.max(case.requantization.shift)) > 0
            for case in MANY
        ],
    }
    for what, hits in wanted.items():
        assert sum(hits) >= 3, what
    assert sum(case.stalls == (0.0, 0.0, 0.0) for case in MANY) > 150
    assert len({(case.config.out_lanes, case.config.split_lanes) for case in MANY}) > 20


def test_random_engines() -> None:
    configs = [random_config(seed) for seed in range(60)]
    assert configs[3] == random_config(3) != configs[4]
    assert all(config.built_roundings == ROUNDINGS for config in configs)
    assert all(config.lanes <= 24 for config in configs)
    assert {config.bus_bytes for config in configs} == {1, 2, 4, 8, 16, 32}
    assert any(config.out_lanes % config.split_lanes for config in configs)
    assert max(random_config(seed, max_lanes=64).lanes for seed in range(60)) > 24
    assert random_config(1, roundings=("raw", "away")).roundings == ("away",)
    for config in configs[:20]:  # each holds layers of most kinds
        kinds = {random_case(seed, config=config).kind for seed in range(30)}
        assert len(kinds) >= 5, config


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": -1}, ValueError, "seed must be at least 0, not -1"),
        ({"seed": 0.5}, TypeError, "seed must be an integer, not 0.5"),
        ({"seed": 0, "max_macs": 63}, ValueError, "max_macs must be at least 64, not 63"),
        ({"seed": 0, "roundings": "raw"}, TypeError, "roundings must be a sequence of names"),
        ({"seed": 0, "roundings": ()}, TypeError, "roundings must be a sequence of names, not ()"),
        ({"seed": 0, "roundings": ("up",)}, ValueError, "roundings must be of raw, double"),
        (
            {"seed": 0, "roundings": ("fp32",), "config": EngineConfig(roundings=("away",))},
            PlanError,
            "config must have one of the roundings fp32, but has away",
        ),
        (
            {
                "seed": 0,
                "config": EngineConfig(
                    out_lanes=64, split_lanes=1, input_bytes=64, weight_bytes=64, bias_bytes=256
                ),
                "roundings": ("double_up",),
            },
            PlanError,
            "config must have one of the roundings double_up, but has double",
        ),
    ],
)
def test_refusals(arguments: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        random_case(arguments.pop("seed"), **arguments)
