"""The host's end of a board's serial line: memory and registers, with checks and repeats."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from haloconv.rtl.board.frames import (
    ANSWER,
    CHECK_BYTES,
    HEADER_BYTES,
    PAGE_BYTES,
    Command,
    Status,
    check_bytes,
    request,
)

__all__ = ["Link", "LinkError", "LostAnswer", "SerialTransport", "Transport"]

WINDOW = 8
"""Requests that are sent before the first answer is read."""
RETRIES = 8
"""Repeats of one request before the board is given up."""
_HEAD = 2


class LinkError(ConnectionError):
    """The board does not answer, or refuses."""


class LostAnswer(LinkError):
    """A request that must not be repeated may have been done or not."""


class Transport(Protocol):
    """A serial line, as the link uses it."""

    def write(self, data: bytes) -> None:
        """Send bytes."""
        ...

    def read(self, count: int) -> bytes:
        """Return ``count`` bytes, or fewer once the line has been quiet for long."""
        ...

    def drain(self) -> None:
        """Throw away what comes in until the line is quiet."""
        ...

    def seconds(self) -> float:
        """Return the time that passes for the board."""
        ...

    def close(self) -> None:
        """Let go of the line."""
        ...


class SerialTransport:
    """A serial port.

    Parameters
    ----------
    port : str
        Such as /dev/ttyUSB1 or COM3.
    baud : int
    timeout : float
        Seconds of quiet after which the board is given up.

    Raises
    ------
    LinkError
        If the port cannot be opened or pyserial is missing.
    """

    def __init__(self, port: str, baud: int, *, timeout: float = 1.0) -> None:
        try:
            import serial
        except ImportError:
            raise LinkError(
                "a serial port needs pyserial; run pip install 'haloconv[boards]'"
            ) from None
        self._error: type[Exception] = serial.SerialException
        try:
            self._serial: Any = serial.Serial(port, baud, timeout=timeout)
        except (serial.SerialException, ValueError) as error:
            raise LinkError(f"{port} cannot be opened: {error}") from None

    def write(self, data: bytes) -> None:
        """Send bytes."""
        try:
            self._serial.write(data)
        except self._error as error:
            raise LinkError(f"the serial port failed: {error}") from None

    def read(self, count: int) -> bytes:
        """Return ``count`` bytes, or fewer once the line has been quiet for long."""
        data = bytearray()
        try:
            while len(data) < count:
                more = self._serial.read(min(count - len(data), max(1, self._serial.in_waiting)))
                if not more:
                    break
                data += more
        except self._error as error:
            raise LinkError(f"the serial port failed: {error}") from None
        return bytes(data)

    def drain(self) -> None:
        """Throw away what comes in until the line is quiet."""
        usual, self._serial.timeout = self._serial.timeout, 0.1
        try:
            while self.read(4096):
                pass
        finally:
            self._serial.timeout = usual

    def seconds(self) -> float:
        """Return the time that passes for the board."""
        return time.monotonic()

    def close(self) -> None:
        """Let go of the port."""
        self._serial.close()


@dataclass(frozen=True)
class _Request:
    frame: bytes
    answer: int
    """Bytes that a read brings."""
    what: str


class _Broken(Exception):
    """A frame was damaged on the line."""


class Link:
    """Memory and registers of a board.

    Damaged frames are repeated: the checks tell, and zeros bring the board back to its start.
    Several requests are on the line at once; since the
    board does not listen while it answers, zeros follow each for as long as the answer takes.

    Parameters
    ----------
    transport : Transport
    progress : callable or None
        Told the bytes that each batch moved.
    """

    def __init__(
        self, transport: Transport, *, progress: Callable[[int], None] | None = None
    ) -> None:
        self._transport = transport
        self.progress = progress
        self.repeats = 0
        """Batches that had to be repeated."""

    def seconds(self) -> float:
        """Return the time that passes for the board, from any start."""
        return self._transport.seconds()

    def read_memory(self, address: int, count: int) -> bytes:
        """Return bytes of memory.

        Raises
        ------
        LinkError
            If the board does not answer or refuses.
        """
        return self._read(Command(0), address, count)

    def write_memory(self, address: int, data: bytes) -> None:
        """Write bytes to memory.

        Raises
        ------
        LinkError
            If the board does not answer or refuses.
        """
        requests = []
        for at, count in _pages(address, len(data)):
            part = bytes(data[at - address : at - address + count])
            frame = request(Command.WRITE, at, count, part)
            requests.append(_Request(frame, 0, f"writing {count} bytes at {at:#x}"))
        self._exchange(requests)

    def read_registers(self, first: int, count: int = 1) -> list[int]:
        """Return words of consecutive registers.

        Raises
        ------
        LinkError
            If the board does not answer or refuses.
        """
        data = self._read(Command.REGISTERS, 4 * first, 4 * count)
        return [int.from_bytes(data[4 * k : 4 * k + 4], "little") for k in range(count)]

    def write_register(self, index: int, value: int, *, once: bool = False) -> None:
        """Write a word to a register.

        Parameters
        ----------
        index, value : int
        once : bool
            Do not repeat the request where its answer was lost, as it may have been done.

        Raises
        ------
        LostAnswer
            Only with ``once``.
        LinkError
            If the board does not answer or refuses.
        """
        command = Command.REGISTERS | Command.WRITE
        frame = request(command, 4 * index, 4, value.to_bytes(4, "little"))
        one = _Request(frame, 0, f"writing register {index}")
        if not once:
            self._exchange([one])
            return
        try:
            self._send([one])
            self._answer(one)
        except _Broken as error:
            self.recover()
            raise LostAnswer(f"{one.what}: {error}") from None

    def _read(self, command: Command, address: int, count: int) -> bytes:
        kind = "register bytes" if command else "bytes"
        return b"".join(
            self._exchange(
                [
                    _Request(request(command, at, n), n, f"reading {n} {kind} at {at:#x}")
                    for at, n in _pages(address, count)
                ]
            )
        )

    def _exchange(self, requests: Sequence[_Request]) -> list[bytes]:
        """Return the answers of requests, of which some are on the line at once.

        What was damaged is sent again, in windows half as long as before, as a line that loses a
        byte in every long one lets short ones pass.
        """
        answers: list[bytes] = []
        size, failures = WINDOW, 0
        while len(answers) < len(requests):
            window = requests[len(answers) : len(answers) + size]
            found: list[bytes] = []
            try:
                self._send(window)
                for one in window:
                    found.append(self._answer(one))
                size, failures = min(2 * size, WINDOW), 0
            except _Broken as error:
                failures = 0 if found else failures + 1
                if failures > RETRIES:
                    raise LinkError(
                        f"{window[0].what}: {error}, {failures} times over; check the port, its "
                        "rate, and that the board runs the bitstream of this build"
                    ) from None
                self.repeats += 1
                size = max(1, size // 2)
                self.recover()
            answers += found
            if self.progress is not None:
                self.progress(sum(len(one.frame) + one.answer for one in window[: len(found)]))
        return answers

    def _send(self, window: Sequence[_Request]) -> None:
        line = bytearray()
        for one in window:
            line += one.frame
            # Two bytes more, as the two clocks differ a little.
            line += bytes(_HEAD + one.answer + CHECK_BYTES + 2)
        self._transport.write(bytes(line))

    def _answer(self, one: _Request) -> bytes:
        head = self._transport.read(_HEAD)
        if not head:
            raise _Broken("the board does not answer")
        if len(head) < _HEAD or head[0] != ANSWER:
            raise _Broken(f"the answer begins with {head.hex()}")
        status = head[1]
        wanted = (one.answer if status == Status.OK else 0) + CHECK_BYTES
        rest = self._transport.read(wanted)
        data, check = rest[:-CHECK_BYTES], rest[-CHECK_BYTES:]
        if len(rest) < wanted or check_bytes(head[1:] + data) != check:
            raise _Broken("the answer is damaged")
        if status == Status.REFUSED:
            self.recover()
            raise LinkError(f"the board refuses {one.what}")
        if status != Status.OK:
            raise _Broken("the request came damaged")
        return data

    def recover(self) -> None:
        """Bring the board to the start of a request, whatever it was in."""
        self._transport.drain()
        # As many as the longest request has: they end any that was begun.
        self._transport.write(bytes(HEADER_BYTES + PAGE_BYTES + CHECK_BYTES + 1))
        self._transport.drain()


def _pages(address: int, count: int) -> list[tuple[int, int]]:
    """Return (address, count) of the parts of a range within pages."""
    parts: list[tuple[int, int]] = []
    end = address + count
    while address < end:
        more = min(end, (address // PAGE_BYTES + 1) * PAGE_BYTES)
        parts.append((address, more - address))
        address = more
    return parts
