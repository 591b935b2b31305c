"""Programs: layer descriptors, packed weights and tables, and the memory image that holds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, encode
from haloconv.planner.errors import PlanError
from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import ROUNDINGS, Requantization
from haloconv.planner.tile import MODES, ORDERS, Tile, check_fit, check_mode, tile_words

__all__ = [
    "ALIGNMENT",
    "LayerAddresses",
    "LayerProgram",
    "build_layer_program",
    "check_built",
    "describe_layer",
    "pack_scales",
    "pack_weights",
]

ALIGNMENT = 64
"""Every tensor of an image starts at a multiple of this, whatever the bus width."""


@dataclass(frozen=True)
class LayerAddresses:
    """First byte of each tensor of a layer in memory."""

    input: int
    weight: int
    bias: int
    scale: int
    output: int


@dataclass(frozen=True)
class LayerProgram:
    """A memory image that an engine runs by itself.

    Parameters
    ----------
    image : array of uint8
        Descriptors, input, weights, tables, and room for the output.
    program_address : int
        Byte address of the first descriptor.
    output_addresses : tuple of int
        First byte of each batch item's output.
    output_bytes : int
        Bytes of one batch item's output.
    """

    image: "NDArray[np.uint8]"
    program_address: int
    output_addresses: tuple[int, ...]
    output_bytes: int


def _split(total: int, part: int) -> tuple[int, int]:
    """Trips over ``total`` in steps of ``part``, and the size of the last."""
    trips = -(-total // part)
    return trips, total - (trips - 1) * part


def _position_steps(
    layer: ConvLayer, config: EngineConfig, tile: Tile, mode: str
) -> dict[str, int]:
    """Steps of the halo buffer position, as (word, bank) pairs of descriptor fields.

    A position counts words; bank = position mod Pr. In channel mode words follow each other. In
    the row modes every other step is a multiple of Pr, so that the bank is the output column mod
    Pr (docs/architecture.md, "Halo buffer").
    """
    stride_h, stride_w = layer.stride
    dilation_h, dilation_w = layer.dilation
    _, span_w = layer.span(tile.height, tile.width)
    lanes = config.split_lanes
    if mode == "channel":
        words = -(-tile.in_channels // config.word_bytes)
        row, word = span_w * words, 1
        load_column, load_wrap, column = 0, words, stride_w * words
        tap = tap_wrap = dilation_w * words
        group = 0
    else:
        if mode == "depthwise":
            words = -(-tile.out_channels // config.out_lanes)
        else:
            words = -(-tile.in_channels // config.word_bytes)
        phases = min(stride_w, span_w)
        columns = -(-span_w // stride_w)
        word = -(-columns // lanes) * lanes
        phase = words * word
        row = phases * phase
        load_column, load_wrap, column = phase, 1 - (phases - 1) * phase, lanes
        tap = dilation_w // stride_w + (dilation_w % stride_w) * phase
        tap_wrap = tap + 1 - stride_w * phase
        group = word if mode == "depthwise" else 0
    one_row, one_tap = tile.height == 1, layer.kernel[1] == 1
    steps = {
        "load_row": row,
        "load_column": load_column,
        "load_wrap": load_wrap,
        "word": word,
        # A step that is never taken may not fit its field.
        "row": 0 if one_row else stride_h * row,
        "column": 0 if tile.width == 1 else column,
        "group": group,
        "tap_row": 0 if layer.kernel[0] == 1 else dilation_h * row,
        "tap": 0 if one_tap else tap,
        "tap_wrap": 0 if one_tap else tap_wrap,
    }
    fields: dict[str, int] = {}
    for name, step in steps.items():
        fields[f"{name}_word"], fields[f"{name}_bank"] = divmod(step, lanes)
    return fields


def describe_layer(
    layer: ConvLayer,
    config: EngineConfig,
    tile: Tile,
    mode: str,
    order: str,
    addresses: LayerAddresses,
    requantization: Requantization | None,
    *,
    load_scale: bool,
    last: bool,
    maximum: bool = False,
) -> bytes:
    """Return the descriptor of one layer.

    Parameters
    ----------
    layer, config, tile, mode, order
        A plan's choice; the tile must fit the engine.
    addresses : LayerAddresses
    requantization : Requantization or None
        None writes int32 sums.
    load_scale : bool
        Fetch the scale table (always with requantisation; for raw sums only if weight zero points
        must be known).
    last : bool
        The program ends after this layer.
    maximum : bool
        Keep the largest product instead of the sum (maximum pooling).

    Raises
    ------
    ValueError
        For an unknown mode or order.
    PlanError
        If the mode does not suit the layer, or the tile does not fit the engine.
    """
    check_mode(layer, mode, order)
    problem = check_fit(layer, config, tile, mode)
    if problem:
        raise PlanError(problem)
    depthwise = mode == "depthwise"
    groups = 1 if depthwise else layer.groups
    group_in = layer.group_in_channels
    group_out = layer.out_channels if depthwise else layer.group_out_channels
    out_bytes = 4 if requantization is None else 1
    scale_bytes = 6 if config.weight_zero_points else 5
    lanes_out, lanes_split = config.out_lanes, config.split_lanes

    tiles_h, rows_last = _split(layer.out_height, tile.height)
    tiles_w, width_last = _split(layer.out_width, tile.width)
    tiles_m, m_last = _split(group_out, tile.out_channels)
    tiles_c, c_last = _split(1 if depthwise else group_in, tile.in_channels)
    span_h, span_w = layer.span(tile.height, tile.width)
    span_h_last, span_w_last = layer.span(rows_last, width_last)

    def columns(width: int) -> tuple[int, int]:
        return (width, 1) if mode == "channel" else _split(width, lanes_split)

    def channel_steps(channels: int) -> tuple[int, int]:
        if mode == "channel":
            return _split(channels, lanes_split)
        return (1 if depthwise else channels), 1

    def pixel(channels: int) -> tuple[int, int]:
        return _split(channels, lanes_out if depthwise else config.word_bytes)

    column_groups, column_tail = columns(tile.width)
    column_groups_last, column_tail_last = columns(width_last)
    m_groups, m_tail = _split(tile.out_channels, lanes_out)
    m_groups_last, m_tail_last = _split(m_last, lanes_out)
    c_steps, c_tail = channel_steps(tile.in_channels)
    c_steps_last, c_tail_last = channel_steps(c_last)
    pixel_bytes = tile.out_channels if depthwise else tile.in_channels
    pixel_bytes_last = m_last if depthwise else c_last
    pixel_words, word_tail = pixel(pixel_bytes)
    pixel_words_last, word_tail_last = pixel(pixel_bytes_last)
    row_segments = pixel_bytes == layer.in_channels
    words = tile_words(layer, config, tile, mode)
    taps = layer.taps
    row_pitch = layer.in_width * layer.in_channels
    row_step = tile.height * layer.stride[0] if tiles_h > 1 else 0
    column_step = tile.width * layer.stride[1] if tiles_w > 1 else 0
    low_q, low_p = divmod(layer.pads[2], layer.stride[1])
    high_q, high_p = divmod(layer.pads[2] + layer.in_width, layer.stride[1])
    out_row_pitch = layer.out_width * layer.out_channels * out_bytes
    clamp = (-128, 127) if requantization is None else requantization.clamp

    fields = {
        "last": int(last),
        "raw": int(requantization is None),
        "has_bias": int(layer.has_bias),
        "load_scale": int(load_scale),
        "row_segments": int(row_segments),
        "order": ORDERS.index(order),
        "mode": MODES.index(mode),
        "binary": 0,
        "maximum": int(maximum),
        "elements": 0,
        "rounding": 0 if requantization is None else ROUNDINGS.index(requantization.rounding),
        "in_zero_point": layer.in_zero_point,
        "out_zero_point": 0 if requantization is None else requantization.zero_point,
        "clamp_low": clamp[0],
        "clamp_high": clamp[1],
        "groups": groups,
        "tiles_h": tiles_h,
        "tiles_w": tiles_w,
        "tiles_m": tiles_m,
        "tiles_c": tiles_c,
        "rows": tile.height,
        "rows_last": rows_last,
        "column_groups": column_groups,
        "column_groups_last": column_groups_last,
        "column_tail": column_tail,
        "column_tail_last": column_tail_last,
        "m_groups": m_groups,
        "m_groups_last": m_groups_last,
        "m_tail": m_tail,
        "m_tail_last": m_tail_last,
        "tile_m": tile.out_channels,
        "tile_m_last": m_last,
        "c_steps": c_steps,
        "c_steps_last": c_steps_last,
        "c_tail": c_tail,
        "c_tail_last": c_tail_last,
        "pixel_words": pixel_words,
        "pixel_words_last": pixel_words_last,
        "word_tail": word_tail,
        "word_tail_last": word_tail_last,
        "kernel_h": layer.kernel[0],
        "kernel_w": layer.kernel[1],
        "taps": taps,
        "stride_h": layer.stride[0],
        "stride_w": layer.stride[1],
        "dilation_h": layer.dilation[0],
        "dilation_q": layer.dilation[1] // layer.stride[1],
        "dilation_p": layer.dilation[1] % layer.stride[1],
        "phases": 1 if mode == "channel" else min(layer.stride[1], span_w),
        "low_p": low_p,
        "high_p": high_p,
        "low_q": low_q,
        "low_q_step": -tile.width,
        "q_width": high_q - low_q,
        "in_height": layer.in_height,
        "in_width": layer.in_width,
        "span_h": span_h,
        "span_h_last": span_h_last,
        "span_w": span_w,
        "span_w_last": span_w_last,
        "row_start": -layer.pads[0],
        "row_step": row_step,
        "column_start": -layer.pads[2],
        "column_step": column_step,
        "segment_bytes": span_w * layer.in_channels if row_segments else pixel_bytes,
        "segment_bytes_last": span_w_last * layer.in_channels if row_segments else pixel_bytes_last,
        "in_pixel_pitch": layer.in_channels,
        "in_row_pitch": row_pitch,
        "in_h_start": -layer.pads[0] * row_pitch,
        "in_h_step": row_step * row_pitch,
        "in_w_start": -layer.pads[2] * layer.in_channels,
        "in_w_step": column_step * layer.in_channels,
        "in_m_step": tile.out_channels if depthwise else 0,
        "in_c_step": 0 if depthwise else tile.in_channels,
        "in_g_step": 0 if depthwise else group_in,
        "weight_bytes": tile.out_channels * tile.in_channels * taps,
        "weight_bytes_m": m_last * tile.in_channels * taps,
        "weight_bytes_c": tile.out_channels * c_last * taps,
        "weight_bytes_mc": m_last * c_last * taps,
        "weight_m_step": tile.out_channels * group_in * taps,
        "weight_g_step": group_out * group_in * taps,
        "bias_m_step": 4 * tile.out_channels,
        "bias_g_step": 4 * group_out,
        "scale_m_step": scale_bytes * tile.out_channels,
        "scale_g_step": scale_bytes * group_out,
        "out_m_step": tile.out_channels * out_bytes,
        "out_g_step": group_out * out_bytes,
        "out_pixel_pitch": layer.out_channels * out_bytes,
        "out_column_step": (1 if mode == "channel" else lanes_split)
        * layer.out_channels
        * out_bytes,
        "out_row_pitch": out_row_pitch,
        "out_h_step": tile.height * out_row_pitch,
        "out_w_step": tile.width * layer.out_channels * out_bytes,
        "input_address": addresses.input,
        "weight_address": addresses.weight,
        "bias_address": addresses.bias,
        "scale_address": addresses.scale,
        "output_address": addresses.output,
        **_position_steps(layer, config, tile, mode),
        "input_words": words.input,
        "weight_words": words.weight,
        "psum_words": words.psum,
    }
    return encode(fields)


def pack_weights(
    layer: ConvLayer, config: EngineConfig, tile: Tile, mode: str, weights: "NDArray[np.int8]"
) -> "NDArray[np.uint8]":
    """Return the weights in the order in which the engine takes them, without any padding.

    By group, output channel tile, input channel tile; within a tile by groups of Pm output
    channels, then taps. Channel mode: by steps of Pr input channels, for each output channel of
    the group its run of them. Row modes: by input channel, the group's weights side by side.

    Parameters
    ----------
    weights : array of int8, shape (M, Rh, Rw, C / groups)
    """
    lanes_out, lanes_split = config.out_lanes, config.split_lanes
    depthwise = mode == "depthwise"
    groups = 1 if depthwise else layer.groups
    group_out = layer.out_channels // groups
    parts: list[NDArray[np.int8]] = []
    flat = weights.reshape(layer.out_channels, layer.taps, layer.group_in_channels)
    for group in range(groups):
        for m0 in range(0, group_out, tile.out_channels):
            m1 = min(m0 + tile.out_channels, group_out)
            for c0 in range(0, layer.group_in_channels, tile.in_channels):
                c1 = min(c0 + tile.in_channels, layer.group_in_channels)
                for lane0 in range(m0, m1, lanes_out):
                    lane1 = min(lane0 + lanes_out, m1)
                    first = group * group_out
                    block = flat[first + lane0 : first + lane1, :, c0:c1]
                    if mode != "channel":
                        parts.append(block.transpose(1, 2, 0).ravel())
                        continue
                    whole = (c1 - c0) // lanes_split * lanes_split
                    full = block[:, :, :whole].reshape(lane1 - lane0, layer.taps, -1, lanes_split)
                    full = full.transpose(1, 2, 0, 3).reshape(layer.taps, -1)
                    tail = block[:, :, whole:].transpose(1, 0, 2).reshape(layer.taps, -1)
                    parts.append(np.concatenate([full, tail], axis=1).ravel())
    return np.concatenate(parts).view(np.uint8)


def pack_scales(
    layer: ConvLayer,
    config: EngineConfig,
    requantization: Requantization | None,
    weight_zero_points: "NDArray[Any] | None",
) -> "NDArray[np.uint8]":
    """Return the scale table: multiplier (or float32 bits), shift and weight zero point a channel.

    Five bytes a channel, six where weight zero points are built.
    """
    count = layer.out_channels
    table = np.zeros((count, 6), np.uint8)
    if requantization is not None:
        if requantization.rounding == "fp32":
            bits = requantization.channels("scale", count).astype("<f4").view("<u4")
        else:
            bits = requantization.channels("multiplier", count).astype("<u4")
            shifts = requantization.channels("shift", count).astype(np.int8)
            table[:, 4] = shifts.view(np.uint8)
        table[:, :4] = np.ascontiguousarray(bits).view(np.uint8).reshape(count, 4)
    if weight_zero_points is not None:
        table[:, 5] = weight_zero_points.astype(np.int8).view(np.uint8)
    return table[:, : 6 if config.weight_zero_points else 5].ravel()


def check_built(
    config: EngineConfig,
    requantization: Requantization | None,
    weight_zero_points: "NDArray[Any] | None",
) -> bool:
    """Return whether weight zero points are in use, if the engine has what the layer asks for.

    Raises
    ------
    PlanError
        If the engine lacks the rounding mode or weight zero points.
    """
    if requantization is not None and requantization.rounding not in config.built_roundings:
        raise PlanError(
            f"rounding {requantization.rounding!r} is not built into this engine, which has "
            f"{', '.join(config.built_roundings) or 'none'}; add it to EngineConfig.roundings"
        )
    asymmetric = weight_zero_points is not None and bool(np.any(weight_zero_points))
    if asymmetric and not config.weight_zero_points:
        raise PlanError(
            "weight zero points are not built into this engine; "
            "set EngineConfig.weight_zero_points or use weights with zero point 0"
        )
    return asymmetric


def build_layer_program(
    layer: ConvLayer,
    config: EngineConfig,
    tile: Tile,
    mode: str,
    order: str,
    *,
    inputs: "NDArray[np.int8]",
    weights: "NDArray[np.int8]",
    bias: "NDArray[np.int32] | None" = None,
    requantization: Requantization | None = None,
    weight_zero_points: "NDArray[Any] | None" = None,
) -> LayerProgram:
    """Return an image that runs one layer for each item of a batch.

    Parameters
    ----------
    inputs : array of int8, shape (N, H, W, C)
        A batch runs as N descriptors.
    weights : array of int8, shape (M, Rh, Rw, C / groups)
    bias : array of int32, shape (M,), or None
        Present exactly where ``layer.has_bias``.
    requantization : Requantization or None
        None for int32 sums.
    weight_zero_points : array of int, shape (M,), or None

    Raises
    ------
    PlanError
        If the engine lacks the rounding mode or weight zero points, if the tile does not fit, or
        if the image exceeds the engine's addresses.
    ValueError
        If an array has the wrong type or shape (:func:`haloconv.sim.arrays.check_arrays` says it
        more gently).
    """
    asymmetric = check_built(config, requantization, weight_zero_points)
    for name, array, shape, dtype in (
        ("inputs", inputs, (max(1, inputs.shape[0]), *layer.input_shape[1:]), np.int8),
        ("weights", weights, layer.weight_shape, np.int8),
        ("bias", bias, (layer.out_channels,) if layer.has_bias else None, np.int32),
    ):
        found = None if array is None else (array.shape, array.dtype)
        if found != (None if shape is None else (shape, np.dtype(dtype))):
            raise ValueError(f"{name} must be {np.dtype(dtype)} of shape {shape}, not {found}")
    batch = inputs.shape[0]
    load_scale = requantization is not None or asymmetric
    blocks: dict[str, NDArray[np.uint8]] = {
        "weight": pack_weights(layer, config, tile, mode, weights),
        "bias": np.zeros(0, np.uint8) if bias is None else bias.astype("<i4").view(np.uint8),
        "scale": pack_scales(layer, config, requantization, weight_zero_points)
        if load_scale
        else np.zeros(0, np.uint8),
    }
    output_bytes = (
        layer.out_height
        * layer.out_width
        * layer.out_channels
        * (4 if requantization is None else 1)
    )

    end = 0

    def place(size: int) -> int:
        nonlocal end
        start = -(-end // ALIGNMENT) * ALIGNMENT
        end = start + size
        return start

    program = place(batch * DESCRIPTOR_BYTES)
    at = {name: place(block.size) for name, block in blocks.items()}
    items = [(place(inputs[0].size), place(output_bytes)) for _ in range(batch)]
    end = -(-end // ALIGNMENT) * ALIGNMENT
    if end > 1 << config.address_bits:
        raise PlanError(
            f"the layer needs {end} bytes of memory but the engine addresses "
            f"{1 << config.address_bits}; raise EngineConfig.address_bits"
        )
    image = np.zeros(end, np.uint8)
    for name, block in blocks.items():
        image[at[name] : at[name] + block.size] = block
    for index, (source, target) in enumerate(items):
        descriptor = describe_layer(
            layer,
            config,
            tile,
            mode,
            order,
            LayerAddresses(source, at["weight"], at["bias"], at["scale"], target),
            requantization,
            load_scale=load_scale,
            last=index == batch - 1,
        )
        first = program + index * DESCRIPTOR_BYTES
        image[first : first + DESCRIPTOR_BYTES] = np.frombuffer(descriptor, np.uint8)
        image[source : source + inputs[index].size] = inputs[index].reshape(-1).view(np.uint8)
    return LayerProgram(image, program, tuple(target for _, target in items), output_bytes)


def read_outputs(program: LayerProgram, memory: "NDArray[np.uint8]", layer: ConvLayer, raw: bool):
    """Return the outputs found in ``memory`` after a run, (N, OH, OW, M) int8 or int32."""
    dtype = "<i4" if raw else np.int8
    shape = layer.output_shape[1:]
    parts: Sequence[NDArray[Any]] = [
        memory[start : start + program.output_bytes].copy().view(dtype).reshape(shape)
        for start in program.output_addresses
    ]
    return np.stack(parts)
