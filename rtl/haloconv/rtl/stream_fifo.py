"""A FIFO with stream ports."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from haloconv.planner.validate import check_int

__all__ = ["StreamFifo"]


class StreamFifo(wiring.Component):
    """First in, first out buffer between two streams.

    Timing: latency 1, with ``block_ram`` and a depth beyond 1 latency 2. One transfer a cycle if
    ``depth`` exceeds the latency, else one every second cycle. Cuts every path between its two
    sides.

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

    Raises
    ------
    TypeError, ValueError
        If ``depth`` is no integer of at least 1.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, shape, *, depth: int, block_ram: bool = False) -> None:
        self._shape = shape
        self._depth = check_int("Depth", depth, 1)
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
