"""A FIFO with stream ports."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from haloconv.planner.validate import check_int

__all__ = ["StreamFifo"]


class StreamFifo(wiring.Component):
    """First in, first out buffer between two streams.

    Timing: latency 1, with ``block_ram`` and a depth beyond 1 latency 2, and 3 if it is
    ``registered`` as well. One transfer a cycle if ``depth`` exceeds the latency. Cuts every path
    between its two sides.

    Resources: ``depth`` payloads in distributed RAM, or in block RAM; a payload of registers if
    ``registered``.

    Parameters
    ----------
    shape : ShapeLike
        Payload.
    depth : int
        Number of payloads held.
    block_ram : bool
        Read the memory synchronously.
    registered : bool
        With ``block_ram``: registers follow the memory, whose own output is slow.
    reserved : bool
        With ``block_ram``: whoever puts something in has made sure that there is room for it, so
        nothing is counted, and ``i.ready`` is always high.

    Members
    -------
    i : In(stream), o : Out(stream)

    Raises
    ------
    TypeError, ValueError
        If ``depth`` is no integer of at least 1, or ``reserved`` goes with no block RAM.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(
        self,
        shape,
        *,
        depth: int,
        block_ram: bool = False,
        registered: bool = False,
        reserved: bool = False,
    ) -> None:
        self._shape = shape
        self._depth = check_int("Depth", depth, 1)
        if reserved and not (block_ram and self._depth > 1):
            raise ValueError(f"A reserved queue needs block RAM and depth 2 or more, not {depth!r}")
        self._block_ram = block_ram
        self._registered = registered
        self._reserved = reserved
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform) -> Module:
        m = Module()
        if self._block_ram and self._depth > 1:
            self._block(m)
            return m
        m.submodules.fifo = fifo = SyncFIFO(width=Shape.cast(self._shape).width, depth=self._depth)
        m.d.comb += [
            fifo.w_data.eq(self.i.payload),
            fifo.w_en.eq(self.i.valid),
            self.i.ready.eq(fifo.w_rdy),
            Value.cast(self.o.payload).eq(fifo.r_data),
            self.o.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.o.ready),
        ]
        return m

    def _block(self, m: Module) -> None:
        # A power of two of words, so that the pointers wrap by themselves.
        bits = ceil_log2(self._depth)
        # No word is read in the cycle of its write, so nothing need be built for that case.
        m.submodules.memory = memory = Memory(  # pyright: ignore[reportCallIssue]  # stubs: strings only
            shape=unsigned(Shape.cast(self._shape).width),
            depth=1 << bits,
            init=[],
            attrs={"no_rw_check": 1, "ram_style": "block"},  # pyright: ignore[reportArgumentType]
        )
        write, read = memory.write_port(), memory.read_port()
        push, pop, fetch = Signal(), Signal(), Signal()
        if self._reserved:
            m.d.comb += self.i.ready.eq(1)
        else:
            level = Signal(range(self._depth + 1))
            m.d.comb += self.i.ready.eq(level != self._depth)
            with m.If(push != pop):
                m.d.sync += level.eq(level + Cat(C(1, 1), pop.replicate(len(level) - 1)))
        m.d.comb += [
            push.eq(self.i.valid & self.i.ready),
            pop.eq(self.o.valid & self.o.ready),
            write.en.eq(push),
            write.data.eq(self.i.payload),
        ]
        with m.If(push):
            m.d.sync += write.addr.eq(write.addr + 1)
        fetched_valid, fetched_free = Signal(), Signal()
        # Equal pointers mean empty: with a full memory's worth, the output holds one of the words.
        m.d.comb += [
            fetch.eq((write.addr != read.addr) & fetched_free),
            read.en.eq(fetch),
        ]
        with m.If(fetch):
            m.d.sync += read.addr.eq(read.addr + 1)
        with m.If(fetched_free):
            m.d.sync += fetched_valid.eq(fetch)
        out_free = ~self.o.valid | self.o.ready
        payload = Value.cast(self.o.payload)
        if not self._registered:
            m.d.comb += [
                payload.eq(read.data),
                self.o.valid.eq(fetched_valid),
                fetched_free.eq(out_free),
            ]
            return
        shown = Signal(len(read.data), reset_less=True)
        m.d.comb += [payload.eq(shown), fetched_free.eq(~fetched_valid | out_free)]
        with m.If(out_free):
            m.d.sync += [shown.eq(read.data), self.o.valid.eq(fetched_valid)]
