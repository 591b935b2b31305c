"""What runs on the engines of a sweep, and what it takes there by the planner."""

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from haloconv.flow.source import layer_words
from haloconv.flow.sweep.digest import digest, source_digest
from haloconv.flow.sweep.space import Point, WorkloadEntry, tile_dict
from haloconv.planner.config import UNITS, EngineConfig
from haloconv.planner.elementwise import Elementwise, elementwise_bytes, elementwise_cycles
from haloconv.planner.errors import PlanError
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import Plan, plan_layer
from haloconv.planner.requantization import ROUNDINGS
from haloconv.planner.sizing import size_engine
from haloconv.planner.tile import MODES, ORDERS, Tile, tile_words
from haloconv.planner.workload import parse_layer, read_workload

__all__ = ["Step", "Work", "Workload", "network_work", "resolve", "run_work"]


@dataclass(frozen=True, eq=False)
class Step:
    """One layer of a workload, without its weights.

    Parameters
    ----------
    name, operator : str
    layer : ConvLayer or None
    batch : int
        Items, which run one after the other.
    raw : bool
        int32 sums instead of int8 results.
    load_scale : bool or None
        See :func:`~haloconv.planner.plan.plan_layer`.
    rounding : str or None
        Rounding mode that the engine must have.
    maximum, zero_points : bool
        Whether the engine must have the unit "max_pool", and weight zero points.
    function : Elementwise or None
        Instead of a layer; runs on the host where the engine lacks the unit.
    elements : int
        Of an elementwise step.
    """

    name: str
    operator: str
    layer: ConvLayer | None = None
    batch: int = 1
    raw: bool = False
    load_scale: bool | None = None
    rounding: str | None = None
    maximum: bool = False
    zero_points: bool = False
    function: Elementwise | None = None
    elements: int = 0


@dataclass(frozen=True, eq=False)
class Work:
    """A workload ready to be planned: steps of the engine, and names of those of the host."""

    steps: tuple[Step, ...]
    host: tuple[str, ...] = ()

    @property
    def layers(self) -> list[ConvLayer]:
        """The convolutions, for the sizing of buffers."""
        return [step.layer for step in self.steps if step.layer is not None]

    @property
    def roundings(self) -> tuple[str, ...]:
        """Rounding modes that the steps need; "double" for elementwise ones."""
        asked = {step.rounding for step in self.steps if step.function is None}
        if any(step.function is not None for step in self.steps):
            asked.add("double")
        return tuple(name for name in ROUNDINGS if name in asked)

    @property
    def units(self) -> tuple[str, ...]:
        """Optional units that the steps use."""
        asked = {
            "max_pool": any(step.maximum for step in self.steps),
            "elementwise": any(step.function is not None for step in self.steps),
        }
        return tuple(name for name in UNITS if asked[name])


class Workload:
    """A workload of a space; its network is read when it is first needed.

    Parameters
    ----------
    entry : WorkloadEntry

    Raises
    ------
    PlanError
        If layers in words or a workload file do not hold up.
    """

    def __init__(self, entry: WorkloadEntry) -> None:
        self.entry = entry
        self.name = entry.name
        self.is_network = entry.file is not None and entry.file.suffix in (".tflite", ".onnx")
        layers: Sequence[ConvLayer] = ()
        if entry.file is None:
            parsed = [parse_layer(text) for text in entry.words]
            layers = [
                layer if layer.name else replace(layer, name=layer_words(layer)) for layer in parsed
            ]
        elif entry.file.suffix == ".json":
            layers = read_workload(entry.file).layers
            if not layers:
                raise PlanError(f"{entry.file} holds no layer that haloconv runs")
        elif not self.is_network:
            raise PlanError(f"{entry.file} is no .json workload, .tflite or .onnx model")
        self._layers = tuple(layers)

    @cached_property
    def work(self) -> Work:
        """What to plan.

        Raises
        ------
        UnsupportedModel
            If the network holds something that haloconv does not run.
        """
        if not self.is_network:
            return Work(tuple(Step(layer.name, "CONV_2D", layer) for layer in self._layers))
        from haloconv.planner.network_file import read_network

        assert self.entry.file is not None
        return network_work(read_network(self.entry.file, target=self.entry.target))

    @cached_property
    def digest(self) -> str:
        """Digest of the layers, or of the model's file and of what reads it."""
        if not self.is_network:
            return digest([asdict(layer) for layer in self._layers])
        assert self.entry.file is not None
        data = hashlib.sha256(self.entry.file.read_bytes()).hexdigest()
        return digest([data, self.entry.target, source_digest("haloconv.planner.network_file")])

    @property
    def source(self) -> str:
        """Name of the file, or the words."""
        file = self.entry.file
        return "; ".join(self.entry.words) if file is None else file.name


