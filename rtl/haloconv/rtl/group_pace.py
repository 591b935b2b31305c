"""Lets groups of sums begin as their drain and the room behind the requantisers allow."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import hold_cycles, row_cycles
from haloconv.planner.validate import check_int
from haloconv.rtl.loop_counter import loop_counter
from haloconv.rtl.widths import ComputeTile, tree_sum

__all__ = ["GroupPace"]


class GroupPace(wiring.Component):
    """A group of sums is drained in a known number of cycles, and its rows of results need room.

    The room of a group is taken as its first step is loaded, so that ``ready`` is a matter of two
    registers when its last step comes.

    Timing: ``ready`` is of the group at hand, the cycle after ``load``.

    Beside serial requantisers the first step of a group waits as well, as the lanes keep the sums
    of the group before until :func:`~haloconv.planner.latency.hold_cycles` after its last step.

    Resources: an adder of the room, a counter of the drain; where Q is less than Pm, a small
    product.

    Parameters
    ----------
    config : EngineConfig
    room : int
        Result rows that fit behind the requantisers, at least those of one group of sums.

    Members
    -------
    tile : In(ComputeTile), channel_mode : In(1)
    last_group, last_column : In(1)
        Of the step to load: its group of Pm output channels, its step of columns is the tile's
        last.
    load : In(1)
        The next step is the first of a group, or within one.
    begin : In(1)
        With ``load``: it is the first.
    issue : In(1)
        The last step of the group at hand is issued; its drain begins.
    returned : In(1)
        One result row left the room.
    ready : Out(1)
        The last step of the group at hand may be issued.
    over : Out(1)
        Its first step may be issued.
    channels, columns : Out
        Output channels and columns of the group at hand.
    free : Out(1)
        While no group is at hand: all room is free.

    Raises
    ------
    TypeError, ValueError
        If ``room`` is no integer or too small.
    """

    tile: data.View
    channel_mode: Signal
    last_group: Signal
    last_column: Signal
    load: Signal
    begin: Signal
    issue: Signal
    returned: Signal
    ready: Signal
    over: Signal
    channels: Signal
    columns: Signal
    free: Signal

    def __init__(self, config: EngineConfig, *, room: int) -> None:
        self._config = config
        self._room = check_int("room", room, config.split_lanes * config.group_steps)
        super().__init__(
            {
                "tile": In(ComputeTile(config)),
                "channel_mode": In(1),
                "last_group": In(1),
                "last_column": In(1),
                "load": In(1),
                "begin": In(1),
                "issue": In(1),
                "returned": In(1),
                "ready": Out(1),
                "over": Out(1),
                "channels": Out(bits_for(config.out_lanes)),
                "columns": Out(bits_for(config.split_lanes)),
                "free": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config, tile = self._config, self.tile
        lanes, q = config.split_lanes, config.results_per_cycle
        channels = Signal(len(self.channels), name="next_channels")
        columns = Signal(len(self.columns), name="next_columns")
        most = lanes * config.group_steps
        rows, held = Signal(range(most + 1)), Signal(range(most + 1), reset_less=True)
        m.d.comb += [
            channels.eq(Mux(self.last_group, tile.m_tail, config.out_lanes)),
            columns.eq(Mux(self.channel_mode, 1, Mux(self.last_column, tile.column_tail, lanes))),
        ]
        if config.group_steps == 1:
            m.d.comb += rows.eq(columns)
        else:
            drains = Signal(range(config.group_steps + 1))
            m.d.comb += [
                drains.eq(1 + sum(channels > step * q for step in range(1, config.group_steps))),
                # No multiplier for a few bits.
                rows.eq(
                    tree_sum([Mux(bit, columns << place, 0) for place, bit in enumerate(drains)])
                ),
            ]
        with m.If(self.load):
            m.d.sync += [
                self.channels.eq(channels),
                self.columns.eq(columns),
                held.eq(rows),
            ]

        # What is free of the room beyond the group at hand: below zero if that does not fit yet.
        left = Signal(signed(bits_for(self._room) + 1), init=self._room)
        taken = Signal(left.shape())
        with m.If(self.load & self.begin & tile.last_c):
            m.d.comb += taken.eq(-rows)
        # A bit below carries the row returned into the sum.
        m.d.sync += left.eq((Cat(C(1, 1), left) + Cat(self.returned, taken))[1:])

        drained = Signal()
        m.d.comb += [self.ready.eq(drained & ~left[-1]), self.free.eq(left == self._room)]
        if row_cycles(config) > 1:
            self._count_rows(m, held, drained)
            return m
        m.d.comb += [
            drained.eq(
                loop_counter(
                    m, platform, "drain", len(held),
                    enable=self.issue | ~drained, load=self.issue, trips=held, done=True,
                )
            ),
            self.over.eq(1),
        ]  # fmt: skip
        return m

    def _count_rows(self, m: Module, rows: Signal, drained: Signal) -> None:
        """Rows that are not over, and the cycles of one; the last one lets the lanes go."""
        pace = row_cycles(self._config)
        left, cycle = Signal(len(rows)), Signal(range(pace))
        over = Signal(init=1)
        let_go = hold_cycles(self._config, 1) - 1
        m.d.comb += [drained.eq(left == 0), self.over.eq(over)]
        with m.If(self.issue):
            m.d.sync += [left.eq(rows), cycle.eq(1), over.eq(0)]
        with m.Elif(~drained):
            m.d.sync += cycle.eq(cycle + 1)
            with m.If(cycle == pace - 1):
                m.d.sync += [cycle.eq(0), left.eq(left - 1)]
            with m.If((left == 1) & (cycle == let_go)):
                m.d.sync += over.eq(1)
