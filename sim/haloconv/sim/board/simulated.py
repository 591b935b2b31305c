"""Whole boards in the simulator, reached over their serial line bit by bit."""

from typing import Any

from amaranth.hdl import ClockDomain, Module
from amaranth.sim import Simulator

from haloconv.sim.board.serial_line import LineReceiver, LineSender

__all__ = ["QUIET_BYTES", "SimulatedBoard"]

QUIET_BYTES = 40
"""Bytes' time without anything after which a line counts as quiet."""


class SimulatedBoard:
    """A board's system in Amaranth's simulator, as a transport of the host program.

    Time passes only while bytes are waited for.

    Parameters
    ----------
    system : BoardSystem
        Or another component with ``rx`` and ``tx``.
    bit_cycles : int
        Clock cycles of a bit.
    clock_hz : float
    gaps : int
        Most idle cycles between two bytes that are sent, drawn at random.
    seed : int
        Of the gaps.
    """

    def __init__(
        self,
        system: Any,
        *,
        bit_cycles: int,
        clock_hz: float = 1e6,
        gaps: int = 0,
        seed: int = 0,
    ) -> None:
        self._clock_hz = clock_hz
        self._quiet = 10 * bit_cycles * QUIET_BYTES
        self._sender = LineSender(bit_cycles, gaps=gaps, seed=seed)
        self._receiver = LineReceiver(bit_cycles)
        self._came = bytearray()
        self._last = 0
        self.cycle = 0
        """Clock cycles so far."""
        top = Module()
        domain: Any = ClockDomain("sync")
        top.domains.sync = domain
        top.submodules.system = system

        async def line(ctx: Any) -> None:
            ctx.set(domain.rst, 1)
            for _ in range(2):
                await ctx.tick()
            ctx.set(domain.rst, 0)
            level = 1
            async for _, _, tx in ctx.tick().sample(system.tx):
                self.cycle += 1
                byte = self._receiver.step(tx)
                if byte is not None:
                    self._came.append(byte)
                if byte is not None or not tx or not self._sender.idle:
                    self._last = self.cycle
                new = self._sender.step()
                if new != level:
                    level = new
                    ctx.set(system.rx, level)

        self._simulator = Simulator(top)
        self._simulator.add_clock(1e-8)
        self._simulator.add_process(line)

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._sender.send(data)
        self._last = self.cycle

    def read(self, count: int) -> bytes:
        """Return ``count`` bytes, or fewer once the line has been quiet for long."""
        while len(self._came) < count and self.cycle - self._last < self._quiet:
            self._simulator.advance()
        data = bytes(self._came[:count])
        del self._came[:count]
        if len(data) < count:
            self._last = self.cycle  # the next wait is as long
        return data

    def drain(self) -> None:
        """Throw away what comes in until the line is quiet."""
        while self.read(1 << 20):
            pass

    def seconds(self) -> float:
        """Return the time that passed for the board."""
        return self.cycle / self._clock_hz

    def close(self) -> None:
        """Do nothing; there is no line to let go of."""
