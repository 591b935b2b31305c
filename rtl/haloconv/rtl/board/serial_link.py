"""The host's side of an engine on a board: frames on a serial line to memory and registers."""

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from haloconv.planner.validate import check_int
from haloconv.rtl.board.frames import ANSWER, PAGE_BYTES, SYNC, Status
from haloconv.rtl.board.on_chip_memory import HostMemorySignature
from haloconv.rtl.board.uart import LINE_IN, LINE_OUT, UartReceiver, UartTransmitter
from haloconv.rtl.ports import RegisterSignature

__all__ = ["SerialLink"]

_REGISTER_BYTES = 1024
"""256 registers, the whole of a RegisterSignature."""
_ADDRESS_BYTES = 4


class _Check(wiring.Component):
    """CRC-16/MCRF4XX of bytes; ``start`` and ``valid`` exclude each other.

    Amaranth's processor allows both at once, which costs a multiplexer of 16 bits.
    """

    start: Signal
    valid: Signal
    data: Signal
    crc: Signal
    passed: Signal

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "valid": In(1),
                "data": In(8),
                "crc": Out(16),
                "passed": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # The polynomial's four terms leave a closed form for eight bits at once.
        low, mixed = Signal(8), Signal(8)
        m.d.comb += [
            low.eq(self.crc[:8] ^ self.data),
            mixed.eq(low ^ low[:4] << 4),
            self.passed.eq(self.crc == 0),
        ]
        with m.If(self.start):
            m.d.sync += self.crc.eq(0xFFFF)
        with m.Elif(self.valid):
            m.d.sync += self.crc.eq(self.crc[8:] ^ mixed << 8 ^ mixed << 3 ^ mixed >> 4)
        return m


