"""Takes finished groups of sums from the lanes, adds biases or stored sums, and requantises."""

from collections.abc import Sequence

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2, exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import row_cycles
from haloconv.planner.tile import MODES
from haloconv.rtl.block_memory import block_memory
from haloconv.rtl.fused_sum import masked_sum, selected_sum
from haloconv.rtl.mac_lanes import LaneSums, sum_shape
from haloconv.rtl.parameter_table import ParameterTable, ParameterWrite
from haloconv.rtl.requantizer import Requantizer
from haloconv.rtl.serial_requantizer import SerialRequantizer
from haloconv.rtl.widths import DescriptorLayout, DrainToken, index_bits

__all__ = ["Drain", "OtherRow", "ResultRow", "row_pieces"]


class ResultRow(data.StructLayout):
    """Up to Q results of one output pixel.

    ``bytes`` holds them packed, int8 or int32 little endian; ``count`` of them are valid. ``level``
    names the loop that advances afterwards: 0 drain step, 1 column, and on as in DrainToken.
    ``last_piece`` is the number of the last beat's worth of bytes, which the writer wants at once.
    """

    def __init__(self, config: EngineConfig) -> None:
        q = config.results_per_cycle
        super().__init__(
            {
                "bytes": data.ArrayLayout(8, 4 * q),
                "count": bits_for(q),
                "level": 3,
                "last_piece": ceil_log2(row_pieces(config)),
            }
        )


