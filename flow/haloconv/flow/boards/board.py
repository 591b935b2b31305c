"""What the build and the host program know of a board."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    Elaboratable,
    Module,
    Signal,
)
from amaranth.lib import io
from amaranth.lib.cdc import ResetSynchronizer

from haloconv.rtl.board.system import BoardSystem

__all__ = ["Board", "BoardTop", "connect_clock", "input_pin"]


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board, and what suits it where the user says nothing.

    Attributes
    ----------
    name, title : str
    family : str
        Of :data:`haloconv.flow.synthesis.FAMILIES`.
    device : str
        As its maker calls it.
    package : str
        As nextpnr calls it, empty where there is no place and route.
    speed : str
        Of the ECP5, else empty.
    platform : callable
        Returns the platform of amaranth-boards.
    top : callable
        Makes the top of a system from (system, clock in Hz).
    clock : callable
        Returns the clock in Hz that the board makes where one is asked for.
    clock_hz : float
        Where none is asked for.
    baud : int
        Of the serial line.
    technology : str
        Of the memory; see :class:`haloconv.rtl.board.on_chip_memory.OnChipMemory`.
    memory_step, most_memory : int
        Bytes: what a bank of the memory holds on a bus of one byte, and the most that fits beside
        the smallest engine.
    bus_bytes : tuple of int
        Widths of the engine's ports that the memory can have.
    engine : mapping of str to value
        Of the engine, by the names of :class:`haloconv.flow.options.EngineOptions`.
    bitstream, constraints : str
        Suffixes of the files; no bitstream where there is no place and route.
    program : str
        Command that loads a bitstream, with {file}.
    """

    name: str
    title: str
    family: str
    device: str
    package: str
    speed: str
    platform: Callable[[], Any]
    top: Callable[[BoardSystem, float], Elaboratable]
    clock: Callable[[float], float]
    clock_hz: float
    baud: int
    technology: str
    memory_step: int
    most_memory: int
    bus_bytes: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    engine: Mapping[str, Any]
    bitstream: str
    constraints: str
    program: str


class BoardTop(Elaboratable):
    """A system on the pins that every board has: a serial line named "uart" and an LED.

    A board's own top makes the clock domain ``sync`` in :meth:`clock` and may do more.

    Parameters
    ----------
    system : BoardSystem
    clock_hz : float
        Of ``sync``.
    """

    def __init__(self, system: BoardSystem, clock_hz: float) -> None:
        self.system, self.clock_hz = system, clock_hz

    def clock(self, m: Module, platform: Any) -> None:
        """Add the clock domain ``sync``; without, Amaranth takes the board's oscillator."""

    def elaborate(self, platform: Any) -> Module:
        """Return the design of the board."""
        m = Module()
        self.clock(m, platform)
        m.submodules.system = system = self.system
        uart = platform.request("uart", 0, dir="-")
        m.submodules.rx_pin = rx = io.Buffer(io.Direction.Input, uart.rx)
        m.submodules.tx_pin = tx = io.Buffer(io.Direction.Output, uart.tx)
        light = platform.request("led", 0, dir="-")
        m.submodules.led_pin = led = io.Buffer(io.Direction.Output, light)
        m.d.comb += [system.rx.eq(rx.i), tx.o.eq(system.tx), led.o.eq(system.busy)]
        return m


def input_pin(m: Module, platform: Any, name: str) -> Signal:
    """Return the level of an input, such as the board's oscillator."""
    pin = platform.request(name, 0, dir="-")
    m.submodules[f"{name}_pin"] = buffer = io.Buffer(io.Direction.Input, pin)
    return buffer.i


def connect_clock(m: Module, clock: Signal, locked: Signal) -> None:
    """Add the domain ``sync`` with a clock, held in reset until ``locked``."""
    m.domains += ClockDomain("sync")
    m.d.comb += ClockSignal("sync").eq(clock)
    m.submodules.reset = ResetSynchronizer(~locked, domain="sync")
