"""The layer descriptor: what the engine reads from memory before it runs a layer.

Every product that the tile sequencer would need stands here ready made, so that the hardware only
adds and compares. Fields with ``_last`` hold the value of the last tile along their dimension.
"""

import operator
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "DESCRIPTOR_BYTES",
    "ELEMENTWISE",
    "FIELDS",
    "MARK",
    "Field",
    "decode",
    "encode",
    "fetch_cycles",
]

ELEMENTWISE = 3
"""Code of the mode in which nothing is convolved: results are sums of table look-ups."""
MARK = 0x4C43
"""First half word of every descriptor."""


@dataclass(frozen=True)
class Field:
    """One field: its place, width and meaning.

    Parameters
    ----------
    name : str
    bit : int
        Offset from the descriptor's first bit; fields never cross a 32-bit word.
    width : int
        Bits.
    signed : bool
    doc : str
    """

    name: str
    bit: int
    width: int
    signed: bool
    doc: str

    @property
    def word(self) -> int:
        """Index of the 32-bit word that holds the field."""
        return self.bit // 32

    @property
    def minimum(self) -> int:
        """Smallest value that fits."""
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def maximum(self) -> int:
        """Largest value that fits."""
        return (1 << (self.width - self.signed)) - 1


_FLAG, _BYTE, _HALF, _COORD, _STEP, _FULL = 1, 8, 16, -18, 24, 32
_Spec = tuple[tuple[str, int, str], ...]


def _last(*fields: tuple[str, int, str]) -> _Spec:
    """The fields, and in the next word those of the last tile."""
    return (*fields, ("", 32, ""), *((f"{name}_last", width, "") for name, width, _ in fields))


