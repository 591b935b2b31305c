"""Gives each lane its input: by mode, with the edge mask applied."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.rtl.halo_buffer import halo_latency, halo_shares
from haloconv.rtl.widths import Position, index_bits

__all__ = ["OperandSelect"]


class OperandSelect(wiring.Component):
    """Reads the halo buffer, aligns its memories with the lanes, and selects channels.

    Channel mode: lane (m, r) takes channel r of part ``select`` of the first bank's word. Row mode:
    channel ``select`` of the word of bank + r. Depthwise: channel m of the word of bank + r. Where
    the mask is low the operand is zero.

    Each mode has a path of its own, as only depthwise layers need every byte: row mode chooses a
    byte of each memory before it aligns them, channel mode the word of one memory. The paths not in
    use are held at zero by their registers' reset and meet in the LUTs of the last turn. Paths that
    are shorter are read later, as an address is narrower than what it reads. Where a copy of the
    halo buffer is one memory, depthwise layers take its word as it comes.

    Timing: latency :attr:`latency` beyond the halo buffer's, from ``position`` to ``operands``, a
    step a cycle. ``mask`` comes :attr:`mask_latency` cycles before its operands. The modes hold
    while steps are under way.

    Resources, in bits of LUTs: 9 * Pm * Pr with the last turn; for each further turn of the N
    memories of a copy another 9 * word_bytes * Pr; for row mode a byte multiplexer over each word
    and log2 N turns of 9 * Pr; for channel mode a choice of 9 * Pr among the words of each lane's
    own copy. The mask uses the registers' reset.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    position : In(Position), select : In
        Of a step.
    mask : In(Pr)
    channel_mode, depthwise : In(1)
    read_position : Out(Position), words : In
        To and from the halo buffer.
    operands : Out(ArrayLayout(ArrayLayout(signed(9), Pr), Pm))
    """

    position: data.View
    select: Signal
    mask: Signal
    channel_mode: Signal
    depthwise: Signal
    read_position: data.View
    words: data.View
    operands: data.View

    mask_latency = 2
    """Cycles from ``mask`` to ``operands``."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        word = data.ArrayLayout(signed(9), config.word_bytes)
        row = data.ArrayLayout(signed(9), config.split_lanes)
        shares = halo_shares(config)
        copy = data.ArrayLayout(word, config.split_lanes // shares)
        super().__init__(
            {
                "position": In(Position(config)),
                "select": In(index_bits(config.word_bytes)),
                "mask": In(config.split_lanes),
                "channel_mode": In(1),
                "depthwise": In(1),
                "read_position": Out(Position(config)),
                "words": In(data.ArrayLayout(copy, shares)),
                "operands": Out(data.ArrayLayout(row, config.out_lanes)),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from ``position`` to ``operands``, without those of the halo buffer."""
        return 2 + (self._config.split_lanes - 1).bit_length()

    @property
    def _turns(self) -> int:
        """Two-way turns that align the memories of a copy of the halo buffer."""
        memories = self._config.split_lanes // halo_shares(self._config)
        return (memories - 1).bit_length()

    @property
    def _word_stages(self) -> int:
        """Registers of whole words: the last turn waits for the operand register, the others go in
        pairs. None where there is nothing to turn: the operand register chooses the path."""
        return max(1, self._turns // 2) if self._turns else 0

    @property
    def waits(self) -> dict[str, int]:
        """Cycles from ``position`` to ``read_position`` in each mode: what its path leaves of the
        latency behind the memories."""
        row = self.latency - (self._turns + 2)
        return {
            "channel": self.latency - 3 if self._turns else row,
            "row": row,
            "depthwise": self.latency - (self._word_stages + 1),
        }

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        shares = halo_shares(config)
        memories = config.split_lanes // shares
        turns, word_stages, waits = self._turns, self._word_stages, self.waits

        # The modes drive the resets of wide registers.
        channel_mode, depthwise, not_depthwise = Signal(), Signal(), Signal()
        m.d.sync += [
            channel_mode.eq(self.channel_mode),
            depthwise.eq(self.depthwise),
            not_depthwise.eq(~self.depthwise),
        ]

        def late(value: Value, cycles: int, name: str) -> list[Value]:
            """``value`` now and up to ``cycles`` later."""
            values = [value]
            for cycle in range(cycles):
                held = Signal(len(value), reset_less=True, name=f"{name}_{cycle}")
                m.d.sync += held.eq(values[-1])
                values.append(held)
            return values

        steps = late(Cat(self.position, self.select), max(waits.values()), "step")
        step = Signal(len(steps[0]))
        m.d.comb += step.eq(steps[waits["row"]])
        with m.If(channel_mode):
            m.d.comb += step.eq(steps[waits["channel"]])
        with m.If(depthwise):
            m.d.comb += step.eq(steps[waits["depthwise"]])
        position_bits = len(Value.cast(self.position))
        m.d.comb += Value.cast(self.read_position).eq(step)
        select = late(step[position_bits:], halo_latency(config), "select")[-1]
        turn = late(
            self.read_position.bank[: max(1, turns)],
            halo_latency(config) + max(word_stages, turns),
            "turn",
        )[halo_latency(config) :]

        words = [[Value.cast(self.words[k][i]) for i in range(memories)] for k in range(shares)]
        shared = self._shared(m, select, turn, channel_mode, depthwise)
        for stage in range(word_stages):
            bits = range(2 * stage, min(2 * stage + 2, turns - 1))
            words = self._turned(m, words, turn[stage], bits, f"word_{stage}")
            if stage == word_stages - 1:
                self._zero(m, words, not_depthwise)

        kept = Signal(config.split_lanes, reset_less=True)
        all_lanes = self.mask[0].replicate(config.split_lanes)
        m.d.sync += kept.eq(Mux(channel_mode, all_lanes, self.mask))
        for lane in range(config.split_lanes):
            copy, index = divmod(lane, memories)
            word = words[copy][index]
            if turns:
                other = words[copy][(index + (1 << (turns - 1))) % memories]
                word = Mux(turn[word_stages][turns - 1], other, word)
            for out in range(config.out_lanes):
                operand = Signal(signed(9), reset_less=True, name=f"operand_{out}_{lane}")
                m.d.comb += self.operands[out][lane].eq(operand)
                own = word[9 * out : 9 * out + 9]
                if word_stages:
                    m.d.sync += operand.eq(own | shared[copy][index])
                else:
                    m.d.sync += operand.eq(Mux(depthwise, own, shared[copy][index]))
                with m.If(~kept[lane]):
                    m.d.sync += operand.eq(0)
        return m

    def _shared(
        self, m: Module, select: Value, turn: list[Value], channel_mode: Value, depthwise: Value
    ) -> list[list[Value]]:
        """What a split lane takes in channel mode and row mode, for all output lanes, by copy and
        memory; zero in depthwise layers."""
        config = self._config
        shares = halo_shares(config)
        memories = config.split_lanes // shares
        rows: list[list[Value]] = []
        for copy in range(shares):
            rows.append([])
            for index in range(memories):
                byte = Signal(9, reset_less=True, name=f"byte_{copy}_{index}")
                place = select
                if memories == 1 and shares > 1:
                    # Every copy gives the word of which channel mode takes a part.
                    place = Signal(len(select), name=f"place_{copy}")
                    part = Cat(Const(copy, exact_log2(shares)), select)
                    m.d.comb += place.eq(Mux(channel_mode, part, select))
                m.d.sync += byte.eq(self.words[copy][index][place])
                rows[-1].append(byte)
        # With one memory channel mode takes a byte as row mode does.
        turns = (memories - 1).bit_length()
        for stage in range(turns):
            whole = None
            if stage == turns - 1:
                self._zero(m, rows, channel_mode)
                whole = self._first_word(m, select, turn[0], channel_mode)
            bits = range(stage, stage + 1)
            rows = self._turned(m, rows, turn[1 + stage], bits, f"byte_turned_{stage}", whole)
        self._zero(m, rows, depthwise)
        return rows

    def _first_word(
        self, m: Module, select: Value, turn: Value, channel_mode: Value
    ) -> list[list[Value]]:
        """The part of the first bank's word that channel mode takes, by copy and memory. All copies
        give the same words then, so each has it from its own."""
        config = self._config
        shares = halo_shares(config)
        memories = config.split_lanes // shares
        part_select = select[: index_bits(config.word_steps)]
        rows: list[list[Value]] = [[] for _ in range(shares)]
        for lane in range(config.split_lanes):
            copy = lane // memories
            chosen = Signal(9, name=f"part_{lane}_in")
            with m.Switch(Cat(turn, part_select)):
                for part in range(config.word_steps):
                    for index in range(memories):
                        with m.Case(index | part << len(turn)):
                            m.d.comb += chosen.eq(
                                self.words[copy][index][part * config.split_lanes + lane]
                            )
            held = Signal(9, reset_less=True, name=f"part_{lane}")
            m.d.sync += held.eq(chosen)
            rows[copy].append(held)
        self._zero(m, rows, ~channel_mode)
        return rows

    def _turned(
        self,
        m: Module,
        rows: list[list[Value]],
        turn: Value,
        bits: range,
        name: str,
        other: list[list[Value]] | None = None,
    ) -> list[list[Value]]:
        """Registers: the memories of each copy turned by the given bits of ``turn``; ``other`` is
        zero, or the memories are."""
        moved: list[list[Value]] = []
        for copy, row in enumerate(rows):
            size = len(row)
            moved.append([])
            for index in range(size):
                value: Value = row[index]
                if len(bits):
                    value = Signal(len(row[0]), name=f"{name}_{copy}_{index}_in")
                    with m.Switch(turn[bits.start : bits.stop]):
                        for amount in range(1 << len(bits)):
                            source = row[(index + (amount << bits.start)) % size]
                            with m.Case(amount):
                                m.d.comb += value.eq(source)
                held = Signal(len(row[0]), reset_less=True, name=f"{name}_{copy}_{index}")
                m.d.sync += held.eq(value if other is None else value | other[copy][index])
                moved[-1].append(held)
        return moved

    @staticmethod
    def _zero(m: Module, rows: list[list[Value]], when: Value) -> None:
        """Reset registers: wins over what was assigned before."""
        with m.If(when):
            for row in rows:
                m.d.sync += [value.eq(0) for value in row]
