"""Compiles a network into one memory image and the programs that an engine runs on it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from haloconv.planner.allocate import Lifetime, allocate
from haloconv.planner.config import UNITS, EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES
from haloconv.planner.elementwise import (
    ElementwiseAddresses,
    describe_elementwise,
    elementwise_bytes,
    elementwise_cycles,
    pack_scale,
    pack_tables,
)
from haloconv.planner.errors import PlanError
from haloconv.planner.network import (
    ConvNode,
    ElementwiseNode,
    HostNode,
    MoveNode,
    Network,
    NetworkTensor,
    Node,
)
from haloconv.planner.plan import Plan, plan_layer
from haloconv.planner.program import (
    ALIGNMENT,
    LayerAddresses,
    check_built,
    describe_layer,
    pack_scales,
    pack_weights,
)
from haloconv.planner.requantization import ROUNDINGS, Requantization

__all__ = [
    "EngineRun",
    "HostStep",
    "NetworkProgram",
    "PlannedNode",
    "compile_network",
    "configure",
    "needed_options",
]


@dataclass(frozen=True, eq=False)
class PlannedNode:
    """A node that the engine runs, and what the planner promises for it.

    ``descriptors`` is the number of descriptors (items of a batch run one after the other).
    """

    node: Node
    plan: Plan | None
    latency: int
    config: EngineConfig
    elements: int = 0

    @property
    def descriptors(self) -> int:
        """Descriptors that the node takes."""
        return self.node.batch if isinstance(self.node, ConvNode) else 1

    @cached_property
    def cycles(self) -> int:
        """Predicted cycles of all descriptors."""
        if self.plan is not None:
            return self.plan.cycles * self.descriptors
        assert isinstance(self.node, ElementwiseNode)
        return elementwise_cycles(
            self.node.function, self.elements, self.config, latency=self.latency
        )

    @cached_property
    def moved_bytes(self) -> int:
        """Tensor bytes of all descriptors."""
        if self.plan is not None:
            return self.plan.moved_bytes.total * self.descriptors
        assert isinstance(self.node, ElementwiseNode)
        return sum(elementwise_bytes(self.node.function, self.elements))

    @property
    def macs(self) -> int:
        """Multiply-accumulates; none for elementwise nodes."""
        return self.plan.layer.macs * self.descriptors if self.plan is not None else 0


@dataclass(frozen=True, eq=False)
class EngineRun:
    """Nodes that the engine runs by itself from the descriptor at ``program_address`` on."""

    program_address: int
    nodes: tuple[PlannedNode, ...]


@dataclass(frozen=True, eq=False)
class HostStep:
    """A node that the host runs between two engine runs."""

    node: HostNode | MoveNode | ElementwiseNode
    reason: str


@dataclass(frozen=True, eq=False)
class NetworkProgram:
    """A network ready to run.

    Parameters
    ----------
    network : Network
    config : EngineConfig
        With every option that the network needs.
    image : array of uint8
        Descriptors, weights, tables, and room for every tensor.
    steps : tuple of EngineRun or HostStep
        In order.
    addresses : dict of int to int
        First byte of each tensor that lives in memory.
    activation_bytes : int
        Bytes that tensors take, with memory used again once its tensor is dead.
    """

    network: Network
    config: EngineConfig
    image: "NDArray[np.uint8]" = field(repr=False)
    steps: tuple[EngineRun | HostStep, ...]
    addresses: dict[int, int]
    activation_bytes: int

    @property
    def planned(self) -> Iterator[PlannedNode]:
        """All nodes on the engine, in order."""
        for step in self.steps:
            if isinstance(step, EngineRun):
                yield from step.nodes

    @property
    def cycles(self) -> int:
        """Predicted engine cycles of the whole network."""
        return sum(planned.cycles for planned in self.planned)


def tensor_bytes(tensor: NetworkTensor) -> int:
    """Return the bytes of a tensor in memory."""
    count = 1
    for extent in tensor.shape:
        count *= extent
    return count * np.dtype(tensor.dtype).itemsize


def needed_options(network: Network) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the rounding modes and the optional units that a network uses on the engine."""
    roundings, units = set[str](), set[str]()
    for node in network.nodes:
        if isinstance(node, ConvNode):
            if node.requantization is not None:
                roundings.add(node.requantization.rounding)
            if node.maximum:
                units.add("max_pool")
        elif isinstance(node, ElementwiseNode):
            units.add("elementwise")
            roundings.add("double")
    return (
        tuple(name for name in ROUNDINGS if name in roundings),
        tuple(name for name in UNITS if name in units),
    )