def row_pieces(config: EngineConfig) -> int:
    """Return how many beats the most bytes of a row are worth."""
    return -(-4 * config.results_per_cycle // config.bus_bytes)


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
        q, lanes_out, lanes_split = (
            config.results_per_cycle,
            config.out_lanes,
            config.split_lanes,
        )
        elementwise = "elementwise" in config.built_units
        serial = self._pace > 1

        # The place in the group at hand.
        token = Signal(DrainToken(config), reset_less=True)
        active = Signal()
        columns_left = Signal(bits_for(lanes_split), reset_less=True)
        column = Signal(index_bits(lanes_split), reset_less=True)
        step = Signal(index_bits(config.group_steps), reset_less=True)
        channels_left = Signal(bits_for(lanes_out), reset_less=True)
        step_last, column_last = Signal(), Signal()
        parameter_row = Signal(token.parameter_row.shape(), reset_less=True)
        bank_row = Signal(index_bits(max(1, config.psum_words)), reset_less=True)
        parameters_held = Signal()
        release = Signal()
        # A row takes ``row_cycles``: it begins in the first of them and is over in the last.
        begins, ends = Signal(), Signal()
        if serial:
            wait = Signal(range(self._pace))
            with m.If(active):
                m.d.sync += wait.eq(Mux(ends, 0, wait + 1))
            with m.If(self.load):
                m.d.sync += wait.eq(0)
            m.d.comb += [begins.eq(active & (wait == 0)), ends.eq(wait == self._pace - 1)]
        else:
            m.d.comb += [begins.eq(active), ends.eq(1)]
        m.d.comb += [
            # Said outright where it is so, as synthesis does not find out.
            step_last.eq(1 if config.group_steps == 1 else channels_left <= q),
            column_last.eq(columns_left == 1),
        ]
        with m.If(active & ends):
            m.d.sync += [
                step.eq(step + 1),
                channels_left.eq(channels_left - q),
                parameter_row.eq(parameter_row + 1),
                bank_row.eq(bank_row + 1),
            ]
            with m.If(step_last):
                m.d.sync += [
                    step.eq(0),
                    channels_left.eq(token.channels),
                    column.eq(column + 1),
                    columns_left.eq(columns_left - 1),
                    parameter_row.eq(token.parameter_row),
                ]
                with m.If(column_last):
                    m.d.sync += active.eq(0)
        with m.If(self.load):
            m.d.sync += [
                active.eq(1),
                token.eq(self.token),
                step.eq(0),
                column.eq(0),
                columns_left.eq(self.token.columns),
                channels_left.eq(self.token.channels),
                parameter_row.eq(self.token.parameter_row),
            ]
            with m.If(self.token.tile_first):
                m.d.sync += bank_row.eq(0)
            with m.If(self.token.new_parameters):
                m.d.sync += parameters_held.eq(1)
                m.d.comb += release.eq(parameters_held)

        # Stages 1 and on: Q sums, or columns, through the tree. Bank and table are asked a cycle
        # before they are needed.
        channel_mode = Signal()
        m.d.sync += channel_mode.eq(d.mode == MODES.index("channel"))
        if serial:
            # The lanes keep their sums: what comes next in a column moves to its first lanes.
            for r in range(lanes_split):
                here = begins & (channel_mode | (column == r))
                m.d.comb += [
                    self.shift[r].eq(here),
                    self.clear[r].eq(begins & step_last & (column_last | (column == r))),
                ]
        picked = self._tree(m, platform, channel_mode, column, step, active & step_last & ends)
        beside = {
            "first": token.first_c,
            "last": token.last_c,
            "count": Mux(step_last, channels_left, q),
            "level": Mux(~step_last, 0, Mux(~column_last, 1, token.level)),
        }
        late = self.levels - 1
        beside = {name: _late(m, name, value, late) for name, value in beside.items()}
        asked = _late(m, "active", begins, late, reset_less=False)
        parameter_row = _late(m, "parameter_row", parameter_row, late)
        bank_row = _late(m, "bank_row", bank_row, late)
        m.d.comb += self.release_parameters.eq(_late(m, "release", release, late, reset_less=False))

        m.submodules.table = table = ParameterTable(config)
        m.d.comb += [
            table.write.eq(self.parameter_write),
            table.read_row.eq(parameter_row),
            table.has_bias.eq(d.has_bias if config.psum_words else 1),
        ]
        valid_1 = _late(m, "valid", asked, 1, reset_less=False)
        first_1, last_1, count_1, level_1 = (
            _late(m, f"{name}_end", beside[name], 1) for name in ("first", "last", "count", "level")
        )
        bank_row_1 = _late(m, "bank_row_end", bank_row, 1)
        stored: list[Value] = [C(0, signed(32))] * q
        bank_write = None
        if config.psum_words:
            # No sum is read while it is written, as the caller leaves a gap between tiles.
            m.submodules.bank = bank = block_memory(32 * q, config.psum_words)
            bank_write, bank_read = bank.write_port(), bank.read_port(domain="comb")
            m.d.comb += bank_read.addr.eq(bank_row)
            # Attribute and register together are what Yosys takes for a synchronous read port.
            read = Signal(32 * q, reset_less=True, name="bank_read")
            m.d.sync += read.eq(bank_read.data)
            stored = [read.word_select(k, 32).as_signed() for k in range(q)]

        totals = []
        requantized = []
        for k in range(q):
            parameters = table.data[k]
            # The start of the sum is added once, from the bias or from the bank.
            start = parameters.bias
            total = Signal(signed(32), reset_less=True, name=f"total_{k}")
            if config.psum_words:
                started = selected_sum(
                    m, platform, f"started_{k}", 32, picked[k], first_1, start, stored[k]
                )
            else:
                started = masked_sum(m, platform, f"started_{k}", 32, picked[k], d.has_bias, start)
            m.d.sync += total.eq(started)
            totals.append(total)
            multiplier, shift = parameters.multiplier, parameters.shift
            if not serial:
                multiplier = _late(m, f"multiplier_{k}", multiplier, 1)
                shift = _late(m, f"shift_{k}", shift, 1).as_signed()
            m.submodules[f"requantizer_{k}"] = unit = self._requantizers[k]
            m.d.comb += [
                unit.i_sum.eq(total),
                unit.i_multiplier.eq(multiplier),
                unit.i_shift.eq(shift),
            ]
            if elementwise:
                with m.If(self.other.valid):
                    m.d.comb += [
                        unit.i_sum.eq(self.other.sums[k]),
                        unit.i_multiplier.eq(self.other.multiplier),
                        unit.i_shift.eq(self.other.shift),
                    ]
            m.d.comb += [
                unit.rounding.eq(d.rounding),
                unit.raw.eq(d.raw),
                unit.zero_point.eq(d.out_zero_point),
                unit.clamp_low.eq(d.clamp_low),
                unit.clamp_high.eq(d.clamp_high),
            ]
            requantized.append(unit.o)
        valid_2, last_2 = Signal(), Signal(reset_less=True)
        stores = Signal()  # to the bank; a register of its own, as its block RAMs stand far apart
        m.d.sync += [valid_2.eq(valid_1), last_2.eq(last_1), stores.eq(valid_1 & ~last_1)]
        if bank_write is not None:
            bank_row_2 = _late(m, "bank_row_write", bank_row_1, 1)
            m.d.comb += [
                bank_write.en.eq(stores),
                bank_write.addr.eq(bank_row_2),
                bank_write.data.eq(Cat(*totals)),
            ]

        # The requantisers' latency, for what travels beside them.
        valid: Value = valid_2 & last_2
        count, level = _late(m, "count_total", count_1, 1), _late(m, "level_total", level_1, 1)
        if elementwise:
            valid = valid | self.other.valid
            count = Mux(self.other.valid, self.other.count, count)
            level = Mux(self.other.valid, Mux(self.other.last, 5, 0), level)
        if serial:
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
        raw_bytes = Cat(*requantized)
        # Bytes beyond ``count`` may be anything: no gates for them.
        int8_bytes = Cat(Cat(value[:8] for value in requantized), raw_bytes[8 * q :])
        last_byte = Mux(d.raw, Cat(C(0, 2), count), count) - 1
        m.d.comb += [
            self.valid.eq(valid),
            self.row.count.eq(count),
            self.row.last_piece.eq(last_byte[exact_log2(config.bus_bytes) :]),
            self.row.level.eq(level),
            Value.cast(self.row.bytes).eq(Mux(d.raw, raw_bytes, int8_bytes)),
        ]
        return m

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
