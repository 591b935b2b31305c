"""Reads a layer descriptor from memory."""

from typing import Any

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, FIELDS
from haloconv.rtl.ports import ReadData
from haloconv.rtl.widths import DescriptorLayout, DescriptorWord, Segment, index_bits

__all__ = ["ProgramFetch"]


_ELEMENTWISE = (
    "binary", "elements", "input_address", "weight_address", "bias_address", "scale_address",
    "output_address",
)  # fmt: skip
"""Fields that only the elementwise unit takes from registers."""


class ProgramFetch(wiring.Component):
    """Asks for one descriptor, hands its words out and keeps some of its fields.

    Timing: variable; a beat or a word a cycle, what is less. A word is shown in the cycle after its
    last byte was accepted; ``done`` is high in the cycle after the last word alone, when the
    descriptor stands.

    Resources: a word, and a register for each field of the descriptor that is kept.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    start : In(1), address : In
        Fetch the descriptor at ``address``, a multiple of the bus width, which holds until the
        segment was taken.
    o : Out(stream of Segment)
    i : In(stream of ReadData)
        Every beat given to this block belongs to the descriptor. Never waits for a long time.
    word : Out(DescriptorWord)
        Each word once, in ascending order.
    descriptor : Out(DescriptorLayout)
    done : Out(1)
    """

    start: Signal
    address: Signal
    o: stream.Interface
    i: stream.Interface
    word: Any
    descriptor: data.View
    done: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "address": In(config.address_bits),
                "o": Out(stream.Signature(Segment(config))),
                "i": In(stream.Signature(ReadData(config.bus_bytes))),
                "word": Out(DescriptorWord()),
                "descriptor": Out(DescriptorLayout()),
                "done": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bus, word = self._config.bus_bytes, self.word
        words = DESCRIPTOR_BYTES // 4
        with m.If(self.start):
            m.d.sync += self.o.valid.eq(1)
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        m.d.comb += [
            self.o.payload.address.eq(self.address),
            self.o.payload.length.eq(DESCRIPTOR_BYTES),
        ]

        # Parts of a word, or words of a beat; a power of two, so that the number starts over.
        parts = max(1, 4 // bus, bus // 4)
        part = Signal(index_bits(parts))
        final, index = Signal(), Signal(len(word.index))
        data_in, held = self.i.payload.data, Signal(32, reset_less=True)
        m.d.comb += [final.eq(part == parts - 1), word.data.eq(held), word.index.eq(index)]
        if bus <= 4:
            m.d.comb += self.i.ready.eq(1)
            shifted = Cat(held, data_in)[-32:]
        else:
            m.d.comb += self.i.ready.eq(final)
            shifted = data_in.word_select(part, 32)
        m.d.sync += [
            word.valid.eq(self.i.valid & (final if bus <= 4 else 1)),
            self.done.eq(word.valid & (index == words - 1)),
        ]
        with m.If(self.i.valid):
            m.d.sync += [held.eq(shifted), part.eq(Mux(final, 0, part + 1))]
        with m.If(word.valid):
            m.d.sync += index.eq(index + 1)
        with m.If(self.start):
            m.d.sync += [part.eq(0), index.eq(0), word.valid.eq(0), self.done.eq(0)]

        # The number once more, as two rings: a gate for each word that is kept.
        block, inner = Signal(-(-words // 8)), Signal(8)
        with m.If(word.valid):
            m.d.sync += inner.eq(inner.rotate_left(1))
            with m.If(inner[7]):
                m.d.sync += block.eq(block << 1)
        with m.If(self.start):
            m.d.sync += [block.eq(1), inner.eq(1)]
        elementwise = "elementwise" in self._config.built_units
        wanted = {name for name, _ in self.descriptor.shape()}
        if not elementwise:
            wanted.difference_update(_ELEMENTWISE)
        for field in FIELDS:
            name = field.name
            if name not in wanted:
                continue
            kept = Signal(field.width, reset_less=True, name=f"kept_{name}")
            low, number = field.bit % 32, field.word
            with m.If(word.valid & block[number // 8] & inner[number % 8]):
                m.d.sync += kept.eq(held[low : low + field.width])
            m.d.comb += self.descriptor[name].eq(kept)
        return m
