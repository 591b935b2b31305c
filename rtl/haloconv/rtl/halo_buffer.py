"""Input tile with its halo: banked by output column, double buffered."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import has_spare_registers
from haloconv.rtl.block_memory import BLOCK_WORDS, SMALL_BLOCK_WORDS, block_memory
from haloconv.rtl.widths import Position

__all__ = ["HaloBuffer", "halo_latency", "halo_shares"]


def halo_latency(config: EngineConfig) -> int:
    """Cycles from a position to its words: address, memory, and a register behind the memory.

    Block RAM is slow to read; many have that register inside.
    """
    return 3 if has_spare_registers(config) else 2


def halo_shares(config: EngineConfig) -> int:
    """Return K, the banks that share a memory, and the copies of the buffer.

    A bank alone leaves most of a block RAM empty. K banks in one memory, and K copies of the
    buffer, take as many block RAMs, and a copy answers Pr / K lanes: so only the Pr / K memories of
    a copy need aligning, not Pr banks. Of more than two, two memories are left at least: the choice
    between two costs nothing where operands are selected. Two become one where that fits the
    smallest block RAMs: then nothing need be aligned.
    """
    lanes = config.split_lanes
    if lanes == 2:
        return 2 if 2 * config.input_words * 2 <= SMALL_BLOCK_WORDS else 1
    shares = 1
    if lanes & (lanes - 1) == 0:
        while lanes > 2 * shares and 2 * config.input_words * 2 * shares <= BLOCK_WORDS:
            shares *= 2
    return shares


class HaloBuffer(wiring.Component):
    """Holds inputs as offsets from their zero point, so that a masked input is a plain zero.

    Column x of a tile lies in bank (x // stride) mod Pr, the columns of one stride phase together,
    so that Pr neighbouring outputs read Pr different banks at any stride and dilation. A read at
    (bank, word) means for split lane r the word of bank (bank + r) mod Pr, at the next address
    where the banks wrap.

    There are K copies of N = Pr / K memories (:func:`halo_shares`); copy k answers lanes k * N to
    k * N + N - 1, and its memory i holds the banks that are i modulo N. So the word of lane
    k * N + j comes from memory (bank + j) mod N of copy k.

    Timing: latency :attr:`latency` (:func:`halo_latency`); one read and one write a cycle. A read
    sees what was written with its position or before. What it gives is undefined where its word is
    written in the cycle after its position: halves keep reads and writes apart.

    Resources: Pr memories of 2 * input_words * K words of 9 * word_bytes bits; an address adder for
    each, and where there are any to spare a register of a word, which is the block RAM's own on the
    ECP5.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    write : In(1), write_position : In(Position), write_data : In(ArrayLayout(signed(9), word))
    read_position : In(Position)
    channel_mode : In(1)
        Every copy gives the words for lane 0 and on, that at ``read_position`` first.
    data : Out(ArrayLayout(ArrayLayout(ArrayLayout(signed(9), word), N), K))
        ``latency`` cycles after ``read_position``.
    """

    write: Signal
    write_position: data.View
    write_data: data.View
    read_position: data.View
    channel_mode: Signal
    data: data.View

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        word = data.ArrayLayout(signed(9), config.word_bytes)
        shares = halo_shares(config)
        copy = data.ArrayLayout(word, config.split_lanes // shares)
        super().__init__(
            {
                "write": In(1),
                "write_position": In(Position(config)),
                "write_data": In(word),
                "read_position": In(Position(config)),
                "channel_mode": In(1),
                "data": Out(data.ArrayLayout(copy, shares)),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from ``read_position`` to ``data``."""
        return halo_latency(self._config)

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        shares = halo_shares(config)
        memories = config.split_lanes // shares
        depth = 2 * config.input_words * shares

        def place(position: data.View) -> tuple[Value, Value]:
            """Memory of a copy and address of a position; the banks of a memory lie together."""
            bank, word = Value.cast(position.bank), Value.cast(position.word)
            if shares == 1:
                return bank, word
            low = exact_log2(memories)
            return bank[:low], Cat(bank[low:], word)

        write_memory, write_address = place(self.write_position)
        read_memory, read_address = place(self.read_position)
        for copy in range(shares):
            for index in range(memories):
                name = f"bank_{copy}_{index}"
                m.submodules[name] = memory = block_memory(9 * config.word_bytes, depth)
                write_port, read_port = memory.write_port(), memory.read_port()
                # From bank b on, lane by lane; the memories below b take the next turn.
                address = Signal.like(read_port.addr, reset_less=True, name=f"address_{name}")
                turns = Mux(self.channel_mode, 0, copy)
                if memories > 1:
                    turns = turns + (index < read_memory)
                m.d.sync += address.eq(read_address + turns)
                word = read_port.data
                if has_spare_registers(config):
                    word = Signal(len(read_port.data), reset_less=True, name=f"word_{name}")
                    m.d.sync += word.eq(read_port.data)
                m.d.comb += [
                    write_port.en.eq(self.write & (write_memory == index)),
                    write_port.addr.eq(write_address),
                    write_port.data.eq(self.write_data),
                    read_port.addr.eq(address),
                    Value.cast(self.data[copy][index]).eq(word),
                ]
        return m
