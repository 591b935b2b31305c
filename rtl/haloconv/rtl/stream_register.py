"""A register between two streams."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["StreamRegister"]


class StreamRegister(wiring.Component):
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
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, shape) -> None:
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform) -> Module:
        m = Module()
        held = Signal(len(Value.cast(self.i.payload)), reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~self.o.valid | self.o.ready),
            Value.cast(self.o.payload).eq(held),
        ]
        with m.If(self.i.ready):
            # Taken whether valid or not: that takes the fewest gates.
            m.d.sync += [self.o.valid.eq(self.i.valid), held.eq(self.i.payload)]
        return m
