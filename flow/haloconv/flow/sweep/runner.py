"""A sweep from a space to its results: what is known is looked up, the rest is done and kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from haloconv.flow.sweep.digest import digest
from haloconv.flow.sweep.jobs import Job, Outcome, Tools, sources
from haloconv.flow.sweep.space import Point, Space, tile_dict
from haloconv.flow.sweep.store import Row, Store
from haloconv.flow.sweep.workers import Workers
from haloconv.flow.sweep.workloads import Workload, resolve
from haloconv.planner.config import EngineConfig

__all__ = ["Built", "Sweep", "Watch"]


class Watch(Protocol):
    """Is told how a sweep goes."""

    def begin(self, jobs: int, weight: float) -> None:
        """So many jobs are to be done, which weigh so much in all."""
        ...

    def done(self, job: Job, outcome: Outcome) -> None:
        """A job is finished and kept."""
        ...


class _Nobody:
    def begin(self, jobs: int, weight: float) -> None:
        """Say nothing."""

    def done(self, job: Job, outcome: Outcome) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class Built:
    """What is known of a point; rows are None where the work is still to be done.

    ``missing`` says whether anything is; the seeds of ``placements`` are those of the space.
    """

    point: Point
    config: EngineConfig | None
    error: str | None = None
    synthesis: Row | None = None
    placements: tuple[Row | None, ...] = ()
    workloads: tuple[Row | None, ...] = ()

    @property
    def missing(self) -> bool:
        """Whether work is still to be done."""
        if self.config is None:
            return self.error is None
        if self.synthesis is None or None in self.workloads:
            return True
        return self.synthesis.error is None and None in self.placements


class Sweep:
    """A space and the folder that keeps what is known of it.

    Parameters
    ----------
    space : Space
    store : Store
    workers : callable
        Returns the workers; not called where everything is known.
    tools : Tools
    watch : Watch or None
    retry_failed : bool
        Do failed work once more.

    Raises
    ------
    PlanError
        If a workload does not hold up.
    ToolError
        If a tool of the sweep is missing.
    """

    def __init__(
        self,
        space: Space,
        store: Store,
        workers: Callable[[], Workers],
        *,
        tools: Tools | None = None,
        watch: Watch | None = None,
        retry_failed: bool = False,
    ) -> None:
        self.space, self.store, self.workers = space, store, workers
        self.tools = Tools() if tools is None else tools
        self.watch: Watch = _Nobody() if watch is None else watch
        self.retry_failed = retry_failed
        self.workloads = [Workload(entry) for entry in space.workloads]
        self.sizing = [work for work in self.workloads if work.name in space.size_for]
        self.tool = self.tools.tool(space.family)
        self.placer = self.tools.placer(space.family) if space.fmax is not None else ""
        self.computed = 0
        self._tried: set[tuple[str, str]] = set()

    # Keys

    def sizing_key(self, point: Point) -> str:
        """Return what names the engine of a point whose buffers or options are still open."""
        return digest(
            [
                point.to_dict(),
                [work.digest for work in self.sizing],
                [work.digest for work in self.workloads if work.is_network],
                self.space.objective,
                self.space.latency,
                sources("sizing"),
            ]
        )

    def synthesis_key(self, config: EngineConfig) -> str:
        """Return what names the synthesis of an engine."""
        parts = [config.to_dict(), self.space.family, self.tool, sources("synthesis")]
        return digest(parts)

    def placement_key(self, config: EngineConfig, seed: int) -> str:
        """Return what names one run of place and route."""
        settings = self.space.fmax
        assert settings is not None
        known = settings.to_dict() | {"seeds": [seed]}
        parts = [self.synthesis_key(config), known, self.placer, sources("placement")]
        return digest(parts)

    def workload_key(self, config: EngineConfig, point: Point, work: Workload) -> str:
        """Return what names a workload on an engine."""
        return digest(
            [
                config.to_dict(),
                None if point.tile is None else tile_dict(point.tile),
                work.digest,
                self.space.objective,
                self.space.latency,
                sources("workload"),
            ]
        )

    # Work

    def run(self) -> None:
        """Do everything that is not known yet.

        Raises
        ------
        KeyboardInterrupt
            If the user interrupts; what was finished is kept.
        """
        # Sizing first, as it decides which engines there are.
        self._do(self._sizing_jobs())
        self._do(self._jobs())

    def _do(self, jobs: Iterable[Job]) -> None:
        # Plans first, as they take a second, so that each synthesis completes a point; then the
        # heaviest, so that the last ones do not keep all but one worker waiting.
        todo = sorted(jobs, key=lambda job: (job.kind != "workload", -job.weight))
        if not todo:
            return
        self.watch.begin(len(todo), sum(job.weight for job in todo))
        # Closed at the end, so that work in flight ends with an interrupt.
        with closing(self.workers()) as workers, closing(workers.run(todo)) as results:
            for job, outcome in results:
                self._keep(job, outcome)
                self.computed += 1
                self.watch.done(job, outcome)

    def _keep(self, job: Job, outcome: Outcome) -> None:
        row = Row(outcome.output, outcome.error, outcome.seconds, outcome.lost)
        self._tried.add((job.kind, job.key))
        if job.kind != "placement":
            self.store.put(job.kind, job.key, job.asked, row)
            return
        # A placement brings a synthesis along, and has a row for each seed.
        config, seeds = job.arguments["config"], job.arguments["seeds"]
        asked = {name: job.asked[name] for name in ("config", "family", "tool")}
        if outcome.output is None:
            known = self.store.get("synthesis", [job.key]).get(job.key)
            if known is None or known.error is not None:
                self.store.put("synthesis", job.key, asked, row)
        else:
            made = outcome.output["synthesis"]
            self.store.put("synthesis", job.key, asked, Row(made, None, made["seconds"]))
        for seed in seeds:
            run = {} if outcome.output is None else dict(outcome.output["runs"][str(seed)])
            seconds, error = run.pop("seconds", 0.0), run.pop("error", outcome.error)
            key = self.placement_key(config, seed)
            self._tried.add(("placement", key))
            seed_row = Row(None if error else run, error, seconds, outcome.lost)
            self.store.put("placement", key, {**job.asked, "seed": seed}, seed_row)

    def _known(self, kind: str, key: str) -> Row | None:
        """Return a row that stands: not one that is to be tried again in this run."""
        row = self.store.get(kind, [key]).get(key)
        if row is None or row.error is None or (kind, key) in self._tried:
            return row
        return None if row.retry or self.retry_failed else row

    def _sizing_jobs(self) -> Iterator[Job]:
        seen: set[str] = set()
        for point in self.space.points:
            if not self._must_size(point):
                continue
            key = self.sizing_key(point)
            if key in seen or self._known("sizing", key) is not None:
                continue
            seen.add(key)
            sizing = [work.work for work in self.sizing]
            yield Job(
                "sizing",
                key,
                "sizing " + _words(point),
                {"point": point.to_dict(), "workloads": [work.name for work in self.sizing]},
                1 + 0.3 * sum(len(work.steps) for work in sizing),
                {
                    "point": point,
                    "sizing": sizing,
                    "needs": [work.work for work in self.workloads if work.is_network],
                    "objective": self.space.objective,
                    "latency": self.space.latency,
                    "sources": sources("sizing"),
                },
            )

    def _must_size(self, point: Point) -> bool:
        """Whether the engine of a point takes more than its parameters."""
        is_open = any(name not in point.parameters for name in ("roundings", "units"))
        networks = any(work.is_network for work in self.workloads)
        return point.budget_bytes is not None or point.sizes_to_tile or (is_open and networks)

    def config(self, point: Point) -> tuple[EngineConfig | None, str | None]:
        """Return the engine of a point, or why there is none; neither where it is not known yet."""
        if not self._must_size(point):
            return resolve(point, (), (), self.space.objective, self.space.latency), None
        row = self._known("sizing", self.sizing_key(point))
        if row is None:
            return None, None
        if row.output is None:
            return None, row.error
        return EngineConfig.from_dict(row.output["config"]), None

    def _jobs(self) -> Iterator[Job]:
        seen: set[str] = set()
        for built in self.built():
            config = built.config
            if config is None:
                continue
            key = self.synthesis_key(config)
            if key not in seen:
                seen.add(key)
                job = self._build_job(built, key)
                if job is not None:
                    yield job
            for work, row in zip(self.workloads, built.workloads, strict=True):
                key = self.workload_key(config, built.point, work)
                if row is None and key not in seen:
                    seen.add(key)
                    yield self._workload_job(built, work, key)

    def _build_job(self, built: Built, key: str) -> Job | None:
        """Return the synthesis of an engine, with place and route of the seeds that are missing."""
        config, settings = built.config, self.space.fmax
        assert config is not None
        asked: dict[str, Any] = {
            "config": config.to_dict(), "family": self.space.family, "tool": self.tool,
        }  # fmt: skip
        arguments: dict[str, Any] = {
            "config": config,
            "family": self.space.family,
            "tools": self.tools,
            "tool": self.tool,
            "sources": sources("synthesis"),
        }
        weight = 15 + 1.2 * config.lanes
        failed = built.synthesis is not None and built.synthesis.error is not None
        if settings is not None and None in built.placements and not failed:
            seeds = tuple(
                seed
                for seed, row in zip(settings.seeds, built.placements, strict=True)
                if row is None
            )
            arguments |= {"settings": settings, "seeds": seeds, "placer": self.placer}
            arguments["sources"] = sources("placement")
            asked |= {"fmax": settings.to_dict() | {"seeds": list(seeds)}, "placer": self.placer}
            weight += len(seeds) * (20 + 3 * config.lanes)
            return Job("placement", key, _words(built.point), asked, weight, arguments)
        if built.synthesis is None:
            return Job("synthesis", key, _words(built.point), asked, weight, arguments)
        return None

    def _workload_job(self, built: Built, work: Workload, key: str) -> Job:
        config, point = built.config, built.point
        assert config is not None
        tile = None if point.tile is None else tile_dict(point.tile)
        return Job(
            "workload",
            key,
            f"{work.name} on {_words(point)}",
            {"config": config.to_dict(), "tile": tile, "workload": work.name},
            0.1 + 0.02 * len(work.work.steps),
            {
                "work": work.work,
                "config": config,
                "tile": point.tile,
                "latency": self.space.latency,
                "objective": self.space.objective,
                "sources": sources("workload"),
            },
        )

    # Results

    def built(self) -> Iterator[Built]:
        """Return what is known of each point, in the order of the space."""
        for point in self.space.points:
            config, error = self.config(point)
            if config is None:
                yield Built(point, None, error)
                continue
            settings = self.space.fmax
            seeds = () if settings is None else settings.seeds
            yield Built(
                point,
                config,
                synthesis=self._known("synthesis", self.synthesis_key(config)),
                placements=tuple(
                    self._known("placement", self.placement_key(config, seed)) for seed in seeds
                ),
                workloads=tuple(
                    self._known("workload", self.workload_key(config, point, work))
                    for work in self.workloads
                ),
            )


def _words(point: Point) -> str:
    """Return a point in a few words, for progress."""
    values: Mapping[str, Any] = point.to_dict()
    lanes = f"{values.get('out_lanes', 8)}x{values.get('split_lanes', 8)}"
    rest = [f"{name} {values[name]}" for name in ("bus_bytes", "budget_bytes") if name in values]
    return ", ".join([f"{lanes} lanes", *rest])
