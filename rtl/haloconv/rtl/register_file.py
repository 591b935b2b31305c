"""What the host reads: constants and counters in one memory, with one adder for all counters."""

from typing import Any

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from haloconv.planner.config import UNITS, EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES
from haloconv.planner.registers import COUNTERS, COUNTERS_BUILT, IDENTITY, REVISION, Register
from haloconv.planner.requantization import ROUNDINGS
from haloconv.rtl.tile_loader import LoadedBytes

__all__ = ["Events", "RegisterFile"]

WORDS = 64
FIRST = int(min(COUNTERS.values()))
"""The first counter's word; two words for each follow."""
LAYERS = FIRST + 2 * len(COUNTERS)
"""Where the memory keeps what the host reads as LAYERS and as ERROR_DETAIL."""
ROUND = LAYERS + 2 - FIRST
"""Words that take turns at the adder, and cycles of a round."""


class Events(data.StructLayout):
    """What the datapath does in a cycle, for the counters."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(
            {
                "computing": 1,
                "waiting_load": 1,
                "waiting_drain": 1,
                "taken": LoadedBytes(config),
                "written": bits_for(config.bus_bytes),
            }
        )


class RegisterFile(wiring.Component):
    """Constants and counters that the host reads.

    A narrow register collects each event. Word by word, all counters take turns at one adder, which
    adds what was collected since the last turn to the low word, and the carry to the high word. A
    register cannot overflow between two turns, so no event is lost; counters lag by at most two
    rounds of 24 cycles, and are exact once two pulses of ``round`` have come after ``counting``
    fell and two rounds since ``start``.

    Timing: a register reads back one cycle after its address, whatever the counters do.

    Resources: a memory of 64 words of 32 bits with two read ports, which takes two block RAMs; a
    32-bit adder; a register of six bits for each counter of cycles, of at most 13 for each counter
    of bytes, and of one for the descriptors read and one for those finished. Where
    ``config.counters`` is False, of these registers only those of cycles and of descriptors
    finished.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    address : In(8)
    live : In(32)
        Word at ``address`` where no memory has it, else zero.
    data : Out(32)
    start : In(1)
        Clears all counters.
    counting : In(1)
        Events of this cycle count.
    events : In(Events)
    fetched, finished : In(1)
        A descriptor was read, a layer is over; at most once in two rounds each.
    round : Out(1)
        For one cycle a round.

    Attributes
    ----------
    words : MemoryData
        The memory's rows; simulations may look at them.
    """

    address: Signal
    live: Signal
    data: Signal
    start: Signal
    counting: Signal
    events: Any
    fetched: Signal
    finished: Signal
    round: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        constants = self._constants()
        self.words = memory.MemoryData(  # pyright: ignore[reportAttributeAccessIssue]
            shape=unsigned(32),
            depth=WORDS,
            init=[constants.get(word, 0) for word in range(WORDS)],
        )
        super().__init__(
            {
                "address": In(8),
                "live": In(32),
                "data": Out(32),
                "start": In(1),
                "counting": In(1),
                "events": In(Events(config)),
                "fetched": In(1),
                "finished": In(1),
                "round": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # Of the two read ports, one never meets a write, the other is masked when it does.
        unchecked: Any = {"no_rw_check": 1}
        m.submodules.words = words = memory.Memory(self.words, attrs=unchecked)
        write: Any = words.write_port()
        turn_port: Any = words.read_port()
        host_port: Any = words.read_port()

        # Three stages: address a word; keep it and what was collected; write their sum back.
        turn, kept, added = Signal(range(ROUND)), Signal(range(ROUND)), Signal(range(ROUND))
        keeping, adding = Signal(), Signal()
        stale = Signal(init=1)  # A reset does not reach the memory.
        word, total = Signal(32, reset_less=True), Signal(33)
        carry = Signal(reset_less=True)
        round_kept = keeping & (kept == ROUND - 1)
        m.d.comb += self.round.eq(turn == ROUND - 1)
        m.d.sync += [
            turn.eq(Mux(self.round, 0, turn + 1)),
            kept.eq(turn),
            added.eq(kept),
            keeping.eq(1),
            adding.eq(keeping),
            carry.eq(total[32]),
        ]
        with m.If(self.start):
            m.d.sync += [stale.eq(1), turn.eq(0), keeping.eq(0), adding.eq(0)]
        with m.Elif(round_kept):
            m.d.sync += stale.eq(0)
        # A word's first turn after a start clears it; what was collected waits for the second.
        with m.If(stale):
            m.d.sync += word.eq(0)
        with m.Else():
            m.d.sync += word.eq(turn_port.data)
        # The counters whose turn it is in the next cycle, if a word is kept then.
        takes = Signal()
        m.d.comb += takes.eq(~self.start & (~stale | round_kept) & ~turn[0])
        collected = self._collect(m, turn, takes)
        amount = Signal(len(collected), reset_less=True)
        m.d.sync += amount.eq(collected)
        m.d.comb += [
            total.eq(word + (amount | (added[0] & carry))),
            turn_port.addr.eq(FIRST + turn),
            write.addr.eq(FIRST + added),
            write.data.eq(total),
            write.en.eq(adding),
        ]

        # The host's side.
        shown, own = Signal(), Signal(32, reset_less=True)
        address, counted, clash = Signal(8), Signal(), Signal()
        m.d.comb += [
            address.eq(self.address),
            counted.eq(address >= FIRST),
            clash.eq(adding & (address == write.addr)),
            host_port.addr.eq(address),
            self.data.eq(own | Mux(shown, host_port.data, 0)),
        ]
        with m.If((self.address == Register.LAYERS) | (self.address == Register.ERROR_DETAIL)):
            m.d.comb += address.eq(LAYERS)
        with m.Elif(self.address == LAYERS):
            m.d.comb += address.eq(WORDS - 1)
        m.d.sync += [
            shown.eq((address < WORDS) & ~(counted & stale) & ~clash),
            own.eq(self.live | Mux(clash, total[:32], 0)),
        ]
        return m

    def _constants(self) -> dict[int, int]:
        config = self._config
        options = sum(1 << ROUNDINGS.index(name) for name in config.built_roundings)
        options |= config.weight_zero_points << 8 | config.address_bits << 16
        options |= sum(1 << (9 + UNITS.index(name)) for name in config.built_units)
        options |= COUNTERS_BUILT if config.counters else 0
        lanes = config.out_lanes | config.split_lanes << 8 | config.bus_bytes << 16
        return {
            Register.IDENTITY: IDENTITY,
            Register.REVISION: REVISION,
            Register.LANES: lanes | config.results_per_cycle << 24,
            Register.OPTIONS: options,
            Register.INPUT_WORDS: config.input_words,
            Register.WEIGHT_WORDS: config.weight_words,
            Register.PSUM_WORDS: config.psum_words,
            Register.CHANNEL_GROUPS: config.channel_groups,
        }

    def _collect(self, m: Module, turn: Signal, takes: Signal) -> Value:
        """What was counted since the last turn of the counter whose turn it is a cycle after
        ``takes``."""
        late: Any = Signal(self.events.shape(), reset_less=True)
        counting = Signal()
        m.d.sync += [late.eq(self.events), counting.eq(self.counting)]
        with m.If(self.start):
            m.d.sync += counting.eq(0)
        order = [*COUNTERS, "layers"]

        def turns(name: str) -> Value:
            mine = Signal(name=f"{name}_turns")
            m.d.sync += mine.eq(takes & (turn[1:] == order.index(name)))
            return mine

        # Two rounds may go by before the first turn.
        amounts: list[Value] = []
        spent: tuple[tuple[str, Value], ...] = (
            ("compute_cycles", late.computing),
            ("load_stall_cycles", late.waiting_load),
            ("drain_stall_cycles", late.waiting_drain),
        )
        every = self._config.counters
        for name, happens in (("cycles", C(1)), *(spent if every else ())):
            collected = Signal(bits_for(2 * ROUND), name=f"{name}_collected")
            mine = turns(name)
            with m.If(self.start):
                m.d.sync += collected.eq(0)
            with m.Elif(mine):
                m.d.sync += collected.eq(happens & counting)
            with m.Else():
                m.d.sync += collected.eq(collected + (happens & counting))
            amounts.append(Mux(mine, collected, 0))

        def bytes_of(size: Value, kinds: dict[str, Value]) -> None:
            """Counters of bytes, of which no two have an event in the same cycle: one adder."""
            width = bits_for(2 * ROUND * ((1 << len(size)) - 1))
            before, after = Signal(width), Signal(width)
            parts: list[Value] = []
            for name, happens in kinds.items():
                collected = Signal(width, name=f"{name}_collected")
                mine, counts = turns(name), Signal(name=f"{name}_counts")
                m.d.comb += counts.eq(happens & counting)
                with m.If(self.start):
                    m.d.sync += collected.eq(0)
                with m.Elif(counts):
                    m.d.sync += collected.eq(after)
                with m.Elif(mine):
                    m.d.sync += collected.eq(0)
                parts.append(Mux(counts & ~mine, collected, 0))
                amounts.append(Mux(mine, collected, 0))
            m.d.comb += [before.eq(_any_of(parts)), after.eq(before + size)]

        single: list[tuple[str, Value, int]] = [("layers", self.finished, 1)]
        if every:
            taken = late.taken
            bytes_of(
                taken.count,
                {f"{kind}_bytes": taken[kind] for kind in ("input", "weight", "bias", "scale")},
            )
            bytes_of(late.written, {"output_bytes": C(1, 1)})
            single.append(("program_bytes", self.fetched, DESCRIPTOR_BYTES))
        for name, happens, size in single:
            happened, mine = Signal(name=f"{name}_happened"), turns(name)
            m.d.sync += happened.eq(((happened & ~mine) | happens) & ~self.start)
            amounts.append(Mux(happened & mine, size, 0))
        return _any_of(amounts)


def _any_of(values: list[Value]) -> Value:
    """The one value that is not zero, if any."""
    while len(values) > 1:
        values = [
            values[i] | values[i + 1] if i + 1 < len(values) else values[i]
            for i in range(0, len(values), 2)
        ]
    return values[0]
