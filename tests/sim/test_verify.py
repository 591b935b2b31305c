"""Given and random layers in RTL: outputs and bytes exact, cycles as planned."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import plan_layer
from haloconv.planner.requantization import ROUNDINGS
from haloconv.planner.traffic import is_channelwise, loop_trips
from haloconv.sim import verify
from haloconv.sim.backend import BackendUnavailable, choose_backend
from haloconv.sim.cases import load_cases
from haloconv.sim.golden import golden_layer
from haloconv.sim.verify import (
    LANES,
    RESULTS,
    Task,
    Verification,
    case_tasks,
    random_tasks,
    run_tasks,
    small_engine,
    split_tile,
    spread_tasks,
    verify_case,
    verify_given_cases,
    verify_random,
)

CASES = load_cases(Path(__file__).parents[1] / "data" / "cases")
CONFIGS = [EngineConfig(out_lanes=pm, split_lanes=pr, roundings=ROUNDINGS) for pm, pr in LANES]
SPREAD = spread_tasks(CASES, CONFIGS)
FULL = [task for task in SPREAD if task.arguments["config"] in CONFIGS]
SMALL = [task for task in SPREAD if task.arguments["config"] not in CONFIGS]
CHOICE = choose_backend("auto")
compiled = pytest.mark.skipif(
    CHOICE.name == "amaranth", reason=f"takes a compiled simulator; this machine: {CHOICE.reason}"
)

TINY = EngineConfig(
    out_lanes=2,
    split_lanes=2,
    bus_bytes=4,
    input_bytes=64,
    weight_bytes=64,
    psum_bytes=64,
    bias_bytes=16,
    roundings=(),
)
LAYER = ConvLayer(
    in_height=4, in_width=3, in_channels=3, out_channels=3, kernel=(2, 2), has_bias=False
)


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "inputs": rng.integers(-128, 128, LAYER.input_shape, dtype=np.int8),
        "weights": rng.integers(-128, 128, LAYER.weight_shape, dtype=np.int8),
    }


def check(found: Verification) -> None:
    assert found.error is None, f"{found.title} ({found.detail}): {found.error}"
    assert found.passed, f"{found.title} ({found.detail}): {found.complaint()}"
    # Stronger than the 1 % of `passed`: without random stalls the plan holds to the cycle.
    if not found.stalled:
        assert found.cycles == found.predicted_cycles, f"{found.title} ({found.detail})"


# The given cases


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=[f"{pm}x{pr}" for pm, pr in LANES])
def test_given_cases_in_full_buffers(config: EngineConfig) -> None:
    """Expected outputs come from the files of the cases."""
    tasks = [task for task in FULL if task.arguments["config"] == config]
    assert len(tasks) > 30
    for task, found in zip(tasks, run_tasks(tasks), strict=True):
        check(found)
        if task.arguments["tile"] is not None:
            extents = extents_of(task.arguments["layer"])
            for loop, extent in extents.items():
                assert found.trips[loop] > 1 or extent == 1, (found.title, loop)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", SMALL, ids=[f"{task.arguments['layer'].name}-{i}" for i, task in enumerate(SMALL)]
)
def test_given_cases_in_small_buffers(task: Task) -> None:
    """The planner must split; the next test says in what."""
    check(task.run())


def extents_of(layer: ConvLayer) -> dict[str, int]:
    channelwise = is_channelwise(layer)
    return {
        "h": layer.out_height,
        "w": layer.out_width,
        "c": 1 if channelwise else layer.in_channels // layer.groups,
        "m": layer.out_channels if channelwise else layer.out_channels // layer.groups,
    }


def test_small_buffers_split_every_dimension() -> None:
    """Least parts by hand: the buffers hold 3 x 3 outputs, Pm output and Pr input channels."""
    split: Counter[str] = Counter()
    whole = 0
    for task in SMALL:
        layer, config = task.arguments["layer"], task.arguments["config"]
        raw = task.arguments["requantization"] is None
        plan = plan_layer(layer, config, raw=raw)
        trips = loop_trips(layer, plan.tile)
        extents = extents_of(layer)
        assert trips.m >= -(-extents["m"] // config.out_lanes), layer.name
        names = [name for name in "hwcm" if getattr(trips, name) > 1]
        split.update(names)
        whole += len(names) == 4
    assert min(split[name] for name in "hwcm") >= 8, split
    assert whole >= 2
    assert len(SMALL) >= 25


def test_the_spread_meets_every_choice() -> None:
    """Each case in each result; each of lanes, results, stalls, tiles and orders with each."""
    seen: Counter[tuple[object, ...]] = Counter()
    for task in FULL:
        a = task.arguments
        result = "raw" if a["requantization"] is None else a["requantization"].rounding
        lanes = a["config"].out_lanes, a["config"].split_lanes
        seen.update(
            {
                (a["layer"].name, result),
                (lanes, result),
                (lanes, a["stalls"]),
                (lanes, a["mode"], a["order"]),
                (result, a["stalls"]),
                (a["layer"].name, a["stalls"]),
            }
        )
    for case in CASES:
        for result in RESULTS:
            assert seen[case.name, result] == 1
        assert seen[case.name, 0.0] and seen[case.name, 0.3]
    for lanes in LANES:
        assert all(seen[lanes, result] for result in RESULTS)
        assert seen[lanes, 0.0] and seen[lanes, 0.3] and seen[lanes, None, None]
        for mode in ("channel", "row"):
            assert seen[lanes, mode, "hwmc"] and seen[lanes, mode, "mhwc"], (lanes, mode)
    assert all(seen[result, share] for result in RESULTS for share in (0.0, 0.3))


def test_the_whole_product_by_its_counts() -> None:
    tasks = case_tasks(CASES[:2], CONFIGS, RESULTS, (0.0, 0.3), small=True, split=True)
    # Planned in two buffer sizes, and split in two modes and two orders; 6 results, 2 stalls.
    assert len(tasks) == 2 * len(LANES) * (2 + 2 * 2) * 6 * 2
    assert len({task.title for task in tasks}) == len(tasks)
    assert len(case_tasks(CASES[:3], CONFIGS[:2], ("raw", "away"), (0.0,))) == 3 * 2 * 2
    (depthwise,) = [case for case in CASES if case.name == "depthwise_3x3"]
    modes = [
        t.arguments["mode"] for t in case_tasks([depthwise], CONFIGS[:1], ("raw",), split=True)
    ]
    assert modes == [None, "depthwise", "depthwise"]


def test_given_cases_by_one_call() -> None:
    (case,) = [case for case in CASES if case.name == "left_shift"]
    config = replace(TINY, roundings=("away",))
    found = list(verify_given_cases([case], [config], ("raw", "away"), backend="amaranth"))
    assert [item.title.split(",")[0] for item in found] == ["left_shift raw", "left_shift away"]
    for item in found:
        check(item)
        assert item.outputs == 5 * 5 * 3


# Random layers


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10_000, 10_600, 200))
def test_random_layers_on_shared_engines(seed: int) -> None:
    kinds: Counter[str] = Counter()
    for found in verify_random(60, seed, backend="auto", cases_per_engine=60):
        print(found.title)
        check(found)
        kinds[found.detail.partition(" (")[0]] += 1
    assert len(kinds) > 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20_000, 20_016, 4))
def test_random_layers_on_engines_of_their_own(seed: int) -> None:
    for found in verify_random(4, seed, max_macs=1000, backend="amaranth", cases_per_engine=1):
        print(found.title)
        check(found)


def test_random_tasks() -> None:
    own = random_tasks(3, 7, backend="amaranth")
    assert [task.arguments["seed"] for task in own] == [7, 8, 9]
    assert all("config" not in task.arguments for task in own)
    shared = random_tasks(6, 7, backend="amaranth", cases_per_engine=3, roundings=("raw", "away"))
    configs = [task.arguments["config"] for task in shared]
    assert configs[0] == configs[1] == configs[2] != configs[3] == configs[5]
    assert configs[0].roundings == ("away",)
    again = random_tasks(6, 7, backend="amaranth", cases_per_engine=3, roundings=("raw", "away"))
    assert [task.arguments for task in again] == [task.arguments for task in shared]
    with pytest.raises(ValueError, match="count must be at least 1, not 0"):
        random_tasks(0)
    with pytest.raises(ValueError, match="seed must be at least 0, not -1"):
        random_tasks(1, -1)
    with pytest.raises(ValueError, match="cases_per_engine must be at least 1, not 0"):
        random_tasks(1, cases_per_engine=0)


# What a verification tells


def test_a_layer_that_agrees() -> None:
    data = arrays()
    found = verify_case("mine", LAYER, TINY, **data)
    check(found)
    assert (found.title, found.outputs, found.differences) == ("mine", 3 * 2 * 3, 0)
    assert found.complaint() == ""
    assert (found.macs, found.lanes) == (3 * 2 * 3 * 2 * 2 * 3, 4)
    assert found.utilisation == found.macs / (4 * found.cycles)
    assert found.backend == "amaranth"
    assert found.bytes_counted["output"] == 4 * 18
    # The buffers hold a part only, and each input byte is wanted at least once.
    assert found.bytes_counted["input"] >= 36 and found.bytes_counted["weight"] >= 36
    assert found.bytes_counted["bias"] == found.bytes_counted["sums"] == 0
    values = found.to_dict()
    assert values["passed"] is values["exact"] is values["bytes_exact"] is True
    assert values["cycles"] == found.cycles


def test_wrong_outputs_are_counted() -> None:
    data = arrays()
    right = golden_layer(LAYER, **data)
    wrong = right.copy()
    wrong.flat[[0, 5]] ^= 1
    found = verify_case("mine", LAYER, TINY, expected=wrong, **data)
    assert (found.differences, found.exact, found.passed) == (2, False, False)
    assert found.bytes_exact and found.cycles_close
    assert found.complaint() == "2 of 18 outputs differ"
    other_type = verify_case("mine", LAYER, TINY, expected=right.astype(np.int64), **data)
    assert other_type.differences == 18
    by_hash = verify_case("mine", LAYER, TINY, expected="0" * 64, **data)
    assert by_hash.differences == 18


def test_wrong_bytes_and_cycles_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    true = verify.simulate_layer

    def wrong(*args, **kwargs):
        result = true(*args, **kwargs)
        counters = result.counters | {"weight_bytes": 1}
        return replace(result, counters=counters, cycles=result.cycles + result.cycles // 50)

    monkeypatch.setattr(verify, "simulate_layer", wrong)
    found = verify_case("mine", LAYER, TINY, **arrays())
    assert found.exact and not found.bytes_exact and not found.cycles_close
    assert re.fullmatch(
        r"1 weight bytes counted, \d+ planned; \d+ cycles measured, \d+ planned",
        found.complaint(),
    )
    stalled = verify_case("mine", LAYER, TINY, stalls=0.5, **arrays())
    assert stalled.cycles_close and not stalled.passed


def test_errors_become_results() -> None:
    config = replace(TINY, weight_bytes=4)
    found = verify_case("mine", LAYER, config, **arrays())
    assert found.error is not None and found.error.startswith("PlanError: ")
    assert "weight_bytes" in found.complaint()
    assert not (found.exact or found.bytes_exact or found.cycles_close or found.passed)
    assert found.utilisation == 0.0
    assert found.to_dict()["error"] == found.error


def test_a_missing_simulator_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args, **kwargs):
        raise BackendUnavailable("no compiler here")

    monkeypatch.setattr(verify, "simulate_layer", refuse)
    with pytest.raises(BackendUnavailable, match="no compiler"):
        verify_case("mine", LAYER, TINY, **arrays())


@pytest.mark.slow
def test_results_of_several_processes_come_in_order() -> None:
    """More than a process is given at once, and two engines."""
    titles = [f"number {i}" for i in range(15)]
    other = replace(TINY, out_lanes=1)
    tasks = [
        Task(
            title,
            verify_case,
            {"title": title, "layer": LAYER, "config": TINY if i < 13 else other, **arrays(i)},
        )
        for i, title in enumerate(titles)
    ]
    found = list(run_tasks(tasks, jobs=2))
    assert [item.title for item in found] == titles
    assert [item.lanes for item in found] == [4] * 13 + [2] * 2
    for item in found:
        check(item)
    with pytest.raises(ValueError, match="jobs must be at least 1, not 0"):
        list(run_tasks(tasks, jobs=0))


# Small engines and split tiles


def test_small_engine_by_hand() -> None:
    layer = ConvLayer(in_height=9, in_width=9, in_channels=10, out_channels=10, kernel=(3, 3))
    config = small_engine(layer, EngineConfig(out_lanes=4, split_lanes=4))
    # 3 x 3 outputs span 5 x 5 inputs: 25 words of 4 channels in 4 banks, 7 words each.
    assert config.input_bytes == 7 * 4 * 4
    # 9 taps of 4 x 4 weights; 9 int32 sums of 4 channels; 4 biases.
    assert (config.weight_bytes, config.psum_bytes, config.bias_bytes) == (144, 9 * 16, 16)
    depthwise = ConvLayer(
        in_height=9, in_width=9, in_channels=10, out_channels=10, kernel=(3, 3), groups=10
    )
    assert small_engine(depthwise, EngineConfig(out_lanes=4, split_lanes=4)).psum_bytes == 0


def test_split_tile_by_hand() -> None:
    layer = ConvLayer(in_height=10, in_width=7, in_channels=5, out_channels=1, kernel=(1, 1))
    tile = split_tile(layer, EngineConfig(), "channel")
    assert tile is not None
    # Halves of 10, 7 and 5 that do not divide them: 6, 4 and 3.
    assert (tile.height, tile.width, tile.in_channels, tile.out_channels) == (6, 4, 3, 1)
    assert split_tile(layer, replace(TINY, psum_bytes=0), "channel") is None
