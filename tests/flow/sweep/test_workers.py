"""Local workers and those of a real Dask cluster, with processes that die."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.sweep.jobs import Job, sources
from haloconv.flow.sweep.results import results_record
from haloconv.flow.sweep.runner import Sweep
from haloconv.flow.sweep.space import read_space
from haloconv.flow.sweep.store import Store
from haloconv.flow.sweep.workers import DaskWorkers, LocalWorkers
from haloconv.planner.config import EngineConfig

SUPPORT = Path(__file__).parents[2] / "support"
SPACE = """
[engine]
input_bytes = 1024
weight_bytes = 1024
psum_bytes = 1024
bias_bytes = 64
[grid]
lanes = ["1x2", "2x2"]
bus_bytes = [1, 2, 4, 8, 16]
[workloads]
first = { layer = "8x8x3 k3 p1 m8" }
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SUPPORT))
    monkeypatch.setenv("FAKE_CALLS", str(tmp_path / "calls"))
    import fake_tools  # pyright: ignore[reportMissingImports]

    return fake_tools


def job(fake: Any, number: int, **changes: Any) -> Job:
    config = EngineConfig(out_lanes=2, split_lanes=2, bus_bytes=4, **changes)
    arguments = {"config": config, "family": "ecp5", "tools": fake.TOOLS, "tool": "fake 1"}
    arguments["sources"] = sources("synthesis")
    return Job("synthesis", str(number), "", {}, 1, arguments)


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def wait_for_calls(folder: Path, count: int) -> None:
    end = time.monotonic() + 60
    while len(calls(folder)) < count:
        assert time.monotonic() < end, "nothing happened for too long"
        time.sleep(0.02)


def test_a_death_costs_one_job(fake: Any) -> None:
    jobs = [job(fake, n, address_bits=fake.DEADLY if n == 1 else 32) for n in range(4)]
    jobs.append(job(fake, 4, input_bytes=12, address_bits=fake.REFUSED))
    outcomes = {job.key: outcome for job, outcome in LocalWorkers(2).run(jobs)}
    assert set(outcomes) == set("01234")
    assert [outcomes[key].error is None for key in "01234"] == [True, False, True, True, False]
    assert outcomes["1"].lost and "its process died" in str(outcomes["1"].error)
    assert not outcomes["4"].lost and outcomes["4"].error == "Synthesis ended with signal 6"


def test_other_sources_or_tools_are_refused(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old = job(fake, 0)
    old = Job("synthesis", "0", "", {}, 1, {**old.arguments, "sources": "older"})
    monkeypatch.setenv("FAKE_TOOL", "fake 2")
    outcomes = {job.key: outcome for job, outcome in LocalWorkers(1).run([old, job(fake, 1)])}
    assert outcomes["0"].lost and "is not the one that the sweep" in str(outcomes["0"].error)
    assert "has fake 2, but the sweep was started with fake 1" in str(outcomes["1"].error)


def test_leaving_early_ends_the_workers(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "60")
    results = LocalWorkers(1).run([job(fake, n) for n in range(3)])
    threading.Thread(target=lambda: (wait_for_calls(tmp_path, 1), os.kill(os.getpid(), 2))).start()
    started = time.monotonic()
    # Shells let what they run in the background ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            next(results)
        results.close()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < 30
    (line,) = calls(tmp_path)
    end = time.monotonic() + 10
    while Path(f"/proc/{line.split()[-1]}").exists():
        assert time.monotonic() < end, "the worker still runs"
        time.sleep(0.05)


@pytest.fixture
def cluster(tmp_path: Path, fake: Any) -> "Iterator[tuple[str, list[subprocess.Popen[bytes]]]]":
    """Give a scheduler's address and two workers, processes each, that nothing starts again."""
    pytest.importorskip("distributed")
    note = tmp_path / "scheduler.json"
    environment = os.environ | {
        "FAKE_SECONDS": "0.4",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0",
             "--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", note], **quiet,
        )
    ]  # fmt: skip
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", note,
             "--nthreads", "1", "--no-nanny", "--no-dashboard"],
            cwd=tmp_path, **quiet,
        )
        for _ in range(2)
    ]  # fmt: skip
    try:
        from distributed import Client  # pyright: ignore[reportMissingImports]

        end = time.monotonic() + 60
        while not note.exists():
            assert time.monotonic() < end, "the scheduler does not start"
            time.sleep(0.05)
        with Client(scheduler_file=str(note)) as client:
            client.wait_for_workers(2, timeout=60)
            address = client.scheduler.address
        yield address, workers
    finally:
        for process in [*workers, *processes]:
            process.kill()
            process.wait()


def test_a_cluster_that_loses_a_worker(
    cluster: "tuple[str, list[subprocess.Popen[bytes]]]", fake: Any, tmp_path: Path
) -> None:
    address, workers = cluster
    path = tmp_path / "space.toml"
    path.write_text(SPACE)

    class Watch:
        finished = 0

        def begin(self, jobs: int, weight: float) -> None:
            assert jobs == 20

        def done(self, job: Job, outcome: Any) -> None:
            self.finished += job.kind == "synthesis"
            if self.finished == 3:
                # In the middle of a job: the other one has taken it over or not yet.
                workers[0].send_signal(signal.SIGKILL)

    with Store(tmp_path / "out") as store:
        sweep = Sweep(
            read_space(path), store, lambda: DaskWorkers(address), tools=fake.TOOLS, watch=Watch()
        )
        sweep.run()
        record = results_record(sweep)
        rows = store._data.execute("SELECT key, status FROM synthesis").fetchall()
    assert workers[0].wait(10) == -signal.SIGKILL
    assert [point["status"] for point in record["points"]] == ["ok"] * 10
    assert len(rows) == len({key for key, _ in rows}) == 10
    # Both did some of it, the one that is left the most.
    pids = [line.split()[-1] for line in calls(tmp_path)]
    assert set(pids) == {str(worker.pid) for worker in workers}
    assert pids.count(str(workers[1].pid)) > pids.count(str(workers[0].pid))
    # One point was done again at most for each that was in flight, besides what had been sent.
    assert 10 <= len(pids) <= 12


def test_no_scheduler() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(OSError, match=r"no Dask scheduler answers at tcp://127.0.0.1:1"):
        DaskWorkers("tcp://127.0.0.1:1", timeout=1)
