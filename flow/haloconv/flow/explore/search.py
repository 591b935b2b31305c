"""The smallest engine that meets a rate, or the fastest that fits a device."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from haloconv.flow.explore.devices import Capacity
from haloconv.flow.explore.model import AreaModel
from haloconv.flow.sweep.space import Point
from haloconv.flow.sweep.workloads import Work, resolve, run_work
from haloconv.flow.synthesis.area import Area
from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.traffic import unique_bytes

__all__ = ["Exploration", "Explorer", "Tried"]

SIDES = (1, 2, 4, 8, 16)
"""Output lanes and split lanes that are tried, in all pairs."""
BUSES = (4, 8, 16)
FEWER_RESULTS = (1, 2, 4)
"""Divisors of the number of requantisers that an engine has by default."""
BLOCK_BYTES = 2048
"""Bytes of nine bits in a block RAM."""
LEAST_BUDGET = 2048

Step = Callable[..., None]


@dataclass(frozen=True)
class Tried:
    """An engine that was planned.

    Attributes
    ----------
    config : EngineConfig
    area : Area
        As the model predicts it.
    shares : dict of str to float
        Of the device, by resource.
    cycles : int
    fps : float
    verdict : str
        "too slow", "too large" with the resource, or "fits".
    """

    config: EngineConfig
    area: Area
    shares: dict[str, float]
    cycles: int
    fps: float
    verdict: str

    @property
    def size(self) -> tuple[float, ...]:
        """Shares from the fullest resource down, which engines are compared by."""
        return tuple(sorted(self.shares.values(), reverse=True))


@dataclass(frozen=True)
class Exploration:
    """What was tried and chosen; ``ruled_out`` engines were never planned, as bounds sufficed."""

    tried: tuple[Tried, ...]
    ruled_out: int
    choice: Tried | None


@dataclass(frozen=True)
class _Shell:
    """An engine whose buffers are still open, with the least it takes and the most it gives.

    ``fits`` is false where even the smallest buffers leave it too large.
    """

    parameters: dict[str, Any]
    fits: bool
    share: float
    fps: float


class Explorer:
    """Searches the engines for a workload on a device.

    Parameters
    ----------
    work : Work
    device : Capacity
    model : AreaModel
    clock_mhz : float
        At which the engine is taken to run.
    fill : float
        Share of the device's LUTs and flip-flops that may be used; place and route needs room.
    latency : int
        Cycles from a read request to its first data.
    step : callable
        Told what is tried: ``step(text)``.
    """

    def __init__(
        self,
        work: Work,
        device: Capacity,
        model: AreaModel,
        *,
        clock_mhz: float,
        fill: float = 0.85,
        latency: int = 16,
        step: Step | None = None,
    ) -> None:
        self.work, self.device, self.model = work, device, model
        self.clock_mhz, self.fill, self.latency = clock_mhz, fill, latency
        self.step: Step = step or (lambda text: None)
        self.tried: dict[str, Tried] = {}
        self.planned = 0
        self.shells = list(self._shells())

    # Bounds

    def _shells(self) -> Iterator[_Shell]:
        zero_points = any(step.zero_points for step in self.work.steps)
        for pm, pr, bus, divisor in itertools.product(SIDES, SIDES, BUSES, FEWER_RESULTS):
            q = min(pm, 8) // divisor
            if q < 1:
                continue
            parameters = {
                "out_lanes": pm,
                "split_lanes": pr,
                "bus_bytes": bus,
                "requant_lanes": q,
                "weight_zero_points": zero_points,
            }
            least = resolve(
                Point(
                    parameters
                    | {
                        "input_bytes": 4 * pr * pr * -(-pm // pr),
                        "weight_bytes": 4 * pm * pr,
                        "psum_bytes": 0,
                        "bias_bytes": 4 * pm,
                    }
                ),
                (),
                [self.work],
                "cycles",
                self.latency,
            )
            shares = self.device.shares(self.model.predict(least))
            fits = not self._too_full(shares)
            yield _Shell(parameters, fits, max(shares.values()), self._most_fps(pm * pr, bus, q))

    def _most_fps(self, lanes: int, bus: int, results: int) -> float:
        """Return a rate that no engine of so many lanes, bus bytes and requantisers exceeds."""
        cycles = 0
        for step in self.work.steps:
            if step.layer is None:
                cycles += -(-step.elements // bus)
                continue
            layer = step.layer
            unique = unique_bytes(layer, step.raw)
            outputs = layer.out_height * layer.out_width * layer.out_channels
            cycles += step.batch * max(
                -(-layer.macs // lanes),
                -(-(unique.total - unique.output) // bus),
                -(-unique.output // bus),
                -(-outputs // results),
            )
        return self.clock_mhz * 1e6 / cycles

    def _budgets(self) -> list[int]:
        """Return budgets from what the device's block RAM holds down to the least, by halves."""
        most = self.device.block_rams * BLOCK_BYTES
        budget = 1 << (most.bit_length() - 1)
        budgets = []
        while budget >= LEAST_BUDGET:
            budgets.append(budget)
            budget //= 2
        return budgets

    # Candidates

    def _try(self, shell: _Shell, budget: int, fps: float) -> Tried | None:
        """Plan an engine; None where the budget is too small for the layers."""
        words = (
            f"{shell.parameters['out_lanes']}x{shell.parameters['split_lanes']} lanes, "
            f"bus {shell.parameters['bus_bytes']}, {shell.parameters['requant_lanes']} results, "
            f"{budget // 1024} KiB"
        )
        self.step(f"planning {words}")
        self.planned += 1
        try:
            point = Point(shell.parameters, budget_bytes=budget)
            config = resolve(point, [self.work], [self.work], "cycles", self.latency)
            found = run_work(self.work, config, latency=self.latency)
        except PlanError:
            return None
        if config.digest not in self.tried:
            area = self.model.predict(config)
            shares = self.device.shares(area)
            rate = self.clock_mhz * 1e6 / found["cycles"]
            full = self._too_full(shares)
            verdict = "fits"
            if full:
                verdict = f"too large: {', '.join(full)}"
            elif rate < fps:
                verdict = "too slow"
            self.tried[config.digest] = Tried(config, area, shares, found["cycles"], rate, verdict)
        return self.tried[config.digest]

    def _too_full(self, shares: dict[str, float]) -> list[str]:
        return [
            name
            for name, share in shares.items()
            if share > (self.fill if name in ("LUT", "FF") else 1.0)
        ]

    def smallest(self, fps: float) -> Exploration:
        """Return the engine of least size among those that reach ``fps``."""
        best: Tried | None = None
        visited = 0
        for shell in sorted(self.shells, key=lambda shell: shell.share):
            if shell.fps < fps or not shell.fits:
                continue
            if best is not None and shell.share > best.size[0]:
                break
            visited += 1
            tried: Tried | None = None
            for budget in self._budgets():
                if tried is not None and budget >= tried.config.budget_bytes:
                    continue  # no more than the larger budget left unused
                tried = self._try(shell, budget, fps)
                if tried is None or tried.fps < fps:
                    break  # less storage is no faster
                if tried.verdict == "fits" and (best is None or tried.size < best.size):
                    best = tried
        return self._result(best, visited)

    def fastest(self) -> Exploration:
        """Return the fastest engine that fits; the smaller of two that are equally fast."""
        best: Tried | None = None
        visited = 0

        def rank(tried: Tried) -> tuple[float, ...]:
            return tried.fps, *(-share for share in tried.size)

        for shell in sorted(self.shells, key=lambda shell: -shell.fps):
            if best is not None and shell.fps <= best.fps:
                break
            if not shell.fits:
                continue
            visited += 1
            tried: Tried | None = None
            for budget in self._budgets():
                if tried is not None and budget >= tried.config.budget_bytes:
                    continue
                tried = self._try(shell, budget, 0.0)
                if tried is None:
                    break
                if best is not None and tried.fps < best.fps:
                    break
                if tried.verdict == "fits":
                    best = tried if best is None or rank(tried) > rank(best) else best
                    break  # less storage is no faster
        return self._result(best, visited)

    def _result(self, best: Tried | None, visited: int) -> Exploration:
        return Exploration(tuple(self.tried.values()), len(self.shells) - visited, best)
