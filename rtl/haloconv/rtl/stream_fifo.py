"""A FIFO with stream ports."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

__all__ = ["StreamFifo"]


class StreamFifo(wiring.Component):
    """First in, first out buffer between two streams.

    Timing: one transfer a cycle. Without ``block_ram`` a payload can leave in the cycle after it
    came (latency 1), with it one cycle later (latency 2). Cuts every path between its two sides.

    Resources: ``depth`` payloads in distributed RAM, or in block RAM.

    Parameters
    ----------
    shape : ShapeLike
        Payload.
    depth : int
        Number of payloads held.
    block_ram : bool
        Read the memory synchronously.

    Members
    -------
    i : In(stream), o : Out(stream)
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, shape, *, depth: int, block_ram: bool = False) -> None:
        self._shape = shape
        self._depth = depth
        self._block_ram = block_ram
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform) -> Module:
        m = Module()
        kind = SyncFIFOBuffered if self._block_ram else SyncFIFO
        m.submodules.fifo = fifo = kind(width=Shape.cast(self._shape).width, depth=self._depth)
        m.d.comb += [
            fifo.w_data.eq(self.i.payload),
            fifo.w_en.eq(self.i.valid),
            self.i.ready.eq(fifo.w_rdy),
            Value.cast(self.o.payload).eq(fifo.r_data),
            self.o.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.o.ready),
        ]
        return m
