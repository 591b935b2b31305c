"""Serial line of bytes: one start bit, eight data bits, one stop bit, no parity."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.validate import check_int

__all__ = ["LINE_IN", "LINE_OUT", "UartReceiver", "UartTransmitter", "bit_cycles"]

# Lines are high at rest.
LINE_IN = In(1, init=1)  # pyright: ignore[reportCallIssue]  # the stubs lack `init`
LINE_OUT = Out(1, init=1)  # pyright: ignore[reportCallIssue]

LEAST_CYCLES, MOST_CYCLES = 4, 1 << 16
"""Clock cycles of a bit."""
TOLERANCE = 0.02
"""Most that the bit rate may be off. A byte is lost from 5 % on, which both ends share."""


def bit_cycles(clock_hz: float, baud: float) -> int:
    """Return the clock cycles of one bit.

    Raises
    ------
    ValueError
        If no whole number of cycles comes within 2 % of the rate, or a bit has under 4 cycles.
    """
    if not baud > 0:
        raise ValueError(f"Baud rate must be above 0, not {baud!r}")
    cycles = round(clock_hz / baud)
    if not LEAST_CYCLES <= cycles <= MOST_CYCLES:
        raise ValueError(
            f"Baud rate must be {clock_hz / MOST_CYCLES:.0f} to {clock_hz / LEAST_CYCLES:.0f} at a "
            f"clock of {clock_hz:.0f} Hz, not {baud:.0f}"
        )
    found = clock_hz / cycles
    if abs(found - baud) > TOLERANCE * baud:
        raise ValueError(
            f"Baud rate must be within {TOLERANCE:.0%} of the clock over a whole number, but "
            f"{baud:.0f} at {clock_hz:.0f} Hz comes to {found:.0f}; choose that rate or another "
            "clock"
        )
    return cycles


def _cycles(value: int) -> int:
    return check_int("Cycles of a bit", value, LEAST_CYCLES, MOST_CYCLES)


class UartReceiver(wiring.Component):
    """Bytes from a serial line.

    A start bit that has gone by its middle is noise and skipped. The stop bit is not looked at: a
    byte that lacks it is passed on, and the next one begins after the line was high again.

    Timing: a byte leaves half a bit before the end of its stop bit, plus three cycles.

    Resources: 8 + ceil(log2 cycles) + 7 flip-flops.

    Parameters
    ----------
    cycles : int
        Clock cycles of a bit, 4..65536.

    Members
    -------
    rx : In(1)
        The line, not synchronised to the clock; high while idle.
    o : Out(stream of 8 bits, always ready)

    Raises
    ------
    TypeError, ValueError
        If ``cycles`` is out of bounds.
    """

    rx: Signal
    o: stream.Interface

    def __init__(self, *, cycles: int) -> None:
        self._cycles = _cycles(cycles)
        super().__init__({"rx": LINE_IN, "o": Out(stream.Signature(8, always_ready=True))})

    def elaborate(self, platform) -> Module:
        m = Module()
        # Two registers, as the line changes at any time.
        early, line = Signal(init=1), Signal(init=1)
        m.d.sync += [early.eq(self.rx), line.eq(early)]
        timer = Signal(range(self._cycles))
        now = Signal()
        m.d.comb += now.eq(timer == 0)
        m.d.sync += timer.eq(Mux(now, self._cycles - 1, timer - 1))
        # A one runs ahead of the data: the byte is complete when it has come to bit 0.
        bits = Signal(9)
        m.d.comb += self.o.payload.eq(bits[1:])
        m.d.sync += self.o.valid.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [bits.eq(1 << 8), timer.eq(self._cycles // 2 - 1)]
                with m.If(~line):
                    m.next = "START"
            with m.State("START"), m.If(now):
                with m.If(line):
                    m.next = "IDLE"
                with m.Else():
                    m.next = "DATA"
            with m.State("DATA"), m.If(now):
                m.d.sync += bits.eq(Cat(bits[1:], line))
                with m.If(bits[0]):
                    # This is the stop bit, and the byte has moved one further than it should.
                    m.d.sync += [bits.eq(bits), self.o.valid.eq(1)]
                    m.next = "STOP"
            with m.State("STOP"), m.If(line):
                m.next = "IDLE"
        return m


class UartTransmitter(wiring.Component):
    """Bytes to a serial line.

    Timing: a byte takes ten bits; the start bit is on the line in the cycle after the byte is
    taken, and bytes that wait follow each other without a gap but one cycle.

    Resources: 10 + ceil(log2 cycles) flip-flops.

    Parameters
    ----------
    cycles : int
        Clock cycles of a bit, 4..65536.

    Members
    -------
    i : In(stream of 8 bits)
    tx : Out(1)
        The line; high while idle.

    Raises
    ------
    TypeError, ValueError
        If ``cycles`` is out of bounds.
    """

    i: stream.Interface
    tx: Signal

    def __init__(self, *, cycles: int) -> None:
        self._cycles = _cycles(cycles)
        super().__init__({"i": In(stream.Signature(8)), "tx": LINE_OUT})

    def elaborate(self, platform) -> Module:
        m = Module()
        timer = Signal(range(self._cycles))
        # Start bit, data, and a one that is the stop bit and, when alone, tells the end.
        bits = Signal(10, init=1)
        busy, now = Signal(), Signal()
        m.d.comb += [self.tx.eq(bits[0]), now.eq(timer == 0), self.i.ready.eq(~busy)]
        m.d.sync += timer.eq(Mux(now | ~busy, self._cycles - 1, timer - 1))
        with m.If(~busy), m.If(self.i.valid):
            m.d.sync += [bits.eq(Cat(C(0, 1), self.i.payload, C(1, 1))), busy.eq(1)]
        with m.Elif(now):
            with m.If(bits == 1):
                m.d.sync += busy.eq(0)
            with m.Else():
                m.d.sync += bits.eq(bits >> 1)
        return m
