# amaranth: UnusedElaboratable=no
"""The simulated board carries bytes of a component that sends back what it receives."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from haloconv.rtl.board.uart import LINE_IN, LINE_OUT, UartReceiver, UartTransmitter
from haloconv.sim.board.simulated import QUIET_BYTES, SimulatedBoard

CYCLES = 5


class Echo(wiring.Component):
    """Returns each byte that comes in, plus one."""

    rx: Signal
    tx: Signal

    def __init__(self) -> None:
        super().__init__({"rx": LINE_IN, "tx": LINE_OUT})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.receiver = receiver = UartReceiver(cycles=CYCLES)
        m.submodules.transmitter = transmitter = UartTransmitter(cycles=CYCLES)
        held, full = Signal(8), Signal()
        with m.If(transmitter.i.ready):
            m.d.sync += full.eq(0)
        with m.If(receiver.o.valid):
            m.d.sync += [held.eq(receiver.o.payload + 1), full.eq(1)]
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.tx.eq(transmitter.tx),
            transmitter.i.payload.eq(held),
            transmitter.i.valid.eq(full),
        ]
        return m


@pytest.mark.parametrize("gaps", [3, 70])
def test_bytes_go_there_and_back(gaps):
    board = SimulatedBoard(Echo(), bit_cycles=CYCLES, clock_hz=1000, gaps=gaps, seed=9)
    assert board.seconds() == 0
    board.write(b"abc")
    board.write(b"xyz")
    assert board.read(2) == b"bc"
    assert board.read(4) == b"dyz{"
    assert board.seconds() == board.cycle / 1000 > 7 * 10 * CYCLES / 1000


def test_a_quiet_line_ends_a_read():
    board = SimulatedBoard(Echo(), bit_cycles=CYCLES)
    board.write(b"a")
    assert board.read(3) == b"b"
    before = board.cycle
    assert board.read(1) == b""
    assert board.cycle - before == QUIET_BYTES * 10 * CYCLES


def test_drain_takes_all():
    board = SimulatedBoard(Echo(), bit_cycles=CYCLES)
    board.write(b"hello")
    board.drain()
    board.write(b"a")
    assert board.read(1) == b"b"
    board.close()
