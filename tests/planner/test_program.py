"""Programs: packed operands against plain loops, the image's layout, and each refusal."""

import importlib.util
import re
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, decode
from haloconv.planner.errors import PlanError
from haloconv.planner.layer import ConvLayer
from haloconv.planner.program import (
    ALIGNMENT,
    LayerAddresses,
    build_layer_program,
    describe_layer,
    pack_scales,
    pack_weights,
    read_outputs,
)
from haloconv.planner.requantization import Requantization
from haloconv.planner.tile import MODES, ORDERS, Tile

_spec = importlib.util.spec_from_file_location(
    "tile_walk", Path(__file__).parents[1] / "support" / "tile_walk.py"
)
assert _spec is not None and _spec.loader is not None
walk = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(walk)

CODES = {"channel": 0, "row": 1, "depthwise": 2}


def random_cases(name, mode, seed, count):
    rng = np.random.default_rng([list(walk.CONFIGS).index(name), CODES[mode], seed])
    for trial in range(count):
        yield walk.random_case(rng, walk.CONFIGS[name], mode, ORDERS[trial % 2])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", walk.CONFIGS)
def test_pack_weights_against_loops(name, mode):
    for case in random_cases(name, mode, 1, 25):
        packed = pack_weights(case.layer, case.config, case.tile, mode, case.weights)
        assert packed.dtype == np.uint8
        # Each weight once, without padding.
        assert packed.size == case.weights.size
        assert packed.tobytes() == case.packed_weights[0]


def test_pack_weights_by_hand():
    config = EngineConfig(out_lanes=2, split_lanes=2)
    layer = ConvLayer(1, 2, 3, 3, (1, 2))
    # Weight of output m, tap t, channel c: 100 m + 10 t + c.
    weights = np.array(
        [[[[100 * m + 10 * t + c for c in range(3)] for t in range(2)]] for m in range(3)]
    )
    weights = (weights % 256).astype(np.uint8).view(np.int8)

    def packed(mode, tile):
        return list(pack_weights(layer, config, tile, mode, weights))

    def codes(*values):
        return [value % 256 for value in values]

    # Channel mode: taps, then steps of two channels, then the group's outputs 0 and 1.
    assert packed("channel", Tile(1, 1, 3, 3)) == codes(
        *(0, 1, 100, 101, 2, 102, 10, 11, 110, 111, 12, 112),
        *(200, 201, 202, 210, 211, 212),
    )
    # Row mode: taps, then channels, outputs side by side.
    assert packed("row", Tile(1, 1, 3, 3)) == codes(
        *(0, 100, 1, 101, 2, 102, 10, 110, 11, 111, 12, 112),
        *(200, 201, 202, 210, 211, 212),
    )
    # Tiles of two input channels: all outputs of a tile, then its next channels.
    assert packed("row", Tile(1, 1, 2, 2)) == codes(
        *(0, 100, 1, 101, 10, 110, 11, 111, 2, 102, 12, 112),
        *(200, 201, 210, 211, 202, 212),
    )


