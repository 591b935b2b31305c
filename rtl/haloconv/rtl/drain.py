"""Takes finished groups of sums from the lanes, adds biases or stored sums, and requantises."""

from collections.abc import Sequence

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import row_cycles
from haloconv.planner.tile import MODES
from haloconv.rtl.block_memory import block_memory
from haloconv.rtl.fused_sum import masked_sum, selected_sum
from haloconv.rtl.mac_lanes import LaneSums, sum_shape
from haloconv.rtl.parameter_table import ParameterTable, ParameterWrite
from haloconv.rtl.requantizer import Requantizer
from haloconv.rtl.serial_requantizer import SerialRequantizer
from haloconv.rtl.widths import DescriptorLayout, DrainToken, ResultRow, index_bits

__all__ = ["Drain", "OtherRow"]


def _late(m: Module, name: str, value: Value, cycles: int, *, reset_less: bool = True) -> Value:
    """``value`` as it was ``cycles`` ago."""
    for cycle in range(cycles):
        held = Signal(len(value), name=f"{name}_late_{cycle}", reset_less=reset_less)
        m.d.sync += held.eq(value)
        value = held
    return value


class OtherRow(data.StructLayout):
    """Sums of an elementwise row with their scale, as they enter the requantisers."""

    def __init__(self, config: EngineConfig) -> None:
        q = config.results_per_cycle
        super().__init__(
            {
                "valid": 1,
                "sums": data.ArrayLayout(signed(32), q),
                "count": bits_for(q),
                "last": 1,
                "multiplier": 32,
                "shift": signed(6),
            }
        )


class _Place:
    """Where the drain is in the group at hand.

    Parameters
    ----------
    config : EngineConfig

    Attributes
    ----------
    token : DrainToken
        Of the group.
    active, begins, ends : Signal
        A row is under way; this is its first, its last cycle.
    column, step, channels_left : Signal
        The row's column, its step of Q channels, and channels from there on.
    step_last, column_last : Signal
        The column ends, the group has no other.
    parameter_row, bank_row : Signal
        Where bias and scale, and the stored sums, of the row are.
    release : Signal
        The parameters of the tile before are not needed any more.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.token = Signal(DrainToken(config), reset_less=True)
        self.active, self.begins, self.ends = Signal(), Signal(), Signal()
        self.column = Signal(index_bits(config.split_lanes), reset_less=True)
        self.step = Signal(index_bits(config.group_steps), reset_less=True)
        self.channels_left = Signal(bits_for(config.out_lanes), reset_less=True)
        self.step_last, self.column_last = Signal(), Signal()
        self.parameter_row = Signal(self.token.parameter_row.shape(), reset_less=True)
        self.bank_row = Signal(index_bits(max(1, config.psum_words)), reset_less=True)
        self.release = Signal()

    def beside(self, config: EngineConfig) -> dict[str, Value]:
        """What goes beside the row's sums: first and last input channel tile, count and level."""
        end = Mux(self.column_last, self.token.level, 1)
        return {
            "first": self.token.first_c,
            "last": self.token.last_c,
            "count": Mux(self.step_last, self.channels_left, config.results_per_cycle),
            "level": Mux(self.step_last, end, 0),
        }


