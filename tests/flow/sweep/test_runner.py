"""Sweeps: nothing is done twice, failures stay with their point, a kill costs what is in flight.

Synthesis is pretended (tests/support/fake_tools.py); planning is real.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.sweep import digest as digests
from haloconv.flow.sweep.results import results_record
from haloconv.flow.sweep.runner import Sweep
from haloconv.flow.sweep.space import read_space
from haloconv.flow.sweep.store import Store
from haloconv.flow.sweep.workers import LocalWorkers, Workers
from haloconv.planner.config import EngineConfig
from haloconv.planner.plan import plan_layer
from haloconv.planner.workload import parse_layer

SUPPORT = Path(__file__).parents[2] / "support"
FIRST, DEEP = "8x8x3 k3 p1 m8", "4x4x16 k3 p1 m16"
SPACE = f"""
clock_mhz = 50
[engine]
input_bytes = 1024
weight_bytes = 1024
psum_bytes = 1024
bias_bytes = 64
[grid]
lanes = ["1x2", "2x2"]
bus_bytes = [2, 4]
[workloads]
first = {{ layer = "{FIRST}" }}
"""
POINTS = [(1, 2, 2), (1, 2, 4), (2, 2, 2), (2, 2, 4)]


class Bench:
    """A folder with a space, and the pretended tools."""

    def __init__(self, folder: Path, tools: Any) -> None:
        self.folder, self.fake = folder, tools
        self.file, self.out = folder / "space.toml", folder / "out"
        self.calls_file = folder / "calls"
        self.sweep: Sweep

    def calls(self, what: str = "synthesize") -> list[str]:
        if not self.calls_file.exists():
            return []
        return [line for line in self.calls_file.read_text().splitlines() if line.startswith(what)]

    def run(
        self, text: str, workers: Callable[[], Workers] = lambda: LocalWorkers(2), **options: Any
    ) -> dict[str, Any]:
        self.file.write_text(text)
        with Store(self.out) as store:
            self.sweep = Sweep(
                read_space(self.file), store, workers, tools=self.fake.TOOLS, **options
            )
            self.sweep.run()
            return results_record(self.sweep)

    def rows(self, table: str) -> list[tuple[str, str]]:
        with sqlite3.connect(self.out / "sweep.sqlite") as data:
            return data.execute(f"SELECT key, status FROM {table}").fetchall()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.syspath_prepend(str(SUPPORT))
    monkeypatch.setenv("FAKE_CALLS", str(tmp_path / "calls"))
    import fake_tools  # pyright: ignore[reportMissingImports]

    return Bench(tmp_path, fake_tools)


def nobody() -> Workers:
    raise AssertionError("there is nothing to do")


def test_every_point_has_area_and_cycles(bench: Bench) -> None:
    record = bench.run(SPACE)
    assert (record["missing"], len(bench.calls())) == (0, 4)
    found = [
        (c["out_lanes"], c["split_lanes"], c["bus_bytes"])
        for c in (point["config"] for point in record["points"])
    ]
    assert found == POINTS
    for point in record["points"]:
        config = EngineConfig.from_dict(point["config"])
        assert (point["status"], point["error"]) == ("ok", None)
        area = bench.fake.area_of(config)
        assert point["area"] == area.to_dict() | {"lut4": area.luts + 2 * area.carries}
        assert point["blocks"]["datapath"] == point["area"]
        plan = plan_layer(parse_layer(FIRST), config)
        work = point["workloads"]["first"]
        assert work["cycles"] == plan.cycles
        assert work["macs"] == 8 * 8 * 8 * 27
        assert work["utilisation"] == pytest.approx(plan.utilisation, abs=1e-6)
        assert work["fps"] == pytest.approx(50e6 / plan.cycles, abs=1e-3)
        assert work["read_bytes"] + work["write_bytes"] == plan.moved_bytes.total
        assert work["write_bytes"] == 8 * 8 * 8
        (layer,) = work["layers"]
        assert (layer["mode"], layer["order"]) == (plan.mode, plan.order)
        assert layer["layer"]["out_channels"] == 8


def test_a_second_run_computes_nothing(bench: Bench) -> None:
    first = bench.run(SPACE)
    bench.calls_file.unlink()
    started = time.monotonic()
    assert bench.run(SPACE, nobody) == first
    assert bench.calls() == [] and bench.sweep.computed == 0
    assert time.monotonic() - started < 2


def test_a_further_workload_or_point_costs_only_itself(bench: Bench) -> None:
    bench.run(SPACE)
    more = SPACE.replace("bus_bytes = [2, 4]", "bus_bytes = [2, 4, 8]")
    record = bench.run(more + f'deep = {{ layer = "{DEEP}" }}\n')
    assert [line.split()[1:3] for line in bench.calls()[4:]] in (
        [["1x2", "8"], ["2x2", "8"]],
        [["2x2", "8"], ["1x2", "8"]],
    )
    assert all(set(point["workloads"]) == {"first", "deep"} for point in record["points"])
    # Two new points on two workloads, and four old ones on the new workload.
    assert (bench.sweep.computed, len(bench.rows("workload"))) == (2 + 4 + 4, 12)


def test_an_engine_that_two_points_share_is_built_once(bench: Bench) -> None:
    tiles = SPACE.replace("bus_bytes = [2, 4]", 'tile = ["2x2x3->4", "4x4x3->2"]')
    record = bench.run(tiles)
    assert len(bench.calls()) == 2
    assert len({point["id"] for point in record["points"]}) == len(record["points"]) == 4
    for point in record["points"]:
        assert point["tile"] == point["workloads"]["first"]["layers"][0]["tile"]
    # The same engine written twice is one point.
    same = SPACE + '[[points]]\nlanes = "1x2"\nbus_bytes = 2\nrequant_lanes = 1\n'
    assert len(bench.run(same)["points"]) == 4


def test_failures_stay_with_their_point(bench: Bench) -> None:
    text = (
        SPACE
        + f"""
