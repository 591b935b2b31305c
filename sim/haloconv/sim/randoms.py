"""Random layers, engines and data over the whole space, each made again by its seed.

Print the case: ``repr`` is the call that makes it again, :meth:`RandomCase.describe` says in one
line what was drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import ROUNDINGS, Requantization
from haloconv.planner.tile import ORDERS, Tile, check_fit, tile_words
from haloconv.planner.traffic import is_channelwise, loop_trips
from haloconv.planner.validate import check_int

__all__ = ["KINDS", "RESULTS", "RandomCase", "random_case", "random_config"]

RESULTS = ("raw", *ROUNDINGS)
"""What a case may end in: int32 sums, or int8 in one of the rounding modes."""

KINDS = ("dense", "pointwise", "fully connected", "row", "column", "depthwise", "multiplier",
         "grouped")  # fmt: skip
"""Kinds of layers that are drawn: "row" has height 1, "column" width 1, "multiplier" is depthwise
with several outputs for each input."""

MACS_PER_TILE = 40
"""Tiles cost cycles beside their MACs, so a case has at most one for so many of the limit."""
TRIES = 2000
"""Draws of a layer for a given engine, and of a tile, before giving up."""

Rng = np.random.Generator


@dataclass(frozen=True, eq=False, repr=False)
class RandomCase:
    """One layer with its engine, its data, and how it is to be run.

    Parameters
    ----------
    call : str
        The call that makes it again; also what ``repr`` gives.
    kind : str
        Of :data:`KINDS`.
    layer : ConvLayer
    config : EngineConfig
        Holds the layer, with the rounding mode built in.
    inputs : int8 array, shape (N, H, W, C)
        N is 1 or 2.
    weights : int8 array, shape (M, Rh, Rw, C / groups)
    bias : int32 array, shape (M,), or None
    requantization : Requantization or None
    weight_zero_points : int array, shape (M,), or int, or None
    latency : int
        Cycles from a read request to its first beat.
    stalls : (float, float, float)
        Of requests, read data and writes; all 0 in every other case.
    stall_seed : int
    objective : str
        What the tile search puts first.
    tile, mode, order
        A plan that fits, or None where the planner is to choose.
    """

    call: str
    kind: str
    layer: ConvLayer
    config: EngineConfig
    inputs: npt.NDArray[np.int8]
    weights: npt.NDArray[np.int8]
    bias: npt.NDArray[np.int32] | None
    requantization: Requantization | None
    weight_zero_points: npt.NDArray[np.int32] | int | None
    latency: int
    stalls: tuple[float, float, float]
    stall_seed: int
    objective: str
    tile: Tile | None
    mode: str | None
    order: str | None

    def __repr__(self) -> str:
        return self.call

    @property
    def result(self) -> str:
        """What it ends in, of :data:`RESULTS`."""
        return "raw" if self.requantization is None else self.requantization.rounding

    def describe(self) -> str:
        """Return what was drawn, in one line."""
        layer, config = self.layer, self.config
        plan = "planned" if self.tile is None else f"{self.mode} {self.order} {self.tile}"
        return (
            f"{self.kind} {layer.input_shape[1:]} -> {layer.output_shape[1:]} "
            f"kernel {layer.kernel} stride {layer.stride} dilation {layer.dilation} "
            f"pads {layer.pads} "
            f"groups {layer.groups}, {self.result}, N={self.inputs.shape[0]}, "
            f"lanes {config.out_lanes}x{config.split_lanes}, bus {config.bus_bytes}, "
            f"buffers {config.input_bytes} {config.weight_bytes} {config.psum_bytes} "
            f"{config.bias_bytes}, {plan}, latency {self.latency}, stalls {self.stalls}"
        )

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of :func:`~haloconv.sim.layer.simulate_layer`."""
        return {
            "inputs": self.inputs,
            "weights": self.weights,
            "bias": self.bias,
            "requantization": self.requantization,
            "weight_zero_points": self.weight_zero_points,
            "latency": self.latency,
            "stalls": self.stalls,
            "seed": self.stall_seed,
            "objective": self.objective,
            "tile": self.tile,
            "mode": self.mode,
            "order": self.order,
        }


