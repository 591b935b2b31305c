"""Takes finished groups of sums from the lanes, adds biases or stored sums, and requantises."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from haloconv.planner.config import EngineConfig
from haloconv.rtl.parameter_table import ParameterTable, ParameterWrite
from haloconv.rtl.requantizer import Requantizer
from haloconv.rtl.widths import DescriptorLayout, DrainToken, index_bits

__all__ = ["Drain", "OtherRow", "ResultRow"]


class ResultRow(data.StructLayout):
    """Up to Q results of one output pixel.

    ``bytes`` holds them packed, int8 or int32 little endian; ``count`` of them are valid. ``level``
    names the loop that advances afterwards: 0 drain step, 1 column, and on as in DrainToken.
    """

    def __init__(self, config: EngineConfig) -> None:
        q = config.results_per_cycle
        super().__init__({"bytes": data.ArrayLayout(8, 4 * q), "count": bits_for(q), "level": 3})


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
    """A shadow register takes all sums of a group at once and moves them out by columns, Q output
    channels a cycle, while the lanes work on the next group. The first input channel tile starts
    from the bias, later ones from the accumulator bank; only the last one is requantised.

    Timing: the first row of a group leaves :attr:`latency` cycles after ``load``; a row a cycle.
    The caller leaves room: a group takes columns * ceil(channels / Q) cycles, and nothing stalls.

    Resources: Pm * Pr shadow registers of 32 bits, Q adders, Q requantisers, the accumulator bank
    of psum_words words of 32 * Q bits, the parameter table.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    descriptor : In(DescriptorLayout)
    load : In(1), token : In(DrainToken), sums : In(ArrayLayout(ArrayLayout(signed(32), Pm), Pr))
        Take the sums of a group.
    parameter_write : In(ParameterWrite)
    release_parameters : Out(1)
        The parameters of the tile before are not needed any more.
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
    release_parameters: Signal
    valid: Signal
    row: data.View
    other: data.View

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._requantizers = [
            Requantizer(config.built_roundings) for _ in range(config.results_per_cycle)
        ]
        columns = data.ArrayLayout(signed(32), config.out_lanes)
        super().__init__(
            {
                "descriptor": In(DescriptorLayout()),
                "load": In(1),
                "token": In(DrainToken(config)),
                "sums": In(data.ArrayLayout(columns, config.split_lanes)),
                "parameter_write": In(ParameterWrite(config)),
                "release_parameters": Out(1),
                "valid": Out(1),
                "row": Out(ResultRow(config)),
                **({"other": In(OtherRow(config))} if "elementwise" in config.built_units else {}),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from ``load`` to the group's first result row."""
        return 3 + self._requantizers[0].latency

    def elaborate(self, platform) -> Module:
        m = Module()
        config, d = self._config, self.descriptor
        q, lanes_out, lanes_split = (
            config.results_per_cycle,
            config.out_lanes,
            config.split_lanes,
        )
        steps = config.group_steps
        elementwise = "elementwise" in config.built_units

        # The shadow register and the place in it.
        shadow = [
            [Signal(signed(32), reset_less=True, name=f"shadow_{r}_{k}") for k in range(lanes_out)]
            for r in range(lanes_split)
        ]
        token = Signal(DrainToken(config), reset_less=True)
        active = Signal()
        columns_left = Signal(bits_for(lanes_split))
        step = Signal(index_bits(steps))
        channels_left = Signal(bits_for(lanes_out))
        step_last, column_last = Signal(), Signal()
        parameter_row = Signal(token.parameter_row.shape())
        bank_row = Signal(index_bits(max(1, config.psum_words)))
        parameters_held = Signal()
        m.d.comb += [
            step_last.eq(channels_left <= q),
            column_last.eq(columns_left == 1),
        ]
        with m.If(active):
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
                    columns_left.eq(columns_left - 1),
                    parameter_row.eq(token.parameter_row),
                ]
                for r in range(lanes_split - 1):
                    m.d.sync += [shadow[r][k].eq(shadow[r + 1][k]) for k in range(lanes_out)]
                with m.If(column_last):
                    m.d.sync += active.eq(0)
        with m.If(self.load):
            m.d.sync += [
                active.eq(1),
                token.eq(self.token),
                step.eq(0),
                columns_left.eq(self.token.columns),
                channels_left.eq(self.token.channels),
                parameter_row.eq(self.token.parameter_row),
            ]
            with m.If(self.token.tile_first):
                m.d.sync += bank_row.eq(0)
            for r in range(lanes_split):
                m.d.sync += [shadow[r][k].eq(self.sums[r][k]) for k in range(lanes_out)]
            with m.If(self.token.new_parameters):
                m.d.sync += parameters_held.eq(1)
                m.d.comb += self.release_parameters.eq(parameters_held)

        # Stage 1: Q sums out of column 0; the bank and the table answer at the same time.
        m.submodules.table = table = ParameterTable(config)
        m.d.comb += [
            table.write.eq(self.parameter_write),
            table.read_row.eq(parameter_row),
        ]
        valid_1 = Signal()
        first_1 = Signal(reset_less=True)
        last_1 = Signal(reset_less=True)
        count_1 = Signal(bits_for(q), reset_less=True)
        level_1 = Signal(3, reset_less=True)
        bank_row_1 = Signal.like(bank_row, reset_less=True)
        m.d.sync += [
            valid_1.eq(active),
            first_1.eq(token.first_c),
            last_1.eq(token.last_c),
            count_1.eq(Mux(step_last, channels_left, q)),
            level_1.eq(Mux(~step_last, 0, Mux(~column_last, 1, token.level))),
            bank_row_1.eq(bank_row),
        ]
        stored: list[Value] = [C(0, signed(32))] * q
        bank_write = None
        if config.psum_words:
            m.submodules.bank = bank = Memory(
                shape=unsigned(32 * q), depth=config.psum_words, init=[]
            )
            bank_write, bank_read = bank.write_port(), bank.read_port()
            m.d.comb += bank_read.addr.eq(bank_row)
            stored = [bank_read.data.word_select(k, 32).as_signed() for k in range(q)]

        totals = []
        requantized = []
        for k in range(q):
            choices = [
                shadow[0][part * q + k] if part * q + k < lanes_out else C(0, signed(32))
                for part in range(steps)
            ]
            picked = Signal(signed(32), reset_less=True, name=f"picked_{k}")
            m.d.sync += picked.eq(Array(choices)[step] if steps > 1 else choices[0])
            parameters = table.data[k]
            # Stage 2: the start of the sum is added once, from the bias or from the bank.
            total = Signal(signed(32), reset_less=True, name=f"total_{k}")
            start = Signal(signed(32), name=f"start_{k}")
            with m.If(~first_1):
                m.d.comb += start.eq(stored[k])
            with m.Elif(d.has_bias):
                m.d.comb += start.eq(parameters.bias)
            m.d.sync += total.eq(picked + start)
            totals.append(total)
            multiplier = Signal(32, reset_less=True, name=f"multiplier_{k}")
            shift = Signal(signed(6), reset_less=True, name=f"shift_{k}")
            m.d.sync += [multiplier.eq(parameters.multiplier), shift.eq(parameters.shift)]
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
        m.d.sync += [valid_2.eq(valid_1), last_2.eq(last_1)]
        if bank_write is not None:
            bank_row_2 = Signal.like(bank_row, reset_less=True)
            m.d.sync += bank_row_2.eq(bank_row_1)
            m.d.comb += [
                bank_write.en.eq(valid_2 & ~last_2),
                bank_write.addr.eq(bank_row_2),
                bank_write.data.eq(Cat(*totals)),
            ]

        # The requantisers' latency, for what travels beside them.
        valid = valid_2 & last_2
        count, level = Signal.like(count_1, reset_less=True), Signal.like(level_1, reset_less=True)
        m.d.sync += [count.eq(count_1), level.eq(level_1)]
        if elementwise:
            valid = valid | self.other.valid
            count = Mux(self.other.valid, self.other.count, count)
            level = Mux(self.other.valid, Mux(self.other.last, 5, 0), level)
        for stage in range(self._requantizers[0].latency):
            next_valid = Signal(name=f"valid_r{stage}")
            next_count = Signal.like(count_1, reset_less=True, name=f"count_r{stage}")
            next_level = Signal.like(level_1, reset_less=True, name=f"level_r{stage}")
            m.d.sync += [next_valid.eq(valid), next_count.eq(count), next_level.eq(level)]
            valid, count, level = next_valid, next_count, next_level
        raw_bytes = Cat(*requantized)
        int8_bytes = Cat(value[:8] for value in requantized)
        m.d.comb += [
            self.valid.eq(valid),
            self.row.count.eq(count),
            self.row.level.eq(level),
            Value.cast(self.row.bytes).eq(Mux(d.raw, raw_bytes, int8_bytes)),
        ]
        return m
