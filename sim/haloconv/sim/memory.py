"""Memory behind the engine's ports: latency, random stalls, bus errors and protocol checks.

The same model exists a second time in ``harness/haloconv_memory.h`` for the compiled simulators.
The two agree cycle for cycle, random numbers included, so every backend counts the same cycles.
A change of behaviour here has to be made there too; ``tests/sim/test_backends.py`` compares them.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, SupportsIndex

import numpy as np
from amaranth.hdl import Value

from haloconv.planner.validate import check_int, check_ints
from haloconv.rtl.ports import BURST_BEATS, BURST_BYTES
from haloconv.sim.errors import SimulationError

__all__ = [
    "MemoryModel",
    "MemoryTraffic",
    "ProtocolError",
    "StallGenerator",
    "Violation",
    "memory_process",
    "most_stalled",
    "stall_thresholds",
    "violation_message",
]

Stalls = float | Sequence[float]
"""Share of cycles in which a port stalls: one for all ports, or (request, data, write)."""


class ProtocolError(SimulationError):
    """The device under test broke the rules of a memory port; names the cycle and the port."""


class Violation(IntEnum):
    """Rules that the model checks; the numbers are shared with the compiled harness."""

    NONE = 0
    REQUEST_FELL = 1
    REQUEST_CHANGED = 2
    REQUEST_BEATS = 3
    REQUEST_UNALIGNED = 4
    REQUEST_CROSSES = 5
    WRITE_FELL = 6
    WRITE_CHANGED = 7
    WRITE_UNALIGNED = 8


_MESSAGES = {
    Violation.REQUEST_FELL: "read_request.valid fell before the request was accepted",
    Violation.REQUEST_CHANGED: "read_request.payload changed before the request was accepted "
    "(now address {address:#x}, {beats} beats)",
    Violation.REQUEST_BEATS: "read_request.payload.beats must be 1.."
    f"{BURST_BEATS}, not {{beats}} (address {{address:#x}})",
    Violation.REQUEST_UNALIGNED: "read_request.payload.address must be a multiple of the "
    "{bus_bytes}-byte bus width, not {address:#x}",
    Violation.REQUEST_CROSSES: "read_request of {beats} beats at {address:#x} must not cross a "
    f"multiple of {BURST_BYTES} bytes",
    Violation.WRITE_FELL: "write.valid fell before the beat was accepted",
    Violation.WRITE_CHANGED: "write.payload changed before the beat was accepted "
    "(now address {address:#x})",
    Violation.WRITE_UNALIGNED: "write.payload.address must be a multiple of the "
    "{bus_bytes}-byte bus width, not {address:#x}",
}


def violation_message(
    violation: Violation, *, cycle: int, address: int, beats: int, bus_bytes: int
) -> str:
    """Return the sentence that tells a violation, the same for every backend."""
    text = _MESSAGES[violation].format(address=address, beats=beats, bus_bytes=bus_bytes)
    return f"In cycle {cycle} {text}"


_MASK = 0xFFFFFFFF


class StallGenerator:
    """Xorshift32 random numbers that decide, once a cycle, whether a port stalls.

    Parameters
    ----------
    seed : int
        0..2**32-1.
    port : int
        Each port draws its own numbers: 0 read request, 1 read data, 2 write.
    threshold : int
        The port stalls when the 32-bit draw is below it; 0 never stalls, 2**32 always.
    """

    __slots__ = ("_state", "_threshold")

    def __init__(self, seed: int, port: int, threshold: int) -> None:
        # Neighbouring seeds and ports start far apart: MurmurHash3's finaliser mixes all bits.
        x = (seed + 0x9E3779B9 * (port + 1)) & _MASK
        x ^= x >> 16
        x = (x * 0x85EBCA6B) & _MASK
        x ^= x >> 13
        x = (x * 0xC2B2AE35) & _MASK
        x ^= x >> 16
        self._state = x or 1  # zero is the one state xorshift never leaves
        self._threshold = threshold

    def draw(self) -> bool:
        """Step the generator and return True when the port stalls in this cycle."""
        x = self._state
        x ^= (x << 13) & _MASK
        x ^= x >> 17
        x ^= (x << 5) & _MASK
        self._state = x
        return x < self._threshold


def stall_thresholds(stalls: Stalls) -> tuple[int, int, int]:
    """Turn shares of stalled cycles into 32-bit thresholds for (request, data, write).

    Raises
    ------
    TypeError
        If ``stalls`` is neither a number nor three numbers.
    ValueError
        If a share lies outside [0, 1] or there are not three.
    """
    if isinstance(stalls, (int, float, np.floating)) and not isinstance(stalls, bool):
        shares: tuple[Any, ...] = (stalls,) * 3
    elif isinstance(stalls, Iterable) and not isinstance(stalls, (str, bytes)):
        shares = tuple(stalls)
    else:
        raise TypeError(f"Stalls must be a share of cycles or three shares, not {stalls!r}")
    if len(shares) != 3:
        raise ValueError(f"Stalls must be one or three shares of cycles, not {stalls!r}")
    for share in shares:
        if isinstance(share, bool) or not isinstance(share, (int, float, np.floating)):
            raise TypeError(f"Stalls must be a share of cycles or three shares, not {stalls!r}")
        if not 0 <= share <= 1:
            raise ValueError(f"Stalls must be between 0 and 1, not {share!r}")
    request, beat, write = (int(float(share) * 2**32) for share in shares)
    return request, beat, write


def most_stalled(stalls: Stalls) -> float:
    """Return the largest share of stalled cycles of a run that has to finish.

    Raises
    ------
    TypeError, ValueError
        As :func:`stall_thresholds`, and for a port that always stalls.
    """
    share = max(stall_thresholds(stalls)) / 2**32
    if share >= 1:
        raise ValueError(f"Stalls must be below 1 for a run to finish, not {stalls!r}")
    return share


@dataclass(frozen=True)
class MemoryTraffic:
    """What passed through the memory ports, counted by the model and not by the engine."""

    requests: int
    read_beats: int
    write_beats: int
    written_bytes: int
    """Bytes whose strobe was set, in beats that did not fail."""


class _Burst:
    """An accepted read request and the bytes that memory held at that moment."""

    __slots__ = ("address", "beats", "data", "position", "release")

    def __init__(self, release: int, address: int, beats: int, data: bytes) -> None:
        self.release = release
        self.address = address
        self.beats = beats
        self.data = data
        self.position = 0


class MemoryModel:
    """Byte memory with one read and one write port, stepped once a clock cycle.

    All outputs of a cycle are known before it starts (they follow from earlier cycles and from
    the random numbers only), so no combinational path leads through the model.

    Timing: a request accepted in cycle t has its first beat no earlier than cycle t + latency;
    beats come in order, at most one a cycle, and stay valid until accepted. Read data is what the
    memory holds when the request is accepted, before a write of the same cycle: an engine that
    reads its own results has to wait for the write. Writes apply when accepted. A failed write
    raises ``write_error`` in the next cycle.

    Parameters
    ----------
    image : bytes, bytearray or numpy.ndarray of uint8
        Initial content; the model works on a copy.
    address_bits, bus_bytes : int
        Of the memory port.
    base : int
        Address of the first byte of the image, a multiple of ``bus_bytes``.
    latency : int
        Cycles, at least 1.
    stalls : float or (request, data, write)
        Share of cycles, 0 to 1, in which a port stalls at random.
    seed : int
        Of the random stalls, 0..2**32-1.
    outstanding : int or None
        Most requests that are accepted but not fully answered; None for no limit.
    faults : iterable of (start, end)
        Byte ranges, end excluded, that answer with bus errors.

    Attributes
    ----------
    request_ready, data_valid, data, data_error, write_ready, write_error : int
        What the model drives in the present cycle. ``data`` holds its value while not valid.
    cycle : int
        Number of the present cycle, from 0.

    Raises
    ------
    TypeError, ValueError
        For arguments outside these bounds.
    """

    def __init__(
        self,
        image: bytes | bytearray | np.ndarray,
        *,
        address_bits: int,
        bus_bytes: int,
        base: int = 0,
        latency: int = 16,
        stalls: Stalls = 0.0,
        seed: int = 0,
        outstanding: int | None = None,
        faults: Iterable[Sequence[SupportsIndex]] = (),
    ) -> None:
        self._bytes = bytearray(image_bytes(image))
        self._address_bits = check_int("Address bits", address_bits, 1, 64)
        self._bus_bytes = check_int("Bus bytes", bus_bytes, 1, 256)
        self._base = check_base(base, self._bus_bytes)
        self._latency = check_int("Latency", latency, 1, 2**31 - 1)
        thresholds = stall_thresholds(stalls)
        seed = check_int("Seed", seed, 0, _MASK)
        self._outstanding = check_outstanding(outstanding)
        self._faults = check_faults(faults)
        self._stalls = [StallGenerator(seed, port, t) for port, t in enumerate(thresholds)]
        self._bursts: deque[_Burst] = deque()
        self._in_flight = 0
        self._beats_owed = 0
        self._last = False
        self._full_strobe = (1 << self._bus_bytes) - 1
        self._held_request: tuple[int, int] | None = None
        self._held_write: tuple[int, int, int] | None = None
        self._requests = 0
        self._read_beats = 0
        self._write_beats = 0
        self._written_bytes = 0
        self.cycle = 0
        self.request_ready = 0
        self.data_valid = 0
        self.data = 0
        self.data_error = 0
        self.write_ready = 0
        self.write_error = 0
        self._drive()

    @property
    def bus_bytes(self) -> int:
        """Width of the memory port, bytes."""
        return self._bus_bytes

    @property
    def memory(self) -> np.ndarray:
        """Copy of the content, uint8."""
        return np.frombuffer(bytes(self._bytes), dtype=np.uint8).copy()

    @property
    def traffic(self) -> MemoryTraffic:
        """What has passed so far."""
        return MemoryTraffic(
            self._requests, self._read_beats, self._write_beats, self._written_bytes
        )

    @property
    def beats_owed(self) -> int:
        """Read beats of accepted requests that the device has not accepted yet."""
        return self._beats_owed

    def step(
        self,
        request_valid: int,
        request_address: int,
        request_beats: int,
        data_ready: int,
        write_valid: int,
        write_address: int,
        write_data: int,
        write_strobe: int,
    ) -> None:
        """End the present cycle with what the device drove in it, and begin the next.

        Raises
        ------
        ProtocolError
            If the device broke the rules of a port.
        """
        if self._held_request is not None:
            if not request_valid:
                self._violate(Violation.REQUEST_FELL, *self._held_request)
            if self._held_request != (request_address, request_beats):
                self._violate(Violation.REQUEST_CHANGED, request_address, request_beats)
        elif request_valid:
            self._check_request(request_address, request_beats)
        if self._held_write is not None:
            if not write_valid:
                self._violate(Violation.WRITE_FELL, self._held_write[0])
            if self._held_write != (write_address, write_data, write_strobe):
                self._violate(Violation.WRITE_CHANGED, write_address)
        elif write_valid and write_address % self._bus_bytes:
            self._violate(Violation.WRITE_UNALIGNED, write_address)

        self._held_request = None
        if request_valid:
            if self.request_ready:
                self._accept_request(request_address, request_beats)
            else:
                self._held_request = (request_address, request_beats)
        if self.data_valid and data_ready:
            self.data_valid = 0
            self._read_beats += 1
            self._beats_owed -= 1
            self._in_flight -= self._last
        self.write_error = 0
        self._held_write = None
        if write_valid:
            if self.write_ready:
                self._accept_write(write_address, write_data, write_strobe)
            else:
                self._held_write = (write_address, write_data, write_strobe)

        self.cycle += 1
        self._drive()

    def _drive(self) -> None:
        request_stall, data_stall, write_stall = self._stalls
        self.request_ready = int(
            not request_stall.draw()
            and (self._outstanding is None or self._in_flight < self._outstanding)
        )
        stalled = data_stall.draw()
        if not self.data_valid and self._bursts and not stalled:
            burst = self._bursts[0]
            if burst.release <= self.cycle:
                offset = burst.position * self._bus_bytes
                self.data_valid = 1
                self.data = int.from_bytes(burst.data[offset : offset + self._bus_bytes], "little")
                self.data_error = int(self._fails(burst.address + offset))
                if self.data_error:
                    self.data = 0
                burst.position += 1
                self._last = burst.position == burst.beats
                if self._last:
                    self._bursts.popleft()
        self.write_ready = int(not write_stall.draw())

    def _check_request(self, address: int, beats: int) -> None:
        if not 1 <= beats <= BURST_BEATS:
            self._violate(Violation.REQUEST_BEATS, address, beats)
        if address % self._bus_bytes:
            self._violate(Violation.REQUEST_UNALIGNED, address, beats)
        if address % BURST_BYTES + beats * self._bus_bytes > BURST_BYTES:
            self._violate(Violation.REQUEST_CROSSES, address, beats)

    def _accept_request(self, address: int, beats: int) -> None:
        start = address - self._base
        length = beats * self._bus_bytes
        if start >= 0:
            content = bytes(self._bytes[start : start + length])
        else:
            # The part below the image answers with errors, so only its length matters.
            content = bytes(min(-start, length)) + bytes(self._bytes[: max(0, start + length)])
        self._bursts.append(_Burst(self.cycle + self._latency, address, beats, content))
        self._in_flight += 1
        self._beats_owed += beats
        self._requests += 1

    def _accept_write(self, address: int, value: int, strobe: int) -> None:
        self._write_beats += 1
        start = address - self._base
        room = len(self._bytes) - start
        if self._fails(address) or (room < self._bus_bytes and strobe >> room):
            self.write_error = 1
            return
        if strobe == self._full_strobe:
            self._bytes[start : start + self._bus_bytes] = value.to_bytes(self._bus_bytes, "little")
        else:
            for lane in range(self._bus_bytes):
                if strobe >> lane & 1:
                    self._bytes[start + lane] = value >> 8 * lane & 0xFF
        self._written_bytes += strobe.bit_count()

    def _fails(self, address: int) -> bool:
        """Whether the beat at ``address`` starts outside the image or meets a fault."""
        if not 0 <= address - self._base < len(self._bytes):
            return True
        return any(
            start < address + self._bus_bytes and address < end for start, end in self._faults
        )

    def _violate(self, violation: Violation, address: int, beats: int = 0) -> None:
        raise ProtocolError(
            violation_message(
                violation,
                cycle=self.cycle,
                address=address,
                beats=beats,
                bus_bytes=self._bus_bytes,
            )
        )


def image_bytes(image: bytes | bytearray | np.ndarray) -> bytes:
    """Return a memory image as bytes.

    Raises
    ------
    TypeError
        If it is neither bytes nor a one-dimensional uint8 array.
    """
    if isinstance(image, (bytes, bytearray)):
        return bytes(image)
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 1:
        return image.tobytes()
    what = f"{image.ndim}-d {image.dtype}" if isinstance(image, np.ndarray) else repr(image)
    raise TypeError(f"Memory image must be bytes or a 1-d uint8 array, not {what}")


def check_base(base: SupportsIndex, bus_bytes: int) -> int:
    """Return the address of the image's first byte, a multiple of the bus width."""
    base = check_int("Base address", base, 0, 2**64 - 1)
    if base % bus_bytes:
        raise ValueError(f"Base address must be a multiple of {bus_bytes} bytes, not {base:#x}")
    return base


