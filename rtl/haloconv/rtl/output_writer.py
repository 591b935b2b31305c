"""Writes result rows to memory, merging neighbours into full beats."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.rtl.fused_sum import selected_sum
from haloconv.rtl.ports import WriteBeat
from haloconv.rtl.widths import (
    DescriptorLayout,
    ResultRow,
    WriteTile,
    index_bits,
    row_pieces,
)

__all__ = ["OutputWriter"]


class OutputWriter(wiring.Component):
    """Follows the drain's loops with one running address and packs the results into beats.

    A beat leaves when it is full, when a result for another beat comes, or at ``flush``. Partial
    beats carry strobes; bytes around them are never touched.

    Timing: latency 3 from row to beat. A row takes one cycle for each ``bus_bytes`` of it, and as
    many as the beats that it completes or ends if that is more. Cuts all paths to the write port.

    Resources: three address adders, a memory of four addresses, a beat rotator, four beats of
    registers.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    descriptor : In(DescriptorLayout)
    i : In(stream of ResultRow)
    i_tile : In(stream of WriteTile)
    o : Out(stream of WriteBeat)
    flush : In(1)
        No more rows come: write what is held.
    idle : Out(1)
        Nothing is held.
    written : Out
        Result bytes taken this cycle.
    """

    descriptor: data.View
    i: stream.Interface
    i_tile: stream.Interface
    o: stream.Interface
    flush: Signal
    idle: Signal
    written: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "descriptor": In(DescriptorLayout()),
                "i": In(stream.Signature(ResultRow(config))),
                "i_tile": In(stream.Signature(WriteTile(config))),
                "o": Out(stream.Signature(WriteBeat(config.address_bits, config.bus_bytes))),
                "flush": In(1),
                "idle": Out(1),
                "written": Out(bits_for(config.bus_bytes)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config, d = self._config, self.descriptor
        bus, q = config.bus_bytes, config.results_per_cycle
        shift = exact_log2(bus)

        # Stage 1: the bytes of each row, cut into pieces of at most a beat.
        pieces = row_pieces(config)
        piece = Signal(index_bits(pieces))
        total = Signal(bits_for(4 * q))
        rest = Signal(bits_for(4 * q))
        count = Signal(bits_for(bus))
        row_last, take = Signal(), Signal()
        have_tile = Signal()
        row = self.i.payload
        piece_valid, piece_free, moves = Signal(), Signal(), Signal()
        piece_count = Signal.like(count, reset_less=True)
        level = Signal(3)
        piece_bytes = Signal(8 * bus, reset_less=True)
        padded = Signal(8 * bus * pieces)
        m.d.comb += [
            total.eq(Mux(d.raw, row.count << 2, row.count)),
            rest.eq(total - piece * bus),
            row_last.eq(piece == row.last_piece if pieces > 1 else 1),
            count.eq(Mux(row_last, rest, bus)),
            piece_free.eq(~piece_valid | moves),
            take.eq(self.i.valid & have_tile & piece_free),
            self.i.ready.eq(have_tile & piece_free & row_last),
            self.written.eq(Mux(take, count, 0)),
            padded.eq(row.bytes),
            # Pieces within a row follow each other like the drain steps of a pixel.
            level.eq(Mux(row_last, row.level, 0)),
        ]
        with m.If(piece_free):
            m.d.sync += [
                piece_valid.eq(take),
                piece_count.eq(count),
                piece_bytes.eq(padded.word_select(piece, 8 * bus)),
            ]
        with m.If(take):
            m.d.sync += piece.eq(Mux(row_last, 0, piece + 1))

        tile_ends = take & row_last & (row.level == 5)
        with m.If(self.i_tile.valid & self.i_tile.ready):
            m.d.sync += have_tile.eq(1)
        with m.If(tile_ends):
            m.d.sync += have_tile.eq(0)
        m.d.comb += self.i_tile.ready.eq(~have_tile)
        address = self._address(m, level, count, piece_free, piece_valid)

        # Stage 2: a piece begins in one beat and may end in the next. Its place is compared with
        # that of the piece before here, as stage 3 has no time for it.
        offset, place = address[:shift], address[shift:]
        end = Signal(shift + 1)
        begun, ended = Signal(bus), Signal(bus)
        turned = [piece_bytes.word_select(index, 8) for index in range(bus)]
        for bit in range(shift):
            turned = [
                Mux(offset[bit], turned[index - (1 << bit)], turned[index]) for index in range(bus)
            ]
        m.d.comb += [
            end.eq(offset + piece_count),
            begun.eq(Cat(offset <= index for index in range(bus))),
            ended.eq(Cat(end[:shift] > index for index in range(bus))),
        ]
        put_valid, put_done = Signal(), Signal()
        put_place, beyond = Signal(len(place), reset_less=True), Signal(len(place))
        put_bytes = [Signal(8, reset_less=True, name=f"put_{index}") for index in range(bus)]
        # Of the first beat; of the next beat, those before the end.
        strobe, rest_strobe = Signal(bus, reset_less=True), Signal(bus, reset_less=True)
        full, overflows = Signal(reset_less=True), Signal(reset_less=True)
        same, follows = Signal(reset_less=True), Signal(reset_less=True)
        m.d.comb += [moves.eq(~put_valid | put_done), beyond.eq(place - put_place)]
        with m.If(moves):
            m.d.sync += put_valid.eq(piece_valid)
        with m.If(moves & piece_valid):
            m.d.sync += [
                put_place.eq(place),
                same.eq(beyond == 0),
                follows.eq(beyond == 1),
                full.eq(end[shift]),
                overflows.eq(end[shift] & end[:shift].any()),
                strobe.eq(begun & (end[shift].replicate(bus) | ended)),
                rest_strobe.eq(ended),
                *(put.eq(value) for put, value in zip(put_bytes, turned, strict=True)),
            ]

        # Stage 3: merge it with what is held, of the beat at which the piece before ended.
        held_valid = Signal()
        held_place = Signal(len(place), reset_less=True)
        spilled = Signal(reset_less=True)
        held_bytes = Signal(8 * bus, reset_less=True)
        held_strobe = Signal(bus)  # none while nothing is held
        out_free, go, other, flush = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            out_free.eq(~self.o.valid | self.o.ready),
            other.eq(held_valid & ~Mux(spilled, follows, same)),
            go.eq(put_valid & out_free),
            # A held beat leaves before a piece of another beat, which takes its place unless it
            # needs two beats.
            put_done.eq(go & ~(other & overflows)),
        ]
        # What is held belongs to the place of the last piece, or behind it.
        sent = selected_sum(
            m, platform, "sent", len(place) + 1,
            Cat(C(1, 1), C(0, len(place))).as_signed(), held_valid,
            Cat(spilled, held_place).as_signed(), Cat(C(0, 1), put_place).as_signed(),
        )[1:]  # fmt: skip
        merge = Signal(bus)
        m.d.comb += merge.eq(strobe & (put_valid & ~other).replicate(bus))
        beat = Signal.like(self.o.payload, reset_less=True)
        m.d.comb += self.o.payload.eq(beat)
        with m.If(out_free):
            m.d.sync += [
                self.o.valid.eq(Mux(put_valid, other | full, held_valid & flush)),
                beat.address.eq(Cat(C(0, shift), sent)),
                beat.strobe.eq(held_strobe | merge),
            ]
            for index in range(bus):
                held = held_bytes.word_select(index, 8)
                m.d.sync += beat.data.word_select(index, 8).eq(
                    Mux(merge[index], put_bytes[index], held)
                )
        spills = Signal()
        m.d.comb += spills.eq(full & ~other)
        with m.If(go):
            kept = held_strobe & (~other & ~full).replicate(bus)
            placed = strobe & (~(full & overflows)).replicate(bus)
            m.d.sync += [
                held_valid.eq(~full | (overflows ^ other)),
                held_place.eq(put_place),
                spilled.eq(spills),
                held_strobe.eq(Mux(spills, rest_strobe, placed | kept)),
            ]
            for index in range(bus):
                # Bytes of a full beat are not needed any more.
                with m.If(full | strobe[index]):
                    m.d.sync += held_bytes.word_select(index, 8).eq(put_bytes[index])
        with m.Elif(out_free & flush):
            m.d.sync += [held_valid.eq(0), held_strobe.eq(0)]
        m.d.comb += [
            flush.eq(self.flush & ~piece_valid),
            self.idle.eq(~(piece_valid | put_valid | held_valid | self.o.valid | self.i.valid)),
        ]
        return m

    def _address(self, m: Module, level: Value, count: Value, free: Value, valid: Value) -> Signal:
        """The address of the piece in stage 2, from the levels and counts of pieces in stage 1.

        Each loop's address is the one at which it, or a loop around it, advanced last. So there is
        one word for each loop, written when it advances, and beside each loop the number of the
        word that holds its address.
        """
        config, d = self._config, self.descriptor
        address = Signal(config.address_bits, reset_less=True)
        next_tile = Signal.like(address)
        pending = Signal()
        with m.If(free):
            m.d.sync += pending.eq(0)
        with m.If(self.i_tile.valid & self.i_tile.ready):
            m.d.sync += [pending.eq(1), next_tile.eq(self.i_tile.payload.address)]

        # Words 0..3 are of the loops 1..4. A handful of words, read in the cycle of the address.
        m.submodules.loops = loops = Memory(shape=unsigned(config.address_bits), depth=4, init=[])
        write, read = loops.write_port(), loops.read_port(domain="comb")

        # What the piece needs is chosen before it comes: the way through the adder is long enough.
        lanes = config.out_lanes
        own, word, own_word = (
            Signal(reset_less=True),
            Signal(2, reset_less=True),
            Signal(2, reset_less=True),
        )
        small = Signal(bits_for(max(config.bus_bytes, 4 * lanes)), reset_less=True)
        pitch = Signal(2, reset_less=True)
        writes = Signal()
        following = []
        for loop in range(3):
            holder = Signal(2, reset_less=True, name=f"holder_{loop + 1}")
            value = Signal(2, name=f"following_{loop + 1}")
            m.d.comb += value.eq(Mux(writes & (write.addr >= loop), write.addr, holder))
            following.append(value)
            with m.If(free):
                m.d.sync += holder.eq(value)
        with m.If(free):
            m.d.sync += [
                own.eq(level == 0),
                own_word.eq(level - 1),
                small.eq(Mux(level == 0, count, Mux(d.raw, 4 * lanes, lanes))),
            ]
            with m.Switch(level):
                with m.Case(1):
                    m.d.sync += [word.eq(following[0]), pitch.eq(1)]
                with m.Case(0, 2):
                    m.d.sync += [word.eq(following[1]), pitch.eq(0)]
                with m.Case(3):
                    m.d.sync += [word.eq(following[2]), pitch.eq(2)]
                with m.Default():
                    m.d.sync += [word.eq(3), pitch.eq(3)]

        step, moved = Signal.like(address), Signal.like(address)
        pitches = (small, d.out_pixel_pitch, d.out_column_step, d.out_row_pitch)
        with m.Switch(pitch):
            for number, value in enumerate(pitches):
                with m.Case(number):
                    m.d.comb += step.eq(value)
        m.d.comb += [
            read.addr.eq(word),
            moved.eq(Mux(own, address, read.data) + step),
            # A tile's address takes the place of the one behind the last piece of the tile before.
            writes.eq(pending | (valid & ~own)),
            write.en.eq(writes & free),
            write.addr.eq(Mux(pending, 3, own_word)),
            write.data.eq(Mux(pending, next_tile, moved)),
        ]
        with m.If(free & (pending | valid)):
            m.d.sync += address.eq(write.data)
        return address
