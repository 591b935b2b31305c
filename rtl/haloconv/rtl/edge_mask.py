"""Follows a step's place in the tensor and says which split lanes lie inside."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.rtl.fused_sum import selected_sum
from haloconv.rtl.widths import ComputeTile, DescriptorLayout, span_bits

__all__ = ["EdgeMask", "Reached"]


class Reached(data.StructLayout):
    """The loops of a tile that have ended or advance, from inside to outside: each is high if all
    loops inside it are in their last trip.
    """

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(("tap", "tap_row", "group", "column", "row", "end"), 1))


class EdgeMask(wiring.Component):
    """Rows count from the tile's top, columns in steps of the stride, with the phase beside them.

    Timing: ``mask`` is that of the step at hand three cycles after ``advance``, which leaves it for
    the next one. ``restart`` goes to the first step of a tile.

    Resources: adders of a row, a column and a phase; four comparators.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    descriptor : In(DescriptorLayout), tile : In(ComputeTile)
    channel_mode : In(1)
    restart, advance : In(1)
    reached : In(Reached)
        Of the step at hand.
    phase_wraps : Out(1)
        The next kernel column lies a column step further than the descriptor says.
    mask : Out(Pr)
    """

    descriptor: data.View
    tile: data.View
    channel_mode: Signal
    restart: Signal
    advance: Signal
    reached: data.View
    phase_wraps: Signal
    mask: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "descriptor": In(DescriptorLayout()),
                "tile": In(ComputeTile(config)),
                "channel_mode": In(1),
                "restart": In(1),
                "advance": In(1),
                "reached": In(Reached()),
                "phase_wraps": Out(1),
                "mask": Out(config.split_lanes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config, d, tile, reached = self._config, self.descriptor, self.tile, self.reached
        width = span_bits(config)

        tap_row = Signal(width, reset_less=True)
        in_row = Signal(width, reset_less=True)
        rows = Signal(width)
        m.d.comb += rows.eq(
            Mux(reached.group, Mux(reached.row, d.stride_h, 0), d.dilation_h),
        )
        next_row = selected_sum(
            m, platform, "next_row", width, rows.as_signed(), reached.group,
            in_row.as_signed(), tap_row.as_signed(),
        )  # fmt: skip
        with m.If(self.advance & reached.tap_row):
            m.d.sync += tap_row.eq(next_row)
        with m.If(self.advance & reached.row):
            m.d.sync += in_row.eq(next_row)
        with m.If(self.restart):
            m.d.sync += [tap_row.eq(0), in_row.eq(0)]

        # The phase within a stride: one step beyond it, or still in it.
        phase = Signal(8, reset_less=True)
        beyond = Signal(signed(9), reset_less=True)
        within, less = Signal(8), Signal(signed(9))
        m.d.sync += beyond.eq(d.dilation_p - d.stride_w)
        m.d.comb += [
            within.eq(phase + d.dilation_p),
            less.eq(phase + beyond),
            self.phase_wraps.eq(~less[-1]),
        ]
        with m.If(self.advance & reached.tap):
            m.d.sync += phase.eq(Mux(self.phase_wraps, less, within))
        with m.If(self.restart | (self.advance & reached.tap_row)):
            m.d.sync += phase.eq(0)

        q_tap = Signal(width, reset_less=True)
        q_column = Signal(width, reset_less=True)
        step_q = Signal(width)
        with m.If(~reached.tap_row):
            m.d.comb += step_q.eq(d.dilation_q)
        with m.Elif(reached.column):
            m.d.comb += step_q.eq(Mux(self.channel_mode, 1, config.split_lanes))
        wraps = self.phase_wraps & ~reached.tap_row
        # A bit below carries the wrap into the sum.
        next_q = selected_sum(
            m, platform, "next_q", width + 1, Cat(C(1, 1), step_q).as_signed(), reached.tap_row,
            Cat(wraps, q_column).as_signed(), Cat(wraps, q_tap).as_signed(),
        )[1:]  # fmt: skip
        with m.If(self.advance & reached.tap):
            m.d.sync += q_tap.eq(next_q)
        with m.If(self.advance & reached.column):
            m.d.sync += q_column.eq(next_q)
        with m.If(self.restart | (self.advance & reached.row)):
            m.d.sync += [q_tap.eq(0), q_column.eq(0)]

        # Distances from the edges, each less one: a bit below makes up for the complement's.
        row = Signal(signed(width + 1), reset_less=True)
        before = Signal(signed(len(tile.low_q) + 1), reset_less=True)
        behind = Signal(signed(len(tile.low_q) + 1), reset_less=True)

        def less_column(edge: Value, part: Value) -> Value:
            shifted = Cat(phase < part, edge).as_signed()
            return (shifted + Cat(C(1, 1), ~q_tap, C(1, 1)).as_signed())[1:].as_signed()

        with m.If(self.advance):
            m.d.sync += [
                row.eq(tap_row - tile.skip_rows),
                before.eq(less_column(tile.low_q, d.low_p)),
                behind.eq(less_column(tile.high_q, d.high_p)),
            ]
        lanes = config.split_lanes
        lane_bits = (lanes - 1).bit_length()
        inside = Signal(reset_less=True)
        begun, ended = Signal(lanes, reset_less=True), Signal(lanes, reset_less=True)
        far = Signal(2)
        m.d.comb += far.eq(Cat(before[lane_bits:-1].any(), behind[lane_bits:-1].any()))
        # A row above the tensor is a large number without its sign.
        m.d.sync += inside.eq(row.as_unsigned() < tile.inside_rows)
        for lane in range(lanes):
            first, last = before[:lane_bits] < lane, behind[:lane_bits] < lane
            m.d.sync += [
                begun[lane].eq(before[-1] | (~far[0] & first)),
                ended[lane].eq(behind[-1] | (~far[1] & last)),
                self.mask[lane].eq(inside & begun[lane] & ~ended[lane]),
            ]
        return m
