"""Looks at the words of a descriptor as they arrive, for what the engine cannot run."""

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import ELEMENTWISE, FIELDS, MARK
from haloconv.planner.requantization import ROUNDINGS
from haloconv.rtl.widths import (
    DescriptorLayout,
    DescriptorWord,
    channel_bits,
    span_bits,
    step_bits,
)

__all__ = ["DescriptorCheck"]

_FIELDS = {field.name: field for field in FIELDS}
COUNTS = (
    "groups", "tiles_h", "tiles_w", "tiles_m", "tiles_c", "rows", "rows_last", "column_groups",
    "column_groups_last", "column_tail", "column_tail_last", "m_groups", "m_groups_last", "m_tail",
    "m_tail_last", "tile_m", "tile_m_last", "c_steps", "c_steps_last", "c_tail", "c_tail_last",
    "segment_bytes", "segment_bytes_last", "pixel_words", "pixel_words_last", "word_tail",
    "word_tail_last", "kernel_h", "kernel_w", "taps", "stride_h", "stride_w", "phases",
    "weight_bytes",
)  # fmt: skip
"""Fields of which none may be zero where something is convolved: a loop of no trips would never
end."""


def limits(config: EngineConfig) -> dict[str, int]:
    """Return the largest values of fields, as the blocks are built.

    Counters of the datapath are only as wide as what the buffers can hold.
    """
    counters = (
        (span_bits(config), (
            "rows", "rows_last", "column_groups", "column_groups_last", "span_h", "span_h_last",
            "span_w", "span_w_last", "pixel_words", "pixel_words_last",
        )),
        (step_bits(config), ("c_steps", "c_steps_last", "taps")),
        (channel_bits(config), ("tile_m", "tile_m_last")),
    )  # fmt: skip
    return {
        **{name: (1 << bits) - 1 for bits, names in counters for name in names},
        "input_words": config.input_words,
        "weight_words": config.weight_words,
        "psum_words": config.psum_words,
        **{f"m_groups{last}": config.channel_groups for last in ("", "_last")},
        **{f"m_tail{last}": config.out_lanes for last in ("", "_last")},
        **{f"column_tail{last}": config.split_lanes for last in ("", "_last")},
        **{f"c_tail{last}": config.split_lanes for last in ("", "_last")},
        **{f"word_tail{last}": config.word_bytes for last in ("", "_last")},
    }


def _exceeds(value: Value, most: int) -> Value:
    """``value`` > ``most``, in gates instead of the carry chain that a comparison becomes."""
    above: Value = C(0, 1)
    if most >> len(value):
        return above  # a field that cannot say more
    for place in range(len(value)):
        above = (value[place] & above) if most >> place & 1 else (value[place] | above)
    return above


class DescriptorCheck(wiring.Component):
    """Refuses a descriptor that asks for what is not built, and a tile that does not fit.

    Timing: the answers hold from the cycle after the last word, in which the program fetch is done,
    until the next ``start``.

    Resources: a few comparators with constants.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    start : In(1)
        A descriptor begins.
    word : In(DescriptorWord)
    descriptor : In(DescriptorLayout)
        Looked at with the answers.
    unsuited, oversized : Out(1)
    """

    start: Signal
    word: Any
    descriptor: data.View
    unsuited: Signal
    oversized: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "word": In(DescriptorWord()),
                "descriptor": In(DescriptorLayout()),
                "unsuited": Out(1),
                "oversized": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config, word = self._config, self.word

        def among(names: list[str], kind: str) -> Value:
            """One of these fields is in the word."""
            found = Signal(name=f"in_{kind}")
            numbers = {_FIELDS[name].word for name in names}
            m.d.comb += found.eq(Cat(word.index == number for number in sorted(numbers)).any())
            return found

        def place(name: str) -> tuple[int, int]:
            field = _FIELDS[name]
            return field.bit % 32, field.bit % 32 + field.width

        # Fields at the same place in their words share a comparator.
        zeros: dict[tuple[int, int], list[str]] = {}
        for name in COUNTS:
            zeros.setdefault(place(name), []).append(name)
        larger: dict[tuple[int, int, int], list[str]] = {}
        for name, most in limits(config).items():
            larger.setdefault((*place(name), most), []).append(name)
        zero = [
            among(names, f"zero_{low}_{high}") & (word.data[low:high] == 0)
            for (low, high), names in zeros.items()
        ]
        over = [
            among(names, f"over_{low}_{high}_{most}") & _exceeds(word.data[low:high], most)
            for (low, high, most), names in larger.items()
        ]

        def field(name: str) -> Value:
            low, high = place(name)
            return word.data[low:high]

        # What the first word alone decides.
        built = [field("rounding") == ROUNDINGS.index(name) for name in config.built_roundings]
        foreign = (
            (field("mark") != MARK)
            | ~(field("raw") | Cat(built, C(0, 1)).any())
            | (field("maximum") & ("max_pool" not in config.built_units))
        )
        unbuilt, empty, no_elements = Signal(), Signal(), Signal()
        with m.If(self.start):
            m.d.sync += [unbuilt.eq(0), empty.eq(0), no_elements.eq(0), self.oversized.eq(0)]
        with m.Elif(word.valid):
            with m.If(Cat(zero).any()):
                m.d.sync += empty.eq(1)
            with m.If(Cat(over).any()):
                m.d.sync += self.oversized.eq(1)
            with m.If(among(["mark"], "mark") & foreign):
                m.d.sync += unbuilt.eq(1)
            if "elementwise" in config.built_units:
                with m.If(among(["elements"], "elements") & (word.data == 0)):
                    m.d.sync += no_elements.eq(1)
        if "elementwise" not in config.built_units:
            no_elements = C(1)
        m.d.comb += self.unsuited.eq(
            unbuilt | Mux(self.descriptor.mode == ELEMENTWISE, no_elements, empty)
        )
        return m