def configure(config: EngineConfig, network: Network) -> EngineConfig:
    """Return ``config`` with the options that it left open set to what the network needs."""
    roundings, units = needed_options(network)
    return replace(
        config,
        roundings=roundings if config.roundings is None else config.roundings,
        units=units if config.units is None else config.units,
    )


class _Compiler:
    def __init__(
        self, network: Network, config: EngineConfig, latency: int, objective: str, keep: bool
    ) -> None:
        self.network, self.config = network, config
        self.latency, self.objective, self.keep = latency, objective, keep
        self.views: dict[int, tuple[int, int]] = {}
        self.arranged: set[int] = set()
        self._find_views()

    def _find_views(self) -> None:
        """Tensors that are part of another's memory: (the other tensor, byte offset).

        Nodes that are nothing but such an arrangement are remembered by ``id``.
        """
        network = self.network
        made = {index for node in network.nodes for index in node.outputs}
        for node in network.nodes:
            if not isinstance(node, MoveNode):
                continue
            output = node.outputs[0]
            if node.kind == "view" and node.inputs[0] in made | set(network.inputs):
                self.views[output] = (node.inputs[0], 0)
                self.arranged.add(id(node))
            elif node.kind == "concatenate" and self._joins_in_place(node, made):
                offset = 0
                for source in node.inputs:
                    self.views[self.root(source)[0]] = (output, offset)
                    offset += tensor_bytes(network.tensors[source])
                self.arranged.add(id(node))

    def _joins_in_place(self, node: MoveNode, made: set[int]) -> bool:
        """Whether the inputs can be written where the output has them: one behind the other."""
        tensors = self.network.tensors
        shape = tensors[node.outputs[0]].shape
        axis = int(node.options["axis"]) % len(shape)
        roots = [self.root(source) for source in node.inputs]
        # A root of another size is a concatenation that holds the input already.
        return (
            all(extent == 1 for extent in shape[:axis])
            and all(source in made and offset == 0 for source, offset in roots)
            and all(
                tensor_bytes(tensors[source]) == tensor_bytes(tensors[root])
                for source, (root, _) in zip(node.inputs, roots, strict=True)
            )
            and len({source for source, _ in roots}) == len(roots)
            and not any(source in self.network.inputs for source, _ in roots)
        )

    def root(self, index: int) -> tuple[int, int]:
        """The tensor whose memory holds ``index``, and where in it."""
        offset = 0
        while index in self.views:
            index, more = self.views[index]
            offset += more
        return index, offset

    def in_place(self, node: Node) -> bool:
        """Whether a node is nothing but an arrangement of memory."""
        return id(node) in self.arranged

    def where(self, node: Node) -> str | None:
        """None for the engine, else why the host runs the node."""
        if isinstance(node, ConvNode):
            return None
        if isinstance(node, ElementwiseNode):
            if "elementwise" in self.config.built_units:
                return None
            return "the engine has no elementwise unit"
        if isinstance(node, MoveNode):
            return f"{node.kind} moves data in a way that addresses cannot"
        return f"{node.operator} has no unit in the engine"

    def compile(self) -> NetworkProgram:
        network, config = self.network, self.config
        for node in network.nodes:
            self._check_options(node)
        order = [node for node in network.nodes if not self.in_place(node)]
        planned = {id(node): self._plan(node) for node in order if self.where(node) is None}

        # Memory: descriptors, constants of the nodes, then the tensors.
        end = 0

        def place(size: int) -> int:
            nonlocal end
            start = -(-end // ALIGNMENT) * ALIGNMENT
            end = start + size
            return start

        program = place(DESCRIPTOR_BYTES * sum(node.descriptors for node in planned.values()))
        constants: list[tuple[int, NDArray[np.uint8]]] = []
        constant_at: dict[int, dict[str, int]] = {}
        for node in order:
            if id(node) in planned:
                at = constant_at[id(node)] = {}
                for name, block in self._constants(planned[id(node)]).items():
                    at[name] = place(block.size)
                    constants.append((at[name], block))
        base = -(-end // ALIGNMENT) * ALIGNMENT
        offsets, activation_bytes = allocate(self._lifetimes(order), ALIGNMENT)
        end = base + activation_bytes
        size = -(-end // ALIGNMENT) * ALIGNMENT
        if size > 1 << config.address_bits:
            raise PlanError(
                f"the network needs {size} bytes of memory but the engine addresses "
                f"{1 << config.address_bits}; raise EngineConfig.address_bits"
            )
        image = np.zeros(size, np.uint8)
        for start, block in constants:
            image[start : start + block.size] = block
        addresses: dict[int, int] = {}
        for index, tensor in network.tensors.items():
            source, offset = self.root(index)
            if source in offsets:
                addresses[index] = base + offsets[source] + offset
            if tensor.data is not None and index in addresses:
                data = np.ascontiguousarray(tensor.data).reshape(-1).view(np.uint8)
                image[addresses[index] : addresses[index] + data.size] = data

        steps: list[EngineRun | HostStep] = []
        pending: list[PlannedNode] = []
        run_start = at_descriptor = program

        def finish_run() -> None:
            nonlocal pending, run_start
            if pending:
                steps.append(EngineRun(run_start, tuple(pending)))
            pending, run_start = [], at_descriptor

        for number, node in enumerate(order):
            if id(node) not in planned:
                finish_run()
                assert isinstance(node, HostNode | MoveNode | ElementwiseNode)
                steps.append(HostStep(node, self.where(node) or ""))
                continue
            entry = planned[id(node)]
            pending.append(entry)
            following = order[number + 1] if number + 1 < len(order) else None
            last = following is None or id(following) not in planned
            for descriptor in self._describe(entry, constant_at[id(node)], addresses, last):
                block = np.frombuffer(descriptor, np.uint8)
                image[at_descriptor : at_descriptor + DESCRIPTOR_BYTES] = block
                at_descriptor += DESCRIPTOR_BYTES
        finish_run()
        return NetworkProgram(network, config, image, tuple(steps), addresses, activation_bytes)

    def _check_options(self, node: Node) -> None:
        """Refuse a node that needs what the engine lacks and that the host does not run."""
        config, where = self.config, f"{node.operator} {node.name!r}"
        if isinstance(node, ConvNode) and node.maximum and "max_pool" not in config.built_units:
            raise PlanError(f"{where} needs the unit 'max_pool'; add it to EngineConfig.units")
        if isinstance(node, ConvNode) and node.layer.has_bias != (node.bias is not None):
            raise PlanError(f"{where} must have a bias exactly where its layer says so")
        try:
            if isinstance(node, ConvNode):
                check_built(config, node.requantization, node.weight_zero_points)
            elif isinstance(node, ElementwiseNode) and self.where(node) is None:
                f = node.function
                check_built(config, Requantization(f.multiplier, f.shift), None)
        except PlanError as error:
            raise PlanError(f"{where}: {error}") from None

    def _plan(self, node: Node) -> PlannedNode:
        if isinstance(node, ConvNode):
            raw = node.requantization is None
            zero_points = node.weight_zero_points
            asymmetric = zero_points is not None and bool(np.any(zero_points))
            try:
                plan = plan_layer(
                    node.layer,
                    self.config,
                    self.objective,
                    latency=self.latency,
                    raw=raw,
                    load_scale=not raw or asymmetric,
                )
            except PlanError as error:
                raise PlanError(f"{node.operator} {node.name!r}: {error}") from None
            return PlannedNode(node, plan, self.latency, self.config)
        elements = tensor_bytes(self.network.tensors[node.outputs[0]])
        return PlannedNode(node, None, self.latency, self.config, elements)

    def _constants(self, planned: PlannedNode) -> dict[str, "NDArray[np.uint8]"]:
        node, plan = planned.node, planned.plan
        if isinstance(node, ElementwiseNode):
            return {
                "tables": pack_tables(node.function),
                "scale": pack_scale(node.function, self.config),
            }
        assert isinstance(node, ConvNode) and plan is not None
        empty = np.zeros(0, np.uint8)
        scale = empty
        if plan.load_scale:
            scale = pack_scales(
                node.layer, self.config, node.requantization, node.weight_zero_points
            )
        return {
            "weight": pack_weights(node.layer, self.config, plan.tile, plan.mode, node.weights),
            "bias": empty if node.bias is None else node.bias.astype("<i4").view(np.uint8),
            "scale": scale,
        }

    def _describe(
        self, planned: PlannedNode, at: dict[str, int], addresses: dict[int, int], last: bool
    ) -> Iterator[bytes]:
        node, plan = planned.node, planned.plan
        if isinstance(node, ElementwiseNode):
            first = addresses[node.inputs[0]]
            second = addresses[node.inputs[1]] if node.function.second is not None else 0
            yield describe_elementwise(
                node.function,
                planned.elements,
                ElementwiseAddresses(
                    first, second, at["tables"], at["scale"], addresses[node.outputs[0]]
                ),
                last=last,
            )
            return
        assert isinstance(node, ConvNode) and plan is not None
        layer = node.layer
        in_bytes = layer.in_height * layer.in_width * layer.in_channels
        out_bytes = layer.out_height * layer.out_width * layer.out_channels
        out_bytes *= 4 if node.requantization is None else 1
        for item in range(node.batch):
            yield describe_layer(
                layer,
                self.config,
                plan.tile,
                plan.mode,
                plan.order,
                LayerAddresses(
                    addresses[node.inputs[0]] + item * in_bytes,
                    at["weight"],
                    at["bias"],
                    at["scale"],
                    addresses[node.outputs[0]] + item * out_bytes,
                ),
                node.requantization,
                load_scale=plan.load_scale,
                last=last and item == node.batch - 1,
                maximum=node.maximum,
            )

    def _lifetimes(self, order: list[Node]) -> list[Lifetime]:
        """When each tensor's memory is written first and read last."""
        network = self.network
        first: dict[int, int] = {}
        final: dict[int, int] = {}

        def touch(index: int, step: int) -> None:
            source, _ = self.root(index)
            first[source] = min(first.get(source, step), step)
            final[source] = max(final.get(source, step), step)

        for index in network.inputs:
            touch(index, 0)
        for step, node in enumerate(order, 1):
            for index in node.inputs + node.outputs:
                touch(index, step)
        end = len(order) + 1
        for index in network.outputs:
            touch(index, end)
        for index, tensor in network.tensors.items():
            # Constants that a node reads as a tensor are part of the image.
            if tensor.data is not None and self.root(index)[0] in first:
                touch(index, 0)
                touch(index, end)
        blocks: list[Lifetime] = []
        for index in first:
            begin, stop = (0, end) if self.keep else (first[index], final[index])
            blocks.append(Lifetime(index, tensor_bytes(network.tensors[index]), begin, stop))
        return blocks


def compile_network(
    network: Network,
    config: EngineConfig | None = None,
    *,
    latency: int = 16,
    objective: str = "cycles",
    keep_tensors: bool = False,
) -> NetworkProgram:
    """Return the memory image and the programs of a network.

    Parameters
    ----------
    network : Network
    config : EngineConfig or None
        Options that it leaves open are set to what the network needs.
    latency : int
        Cycles from a read request to its first beat, for the predictions and the tile search.
    objective : {"cycles", "bytes", "storage"}
        Of the tile search.
    keep_tensors : bool
        Give every tensor memory of its own, so that all can be read after the run.

    Raises
    ------
    PlanError
        If the engine lacks an option that cannot run on the host, or if a layer does not fit.
    """
    chosen = configure(EngineConfig() if config is None else config, network)
    return _Compiler(network, chosen, latency, objective, keep_tensors).compile()
