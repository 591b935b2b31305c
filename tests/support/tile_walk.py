"""Tiles of a layer in plain loops, straight from its definition.

What each tile fetches, where its operands lie in memory, and where the engine has to store them:
the tests of the load side compare the hardware and the planner with this.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.program import LayerAddresses, describe_layer
from haloconv.planner.requantization import Requantization
from haloconv.planner.tile import Tile, check_fit

CONFIGS = {
    "1x1_bus1": EngineConfig(
        out_lanes=1,
        split_lanes=1,
        bus_bytes=1,
        input_bytes=600,
        weight_bytes=300,
        psum_bytes=4096,
        bias_bytes=24,
        address_bits=16,
    ),
    "3x5_bus2": EngineConfig(
        out_lanes=3,
        split_lanes=5,
        bus_bytes=2,
        requant_lanes=2,
        input_bytes=1500,
        weight_bytes=1700,
        psum_bytes=8192,
        bias_bytes=60,
        weight_zero_points=False,
        address_bits=24,
    ),
    "8x2_bus16": EngineConfig(
        out_lanes=8,
        split_lanes=2,
        bus_bytes=16,
        requant_lanes=3,
        input_bytes=2048,
        weight_bytes=2048,
        psum_bytes=8192,
        bias_bytes=100,
    ),
    "4x4_bus32": EngineConfig(
        out_lanes=4,
        split_lanes=4,
        bus_bytes=32,
        input_bytes=2048,
        weight_bytes=2048,
        psum_bytes=8192,
        bias_bytes=64,
    ),
}
"""Lanes, bus widths, tables and options that differ as much as a few configurations can."""


@dataclass(frozen=True)
class Span:
    """Rows (or columns) under a tile along one axis: first one, pads included, and those inside."""

    start: int
    inside: range

    @property
    def skip(self) -> int:
        """Positions before the tensor."""
        return max(0, -self.start)


@dataclass(frozen=True)
class TileAt:
    """Tile indices and what follows from them by the layer's definition."""

    index: dict[str, int]
    last: dict[str, bool]
    height: int
    width: int
    rows: Span
    columns: Span
    outputs: range
    """Output channels, counted over the whole layer."""
    inputs: range
    """Input channels, counted over the whole layer."""
    new_input: bool
    new_weights: bool
    new_parameters: bool

    @property
    def empty(self) -> bool:
        """Nothing of the span lies inside the tensor."""
        return not self.rows.inside or not self.columns.inside