# Groups of fields that start at a multiple of some words. The tile sequencer reads words, and lets
# the lowest bit of a word's number (of weight_bytes, the lowest two) choose: start or step of a
# running value, value of a tile or of the last tile. An entry without a name ends a word.
_SPEC: tuple[tuple[int, _Spec], ...] = (
    (
        1,
        (
            ("mark", _HALF, "0x4C43"),
            ("last", _FLAG, "1 in the last descriptor of a program"),
            ("raw", _FLAG, "1: write int32 sums, 0: requantise to int8"),
            ("has_bias", _FLAG, "1: the sums start from a bias"),
            ("load_scale", _FLAG, "1: the scale table is fetched"),
            ("row_segments", _FLAG, "1: a tile row is one run of bytes, 0: every pixel is a run"),
            ("order", _FLAG, "0: tiles in order hwmc, 1: mhwc"),
            ("mode", 2, "0: channel, 1: row, 2: depthwise, 3: elementwise"),
            ("binary", _FLAG, "elementwise: 1 if there is a second operand, at weight_address"),
            ("maximum", _FLAG, "1: the lanes keep the largest product instead of the sum"),
            ("rounding", 3, "code of the rounding mode"),
            ("in_zero_point", -8, "Zx"),
            ("out_zero_point", -8, "Zy"),
            ("clamp_low", -8, "lowest output code"),
            ("clamp_high", -8, "highest output code"),
        ),
    ),
    (
        1,
        (
            ("groups", _HALF, "convolution groups"),
            ("low_p", _BYTE, "left pad over stride, remainder"),
            ("high_p", _BYTE, "left pad plus width over stride, remainder"),
            ("tiles_h", _HALF, "tiles along the output rows"),
            ("kernel_h", _BYTE, "kernel rows"),
            ("stride_h", _BYTE, "vertical stride"),
            ("tiles_w", _HALF, "tiles along the output columns"),
            ("kernel_w", _BYTE, "kernel columns"),
            ("stride_w", _BYTE, "horizontal stride"),
            ("tiles_m", _HALF, "tiles along the output channels of a group"),
            ("taps", _HALF, "kernel rows times columns"),
            ("tiles_c", _HALF, "tiles along the input channels of a group"),
            ("dilation_q", _BYTE, "horizontal dilation over stride, quotient"),
            ("dilation_p", _BYTE, "horizontal dilation over stride, remainder"),
            ("in_height", _COORD, "input rows"),
            ("dilation_h", _BYTE, "vertical dilation"),
            ("in_width", _COORD, "input columns"),
            ("phases", _BYTE, "column phases kept apart in the halo buffer"),
        ),
    ),
    (2, _last(("rows", _HALF, "output rows of a tile"))),
    (2, _last(("column_groups", _HALF, "steps along the output columns of a tile"))),
    (
        2,
        _last(
            ("span_w", _COORD, "input columns under a tile"),
            ("column_tail", _BYTE, "output columns of the last step"),
        ),
    ),
    (2, _last(("span_h", _COORD, "input rows under a tile"))),
    (
        2,
        _last(
            ("tile_m", _HALF, "output channels of a tile"),
            ("m_groups", _HALF, "groups of Pm output channels of a tile"),
        ),
    ),
    (2, _last(("m_tail", _BYTE, "output channels of the last group"))),
    (
        2,
        _last(
            ("c_steps", _HALF, "operand steps for each tap"),
            ("c_tail", _BYTE, "input channels of the last step, channel mode"),
        ),
    ),
    (
        2,
        _last(
            ("pixel_words", _HALF, "halo buffer words of a pixel"),
            ("word_tail", _BYTE, "bytes of a pixel's last word"),
        ),
    ),
    (2, _last(("segment_bytes", _FULL, "bytes of a run: a span's columns, or a pixel"))),
    (
        4,
        (
            ("weight_bytes", _FULL, "weights of a tile"),
            ("weight_bytes_m", _FULL, "weights of a tile that is last along m only"),
            ("weight_bytes_c", _FULL, "weights of a tile that is last along c only"),
            ("weight_bytes_mc", _FULL, "weights of a tile that is last along both"),
        ),
    ),
    (
        2,
        (
            ("row_start", _COORD, "input row under the first tile's top, minus the top pad"),
            ("row_step", _COORD, "input rows from tile to tile"),
            ("column_start", _COORD, "minus the left pad"),
            ("column_step", _COORD, "input columns from tile to tile"),
            ("in_h_start", -_FULL, "row_start in bytes"),
            ("in_h_step", _FULL, "row_step in bytes"),
            ("in_w_start", -_FULL, "column_start in bytes"),
            ("in_w_step", _FULL, "column_step in bytes"),
            ("low_q", _COORD, "left pad over stride, quotient"),
            ("low_q_step", _COORD, "minus the output columns from tile to tile"),
            ("input_address", _FULL, "first byte of the input"),
            ("in_g_step", _FULL, "input bytes from group to group"),
            ("weight_address", _FULL, "first byte of the packed weights"),
            ("weight_g_step", _FULL, "weight bytes from group to group"),
            ("bias_address", _FULL, "first byte of the biases"),
            ("bias_g_step", _FULL, "bias bytes from group to group"),
            ("scale_address", _FULL, "first byte of the scale table"),
            ("scale_g_step", _FULL, "scale bytes from group to group"),
            ("output_address", _FULL, "first byte of the output"),
            ("out_g_step", _FULL, "output bytes from group to group"),
        ),
    ),
    (
        1,
        (
            ("q_width", _COORD, "left pad plus width over stride, quotient, minus low_q"),
            ("in_m_step", _FULL, "input bytes from output channel tile to tile, depthwise"),
            ("in_c_step", _FULL, "input bytes from input channel tile to tile"),
            ("weight_m_step", _FULL, "weight bytes from output channel tile to tile"),
            ("bias_m_step", _FULL, "bias bytes from output channel tile to tile"),
            ("scale_m_step", _FULL, "scale bytes from output channel tile to tile"),
            ("out_m_step", _FULL, "output bytes from output channel tile to tile"),
            ("out_h_step", _FULL, "output bytes from tile row to tile row"),
            ("out_w_step", _FULL, "output bytes from tile column to tile column"),
            ("in_row_pitch", _FULL, "bytes from row to row of the input"),
            ("in_pixel_pitch", _STEP, "bytes from pixel to pixel of the input"),
            ("out_pixel_pitch", _STEP, "bytes from pixel to pixel of the output"),
            ("out_column_step", _FULL, "output bytes from column step to column step"),
            ("out_row_pitch", _FULL, "bytes from row to row of the output"),
            # Position steps inside the halo buffer: 24-bit word address and 6-bit bank.
            *(
                (f"{name}_{part}", width, f"{doc}, {part}")
                for name, doc in (
                    ("load_row", "halo position from input row to row"),
                    ("load_column", "from input column to column within a stride"),
                    ("load_wrap", "from the last input column of a stride to the next"),
                    ("word", "from word to word of a pixel"),
                    ("row", "from output row to row"),
                    ("column", "from column step to column step"),
                    ("group", "from group to group of output channels"),
                    ("tap_row", "from kernel row to row"),
                    ("tap", "from kernel column to column"),
                    ("tap_wrap", "from kernel column to column when the phase wraps"),
                )
                for part, width in (("word", -24), ("bank", 6))
            ),
            ("elements", _FULL, "elementwise: number of elements"),
            ("input_words", _STEP, "halo buffer words of a tile in each bank"),
            ("weight_words", _STEP, "weight buffer words of a tile"),
            ("psum_words", _STEP, "accumulator bank words of a tile"),
        ),
    ),
)


