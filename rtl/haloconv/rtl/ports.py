"""Ports of the engine: memory read, memory write and control registers."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.validate import check_int

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


def _address_bits(value: int) -> int:
    return check_int("Address bits", value, 1)


def _bus_bytes(value: int) -> int:
    count = check_int("Bus bytes", value, 1)
    if count & (count - 1):
        raise ValueError(f"Bus bytes must be a power of two, not {count}")
    return count


class ReadRequest(data.StructLayout):
    """Bytes to read: ``address`` of the first beat (bus aligned), ``beats`` 1..256."""

    def __init__(self, address_bits: int) -> None:
        super().__init__({"address": unsigned(_address_bits(address_bits)), "beats": unsigned(9)})


class ReadData(data.StructLayout):
    """One beat read; ``error`` marks a beat that the bus could not deliver."""

    def __init__(self, bus_bytes: int) -> None:
        super().__init__({"data": unsigned(8 * _bus_bytes(bus_bytes)), "error": unsigned(1)})


class WriteBeat(data.StructLayout):
    """One beat to write: bus aligned ``address``, ``data``, and ``strobe``, a bit for each byte."""

    def __init__(self, address_bits: int, bus_bytes: int) -> None:
        super().__init__(
            {
                "address": unsigned(_address_bits(address_bits)),
                "data": unsigned(8 * _bus_bytes(bus_bytes)),
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

    Raises
    ------
    TypeError, ValueError
        If ``address_bits`` is no integer of at least 1 or ``bus_bytes`` no power of two.
    """

    def __init__(self, address_bits: int, bus_bytes: int) -> None:
        self._address_bits = _address_bits(address_bits)
        self._bus_bytes = _bus_bytes(bus_bytes)
        super().__init__(
            {
                "read_request": Out(stream.Signature(ReadRequest(address_bits))),
                "read_data": In(stream.Signature(ReadData(bus_bytes))),
                "write": Out(stream.Signature(WriteBeat(address_bits, bus_bytes))),
                "write_error": In(1),
            }
        )

    @property
    def address_bits(self) -> int:
        """Width of addresses."""
        return self._address_bits

    @property
    def bus_bytes(self) -> int:
        """Width of both data streams."""
        return self._bus_bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySignature) and (self.address_bits, self.bus_bytes) == (
            other.address_bits,
            other.bus_bytes,
        )

    def __repr__(self) -> str:
        return f"MemorySignature({self.address_bits}, {self.bus_bytes})"


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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RegisterSignature)

    def __repr__(self) -> str:
        return "RegisterSignature()"
