"""Many simulated layers, each held against its golden outputs and against its plan.

What is compared, element for element and byte for byte: the output; the bytes of every tensor that
the engine counted, with those of the plan; and, where no port stalled at random, the cycles, which
may be off by 1 %.
"""

import hashlib
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import ROUNDINGS
from haloconv.planner.tflite import LayerData, TfliteModel, conv_layers, read_tflite
from haloconv.planner.tile import ORDERS, Tile, check_fit, tile_words
from haloconv.planner.traffic import is_channelwise, loop_trips
from haloconv.planner.validate import check_int
from haloconv.sim.backend import BackendUnavailable, BuildError, choose_backend
from haloconv.sim.cases import Case
from haloconv.sim.golden import golden_layer
from haloconv.sim.layer import simulate_layer
from haloconv.sim.randoms import RESULTS, RandomCase, random_case, random_config
from haloconv.sim.reference import reference_tensors

__all__ = [
    "LANES",
    "Task",
    "Verification",
    "case_tasks",
    "model_input",
    "model_tasks",
    "random_tasks",
    "run_tasks",
    "small_engine",
    "split_tile",
    "spread_tasks",
    "verify_case",
    "verify_given_cases",
    "verify_model",
    "verify_random",
]

LANES = ((8, 8), (4, 4), (1, 1), (16, 4), (3, 5))
"""Output and split lanes that the given cases are run with."""

CYCLE_TOLERANCE = 0.01
"""Share by which measured cycles may differ from the plan's."""

CASES_PER_ENGINE = 25
"""Random layers that share one engine where building its simulator takes longer than running it."""

MACS_PER_LANE = 1500
"""Most of a case in Amaranth's simulator, which runs some thousand cycles a second."""

TASKS_PER_CHUNK = 12
"""Tasks on one engine that a process is given at once."""

TENSORS = ("input", "weight", "bias", "sums", "output")


