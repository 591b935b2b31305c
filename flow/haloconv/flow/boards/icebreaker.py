"""iCEBreaker with an iCE40UP5K: a small engine, and 128 KiB in the four large RAMs."""

from typing import Any

from amaranth.hdl import C, Instance, Module, Signal
from amaranth_boards.icebreaker import ICEBreakerPlatform

from haloconv.flow.boards.board import Board, BoardTop, connect_clock
from haloconv.flow.boards.clocks import ice40_pll

__all__ = ["BOARD", "IcebreakerTop"]

OSCILLATOR_HZ = 12e6
ENGINE = {
    "lanes": (4, 2),
    "bus_bytes": 2,
    "budget": 4160,
    "requant_lanes": 1,
    # Memories cannot be small here.
    "tiles_ahead": 0,
    # The lanes take all multipliers.
    "serial_requantizers": True,
    # Those beside that of cycles cost logic cells, which are what runs out here.
    "counters": False,
}


class _Platform(ICEBreakerPlatform):
    haloconv_family = "ice40"


class IcebreakerTop(BoardTop):
    """Serial line of the FTDI chip; the 12 MHz oscillator, or more from an SB_PLL40_PAD."""

    def clock(self, m: Module, platform: Any) -> None:
        """Add ``sync`` from the PLL where the oscillator is not what is wanted."""
        if self.clock_hz == OSCILLATOR_HZ:
            return
        settings = ice40_pll(OSCILLATOR_HZ, self.clock_hz)
        clock, locked = Signal(), Signal()
        # The PLL's own pad; no buffer may stand before it.
        pad = platform.request("clk12", 0, dir="-")
        m.submodules.pll = Instance(
            "SB_PLL40_PAD",
            p_FEEDBACK_PATH="SIMPLE",
            p_DIVR=C(settings.reference_divider - 1, 4),
            p_DIVF=C(settings.multiplier - 1, 7),
            p_DIVQ=C(settings.output_divider.bit_length() - 1, 3),
            p_FILTER_RANGE=C(1 if settings.phase_detector < 17e6 else 2, 3),
            i_PACKAGEPIN=pad.io,
            i_RESETB=C(1, 1),
            i_BYPASS=C(0, 1),
            o_PLLOUTGLOBAL=clock,
            o_LOCK=locked,
        )
        platform.add_clock_constraint(clock, settings.frequency)
        connect_clock(m, clock, locked)


def _clock(wanted_hz: float) -> float:
    if wanted_hz == OSCILLATOR_HZ:
        return wanted_hz
    return ice40_pll(OSCILLATOR_HZ, wanted_hz).frequency


BOARD = Board(
    name="icebreaker",
    title="1BitSquared iCEBreaker, iCE40UP5K",
    family="ice40",
    device="iCE40UP5K",
    package="sg48",
    speed="",
    platform=_Platform,
    top=IcebreakerTop,
    clock=_clock,
    clock_hz=OSCILLATOR_HZ,
    baud=1_000_000,
    technology="spram",
    # A RAM has 16384 words of two bytes; with a wider bus they lie side by side.
    memory_step=16384,
    most_memory=131072,
    bus_bytes=(2, 4, 8),
    engine=ENGINE,
    bitstream=".bin",
    constraints=".pcf",
    program="iceprog {file}",
)
"""30 block RAMs of 512 bytes for the buffers, 8 multipliers, 5280 logic cells."""