[[points]]
lanes = "2x2"
address_bits = {bench.fake.REFUSED}
[[points]]
lanes = "2x2"
address_bits = {bench.fake.DEADLY}
[[points]]
lanes = "2x2"
input_bytes = 4
"""
    )
    record = bench.run(text)
    status = [point["status"] for point in record["points"]]
    assert status == ["ok"] * 4 + ["failed"] * 3
    refused, deadly, small = record["points"][4:]
    assert refused["error"] == "synthesis: Synthesis ended with signal 6"
    assert refused["area"] is None and "first" in refused["workloads"]
    assert "process died" in deadly["error"]
    assert small["error"].startswith("first: layer") and "no tile" in small["error"]
    assert small["area"]["luts"] == 1400 and small["workloads"] == {}

    # A refusal says something about the point and stands; a death does not, and is tried again.
    bench.calls_file.unlink()
    again = bench.run(text)
    assert again == record
    assert len(bench.calls()) == 1
    bench.calls_file.unlink()
    assert bench.run(text, retry_failed=True) == record
    assert len(bench.calls()) == 2


def test_another_generator_or_tool_is_another_design(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench.run(SPACE)
    monkeypatch.setenv("FAKE_TOOL", "fake 2")
    record = bench.run(SPACE)
    assert (len(bench.calls()), record["tool"]) == (8, "fake 2")
    assert len(bench.rows("synthesis")) == 8 and len(bench.rows("workload")) == 4
    # A lane more carefully written: the same names, another text.
    real = digests.source_digest
    monkeypatch.setattr(
        "haloconv.flow.sweep.jobs.source_digest",
        lambda *names: "other" if "haloconv.flow.synthesis.worker" in names else real(*names),
    )
    bench.run(SPACE)
    # The workers have the old sources and say so.
    assert [status for _, status in bench.rows("synthesis")].count("failed") == 4
    assert len(bench.calls()) == 8


def test_the_clock_and_its_seeds(bench: Bench) -> None:
    fmax = '[fmax]\ndevice = "LFE5U-25F"\nfrequency_mhz = 80\nseeds = '
    record = bench.run(SPACE + fmax + "[1, 2, 4]\n")
    for point in record["points"]:
        lanes = point["area"]["dsps"]
        runs = [80 + seed - lanes / 8 for seed in (1, 2, 4)]
        assert (point["fmax_runs"], point["fmax_mhz"]) == (runs, runs[1])
        work = point["workloads"]["first"]
        assert work["fps"] == pytest.approx(runs[1] * 1e6 / work["cycles"], abs=1e-3)
    assert (len(bench.calls()), len(bench.calls("place"))) == (4, 12)

    # Further seeds are run alone; the area is known without a clock, too.
    record = bench.run(SPACE + fmax + "[4, 5]\n")
    assert [point["fmax_runs"][1] - point["fmax_runs"][0] for point in record["points"]] == [1] * 4
    assert len(bench.calls("place")) == 16
    bench.run(SPACE, nobody)

    record = bench.run(SPACE + fmax + "[1, 13]\n")
    for point in record["points"]:
        assert point["status"] == "failed"
        assert point["error"] == "place and route: no place found"
        assert point["area"] is not None and len(point["fmax_runs"]) == 1


def test_another_way_to_place_is_another_result(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources of place and route that changed: no old clock is taken, and no area is lost."""
    space = SPACE + '[fmax]\ndevice = "LFE5U-25F"\nfrequency_mhz = 80\nseeds = [1]\n'
    bench.run(space)
    assert (len(bench.calls()), len(bench.calls("place"))) == (4, 4)
    real = digests.source_digest
    monkeypatch.setattr(
        "haloconv.flow.sweep.jobs.source_digest",
        lambda *names: "other" if "haloconv.flow.place_route.run" in names else real(*names),
    )
    record = bench.run(space)
    # The workers have the old sources and say so.
    assert all(point["fmax_mhz"] is None and point["area"] for point in record["points"])
    assert [status for _, status in bench.rows("placement")].count("failed") == 4
    assert (len(bench.calls()), len(bench.calls("place"))) == (4, 4)


