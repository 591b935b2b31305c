"""The split of a budget against every split."""

import itertools
import re
from collections.abc import Iterator

import pytest

from haloconv.planner.candidates import OBJECTIVES
from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.layer import ConvLayer
from haloconv.planner.search import search_tiles
from haloconv.planner.sizing import size_engine


def splits(budget: int, lanes: int) -> Iterator[EngineConfig]:
    """Yield every engine of ``lanes`` x ``lanes`` lanes whose buffers take at most ``budget``."""
    unit = lanes * lanes  # a word of either operand; words of lanes channels over lanes banks
    for groups in range(1, budget // (4 * lanes) + 1):
        for sums in range((budget - 4 * lanes * groups) // (4 * lanes) + 1):
            words = (budget - 4 * lanes * (groups + sums)) // (2 * unit)
            for weight in range(1, words):
                yield EngineConfig(
                    out_lanes=lanes,
                    split_lanes=lanes,
                    input_bytes=unit * (words - weight),
                    weight_bytes=unit * weight,
                    psum_bytes=4 * lanes * sums,
                    bias_bytes=4 * lanes * groups,
                )


def total_cycles(layers: list[ConvLayer], config: EngineConfig) -> int | None:
    try:
        return sum(search_tiles(layer, config).estimated_cycles for layer in layers)
    except PlanError:
        return None


TINY = [
    ConvLayer(6, 6, 3, 4, (3, 3), pads=(1, 1, 1, 1), name="first"),
    ConvLayer(6, 6, 4, 4, (3, 3), pads=(1, 1, 1, 1), groups=4, name="depthwise"),
    ConvLayer(6, 6, 4, 6, (1, 1), name="pointwise"),
]


def test_the_smallest_budget_is_exact() -> None:
    with pytest.raises(PlanError, match="a budget of 60 bytes") as caught:
        size_engine(TINY, 60, out_lanes=2, split_lanes=2)
    found = re.search(r"the smallest that works is (\d+)$", str(caught.value))
    assert found is not None
    least = int(found[1])
    config = size_engine(TINY, least, out_lanes=2, split_lanes=2)
    assert config.budget_bytes == least
    assert total_cycles(TINY, config) is not None
    with pytest.raises(PlanError, match=f"{least - 1} bytes is too small"):
        size_engine(TINY, least - 1, out_lanes=2, split_lanes=2)
    assert all(total_cycles(TINY, engine) is None for engine in splits(least - 1, 2))


def test_the_split_is_about_the_best_of_all() -> None:
    budget = 204
    config = size_engine(TINY, budget, out_lanes=2, split_lanes=2)
    assert config.budget_bytes <= budget
    got = total_cycles(TINY, config)
    # TINY has at most 3 groups of 2 output channels; more biases are of no use.
    engines = (engine for engine in splits(budget, 2) if engine.bias_bytes <= 24)
    totals = [total_cycles(TINY, engine) for engine in engines]
    best = min(total for total in totals if total is not None)
    assert got is not None
    assert best <= got <= 1.02 * best


def test_more_budget_never_makes_it_slower() -> None:
    layer = ConvLayer(16, 16, 16, 16, (3, 3), pads=(1, 1, 1, 1))
    cycles = []
    for budget in (512, 1024, 2048, 4096, 1 << 20):
        config = size_engine(layer, budget, out_lanes=4, split_lanes=4)
        assert config.budget_bytes <= budget
        assert (config.out_lanes, config.split_lanes) == (4, 4)
        cycles.append(search_tiles(layer, config).estimated_cycles)
    assert all(b <= 1.01 * a for a, b in itertools.pairwise(cycles))
    assert cycles[-1] < 1.02 * layer.macs / 16


def test_sizing_leaves_out_what_no_plan_uses() -> None:
    layer = ConvLayer(8, 8, 24, 8, (3, 3), pads=(1, 1, 1, 1))
    for objective in OBJECTIVES:
        config = size_engine(layer, 1 << 20, objective=objective)
        room = search_tiles(layer, config, objective).storage.capacity
        assert room is not None
        assert (room.used_input, room.used_weight) == (room.input, room.weight)
        assert (room.used_psum, room.used_bias) == (room.psum, room.bias)
        ample = search_tiles(layer, EngineConfig(input_bytes=1 << 16, weight_bytes=1 << 16))
        if objective == "cycles":
            assert search_tiles(layer, config).estimated_cycles == ample.estimated_cycles


def test_sizing_keeps_the_other_parameters() -> None:
    config = size_engine(
        TINY,
        4096,
        out_lanes=4,
        split_lanes=2,
        bus_bytes=4,
        requant_lanes=2,
        roundings=("double", "away"),
        weight_zero_points=False,
        address_bits=24,
    )
    assert (config.out_lanes, config.split_lanes, config.bus_bytes) == (4, 2, 4)
    assert (config.requant_lanes, config.address_bits) == (2, 24)
    assert (config.roundings, config.weight_zero_points) == (("double", "away"), False)


def test_sizing_checks_its_arguments() -> None:
    with pytest.raises(ValueError, match="at least one layer"):
        size_engine([], 4096)
    with pytest.raises(ValueError, match="one of cycles, bytes, storage, not 'area'"):
        size_engine(TINY, 4096, objective="area")
    with pytest.raises(TypeError, match="psum_bytes must be left to the budget, not 64"):
        size_engine(TINY, 4096, psum_bytes=64)
    with pytest.raises(ValueError, match="budget_bytes must be at least 1, not 0"):
        size_engine(TINY, 0)
    with pytest.raises(TypeError, match="budget_bytes must be an integer"):
        size_engine(TINY, 1.5)  # type: ignore[arg-type]