class Drain(wiring.Component):
    """Takes all sums of a group at once into a shadow register and gives them out, Q output
    channels a cycle, while the lanes work on the next group: column by column in the row modes, the
    sum of all columns in channel mode. The first input channel tile starts from the bias, later
    ones from the accumulator bank; only the last one is requantised.

    One tree of adders does both, without a multiplexer: its first level lets one column of a pair
    through or both, and those behind it clear what they do not want::

        shadow 0 --------- + -> register -- + -> register -- + start -> requantiser
        shadow 1 -> mask --'   (cleared) ---'

    The second column of a pair is masked while it is the turn of the first, which is cleared once
    it was taken. Beside serial requantisers there is no shadow register, and the next group has to
    wait: the lanes keep the sums, and are told to shift them, and to clear a column that was taken.

    Timing: the first row of a group leaves :attr:`latency` cycles after ``load``; a row a cycle,
    with serial requantisers one in 32 cycles. The caller leaves room: a group takes columns *
    ceil(channels / Q) rows, and nothing stalls.

    Resources: Pm * Pr shadow registers (none beside serial requantisers), Q trees of Pr sums, Q
    adders of 32 bits, Q requantisers, the accumulator bank of psum_words words of 32 * Q bits, the
    parameter table.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    descriptor : In(DescriptorLayout)
    load : In(1), token : In(DrainToken), sums : In(LaneSums)
        Take the sums of a group.
    parameter_write : In(ParameterWrite)
    shift, clear : Out(Pr)
        With serial requantisers: to the lanes.
    release_parameters : Out(1)
        The parameters of the tile before are not needed any more; ``release_latency`` cycles after
        the load of the first group that does without.
    valid : Out(1), row : Out(ResultRow)
    other : In(OtherRow)
        With the unit "elementwise": sums that the lanes did not make. They and the lanes' sums
        never come in the same layer.
    """

    descriptor: data.View
    load: Signal
    token: data.View
    sums: data.View
    parameter_write: data.View
    shift: Signal
    clear: Signal
    release_parameters: Signal
    valid: Signal
    row: data.View
    other: data.View

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._pace = row_cycles(config)
        self._serial: list[SerialRequantizer] = []
        self._requantizers: Sequence[SerialRequantizer | Requantizer]
        lanes, roundings = range(config.results_per_cycle), config.built_roundings
        if self._pace > 1:
            self._requantizers = self._serial = [SerialRequantizer(roundings) for _ in lanes]
        else:
            self._requantizers = [Requantizer(roundings) for _ in lanes]
        super().__init__(
            {
                "descriptor": In(DescriptorLayout()),
                "load": In(1),
                "token": In(DrainToken(config)),
                "sums": In(LaneSums(config)),
                "parameter_write": In(ParameterWrite(config)),
                "release_parameters": Out(1),
                **(
                    {"shift": Out(config.split_lanes), "clear": Out(config.split_lanes)}
                    if self._pace > 1
                    else {}
                ),
                "valid": Out(1),
                "row": Out(ResultRow(config)),
                **({"other": In(OtherRow(config))} if "elementwise" in config.built_units else {}),
            }
        )

    @property
    def levels(self) -> int:
        """Registers of the tree."""
        return max(1, (self._config.split_lanes - 1).bit_length())

    @property
    def release_latency(self) -> int:
        """Cycles from ``load`` to ``release_parameters``: the table is read with the tree's end."""
        return self.levels - 1

    @property
    def latency(self) -> int:
        """Cycles from ``load`` to the group's first result row: the sums in their register
        (the shadow, or beside serial requantisers the lanes' own), tree, start, result."""
        return 1 + self.levels + 1 + self._requantizers[0].latency

    def elaborate(self, platform) -> Module:
        m = Module()
        config, d = self._config, self.descriptor
        place = self._place(m)

        # Stages 1 and on: Q sums, or columns, through the tree. Bank and table are asked a cycle
        # before they are needed.
        channel_mode = Signal()
        m.d.sync += channel_mode.eq(d.mode == MODES.index("channel"))
        if self._pace > 1:
            # The lanes keep their sums: what comes next in a column moves to its first lanes.
            for r in range(config.split_lanes):
                mine = place.column == r
                clear = place.step_last & (place.column_last | mine)
                m.d.comb += [
                    self.shift[r].eq(place.begins & (channel_mode | mine)),
                    self.clear[r].eq(place.begins & clear),
                ]
        taken = place.active & place.step_last & place.ends
        picked = self._tree(m, platform, channel_mode, place.column, place.step, taken)
        late = self.levels - 1
        release = _late(m, "release", place.release, late, reset_less=False)
        m.d.comb += self.release_parameters.eq(release)
        asked = _late(m, "active", place.begins, late, reset_less=False)
        bank_row = _late(m, "bank_row", place.bank_row, late)

        m.submodules.table = table = ParameterTable(config)
        m.d.comb += [
            table.write.eq(self.parameter_write),
            table.read_row.eq(_late(m, "parameter_row", place.parameter_row, late)),
            table.has_bias.eq(d.has_bias if config.psum_words else 1),
        ]
        first, last, count, level = (
            _late(m, f"{name}_end", _late(m, name, value, late), 1)
            for name, value in place.beside(config).items()
        )
        valid = _late(m, "valid", asked, 1, reset_less=False)
        totals = self._totals(m, platform, table, picked, first, bank_row, valid & ~last)

        # A stage further, at the requantisers.
        valid_total, last_total = Signal(), Signal(reset_less=True)
        m.d.sync += [valid_total.eq(valid), last_total.eq(last)]
        count, level = _late(m, "count_total", count, 1), _late(m, "level_total", level, 1)
        results = self._requantize(m, table, totals)
        self._give_out(m, results, valid_total & last_total, count, level)
        return m

    def _place(self, m: Module) -> _Place:
        """The place in the group at hand, which moves on a step a row."""
        config = self._config
        q = config.results_per_cycle
        at = _Place(config)
        channels_left = at.channels_left
        columns_left = Signal(bits_for(config.split_lanes), reset_less=True)
        parameters_held = Signal()
        # A row takes ``row_cycles``: it begins in the first of them and is over in the last.
        if self._pace > 1:
            wait = Signal(range(self._pace))
            with m.If(at.active):
                m.d.sync += wait.eq(Mux(at.ends, 0, wait + 1))
            with m.If(self.load):
                m.d.sync += wait.eq(0)
            m.d.comb += [
                at.begins.eq(at.active & (wait == 0)),
                at.ends.eq(wait == self._pace - 1),
            ]
        else:
            m.d.comb += [at.begins.eq(at.active), at.ends.eq(1)]
        m.d.comb += [
            # Said outright where it is so, as synthesis does not find out.
            at.step_last.eq(1 if config.group_steps == 1 else channels_left <= q),
            at.column_last.eq(columns_left == 1),
        ]
        with m.If(at.active & at.ends):
            m.d.sync += [
                at.step.eq(at.step + 1),
                channels_left.eq(channels_left - q),
                at.parameter_row.eq(at.parameter_row + 1),
                at.bank_row.eq(at.bank_row + 1),
            ]
            with m.If(at.step_last):
                m.d.sync += [
                    at.step.eq(0),
                    channels_left.eq(at.token.channels),
                    at.column.eq(at.column + 1),
                    columns_left.eq(columns_left - 1),
                    at.parameter_row.eq(at.token.parameter_row),
                ]
                with m.If(at.column_last):
                    m.d.sync += at.active.eq(0)
        with m.If(self.load):
            m.d.sync += [
                at.active.eq(1),
                at.token.eq(self.token),
                at.step.eq(0),
                at.column.eq(0),
                columns_left.eq(self.token.columns),
                channels_left.eq(self.token.channels),
                at.parameter_row.eq(self.token.parameter_row),
            ]
            with m.If(self.token.tile_first):
                m.d.sync += at.bank_row.eq(0)
            with m.If(self.token.new_parameters):
                m.d.sync += parameters_held.eq(1)
                m.d.comb += at.release.eq(parameters_held)
        return at

    def _totals(
        self,
        m: Module,
        platform: object,
        table: ParameterTable,
        picked: list[Value],
        first: Value,
        bank_row: Value,
        stores: Value,
    ) -> list[Signal]:
        """Add to each sum its start, once, from the bias or from the bank; store it there or not.

        ``bank_row`` comes a cycle before the others.
        """
        config, d = self._config, self.descriptor
        q = config.results_per_cycle
        totals = [Signal(signed(32), reset_less=True, name=f"total_{k}") for k in range(q)]
        stored: list[Value] = [C(0, signed(32))] * q
        if config.psum_words:
            # No sum is read while it is written, as the caller leaves a gap between tiles.
            m.submodules.bank = bank = block_memory(32 * q, config.psum_words)
            write, asked = bank.write_port(), bank.read_port(domain="comb")
            # Attribute and register together are what Yosys takes for a synchronous read port.
            read = Signal(32 * q, reset_less=True, name="bank_read")
            # A register of its own, as the bank's block RAMs stand far apart.
            storing = Signal()
            m.d.sync += [read.eq(asked.data), storing.eq(stores)]
            m.d.comb += [
                asked.addr.eq(bank_row),
                write.en.eq(storing),
                write.addr.eq(_late(m, "bank_row_write", bank_row, 2)),
                write.data.eq(Cat(*totals)),
            ]
            stored = [read.word_select(k, 32).as_signed() for k in range(q)]
        for k, total in enumerate(totals):
            bias, name = table.data[k].bias, f"started_{k}"
            if config.psum_words:
                started = selected_sum(m, platform, name, 32, picked[k], first, bias, stored[k])
            else:
                started = masked_sum(m, platform, name, 32, picked[k], d.has_bias, bias)
            m.d.sync += total.eq(started)
        return totals

    def _requantize(self, m: Module, table: ParameterTable, totals: list[Signal]) -> list[Value]:
        """The results of the lanes' sums, or of others."""
        d = self.descriptor
        for k, unit in enumerate(self._requantizers):
            multiplier, shift = table.data[k].multiplier, table.data[k].shift
            if not self._serial:
                multiplier = _late(m, f"multiplier_{k}", multiplier, 1)
                shift = _late(m, f"shift_{k}", shift, 1).as_signed()
            m.submodules[f"requantizer_{k}"] = unit
            m.d.comb += [
                unit.i_sum.eq(totals[k]),
                unit.i_multiplier.eq(multiplier),
                unit.i_shift.eq(shift),
                unit.rounding.eq(d.rounding),
                unit.raw.eq(d.raw),
                unit.zero_point.eq(d.out_zero_point),
                unit.clamp_low.eq(d.clamp_low),
                unit.clamp_high.eq(d.clamp_high),
            ]
            if "elementwise" in self._config.built_units:
                with m.If(self.other.valid):
                    m.d.comb += [
                        unit.i_sum.eq(self.other.sums[k]),
                        unit.i_multiplier.eq(self.other.multiplier),
                        unit.i_shift.eq(self.other.shift),
                    ]
        return [unit.o for unit in self._requantizers]

    def _give_out(
        self, m: Module, results: list[Value], valid: Value, count: Value, level: Value
    ) -> None:
        """Give out rows, with what has travelled beside the requantisers for their latency."""
        config, d = self._config, self.descriptor
        q = config.results_per_cycle
        if "elementwise" in config.built_units:
            valid = valid | self.other.valid
            count = Mux(self.other.valid, self.other.count, count)
            level = Mux(self.other.valid, Mux(self.other.last, 5, 0), level)
        if self._serial:
            # One at a time; the table still has its row.
            count, level = self._held_until_done(m, valid, count, level)
            valid = self._serial[0].done
        else:
            latency = self._requantizers[0].latency
            valid = _late(m, "valid_result", valid, latency, reset_less=False)
            count, level = (
                _late(m, name, value, latency)
                for name, value in (("count_result", count), ("level_result", level))
            )
        raw_bytes = Cat(*results)
        # Bytes beyond ``count`` may be anything: no gates for them.
        int8_bytes = Cat(Cat(value[:8] for value in results), raw_bytes[8 * q :])
        last_byte = Mux(d.raw, Cat(C(0, 2), count), count) - 1
        m.d.comb += [
            self.valid.eq(valid),
            self.row.count.eq(count),
            self.row.last_piece.eq(last_byte[exact_log2(config.bus_bytes) :]),
            self.row.level.eq(level),
            Value.cast(self.row.bytes).eq(Mux(d.raw, raw_bytes, int8_bytes)),
        ]

    def _held_until_done(
        self, m: Module, start: Value, count: Value, level: Value
    ) -> tuple[Value, Value]:
        """Start the serial requantisers; return what they will be done with."""
        held = [Signal(len(value), reset_less=True, name="held") for value in (count, level)]
        with m.If(start):
            m.d.sync += [held[0].eq(count), held[1].eq(level)]
        for unit in self._serial:
            m.d.comb += unit.start.eq(start)
        return held[0], held[1]

    def _shadow(self, m: Module, column: Value, taken: Value) -> list[list[Value]]:
        """Registers of all sums of a group, by column."""
        lanes_out, lanes_split = self._config.out_lanes, self._config.split_lanes
        shape = sum_shape(self._config)
        shadow: list[list[Value]] = [
            [Signal(shape, reset_less=True, name=f"shadow_{r}_{k}") for k in range(lanes_out)]
            for r in range(lanes_split)
        ]
        with m.If(self.load):
            for r in range(lanes_split):
                m.d.sync += [shadow[r][k].eq(self.sums[r][k]) for k in range(lanes_out)]
        # In channel mode that is the end of the group, and does no harm.
        with m.Elif(taken):
            for r in range(0, lanes_split - 1, 2):
                with m.If(column == r):
                    m.d.sync += [shadow[r][k].eq(0) for k in range(lanes_out)]
        return shadow

    def _tree(
        self,
        m: Module,
        platform: object,
        channel_mode: Value,
        column: Value,
        step: Value,
        taken: Value,
    ) -> list[Value]:
        """Return for Q channels the sum of all columns in channel mode, of one in the others.

        ``taken`` is high in the last cycle of a column.
        """
        config = self._config
        q, lanes_out, lanes_split = (
            config.results_per_cycle,
            config.out_lanes,
            config.split_lanes,
        )
        shape = sum_shape(config)
        serial = self._pace > 1
        if serial:
            shadow = [[self.sums[r][k] for k in range(q)] for r in range(lanes_split)]
        else:
            shadow = self._shadow(m, column, taken)

        picked = []
        seconds = channel_mode | column[0]
        for k in range(q):
            # Column by column, of the steps of its channels one.
            terms: list[Value] = []
            for r in range(lanes_split):
                choices = [
                    shadow[r][part * q + k] if part * q + k < lanes_out else C(0, shape)
                    for part in range(1 if serial else config.group_steps)
                ]
                terms.append(Array(choices)[step] if len(choices) > 1 else choices[0])
            for level in range(self.levels):
                width = min(32, shape.width + level + 1)
                sums: list[Value] = []
                for pair in range(0, len(terms), 2):
                    name = f"sum_{level}_{pair // 2}_{k}"
                    total = Signal(signed(width), reset_less=True, name=f"{name}_held")
                    if pair + 1 == len(terms):
                        m.d.sync += total.eq(terms[pair])
                    elif level == 0:
                        m.d.sync += total.eq(
                            masked_sum(
                                m, platform, name, width, terms[pair], seconds, terms[pair + 1]
                            )
                        )
                    else:
                        m.d.sync += total.eq(terms[pair] + terms[pair + 1])
                    if level == 0 and lanes_split > 2:
                        with m.If(~channel_mode & (column[1:] != pair // 2)):
                            m.d.sync += total.eq(0)
                    sums.append(total)
                terms = sums
            picked.append(terms[0])
        return picked
