# amaranth: UnusedElaboratable=no
"""On-chip memory behind the engine's memory port, with a byte port for the host."""

# The storage checks its size where it is made, and is not elaborated if that fails.

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, exact_log2

from haloconv.planner.validate import check_int
from haloconv.rtl.board.storage import BlockStorage, SpramStorage
from haloconv.rtl.ports import BURST_BYTES, MemorySignature, ReadData
from haloconv.rtl.stream_fifo import StreamFifo

__all__ = ["TECHNOLOGIES", "HostMemorySignature", "OnChipMemory", "read_latency"]

TECHNOLOGIES = {"block": BlockStorage, "spram": SpramStorage}
"""Kinds of RAM by name: block RAM of any device, and the large RAMs of the iCE40 UltraPlus."""

FIFO_BEATS = 8
"""Beats on their way from block RAM: its latency, and three for the round of a place."""


def read_latency(technology: str) -> int:
    """Return the cycles from a read request of the engine to its first beat.

    One to take the request, the storage's, and one of the FIFO where there is one.
    """
    return {"block": 6, "spram": 2}[technology]


class HostMemorySignature(wiring.Signature):
    """Bytes read and written by the host, one at a time, as the host drives it.

    Members
    -------
    address : Out
        Byte; holds until the answer.
    write, read : Out(1)
        For one cycle; always accepted. Not before ``read_valid`` of the read before.
    write_data : Out(8)
    read_data : In(8), read_valid : In(1)

    Parameters
    ----------
    address_bits : int
    """

    def __init__(self, address_bits: int) -> None:
        super().__init__(
            {
                "address": Out(address_bits),
                "write": Out(1),
                "write_data": Out(8),
                "read": Out(1),
                "read_data": In(8),
                "read_valid": In(1),
            }
        )


