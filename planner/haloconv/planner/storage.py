"""Bytes that a tile needs, line by line, beside the buffers that hold it."""

from dataclasses import dataclass

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.tile import Tile, TileWords, tile_words
from haloconv.planner.traffic import is_channelwise

__all__ = ["Capacity", "Storage", "tile_storage"]


@dataclass(frozen=True)
class Capacity:
    """Bytes of the engine's buffers, and what the tile occupies of them.

    ``input`` and ``weight`` are one half of each double buffer. ``used_*`` are whole words as the
    hardware stores them, so they include channels and columns that pad a word.
    """

    input: int
    weight: int
    psum: int
    bias: int
    used_input: int
    used_weight: int
    used_psum: int
    used_bias: int
    allowance: int
    """Second bias half, scale tables and weight zero points: outside the budget, never hidden."""


@dataclass(frozen=True)
class Storage:
    """Storage of one tile by the formulas of docs/formulas.md, in bytes.

    ``input`` and ``weight`` are one copy each. ``words`` and ``capacity`` are there when an engine
    was given. ``psum_idle`` says that the accumulator bank stands unused, since the tile holds
    all input channels and its sums never leave the lanes; ``psum`` still shows the full count.
    """

    layer: ConvLayer
    tile: Tile
    input: int
    weight: int
    psum: int
    bias: int
    psum_idle: bool
    words: TileWords | None = None
    capacity: Capacity | None = None

    @property
    def single(self) -> int:
        """Bytes of one tile: input + weight + psum + bias."""
        return self.input + self.weight + self.psum + self.bias

    @property
    def double_buffered(self) -> int:
        """Bytes with two copies of the operands: 2*(input + weight) + psum + bias."""
        return 2 * (self.input + self.weight) + self.psum + self.bias

    def rows(self) -> tuple[tuple[str, str, int], ...]:
        """Return (label, formula with its numbers, bytes) lines, in the order of a report."""
        layer, tile = self.layer, self.tile
        (kernel_h, kernel_w), (stride_h, stride_w) = layer.kernel, layer.stride
        dilation_h, dilation_w = layer.dilation
        span_h, span_w = layer.span(tile.height, tile.width)
        # Channelwise tiles have as many input channels as output channels, one for each.
        depth, of_depth = ("Tm", "") if is_channelwise(layer) else ("Tc", f"*{tile.in_channels}")
        channels = tile.in_channels if of_depth else tile.out_channels
        rows = f"({tile.height}-1)*{stride_h} + ({kernel_h}-1)*{dilation_h} + 1 = {span_h}"
        columns = f"({tile.width}-1)*{stride_w} + ({kernel_w}-1)*{dilation_w} + 1 = {span_w}"
        spans = f"span = (T-1)*S + (R-1)*D + 1: rows {rows}, columns {columns}"
        weights = f"Tm*{depth}*Rh*Rw" if of_depth else "Tm*Rh*Rw"
        sums = "partial sums (bank idle)" if self.psum_idle else "partial sums"
        parts = f"{self.input} + {self.weight}"
        rest = f"{self.psum} + {self.bias}"
        table = [
            (
                "input",
                f"{depth}*span_h*span_w = {channels}*{span_h}*{span_w}; {spans}",
                self.input,
            ),
            (
                "weights",
                f"{weights} = {tile.out_channels}{of_depth}*{kernel_h}*{kernel_w}",
                self.weight,
            ),
            (
                sums,
                f"4*Th*Tw*Tm = 4*{tile.height}*{tile.width}*{tile.out_channels}",
                self.psum,
            ),
            ("bias", f"4*Tm = 4*{tile.out_channels}", self.bias),
            (
                "one tile",
                f"input + weights + partial sums + bias = {parts} + {rest}",
                self.single,
            ),
            (
                "double-buffered",
                f"2*(input + weights) + partial sums + bias = 2*({parts}) + {rest}",
                self.double_buffered,
            ),
        ]
        if self.capacity is not None:
            have = self.capacity
            for label, used, total in (
                ("input buffer, each half", have.used_input, have.input),
                ("weight buffer, each half", have.used_weight, have.weight),
                ("accumulator bank", have.used_psum, have.psum),
                ("bias table", have.used_bias, have.bias),
            ):
                table.append((label, f"whole words occupied, of {total} built", used))
            table.append(
                (
                    "allowance, outside the budget",
                    "second bias half, scale tables, weight zero points",
                    have.allowance,
                )
            )
        return tuple(table)


def tile_storage(
    layer: ConvLayer,
    tile: Tile,
    config: EngineConfig | None = None,
    mode: str | None = None,
) -> Storage:
    """Return the storage of a full tile, and with an engine what it occupies there.

    Parameters
    ----------
    layer : ConvLayer
    tile : Tile
        For a depthwise layer of multiplier 1 the tile has one input channel for each output
        channel, and Tm stands for Tc in the input's formula.
    config : EngineConfig, optional
        Adds ``words`` and ``capacity``; needs ``mode``.
    mode : str, optional
        Of :data:`~haloconv.planner.tile.MODES`.

    Raises
    ------
    ValueError
        If only one of ``config`` and ``mode`` is given.
    """
    if (config is None) != (mode is None):
        raise ValueError(
            f"config and mode must be given together, not {config!r} and {mode!r}: "
            "the words of a tile depend on both"
        )
    channelwise = is_channelwise(layer)
    span_h, span_w = layer.span(tile.height, tile.width)
    words = capacity = None
    if config is not None and mode is not None:
        words = tile_words(layer, config, tile, mode)
        capacity = Capacity(
            input=config.input_bytes,
            weight=config.weight_bytes,
            psum=config.psum_bytes,
            bias=config.bias_bytes,
            used_input=words.input * config.split_lanes * config.word_bytes,
            used_weight=words.weight * config.lanes,
            used_psum=words.psum * 4 * config.results_per_cycle,
            used_bias=words.groups * 4 * config.out_lanes,
            allowance=config.allowance_bytes,
        )
    return Storage(
        layer=layer,
        tile=tile,
        input=(tile.out_channels if channelwise else tile.in_channels) * span_h * span_w,
        weight=tile.out_channels * (1 if channelwise else tile.in_channels) * layer.taps,
        psum=4 * tile.height * tile.width * tile.out_channels,
        bias=4 * tile.out_channels,
        psum_idle=channelwise or tile.in_channels >= layer.group_in_channels,
        words=words,
        capacity=capacity,
    )
