"""Issues the operands of every multiply-accumulate of a tile, one step a cycle."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.planner.tile import MODES
from haloconv.planner.validate import check_int
from haloconv.rtl.edge_mask import EdgeMask, Reached
from haloconv.rtl.group_pace import GroupPace
from haloconv.rtl.loop_counter import counted, loop_counter
from haloconv.rtl.position_step import one_of, stepped
from haloconv.rtl.widths import (
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

    A group of sums is issued without a gap, but its last step may wait: for the drain of the
    group before, which takes a known number of cycles, and for room behind the requantisers.
    Beside serial requantisers its first step waits as well, until the lanes have let go of the sums
    of the group before. Nothing behind the walker ever stalls.

    Timing: a step a cycle; two cycles from the end of a tile to the first step of the next, if that
    was offered a cycle before and nothing has to wait. ``mask`` follows its step by two cycles.

    Resources: one position adder over six nested loops, each with a counter as wide as the buffers
    allow; :class:`EdgeMask`.

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
        While ``idle``: every result row reserved was returned.

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
        channel_mode, depthwise = Signal(), Signal()
        m.d.sync += [
            channel_mode.eq(d.mode == MODES.index("channel")),
            depthwise.eq(d.mode == MODES.index("depthwise")),
        ]

        # The tile at hand. While none is, the next one is looked at; it is taken once loaded.
        tile = Signal(ComputeTile(config), reset_less=True)
        tile_held = Signal()
        # A register for each state, as most of the walker waits for them.
        waiting, starting, running = Signal(init=1), Signal(), Signal()
        accept = Signal()
        go, advance = Signal(), Signal()
        loaded_tiles = Signal(range(8))
        weight_half, input_half, parameter_half = Signal(init=1), Signal(init=1), Signal(init=1)
        weights_held, input_held = Signal(), Signal()

        # The loops run a step ahead of the one that is issued: with ``advance`` what is ``ahead``
        # goes into registers, from which that step and the position after it come at once.
        ahead, reached = Signal(Reached()), Signal(Reached(), reset_less=True)
        m.d.comb += advance.eq(starting | go)
        m.d.sync += [
            loaded_tiles.eq(loaded_tiles + self.loaded - accept),
            tile_held.eq(self.i.valid & ((waiting & ~accept) | (go & reached.end))),
        ]
        with m.If(waiting | (go & reached.end)):
            m.d.sync += tile.eq(self.i.payload)
        inner: Value = C(1, 1)
        lasts: dict[str, Signal] = {}
        for name, trips, outer in (
            ("words", tile.c_steps, "tap"),
            ("taps", d.kernel_w, "tap_row"),
            ("tap_rows", d.kernel_h, "group"),
            ("groups", tile.m_groups, "column"),
            ("columns", tile.column_groups, "row"),
            ("rows", tile.rows, "end"),
        ):
            lasts[name] = last = Signal(name=f"last_{name}")
            load, enable = waiting | last, waiting | (advance & inner)
            m.d.comb += [
                last.eq(
                    loop_counter(
                        m, platform, name, len(trips), enable=enable, load=load, trips=trips
                    )
                ),
                # Flat, as the innermost loop's end comes to all of them in each cycle.
                ahead[outer].eq(Cat(lasts.values()).all()),
            ]
            inner = ahead[outer]
        with m.If(advance):
            m.d.sync += reached.eq(ahead)

        m.submodules.edges = edges = EdgeMask(config)
        m.d.comb += [
            edges.descriptor.eq(d),
            edges.tile.eq(tile),
            edges.channel_mode.eq(channel_mode),
            edges.restart.eq(waiting),
            edges.advance.eq(advance),
            edges.reached.eq(ahead),
            self.mask.eq(edges.mask),
        ]
        m.submodules.pace = pace = GroupPace(config, room=self._room)
        group_ends, group_first = Signal(), Signal(reset_less=True)
        m.d.comb += [
            group_ends.eq(go & reached.group),
            go.eq(running & (~group_first | pace.over) & (~reached.group | pace.ready)),
            pace.tile.eq(tile),
            pace.channel_mode.eq(channel_mode),
            pace.last_group.eq(lasts["groups"]),
            pace.last_column.eq(lasts["columns"]),
            pace.load.eq(advance),
            pace.begin.eq(starting | (group_ends & ~reached.end)),
            pace.issue.eq(group_ends),
            pace.returned.eq(self.returned),
        ]
        select_wraps = self._select(m, channel_mode, depthwise, ahead, waiting, advance)
        self._positions(
            m, platform, ahead, reached, starting, go, input_half, select_wraps, edges.phase_wraps
        )

        weight = Signal.like(self.step.weight, reset_less=True)
        weight_start = Signal.like(weight)
        parameter_row = Signal.like(self.token.parameter_row, reset_less=True)
        bank_first = Signal(reset_less=True)
        parameter_rows = config.channel_groups * config.group_steps
        columns_over = starting | reached.column
        m.d.comb += weight_start.eq(Mux(weight_half, config.weight_words, 0))
        with m.If(advance):
            m.d.sync += [
                weight.eq(counted(m, platform, "weight", weight, columns_over, ~weight_start)),
                group_first.eq(starting | reached.group),
            ]
        with m.If(starting | group_ends):
            m.d.sync += [
                bank_first.eq(starting),
                parameter_row.eq(
                    Mux(
                        columns_over,
                        Mux(parameter_half, parameter_rows, 0),
                        parameter_row + config.group_steps,
                    )
                ),
            ]
        m.d.comb += [
            self.step.valid.eq(go),
            self.step.first.eq(group_first),
            self.step.last.eq(group_ends),
            self.step.weight.eq(weight),
            self.token.columns.eq(pace.columns),
            self.token.channels.eq(pace.channels),
            self.token.parameter_row.eq(parameter_row),
            self.token.first_c.eq(tile.first_c),
            self.token.last_c.eq(tile.last_c),
            self.token.tile_first.eq(bank_first),
            self.token.new_parameters.eq(bank_first & tile.new_parameters),
            self.computing.eq(go),
            self.waiting_load.eq(~running),
            self.waiting_drain.eq(running & ~go),
            self.room_free.eq(pace.free),
        ]

        m.d.comb += [
            self.idle.eq(waiting & ~self.i.valid),
            accept.eq(waiting & self.i.valid & tile_held & (loaded_tiles != 0)),
            self.i.ready.eq(accept),
            # The half that the tiles before have used is free: their last step was issued.
            self.release_weights.eq(accept & tile.new_weights & weights_held),
            self.release_input.eq(accept & tile.new_input & input_held),
        ]
        ends = Signal()
        m.d.comb += ends.eq(go & reached.end)
        m.d.sync += [
            waiting.eq((waiting & ~accept) | ends),
            starting.eq(accept),
            running.eq(starting | (running & ~ends)),
        ]
        with m.If(accept):
            m.d.sync += [
                weight_half.eq(weight_half ^ tile.new_weights),
                input_half.eq(input_half ^ tile.new_input),
                parameter_half.eq(parameter_half ^ tile.new_parameters),
                weights_held.eq(1),
                input_held.eq(1),
            ]
        return m

    def _select(
        self,
        m: Module,
        channel_mode: Value,
        depthwise: Value,
        ahead: data.View,
        waiting: Value,
        advance: Value,
    ) -> Signal:
        """The part of the word to use; return whether the step ahead takes the last one."""
        config = self._config
        select = Signal.like(self.step.select, reset_less=True)
        limit = Signal.like(self.step.select, reset_less=True)
        wraps = Signal()
        m.d.comb += wraps.eq(select == limit)
        m.d.sync += limit.eq(
            Mux(
                channel_mode,
                config.word_steps - 1,
                Mux(depthwise, 0, config.word_bytes - 1),
            )
        )
        shown = Signal.like(select)
        m.d.comb += self.step.select.eq(shown)
        with m.If(advance):
            m.d.sync += [shown.eq(select), select.eq(select + 1)]
        with m.If(waiting | (advance & (ahead.tap | wraps))):
            m.d.sync += select.eq(0)
        return wraps

    def _positions(
        self,
        m: Module,
        platform,
        ahead: data.View,
        reached: data.View,
        starting: Value,
        go: Value,
        input_half: Value,
        select_wraps: Value,
        phase_wraps: Value,
    ) -> None:
        """The innermost loop that has not ended advances; those inside it start over from there."""
        config, d = self._config, self.descriptor
        # The loop that advances after the step ahead.
        along = {
            "word": ~ahead.tap,
            "tap": ahead.tap & ~ahead.tap_row,
            "tap_row": ahead.tap_row & ~ahead.group,
            "group": ahead.group & ~ahead.column,
            "column": ahead.column & ~ahead.row,
            "row": ahead.row,
        }
        conditions = along | {
            "word": along["word"] & select_wraps,
            "tap": along["tap"] & ~phase_wraps,
            "tap_wrap": along["tap"] & phase_wraps,
        }
        delta = one_of(
            *(
                (condition, Cat(d[f"{name}_bank"], d[f"{name}_word"]))
                for name, condition in conditions.items()
            )
        )
        step = Signal.like(delta, reset_less=True, name="step")
        level = Signal(3, reset_less=True)
        bases: dict[str, data.View] = {}
        choices: list[tuple[Value, Value]] = []
        for name, condition in along.items():
            bases[name] = Signal(Position(config), reset_less=True, name=f"at_{name}")
            chosen = Signal(name=f"along_{name}", reset_less=True)
            with m.If(starting | go):
                m.d.sync += chosen.eq(condition)
            if name != "word":
                choices.append((chosen, Value.cast(bases[name])))
        with m.If(starting | go):
            m.d.sync += [
                step.eq(delta),
                level.eq(Mux(ahead.end, 5, Mux(ahead.row, 4, Mux(ahead.column, 3, 2)))),
            ]

        # A step along the innermost loop starts from the step before, any other from a base.
        base, following = Signal(Position(config)), Signal(Position(config))
        m.d.comb += Value.cast(base).eq(one_of(*choices))
        place = bases["word"]
        moved = stepped(m, platform, config, "moved", step[:6], step[6:], reached.tap, base, place)
        m.d.comb += following.eq(moved)
        with m.If(starting):
            m.d.comb += [
                following.bank.eq(0),
                following.word.eq(Mux(input_half, config.input_words, 0)),
            ]
        for name, held in bases.items():
            moves = go if name == "word" else go & reached[name]
            with m.If(starting | moves):
                m.d.sync += held.eq(following)
        m.d.comb += [self.step.position.eq(place), self.token.level.eq(level)]