class OnChipMemory(wiring.Component):
    """On-chip memory for an engine and its host.

    The memory does one access a cycle: the host's first, which are rare, then the engine's
    writes, then its reads. Reads of the engine beyond the end come back marked as errors, and a
    write there raises ``write_error`` in the cycle after; the host's are not checked.

    Timing: see :func:`read_latency`; a beat a cycle while nobody writes, bursts without a gap
    between them.

    Resources: the storage's, and for "block" a FIFO of 8 beats in distributed RAM, for "spram" a
    register of one beat; there ``ready`` of the read data leads to that of the request.

    Parameters
    ----------
    address_bits, bus_bytes : int
        Of the engine.
    size : int
        Bytes: whole banks of 2048 words (16384 for "spram") of ``bus_bytes``.
    technology : {"block", "spram"}

    Members
    -------
    memory : In(MemorySignature)
    host : In(HostMemorySignature)

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of bounds.
    """

    memory: Any  # members of interfaces have no static types
    host: Any

    def __init__(
        self, *, address_bits: int, bus_bytes: int, size: int, technology: str = "block"
    ) -> None:
        if technology not in TECHNOLOGIES:
            raise ValueError(
                f"Technology must be one of {', '.join(TECHNOLOGIES)}, not {technology!r}"
            )
        self._size = check_int("Size", size, 1, 1 << check_int("Address bits", address_bits, 1, 32))
        memory = MemorySignature(address_bits, bus_bytes)
        if size % bus_bytes:
            raise ValueError(f"Size must be a multiple of the bus width {bus_bytes}, not {size}")
        self._technology = technology
        self._bus_bytes, self._address_bits = bus_bytes, address_bits
        # Checks the size.
        self._storage = TECHNOLOGIES[technology](size // bus_bytes, bus_bytes)
        super().__init__(
            {"memory": In(memory), "host": In(HostMemorySignature(bits_for(size - 1)))}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        engine, host, bus = self.memory, self.host, self._bus_bytes
        shift = exact_log2(bus)
        m.submodules.storage = storage = self._storage
        port, latency = storage.port, storage.latency
        whole = self._size == 1 << self._address_bits

        # The burst that is being read.
        request = engine.read_request
        busy = Signal()
        word = Signal(self._address_bits - shift, reset_less=True)
        within = word[: exact_log2(BURST_BYTES // bus)]  # no burst leaves it
        left = Signal(9, reset_less=True)
        last, issue = Signal(), Signal()
        m.d.comb += [last.eq(left == 1), request.ready.eq(~busy | (issue & last))]
        with m.If(issue):
            m.d.sync += [within.eq(within + 1), left.eq(left - 1)]
            with m.If(last):
                m.d.sync += busy.eq(0)
        with m.If(request.valid & request.ready):
            m.d.sync += [
                busy.eq(1),
                word.eq(request.payload.address[shift:]),
                left.eq(request.payload.beats),
            ]

        # Who has the memory in this cycle.
        by_host, by_write, room = Signal(), Signal(), Signal()
        m.d.comb += [
            by_host.eq(host.write | host.read),
            engine.write.ready.eq(~by_host),
            by_write.eq(engine.write.valid & ~by_host),
            issue.eq(busy & room & ~by_host & ~engine.write.valid),
        ]
        address = Signal.like(word)
        m.d.comb += [
            address.eq(
                Mux(
                    by_host,
                    host.address[shift:],
                    Mux(engine.write.valid, engine.write.payload.address[shift:], word),
                )
            ),
            port.address.eq(address),
            port.data.eq(Mux(by_host, host.write_data.replicate(bus), engine.write.payload.data)),
            port.strobe.eq(Mux(by_host, 1 << host.address[:shift], engine.write.payload.strobe)),
            port.write.eq(host.write | by_write),
        ]
        outside = C(0, 1) if whole else Signal()
        if not whole:
            m.d.comb += outside.eq(address >= self._size // bus)
            m.d.sync += engine.write_error.eq(by_write & outside)
        m.d.comb += port.enable.eq(by_host | ((by_write | issue) & ~outside))

        # What comes out of the storage, and for whom.
        mine, failed, hosts = issue, issue & outside, host.read
        for stage in range(latency):
            tags = Signal(3, name=f"tags_{stage}")
            m.d.sync += tags.eq(Cat(mine, failed, hosts))
            mine, failed, hosts = tags
        m.d.comb += [
            host.read_valid.eq(hosts),
            host.read_data.eq(port.read_data.word_select(host.address[:shift], 8)),
        ]
        beat = Signal(ReadData(bus))
        m.d.comb += [beat.data.eq(port.read_data), beat.error.eq(failed)]
        deliver = self._hold if latency == 1 else self._queue
        deliver(m, mine, beat, issue, room)
        return m

    def _hold(self, m: Module, came: Value, beat: Any, issue: Signal, room: Signal) -> None:
        """Hand on the beat of a cycle, and hold one that is not taken."""
        o = self.memory.read_data
        held, waiting = Signal.like(o.payload, reset_less=True), Signal()
        m.d.comb += [
            o.valid.eq(came | waiting),
            o.payload.eq(Mux(came, beat, held)),
            room.eq(~o.valid | o.ready),
        ]
        m.d.sync += [held.eq(o.payload), waiting.eq(o.valid & ~o.ready)]

    def _queue(self, m: Module, came: Value, beat: Any, issue: Signal, room: Signal) -> None:
        """Keep a place of a FIFO for every beat that is on its way, so that no path is long."""
        o = self.memory.read_data
        m.submodules.fifo = fifo = StreamFifo(ReadData(self._bus_bytes), depth=FIFO_BEATS)
        m.d.comb += [fifo.i.valid.eq(came), fifo.i.payload.eq(beat)]
        wiring.connect(m, fifo.o, wiring.flipped(o))
        places = Signal(range(FIFO_BEATS + 1), init=FIFO_BEATS)
        m.d.sync += places.eq(places + (o.valid & o.ready) - issue)
        m.d.comb += room.eq(places != 0)