@dataclass(frozen=True, kw_only=True)
class Verification:
    """How one simulated layer compares.

    Parameters
    ----------
    title : str
        What ran; the call that makes it again where it was random.
    detail : str
        How it ran: engine, mode, order, tile.
    outputs, differences : int
        Output elements, and those unlike the expected ones.
    cycles, predicted_cycles : int
        Measured and planned, over all items of the batch.
    bytes_counted, bytes_predicted : dict of str to int
        By tensor: input, weight, bias, sums, output.
    stalled : bool
        Ports stalled at random, so that cycles are not compared.
    trips : dict of str to int
        Trips of the tile loops h, w, c, m.
    macs, lanes : int
    backend : str
        The simulator that ran.
    seconds : float
    error : str or None
        What was raised instead of a result; the figures are then 0.
    """

    title: str
    detail: str = ""
    outputs: int = 0
    differences: int = 0
    cycles: int = 0
    predicted_cycles: int = 0
    bytes_counted: Mapping[str, int]
    bytes_predicted: Mapping[str, int]
    stalled: bool = False
    trips: Mapping[str, int]
    macs: int = 0
    lanes: int = 1
    backend: str = ""
    seconds: float = 0.0
    error: str | None = None

    @property
    def exact(self) -> bool:
        """True where every output element is the expected one."""
        return self.error is None and self.outputs > 0 and self.differences == 0

    @property
    def bytes_exact(self) -> bool:
        """True where the engine moved the planned bytes of every tensor."""
        return self.error is None and dict(self.bytes_counted) == dict(self.bytes_predicted)

    @property
    def cycles_close(self) -> bool:
        """True where cycles agree within 1 %, and where random stalls forbid comparing them."""
        if self.error is not None or self.stalled:
            return self.error is None
        return abs(self.cycles - self.predicted_cycles) <= CYCLE_TOLERANCE * self.predicted_cycles

    @property
    def passed(self) -> bool:
        """True where outputs, bytes and cycles agree."""
        return self.exact and self.bytes_exact and self.cycles_close

    @property
    def utilisation(self) -> float:
        """Multiply-accumulates over what the lanes had cycles for; 0 without a result."""
        return self.macs / (self.lanes * self.cycles) if self.cycles else 0.0

    def complaint(self) -> str:
        """Return what disagrees, in one line; empty where nothing does."""
        if self.error is not None:
            return self.error
        words: list[str] = []
        if not self.exact:
            words.append(f"{self.differences} of {self.outputs} outputs differ")
        for name in TENSORS:
            counted, predicted = self.bytes_counted.get(name), self.bytes_predicted.get(name)
            if counted != predicted:
                words.append(f"{counted} {name} bytes counted, {predicted} planned")
        if not self.cycles_close:
            words.append(f"{self.cycles} cycles measured, {self.predicted_cycles} planned")
        return "; ".join(words)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain JSON types."""
        return {
            "backend": self.backend,
            "bytes_counted": dict(self.bytes_counted),
            "bytes_exact": self.bytes_exact,
            "bytes_predicted": dict(self.bytes_predicted),
            "cycles": self.cycles,
            "cycles_close": self.cycles_close,
            "detail": self.detail,
            "differences": self.differences,
            "error": self.error,
            "exact": self.exact,
            "lanes": self.lanes,
            "macs": self.macs,
            "outputs": self.outputs,
            "passed": self.passed,
            "predicted_cycles": self.predicted_cycles,
            "stalled": self.stalled,
            "title": self.title,
            "trips": dict(self.trips),
            "utilisation": round(self.utilisation, 6),
        }


@dataclass(frozen=True)
class Task:
    """A verification to run, here or in another process."""

    title: str
    function: Callable[..., Verification]
    arguments: Mapping[str, Any]

    def run(self) -> Verification:
        """Run it."""
        return self.function(**self.arguments)


def run_tasks(tasks: Iterable[Task], jobs: int = 1) -> Iterator[Verification]:
    """Run tasks and yield their results in order.

    Parameters
    ----------
    tasks : iterable of Task
    jobs : int
        Processes; 1 runs everything in this one.

    Raises
    ------
    BackendUnavailable, BuildError
        If the simulator cannot be had; everything else becomes a result with ``error``.
    """
    jobs = check_int("jobs", jobs, 1)
    if jobs == 1:
        for task in tasks:
            yield task.run()
        return
    # Spawned, not forked: threads of numpy's libraries do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        futures: list[Future[list[Verification]]] = [
            pool.submit(_run_chunk, chunk) for chunk in _chunks(tasks)
        ]
        try:
            for future in futures:
                yield from future.result()
        finally:
            for future in futures:
                future.cancel()


def _chunks(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Yield neighbouring tasks on one engine together, as each process elaborates it once."""
    for config, group in groupby(tasks, key=lambda task: task.arguments.get("config")):
        size = 1 if config is None else TASKS_PER_CHUNK
        while chunk := list(islice(group, size)):
            yield chunk


def _run_chunk(tasks: list[Task]) -> list[Verification]:
    return [task.run() for task in tasks]


def verify_case(
    title: str,
    layer: ConvLayer,
    config: EngineConfig,
    *,
    inputs: npt.NDArray[np.int8],
    weights: npt.NDArray[np.int8],
    expected: npt.NDArray[Any] | str | None = None,
    **arguments: Any,
) -> Verification:
    """Simulate one layer and compare it.

    Parameters
    ----------
    title : str
        What the result is called.
    layer : ConvLayer
    config : EngineConfig
    inputs : int8 array, shape (N, H, W, C)
    weights : int8 array, shape (M, Rh, Rw, C / groups)
    expected : array, shape (N, OH, OW, M), or str, or None
        The outputs, or the SHA-256 of their bytes in hexadecimal; None takes the golden model's.
    arguments
        The others of :func:`~haloconv.sim.layer.simulate_layer`.

    Raises
    ------
    BackendUnavailable, BuildError
        If the simulator cannot be had; everything else is told in ``error``.
    """
    started = time.perf_counter()
    stalls = arguments.get("stalls", 0.0)
    stalled = bool(np.any(np.asarray(stalls) != 0))
    try:
        result = simulate_layer(layer, config, inputs=inputs, weights=weights, **arguments)
    except (BackendUnavailable, BuildError):
        raise
    except Exception as error:  # whatever an engine or planner at fault may raise
        return Verification(
            title=title,
            detail=_engine_words(config),
            bytes_counted={},
            bytes_predicted={},
            trips={},
            stalled=stalled,
            seconds=time.perf_counter() - started,
            error=f"{type(error).__name__}: {error}",
        )
    plan, output = result.plan, np.asarray(result.output)
    if expected is None:
        expected = golden_layer(
            layer,
            inputs,
            weights,
            arguments.get("bias"),
            arguments.get("requantization"),
            arguments.get("weight_zero_points"),
        )
    batch = int(inputs.shape[0])
    moved, counters = plan.moved_bytes, result.counters
    trips = loop_trips(layer, plan.tile)
    return Verification(
        title=title,
        detail=f"{_engine_words(config)}, {plan.mode} {plan.order} {plan.tile}",
        outputs=int(output.size),
        differences=_differences(output, expected),
        cycles=int(result.cycles),
        predicted_cycles=batch * plan.cycles,
        bytes_counted={
            name: int(counters["sum_bytes" if name == "sums" else f"{name}_bytes"])
            for name in TENSORS
        },
        bytes_predicted={name: batch * int(getattr(moved, name)) for name in TENSORS},
        stalled=stalled,
        trips={"h": trips.h, "w": trips.w, "c": trips.c, "m": trips.m},
        macs=batch * layer.macs,
        lanes=config.lanes,
        backend=result.backend,
        seconds=time.perf_counter() - started,
    )


