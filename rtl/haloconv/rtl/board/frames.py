"""Frames of the serial link, the same for hardware and host program.

A request is SYNC, command, address (4 bytes), last, check, and for writes the bytes and a check of
them; ``last`` is the lowest byte of the last byte's address. The answer is ANSWER, status, the
bytes of a read that succeeded, check. Numbers are little endian. A check is CRC-16/MCRF4XX of what
stands between it and the SYNC, ANSWER or check before it.

The lowest byte of the address counts up modulo 256, so that a frame stays in one page.
"""

from enum import IntEnum, IntFlag

from amaranth.lib.crc import catalog

__all__ = [
    "ANSWER",
    "CHECK_BYTES",
    "HEADER_BYTES",
    "PAGE_BYTES",
    "SYNC",
    "Command",
    "Status",
    "check_bytes",
    "request",
]

SYNC = 0xA5
"""First byte of a request."""
ANSWER = 0x5A
"""First byte of an answer."""
PAGE_BYTES = 256
"""Most bytes of a frame, and the page of addresses that it stays in."""
CHECK_BYTES = 2
HEADER_BYTES = 1 + 4 + 1 + CHECK_BYTES
"""Command, address, last and check, without the SYNC."""

_CRC = catalog.CRC16_MCRF4XX()


class Command(IntFlag):
    """What a request asks for; 0 reads memory."""

    WRITE = 1
    REGISTERS = 2
    """Words of the engine's registers, at 4 bytes a word; only whole words, and one a write."""


class Status(IntEnum):
    """What became of a request."""

    OK = 0
    HEADER = 1
    """The header's check failed: nothing was done, and bytes up to the next SYNC are skipped."""
    REFUSED = 2
    """No such command, address or count: nothing was done."""
    PAYLOAD = 3
    """The check of the bytes failed: memory was written all the same, registers were not."""


def check_bytes(data: bytes) -> bytes:
    """Return the check of ``data`` as it follows them on the line."""
    return _CRC.compute(data).to_bytes(CHECK_BYTES, "little")


def request(command: int, address: int, count: int, data: bytes = b"") -> bytes:
    """Return a request: ``data`` for writes, of ``count`` bytes.

    Raises
    ------
    ValueError
        If a value does not fit its field.
    """
    if not 1 <= count <= PAGE_BYTES:
        raise ValueError(f"Count must be 1..{PAGE_BYTES}, not {count}")
    if not 0 <= address < 1 << 32:
        raise ValueError(f"Address must be 0..0xffffffff, not {address:#x}")
    header = (
        bytes([command])
        + address.to_bytes(4, "little")
        + bytes([(address + count - 1) % PAGE_BYTES])
    )
    frame = bytes([SYNC]) + header + check_bytes(header)
    return frame + data + check_bytes(data) if command & Command.WRITE else frame
