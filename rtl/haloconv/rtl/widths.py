"""Widths and structures shared by the engine's blocks."""

from amaranth import *
from amaranth.lib import data
from amaranth.utils import bits_for, ceil_log2

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, FIELDS
from haloconv.planner.validate import check_int

__all__ = [
    "COORDINATE",
    "TABLE_BYTES",
    "ComputeTile",
    "DescriptorLayout",
    "DescriptorWord",
    "DrainToken",
    "FetchTile",
    "LoadTile",
    "Position",
    "ResultRow",
    "Segment",
    "WriteTile",
    "channel_bits",
    "group_bits",
    "index_bits",
    "row_pieces",
    "span_bits",
    "step_bits",
    "tree_sum",
]

TABLE_BYTES = 2048
"""Bytes of the elementwise unit's two tables."""
COORDINATE = 18
"""Bits of a signed row or column number, pads included."""


def index_bits(count: int) -> int:
    """Bits of an index below ``count``, at least one (Amaranth makes range(1) zero wide)."""
    return max(1, bits_for(check_int("Count", count, 1) - 1))


def span_bits(config: EngineConfig) -> int:
    """Bits of a count of rows, columns or words of a tile: each takes a halo buffer word at least,
    and descriptors beyond are refused.
    """
    return bits_for(config.split_lanes * config.input_words)


def step_bits(config: EngineConfig) -> int:
    """Bits of a count of taps or operand steps of a tile: each takes a weight word at least, and
    descriptors beyond are refused.
    """
    return bits_for(config.weight_words)


def group_bits(config: EngineConfig) -> int:
    """Bits of a count of groups of Pm output channels of a tile."""
    return bits_for(config.channel_groups)


def channel_bits(config: EngineConfig) -> int:
    """Bits of a count of output channels of a tile."""
    return bits_for(config.channel_groups * config.out_lanes)


def tree_sum(terms: list[Value]) -> Value:
    """Sum of ``terms`` as a balanced tree, growing one bit a level."""
    if not terms:
        raise ValueError(f"Terms must be at least one value, not {terms!r}")
    while len(terms) > 1:
        pairs = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + ([terms[-1]] if len(terms) % 2 else [])
    return terms[0]


def _shape(width: int, signed_: bool) -> Shape:
    return signed(width) if signed_ else unsigned(width)


_KEPT = (
    "last", "raw", "has_bias", "load_scale", "row_segments", "order", "mode", "binary",
    "maximum", "rounding", "in_zero_point", "out_zero_point", "clamp_low", "clamp_high", "low_p",
    "high_p", "kernel_h", "stride_h", "kernel_w", "stride_w", "taps", "dilation_q", "dilation_p",
    "dilation_h", "phases", "in_height", "in_row_pitch", "in_pixel_pitch", "out_pixel_pitch",
    "out_column_step", "out_row_pitch", "input_address", "weight_address", "bias_address",
    "scale_address", "output_address", "elements",
)  # fmt: skip
_STEPS = ("_word", "_bank")


class DescriptorLayout(data.StructLayout):
    """The fields of a layer descriptor that blocks have at hand while a layer runs.

    Names and widths are those of :mod:`haloconv.planner.descriptor`. All other fields are read word
    by word: by the tile sequencer, or when the descriptor is checked. They have no place here, as
    compiled simulators hand the layout from block to block as a whole.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                field.name: _shape(field.width, field.signed)
                for field in FIELDS
                if field.name in _KEPT or field.name.endswith(_STEPS)
            },
        )


class DescriptorWord(data.StructLayout):
    """A 32-bit word of a descriptor, when it is ``valid``."""

    def __init__(self) -> None:
        super().__init__({"valid": 1, "index": index_bits(DESCRIPTOR_BYTES // 4), "data": 32})


class Position(data.StructLayout):
    """Place of a word in the halo buffer: bank, and word address with the half folded in."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(
            {
                "bank": unsigned(index_bits(config.split_lanes)),
                "word": unsigned(index_bits(2 * config.input_words)),
            }
        )