def _differences(output: npt.NDArray[Any], expected: npt.NDArray[Any] | str) -> int:
    if isinstance(expected, str):
        found = hashlib.sha256(np.ascontiguousarray(output).tobytes()).hexdigest()
        return 0 if found == expected else int(output.size)
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return int(output.size)
    return int(np.count_nonzero(output != expected))


def _engine_words(config: EngineConfig) -> str:
    return (
        f"{config.out_lanes}x{config.split_lanes} lanes, {config.bus_bytes}-byte ports, "
        f"{config.budget_bytes} B"
    )


# Given cases


def small_engine(layer: ConvLayer, base: EngineConfig) -> EngineConfig:
    """Return ``base`` with buffers that hold 3 x 3 outputs, Pm output and Pr input channels.

    A layer that is larger in some dimension must then be split in it.
    """
    channelwise = is_channelwise(layer)
    mode = "depthwise" if channelwise else "channel"
    tile = Tile(
        min(3, layer.out_height),
        min(3, layer.out_width),
        1 if channelwise else min(base.split_lanes, layer.group_in_channels),
        min(base.out_lanes, layer.out_channels if channelwise else layer.group_out_channels),
    )
    words = tile_words(layer, base, tile, mode)
    return replace(
        base,
        input_bytes=words.input * base.split_lanes * base.word_bytes,
        weight_bytes=words.weight * base.lanes,
        psum_bytes=words.psum * 4 * base.results_per_cycle,
        bias_bytes=words.groups * 4 * base.out_lanes,
    )