def random_case(
    seed: SupportsIndex,
    *,
    max_macs: SupportsIndex = 20_000,
    roundings: Sequence[str] = RESULTS,
    config: EngineConfig | None = None,
) -> RandomCase:
    """Draw a layer, an engine that holds it, data and a way to run it; the same seed the same case.

    Parameters
    ----------
    seed : int
        At least 0.
    max_macs : int
        Most multiply-accumulates of the layer, at least 64; it bounds the time of a simulation.
    roundings : sequence of str
        What the case may end in, of :data:`RESULTS`.
    config : EngineConfig or None
        An engine to run on, so that many cases share the build of a compiled simulator; None
        draws one with buffers that just hold a random tile, or a little more.

    Raises
    ------
    TypeError, ValueError
        For a parameter out of range.
    PlanError
        If ``config`` has none of the roundings, or is too small for any layer that was tried.
    """
    number = check_int("seed", seed, 0)
    limit = check_int("max_macs", max_macs, 64, 1 << 30)
    if isinstance(roundings, str) or not roundings:
        raise TypeError(f"roundings must be a sequence of names, not {roundings!r}")
    for name in roundings:
        if name not in RESULTS:
            raise ValueError(f"roundings must be of {', '.join(RESULTS)}, not {name!r}")
    results = [name for name in RESULTS if name in roundings]
    call = f"random_case({number}, max_macs={limit}, roundings={tuple(results)}"
    if config is not None:
        call += f", config={config}"
        results = [name for name in results if name in ("raw", *config.built_roundings)]
        if not results:
            raise PlanError(
                f"config must have one of the roundings {', '.join(roundings)}, but has "
                f"{', '.join(config.built_roundings) or 'none'}"
            )
    rng = np.random.default_rng([number, limit])
    kind, layer, tile, mode = _draw_plan(rng, limit, config)
    result = _pick(rng, *results)
    asymmetric = rng.random() < 0.25 and (config is None or config.weight_zero_points)
    if config is None:
        config = _engine_for(rng, layer, tile, mode, result, asymmetric)
        # Weights, inputs and outputs are each at most `limit` elements.
        least = min(32, max(16, (16 * limit).bit_length()))
        config = replace(config, address_bits=int(rng.integers(least, 33)))
    arrays = _draw_arrays(rng, layer, asymmetric)
    given = rng.random() < 0.5
    return RandomCase(
        call=call + ")",
        kind=kind,
        layer=layer,
        config=config,
        requantization=_draw_requantization(rng, layer, result),
        latency=_pick(rng, 1, 2, 5, 16, 16, 40),
        stalls=_draw_stalls(rng),
        stall_seed=int(rng.integers(1 << 32)),
        objective=_pick(rng, "cycles", "cycles", "bytes", "storage"),
        tile=tile if given else None,
        mode=mode if given else None,
        order=_pick(rng, *ORDERS) if given else None,
        **arrays,
    )


