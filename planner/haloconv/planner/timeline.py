"""Event by event timing of the engine's read side and of its writer.

Each event is the latest of the events it waits for (a max-plus recurrence). The schedule drives
these two timelines through the tiles of a layer.
"""

from collections import deque
from typing import Any

__all__ = ["ReadTimeline", "WriteTimeline"]

SEGMENTS_AHEAD = 64
"""Segments that the engine asks for before their bytes have come."""
BURST_BEATS = 256
BURST_BYTES = 4096


class ReadTimeline:
    """Requests, beats, and the loader's string of bytes.

    Parameters
    ----------
    bus_bytes : int
        Bytes of a beat.
    chunk : int
        Most bytes that the loader takes a cycle; the string holds a beat more.
    latency : int
        Cycles from an accepted request to its first beat.
    run_latency : int
        Cycles until it is known where the bytes of a segment lie in its beats; up to four pass
        unnoticed.
    waiting : {1, 2}
        Segments that wait for the burst splitter. One makes room in the cycle in which the
        splitter takes it, two a cycle later.
    """

    def __init__(
        self, bus_bytes: int, chunk: int, latency: int, run_latency: int = 0, waiting: int = 1
    ) -> None:
        self._bus, self._chunk = bus_bytes, chunk
        self._latency, self._run_latency, self._waiting = latency, run_latency, waiting
        self.walker_free: int = 0
        """First cycle in which the segment walker can ask again."""
        self._splitter_free: int = 0
        self._started: int = -1
        """Cycle in which the splitter took the last segment."""
        self._register_free: int = 0
        """First cycle in which the registers between walker and splitter can take a segment."""
        self._popped: deque[int] = deque(maxlen=SEGMENTS_AHEAD)
        self._accepted = self._appended = -1
        self._joined = self._taken = 0
        self._history: deque[tuple[int, int]] = deque()
        self._consumed = (0, -1)
        self._left = self._offset = 0
        self._due = 0
        self.taken_at = -1
        """Cycle of the last chunk taken."""
        self.tight: bool = False
        """Set when a segment was asked for, or taken by the splitter, in the first cycle in which
        there was room, so that a burst more or less before it, at a page's end, could have moved
        it."""

    def ask(self, address: int, length: int) -> None:
        """Ask for a segment; its bytes can then be taken."""
        asked = max(self.walker_free, self._register_free)
        if len(self._popped) == SEGMENTS_AHEAD:
            asked = max(asked, self._popped[0] + 1)
        start = max(asked + 1, self._splitter_free)
        self.tight |= asked == self._register_free or start == self._splitter_free
        self.walker_free = asked + 1
        self._register_free = start if self._waiting == 1 else self._started + 1
        self._started = start
        self._splitter_free = start + self.bursts(address, length)
        # Beats have to wait for the place of their bytes, which comes behind a queue.
        self._due = max(start + 2 + self._latency, asked + self._run_latency)
        self._left, self._offset = length, address % self._bus

    def bursts(self, address: int, length: int) -> int:
        """Return how many bursts a segment takes: none crosses a page or has too many beats."""
        page = BURST_BYTES // self._bus
        first, last = address // self._bus, (address + length - 1) // self._bus
        pages = last // page - first // page
        if not pages:
            return -(-(last + 1 - first) // BURST_BEATS)
        head, tail = page - first % page, last % page + 1
        between = (pages - 1) * -(-page // BURST_BEATS)
        return -(-head // BURST_BEATS) + between + -(-tail // BURST_BEATS)

    # The next two run millions of times; comparisons take half the time of max().

    def take(self, size: int, earliest: int) -> int:
        """Take a chunk no earlier than ``earliest``; return the cycle in which it is taken."""
        self._taken += size
        while self._joined < self._taken:
            self._beat()
        when = self.taken_at + 1
        if when < earliest:
            when = earliest
        if when <= self._appended:
            when = self._appended + 1
        self.taken_at = when
        self._history.append((self._taken, when))
        return when

    def _beat(self) -> None:
        """One more beat: accepted once due, appended once the string has room."""
        accepted = self._accepted + 1
        if accepted < self._due:
            accepted = self._due
        if accepted < self._appended:
            accepted = self._appended
        room = self._joined - self._chunk
        while self._consumed[0] < room:
            self._consumed = self._history.popleft()
        appended = accepted
        if appended < self._consumed[1]:
            appended = self._consumed[1]
        count = self._bus - self._offset
        if count > self._left:
            count = self._left
        self._offset = 0
        self._left -= count
        self._joined += count
        self._accepted, self._appended = accepted, appended + 1
        if not self._left:
            self._popped.append(accepted)

    def state(self, *, asking: bool = True) -> tuple[object, ...]:
        """Return all that decides what happens next, relative to the last chunk taken.

        Two equal states go on alike, as far as segments and addresses within a beat are alike.
        Without ``asking`` both lie in the same segment.
        """
        now, taken = self.taken_at, self._taken
        beats = (
            self._accepted - now,
            self._appended - now,
            self._joined - taken,
            max(self._due - self._accepted, 0),
            self._consumed[0] - taken,
            self._consumed[1] - now,
            tuple((count - taken, when - now) for count, when in self._history),
        )
        if not asking:
            return beats
        free = self.walker_free
        # Events that the walker has left behind do not hold it any more.
        waits = tuple(max(popped + 1 - free, 0) for popped in self._popped)
        missing = (0,) * (SEGMENTS_AHEAD - len(waits))
        return (free - now, *self._holds(free), missing + waits, *beats)

    def _holds(self, free: int) -> tuple[int, int, int]:
        """How long registers and splitter hold up a walker that is free then, and its segments."""
        return (
            max(self._register_free - free, 0),
            max(self._started - free, 0),
            max(self._splitter_free - free - 1, 0),
        )

    def jump(self, cycles: int, taken: int, *, asking: bool = True) -> None:
        """Move all events ``cycles`` later, with ``taken`` more bytes passed on the way.

        Without ``asking`` the bytes are of the segment at hand, and only beats and chunks move.
        """
        if asking:
            self.walker_free += cycles
            self._register_free += cycles
            self._started += cycles
            self._splitter_free += cycles
            self._popped = deque((t + cycles for t in self._popped), maxlen=SEGMENTS_AHEAD)
        self._accepted += cycles
        self._appended += cycles
        self._joined += taken
        self._taken += taken
        self._history = deque((count + taken, t + cycles) for count, t in self._history)
        self._consumed = (self._consumed[0] + taken, self._consumed[1] + cycles)
        self._due += cycles
        self.taken_at += cycles
        if self._left:
            self._left -= taken

    def outlook(self, at: int) -> tuple[object, ...]:
        """Return all that decides the segments to come, no chunk of which is taken before ``at``.

        Everything asked for has been taken. Events too early to hold anything up are left out.
        """
        free, taken = self.walker_free, self._taken
        due = free + 3 + self._latency  # No beat to come is accepted before.
        held = ((count - taken, when - due) for count, when in self._history if when > due)
        consumed, when = self._consumed
        return (
            free - at,
            *self._holds(free),
            tuple(popped - free for popped in self._popped if popped >= free),
            max(self._accepted + 1 - due, 0),
            max(self._appended - due, 0),
            max(self.taken_at + 1 - at, 0),
            (consumed - taken, when - due) if when > due else None,
            tuple(held),
        )

    def save(self, at: int) -> tuple[object, ...]:
        """Return the events relative to ``at``; everything asked for has been taken."""
        free, taken = self.walker_free, self._taken
        history = [(count - taken, when - at) for count, when in (self._consumed, *self._history)]
        popped = [when - at for when in self._popped if when >= free]
        times = (
            free, self._register_free, self._started, self._splitter_free, self._accepted,
            self._appended, self.taken_at,
        )  # fmt: skip
        return tuple(when - at for when in times), popped, history

    def restore(self, saved: Any, at: int) -> None:
        """Put the events of :meth:`save` in place of these, relative to another ``at``."""
        times, popped, history = saved
        (
            self.walker_free, self._register_free, self._started, self._splitter_free,
            self._accepted, self._appended, self.taken_at,
        ) = (when + at for when in times)  # fmt: skip
        self._popped = deque((when + at for when in popped), maxlen=SEGMENTS_AHEAD)
        taken = self._taken
        self._history = deque((count + taken, when + at) for count, when in history)
        self._consumed = self._history.popleft()


class WriteTimeline:
    """Result rows become beats.

    Parameters
    ----------
    bus_bytes : int
        Bytes of a beat.
    """

    def __init__(self, bus_bytes: int) -> None:
        self._bus = bus_bytes
        self.free: int = 0
        """First cycle in which the writer can take a piece."""
        self._busy: int = 0
        """First cycle in which a piece can be merged."""
        self._held: int | None = None
        self.popped_at = -1
        """Cycle in which the last row was taken."""

    def row(self, available: int, address: int, size: int) -> int:
        """Take ``size`` bytes of results for ``address``; return the cycle of the last piece."""
        bus = self._bus
        when = max(available, self.free)
        done = 0
        while True:
            count = min(size - done, bus)
            beat, offset = divmod(address + done, bus)
            end = offset + count
            cost = 1
            if self._held is not None and self._held != beat:
                if end > bus:
                    cost, self._held = 2, beat + 1
                else:
                    self._held = beat
            elif end >= bus:
                self._held = beat + 1 if end > bus else None
            else:
                self._held = beat
            done += count
            # Two cycles later it is merged, and lets the next but one in the cycle before.
            merged = max(when + 2, self._busy)
            self._busy = merged + cost
            self.free = merged - 1
            if done == size:
                self.popped_at = when
                return when
            when = self.free

    def next_tile(self, visible: int) -> int:
        """Take the address of the next tile; return the cycle in which it leaves its queue."""
        taken = max(self.popped_at + 1, visible)
        self.free = max(self.free, taken + 1)
        return taken

    @property
    def idle_at(self) -> int:
        """Cycle in which everything has been written."""
        return self._busy + (1 if self._held is None else 2)

    def state(self, now: int, beat: int) -> tuple[object, ...]:
        """Return all that decides what happens next, relative to a cycle and a beat's number."""
        held = None if self._held is None else self._held - beat
        return (self.free - now, self.popped_at - now, self._busy - now, held)

    def outlook(self, at: int, beat: int) -> tuple[object, ...]:
        """Return all that decides the rows to come, the first of which goes to ``beat``.

        None is available before ``at``.
        """
        held = None if self._held is None else self._held == beat
        return max(self.free - at, 0), max(self._busy - 2 - at, 0), held

    def save(self, at: int, beat: int) -> tuple[int, int, int, int | None]:
        """Return the events relative to a cycle and a beat's number."""
        held = None if self._held is None else self._held - beat
        return self.free - at, self.popped_at - at, self._busy - at, held

    def restore(self, saved: tuple[int, int, int, int | None], at: int, beat: int) -> None:
        """Put the events of :meth:`save` in place of these, relative to another cycle and beat."""
        free, popped, busy, held = saved
        self.free, self.popped_at, self._busy = free + at, popped + at, busy + at
        self._held = None if held is None else held + beat

    def jump(self, cycles: int, beats: int) -> None:
        """Move all events ``cycles`` later, ``beats`` further in memory."""
        self.free += cycles
        self.popped_at += cycles
        self._busy += cycles
        if self._held is not None:
            self._held += beats