def network_work(network: Any) -> Work:
    """Return the steps of a :class:`~haloconv.planner.network.Network`, without weights."""
    from haloconv.planner.network import ConvNode, ElementwiseNode, HostNode
    from haloconv.planner.network_program import tensor_bytes

    steps: list[Step] = []
    host: list[str] = []
    for node in network.nodes:
        if isinstance(node, ConvNode):
            raw = node.requantization is None
            points = node.weight_zero_points
            asymmetric = points is not None and bool(points.any())
            steps.append(
                Step(
                    name=node.name,
                    operator=node.operator,
                    layer=node.layer,
                    batch=node.batch,
                    raw=raw,
                    load_scale=not raw or asymmetric,
                    rounding=None if node.requantization is None else node.requantization.rounding,
                    maximum=node.maximum,
                    zero_points=asymmetric,
                )
            )
        elif isinstance(node, ElementwiseNode):
            elements = tensor_bytes(network.tensors[node.outputs[0]])
            steps.append(Step(node.name, node.operator, function=node.function, elements=elements))
        elif isinstance(node, HostNode):
            host.append(f"{node.name} ({node.operator})")
    return Work(tuple(steps), tuple(host))


# The engine of a point


def resolve(
    point: Point, sizing: Sequence[Work], needs: Sequence[Work], objective: str, latency: int
) -> EngineConfig:
    """Return the engine of a point, nothing left open.

    Parameters
    ----------
    point : Point
    sizing : sequence of Work
        Whose layers a budget is split for, or a tile must fit.
    needs : sequence of Work
        Whose rounding modes and units are built where the point leaves them open.
    objective, latency
        See :func:`~haloconv.planner.sizing.size_engine`.

    Raises
    ------
    PlanError, ValueError, TypeError
        If there is no such engine.
    """
    parameters = dict(point.parameters)
    for name in ("roundings", "units"):
        if parameters.get(name) is None:
            asked = {option for work in needs for option in getattr(work, name)}
            parameters[name] = tuple(asked) or (("double",) if name == "roundings" else ())
    layers = [layer for work in sizing for layer in work.layers]
    if point.budget_bytes is not None:
        config = size_engine(
            layers, point.budget_bytes, objective=objective, latency=latency, **parameters
        )
    elif point.sizes_to_tile:
        assert point.tile is not None
        config = _sized_to(point.tile, layers, parameters, objective, latency)
    else:
        config = EngineConfig(**parameters)
    return replace(config, requant_lanes=config.results_per_cycle)


def _sized_to(
    tile: Tile,
    layers: Sequence[ConvLayer],
    parameters: dict[str, Any],
    objective: str,
    latency: int,
) -> EngineConfig:
    """Return an engine whose buffers just hold a tile, cut to each layer, in its best mode."""
    roomy = EngineConfig(
        **parameters,
        input_bytes=1 << 24,
        weight_bytes=1 << 24,
        psum_bytes=1 << 24,
        bias_bytes=1 << 18,
    )
    words = []
    for layer in layers:
        plan = best_with_tile(layer, roomy, tile, objective=objective, latency=latency)
        words.append(tile_words(layer, roomy, plan.tile, plan.mode))
    return replace(
        roomy,
        input_bytes=roomy.split_lanes * roomy.word_bytes * max(entry.input for entry in words),
        weight_bytes=roomy.lanes * max(entry.weight for entry in words),
        psum_bytes=4 * roomy.results_per_cycle * max(entry.psum for entry in words),
        bias_bytes=4 * roomy.out_lanes * max(entry.groups for entry in words),
    )


def best_with_tile(
    layer: ConvLayer,
    config: EngineConfig,
    tile: Tile,
    *,
    objective: str = "cycles",
    latency: int = 16,
    raw: bool = False,
    load_scale: bool | None = None,
) -> Plan:
    """Return the best plan of a layer with a given tile, cut to the layer, over modes and orders.

    Raises
    ------
    PlanError
        If the tile fits in no mode.
    """
    problem: PlanError | None = None
    plans: list[Plan] = []
    for mode, order in itertools.product(MODES, ORDERS):
        try:
            plans.append(
                plan_layer(
                    layer, config, latency=latency, raw=raw, load_scale=load_scale, tile=tile,
                    mode=mode, order=order,
                )
            )  # fmt: skip
        except PlanError as error:
            # The sentence about a mode that the layer never runs in would mislead.
            if problem is None or (mode == "depthwise") == layer.is_depthwise:
                problem = error
    if not plans:
        assert problem is not None
        raise problem

    def figures(plan: Plan) -> tuple[int, int]:
        if objective == "bytes":
            return plan.moved_bytes.total, plan.cycles
        if objective == "storage":
            return plan.storage.double_buffered, plan.cycles
        return plan.cycles, plan.moved_bytes.total

    return min(plans, key=figures)


