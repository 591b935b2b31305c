"""On-chip RAM with one access a cycle, as large as a board's device allows."""

from functools import reduce
from operator import or_
from typing import Any, Protocol

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from haloconv.planner.validate import check_int

__all__ = ["BlockStorage", "SpramStorage", "Storage", "StorageSignature"]


class StorageSignature(wiring.Signature):
    """One access a cycle, as the user drives it.

    Members
    -------
    enable, write : Out(1)
    address : Out
        Word.
    data : Out, strobe : Out
        A strobe bit for each byte.
    read_data : In
        The word read ``latency`` cycles before.

    Parameters
    ----------
    words, word_bytes : int
    """

    def __init__(self, words: int, word_bytes: int) -> None:
        super().__init__(
            {
                "enable": Out(1),
                "write": Out(1),
                "address": Out(bits_for(words - 1)),
                "data": Out(8 * word_bytes),
                "strobe": Out(word_bytes),
                "read_data": In(8 * word_bytes),
            }
        )


class Storage(Protocol):
    """What :class:`BlockStorage` and :class:`SpramStorage` have in common."""

    port: Any
    latency: int
    words: int


class BlockStorage(wiring.Component):
    """Block RAM in banks of 2048 words, with a register before it and two behind.

    A bank is as deep as one block RAM of the ECP5 that holds a byte of each word, so every
    block RAM is full. Reads and writes share one port of the primitives, which saves the
    logic that a collision would need.

    Timing: latency 4, one access a cycle. A register is all that lies behind a block RAM.

    Resources: 2 KiB in each block RAM of 18 kbit; a register of a word for each bank.

    Parameters
    ----------
    words : int
        A multiple of 2048.
    word_bytes : int

    Members
    -------
    port : In(StorageSignature)

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of bounds.
    """

    BANK_WORDS = 2048

    port: Any  # its members have no static types

    def __init__(self, words: int, word_bytes: int) -> None:
        self._words = check_int("Words", words, self.BANK_WORDS)
        if words % self.BANK_WORDS:
            raise ValueError(f"Words must be a multiple of {self.BANK_WORDS}, not {words}")
        self._word_bytes = check_int("Bytes of a word", word_bytes, 1)
        super().__init__({"port": In(StorageSignature(words, word_bytes))})

    @property
    def words(self) -> int:
        """Words held."""
        return self._words

    @property
    def latency(self) -> int:
        """Cycles from an access to its data."""
        return 4

    def elaborate(self, platform) -> Module:
        m = Module()
        port, width = self.port, 8 * self._word_bytes
        inner = bits_for(self.BANK_WORDS - 1)
        count = self._words // self.BANK_WORDS
        offset = Signal(inner, reset_less=True)
        strobe = Signal(self._word_bytes, reset_less=True)
        written = Signal(width, reset_less=True)
        m.d.sync += [offset.eq(port.address), strobe.eq(port.strobe), written.eq(port.data)]
        index = Signal(range(max(count, 2)), reset_less=True)
        m.d.sync += index.eq(port.address[inner:])
        words = []
        for bank in range(count):
            m.submodules[f"bank_{bank}"] = memory = Memory(
                shape=unsigned(width), depth=self.BANK_WORDS, init=[]
            )
            read, write = memory.read_port(), memory.write_port(granularity=8)
            # Chosen before the register, so that each bank has its own short path.
            reading, writing = Signal(name=f"reading_{bank}"), Signal(name=f"writing_{bank}")
            here = port.enable & (port.address[inner:] == bank)
            m.d.sync += [reading.eq(here & ~port.write), writing.eq(here & port.write)]
            m.d.comb += [
                read.addr.eq(offset),
                # Said once more, as tools merge the ports only where they see that they never
                # work at once.
                read.en.eq(reading & ~writing),
                write.addr.eq(offset),
                write.data.eq(written),
                write.en.eq(Mux(writing, strobe, 0)),
            ]
            words.append(read.data)
        # Each bank has a register that is zero unless the bank was read, so that a tree of ORs
        # chooses, which takes half the logic of multiplexers.
        late = Signal.like(index)
        m.d.sync += late.eq(index)
        held = [Signal(width, reset_less=True, name=f"held_{bank}") for bank in range(count)]
        for bank, word in enumerate(words):
            m.d.sync += held[bank].eq(Mux(late == bank, word, 0))
        final = Signal(width, reset_less=True)
        m.d.sync += final.eq(reduce(or_, held))
        m.d.comb += port.read_data.eq(final)
        return m


