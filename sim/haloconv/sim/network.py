"""One call that runs a whole int8 network on the generated engine."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloconv.planner.config import EngineConfig
from haloconv.planner.network import (
    ElementwiseNode,
    HostNode,
    MoveNode,
    Network,
    NetworkTensor,
    Node,
)
from haloconv.planner.network_file import read_network
from haloconv.planner.network_program import (
    EngineRun,
    HostStep,
    NetworkProgram,
    compile_network,
    tensor_bytes,
)
from haloconv.sim.backend import run
from haloconv.sim.engines import engine_for
from haloconv.sim.host import run_host, run_move
from haloconv.sim.layer import EngineFault, fault_message
from haloconv.sim.memory import Stalls, most_stalled
from haloconv.sim.network_golden import feed_network, look_up

__all__ = ["LayerRecord", "NetworkReport", "NetworkResult", "run_network", "run_program"]


@dataclass(frozen=True)
class LayerRecord:
    """One node of a network: where it ran, and what it took.

    ``cycles`` are measured, ``predicted_cycles`` the planner's; host nodes have none.
    ``utilisation`` is MACs / (lanes * cycles), ``elements`` counts those of the outputs. ``reason``
    says why the host ran a node.
    """

    index: int
    name: str
    operator: str
    where: str
    predicted_cycles: int
    cycles: int
    bytes: int
    macs: int
    utilisation: float
    reason: str = ""
    elements: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON types."""
        return dict(vars(self))


@dataclass(frozen=True)
class NetworkReport:
    """What stands behind the table and the JSON of a network's run."""

    name: str
    target: str
    backend: str
    cycles: int
    predicted_cycles: int
    moved_bytes: int
    predicted_moved_bytes: int
    macs: int
    utilisation: float
    host_elements: int
    engine_elements: int
    layers: tuple[LayerRecord, ...]

    @property
    def host_share(self) -> float:
        """Share of all output elements that the host computed."""
        total = self.host_elements + self.engine_elements
        return self.host_elements / total if total else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        values = {name: value for name, value in vars(self).items() if name != "layers"}
        values["host_share"] = self.host_share
        values["layers"] = [layer.to_dict() for layer in self.layers]
        return values


@dataclass(frozen=True)
class NetworkResult:
    """What a network gave.

    Parameters
    ----------
    outputs : list of array
        As the model's outputs, in its types and shapes.
    tensors : dict of int to array
        With ``keep_tensors``: every tensor that exists, by the model's index; those that fusion
        removed are absent.
    cycles : int
        Engine cycles of the whole program.
    layers : tuple of LayerRecord
        In the order in which they ran.
    counters : dict of str to int
        The engine's counters, summed over its runs.
    program : NetworkProgram
    backend : str
    """

    outputs: list["NDArray[Any]"]
    tensors: dict[int, "NDArray[Any]"] = field(repr=False)
    cycles: int
    layers: tuple[LayerRecord, ...]
    counters: dict[str, int]
    program: NetworkProgram = field(repr=False)
    backend: str

    def report(self) -> NetworkReport:
        """Return the figures of the run."""
        network, config = self.program.network, self.program.config
        on_engine = [layer for layer in self.layers if layer.where == "engine"]
        elements = {"engine": 0, "host": 0}
        for layer in self.layers:
            elements[layer.where] += layer.elements
        macs = sum(layer.macs for layer in on_engine)
        moved = ("input_bytes", "weight_bytes", "bias_bytes", "sum_bytes", "output_bytes")
        return NetworkReport(
            name=network.name,
            target=network.target,
            backend=self.backend,
            cycles=self.cycles,
            predicted_cycles=self.program.cycles,
            moved_bytes=sum(self.counters.get(name, 0) for name in moved),
            predicted_moved_bytes=sum(layer.bytes for layer in on_engine),
            macs=macs,
            utilisation=macs / (config.lanes * self.cycles) if self.cycles else 0.0,
            host_elements=elements["host"],
            engine_elements=elements["engine"],
            layers=self.layers,
        )


def _read(memory: "NDArray[np.uint8]", address: int, tensor: NetworkTensor) -> "NDArray[Any]":
    size = tensor_bytes(tensor)
    return memory[address : address + size].copy().view(tensor.dtype).reshape(tensor.shape)


def _write(memory: "NDArray[np.uint8]", address: int, value: "NDArray[Any]") -> None:
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    memory[address : address + data.size] = data


def _progress(
    progress: Callable[[int, int], None] | None, before: int, total: int
) -> Callable[[int], None] | None:
    """Return a callable for one of several runs, ``before`` cycles into the whole."""
    if progress is None:
        return None
    return lambda cycles: progress(before + cycles, total)


def _elements(network: Network, node: Node) -> int:
    return sum(math.prod(network.tensors[index].shape) for index in node.outputs)


def _run_on_host(step: HostStep, network: Network, values: Mapping[int, Any]) -> list[Any]:
    node = step.node
    arrays = [values[index] for index in node.inputs]
    if isinstance(node, MoveNode):
        return [run_move(node, arrays, network.tensors[node.outputs[0]].shape)]
    if isinstance(node, ElementwiseNode):
        return [look_up(node, arrays).reshape(network.tensors[node.outputs[0]].shape)]
    assert isinstance(node, HostNode)
    return run_host(node, dict(values), network)


