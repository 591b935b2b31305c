"""Ports of the engine: memory read, memory write and control registers."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = [
    "BURST_BEATS",
    "BURST_BYTES",
    "MemorySignature",
    "ReadData",
    "ReadRequest",
    "RegisterSignature",
    "WriteBeat",
]

BURST_BEATS = 256
"""Most beats of one read request, as AXI4 allows."""
BURST_BYTES = 4096
"""No read request crosses a multiple of this address, as AXI4 demands."""


class ReadRequest(data.StructLayout):
    """Bytes to read: ``address`` of the first beat (bus aligned), ``beats`` 1..256."""

    def __init__(self, address_bits: int) -> None:
        super().__init__({"address": unsigned(address_bits), "beats": unsigned(9)})


class ReadData(data.StructLayout):
    """One beat read; ``error`` marks a beat that the bus could not deliver."""

    def __init__(self, bus_bytes: int) -> None:
        super().__init__({"data": unsigned(8 * bus_bytes), "error": unsigned(1)})


class WriteBeat(data.StructLayout):
    """One beat to write: bus aligned ``address``, ``data``, and ``strobe``, a bit for each byte."""

    def __init__(self, address_bits: int, bus_bytes: int) -> None:
        super().__init__(
            {
                "address": unsigned(address_bits),
                "data": unsigned(8 * bus_bytes),
                "strobe": unsigned(bus_bytes),
            }
        )


class MemorySignature(wiring.Signature):
    """Memory side of the engine, as the engine drives it.

    Parameters
    ----------
    address_bits, bus_bytes : int

    Members
    -------
    read_request : Out(stream of ReadRequest)
        Reads are answered in the order of their requests.
    read_data : In(stream of ReadData)
        ``beats`` beats for each request.
    write : Out(stream of WriteBeat)
        A write is done once it is accepted.
    write_error : In(1)
        High for a cycle when a write accepted earlier failed.
    """

    def __init__(self, address_bits: int, bus_bytes: int) -> None:
        super().__init__(
            {
                "read_request": Out(stream.Signature(ReadRequest(address_bits))),
                "read_data": In(stream.Signature(ReadData(bus_bytes))),
                "write": Out(stream.Signature(WriteBeat(address_bits, bus_bytes))),
                "write_error": In(1),
            }
        )


class RegisterSignature(wiring.Signature):
    """Control register access, as the host drives it: 32-bit words.

    Members
    -------
    address : Out(8)
        Word index (not a byte address).
    write : Out(1)
        High for a cycle to write ``write_data`` to ``address``.
    write_data : Out(32)
    read_data : In(32)
        Word at ``address`` of the cycle before.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "address": Out(8),
                "write": Out(1),
                "write_data": Out(32),
                "read_data": In(32),
            }
        )