def _place() -> tuple[Field, ...]:
    fields: list[Field] = []
    bit = 0
    for words, group in _SPEC:
        bit += -bit % (32 * words)
        for name, width, doc in group:
            size = abs(width)
            if bit % 32 + size > 32 or not name:
                bit += -bit % 32
            if not name:
                continue
            if name.endswith("_last"):
                doc = f"the same of the last tile: {name.removesuffix('_last')}"
            fields.append(Field(name, bit, size, width < 0, doc))
            bit += size
    return tuple(fields)


FIELDS = _place()
"""Every field, in ascending order of place."""
_BY_NAME = {field.name: field for field in FIELDS}
DESCRIPTOR_BYTES = -(-(FIELDS[-1].bit + FIELDS[-1].width) // 256) * 32
"""Bytes of a descriptor, a multiple of the widest bus."""


def fetch_cycles(bus_bytes: int) -> int:
    """Return the cycles in which a descriptor arrives: a beat or a word a cycle, what is less."""
    return DESCRIPTOR_BYTES // min(bus_bytes, 4)


def encode(values: Mapping[str, int]) -> bytes:
    """Return the descriptor that holds ``values``, one for each field.

    Raises
    ------
    TypeError
        If a value is no integer.
    ValueError
        If a field is missing, unknown, or its value does not fit.
    """
    unknown = set(values) - set(_BY_NAME)
    missing = set(_BY_NAME) - set(values) - {"mark"}
    if unknown or missing:
        raise ValueError(
            f"descriptor fields must be complete; unknown {sorted(unknown)}, "
            f"missing {sorted(missing)}"
        )
    total = 0
    for field in FIELDS:
        value = operator.index(values.get(field.name, MARK))
        if not field.minimum <= value <= field.maximum:
            raise ValueError(
                f"descriptor field {field.name} must be within {field.minimum}..{field.maximum}, "
                f"not {value}"
            )
        total |= (value & ((1 << field.width) - 1)) << field.bit
    return total.to_bytes(DESCRIPTOR_BYTES, "little")


def decode(descriptor: bytes) -> dict[str, int]:
    """Return the fields of a descriptor, the inverse of :func:`encode`.

    Raises
    ------
    ValueError
        If it is not as long as a descriptor.
    """
    if len(descriptor) != DESCRIPTOR_BYTES:
        raise ValueError(f"a descriptor has {DESCRIPTOR_BYTES} bytes, not {len(descriptor)}")
    bits = int.from_bytes(descriptor, "little")
    values: dict[str, int] = {}
    for field in FIELDS:
        value = (bits >> field.bit) & ((1 << field.width) - 1)
        if field.signed and value >> (field.width - 1):
            value -= 1 << field.width
        values[field.name] = value
    return values
