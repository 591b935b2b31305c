"""Descriptors: places, widths, the round trip and each refusal."""

import random
import re

import numpy as np
import pytest

from haloconv.planner.descriptor import DESCRIPTOR_BYTES, FIELDS, MARK, Field, decode, encode
from haloconv.planner.layer import MAX_CHANNELS, MAX_EXTENT, MAX_KERNEL

BY_NAME = {field.name: field for field in FIELDS}


def zeros(**values):
    return dict.fromkeys(BY_NAME, 0) | {"mark": MARK} | values


def test_fields_have_places_of_their_own():
    taken = {}
    for field in FIELDS:
        for bit in range(field.bit, field.bit + field.width):
            assert bit not in taken, (field.name, taken.get(bit))
            taken[bit] = field.name
    assert max(taken) < 8 * DESCRIPTOR_BYTES
    assert len(BY_NAME) == len(FIELDS)
    assert [field.bit for field in FIELDS] == sorted(field.bit for field in FIELDS)


def test_no_field_crosses_a_word():
    for field in FIELDS:
        assert field.word == field.bit // 32 == (field.bit + field.width - 1) // 32


def test_size_is_the_least_multiple_of_the_widest_bus():
    used = max(field.bit + field.width for field in FIELDS)
    assert DESCRIPTOR_BYTES % 32 == 0
    assert 8 * (DESCRIPTOR_BYTES - 32) < used <= 8 * DESCRIPTOR_BYTES


def test_every_field_says_what_it_means():
    for field in FIELDS:
        assert field.doc, field.name
        if field.name.endswith("_last"):
            assert field.name.removesuffix("_last") in BY_NAME
    assert BY_NAME["rows_last"].doc == "the same of the last tile: rows"


@pytest.mark.parametrize(
    ("field", "minimum", "maximum"),
    [
        (Field("u", 0, 1, False, ""), 0, 1),
        (Field("u", 0, 24, False, ""), 0, 2**24 - 1),
        (Field("s", 0, 8, True, ""), -128, 127),
        (Field("s", 0, 32, True, ""), -(2**31), 2**31 - 1),
    ],
)
def test_ranges(field, minimum, maximum):
    assert (field.minimum, field.maximum) == (minimum, maximum)


@pytest.mark.parametrize(
    ("name", "largest"),
    [
        ("groups", MAX_CHANNELS),
        ("tiles_h", MAX_EXTENT),
        ("tiles_m", MAX_CHANNELS),
        ("segment_bytes", MAX_EXTENT * MAX_CHANNELS),
        ("kernel_h", MAX_KERNEL),
        ("stride_w", MAX_KERNEL),
        ("taps", MAX_KERNEL**2),
        ("in_height", MAX_EXTENT),
        # The window of the largest kernel at a padded position, and the output column far left.
        ("span_w", MAX_EXTENT),
        ("q_width", MAX_EXTENT),
        ("in_pixel_pitch", MAX_CHANNELS),
        ("out_pixel_pitch", 4 * MAX_CHANNELS),
        ("scale_g_step", 6 * MAX_CHANNELS),
        ("weight_g_step", 2**32 - 1),
        ("input_address", 2**32 - 1),
        ("in_zero_point", 127),
        ("row_word", 2**23 - 1),
        ("row_bank", 63),
    ],
)
def test_fields_hold_the_largest_layers(name, largest):
    assert BY_NAME[name].maximum >= largest


def test_by_hand():
    data = encode(zeros(last=1, in_zero_point=-2, in_h_start=-5))
    assert len(data) == DESCRIPTOR_BYTES
    # Little-endian, the mark first, then the flags.
    assert data[:2] == b"\x43\x4c"
    assert data[2] & 1 == 1
    place = BY_NAME["in_h_start"].bit // 8
    assert data[place : place + 4] == b"\xfb\xff\xff\xff"
    bit = BY_NAME["in_zero_point"].bit
    assert int.from_bytes(data, "little") >> bit & 0xFF == 0xFE


@pytest.mark.parametrize("seed", range(20))
def test_round_trip(seed):
    rng = random.Random(seed)
    values = {
        field.name: rng.choice(
            (field.minimum, field.maximum, rng.randint(field.minimum, field.maximum))
        )
        for field in FIELDS
    }
    assert decode(encode(values)) == values


@pytest.mark.parametrize("name", list(BY_NAME))
def test_one_field_changes_no_other(name):
    field = BY_NAME[name]
    for value in (field.minimum, field.maximum):
        assert decode(encode(zeros(**{name: value}))) == zeros(**{name: value})


def test_mark_is_put_by_itself_and_can_be_wrong_on_purpose():
    values = zeros()
    del values["mark"]
    assert decode(encode(values))["mark"] == MARK == 0x4C43
    assert decode(encode(zeros(mark=7)))["mark"] == 7


def test_numpy_values_are_welcome():
    values = {name: np.int64(value) for name, value in zeros(rows=3).items()}
    assert encode(values) == encode(zeros(rows=3))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rows", 65536, "descriptor field rows must be within 0..65535, not 65536"),
        ("rows", -1, "descriptor field rows must be within 0..65535, not -1"),
        ("mode", 4, "descriptor field mode must be within 0..3, not 4"),
        ("clamp_low", -129, "descriptor field clamp_low must be within -128..127, not -129"),
        ("row_start", 1 << 17, "field row_start must be within -131072..131071, not 131072"),
    ],
)
def test_values_that_do_not_fit(name, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        encode(zeros(**{name: value}))


def test_fields_must_be_complete():
    values = zeros(colour=1)
    del values["rows"], values["taps"]
    message = "descriptor fields must be complete; unknown ['colour'], missing ['rows', 'taps']"
    with pytest.raises(ValueError, match=re.escape(message)):
        encode(values)


@pytest.mark.parametrize("size", [0, DESCRIPTOR_BYTES - 1, DESCRIPTOR_BYTES + 1])
def test_decode_wants_a_whole_descriptor(size):
    message = f"a descriptor has {DESCRIPTOR_BYTES} bytes, not {size}"
    with pytest.raises(ValueError, match=re.escape(message)):
        decode(bytes(size))