class SpramStorage(wiring.Component):
    """The four single-port RAMs of an iCE40 UltraPlus, 32 KiB each.

    On that device (``platform.device``) they are instances of SB_SPRAM256KA, elsewhere, as in
    simulation, memories that behave the same. Content is undefined after power-up.

    Timing: latency 1, one access a cycle.

    Resources: an SB_SPRAM256KA for every 32 KiB, and a multiplexer between those side by side.

    Parameters
    ----------
    words : int
        Up to 131072 bytes, in whole RAMs.
    word_bytes : int
        2, 4 or 8.

    Members
    -------
    port : In(StorageSignature)

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of bounds.
    """

    BANK_WORDS = 16384
    BANKS = 4

    port: Any  # its members have no static types

    def __init__(self, words: int, word_bytes: int) -> None:
        self._words = check_int("Words", words, self.BANK_WORDS)
        if words % self.BANK_WORDS:
            raise ValueError(f"Words must be a multiple of {self.BANK_WORDS}, not {words}")
        if word_bytes not in (2, 4, 8):
            raise ValueError(f"Bytes of a word must be 2, 4 or 8, not {word_bytes!r}")
        self._word_bytes = word_bytes
        if words // self.BANK_WORDS * word_bytes // 2 > self.BANKS:
            raise ValueError(
                f"Memory must be at most {self.BANKS * 2 * self.BANK_WORDS} bytes, not "
                f"{words * word_bytes}"
            )
        super().__init__({"port": In(StorageSignature(words, word_bytes))})

    @property
    def words(self) -> int:
        """Words held."""
        return self._words

    @property
    def latency(self) -> int:
        """Cycles from an access to its data."""
        return 1

    def elaborate(self, platform) -> Module:
        m = Module()
        port = self.port
        inner = bits_for(self.BANK_WORDS - 1)
        count = self._words // self.BANK_WORDS
        instances = getattr(platform, "device", None) == "iCE40UP5K"
        bank = port.address[inner:]
        chosen = Signal(range(max(count, 2)))
        with m.If(port.enable):
            m.d.sync += chosen.eq(bank)
        with m.Switch(chosen):
            for index in range(count):
                halves = []
                for lane in range(self._word_bytes // 2):
                    word = Signal(16, name=f"word_{index}_{lane}")
                    make = self._instance if instances else self._model
                    m.submodules[f"ram_{index}_{lane}"] = make(
                        port.enable & (bank == index) if count > 1 else port.enable,
                        port.write,
                        port.address[:inner],
                        port.data[16 * lane : 16 * lane + 16],
                        port.strobe[2 * lane : 2 * lane + 2],
                        word,
                    )
                    halves.append(word)
                with m.Case(index):
                    m.d.comb += port.read_data.eq(Cat(halves))
        return m

    @staticmethod
    def _instance(enable, write, address, data, strobe, word) -> Instance:
        return Instance(
            "SB_SPRAM256KA",
            i_CLOCK=ClockSignal(),
            i_CHIPSELECT=enable,
            i_WREN=write,
            i_ADDRESS=address,
            i_DATAIN=data,
            i_MASKWREN=Cat(bit.replicate(2) for bit in strobe),
            i_STANDBY=C(0, 1),
            i_SLEEP=C(0, 1),
            i_POWEROFF=C(1, 1),  # active low
            o_DATAOUT=word,
        )

    def _model(self, enable, write, address, data, strobe, word) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=unsigned(16), depth=self.BANK_WORDS, init=[])
        read_port, write_port = memory.read_port(), memory.write_port(granularity=8)
        m.d.comb += [
            read_port.addr.eq(address),
            read_port.en.eq(enable & ~write),
            write_port.addr.eq(address),
            write_port.data.eq(data),
            write_port.en.eq(Mux(enable & write, strobe, 0)),
            word.eq(read_port.data),
        ]
        return m
