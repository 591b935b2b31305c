"""Writes result rows to memory, merging neighbours into full beats."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.rtl.drain import ResultRow
from haloconv.rtl.ports import WriteBeat
from haloconv.rtl.widths import DescriptorLayout, WriteTile, index_bits

__all__ = ["OutputWriter"]


class OutputWriter(wiring.Component):
    """Follows the drain's loops with one running address and packs the results into beats.

    A beat leaves when it is full, when a result for another beat comes, or at ``flush``. Partial
    beats carry strobes; bytes around them are never touched.

    Timing: latency 2 from row to beat. A row takes one cycle for each ``bus_bytes`` of it, and as
    many as the beats that it completes or ends if that is more. Cuts all paths to the write port.

    Resources: an address adder, a beat rotator.

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
        address_bits = config.address_bits
        piece_valid, piece_free = Signal(), Signal()
        piece_address = Signal(address_bits, reset_less=True)
        piece_count = Signal(bits_for(bus), reset_less=True)
        piece_bytes = Signal(8 * bus, reset_less=True)

        # Stage 1: the address of each row, its bytes cut into pieces of at most a beat.
        pieces = -(-4 * q // bus)
        piece = Signal(index_bits(pieces))
        total = Signal(bits_for(4 * q))
        rest = Signal(bits_for(4 * q))
        row_last, take = Signal(), Signal()
        have_tile = Signal()
        row = self.i.payload
        level = row.level
        at = {
            name: Signal(address_bits, reset_less=True, name=f"at_{name}")
            for name in ("row", "column_step", "group", "column", "step")
        }
        m.d.comb += [
            total.eq(Mux(d.raw, row.count << 2, row.count)),
            rest.eq(total - piece * bus),
            row_last.eq(rest <= bus),
            take.eq(self.i.valid & have_tile & piece_free),
            self.i.ready.eq(have_tile & piece_free & row_last),
            self.i_tile.ready.eq(~have_tile),
        ]
        with m.If(~have_tile & self.i_tile.valid):
            m.d.sync += have_tile.eq(1)
            m.d.sync += [value.eq(self.i_tile.payload.address) for value in at.values()]
        with m.If(piece_free):
            m.d.sync += piece_valid.eq(take)
        padded = Signal(8 * bus * pieces)
        m.d.comb += padded.eq(row.bytes)
        with m.If(take):
            m.d.sync += [
                piece.eq(Mux(row_last, 0, piece + 1)),
                piece_address.eq(at["step"] + piece * bus),
                piece_count.eq(Mux(row_last, rest, bus)),
                piece_bytes.eq(padded.word_select(piece, 8 * bus)),
            ]
            m.d.comb += self.written.eq(Mux(row_last, rest, bus))
        base, step = Signal(address_bits), Signal(address_bits)
        moved = Signal(address_bits)
        with m.Switch(level):
            with m.Case(0):
                m.d.comb += [base.eq(at["step"]), step.eq(Mux(d.raw, 4 * q, q))]
            with m.Case(1):
                m.d.comb += [base.eq(at["column"]), step.eq(d.out_pixel_pitch)]
            with m.Case(2):
                lanes = config.out_lanes
                m.d.comb += [base.eq(at["group"]), step.eq(Mux(d.raw, 4 * lanes, lanes))]
            with m.Case(3):
                m.d.comb += [base.eq(at["column_step"]), step.eq(d.out_column_step)]
            with m.Default():
                m.d.comb += [base.eq(at["row"]), step.eq(d.out_row_pitch)]
        m.d.comb += moved.eq(base + step)
        with m.If(take & row_last):
            for least, name in enumerate(("step", "column", "group", "column_step", "row")):
                with m.If(level >= least):
                    m.d.sync += at[name].eq(moved)
            with m.If(level == 5):
                m.d.sync += have_tile.eq(0)

        # Stage 2: merge pieces that fall into the same beat.
        shift = exact_log2(bus)
        held_valid = Signal()
        held_beat = Signal(address_bits - shift, reset_less=True)
        held_bytes = Signal(8 * bus, reset_less=True)
        held_strobe = Signal(bus, reset_less=True)
        beat = Signal(address_bits - shift)
        offset = Signal(index_bits(bus))
        spread = Signal(16 * bus)
        strobes = Signal(2 * bus)
        m.d.comb += [
            beat.eq(piece_address[shift:]),
            offset.eq(piece_address[:shift] if shift else 0),
            spread.eq(piece_bytes << (offset << 3)),
            strobes.eq(((1 << piece_count) - 1) << offset),
        ]
        same = held_valid & (held_beat == beat)
        other = held_valid & (held_beat != beat)
        overflows = strobes[bus:].any()
        full = strobes[bus - 1]
        merged_bytes, merged_strobe = Signal(8 * bus), Signal(bus)
        for index in range(bus):
            m.d.comb += merged_bytes.word_select(index, 8).eq(
                Mux(
                    strobes[index],
                    spread.word_select(index, 8),
                    held_bytes.word_select(index, 8),
                )
            )
        m.d.comb += merged_strobe.eq(strobes[:bus] | Mux(same, held_strobe, 0))
        out_free, emit, emit_held = Signal(), Signal(), Signal()
        m.d.comb += out_free.eq(~self.o.valid | self.o.ready)
        with m.If(out_free):
            m.d.sync += self.o.valid.eq(emit)
            m.d.sync += [
                self.o.payload.address.eq(Cat(C(0, shift), Mux(emit_held, held_beat, beat))),
                self.o.payload.data.eq(Mux(emit_held, held_bytes, merged_bytes)),
                self.o.payload.strobe.eq(Mux(emit_held, held_strobe, merged_strobe)),
            ]
        done = Signal()
        m.d.comb += piece_free.eq(~piece_valid | done)
        with m.If(piece_valid & out_free):
            with m.If(other):
                # The held beat leaves first; the piece takes its place unless it needs two beats.
                m.d.comb += [emit.eq(1), emit_held.eq(1), done.eq(~overflows)]
                with m.If(overflows):
                    m.d.sync += held_valid.eq(0)
                with m.Else():
                    m.d.sync += [
                        held_beat.eq(beat),
                        held_bytes.eq(spread[: 8 * bus]),
                        held_strobe.eq(strobes[:bus]),
                    ]
            with m.Elif(full):
                m.d.comb += [emit.eq(1), done.eq(1)]
                m.d.sync += [
                    held_valid.eq(overflows),
                    held_beat.eq(beat + 1),
                    held_bytes.eq(spread[8 * bus :]),
                    held_strobe.eq(strobes[bus:]),
                ]
            with m.Else():
                m.d.comb += done.eq(1)
                m.d.sync += [
                    held_valid.eq(1),
                    held_beat.eq(beat),
                    held_bytes.eq(merged_bytes),
                    held_strobe.eq(merged_strobe),
                ]
        with m.Elif(out_free & held_valid & self.flush):
            m.d.comb += [emit.eq(1), emit_held.eq(1)]
            m.d.sync += held_valid.eq(0)
        m.d.comb += self.idle.eq(~(piece_valid | held_valid | self.o.valid | self.i.valid))
        return m