class SerialLink(wiring.Component):
    """Answers the requests of :mod:`haloconv.rtl.board.frames` from memory and registers.

    A request is answered before the next one is looked at; what comes in meanwhile is lost. The
    header has a check of its own, so bytes are written only where the host meant them. A word is
    written to a register once its check has passed. After lost or false bytes the link skips to
    the next SYNC at the latest when a longest request's bytes have come; zeros, which hold no SYNC,
    bring it there.

    Timing: an answer starts some three cycles after the end of its request; a byte read takes a
    byte on the line.

    Resources: on the iCE40 about 250 LUT4 with both halves of the UART and a 16-bit memory port.

    Parameters
    ----------
    memory_bytes : int
        A multiple of 256; requests beyond are refused.
    bit_cycles : int
        Clock cycles of a bit, 4..65536.

    Members
    -------
    rx : In(1), tx : Out(1)
        Lines; 8 data bits, no parity, 1 stop bit.
    memory : Out(HostMemorySignature)
    registers : Out(RegisterSignature)
    busy : Out(1)
        A request is coming in or being answered.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of bounds.
    """

    rx: Signal
    tx: Signal
    memory: Any  # members of interfaces have no static types
    registers: Any
    busy: Signal

    def __init__(self, *, memory_bytes: int, bit_cycles: int) -> None:
        self._memory_bytes = check_int("Memory bytes", memory_bytes, _REGISTER_BYTES, 1 << 32)
        if memory_bytes % PAGE_BYTES:
            raise ValueError(f"Memory bytes must be a multiple of {PAGE_BYTES}, not {memory_bytes}")
        self._bits = bits_for(memory_bytes - 1)
        self._receiver = UartReceiver(cycles=bit_cycles)
        self._transmitter = UartTransmitter(cycles=bit_cycles)
        super().__init__(
            {
                "rx": LINE_IN,
                "tx": LINE_OUT,
                "memory": Out(HostMemorySignature(self._bits)),
                "registers": Out(RegisterSignature()),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.receiver = receiver = self._receiver
        m.submodules.transmitter = transmitter = self._transmitter
        m.submodules.check = crc = _Check()
        m.d.comb += [receiver.rx.eq(self.rx), self.tx.eq(transmitter.tx)]
        byte, came = receiver.o.payload, receiver.o.valid
        send, sent = transmitter.i, transmitter.i.ready & transmitter.i.valid

        command = Signal(2)
        writing, registers = command  # as in frames.Command
        bad = Signal()
        address = Signal(self._bits)
        last = Signal(range(PAGE_BYTES))
        # Bytes of a word, the lowest first: collected for a register, or on their way out.
        data = Signal(32, reset_less=True)
        position = Signal(3)
        status = Signal(Status)
        offset = address[: len(last)]
        ending = Signal()

        m.d.comb += [
            self.busy.eq(1),
            self.memory.address.eq(address),
            self.memory.write_data.eq(byte),
            self.registers.address.eq(address[2:10]),
            self.registers.write_data.eq(data),
            crc.data.eq(Mux(send.valid, send.payload, byte)),
        ]
        one_word = Signal()
        m.d.comb += [
            one_word.eq(last[2:] == offset[2:]),
            ending.eq(one_word & (last[:2] == offset[:2])),
        ]
        whole_words = (offset[:2] == 0) & last[:2].all() & (~writing | one_word)
        outside = Mux(
            registers,
            address[10:].any() | ~whole_words,
            address[8:] >= self._memory_bytes // PAGE_BYTES
            if self._memory_bytes != 1 << self._bits
            else C(0, 1),
        )

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.busy.eq(0), crc.start.eq(1)]
                m.d.sync += [position.eq(0), bad.eq(0)]
                with m.If(came & (byte == SYNC)):
                    m.next = "HEADER"
            with m.State("HEADER"), m.If(came):
                m.d.comb += crc.valid.eq(1)
                m.d.sync += position.eq(position + 1)
                with m.Switch(position):
                    with m.Case(0):
                        m.d.sync += [
                            command.eq(byte),
                            bad.eq(byte[len(command) :].any()),
                        ]
                    for place in range(_ADDRESS_BYTES):
                        with m.Case(1 + place):
                            part = address[8 * place : 8 * place + 8]
                            if len(part):
                                m.d.sync += part.eq(byte)
                            if len(part) < 8:
                                m.d.sync += bad.eq(bad | byte[len(part) :].any())
                    with m.Case(1 + _ADDRESS_BYTES):
                        m.d.sync += last.eq(byte)
                    with m.Case(1 + _ADDRESS_BYTES + 2):
                        m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += crc.start.eq(1)
                m.d.sync += [bad.eq(bad | outside), position.eq(0)]
                with m.If(~crc.passed):
                    m.d.sync += status.eq(Status.HEADER)
                    m.next = "ANSWER"
                with m.Elif(writing):
                    m.next = "PAYLOAD"
                with m.Else():
                    m.d.sync += status.eq(Mux(bad | outside, Status.REFUSED, Status.OK))
                    m.next = "ANSWER"
            with m.State("PAYLOAD"), m.If(came):
                m.d.comb += [crc.valid.eq(1), self.memory.write.eq(~registers & ~bad)]
                m.d.sync += data.eq(Cat(data[8:], byte))
                # The offset stays in the last word, which may go to a register.
                with m.If(ending):
                    m.next = "TRAILER"
                with m.Else():
                    m.d.sync += offset.eq(offset + 1)
            with m.State("TRAILER"), m.If(came):
                m.d.comb += crc.valid.eq(1)
                m.d.sync += position.eq(1)
                with m.If(position[0]):
                    m.next = "JUDGE"
            with m.State("JUDGE"):
                with m.If(bad):
                    m.d.sync += status.eq(Status.REFUSED)
                with m.Elif(~crc.passed):
                    m.d.sync += status.eq(Status.PAYLOAD)
                with m.Else():
                    m.d.sync += status.eq(Status.OK)
                    m.d.comb += self.registers.write.eq(registers)
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [send.payload.eq(ANSWER), send.valid.eq(1), crc.start.eq(1)]
                with m.If(sent):
                    m.next = "STATUS"
            with m.State("STATUS"):
                m.d.comb += [send.payload.eq(status), send.valid.eq(1), crc.valid.eq(sent)]
                with m.If(sent):
                    with m.If((status == Status.OK) & ~writing):
                        m.next = "FETCH"
                    with m.Else():
                        m.next = "CRC_LOW"
            with m.State("FETCH"):
                m.d.comb += self.memory.read.eq(~registers)
                m.next = "WAIT"
            with m.State("WAIT"), m.If(registers | self.memory.read_valid):
                with m.If(registers & (address[:2] == 0)):
                    m.d.sync += data.eq(self.registers.read_data)
                with m.Else():
                    m.d.sync += data.eq(data[8:])
                with m.If(~registers):
                    m.d.sync += data[:8].eq(self.memory.read_data)
                m.next = "BYTE"
            with m.State("BYTE"):
                m.d.comb += [send.payload.eq(data[:8]), send.valid.eq(1), crc.valid.eq(sent)]
                with m.If(sent):
                    m.d.sync += offset.eq(offset + 1)
                    m.next = "FETCH"
                    with m.If(ending):
                        m.next = "CRC_LOW"
            with m.State("CRC_LOW"):
                # The low byte's own remainder is nothing, so it makes way for the high byte.
                m.d.comb += [send.payload.eq(crc.crc[:8]), send.valid.eq(1), crc.valid.eq(sent)]
                with m.If(sent):
                    m.next = "CRC_HIGH"
            with m.State("CRC_HIGH"):
                m.d.comb += [send.payload.eq(crc.crc[:8]), send.valid.eq(1)]
                with m.If(sent):
                    m.next = "IDLE"
        return m