def random_config(
    seed: SupportsIndex, *, roundings: Sequence[str] = ROUNDINGS, max_lanes: SupportsIndex = 24
) -> EngineConfig:
    """Draw an engine with small buffers that still hold a good part of the random layers.

    Parameters
    ----------
    seed : int
        At least 0.
    roundings : sequence of str
        Rounding modes to build in.
    max_lanes : int
        Most lanes, Pm * Pr.
    """
    rng = np.random.default_rng([check_int("seed", seed, 0), 1])
    pm, pr = _draw_lanes(rng, check_int("max_lanes", max_lanes, 1))
    word = pr * -(-pm // pr)
    input_words, weight_words = int(rng.integers(12, 97)), int(rng.integers(16, 129))
    return EngineConfig(
        out_lanes=pm,
        split_lanes=pr,
        bus_bytes=_pick(rng, 1, 2, 4, 8, 16, 32),
        input_bytes=max(256, pr * word * input_words) + int(rng.integers(word)),
        weight_bytes=max(128, pm * pr * weight_words) + int(rng.integers(pm)),
        psum_bytes=int(rng.integers(64, 2049)),
        bias_bytes=4 * pm * int(rng.integers(1, 5)) + int(rng.integers(4)),
        requant_lanes=_pick(rng, None, int(rng.integers(1, pm + 1))),
        roundings=tuple(name for name in roundings if name != "raw"),
        address_bits=int(rng.integers(20, 33)),
    )


def _pick(rng: Rng, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _draw_lanes(rng: Rng, limit: int) -> tuple[int, int]:
    while True:
        lanes = _pick(rng, 1, 2, 2, 3, 4, 5, 7, 8), _pick(rng, 1, 2, 2, 3, 4, 5, 6, 8)
        if lanes[0] * lanes[1] <= limit:
            return lanes


def _draw_plan(
    rng: Rng, max_macs: int, config: EngineConfig | None
) -> tuple[str, ConvLayer, Tile, str]:
    """Return a kind, a layer, and a tile of it in a mode that ``config`` holds."""
    most_tiles = max(2, max_macs // MACS_PER_TILE)
    for _ in range(TRIES):
        drawn = _draw_layer(rng, max_macs)
        if drawn is None:
            continue
        kind, layer = drawn
        mode = "depthwise" if is_channelwise(layer) else _pick(rng, "channel", "row")
        for _ in range(20):
            tile = _draw_tile(rng, layer, mode)
            if loop_trips(layer, tile).tiles > most_tiles:
                continue
            if config is None or check_fit(layer, config, tile, mode) is None:
                return kind, layer, tile, mode
    raise PlanError(
        "config is too small for the random layers; raise its buffers, or max_macs if that is low"
    )


def _draw_layer(rng: Rng, max_macs: int) -> tuple[str, ConvLayer] | None:
    """Return a layer of at most ``max_macs``, or None where this draw is not one."""
    kind = _pick(rng, "dense", "dense", "dense", *KINDS)
    large = rng.random() < 0.1  # now and then one number far beyond the others
    which = int(rng.integers(4))

    def size(usual: int, rare: int, number: int) -> int:
        return int(rng.integers(1, (rare if large and which == number else usual) + 1))

    height, width = size(12, 70, 0), size(12, 70, 1)
    channels, outputs = size(18, 130, 2), size(18, 130, 3)
    kernel = (int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    if rng.random() < 0.3:
        kernel = (3, 3)
    if rng.random() < 0.1:
        kernel = (int(rng.integers(1, 12)), int(rng.integers(1, 12)))
        height, width = max(height, kernel[0]), max(width, kernel[1])
    groups = 1
    if kind in ("pointwise", "fully connected"):
        kernel = (1, 1)
    if kind == "fully connected":
        height = width = 1
        channels, outputs = size(200, 800, 2), size(30, 200, 3)
    elif kind == "row":
        height, width = 1, size(50, 300, 1)
    elif kind == "column":
        height, width = size(50, 300, 0), 1
    elif kind == "depthwise":
        groups = outputs = channels
    elif kind == "multiplier":
        groups = channels
        outputs = channels * int(rng.integers(2, 5))
    elif kind == "grouped":
        groups = int(rng.integers(2, 5))
        channels, outputs = groups * -(-channels // groups), groups * -(-outputs // groups)
    if kind == "fully connected" and rng.random() < 0.8:
        stride, dilation, pads = (1, 1), (1, 1), (0, 0, 0, 0)
    else:
        stride = _pick(rng, (1, 1), (1, 1), (2, 2), _two(rng, 4), _two(rng, 7))
        dilation = _pick(rng, (1, 1), (1, 1), (1, 1), _two(rng, 3), _two(rng, 8))
        window = [(kernel[i] - 1) * dilation[i] + 1 for i in (0, 1)]
        tall, wide = window
        pads = (
            _draw_pad(rng, tall),
            _draw_pad(rng, tall),
            _draw_pad(rng, wide),
            _draw_pad(rng, wide),
        )
    try:
        layer = ConvLayer(
            in_height=height,
            in_width=width,
            in_channels=channels,
            out_channels=outputs,
            kernel=kernel,
            stride=stride,
            dilation=dilation,
            pads=pads,
            groups=groups,
            in_zero_point=_pick(rng, 0, -128, 127, *rng.integers(-128, 128, 3).tolist()),
            has_bias=bool(rng.random() < 0.75),
        )
    except ValueError:  # the window does not fit
        return None
    # Loads and writes cost cycles as well; padding alone may make a large output.
    elements = height * width * channels + layer.out_height * layer.out_width * outputs
    return None if layer.macs > max_macs or elements > max_macs else (kind, layer)


def _two(rng: Rng, most: int) -> tuple[int, int]:
    return int(rng.integers(1, most + 1)), int(rng.integers(1, most + 1))


def _draw_pad(rng: Rng, window: int) -> int:
    kind = rng.random()
    if kind < 0.35:
        return 0
    if kind < 0.6:
        return window // 2
    return int(rng.integers(0, window + (1 if kind < 0.9 else 6)))


def _draw_tile(rng: Rng, layer: ConvLayer, mode: str) -> Tile:
    def part(extent: int) -> int:
        share = rng.random()
        if share < 0.3:
            return extent
        if share < 0.6:
            return -(-extent // 2)
        return int(rng.integers(1, extent + 1))

    depthwise = mode == "depthwise"
    return Tile(
        part(layer.out_height),
        part(layer.out_width),
        1 if depthwise else part(layer.group_in_channels),
        part(layer.out_channels if depthwise else layer.group_out_channels),
    )


def _engine_for(
    rng: Rng, layer: ConvLayer, tile: Tile, mode: str, result: str, asymmetric: bool
) -> EngineConfig:
    """Return an engine that holds ``tile`` in ``mode``, with little or no room to spare."""
    pm, pr = _draw_lanes(rng, 24)
    base = EngineConfig(
        out_lanes=pm,
        split_lanes=pr,
        bus_bytes=_pick(rng, 1, 2, 4, 8, 16, 32),
        requant_lanes=_pick(rng, None, int(rng.integers(1, pm + 1))),
        bias_bytes=1 << 18,
        roundings=_draw_roundings(rng, result),
        weight_zero_points=bool(asymmetric or rng.random() < 0.5),
    )
    words = tile_words(layer, base, tile, mode)
    row = pr * base.word_bytes
    spare = _pick(rng, 1.0, 1.0, 1.3, 2.0)
    return replace(
        base,
        input_bytes=int(max(1, words.input) * row * spare) + int(rng.integers(row)),
        weight_bytes=int(words.weight * base.lanes * spare) + int(rng.integers(base.lanes)),
        psum_bytes=int(words.psum * 4 * base.results_per_cycle * spare),
        bias_bytes=4 * pm * words.groups + int(rng.integers(4)),
    )


def _draw_roundings(rng: Rng, result: str) -> tuple[str, ...]:
    others = [name for name in ROUNDINGS if rng.random() < 0.2]
    return tuple(name for name in ROUNDINGS if name in others or name == result)


def _draw_stalls(rng: Rng) -> tuple[float, float, float]:
    shares = [_pick(rng, 0.0, 0.1, 0.3, 0.6) for _ in range(3)]
    if rng.random() < 0.5:
        return 0.0, 0.0, 0.0
    return shares[0], shares[1], shares[2]


def _draw_arrays(rng: Rng, layer: ConvLayer, asymmetric: bool) -> dict[str, Any]:
    batch = 2 if rng.random() < 0.1 else 1
    shape = (batch, *layer.input_shape[1:])
    zero_points: Any = None
    if asymmetric:
        zero_points = rng.integers(-128, 128, layer.out_channels, dtype=np.int32)
        if rng.random() < 0.3:
            zero_points = int(zero_points[0])
    bias = None
    if layer.has_bias:
        # |x - Zx| and |w - Zw| are at most 255.
        room = 2**31 - 1 - 255 * 255 * layer.taps * layer.group_in_channels
        most = _pick(rng, 1000, 1000, 2**20, max(1, room))
        most = max(1, min(most, room))
        bias = rng.integers(-most, most + 1, layer.out_channels).astype(np.int32)
        if rng.random() < 0.05:
            bias[:] = 0
    return {
        "inputs": _draw_codes(rng, shape),
        "weights": _draw_codes(rng, layer.weight_shape),
        "bias": bias,
        "weight_zero_points": zero_points,
    }


def _draw_codes(rng: Rng, shape: tuple[int, ...]) -> npt.NDArray[np.int8]:
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(np.array([-128, 127], np.int8), shape)
    if kind < 0.15:
        return np.full(shape, -128, np.int8)
    return rng.integers(-128, 128, shape, dtype=np.int8)


def _draw_requantization(rng: Rng, layer: ConvLayer, result: str) -> Requantization | None:
    if result == "raw":
        return None
    channels = 1 if rng.random() < 0.2 else layer.out_channels
    # Most codes of the output occur: random sums deviate by about 74 * 74 * sqrt(terms).
    spread = 48.0 / (5476.0 * np.sqrt(layer.taps * layer.group_in_channels))
    scale = spread * 2.0 ** rng.uniform(-2.0, 2.0, channels)
    low, high = -128, 127
    if rng.random() < 0.4:
        low, high = sorted(rng.integers(-128, 128, 2).tolist())
    common: dict[str, Any] = {
        "zero_point": int(rng.integers(-128, 128)),
        "clamp": (low, high),
        "rounding": result,
    }
    wild = rng.random(channels) < 0.1
    if result == "fp32":
        any_scale = np.exp2(rng.uniform(-149.0, 127.9, channels))
        return Requantization(scale=np.where(wild, any_scale, scale).astype(np.float32), **common)
    fraction, exponent = np.frexp(scale)
    multiplier = np.minimum(np.rint(fraction * 2.0**31), 2.0**31 - 1).astype(np.int64)
    # A power of two meets the halves, where the modes differ.
    multiplier = np.where(rng.random(channels) < 0.2, 2**30, multiplier)
    multiplier = np.where(rng.random(channels) < 0.03, 0, multiplier)
    shift = np.where(wild, rng.integers(-31, 32, channels), exponent).astype(np.int64)
    return Requantization(multiplier=multiplier, shift=shift, **common)
