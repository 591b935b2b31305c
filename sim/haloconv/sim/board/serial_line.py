"""The far end of a serial line, level by level: one start bit, eight data bits, one stop bit."""

import random
from collections import deque

from haloconv.sim.errors import SimulationError

__all__ = ["LineError", "LineReceiver", "LineSender"]


class LineError(SimulationError):
    """A device sent something that is no byte; names the cycle."""


class LineSender:
    """Levels of a line that bytes are sent on.

    Parameters
    ----------
    cycles : int
        Clock cycles of a bit.
    gaps : int
        Most idle cycles between two bytes, drawn at random.
    seed : int
        Of the gaps.
    """

    def __init__(self, cycles: int, *, gaps: int = 0, seed: int = 0) -> None:
        self._cycles = cycles
        self._gaps = gaps
        self._random = random.Random(seed)
        self._bytes: deque[int] = deque()
        self._bits: list[int] = []
        self._left = 0
        self._level = 1

    @property
    def idle(self) -> bool:
        """Whether everything was sent."""
        return not self._bytes and not self._bits and self._left == 0

    def send(self, data: bytes) -> None:
        """Queue bytes."""
        self._bytes.extend(data)

    def step(self) -> int:
        """Return the level of the next cycle."""
        if self._left == 0:
            if self._bits:
                self._level = self._bits.pop(0)
                self._left = self._cycles
            elif self._bytes:
                byte = self._bytes.popleft()
                self._bits = [0, *(byte >> bit & 1 for bit in range(8)), 1]
                self._level = 1
                self._left = self._random.randint(0, self._gaps) if self._gaps else 0
                if self._left == 0:
                    return self.step()
            else:
                self._level = 1
                return 1
        self._left -= 1
        return self._level


class LineReceiver:
    """Bytes from the levels of a line whose bits are exactly ``cycles`` long.

    Parameters
    ----------
    cycles : int
    """

    def __init__(self, cycles: int) -> None:
        self._cycles = cycles
        self._levels: list[int] = []
        self._cycle = 0

    def step(self, level: int) -> int | None:
        """Take the level of a cycle, and return a byte at the end of its stop bit.

        Raises
        ------
        LineError
            If a bit changes on the way or the stop bit is missing.
        """
        self._cycle += 1
        if not self._levels and level:
            return None
        self._levels.append(level)
        at = len(self._levels) - 1
        if at % self._cycles and level != self._levels[-2]:
            raise LineError(
                f"In cycle {self._cycle} the line changed within bit {at // self._cycles}"
            )
        if len(self._levels) < 10 * self._cycles:
            return None
        bits = self._levels[:: self._cycles]
        self._levels = []
        if not bits[9]:
            raise LineError(f"In cycle {self._cycle} a stop bit was low")
        return sum(bit << place for place, bit in enumerate(bits[1:9]))