class Segment(data.StructLayout):
    """A run of bytes in memory."""

    def __init__(self, config: EngineConfig) -> None:
        longest = max(
            config.input_bytes, config.weight_bytes, 2 * config.bias_bytes, DESCRIPTOR_BYTES
        )
        if "elementwise" in config.built_units:
            longest = max(longest, TABLE_BYTES)
        super().__init__(
            {"address": unsigned(config.address_bits), "length": unsigned(bits_for(longest))}
        )


class FetchTile(data.StructLayout):
    """What the segment walker needs of a tile."""

    def __init__(self, config: EngineConfig) -> None:
        address, length = unsigned(config.address_bits), Segment(config)["length"].shape
        super().__init__(
            {
                "new_parameters": 1,
                "new_weights": 1,
                "new_input": 1,
                "bias_address": address,
                "scale_address": address,
                "weight_address": address,
                "input_address": address,
                "tile_m": channel_bits(config),
                "weight_length": length,
                "input_length": length,
                "rows": span_bits(config),
                "columns": span_bits(config),
            }
        )


class LoadTile(data.StructLayout):
    """What the tile loader needs of a tile."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(
            {
                "new_parameters": 1,
                "new_weights": 1,
                "new_input": 1,
                "skip_rows": span_bits(config),
                "rows": span_bits(config),
                "skip_columns": span_bits(config),
                "columns": span_bits(config),
                "tile_m": channel_bits(config),
                "m_groups": group_bits(config),
                "m_tail": bits_for(config.out_lanes),
                "c_steps": step_bits(config),
                "c_tail": bits_for(config.split_lanes),
                "pixel_words": span_bits(config),
                "word_tail": bits_for(config.word_bytes),
            }
        )


class ComputeTile(data.StructLayout):
    """What the tap walker needs of a tile.

    ``skip_rows`` rows of its span lie above the tensor, ``inside_rows`` below those inside it; none
    is inside if no column is.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(
            {
                "new_parameters": 1,
                "new_weights": 1,
                "new_input": 1,
                "first_c": 1,
                "last_c": 1,
                "rows": span_bits(config),
                "column_groups": span_bits(config),
                "column_tail": bits_for(config.split_lanes),
                "m_groups": group_bits(config),
                "m_tail": bits_for(config.out_lanes),
                "c_steps": step_bits(config),
                "skip_rows": span_bits(config),
                "inside_rows": span_bits(config),
                "low_q": signed(COORDINATE),
                "high_q": signed(COORDINATE),
            }
        )


class WriteTile(data.StructLayout):
    """What the output writer needs of a tile: the address of its first result."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__({"address": unsigned(config.address_bits)})


class DrainToken(data.StructLayout):
    """Travels with the last operand of a group of sums and says how to drain them.

    ``level`` names the loop that advances after the group: 2 output channel group, 3 column step,
    4 row, 5 none, the tile ends.
    """

    def __init__(self, config: EngineConfig) -> None:
        rows = 2 * config.channel_groups * config.group_steps
        super().__init__(
            {
                "columns": unsigned(bits_for(config.split_lanes)),
                "channels": unsigned(bits_for(config.out_lanes)),
                "parameter_row": unsigned(index_bits(rows)),
                "first_c": 1,
                "last_c": 1,
                "tile_first": 1,
                "new_parameters": 1,
                "level": 3,
            }
        )


class ResultRow(data.StructLayout):
    """Up to Q results of one output pixel.

    ``bytes`` holds them packed, int8 or int32 little endian; ``count`` of them are valid. ``level``
    names the loop that advances afterwards: 0 drain step, 1 column, and on as in DrainToken.
    ``last_piece`` is the number of the last beat's worth of bytes, which the writer wants at once.
    """

    def __init__(self, config: EngineConfig) -> None:
        q = config.results_per_cycle
        super().__init__(
            {
                "bytes": data.ArrayLayout(8, 4 * q),
                "count": bits_for(q),
                "level": 3,
                "last_piece": ceil_log2(row_pieces(config)),
            }
        )


def row_pieces(config: EngineConfig) -> int:
    """Return how many beats the most bytes of a row are worth."""
    return -(-4 * config.results_per_cycle // config.bus_bytes)