@dataclass(frozen=True)
class Case:
    """A layer, an engine and a choice of tiles, with operands."""

    layer: ConvLayer
    config: EngineConfig
    tile: Tile
    mode: str
    order: str
    addresses: LayerAddresses
    requantization: Requantization | None
    load_scale: bool
    inputs: np.ndarray
    """(H, W, C) int8."""
    weights: np.ndarray
    """(M, Rh, Rw, C / groups) int8."""
    bias: np.ndarray
    """(M,) int32."""
    scales: np.ndarray
    """(M, 6) uint8: multiplier, shift, weight zero point."""

    @property
    def entry_bytes(self) -> int:
        """Bytes of a channel in the scale table."""
        return 6 if self.config.weight_zero_points else 5

    @cached_property
    def descriptor(self) -> bytes:
        """The planner's descriptor."""
        return describe_layer(
            self.layer,
            self.config,
            self.tile,
            self.mode,
            self.order,
            self.addresses,
            self.requantization,
            load_scale=self.load_scale,
            last=True,
        )

    @cached_property
    def tiles(self) -> list[TileAt]:
        """Every tile in the order in which it runs."""
        layer, tile, depthwise = self.layer, self.tile, self.mode == "depthwise"
        groups = 1 if depthwise else layer.groups
        group_out = layer.out_channels // groups
        group_in = layer.in_channels // groups
        size = {
            "g": (groups, 1),
            "h": (layer.out_height, tile.height),
            "w": (layer.out_width, tile.width),
            "m": (group_out, tile.out_channels),
            "c": (1 if depthwise else group_in, tile.in_channels),
        }
        trips = {loop: len(range(0, total, part)) for loop, (total, part) in size.items()}
        nest = "ghwmc" if self.order == "hwmc" else "gmhwc"
        found: list[TileAt] = []
        before: dict[str, object] = {}
        for position in product(*(range(trips[loop]) for loop in nest)):
            at = dict(zip(nest, position, strict=True))
            cut = {
                loop: range(at[loop] * part, min(total, (at[loop] + 1) * part))
                for loop, (total, part) in size.items()
            }
            outputs = range(
                at["g"] * group_out + cut["m"].start, at["g"] * group_out + cut["m"].stop
            )
            inputs = (
                outputs
                if depthwise
                else range(at["g"] * group_in + cut["c"].start, at["g"] * group_in + cut["c"].stop)
            )
            key = {
                "input": (cut["h"], cut["w"], inputs),
                "weights": (outputs, cut["c"]),
                "parameters": outputs,
            }
            found.append(
                TileAt(
                    index=at,
                    last={loop: at[loop] == trips[loop] - 1 for loop in nest},
                    height=len(cut["h"]),
                    width=len(cut["w"]),
                    rows=_span(layer, 0, cut["h"]),
                    columns=_span(layer, 1, cut["w"]),
                    outputs=outputs,
                    inputs=inputs,
                    new_input=before.get("input") != key["input"],
                    new_weights=before.get("weights") != key["weights"],
                    new_parameters=before.get("parameters") != key["parameters"],
                )
            )
            before = dict(key)
        return found

    def parts(self, channels: range) -> list[range]:
        """Cut output channels into groups of Pm."""
        lanes = self.config.out_lanes
        return [
            range(first, min(first + lanes, channels.stop))
            for first in range(channels.start, channels.stop, lanes)
        ]

    def weight_chunks(self, at: TileAt) -> list[list[int]]:
        """The tile's weights, a list for each chunk that the loader takes."""
        first = 0 if self.mode == "depthwise" else at.index["g"] * self.layer.group_in_channels
        channels = [0] if self.mode == "depthwise" else [c - first for c in at.inputs]
        step = self.config.split_lanes
        chunks = []
        for outputs in self.parts(at.outputs):
            for u, v in product(range(self.layer.kernel[0]), range(self.layer.kernel[1])):
                if self.mode == "channel":
                    for low in range(0, len(channels), step):
                        for o in outputs:
                            chunks.append(
                                [int(self.weights[o, u, v, c]) for c in channels[low : low + step]]
                            )
                else:
                    for c in channels:
                        chunks.append([int(self.weights[o, u, v, c]) for o in outputs])
        return chunks

    @cached_property
    def packed_weights(self) -> tuple[bytes, dict[tuple[range, range], int]]:
        """All weights in memory order, and where each tile's begin."""
        data = bytearray()
        where: dict[tuple[range, range], int] = {}
        order = ("g", "m", "c")
        for at in sorted(self.tiles, key=lambda at: [at.index[loop] for loop in order]):
            key = (at.outputs, at.inputs)
            if key not in where:
                where[key] = len(data)
                data += bytes(w & 0xFF for chunk in self.weight_chunks(at) for w in chunk)
        return bytes(data), where

    @property
    def whole_pixels(self) -> bool:
        """A tile has every input channel, so that its rows are runs of bytes."""
        part = self.tile.out_channels if self.mode == "depthwise" else self.tile.in_channels
        return part == self.layer.in_channels

    def input_address(self, y: int, x: int, c: int) -> int:
        """Address of an input byte."""
        layer = self.layer
        return self.addresses.input + (y * layer.in_width + x) * layer.in_channels + c

    def segments(self, at: TileAt) -> list[tuple[int, int]]:
        """(address, length) of every run of bytes that the tile fetches."""
        found = []
        if at.new_parameters:
            first, count = at.outputs.start, len(at.outputs)
            if self.layer.has_bias:
                found.append((self.addresses.bias + 4 * first, 4 * count))
            if self.load_scale:
                size = self.entry_bytes
                found.append((self.addresses.scale + size * first, size * count))
        if at.new_weights:
            length = sum(map(len, self.weight_chunks(at)))
            where = self.packed_weights[1][at.outputs, at.inputs]
            found.append((self.addresses.weight + where, length))
        if at.new_input and not at.empty:
            for y in at.rows.inside:
                columns = at.columns.inside
                runs = [columns] if self.whole_pixels else [range(x, x + 1) for x in columns]
                for run in runs:
                    address = self.input_address(y, run.start, at.inputs.start)
                    found.append((address, len(run) * len(at.inputs)))
        return found

    def fetch_record(self, at: TileAt) -> dict[str, int]:
        """What the segment walker is told; without addresses and length of an empty input."""
        first, mask = at.outputs.start, (1 << self.config.address_bits) - 1
        record = {
            **self._common(at),
            "bias_address": self.addresses.bias + 4 * first & mask,
            "scale_address": self.addresses.scale + self.entry_bytes * first & mask,
            "weight_address": self.addresses.weight + self.packed_weights[1][at.outputs, at.inputs]
            & mask,
            "weight_length": sum(map(len, self.weight_chunks(at))),
            "tile_m": len(at.outputs),
            "rows": 0 if at.empty else len(at.rows.inside),
            "columns": 0 if at.empty else len(at.columns.inside),
        }
        if not at.empty:
            address = self.input_address(
                at.rows.inside.start, at.columns.inside.start, at.inputs.start
            )
            run = len(at.columns.inside) if self.whole_pixels else 1
            record |= {"input_address": address & mask, "input_length": run * len(at.inputs)}
        return record

    def load_record(self, at: TileAt) -> dict[str, int]:
        """What the tile loader is told."""
        config = self.config
        words = range(0, len(at.inputs), self.channels_per_word)
        steps = range(0, len(at.inputs), config.split_lanes)
        record = {
            **self._common(at),
            "rows": 0 if at.empty else len(at.rows.inside),
            "columns": 0 if at.empty else len(at.columns.inside),
            "skip_rows": at.rows.skip,
            "skip_columns": at.columns.skip,
            "tile_m": len(at.outputs),
            "m_groups": len(self.parts(at.outputs)),
            "m_tail": len(self.parts(at.outputs)[-1]),
            "c_steps": {"channel": len(steps), "row": len(at.inputs), "depthwise": 1}[self.mode],
            "c_tail": len(at.inputs) - steps[-1] if self.mode == "channel" else 1,
            "pixel_words": len(words),
            "word_tail": len(at.inputs) - words[-1],
        }
        return record

    def compute_record(self, at: TileAt) -> dict[str, int]:
        """What the tap walker is told."""
        load, stride, left = self.load_record(at), self.layer.stride[1], self.layer.pads[2]
        together = 1 if self.mode == "channel" else self.config.split_lanes
        columns = range(0, at.width, together)
        first = at.index["w"] * self.tile.width
        return {
            **self._common(at),
            "first_c": int(at.index["c"] == 0),
            "last_c": int(at.last["c"]),
            "rows": at.height,
            "column_groups": len(columns),
            "column_tail": at.width - columns[-1],
            **{name: load[name] for name in ("m_groups", "m_tail", "c_steps")},
            "skip_rows": load["skip_rows"],
            "inside_rows": load["rows"],
            "low_q": left // stride - first,
            "high_q": (left + self.layer.in_width) // stride - first,
        }

    def write_address(self, at: TileAt) -> int:
        """Address of the tile's first result."""
        layer, size = self.layer, 4 if self.requantization is None else 1
        y, x = at.index["h"] * self.tile.height, at.index["w"] * self.tile.width
        place = (y * layer.out_width + x) * layer.out_channels + at.outputs.start
        return self.addresses.output + size * place & ((1 << self.config.address_bits) - 1)

    def _common(self, at: TileAt) -> dict[str, int]:
        return {
            name: int(getattr(at, name)) for name in ("new_parameters", "new_weights", "new_input")
        }

    @property
    def channels_per_word(self) -> int:
        """Input channels in one halo buffer word."""
        lanes = self.config.out_lanes
        return lanes if self.mode == "depthwise" else self.config.word_bytes

    def loaded_bytes(self, at: TileAt) -> dict[str, bytes]:
        """Bytes that the tile takes, by kind, in the order of the kinds."""
        found = {"bias": b"", "scale": b"", "weight": b"", "input": b""}
        if at.new_parameters:
            channels = slice(at.outputs.start, at.outputs.stop)
            if self.layer.has_bias:
                found["bias"] = self.bias[channels].astype("<i4").tobytes()
            if self.load_scale:
                found["scale"] = self.scales[channels, : self.entry_bytes].tobytes()
        if at.new_weights:
            found["weight"] = bytes(w & 0xFF for chunk in self.weight_chunks(at) for w in chunk)
        if at.new_input and not at.empty:
            found["input"] = b"".join(
                self.inputs[y, x, at.inputs.start : at.inputs.stop].tobytes()
                for y, x in product(at.rows.inside, at.columns.inside)
            )
        return found

    def halo_words(self, at: TileAt) -> dict[tuple[int, int], list[int]]:
        """{(bank, word): offsets from the zero point} of the tile's input in half 0."""
        lanes, stride = self.config.split_lanes, self.layer.stride[1]
        span_w = (self.tile.width - 1) * stride + self.layer.window[1]
        part = self.tile.out_channels if self.mode == "depthwise" else self.tile.in_channels
        words = -(-part // self.channels_per_word)
        phases = min(stride, span_w)
        depth = len(range(0, len(range(0, span_w, stride)), lanes))
        found = {}
        if at.empty:
            return found
        for y, x in product(at.rows.inside, at.columns.inside):
            row, column = y - at.rows.start, x - at.columns.start
            for k in range(0, len(at.inputs), self.channels_per_word):
                word = k // self.channels_per_word
                if self.mode == "channel":
                    place = (row * span_w + column) * words + word
                    bank, line = place % lanes, place // lanes
                else:
                    output, phase = divmod(column, stride)
                    bank = output % lanes
                    line = ((row * phases + phase) * words + word) * depth + output // lanes
                channels = at.inputs[k : k + self.channels_per_word]
                assert (bank, line) not in found
                found[bank, line] = [
                    int(self.inputs[y, x, c]) - self.layer.in_zero_point for c in channels
                ]
        return found

    def weight_words(self, at: TileAt) -> dict[tuple[int, int], list[int]]:
        """{(output lane, word): Pr offsets from the zero point} of the tile's weights in half 0."""
        lanes, taps = self.config.split_lanes, self.layer.taps
        depthwise = self.mode == "depthwise"
        first = at.index["g"] * self.layer.group_in_channels
        channels = [0] if depthwise else [c - first for c in at.inputs]
        built = self.config.weight_zero_points and self.load_scale
        found = {}
        for group, outputs in enumerate(self.parts(at.outputs)):
            for lane, o in enumerate(outputs):
                zero = int(self.scales[o, 5].view(np.int8)) if built else 0
                for tap in range(taps):
                    u, v = divmod(tap, self.layer.kernel[1])
                    line = [int(self.weights[o, u, v, c]) - zero for c in channels]
                    if self.mode == "channel":
                        rows = [line[low : low + lanes] for low in range(0, len(line), lanes)]
                        rows = [row + [0] * (lanes - len(row)) for row in rows]
                    else:
                        rows = [[weight] * lanes for weight in line]
                    for step, row in enumerate(rows):
                        found[lane, (group * taps + tap) * len(rows) + step] = row
        return found

    def parameter_rows(self, at: TileAt) -> dict[tuple[int, int], int]:
        """{(table row, requantiser): output channel} of the tile in half 0."""
        together, steps = self.config.results_per_cycle, self.config.group_steps
        return {
            (group * steps + lane // together, lane % together): o
            for group, outputs in enumerate(self.parts(at.outputs))
            for lane, o in enumerate(outputs)
        }


def _span(layer: ConvLayer, axis: int, outputs: range) -> Span:
    stride, window = layer.stride[axis], layer.window[axis]
    size = (layer.in_height, layer.in_width)[axis]
    start = outputs.start * stride - layer.pads[2 * axis]
    stop = outputs[-1] * stride - layer.pads[2 * axis] + window
    inside = [position for position in range(start, stop) if 0 <= position < size]
    return Span(start, range(inside[0], inside[-1] + 1) if inside else range(0))


def random_case(
    rng: np.random.Generator, config: EngineConfig, mode: str, order: str, *, most: int = 60
) -> Case:
    """A small layer and a tile that fits: pads beyond tiles, strides beyond kernels, groups.

    It has at most ``most`` tiles.
    """

    def draw(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    while True:
        kernel = draw(1, 4), draw(1, 4)
        stride, dilation = (draw(1, 5), draw(1, 5)), (draw(1, 3), draw(1, 3))
        pads = tuple(draw(0, 6) if rng.random() < 0.6 else 0 for _ in range(4))
        if mode == "depthwise":
            groups = channels = outputs = draw(2, 2 * config.out_lanes + 3)
        else:
            groups = draw(1, 3) if rng.random() < 0.4 else 1
            channels = groups * draw(1, 2 * config.word_bytes + 1)
            outputs = groups * draw(1, 2 * config.out_lanes + 2)
            if rng.random() < 0.15:  # depthwise with a multiplier
                groups = channels = draw(1, 4)
                outputs = groups * draw(1, 3)
            if groups > 1 and groups == channels == outputs:
                continue
        height, width = draw(1, 9), draw(1, 12)
        if any(
            (kernel[axis] - 1) * dilation[axis] + 1
            > (height, width)[axis] + pads[2 * axis] + pads[2 * axis + 1]
            for axis in (0, 1)
        ):
            continue
        layer = ConvLayer(
            height,
            width,
            channels,
            outputs,
            kernel,
            stride,
            dilation,
            pads,  # type: ignore[arg-type]
            groups,
            draw(-128, 127),
            bool(rng.random() < 0.8),
        )
        tile = Tile(
            draw(1, layer.out_height),
            draw(1, layer.out_width),
            1 if mode == "depthwise" else draw(1, channels // groups),
            draw(1, outputs if mode == "depthwise" else outputs // groups),
        )
        trips = 1 if mode == "depthwise" else groups
        for total, part in (
            (layer.out_height, tile.height),
            (layer.out_width, tile.width),
            (layer.group_in_channels, tile.in_channels),
            (outputs if mode == "depthwise" else outputs // groups, tile.out_channels),
        ):
            trips *= -(-total // part)
        if trips <= most and check_fit(layer, config, tile, mode) is None:
            break
    requantization = None
    if rng.random() < 0.7:
        requantization = Requantization(multiplier=2**30, shift=-3, zero_point=draw(-128, 127))
    scales = rng.integers(0, 256, (outputs, 6), dtype=np.uint8)
    scales[:, 4] = rng.integers(-31, 32, outputs).astype(np.int8).view(np.uint8)
    top = 1 << config.address_bits
    return Case(
        layer=layer,
        config=config,
        tile=tile,
        mode=mode,
        order=order,
        addresses=LayerAddresses(*(draw(0, top - 9000) for _ in range(5))),
        requantization=requantization,
        load_scale=requantization is not None or bool(rng.random() < 0.5),
        inputs=rng.integers(-128, 128, (height, width, channels), dtype=np.int8),
        weights=rng.integers(-128, 128, layer.weight_shape, dtype=np.int8),
        bias=rng.integers(-(2**31), 2**31, outputs, dtype=np.int32),
        scales=scales,
    )
