"""Input tile with its halo: banked by output column, double buffered, read through a rotator."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.rtl.widths import Position

__all__ = ["HaloBuffer"]


class HaloBuffer(wiring.Component):
    """Holds inputs as offsets from their zero point, so that a masked input is a plain zero.

    Column x of a tile lies in bank (x // stride) mod Pr, the columns of one stride phase together,
    so that Pr neighbouring outputs read Pr different banks at any stride and dilation. A read at
    (bank, word) gives to split lane r the word of bank (bank + r) mod Pr, at the next address
    where the banks wrap.

    Timing: latency :attr:`latency` (address 1, memory 1, one for each rotator stage); one read and
    one write a cycle. A read whose position comes with a write, or later, sees what was written.

    Resources: Pr memories of 2 * input_words words of 9 * word_bytes bits; ceil(log2 Pr) stages of
    9 * word_bytes * Pr two-way multiplexers and registers.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    write : In(1), write_position : In(Position), write_data : In(ArrayLayout(signed(9), word))
    read_position : In(Position)
    data : Out(ArrayLayout(ArrayLayout(signed(9), word), Pr))
        ``latency`` cycles after ``read_position``.
    """

    write: Signal
    write_position: data.View
    write_data: data.View
    read_position: data.View
    data: data.View

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        word = data.ArrayLayout(signed(9), config.word_bytes)
        super().__init__(
            {
                "write": In(1),
                "write_position": In(Position(config)),
                "write_data": In(word),
                "read_position": In(Position(config)),
                "data": Out(data.ArrayLayout(word, config.split_lanes)),
            }
        )

    @property
    def rotator_stages(self) -> int:
        """Registered two-way stages that align the banks."""
        return (self._config.split_lanes - 1).bit_length()

    @property
    def latency(self) -> int:
        """Cycles from ``read_position`` to ``data``."""
        return 2 + self.rotator_stages

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        lanes, bits = config.split_lanes, 9 * config.word_bytes

        words: list[Value] = []
        bank = Signal.like(self.read_position.bank, reset_less=True)
        m.d.sync += bank.eq(self.read_position.bank)
        for index in range(lanes):
            m.submodules[f"bank_{index}"] = memory = Memory(
                shape=unsigned(bits), depth=2 * config.input_words, init=[]
            )
            write_port, read_port = memory.write_port(), memory.read_port()
            m.d.comb += [
                write_port.en.eq(self.write & (self.write_position.bank == index)),
                write_port.addr.eq(self.write_position.word),
                write_port.data.eq(self.write_data),
            ]
            address = Signal.like(self.read_position.word, reset_less=True, name=f"address_{index}")
            m.d.sync += address.eq(self.read_position.word + (index < self.read_position.bank))
            m.d.comb += read_port.addr.eq(address)
            words.append(read_port.data)

        # Rotating by bank is rotating by each of its bits; the sum of the turns is bank mod Pr.
        turn = Signal.like(bank, reset_less=True)
        m.d.sync += turn.eq(bank)
        for stage in range(self.rotator_stages):
            moved: list[Value] = [
                Signal(bits, reset_less=True, name=f"turned_{stage}_{lane}")
                for lane in range(lanes)
            ]
            for lane in range(lanes):
                m.d.sync += moved[lane].eq(
                    Mux(turn[stage], words[(lane + (1 << stage)) % lanes], words[lane])
                )
            following = Signal.like(turn, reset_less=True, name=f"turn_{stage}")
            m.d.sync += following.eq(turn)
            words, turn = moved, following
        m.d.comb += Value.cast(self.data).eq(Cat(*words))
        return m
