"""Issues the operands of every multiply-accumulate of a tile, one step a cycle."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from haloconv.planner.config import EngineConfig
from haloconv.planner.tile import MODES
from haloconv.planner.validate import check_int
from haloconv.rtl.widths import (
    COORDINATE,
    ComputeTile,
    DescriptorLayout,
    DrainToken,
    Position,
    index_bits,
)

__all__ = ["TapStep", "TapWalker"]


class TapStep(data.StructLayout):
    """Operands of one cycle: where they lie, and where their row and columns stand in the tensor.
    ``first`` and ``last`` bracket a group of sums; ``select`` is the part of the word to use.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(
            {
                "valid": 1,
                "first": 1,
                "last": 1,
                "position": Position(config),
                "weight": index_bits(2 * config.weight_words),
                "select": index_bits(config.word_bytes),
            }
        )


class TapWalker(wiring.Component):
    """The loop nest inside a tile: output row, column step, group of Pm output channels, kernel
    row, kernel column, channel step.

    A group of sums is issued without a gap; only its last step may wait: for the drain of the
    group before, which takes a known number of cycles, and for room behind the requantisers.
    Nothing behind the walker ever stalls.

    Timing: a step a cycle; two cycles from the end of a tile to the first step of the next.
    ``mask`` follows its step by two cycles.

    Resources: one position adder over six nested loops.

    Parameters
    ----------
    config : EngineConfig
    room : int
        Result rows that fit behind the requantisers, at least those of one group of sums.

    Members
    -------
    descriptor : In(DescriptorLayout)
    i : In(stream of ComputeTile)
    loaded : In(1)
        The operands of one more tile are there.
    returned : In(1)
        One result row left the room behind the requantisers.
    step : Out(TapStep)
    mask : Out(Pr)
        Split lanes whose input lies inside the tensor, two cycles after ``step``.
    token : Out(DrainToken)
        Holds with ``step.last``.
    release_weights, release_input : Out(1)
    computing, waiting_load, waiting_drain : Out(1)
        What the walker does in this cycle.
    idle : Out(1)
        No tile at hand.
    room_free : Out(1)
        Every result row reserved was returned.

    Raises
    ------
    TypeError, ValueError
        If ``room`` is no integer or too small.
    """

    descriptor: data.View
    i: stream.Interface
    loaded: Signal
    returned: Signal
    step: data.View
    mask: Signal
    token: data.View
    release_weights: Signal
    release_input: Signal
    computing: Signal
    waiting_load: Signal
    waiting_drain: Signal
    idle: Signal
    room_free: Signal

    mask_latency = 2
    """Cycles from ``step`` to ``mask``."""

    def __init__(self, config: EngineConfig, *, room: int) -> None:
        self._config = config
        self._room = check_int("room", room, config.split_lanes * config.group_steps)
        super().__init__(
            {
                "descriptor": In(DescriptorLayout()),
                "i": In(stream.Signature(ComputeTile(config))),
                "loaded": In(1),
                "returned": In(1),
                "step": Out(TapStep(config)),
                "mask": Out(config.split_lanes),
                "token": Out(DrainToken(config)),
                "release_weights": Out(1),
                "release_input": Out(1),
                "computing": Out(1),
                "waiting_load": Out(1),
                "waiting_drain": Out(1),
                "idle": Out(1),
                "room_free": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config, d = self._config, self.descriptor
        lanes_split = config.split_lanes
        channel_mode, depthwise = Signal(), Signal()
        m.d.comb += [
            channel_mode.eq(d.mode == MODES.index("channel")),
            depthwise.eq(d.mode == MODES.index("depthwise")),
        ]

        tile = Signal(ComputeTile(config), reset_less=True)
        loaded_tiles = Signal(range(8))
        accept = Signal()
        m.d.sync += loaded_tiles.eq(loaded_tiles + self.loaded - accept)
        weight_half, input_half, parameter_half = Signal(init=1), Signal(init=1), Signal(init=1)
        weights_held, input_held = Signal(), Signal()

        # Loop state: what is left of each loop, and the position each loop resumes from.
        rows_left = Signal(16, reset_less=True)
        columns_left = Signal(16, reset_less=True)
        groups_left = Signal(16, reset_less=True)
        tap_rows_left = Signal(8, reset_less=True)
        taps_left = Signal(8, reset_less=True)
        steps_left = Signal(16, reset_less=True)
        select = Signal(index_bits(config.word_bytes), reset_less=True)
        names = ("row", "column", "group", "tap_row", "tap", "word")
        bases = {
            name: Signal(Position(config), reset_less=True, name=f"at_{name}") for name in names
        }
        weight = Signal(index_bits(2 * config.weight_words), reset_less=True)
        parameter_row = Signal(self.token.parameter_row.shape(), reset_less=True)
        bank_first = Signal(reset_less=True)
        parameters_first = Signal(reset_less=True)
        group_first = Signal(reset_less=True)
        in_row = Signal(signed(COORDINATE), reset_less=True)
        tap_row = Signal(signed(COORDINATE), reset_less=True)
        q_column = Signal(signed(COORDINATE), reset_less=True)
        q_tap = Signal(signed(COORDINATE), reset_less=True)
        phase = Signal(8, reset_less=True)

        last_of = {
            "row": rows_left == 0,
            "column": columns_left == 0,
            "group": groups_left == 0,
            "tap_row": tap_rows_left == 0,
            "tap": taps_left == 0,
            "word": steps_left == 0,
        }
        select_limit = Mux(
            channel_mode,
            config.word_steps - 1,
            Mux(depthwise, 0, config.word_bytes - 1),
        )
        select_wraps = Signal()
        m.d.comb += select_wraps.eq(select == select_limit)
        next_phase = Signal(9)
        phase_wraps = Signal()
        m.d.comb += [
            next_phase.eq(phase + d.dilation_p),
            phase_wraps.eq(next_phase >= d.stride_w),
        ]

        # The innermost loop that has not ended advances; those inside it start over.
        WORD, TAP, TAP_ROW, GROUP, COLUMN, ROW, END = range(7)
        level = Signal(range(7))
        m.d.comb += level.eq(END)
        for number, name in zip((ROW, COLUMN, GROUP, TAP_ROW, TAP, WORD), names, strict=True):
            with m.If(~last_of[name]):
                m.d.comb += level.eq(number)
        group_last = last_of["word"] & last_of["tap"] & last_of["tap_row"]

        base, delta_word, delta_bank = (
            Signal(Position(config)),
            Signal(signed(24)),
            Signal(6),
        )
        moved = Signal(Position(config))
        with m.Switch(level):
            with m.Case(WORD):
                m.d.comb += [
                    base.eq(bases["word"]),
                    delta_word.eq(Mux(select_wraps, d.word_word, 0)),
                    delta_bank.eq(Mux(select_wraps, d.word_bank, 0)),
                ]
            with m.Case(TAP):
                m.d.comb += [
                    base.eq(bases["tap"]),
                    delta_word.eq(Mux(phase_wraps, d.tap_wrap_word, d.tap_word)),
                    delta_bank.eq(Mux(phase_wraps, d.tap_wrap_bank, d.tap_bank)),
                ]
            with m.Case(TAP_ROW):
                m.d.comb += [
                    base.eq(bases["tap_row"]),
                    delta_word.eq(d.tap_row_word),
                    delta_bank.eq(d.tap_row_bank),
                ]
            with m.Case(GROUP):
                m.d.comb += [
                    base.eq(bases["group"]),
                    delta_word.eq(d.group_word),
                    delta_bank.eq(d.group_bank),
                ]
            with m.Case(COLUMN):
                m.d.comb += [
                    base.eq(bases["column"]),
                    delta_word.eq(d.column_word),
                    delta_bank.eq(d.column_bank),
                ]
            with m.Default():
                m.d.comb += [
                    base.eq(bases["row"]),
                    delta_word.eq(d.row_word),
                    delta_bank.eq(d.row_bank),
                ]
        bank_sum = Signal(7)
        carry = Signal()
        m.d.comb += [
            bank_sum.eq(base.bank + delta_bank),
            carry.eq(bank_sum >= lanes_split),
            moved.bank.eq(Mux(carry, bank_sum - lanes_split, bank_sum)),
            moved.word.eq(base.word + delta_word + carry),
        ]

        # Pace: the drain takes a known number of cycles, the room is reserved before.
        channels = Signal(bits_for(config.out_lanes))
        columns = Signal(bits_for(lanes_split))
        drain_rows = Signal(bits_for(config.out_lanes))
        drain_steps = Signal(bits_for(lanes_split * config.group_steps))
        drain_left = Signal(bits_for(lanes_split * config.group_steps))
        reserved = Signal(range(self._room + 1))
        q = config.results_per_cycle
        m.d.comb += [
            channels.eq(Mux(last_of["group"], tile.m_tail, config.out_lanes)),
            columns.eq(Mux(channel_mode, 1, Mux(last_of["column"], tile.column_tail, lanes_split))),
            drain_rows.eq(1 + sum(channels > row * q for row in range(1, config.group_steps))),
            drain_steps.eq(drain_rows * columns),
        ]
        fits = Signal()
        m.d.comb += fits.eq(~tile.last_c | (reserved + drain_steps <= self._room))
        running = Signal()
        go = Signal()
        m.d.comb += go.eq(running & (~group_last | ((drain_left == 0) & fits)))
        reserve = Signal.like(drain_steps)
        m.d.comb += reserve.eq(Mux(go & group_last & tile.last_c, drain_steps, 0))
        m.d.sync += reserved.eq(reserved + reserve - self.returned)
        with m.If(go & group_last):
            m.d.sync += drain_left.eq(drain_steps - 1)
        with m.Elif(drain_left != 0):
            m.d.sync += drain_left.eq(drain_left - 1)

        m.d.comb += [
            self.step.valid.eq(go),
            self.step.first.eq(group_first),
            self.step.last.eq(go & group_last),
            self.step.position.eq(bases["word"]),
            self.step.weight.eq(weight),
            self.step.select.eq(select),
            self.token.columns.eq(columns),
            self.token.channels.eq(channels),
            self.token.parameter_row.eq(parameter_row),
            self.token.first_c.eq(tile.first_c),
            self.token.last_c.eq(tile.last_c),
            self.token.tile_first.eq(bank_first),
            self.token.new_parameters.eq(parameters_first),
            self.token.level.eq(level - 1),
            self.computing.eq(go),
            self.waiting_drain.eq(running & ~go),
            self.room_free.eq(reserved == 0),
        ]

        self._edge_mask(m, tile, tap_row, q_tap, phase)

        weight_start = Mux(weight_half, config.weight_words, 0)
        parameter_rows = config.channel_groups * config.group_steps
        parameter_start = Mux(parameter_half, parameter_rows, 0)
        with m.If(go):
            m.d.sync += [bases["word"].eq(moved), steps_left.eq(steps_left - 1)]
            m.d.sync += [weight.eq(weight + 1), group_first.eq(0)]
            m.d.sync += select.eq(Mux((level == WORD) & ~select_wraps, select + 1, 0))
            with m.If(level >= TAP):
                m.d.sync += [
                    bases["tap"].eq(moved),
                    steps_left.eq(tile.c_steps - 1),
                    taps_left.eq(taps_left - 1),
                ]
            with m.If(level == TAP):
                m.d.sync += [
                    phase.eq(Mux(phase_wraps, next_phase - d.stride_w, next_phase)),
                    q_tap.eq(q_tap + d.dilation_q + phase_wraps),
                ]
            with m.If(level >= TAP_ROW):
                m.d.sync += [
                    bases["tap_row"].eq(moved),
                    taps_left.eq(d.kernel_w - 1),
                    tap_rows_left.eq(tap_rows_left - 1),
                    tap_row.eq(tap_row + d.dilation_h),
                    phase.eq(0),
                    q_tap.eq(q_column),
                ]
            with m.If(level >= GROUP):
                m.d.sync += [
                    bases["group"].eq(moved),
                    tap_rows_left.eq(d.kernel_h - 1),
                    groups_left.eq(groups_left - 1),
                    tap_row.eq(in_row),
                    group_first.eq(1),
                    bank_first.eq(0),
                    parameters_first.eq(0),
                    parameter_row.eq(parameter_row + config.group_steps),
                ]
            with m.If(level >= COLUMN):
                next_q = Signal.like(q_column)
                m.d.comb += next_q.eq(q_column + Mux(channel_mode, 1, lanes_split))
                m.d.sync += [
                    bases["column"].eq(moved),
                    groups_left.eq(tile.m_groups - 1),
                    columns_left.eq(columns_left - 1),
                    weight.eq(weight_start),
                    parameter_row.eq(parameter_start),
                    q_column.eq(next_q),
                    q_tap.eq(next_q),
                ]
            with m.If(level >= ROW):
                next_row = Signal.like(in_row)
                m.d.comb += next_row.eq(in_row + d.stride_h)
                m.d.sync += [
                    bases["row"].eq(moved),
                    columns_left.eq(tile.column_groups - 1),
                    rows_left.eq(rows_left - 1),
                    in_row.eq(next_row),
                    tap_row.eq(next_row),
                    q_column.eq(0),
                    q_tap.eq(0),
                ]

        start_word = Mux(input_half, config.input_words, 0)
        with m.FSM():
            with m.State("WAIT"):
                m.d.comb += [
                    self.waiting_load.eq(1),
                    self.idle.eq(~self.i.valid),
                    accept.eq(self.i.valid & (loaded_tiles != 0)),
                    self.i.ready.eq(accept),
                ]
                new = self.i.payload
                with m.If(accept):
                    m.d.sync += [
                        tile.eq(new),
                        weight_half.eq(weight_half ^ new.new_weights),
                        input_half.eq(input_half ^ new.new_input),
                        parameter_half.eq(parameter_half ^ new.new_parameters),
                        weights_held.eq(1),
                        input_held.eq(1),
                    ]
                    # The half that the tiles before have used is free: their last step was issued.
                    m.d.comb += [
                        self.release_weights.eq(new.new_weights & weights_held),
                        self.release_input.eq(new.new_input & input_held),
                    ]
                    m.next = "START"
            with m.State("START"):
                m.d.comb += self.waiting_load.eq(1)
                m.d.sync += [
                    rows_left.eq(tile.rows - 1),
                    columns_left.eq(tile.column_groups - 1),
                    groups_left.eq(tile.m_groups - 1),
                    tap_rows_left.eq(d.kernel_h - 1),
                    taps_left.eq(d.kernel_w - 1),
                    steps_left.eq(tile.c_steps - 1),
                    select.eq(0),
                    weight.eq(weight_start),
                    parameter_row.eq(parameter_start),
                    bank_first.eq(1),
                    parameters_first.eq(tile.new_parameters),
                    group_first.eq(1),
                    in_row.eq(tile.row),
                    tap_row.eq(tile.row),
                    q_column.eq(0),
                    q_tap.eq(0),
                    phase.eq(0),
                ]
                for name in names:
                    m.d.sync += [bases[name].bank.eq(0), bases[name].word.eq(start_word)]
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += running.eq(1)
                with m.If(go & (level == END)):
                    m.next = "WAIT"
        return m

    def _edge_mask(self, m: Module, tile, tap_row: Value, q_tap: Value, phase: Value) -> None:
        """Compare the step's row and columns with the tensor's edges, over two registers."""
        d = self.descriptor
        inside = Signal(reset_less=True)
        above = Signal(signed(COORDINATE + 1), reset_less=True)
        below = Signal(signed(COORDINATE + 1), reset_less=True)
        m.d.sync += [
            inside.eq((tap_row >= 0) & (tap_row < d.in_height)),
            above.eq(tile.low_q + (phase < d.low_p) - q_tap),
            below.eq(tile.high_q + (phase < d.high_p) - q_tap),
        ]
        for lane in range(self._config.split_lanes):
            m.d.sync += self.mask[lane].eq(inside & (above <= lane) & (below > lane))
