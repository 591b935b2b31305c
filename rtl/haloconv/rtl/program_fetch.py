"""Reads a layer descriptor from memory."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES
from haloconv.rtl.ports import ReadData
from haloconv.rtl.widths import DescriptorLayout, Segment, index_bits

__all__ = ["ProgramFetch"]


class ProgramFetch(wiring.Component):
    """Asks for one descriptor and keeps its fields.

    Timing: variable; the descriptor stands in the cycle after its last beat was accepted, and
    ``done`` is high in that cycle alone.

    Resources: a register for each descriptor bit that the engine uses.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    start : In(1), address : In
        Fetch the descriptor at ``address``, a multiple of the bus width.
    o : Out(stream of Segment)
    i : In(stream of ReadData)
        Always ready; every beat given to this block belongs to the descriptor.
    descriptor : Out(DescriptorLayout)
    done : Out(1)
    """

    start: Signal
    address: Signal
    o: stream.Interface
    i: stream.Interface
    descriptor: data.View
    done: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "address": In(config.address_bits),
                "o": Out(stream.Signature(Segment(config))),
                "i": In(stream.Signature(ReadData(config.bus_bytes), always_ready=True)),
                "descriptor": Out(DescriptorLayout()),
                "done": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bits = 8 * self._config.bus_bytes
        beats = DESCRIPTOR_BYTES // self._config.bus_bytes
        index = Signal(index_bits(beats))
        store = Signal(8 * DESCRIPTOR_BYTES, reset_less=True)
        m.d.sync += self.done.eq(0)
        with m.If(self.start):
            m.d.sync += [self.o.valid.eq(1), index.eq(0)]
            m.d.sync += self.o.payload.address.eq(self.address)
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        m.d.comb += self.o.payload.length.eq(DESCRIPTOR_BYTES)
        with m.If(self.i.valid):
            m.d.sync += [index.eq(index + 1), self.done.eq(index == beats - 1)]
            for beat in range(beats):
                with m.If(index == beat):
                    m.d.sync += store.word_select(beat, bits).eq(self.i.payload.data)
        m.d.comb += Value.cast(self.descriptor).eq(store)
        return m