# What a workload takes


def run_work(
    work: Work,
    config: EngineConfig,
    tile: Tile | None = None,
    *,
    latency: int = 16,
    objective: str = "cycles",
) -> dict[str, Any]:
    """Return what a workload takes on an engine, in all and layer by layer.

    Returns
    -------
    dict
        ``cycles``, ``read_bytes``, ``write_bytes``, ``macs``, ``utilisation``, ``layers`` and
        ``host``, as docs/sweep.md describes them.

    Raises
    ------
    PlanError
        If a layer does not fit the engine, or needs what is not built into it.
    """
    rows: list[dict[str, Any]] = []
    host = list(work.host)
    cache: dict[tuple[Any, ...], dict[str, Any]] = {}
    for step in work.steps:
        _check_built(step, config)
        if step.function is not None:
            if "elementwise" not in config.built_units:
                host.append(f"{step.name} ({step.operator})")
                continue
            rows.append(_elementwise_row(step, config, latency))
            continue
        assert step.layer is not None
        # Networks repeat their layers; a name changes no plan.
        key = (replace(step.layer, name=""), step.raw, step.load_scale)
        if key not in cache:
            try:
                cache[key] = _plan_row(_plan(step, config, tile, latency, objective))
            except PlanError as error:
                raise PlanError(f"layer {step.name!r}: {error}") from None
        row = dict(cache[key])
        for name in ("cycles", "read_bytes", "write_bytes", "macs"):
            row[name] *= step.batch
        row["layer"] = json.loads(json.dumps(asdict(step.layer)))
        rows.append(row | {"name": step.name, "operator": step.operator})
    if not rows:
        raise PlanError("the workload has no layer that the engine runs")
    totals = {
        name: sum(row[name] for row in rows)
        for name in ("cycles", "read_bytes", "write_bytes", "macs")
    }
    use = totals["macs"] / (config.lanes * totals["cycles"])
    return totals | {"utilisation": round(use, 6), "layers": rows, "host": host}


def _check_built(step: Step, config: EngineConfig) -> None:
    missing = list(_missing(step, config))
    if missing:
        raise PlanError(f"layer {step.name!r} needs {missing[0]}; build it in or leave it open")


def _missing(step: Step, config: EngineConfig) -> Iterator[str]:
    if step.rounding is not None and step.rounding not in config.built_roundings:
        yield f"rounding {step.rounding!r}"
    if step.maximum and "max_pool" not in config.built_units:
        yield "the unit 'max_pool'"
    if step.zero_points and not config.weight_zero_points:
        yield "weight_zero_points"
    on_engine = step.function is not None and "elementwise" in config.built_units
    if on_engine and "double" not in config.built_roundings:
        yield "rounding 'double'"


def _plan(
    step: Step, config: EngineConfig, tile: Tile | None, latency: int, objective: str
) -> Plan:
    assert step.layer is not None
    if tile is None:
        return plan_layer(
            step.layer, config, objective, latency=latency, raw=step.raw, load_scale=step.load_scale
        )
    return best_with_tile(
        step.layer, config, tile, objective=objective, latency=latency, raw=step.raw,
        load_scale=step.load_scale,
    )  # fmt: skip


def _plan_row(plan: Plan) -> dict[str, Any]:
    moved = plan.moved_bytes
    written = moved.output
    return {
        "cycles": int(plan.cycles),
        "macs": int(plan.layer.macs),
        "mode": plan.mode,
        "order": plan.order,
        "read_bytes": int(moved.total - written),
        "tile": tile_dict(plan.tile),
        "write_bytes": int(written),
    }


def _elementwise_row(step: Step, config: EngineConfig, latency: int) -> dict[str, Any]:
    assert step.function is not None
    read, written = elementwise_bytes(step.function, step.elements)
    return {
        "cycles": int(elementwise_cycles(step.function, step.elements, config, latency=latency)),
        "layer": None,
        "macs": 0,
        "mode": None,
        "name": step.name,
        "operator": step.operator,
        "order": None,
        "read_bytes": int(read),
        "tile": None,
        "write_bytes": int(written),
    }
