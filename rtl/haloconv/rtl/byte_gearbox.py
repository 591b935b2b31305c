"""Beats of a read port become byte chunks of any size."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.planner.validate import check_int
from haloconv.rtl.ports import ReadData
from haloconv.rtl.widths import Segment, index_bits

__all__ = ["ByteGearbox"]


class ByteGearbox(wiring.Component):
    """Drops the bytes around each segment and offers the rest as one string of bytes.

    Timing: a beat's bytes can be consumed two cycles after it was accepted; a beat a cycle while
    the consumer keeps up. ``i.ready`` depends on registers and ``i_segment.valid`` only;
    ``i_segment.ready`` is high with the last beat of the segment.

    Resources: chunk + 2 beats of byte registers, a rotator of a beat and two byte shifters.

    Parameters
    ----------
    config : EngineConfig
    chunk : int
        Most bytes consumed a cycle.

    Members
    -------
    i_segment : In(stream of Segment)
        Address and length of each run, in the order of its beats.
    i : In(stream of ReadData)
    data : Out(ArrayLayout(8, chunk))
        The next bytes, first one lowest.
    level : Out(range(chunk + bus_bytes + 1))
        Valid bytes held; those beyond ``chunk`` are not shown yet.
    consume : In(range(chunk + 1))
        Bytes taken this cycle, at most ``level`` and ``chunk``.

    Raises
    ------
    TypeError, ValueError
        If ``chunk`` is no integer of at least 1.
    """

    i_segment: stream.Interface
    i: stream.Interface
    data: data.View
    level: Signal
    consume: Signal

    def __init__(self, config: EngineConfig, *, chunk: int) -> None:
        self._config = config
        self._chunk = chunk = check_int("Chunk", chunk, 1)
        super().__init__(
            {
                "i_segment": In(stream.Signature(Segment(config))),
                "i": In(stream.Signature(ReadData(config.bus_bytes))),
                "data": Out(data.ArrayLayout(8, chunk)),
                "level": Out(bits_for(chunk + config.bus_bytes)),
                "consume": In(bits_for(chunk)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bus, chunk = self._config.bus_bytes, self._chunk
        shift = exact_log2(bus)

        # Stage 1: the bytes of the segment at hand, moved to the bottom of the beat.
        segment = self.i_segment.payload
        left = Signal(len(segment.length))
        inside = Signal()
        offset = Signal(index_bits(bus))
        remaining = Signal.like(left)
        room = Signal(bits_for(bus))
        count = Signal(bits_for(bus))
        stage_valid = Signal()
        stage_count = Signal(bits_for(bus))
        stage_data = Signal(8 * bus, reset_less=True)
        stage_free = Signal()
        accept = Signal()
        m.d.comb += [
            offset.eq(Mux(inside, 0, segment.address[:shift] if shift else 0)),
            remaining.eq(Mux(inside, left, segment.length)),
            room.eq(bus - offset),
            count.eq(Mux(remaining < room, remaining, room)),
            stage_free.eq(~stage_valid | (self.level <= chunk)),
            self.i.ready.eq(stage_free & self.i_segment.valid),
            accept.eq(self.i.valid & self.i.ready),
            self.i_segment.ready.eq(accept & (remaining <= room)),
        ]
        moved = Signal(8 * bus)
        m.d.comb += moved.eq(self.i.payload.data >> (offset << 3))
        with m.If(stage_free):
            m.d.sync += stage_valid.eq(accept)
        with m.If(accept):
            m.d.sync += [stage_count.eq(count), left.eq(remaining - count)]
            m.d.sync += inside.eq(remaining > room)
            for index in range(bus):
                byte = moved.word_select(index, 8)
                m.d.sync += stage_data.word_select(index, 8).eq(Mux(index < count, byte, 0))

        # Stage 2: the string; what lies beyond the level is zero, so that new bytes can be or-ed.
        held = Signal(8 * (chunk + bus))
        joined = Signal(8 * (chunk + bus))
        append = Signal()
        m.d.comb += [
            append.eq(stage_valid & (self.level <= chunk)),
            joined.eq(held),
            Value.cast(self.data).eq(held),
        ]
        with m.If(append):
            m.d.comb += joined.eq(held | (stage_data << (self.level[: bits_for(chunk)] << 3)))
        m.d.sync += [
            held.eq(joined >> (self.consume << 3)),
            self.level.eq(self.level - self.consume + Mux(append, stage_count, 0)),
        ]
        return m
