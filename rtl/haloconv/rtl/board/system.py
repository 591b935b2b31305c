"""Engine, on-chip memory and serial link: all of a board's design but its pins and clock."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from haloconv.planner.config import EngineConfig
from haloconv.rtl.board.on_chip_memory import OnChipMemory
from haloconv.rtl.board.serial_link import SerialLink
from haloconv.rtl.board.uart import LINE_IN, LINE_OUT
from haloconv.rtl.engine import Engine

__all__ = ["BoardSystem"]


class BoardSystem(wiring.Component):
    """An engine that a host loads, starts and reads over a serial line.

    Timing: see its blocks; memory is open to the host while the engine runs.

    Resources: those of its blocks.

    Parameters
    ----------
    config : EngineConfig
    memory_bytes : int
        On-chip memory, at most what the engine addresses; see :class:`OnChipMemory`.
    bit_cycles : int
        Clock cycles of a bit on the line.
    technology : {"block", "spram"}
        Kind of RAM.

    Members
    -------
    rx : In(1), tx : Out(1)
    busy : Out(1)
        The host has the line.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of bounds.
    """

    rx: Signal
    tx: Signal
    busy: Signal

    def __init__(
        self,
        config: EngineConfig,
        *,
        memory_bytes: int,
        bit_cycles: int,
        technology: str = "block",
    ) -> None:
        self._config = config
        self._memory = OnChipMemory(
            address_bits=config.address_bits,
            bus_bytes=config.bus_bytes,
            size=memory_bytes,
            technology=technology,
        )
        self._link = SerialLink(memory_bytes=memory_bytes, bit_cycles=bit_cycles)
        super().__init__({"rx": LINE_IN, "tx": LINE_OUT, "busy": Out(1)})

    @property
    def config(self) -> EngineConfig:
        """What the engine is built for."""
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.engine = engine = Engine(self._config)
        m.submodules.memory = memory = self._memory
        m.submodules.link = link = self._link
        wiring.connect(m, engine.memory, memory.memory)
        wiring.connect(m, link.registers, engine.registers)
        wiring.connect(m, link.memory, memory.host)
        m.d.comb += [
            link.rx.eq(self.rx),
            self.tx.eq(link.tx),
            self.busy.eq(link.busy),
        ]
        return m
