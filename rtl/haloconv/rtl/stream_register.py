"""Registers between two streams."""

from typing import Any

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["StreamCut", "StreamRegister"]


class _Between(wiring.Component):
    """A stream of any payload comes in at ``i`` and goes on at ``o``."""

    i: stream.Interface
    o: stream.Interface
    newest: Any

    def __init__(self, shape) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "newest": Out(shape),
            }
        )


class StreamRegister(_Between):
    """Holds one payload. Cuts every path from ``i`` to ``o``; ``ready`` passes through.

    Timing: latency 1, a transfer a cycle.

    Resources: a payload of registers.

    Parameters
    ----------
    shape : ShapeLike
        Payload.

    Members
    -------
    i : In(stream), o : Out(stream)
    newest : Out(shape)
        Payload that came in the cycle before, if one did.
    """

    def elaborate(self, platform) -> Module:
        m = Module()
        held = Signal(len(Value.cast(self.i.payload)), reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~self.o.valid | self.o.ready),
            Value.cast(self.o.payload).eq(held),
            Value.cast(self.newest).eq(held),
        ]
        with m.If(self.i.ready):
            # Taken whether valid or not: that takes the fewest gates.
            m.d.sync += [self.o.valid.eq(self.i.valid), held.eq(self.i.payload)]
        return m


class StreamCut(_Between):
    """Holds up to two payloads. Cuts every path between ``i`` and ``o``, that of ``ready`` too.

    Timing: latency 1, a transfer a cycle.

    Resources: two payloads of registers, a two-way multiplexer of one.

    Parameters
    ----------
    shape : ShapeLike
        Payload.

    Members
    -------
    i : In(stream), o : Out(stream)
    newest : Out(shape)
        Payload that came in the cycle before, if one did.
    """

    def elaborate(self, platform) -> Module:
        m = Module()
        width = len(Value.cast(self.i.payload))
        held, second = Signal(width, reset_less=True), Signal(width, reset_less=True)
        waits = Signal()  # the second one, which came while the first could not leave
        m.d.comb += [
            self.i.ready.eq(~waits),
            Value.cast(self.o.payload).eq(held),
            Value.cast(self.newest).eq(second),
        ]
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += [
                self.o.valid.eq(self.i.valid | waits),
                held.eq(Mux(waits, second, self.i.payload)),
                waits.eq(0),
            ]
        with m.Elif(self.i.valid):
            m.d.sync += waits.eq(1)
        with m.If(~waits):
            m.d.sync += second.eq(self.i.payload)
        return m
