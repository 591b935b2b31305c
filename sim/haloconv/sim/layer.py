"""One call that simulates a convolution layer on the generated engine."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import Plan, plan_layer
from haloconv.planner.program import build_layer_program, read_outputs
from haloconv.planner.registers import ErrorCode
from haloconv.planner.requantization import Requantization
from haloconv.planner.tile import Tile
from haloconv.sim.arrays import check_arrays
from haloconv.sim.backend import run
from haloconv.sim.engines import engine_for
from haloconv.sim.errors import SimulationError
from haloconv.sim.memory import Stalls, most_stalled

__all__ = ["EngineFault", "LayerResult", "fault_message", "simulate_layer"]


class EngineFault(SimulationError):
    """The engine stopped with an error code."""


def fault_message(code: int, descriptor: int) -> str:
    """Say why an engine stopped, by its error registers."""
    return f"the engine stopped with error {ErrorCode(code).name} in descriptor {descriptor}"


@dataclass(frozen=True)
class LayerResult:
    """What a simulated layer gave.

    Parameters
    ----------
    output : array, shape (N, OH, OW, M)
        int8, or int32 where no requantisation was asked for.
    cycles : int
        The engine's own count from start to the last write, over all items of the batch.
    bytes_read, bytes_written : int
        Tensor bytes: input, weights, bias and stored sums; stored sums and output. Together
        they equal ``plan.moved_bytes.total`` for each item of the batch.
    counters : dict of str to int
        Every counter of the engine by name; scale parameters and program bytes are among them.
    plan : Plan
        What the planner promised, for one item.
    backend : str
        The simulator that ran.
    """

    output: "NDArray[Any]"
    cycles: int
    bytes_read: int
    bytes_written: int
    counters: dict[str, int]
    plan: Plan
    backend: str


def simulate_layer(
    layer: ConvLayer,
    config: EngineConfig | None = None,
    *,
    inputs: "NDArray[np.int8]",
    weights: "NDArray[np.int8]",
    bias: "NDArray[np.int32] | None" = None,
    requantization: Requantization | None = None,
    weight_zero_points: "NDArray[Any] | int | None" = None,
    backend: str = "amaranth",
    latency: int = 16,
    stalls: Stalls = 0.0,
    seed: int = 0,
    objective: str = "cycles",
    tile: Tile | None = None,
    mode: str | None = None,
    order: str | None = None,
    vcd: Path | str | None = None,
    max_cycles: int | None = None,
    progress: Any = None,
) -> LayerResult:
    """Plan a layer, run it cycle by cycle on the generated engine, and return what came out.

    Parameters
    ----------
    layer : ConvLayer
        ``has_bias`` follows from ``bias``.
    config : EngineConfig or None
        None: ``EngineConfig()``. Where its ``roundings`` is None the mode asked for is built in.
    inputs : array of int8, shape (N, H, W, C)
        The items of a batch run one after the other.
    weights : array of int8, shape (M, Rh, Rw, C / groups)
    bias : array of int32, shape (M,), or None
    requantization : Requantization or None
        None gives the exact int32 sums.
    weight_zero_points : array of int, shape (M,), int, or None
    backend : {"amaranth", "cxxrtl", "verilator", "auto"}
    latency : int
        Cycles from a read request to its first beat, at least 1.
    stalls : float or (float, float, float)
        Probability that a port stalls in a cycle: requests, read data, writes.
    seed : int
        Of the random stalls.
    objective, tile, mode, order
        As in :func:`~haloconv.planner.plan.plan_layer`.
    vcd : path or None
        Write a waveform (Amaranth's simulator alone).
    max_cycles : int or None
        Give up after so many; None: well above the plan's.
    progress : callable or None
        Called with the cycles simulated so far.

    Raises
    ------
    TypeError, ValueError, PlanError
        For arrays or parameters at fault, before anything runs.
    OSError
        If ``vcd`` cannot be written.
    SimulationTimeout, EngineFault
        If the engine does not finish, or stops with an error.

    Examples
    --------
    See README.md.
    """
    share = most_stalled(stalls)
    config = EngineConfig() if config is None else config
    if config.roundings is None and requantization is not None:
        config = replace(config, roundings=(requantization.rounding,))
    layer = replace(layer, has_bias=bias is not None)
    arrays = check_arrays(layer, inputs, weights, bias, weight_zero_points, requantization)
    raw = requantization is None
    asymmetric = bool(np.any(arrays.weight_zero_points))
    plan = plan_layer(
        layer,
        config,
        objective,
        latency=latency,
        raw=raw,
        load_scale=not raw or asymmetric,
        tile=tile,
        mode=mode,
        order=order,
    )
    program = build_layer_program(
        layer,
        config,
        plan.tile,
        plan.mode,
        plan.order,
        inputs=arrays.inputs,
        weights=arrays.weights,
        bias=arrays.bias if layer.has_bias else None,
        requantization=requantization,
        weight_zero_points=arrays.weight_zero_points if asymmetric else None,
    )
    batch = arrays.inputs.shape[0]
    if max_cycles is None:
        max_cycles = int(batch * (4 * plan.cycles / (1 - share) + 10_000))
    result = run(
        engine_for(config),
        program.image,
        program_address=program.program_address,
        latency=latency,
        stalls=stalls,
        seed=seed,
        max_cycles=max_cycles,
        backend=backend,
        vcd=vcd,
        progress=progress,
    )
    if result.error_code:
        raise EngineFault(fault_message(result.error_code, result.error_detail))
    counters = dict(result.counters)
    read = sum(counters[f"{name}_bytes"] for name in ("input", "weight", "bias"))
    return LayerResult(
        output=read_outputs(program, result.memory, layer, raw),
        cycles=counters["cycles"],
        bytes_read=read,
        bytes_written=counters["output_bytes"],
        counters=counters,
        plan=plan,
        backend=result.backend.name,
    )
