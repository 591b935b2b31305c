"""The tile: what the engine holds and computes at once."""

from dataclasses import dataclass

from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.layer import ConvLayer
from haloconv.planner.validate import check_int

__all__ = ["MODES", "ORDERS", "Tile", "TileWords", "check_fit", "check_mode", "tile_words"]

MODES = ("channel", "row", "depthwise")
"""Uses of the split lanes, in the order of their codes in descriptors.

channel: Pr input channels of one output pixel. row: Pr neighbouring output pixels that share each
input channel over all output lanes. depthwise: Pr neighbouring pixels, a channel for each lane.
"""

ORDERS = ("hwmc", "mhwc")
"""Loop orders that the engine runs, outer to inner, in the order of their codes."""


@dataclass(frozen=True)
class Tile:
    """Output rows and columns, input channels and output channels of one tile.

    Channels count within one group. A depthwise tile has ``in_channels`` 1: each of its output
    channels brings its own input channel.
    """

    height: int
    width: int
    in_channels: int
    out_channels: int

    def __post_init__(self) -> None:
        for name in ("height", "width", "in_channels", "out_channels"):
            object.__setattr__(self, name, check_int(f"tile {name}", getattr(self, name), 1))


@dataclass(frozen=True)
class TileWords:
    """Words that a full tile takes in each memory of the engine.

    ``input`` counts words of one half of every bank, ``weight`` words of one half of the weight
    buffer, ``psum`` words of the accumulator bank (0 where the input channels are not split, as
    the sums then never leave the lanes), ``groups`` rows of Pm channels in the bias table.
    """

    input: int
    weight: int
    psum: int
    groups: int


def tile_words(layer: ConvLayer, config: EngineConfig, tile: Tile, mode: str) -> TileWords:
    """Return the words that ``tile`` takes in the memories of an engine in ``mode``.

    Source of the layouts: docs/architecture.md, "Halo buffer" and "Weight buffer".
    """
    lanes_out, lanes_split = config.out_lanes, config.split_lanes
    span_h, span_w = layer.span(tile.height, tile.width)
    groups = -(-tile.out_channels // lanes_out)
    if mode == "channel":
        positions = span_h * span_w * -(-tile.in_channels // config.word_bytes)
        input_words = -(-positions // lanes_split)
        weight = groups * layer.taps * -(-tile.in_channels // lanes_split)
    else:
        words = groups if mode == "depthwise" else -(-tile.in_channels // config.word_bytes)
        phases = min(layer.stride[1], span_w)
        columns = -(-span_w // layer.stride[1])
        input_words = span_h * phases * words * -(-columns // lanes_split)
        weight = groups * layer.taps * (1 if mode == "depthwise" else tile.in_channels)
    split = mode != "depthwise" and tile.in_channels < layer.group_in_channels
    full, rest = divmod(tile.out_channels, lanes_out)
    steps = full * config.group_steps + -(-rest // config.results_per_cycle)
    psum = tile.height * tile.width * steps if split else 0
    return TileWords(input_words, weight, psum, groups)


def check_mode(layer: ConvLayer, mode: str, order: str) -> None:
    """Refuse modes and orders that the engine does not run, or not for this layer.

    Raises
    ------
    ValueError
        For an unknown name.
    PlanError
        If the mode does not suit the layer.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
    channelwise = layer.is_depthwise and layer.out_channels == layer.in_channels
    if channelwise != (mode == "depthwise"):
        raise PlanError(
            f"mode {mode!r} does not suit this layer: depthwise layers of multiplier 1 run in mode "
            "depthwise, all others in channel or row"
        )


def check_fit(layer: ConvLayer, config: EngineConfig, tile: Tile, mode: str) -> str | None:
    """Return None if the tile fits the engine's memories, else a sentence that says why not."""
    words = tile_words(layer, config, tile, mode)
    for what, need, have, buffer in (
        ("input", words.input, config.input_words, "input_bytes"),
        ("weight", words.weight, config.weight_words, "weight_bytes"),
        ("partial-sum", words.psum, config.psum_words, "psum_bytes"),
        ("channel group", words.groups, config.channel_groups, "bias_bytes"),
    ):
        if need > have:
            return (
                f"the tile needs {need} {what} words but the engine holds {have}; "
                f"raise {buffer} or take a smaller tile"
            )
    return None
