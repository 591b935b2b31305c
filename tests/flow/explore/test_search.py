"""The search for an engine, against planning every one of a small set."""

import itertools

import pytest

from haloconv.flow.explore import search
from haloconv.flow.explore.devices import Capacity
from haloconv.flow.explore.model import AreaModel, samples_of
from haloconv.flow.explore.search import Explorer, Tried
from haloconv.flow.sweep.space import Point, WorkloadEntry
from haloconv.flow.sweep.workloads import Work, Workload, resolve, run_work
from haloconv.planner.errors import PlanError

from ...support.made_up_areas import training

LAYERS = ("6x6x3 k3 p1 m8", "4x4x8 k1 m4")
TINY = Capacity("tiny", "ecp5", 9000, 9000, 40, 24)
SIDES, BUSES = (1, 2, 4), (4,)
BUDGETS = [2048, 256]


@pytest.fixture
def work() -> Work:
    return Workload(WorkloadEntry("w", words=LAYERS)).work


@pytest.fixture
def explorer(work: Work, monkeypatch: pytest.MonkeyPatch) -> Explorer:
    monkeypatch.setattr(search, "SIDES", SIDES)
    monkeypatch.setattr(search, "BUSES", BUSES)
    monkeypatch.setattr(search, "FEWER_RESULTS", (1, 2))
    monkeypatch.setattr(Explorer, "_budgets", lambda self: BUDGETS)
    model = AreaModel("ecp5", samples_of(training()))
    return Explorer(work, TINY, model, clock_mhz=50)


def everything(explorer: Explorer, work: Work) -> list[Tried]:
    """Plan every engine of the small set with every budget."""
    found = []
    for pm, pr, bus, divisor in itertools.product(SIDES, SIDES, BUSES, (1, 2)):
        if pm // divisor < 1:
            continue
        parameters = {"out_lanes": pm, "split_lanes": pr, "bus_bytes": bus,
                      "requant_lanes": pm // divisor, "weight_zero_points": False}  # fmt: skip
        for budget in BUDGETS:
            try:
                config = resolve(Point(parameters, budget), [work], [work], "cycles", 16)
            except PlanError:
                continue
            cycles = run_work(work, config)["cycles"]
            area = explorer.model.predict(config)
            shares = TINY.shares(area)
            fits = all(
                share <= (0.85 if name in ("LUT", "FF") else 1) for name, share in shares.items()
            )
            if fits:
                found.append(Tried(config, area, shares, cycles, 50e6 / cycles, "fits"))
    return found


def test_smallest_and_fastest_are_those_of_everything(explorer: Explorer, work: Work) -> None:
    every = everything(explorer, work)
    top = max(tried.fps for tried in every)
    fast = explorer.fastest()
    assert fast.choice is not None and fast.choice.fps == top
    assert fast.choice.size == min(tried.size for tried in every if tried.fps == top)
    for wanted in (0.05 * top, 0.4 * top, 0.9 * top):
        small = explorer.smallest(wanted)
        least = min(tried.size for tried in every if tried.fps >= wanted)
        assert small.choice is not None and small.choice.size == least
        assert small.choice.fps >= wanted
    assert explorer.smallest(1.01 * top).choice is None
    assert explorer.planned < len(every)

    # Nothing that was planned gives more or takes less than the bounds that rule others out.
    bounds = {
        tuple(shell.parameters[name] for name in ("out_lanes", "split_lanes", "bus_bytes",
                                                  "requant_lanes")): shell
        for shell in explorer.shells
    }  # fmt: skip
    for tried in every:
        config = tried.config
        shell = bounds[
            config.out_lanes, config.split_lanes, config.bus_bytes, config.results_per_cycle
        ]
        assert tried.fps <= shell.fps
        assert tried.size[0] >= shell.share - 1e-9
