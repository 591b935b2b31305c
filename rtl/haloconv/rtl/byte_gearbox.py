"""Beats of a read port become byte chunks of any size."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2, exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.planner.validate import check_int
from haloconv.rtl.ports import ReadData
from haloconv.rtl.widths import Segment

__all__ = ["ByteGearbox", "Run"]


class Run(data.StructLayout):
    """A run of bytes as its beats see it: the ``address`` of the first byte, and the place of the
    ``last`` one, counted from the start of the beat that holds the first."""

    def __init__(self, config: EngineConfig) -> None:
        segment = Signal(Segment(config))
        longest = (1 << len(segment.length)) - 1
        super().__init__(
            {
                "address": segment.address.shape(),
                "last": bits_for(longest + config.bus_bytes - 2),
            }
        )
        self._shift = exact_log2(config.bus_bytes)

    def covering(self, run: data.View, segment: data.View) -> list:
        """Assignments that make ``run`` cover a Segment of at least one byte."""
        return [
            run.address.eq(segment.address),
            run.last.eq(segment.length + segment.address[: self._shift] - 1),
        ]


class ByteGearbox(wiring.Component):
    """Drops the bytes around each segment and offers the rest as one string of bytes.

    Timing: a beat's bytes can be consumed two cycles after it was accepted; a beat a cycle while
    the consumer keeps up. ``i.ready`` depends on registers and ``i_segment.valid`` only;
    ``i_segment.ready`` is high with the last beat of the segment.

    Resources: chunk + bus_bytes byte registers, rounded up to a power of two, and those of a beat;
    two rotators, of a beat and of a chunk.

    Parameters
    ----------
    config : EngineConfig
    chunk : int
        Most bytes consumed a cycle.

    Members
    -------
    i_segment : In(stream of Run)
        Where each segment begins and ends, in the order of their beats.
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
                "i_segment": In(stream.Signature(Run(config))),
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
        # The string lies in a ring, and no byte moves before it leaves. A power of two of bytes, so
        # that places wrap by themselves; a whole beat always fits behind the level at which one is
        # appended, so bytes around the segment may be written there and are overwritten later.
        size = 1 << ceil_log2(chunk + bus)
        place = range(size)

        # Stage 1: which bytes of the beat count, and where they go.
        run = self.i_segment.payload
        inside = Signal()
        left = Signal(len(run.last) - shift, reset_less=True)
        beats = Signal.like(left)
        final, left_none = Signal(), Signal(reset_less=True)
        offset = Signal(shift)
        count = Signal(range(bus + 1))
        ahead = Signal(place)  # behind all bytes accepted
        turn = Signal(shift)
        stage_valid = Signal()
        stage_count = Signal.like(count, reset_less=True)
        stage_place = Signal(place, reset_less=True)
        stage_turn = Signal(shift, reset_less=True)
        stage_data = Signal(8 * bus, reset_less=True)
        stage_free = Signal()
        accept = Signal()
        m.d.comb += [
            beats.eq(Mux(inside, left, run.last >> shift)),
            final.eq(Mux(inside, left_none, run.last >> shift == 0)),
            offset.eq(Mux(inside, 0, run.address[:shift])),
            count.eq((run.last[:shift] | (~final).replicate(shift)) - offset + 1),
            turn.eq(ahead[:shift] - offset),
            stage_free.eq(~stage_valid | (self.level <= chunk)),
            self.i.ready.eq(stage_free & self.i_segment.valid),
            accept.eq(self.i.valid & self.i.ready),
            self.i_segment.ready.eq(accept & final),
        ]
        beat = [self.i.payload.data.word_select(index, 8) for index in range(bus)]
        with m.If(stage_free):
            m.d.sync += stage_valid.eq(accept)
        with m.If(accept):
            m.d.sync += [
                inside.eq(~final),
                left.eq(beats - 1),
                left_none.eq(beats == 1),
                ahead.eq(ahead + count),
                stage_count.eq(count),
                stage_place.eq(ahead),
                stage_turn.eq(turn),
                # Part of the rotation is done before the register, the rest behind it.
                stage_data.eq(Cat(_rotated(beat, turn[:1], 1))),
            ]

        # Stage 2: into the ring.
        append = Signal()
        m.d.comb += append.eq(stage_valid & (self.level <= chunk))
        turned = Signal(8 * bus)
        staged = [stage_data.word_select(index, 8) for index in range(bus)]
        m.d.comb += turned.eq(Cat(_rotated(staged, stage_turn[1:], 2)))
        ring = [Signal(8, reset_less=True, name=f"byte_{index}") for index in range(size)]
        rows = stage_place[shift:]
        for lane in range(bus):
            # The beat covers one byte of each lane: in the row of its first byte or the next.
            row = Signal(len(rows), name=f"row_{lane}")
            m.d.comb += row.eq(rows + (stage_place[:shift] > lane))
            for index in range(lane, size, bus):
                with m.If(append & (row == index // bus)):
                    m.d.sync += ring[index].eq(turned.word_select(lane, 8))
        head = Signal(place)
        m.d.comb += Value.cast(self.data).eq(Cat(_window(ring, head, chunk)))
        m.d.sync += [
            head.eq(head + self.consume),
            self.level.eq(self.level + Mux(append, stage_count, 0) - self.consume),
        ]
        return m


def _rotated(items: list[Value], amount: Value, unit: int) -> list[Value]:
    """``items``, a power of two of them, moved up by ``amount`` times ``unit`` places, those at the
    end to the front."""
    for bit in range(len(amount)):
        step = unit << bit
        items = [Mux(amount[bit], items[index - step], items[index]) for index in range(len(items))]
    return items


def _window(ring: list[Signal], head: Signal, count: int) -> list[Value]:
    """The ``count`` items of a ring, a power of two of them, from ``head`` on."""
    items: list[Value] = list(ring)
    bits = exact_log2(len(items))
    # While the window covers no more than half of the ring, each item of a half is wanted or the
    # one in its place of the other half.
    while count <= len(items) // 2:
        bits -= 1
        half = len(items) // 2
        items = [
            Mux(head[bits] ^ (head[:bits] > index), items[index + half], items[index])
            for index in range(half)
        ]
    # The rest is a rotation, of which later steps need ever fewer items.
    for bit in reversed(range(bits)):
        step = 1 << bit
        items = [
            Mux(head[bit], items[(index + step) % len(items)], items[index])
            for index in range(min(len(items), count + step - 1))
        ]
    return items[:count]
