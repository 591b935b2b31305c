"""Who does the work of a sweep: processes of this machine, or a Dask cluster."""

import asyncio
import multiprocessing
import os
import queue
import signal
import threading
import uuid
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any, Protocol

from haloconv.flow.sweep.jobs import Job, Outcome, run_job

__all__ = ["DaskWorkers", "LocalWorkers", "Workers"]

DIED = "its process died, killed or out of memory; run the sweep again, with fewer --jobs"


class Workers(Protocol):
    """Does jobs, some at a time."""

    def run(self, jobs: Sequence[Job]) -> Generator[tuple[Job, Outcome], None, None]:
        """Return each job with its outcome, in the order in which they finish.

        Closing the iterator early ends what is in flight.
        """
        ...

    def close(self) -> None:
        """Let go of what the workers hold."""
        ...


def _watch_parent() -> None:
    """End this process and what it started when its parent is gone.

    A worker waits for its next job on a pipe that it holds itself, so the death of its parent would
    never reach it.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    wait([parent.sentinel])
    _end_group(os.getpid())
    os._exit(1)


def _start_worker() -> None:
    if hasattr(os, "setpgid"):
        # A group of its own: the tools it starts can be ended with it, and an interrupt at the
        # terminal reaches the sweep alone, which then ends its workers.
        os.setpgid(0, 0)
    threading.Thread(target=_watch_parent, daemon=True).start()


def _end_group(pid: int) -> None:
    """End a worker and the tools that it started."""
    try:
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        pass


class _Worker:
    """One process that does a job at a time; a new one takes its place where it died.

    A pool of several would fail all its jobs with one process.
    """

    def __init__(self) -> None:
        self.pool: ProcessPoolExecutor | None = None
        self.pid = 0
        self.ended = False

    def do(self, job: Job) -> Outcome:
        try:
            if self.pool is None:
                context = multiprocessing.get_context("spawn")
                self.pool = ProcessPoolExecutor(1, mp_context=context, initializer=_start_worker)
                self.pid = self.pool.submit(os.getpid).result()
                if self.ended:
                    self.end()
            return self.pool.submit(run_job, job).result()
        except BrokenProcessPool:
            _end_group(self.pid)
            self.pool = None
            return Outcome(error=DIED, lost=True)
        except Exception as error:  # the job cannot be sent, or the sweep is ending
            return Outcome(error=f"{type(error).__name__}: {error}", lost=True)

    def end(self) -> None:
        self.ended = True
        if self.pid:
            _end_group(self.pid)
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)


class LocalWorkers:
    """Processes of this machine.

    Parameters
    ----------
    count : int
        Jobs at a time.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, jobs: Sequence[Job]) -> Generator[tuple[Job, Outcome], None, None]:
        """Return each job with its outcome, in the order in which they finish."""
        waiting = deque(jobs)
        done: queue.SimpleQueue[tuple[Job, Outcome]] = queue.SimpleQueue()
        workers = [_Worker() for _ in range(min(self.count, len(jobs)))]
        stop = threading.Event()

        def serve(worker: _Worker) -> None:
            while not stop.is_set():
                try:
                    job = waiting.popleft()
                except IndexError:
                    break
                done.put((job, worker.do(job)))

        threads = [
            threading.Thread(target=serve, args=(worker,), daemon=True) for worker in workers
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in jobs:
                yield done.get()
        finally:
            stop.set()
            for worker in workers:
                worker.end()
            for thread in threads:
                thread.join(timeout=10)

    def close(self) -> None:
        """Nothing is held between runs."""


class DaskWorkers:
    """The workers of a Dask cluster, which need the same haloconv and its tools.

    A worker that is lost costs its jobs in flight, which Dask gives to another one. Results come to
    this process alone.

    Parameters
    ----------
    address : str
        Of the scheduler, such as "tcp://host:8786".

    Raises
    ------
    ImportError
        If Dask is not installed.
    OSError
        If nothing answers at the address.
    """

    def __init__(self, address: str, timeout: float = 10) -> None:
        try:
            from distributed import Client  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ImportError("--dask needs Dask; run pip install 'haloconv[sweep]'") from None
        try:
            self._client: Any = Client(address, timeout=timeout, set_as_default=False)
        except (OSError, ValueError) as error:
            raise OSError(f"no Dask scheduler answers at {address}: {error}") from None

    def run(self, jobs: Sequence[Job]) -> Generator[tuple[Job, Outcome], None, None]:
        """Return each job with its outcome, in the order in which they finish."""
        from distributed import as_completed  # pyright: ignore[reportMissingImports]

        # Names of their own: the cluster may still know an earlier run's failures.
        run = uuid.uuid4().hex
        by_name = {f"{job.kind}-{job.key}-{run}": job for job in jobs}
        futures = [
            self._client.submit(run_job, job, key=name, pure=False, retries=0, priority=-place)
            for place, (name, job) in enumerate(by_name.items())
        ]
        finished = False
        try:
            for future in as_completed(futures, loop=self._client.loop):
                job = by_name[future.key]
                try:
                    error = future.exception()
                except (asyncio.CancelledError, CancelledError):
                    finished = True  # there is nobody left to cancel anything
                    raise OSError(
                        "the Dask scheduler is gone; what was finished is kept, run the sweep again"
                    ) from None
                yield (
                    job,
                    (
                        future.result()
                        if error is None
                        else Outcome(error=f"Dask: {type(error).__name__}: {error}", lost=True)
                    ),
                )
                future.release()
            finished = True
        finally:
            if not finished:
                self._client.cancel(futures, force=True)

    def close(self) -> None:
        """Leave the cluster."""
        self._client.close()