def check_outstanding(outstanding: SupportsIndex | None) -> int | None:
    """Return the limit of outstanding requests, at least 1, or None."""
    return None if outstanding is None else check_int("Outstanding requests", outstanding, 1)


def check_faults(faults: Iterable[Sequence[SupportsIndex]]) -> tuple[tuple[int, int], ...]:
    """Return the faulty byte ranges as (start, end) pairs of ints, end excluded."""
    ranges: list[tuple[int, int]] = []
    for fault in faults:
        start, end = check_ints("Fault range", fault, 2, 0, 2**64 - 1)
        if start >= end:
            raise ValueError(f"Fault range must be (start, end) with start < end, not {fault!r}")
        ranges.append((start, end))
    return tuple(ranges)


_ABSENT = Value.cast(0)


def memory_process(
    model: MemoryModel,
    *,
    read_request: Any = None,
    read_data: Any = None,
    write: Any = None,
    write_error: Any = None,
) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """Return a process for ``Simulator.add_process`` that serves ports from a memory model.

    A block with only a read or only a write side is served by leaving the other ports out.
    For a component with a port of ``MemorySignature`` named ``memory`` write
    ``memory_process(model, read_request=dut.memory.read_request, ...)``.

    Parameters
    ----------
    model : MemoryModel
    read_request, read_data, write : stream.Interface
        As the device under test owns them: requests and writes flow out of it.
    write_error : Signal
    """
    sampled = [
        _ABSENT if read_request is None else read_request.valid,
        _ABSENT if read_request is None else read_request.payload.address,
        _ABSENT if read_request is None else read_request.payload.beats,
        _ABSENT if read_data is None else read_data.ready,
        _ABSENT if write is None else write.valid,
        _ABSENT if write is None else write.payload.address,
        _ABSENT if write is None else write.payload.data,
        _ABSENT if write is None else write.payload.strobe,
    ]
    driven: list[tuple[str, Any]] = []
    if read_request is not None:
        driven.append(("request_ready", read_request.ready))
    if read_data is not None:
        driven += [
            ("data_valid", read_data.valid),
            ("data", read_data.payload.data),
            ("data_error", read_data.payload.error),
        ]
    if write is not None:
        driven.append(("write_ready", write.ready))
    if write_error is not None:
        driven.append(("write_error", write_error))

    async def serve(ctx: Any) -> None:
        levels = {}
        for name, signal in driven:
            levels[name] = getattr(model, name)
            ctx.set(signal, levels[name])
        async for _, _, *values in ctx.tick().sample(*sampled):
            model.step(*values)
            for name, signal in driven:
                level = getattr(model, name)
                if levels[name] != level:
                    levels[name] = level
                    ctx.set(signal, level)

    return serve