def split_tile(layer: ConvLayer, config: EngineConfig, mode: str) -> Tile | None:
    """Return a tile that splits every dimension of the layer, or None if none of them fits.

    The sizes never divide the extents where that can be had, so that the last tile is smaller.
    """
    channelwise = is_channelwise(layer)
    extents = (
        layer.out_height,
        layer.out_width,
        1 if channelwise else layer.group_in_channels,
        layer.out_channels if channelwise else layer.group_out_channels,
    )
    for parts in (2, 3, 4, 6, 10, 20):
        sizes = [min(-(-extent // parts) + (extent % parts == 0), extent) for extent in extents]
        sizes = [
            size - (size == extent and size > 1)
            for size, extent in zip(sizes, extents, strict=True)
        ]
        tile = Tile(*sizes)
        if check_fit(layer, config, tile, mode) is None:
            return tile
    return None


def _case_task(
    case: Case,
    config: EngineConfig,
    result: str,
    stalls: float,
    backend: str,
    latency: int,
    mode: str | None = None,
    order: str | None = None,
) -> Task:
    """Return the task of one case; a mode asks for :func:`split_tile` instead of a planned one."""
    raw = result == "raw"
    tile = None if mode is None else split_tile(case.layer, config, mode)
    words = "planned" if tile is None else f"split {mode} {order}"
    title = f"{case.name} {result}, stalls {stalls}, {words}, {_engine_words(config)}"
    return Task(
        title,
        verify_case,
        {
            "title": title,
            "layer": case.layer,
            "config": config,
            "inputs": case.x,
            "weights": case.w,
            "bias": case.bias,
            "requantization": None if raw else case.requantization(result),
            "weight_zero_points": case.zw if np.any(case.zw) else None,
            "expected": case.acc if raw else case.expected[result],
            "stalls": stalls,
            "backend": backend,
            "latency": latency,
            "tile": tile,
            "mode": None if tile is None else mode,
            "order": None if tile is None else order,
        },
    )


def case_tasks(
    cases: Iterable[Case],
    configs: Sequence[EngineConfig],
    roundings: Sequence[str] = RESULTS,
    stalls: Sequence[float] = (0.0,),
    *,
    backend: str = "auto",
    latency: int = 16,
    small: bool = False,
    split: bool = False,
) -> list[Task]:
    """Return the whole product of cases, engines, results and stalls as tasks.

    Parameters
    ----------
    cases : iterable of Case
    configs : sequence of EngineConfig
    roundings : sequence of str
        Of :data:`~haloconv.sim.randoms.RESULTS`.
    stalls : sequence of float
    backend, latency
        As :func:`~haloconv.sim.layer.simulate_layer` takes them.
    small : bool
        Each engine also with the buffers of :func:`small_engine`.
    split : bool
        Each engine also with the tile of :func:`split_tile`, in both orders and in every mode.
    """
    tasks: list[Task] = []
    for config in configs:
        for case in cases:
            engines = [config, small_engine(case.layer, config)] if small else [config]
            for engine, result, share in _product(engines, roundings, stalls):
                tasks.append(_case_task(case, engine, result, share, backend, latency))
            if not split:
                continue
            for mode, order in _product(_modes(case.layer), ORDERS):
                for result, share in _product(roundings, stalls):
                    task = _case_task(case, config, result, share, backend, latency, mode, order)
                    tasks.append(task)
    return tasks


def _product(*parts: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    if not parts:
        yield ()
        return
    for first in parts[0]:
        for rest in _product(*parts[1:]):
            yield first, *rest


def _modes(layer: ConvLayer) -> tuple[str, ...]:
    return ("depthwise",) if is_channelwise(layer) else ("channel", "row")


def spread_tasks(
    cases: Sequence[Case],
    configs: Sequence[EngineConfig],
    *,
    backend: str = "auto",
    latency: int = 16,
) -> list[Task]:
    """Return a spread over :func:`case_tasks` that takes seconds for each engine.

    Every case in every result, on engines that take turns, with and without stalls, with the
    planned tile and with split ones. Then every case of moderate size once in a small engine; these
    engines are many and run a single layer each, so ``auto`` takes Amaranth's simulator for them.
    """
    tasks: list[Task] = []
    for number, case in enumerate(cases):
        modes = _modes(case.layer)
        for turn, result in enumerate(RESULTS):
            config = configs[(number + turn) % len(configs)]
            share = 0.3 if (number + turn) % 2 else 0.0
            at = number // 2 + turn
            if at % 3:
                mode, order = modes[at % len(modes)], ORDERS[(at // 2) % len(ORDERS)]
            else:
                mode = order = None
            tasks.append(_case_task(case, config, result, share, backend, latency, mode, order))
    for number, case in enumerate(cases):
        result, share = RESULTS[number % len(RESULTS)], 0.3 if number % 3 == 2 else 0.0
        # Few lanes split the most, but a minute in Amaranth's simulator is too long.
        few = sorted(configs, key=lambda config: config.lanes)
        quick = [config for config in few if case.layer.macs <= MACS_PER_LANE * config.lanes]
        if not quick:
            continue
        base = quick[number % min(2, len(quick))]
        roundings = () if result == "raw" else (result,)
        config = replace(small_engine(case.layer, base), roundings=roundings)
        simulator = "amaranth" if backend == "auto" else backend
        tasks.append(_case_task(case, config, result, share, simulator, latency))
    return tasks


def verify_given_cases(
    cases: Iterable[Case],
    configs: Sequence[EngineConfig],
    roundings: Sequence[str] = RESULTS,
    stalls: Sequence[float] = (0.0,),
    *,
    backend: str = "auto",
    latency: int = 16,
    small: bool = False,
    split: bool = False,
    jobs: int = 1,
) -> Iterator[Verification]:
    """Run the tasks of :func:`case_tasks` and yield their results in order."""
    tasks = case_tasks(
        cases,
        configs,
        roundings,
        stalls,
        backend=backend,
        latency=latency,
        small=small,
        split=split,
    )
    return run_tasks(tasks, jobs)


# Random layers


def random_tasks(
    count: int,
    seed: int = 0,
    *,
    max_macs: int = 20_000,
    roundings: Sequence[str] = RESULTS,
    backend: str = "auto",
    cases_per_engine: int | None = None,
) -> list[Task]:
    """Return ``count`` random layers as tasks; their seeds count on from ``seed``.

    Parameters
    ----------
    count : int
    seed : int
    max_macs, roundings
        As :func:`~haloconv.sim.randoms.random_case` takes them.
    backend : str
    cases_per_engine : int or None
        Layers that share an engine, as a compiled simulator is built for each; 1 draws an engine
        for each layer. None: 1 in Amaranth's simulator, which builds nothing, else
        :data:`CASES_PER_ENGINE`.
    """
    check_int("count", count, 1)
    check_int("seed", seed, 0)
    if cases_per_engine is None:
        amaranth = choose_backend(backend).name == "amaranth"
        cases_per_engine = 1 if amaranth else CASES_PER_ENGINE
    check_int("cases_per_engine", cases_per_engine, 1)
    built = tuple(name for name in ROUNDINGS if name in roundings)
    tasks: list[Task] = []
    for number in range(seed, seed + count):
        arguments: dict[str, Any] = {
            "seed": number,
            "max_macs": max_macs,
            "roundings": tuple(roundings),
            "backend": backend,
        }
        if cases_per_engine > 1:
            first = number - (number - seed) % cases_per_engine
            arguments["config"] = random_config(first, roundings=built)
        tasks.append(Task(f"random layer {number}", _run_random, arguments))
    return tasks


def _run_random(
    seed: int,
    max_macs: int,
    roundings: Sequence[str],
    backend: str,
    config: EngineConfig | None = None,
) -> Verification:
    return verify_random_case(
        random_case(seed, max_macs=max_macs, roundings=roundings, config=config), backend
    )


def verify_random_case(case: RandomCase, backend: str = "amaranth") -> Verification:
    """Simulate a random case and compare it with the golden model and its plan."""
    found = verify_case(repr(case), case.layer, case.config, backend=backend, **case.arguments())
    return replace(found, detail=f"{case.describe()}; {found.detail}")


def verify_random(
    count: int,
    seed: int = 0,
    *,
    max_macs: int = 20_000,
    roundings: Sequence[str] = RESULTS,
    backend: str = "auto",
    cases_per_engine: int | None = None,
    jobs: int = 1,
) -> Iterator[Verification]:
    """Run the tasks of :func:`random_tasks` and yield their results in order."""
    tasks = random_tasks(
        count,
        seed,
        max_macs=max_macs,
        roundings=roundings,
        backend=backend,
        cases_per_engine=cases_per_engine,
    )
    return run_tasks(tasks, jobs)


# Layers of models


def model_input(model: TfliteModel, seed: int = 0) -> list[npt.NDArray[Any]]:
    """Return seeded inputs of a model: uniform codes for int8 and uint8, -1..1 for float32."""
    rng = np.random.default_rng(seed)
    arrays: list[npt.NDArray[Any]] = []
    for index in model.inputs:
        tensor = model.tensors[index]
        if tensor.dtype == "float32":
            arrays.append((rng.random(tensor.shape) * 2 - 1).astype(np.float32))
            continue
        limits = np.iinfo(tensor.dtype)
        codes = rng.integers(limits.min, int(limits.max) + 1, tensor.shape)
        arrays.append(codes.astype(tensor.dtype))
    return arrays


@lru_cache(maxsize=4)
def _reference(path: Path, target: str, seed: int) -> dict[int, npt.NDArray[Any]]:
    model = read_tflite(path)
    return reference_tensors(model, model_input(model, seed), target)


@lru_cache(maxsize=4)
def _layers(path: Path, target: str) -> dict[int, LayerData]:
    return {data.index: data for data in conv_layers(read_tflite(path), target)}


def _read_hashes(path: Path, model: str) -> dict[int, str]:
    """Return the SHA-256 of every operator's output that the file lists for ``model``."""
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        return {int(entry["index"]): str(entry["sha256"]) for entry in listed[model]["ops"]}
    except KeyError as error:
        raise ValueError(f"{path} must hold {error} to check {model}, but does not") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} must be a JSON file of hashes, but: {error}") from None


def model_tasks(
    path: str | PathLike[str],
    config: EngineConfig,
    *,
    target: str = "litert",
    seed: int = 0,
    hashes: str | PathLike[str] | None = None,
    backend: str = "auto",
    latency: int = 16,
    stalls: float = 0.0,
) -> list[Task]:
    """Return every convolution, depthwise and fully connected layer of a model as a task.

    Each layer is fed what the golden model computes for it from seeded inputs of the model.

    Parameters
    ----------
    path : path
        A .tflite file.
    config : EngineConfig
        Where its ``roundings`` is None, those that the layers ask for are built in.
    target : str
        Whose arithmetic the model is read for.
    seed : int
        Of the model's inputs.
    hashes : path or None
        JSON of SHA-256 by operator, as another implementation computed them from the same inputs:
        ``{"<file name>": {"ops": [{"index": 0, "sha256": "..."}, ...]}}``. Outputs are then held
        against these.
    backend, latency, stalls
        As :func:`~haloconv.sim.layer.simulate_layer` takes them.

    Raises
    ------
    UnsupportedModel
        If the model holds a layer that is not supported.
    ValueError
        If the file of hashes is none, or does not list the model.
    """
    path = Path(path)
    layers = _layers(path, target)
    listed = None if hashes is None else _read_hashes(Path(hashes), path.name)
    if config.roundings is None:
        asked = {data.requantization.rounding for data in layers.values()}
        config = replace(config, roundings=tuple(name for name in ROUNDINGS if name in asked))
    tasks: list[Task] = []
    for index, data in layers.items():
        if listed is not None and index not in listed:
            raise ValueError(f"{hashes} must list operator {index} of {path.name}, but does not")
        title = f"{path.name} {index} {data.operator.lower()}"
        tasks.append(
            Task(
                title,
                _run_model_layer,
                {
                    "title": title,
                    "path": path,
                    "index": index,
                    "target": target,
                    "seed": seed,
                    "digest": None if listed is None else listed[index],
                    "config": config,
                    "backend": backend,
                    "latency": latency,
                    "stalls": stalls,
                },
            )
        )
    return tasks


def _run_model_layer(
    title: str,
    path: Path,
    index: int,
    target: str,
    seed: int,
    digest: str | None,
    config: EngineConfig,
    **arguments: Any,
) -> Verification:
    data, values = _layers(path, target)[index], _reference(path, target, seed)
    layer = data.layer
    inputs = values[data.input_tensor].reshape(-1, *layer.input_shape[1:])
    expected = values[data.output_tensor].reshape(-1, *layer.output_shape[1:])
    return verify_case(
        title,
        layer,
        config,
        inputs=inputs,
        weights=data.weights,
        bias=data.bias,
        requantization=data.requantization,
        weight_zero_points=data.weight_zero_points,
        expected=expected if digest is None else digest,
        seed=seed,
        **arguments,
    )


def verify_model(
    path: str | PathLike[str],
    config: EngineConfig,
    *,
    target: str = "litert",
    seed: int = 0,
    hashes: str | PathLike[str] | None = None,
    backend: str = "auto",
    latency: int = 16,
    stalls: float = 0.0,
    jobs: int = 1,
) -> Iterator[Verification]:
    """Run the tasks of :func:`model_tasks` and yield their results in order."""
    tasks = model_tasks(
        path,
        config,
        target=target,
        seed=seed,
        hashes=hashes,
        backend=backend,
        latency=latency,
        stalls=stalls,
    )
    return run_tasks(tasks, jobs)