def test_budgets_are_sized_for_the_workloads_named(bench: Bench) -> None:
    text = f"""
size_for = ["deep"]
[grid]
lanes = ["2x2"]
budget_bytes = [256, "1k", 40]
[workloads]
first = {{ layer = "{FIRST}" }}
deep = {{ layer = "{DEEP}" }}
"""
    record = bench.run(text)
    small, large, none = record["points"]
    for point, least, budget in ((small, 128, 256), (large, 256, 1024)):
        config = EngineConfig.from_dict(point["config"])
        assert least < config.budget_bytes <= budget
        assert point["given"]["budget_bytes"] == budget
    assert none["config"] is None and "a budget of 40 bytes is too small" in none["error"]
    assert len(bench.calls()) == 2
    bench.run(text, nobody)
    # What the buffers are not sized for may change.
    bench.run(text.replace(FIRST, "6x6x3 k3 p1 m8"))
    assert len(bench.calls()) == 2


def start(bench: Bench, text: str, jobs: int) -> "subprocess.Popen[bytes]":
    bench.file.write_text(text)
    command = [sys.executable, SUPPORT / "fake_tools.py", bench.file, bench.out, str(jobs)]
    return subprocess.Popen(command, env=os.environ | {"FAKE_SECONDS": "0.4"})


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened for too long"
        time.sleep(0.02)


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_sweep_killed_in_the_middle_goes_on(bench: Bench) -> None:
    text = SPACE.replace("bus_bytes = [2, 4]", "bus_bytes = [1, 2, 4, 8, 16]")
    kills = 0
    while kills < 3:
        process = start(bench, text, 2)
        begun = len(bench.calls())
        wait_for(lambda begun=begun: len(bench.calls()) >= begun + 3)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        # Workers notice and end, and leave the folder to the next sweep.
        pids = {int(line.split()[-1]) for line in bench.calls()}
        wait_for(lambda pids=pids: all(ended(pid) for pid in pids))
        finished = {key for key, status in bench.rows("synthesis") if status == "ok"}
        assert len(finished) >= kills
    before = len(bench.calls())
    record = bench.run(text)
    assert [point["status"] for point in record["points"]] == ["ok"] * 10
    assert len(bench.calls()) == before + 10 - len(finished)
    # At most two were in flight at each kill.
    assert len(bench.calls()) <= 10 + 2 * kills
    keys = [key for key, _ in bench.rows("synthesis")]
    assert len(keys) == len(set(keys)) == 10
    assert record == bench.run(text, nobody)


def test_one_sweep_at_a_time(bench: Bench) -> None:
    process = start(bench, SPACE, 1)
    wait_for(lambda: len(bench.calls()) >= 1)
    with pytest.raises(ValueError, match="another sweep runs in"):
        Store(bench.out)
    assert process.wait(60) == 0
    values = json.loads((bench.out / "sweep.json").read_text())
    assert [point["status"] for point in values["points"]] == ["ok"] * 4
    assert (bench.out / "sweep.csv").read_text().count("\n") == 5
