"""Storage of a tile: the worked cases by hand, and the words beside them."""

import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.storage import tile_storage
from haloconv.planner.tile import Tile


def dense(**changes: object) -> ConvLayer:
    arguments: dict[str, object] = {
        "in_height": 8,
        "in_width": 8,
        "in_channels": 2,
        "out_channels": 4,
        "kernel": (3, 3),
        "pads": (1, 1, 1, 1),
    }
    return ConvLayer(**(arguments | changes))  # type: ignore[arg-type]


def lines(storage_rows: tuple[tuple[str, str, int], ...]) -> dict[str, int]:
    return {label: value for label, _, value in storage_rows}


def test_unit_case_takes_108_bytes_and_176_double_buffered() -> None:
    storage = tile_storage(dense(), Tile(2, 2, 2, 2))
    assert (storage.input, storage.weight, storage.psum, storage.bias) == (32, 36, 32, 8)
    assert storage.single == 108
    assert storage.double_buffered == 176
    assert storage.double_buffered > 128  # so it does not fit a budget of 128 bytes
    assert storage.psum_idle


def test_one_input_channel_brings_double_buffering_to_108() -> None:
    storage = tile_storage(dense(), Tile(2, 2, 1, 2))
    assert (storage.input, storage.weight) == (16, 18)
    assert storage.double_buffered == 2 * 34 + 32 + 8 == 108
    assert not storage.psum_idle


def test_stride_two_spans_five_by_five() -> None:
    storage = tile_storage(dense(stride=(2, 2)), Tile(2, 2, 2, 2))
    assert storage.input == 2 * 5 * 5
    assert "rows (2-1)*2 + (3-1)*1 + 1 = 5" in storage.rows()[0][1]


def test_a_tail_of_one_channel_is_stored_as_a_full_tile() -> None:
    # M = 5 with Tm = 2 leaves one channel for the last tile; the buffers are built for two.
    storage = tile_storage(dense(out_channels=5), Tile(2, 2, 2, 2))
    assert storage.single == 108


def test_rectangular_kernel_dilation_and_stride() -> None:
    layer = dense(kernel=(3, 2), stride=(1, 3), dilation=(2, 4), in_width=20)
    storage = tile_storage(layer, Tile(3, 4, 2, 3))
    # rows (3-1)*1 + (3-1)*2 + 1 = 7, columns (4-1)*3 + (2-1)*4 + 1 = 14
    assert storage.input == 2 * 7 * 14
    assert storage.weight == 3 * 2 * 6
    assert storage.psum == 4 * 12 * 3


def test_depthwise_has_an_input_channel_for_each_output_channel() -> None:
    layer = dense(in_channels=8, out_channels=8, groups=8)
    storage = tile_storage(layer, Tile(2, 2, 1, 4))
    assert (storage.input, storage.weight) == (4 * 16, 4 * 9)
    assert storage.psum_idle
    assert ("weights", "Tm*Rh*Rw = 4*3*3", 36) in storage.rows()
    multiplied = dense(in_channels=4, out_channels=8, groups=4)
    assert tile_storage(multiplied, Tile(2, 2, 1, 2)).input == 16


def test_rows_show_each_formula_with_its_numbers() -> None:
    rows = tile_storage(dense(), Tile(2, 2, 2, 2)).rows()
    spans = (
        "span = (T-1)*S + (R-1)*D + 1: "
        "rows (2-1)*1 + (3-1)*1 + 1 = 4, columns (2-1)*1 + (3-1)*1 + 1 = 4"
    )
    assert rows == (
        ("input", f"Tc*span_h*span_w = 2*4*4; {spans}", 32),
        ("weights", "Tm*Tc*Rh*Rw = 2*2*3*3", 36),
        ("partial sums (bank idle)", "4*Th*Tw*Tm = 4*2*2*2", 32),
        ("bias", "4*Tm = 4*2", 8),
        ("one tile", "input + weights + partial sums + bias = 32 + 36 + 32 + 8", 108),
        (
            "double-buffered",
            "2*(input + weights) + partial sums + bias = 2*(32 + 36) + 32 + 8",
            176,
        ),
    )


def test_an_engine_adds_whole_words_capacities_and_the_allowance() -> None:
    config = EngineConfig()  # 8 x 8 lanes, words of 8 bytes, 8 sums to a bank word
    storage = tile_storage(dense(), Tile(2, 2, 1, 2), config, "channel")
    assert storage.words is not None and storage.capacity is not None
    # 16 positions of one word over 8 banks: 2 words each; 9 taps of one step; 4 positions of sums.
    assert (storage.words.input, storage.words.weight, storage.words.psum) == (2, 9, 4)
    table = lines(storage.rows())
    assert table["input buffer, each half"] == 2 * 64
    assert table["weight buffer, each half"] == 9 * 64
    assert table["accumulator bank"] == 4 * 32
    assert table["bias table"] == 32
    # 64 channels: bias again 4, multiplier and shift 2 * 5, weight zero point 1 byte each.
    assert table["allowance, outside the budget"] == 64 * 15
    assert storage.double_buffered == 108
    assert (storage.capacity.input, storage.capacity.bias) == (4096, 256)


def test_config_and_mode_come_together() -> None:
    with pytest.raises(ValueError, match="given together"):
        tile_storage(dense(), Tile(1, 1, 1, 1), EngineConfig())
    with pytest.raises(ValueError, match="given together"):
        tile_storage(dense(), Tile(1, 1, 1, 1), mode="row")