def run_program(
    program: NetworkProgram,
    inputs: Sequence["NDArray[Any]"],
    *,
    backend: str = "auto",
    keep_tensors: bool = False,
    latency: int = 16,
    stalls: Stalls = 0.0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> NetworkResult:
    """Run a compiled network; see :func:`run_network`."""
    network, config = program.network, program.config
    given = feed_network(network, inputs)
    memory = program.image.copy()
    values: dict[int, NDArray[Any]] = {
        index: tensor.data for index, tensor in network.tensors.items() if tensor.data is not None
    }
    for index, value in given.items():
        values[index] = value
        if index in program.addresses:
            _write(memory, program.addresses[index], value)

    def fetch(index: int) -> "NDArray[Any]":
        if index not in program.addresses:
            return values[index]
        return _read(memory, program.addresses[index], network.tensors[index])

    layers: list[LayerRecord] = []
    counters: dict[str, int] = {}
    used = "none"
    before = 0
    total = program.cycles
    share = most_stalled(stalls)
    for step in program.steps:
        if isinstance(step, HostStep):
            node = step.node
            now = {index: fetch(index) for index in node.inputs}
            for index, value in zip(
                node.outputs, _run_on_host(step, network, {**values, **now}), strict=True
            ):
                values[index] = value
                if index in program.addresses:
                    _write(memory, program.addresses[index], value)
            size = _elements(network, node)
            layers.append(
                LayerRecord(
                    node.index, node.name, node.operator, "host", 0, 0, 0, 0, 0.0, step.reason, size
                )
            )
            continue
        predicted = sum(planned.cycles for planned in step.nodes)
        result = run(
            engine_for(config),
            memory,
            program_address=step.program_address,
            latency=latency,
            stalls=stalls,
            seed=seed,
            max_cycles=int(4 * predicted / (1 - share) + 100_000),
            backend=backend,
            progress=_progress(progress, before, total),
        )
        if result.error_code:
            raise EngineFault(fault_message(result.error_code, result.error_detail))
        memory = result.memory.copy()
        used = result.backend.name
        for name, value in result.counters.items():
            counters[name] = counters.get(name, 0) + value
        before += result.counters["cycles"]
        layers += _engine_records(step, result.descriptor_cycles, program)

    tensors = {}
    if keep_tensors:
        made = {index for node in network.nodes for index in node.outputs}
        tensors = {
            index: fetch(index)
            for index in sorted(made | set(network.inputs))
            if index in program.addresses or index in values
        }
    return NetworkResult(
        outputs=[fetch(index) for index in network.outputs],
        tensors=tensors,
        cycles=counters.get("cycles", 0),
        layers=tuple(layers),
        counters=counters,
        program=program,
        backend=used,
    )


def _engine_records(
    step: EngineRun, descriptor_cycles: Sequence[int], program: NetworkProgram
) -> list[LayerRecord]:
    records = []
    first = 0
    for planned in step.nodes:
        cycles = sum(descriptor_cycles[first : first + planned.descriptors])
        first += planned.descriptors
        node = planned.node
        records.append(
            LayerRecord(
                node.index,
                node.name,
                node.operator,
                "engine",
                planned.cycles,
                cycles,
                planned.moved_bytes,
                planned.macs,
                planned.macs / (program.config.lanes * cycles) if cycles else 0.0,
                elements=_elements(program.network, node),
            )
        )
    return records


def run_network(
    model: "str | PathLike[str] | Network",
    config: EngineConfig | None = None,
    *,
    inputs: Sequence["NDArray[Any]"],
    target: str | None = None,
    backend: str = "auto",
    keep_tensors: bool = False,
    latency: int = 16,
    stalls: Stalls = 0.0,
    seed: int = 0,
    objective: str = "cycles",
    progress: Callable[[int, int], None] | None = None,
) -> NetworkResult:
    """Compile a model and run it cycle by cycle on the generated engine.

    Parameters
    ----------
    model : path or Network
        A .tflite or .onnx file.
    config : EngineConfig or None
        None: ``EngineConfig()``. Rounding modes and units that it leaves open are built as the
        model needs them.
    inputs : sequence of array
        In the model's types and shapes.
    target : str or None
        Whose rounding to follow: "tflm" (default), "litert" or "xnnpack" for .tflite, "ort" for
        .onnx.
    backend : {"auto", "amaranth", "cxxrtl", "verilator"}
    keep_tensors : bool
        Keep every tensor, in memory of its own.
    latency : int
        Cycles from a read request to its first beat.
    stalls, seed
        Random stalls of the memory ports.
    objective : {"cycles", "bytes", "storage"}
        Of the tile search.
    progress : callable or None
        Called with the cycles so far and those predicted.

    Raises
    ------
    UnsupportedModel
        With operator, place and reason.
    PlanError, TypeError, ValueError
        If the engine or the inputs do not suit the model, before anything runs.
    EngineFault, SimulationTimeout
        If the engine fails.
    """
    most_stalled(stalls)
    network = model if isinstance(model, Network) else read_network(model, target=target)
    program = compile_network(
        network, config, latency=latency, objective=objective, keep_tensors=keep_tensors
    )
    return run_program(
        program,
        inputs,
        backend=backend,
        keep_tensors=keep_tensors,
        latency=latency,
        stalls=stalls,
        seed=seed,
        progress=progress,
    )