@pytest.mark.parametrize("zero_points_built", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_pack_scales(seed, zero_points_built):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    layer = ConvLayer(1, 1, 2, count, (1, 1))
    config = EngineConfig(weight_zero_points=zero_points_built)
    size = 6 if zero_points_built else 5
    zeros = rng.integers(-128, 128, count) if zero_points_built else None
    multiplier = rng.integers(2**30, 2**31, count)
    shift = rng.integers(-31, 32, count)
    scale = rng.random(count).astype(np.float32) + np.float32(1e-9)
    for requantization, words, shifts in (
        (Requantization(multiplier, shift), multiplier, shift),
        (Requantization(rounding="fp32", scale=scale), scale.view(np.uint32), [0] * count),
        (Requantization(2**30 + 5, -7), [2**30 + 5] * count, [-7] * count),
        (None, [0] * count, [0] * count),
    ):
        table = pack_scales(layer, config, requantization, zeros).tobytes()
        expected = b""
        for channel in range(count):
            expected += int(words[channel]).to_bytes(4, "little")
            expected += int(shifts[channel]).to_bytes(1, "little", signed=True)
            if zero_points_built:
                expected += int(zeros[channel]).to_bytes(1, "little", signed=True)
        assert table == expected and len(table) == size * count


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", walk.CONFIGS)
def test_position_steps_lead_from_place_to_place(name, mode):
    """Each step, added to a position of the halo layout, gives the position one step on."""
    for case in random_cases(name, mode, 2, 25):
        check_steps(case)


def check_steps(case):
    fields, layer, lanes = decode(case.descriptor), case.layer, case.config.split_lanes
    stride_h, stride_w = layer.stride
    dilation_h, dilation_w = layer.dilation
    span_h = (case.tile.height - 1) * stride_h + (layer.kernel[0] - 1) * dilation_h + 1
    span_w = (case.tile.width - 1) * stride_w + (layer.kernel[1] - 1) * dilation_w + 1
    part = case.tile.out_channels if case.mode == "depthwise" else case.tile.in_channels
    words = -(-part // case.channels_per_word)
    phases = min(stride_w, span_w)
    deep = len(range(0, len(range(0, span_w, stride_w)), lanes))

    def place(y, x, word):
        """Position of a word: its bank is the position modulo Pr."""
        if case.mode == "channel":
            return (y * span_w + x) * words + word
        output, phase = divmod(x, stride_w)
        line = ((y * phases + phase) * words + word) * deep + output // lanes
        return line * lanes + output % lanes

    def step(name):
        assert 0 <= fields[f"{name}_bank"] < lanes
        return fields[f"{name}_word"] * lanes + fields[f"{name}_bank"]

    def check(name, start, stop):
        if all(a < b for a, b in zip(stop, (span_h, span_w, words), strict=True)):
            assert step(name) == place(*stop) - place(*start), (name, start, stop)

    together = 1 if case.mode == "channel" else lanes
    for y, x, word in product(range(span_h), range(span_w), range(words)):
        here = (y, x, word)
        check("load_row", here, (y + 1, x, word))
        check("word", here, (y, x, word + 1))
        if case.mode == "depthwise":
            check("group", here, (y, x, word + 1))
        # The loader counts phases; in channel mode there is one.
        last_phase = case.mode == "channel" or x % stride_w == phases - 1
        check("load_wrap" if last_phase else "load_column", here, (y, x + 1, word))
        if case.tile.height > 1:
            check("row", here, (y + stride_h, x, word))
        if case.tile.width > together:
            check("column", here, (y, x + together * stride_w, word))
        if layer.kernel[0] > 1:
            check("tap_row", here, (y + dilation_h, x, word))
        if layer.kernel[1] > 1:
            wraps = x % stride_w + dilation_w % stride_w >= stride_w
            check("tap_wrap" if wraps else "tap", here, (y, x + dilation_w, word))
    if case.mode != "depthwise":
        assert step("group") == 0
    assert fields["phases"] == (1 if case.mode == "channel" else phases)
    furthest = max(
        place(y, x, word) for y, x, word in product(range(span_h), range(span_w), range(words))
    )
    assert furthest // lanes < fields["input_words"] <= case.config.input_words


def test_descriptor_by_hand():
    config = EngineConfig(out_lanes=4, split_lanes=2, weight_zero_points=True)
    layer = ConvLayer(
        10, 12, 6, 10, (3, 2), (2, 3), (1, 2), (1, 0, 4, 2), in_zero_point=-7, has_bias=False
    )
    # Output: (11 - 3) // 2 + 1 = 5 rows, (18 - 3) // 3 + 1 = 6 columns.
    requantization = Requantization(2**30, 0, 5, (-100, 100), "single")
    addresses = LayerAddresses(64, 128, 192, 256, 320)
    fields = decode(
        describe_layer(
            layer, config, Tile(2, 4, 6, 8), "row", "mhwc", addresses, requantization,
            load_scale=True, last=False,
        )
    )  # fmt: skip
    expected = {
        "last": 0, "raw": 0, "has_bias": 0, "load_scale": 1, "row_segments": 1, "order": 1,
        "mode": 1, "rounding": 2, "in_zero_point": -7, "out_zero_point": 5, "clamp_low": -100,
        "clamp_high": 100, "groups": 1, "tiles_h": 3, "tiles_w": 2, "tiles_m": 2, "tiles_c": 1,
        "rows": 2, "rows_last": 1, "column_groups": 2, "column_groups_last": 1, "column_tail": 2,
        "column_tail_last": 2, "m_groups": 2, "m_groups_last": 1, "m_tail": 4, "m_tail_last": 2,
        "tile_m": 8, "tile_m_last": 2, "c_steps": 6, "pixel_words": 2,
        "word_tail": 2, "kernel_h": 3, "kernel_w": 2, "taps": 6, "stride_h": 2, "stride_w": 3,
        "dilation_h": 1, "dilation_q": 0, "dilation_p": 2, "phases": 3,
        # Left pad 4 = 1 * 3 + 1; left pad and width 16 = 5 * 3 + 1.
        "low_q": 1, "low_p": 1, "q_width": 4, "high_p": 1, "low_q_step": -4,
        "span_h": 5, "span_h_last": 3, "span_w": 12, "span_w_last": 6,
        "row_start": -1, "row_step": 4, "column_start": -4, "column_step": 12,
        "in_row_pitch": 72, "in_h_start": -72, "in_h_step": 288, "in_w_start": -24,
        "in_w_step": 72, "segment_bytes": 72, "segment_bytes_last": 36,
        "weight_bytes": 8 * 6 * 6, "weight_bytes_m": 2 * 6 * 6, "weight_m_step": 8 * 6 * 6,
        "bias_m_step": 32, "scale_m_step": 48, "out_m_step": 8, "out_pixel_pitch": 10,
        "out_column_step": 20, "out_row_pitch": 60, "out_h_step": 120, "out_w_step": 40,
        "input_address": 64, "weight_address": 128, "bias_address": 192, "scale_address": 256,
        "output_address": 320,
        # 2 groups x 6 taps x 6 channels; 5 rows x 3 phases x 2 words x 2 columns a bank.
        "weight_words": 72, "input_words": 60, "psum_words": 0,
    }  # fmt: skip
    assert {name: fields[name] for name in expected} == expected


def sample(batch=1, **values):
    """Arguments of a small program and the arrays in it."""
    rng = np.random.default_rng(5)
    layer = ConvLayer(4, 5, 3, 7, (3, 3), pads=(1, 1, 1, 1), in_zero_point=3)
    arguments = {
        "layer": layer,
        "config": EngineConfig(),
        "tile": Tile(2, 5, 3, 7),
        "mode": "row",
        "order": "hwmc",
        "inputs": rng.integers(-128, 128, (batch, 4, 5, 3), dtype=np.int8),
        "weights": rng.integers(-128, 128, layer.weight_shape, dtype=np.int8),
        "bias": rng.integers(-(2**31), 2**31, 7, dtype=np.int32),
        "requantization": Requantization(2**30 + 1, -4),
    }
    return arguments | values


def build(arguments):
    arguments = dict(arguments)
    positional = [arguments.pop(name) for name in ("layer", "config", "tile", "mode", "order")]
    return build_layer_program(*positional, **arguments)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_image(batch, raw):
    arguments = sample(batch, **({"requantization": None} if raw else {}))
    program = build(arguments)
    image = program.image
    assert program.program_address % ALIGNMENT == 0 and image.size % ALIGNMENT == 0
    assert program.output_bytes == 4 * 5 * 7 * (4 if raw else 1)
    regions = [(program.program_address, batch * DESCRIPTOR_BYTES)]
    shared = None
    for index in range(batch):
        first = program.program_address + index * DESCRIPTOR_BYTES
        fields = decode(image[first : first + DESCRIPTOR_BYTES].tobytes())
        assert fields["last"] == (index == batch - 1)
        assert fields["raw"] == raw and fields["load_scale"] == (not raw)
        for name in ("input", "weight", "bias", "scale", "output"):
            assert fields[f"{name}_address"] % ALIGNMENT == 0
        start = fields["input_address"]
        assert image[start : start + 60].tobytes() == arguments["inputs"][index].tobytes()
        assert fields["output_address"] == program.output_addresses[index]
        regions += [(start, 60), (fields["output_address"], program.output_bytes)]
        tables = {name: fields[f"{name}_address"] for name in ("weight", "bias", "scale")}
        assert shared in (None, tables)
        shared = tables
    assert shared is not None
    weights = pack_weights(
        arguments["layer"], arguments["config"], arguments["tile"], "row", arguments["weights"]
    )
    bias = arguments["bias"].astype("<i4").tobytes()
    scales = b"" if raw else (b"\x01\x00\x00\x40\xfc\x00") * 7
    for name, data in (("weight", weights.tobytes()), ("bias", bias), ("scale", scales)):
        start = shared[name]
        assert image[start : start + len(data)].tobytes() == data
        regions.append((start, len(data)))
    # Nothing lies on anything else or outside.
    regions = sorted(region for region in regions if region[1])
    for (start, size), (following, _) in pairwise(regions):
        assert start + size <= following
    assert sum(regions[-1]) <= image.size


@pytest.mark.parametrize("raw", [False, True])
def test_read_outputs(raw):
    arguments = sample(2, **({"requantization": None} if raw else {}))
    program = build(arguments)
    memory = program.image.copy()
    rng = np.random.default_rng(1)
    dtype = np.int32 if raw else np.int8
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    outputs = rng.integers(low, high, (2, 4, 5, 7), dtype=dtype, endpoint=True)
    for item, start in zip(outputs, program.output_addresses, strict=True):
        memory[start : start + program.output_bytes] = np.frombuffer(item.tobytes(), np.uint8)
    found = read_outputs(program, memory, arguments["layer"], raw)
    assert found.dtype == dtype and found.shape == (2, 4, 5, 7)
    assert np.array_equal(found, outputs)


def test_without_bias_and_with_weight_zero_points():
    arguments = sample()
    zeros = np.arange(-3, 4)
    arguments |= {
        "layer": replace(arguments["layer"], has_bias=False),
        "bias": None,
        "requantization": None,
        "weight_zero_points": zeros,
    }
    program = build(arguments)
    fields = decode(program.image[:DESCRIPTOR_BYTES].tobytes())
    # Raw sums fetch the scale table for the sake of the zero points alone.
    assert (fields["raw"], fields["has_bias"], fields["load_scale"]) == (1, 0, 1)
    start = fields["scale_address"]
    table = program.image[start : start + 42].reshape(7, 6)
    assert np.array_equal(table[:, 5].view(np.int8), zeros) and not table[:, :5].any()
    # Zero points that are all 0 need neither a table nor an engine that has it.
    plain = build(
        arguments
        | {
            "weight_zero_points": np.zeros(7, int),
            "config": EngineConfig(weight_zero_points=False),
        }
    )
    assert decode(plain.image[:DESCRIPTOR_BYTES].tobytes())["load_scale"] == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"requantization": Requantization(rounding="fp32", scale=np.float32([1]))},
            (
                "rounding 'fp32' is not built into this engine, which has double; "
                "add it to EngineConfig.roundings"
            ),
        ),
        (
            {"config": EngineConfig(roundings=())},
            (
                "rounding 'double' is not built into this engine, which has none; "
                "add it to EngineConfig.roundings"
            ),
        ),
        (
            {
                "config": EngineConfig(weight_zero_points=False),
                "weight_zero_points": np.array([0, 0, 0, 1, 0, 0, 0]),
            },
            (
                "weight zero points are not built into this engine; set "
                "EngineConfig.weight_zero_points or use weights with zero point 0"
            ),
        ),
        (
            # 7 columns are one in each of 8 banks, 4 rows of them; the smallest buffer has a word.
            {"config": EngineConfig(input_bytes=64)},
            (
                "the tile needs 4 input words but the engine holds 1; raise input_bytes or take a "
                "smaller tile"
            ),
        ),
    ],
)
def test_refusals(values, message):
    with pytest.raises(PlanError, match=re.escape(message)):
        build(sample(**values))


def test_an_image_beyond_the_addresses_is_refused():
    layer = ConvLayer(80, 100, 8, 8, (1, 1))
    arguments = sample() | {
        "layer": layer,
        "config": EngineConfig(address_bits=16),
        "tile": Tile(1, 8, 8, 8),
        "inputs": np.zeros((1, 80, 100, 8), np.int8),
        "weights": np.zeros(layer.weight_shape, np.int8),
        "bias": np.zeros(8, np.int32),
    }
    # 64000 bytes of input and as many of output, with 64 of weights, 32 of bias, 48 of scales.
    size = -(-DESCRIPTOR_BYTES // 64) * 64 + 3 * 64 + 2 * 64000
    message = (
        f"the layer needs {size} bytes of memory but the engine addresses 65536; "
        "raise EngineConfig.address_bits"
    )
    with pytest.raises(PlanError, match=re.escape(message)):
        build(arguments)
    assert build(arguments | {"config": EngineConfig(address_bits=17)}).image.size == size
