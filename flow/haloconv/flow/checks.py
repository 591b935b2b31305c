"""One layer simulated, and held against the golden model and its plan."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from haloconv.flow.report import bytes_record, layer_record
from haloconv.flow.sample import sample_inputs, sample_layer
from haloconv.flow.source import Item
from haloconv.planner.config import EngineConfig

if TYPE_CHECKING:
    from haloconv.sim.layer import LayerResult

__all__ = ["Check", "check_layer", "check_record"]


@dataclass(frozen=True, eq=False)
class Check:
    """What a simulated layer gave, and how it compares.

    ``differences`` counts output elements unlike the golden model's, ``outputs`` all of them.
    """

    item: Item
    result: "LayerResult"
    outputs: int
    differences: int

    @property
    def moved(self) -> int:
        """Tensor bytes that the engine counted."""
        return self.result.bytes_read + self.result.bytes_written

    @property
    def bytes_agree(self) -> bool:
        """True where the plan's moved bytes are the counted ones."""
        return self.moved == self.result.plan.moved_bytes.total

    @property
    def passed(self) -> bool:
        """True where every output and every byte agrees."""
        return self.differences == 0 and self.bytes_agree

    @property
    def utilisation(self) -> float:
        """Multiply-accumulates of the layer over those the lanes had cycles for."""
        return self.item.layer.macs / (self.result.plan.config.lanes * self.result.cycles)


def check_layer(
    item: Item,
    config: EngineConfig,
    *,
    rounding: str = "double",
    backend: str = "amaranth",
    latency: int = 16,
    stalls: float = 0.0,
    seed: int = 0,
    objective: str = "cycles",
    progress: Callable[[int], None] | None = None,
) -> Check:
    """Simulate a layer on random inputs and compare it with the golden model.

    Weights, biases and scales are the model's where there are some, else random.

    Parameters
    ----------
    item : Item
    config : EngineConfig
    rounding : str
        For layers without data: a rounding mode or "raw".
    backend, latency, stalls, seed, objective, progress
        As :func:`haloconv.sim.layer.simulate_layer` takes them.
    """
    from haloconv.sim.golden import golden_layer
    from haloconv.sim.layer import simulate_layer

    layer = item.layer
    inputs = sample_inputs(layer, seed)
    data: Any = item.data if item.data is not None else sample_layer(layer, seed, rounding)
    zero_points = getattr(data, "weight_zero_points", None)
    result = simulate_layer(
        layer,
        config,
        inputs=inputs,
        weights=data.weights,
        bias=data.bias,
        requantization=data.requantization,
        weight_zero_points=zero_points,
        backend=backend,
        latency=latency,
        stalls=stalls,
        seed=seed,
        objective=objective,
        progress=progress,
    )
    expected = golden_layer(
        layer, inputs, data.weights, data.bias, data.requantization, zero_points
    )
    differences = int(np.count_nonzero(np.asarray(result.output) != expected))
    return Check(item, result, int(expected.size), differences)


def check_record(check: Check) -> dict[str, Any]:
    """Return a check for JSON; docs/cli.md describes it."""
    plan, result = check.result.plan, check.result
    return {
        "bytes_agree": check.bytes_agree,
        "bytes_read": int(result.bytes_read),
        "bytes_written": int(result.bytes_written),
        "counters": {name: int(value) for name, value in result.counters.items()},
        "cycles": int(result.cycles),
        "differences": check.differences,
        "index": check.item.index,
        "layer": layer_record(check.item.layer),
        "name": check.item.name,
        "outputs": check.outputs,
        "passed": check.passed,
        "predicted_cycles": plan.cycles,
        "predicted_moved_bytes": bytes_record(plan.moved_bytes),
        "utilisation": round(check.utilisation, 6),
    }
