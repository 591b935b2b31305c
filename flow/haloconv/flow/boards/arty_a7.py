"""Arty A7: Verilog and constraints for Vivado; no place and route with open tools here."""

from typing import Any

from amaranth.hdl import C, Instance, Module, Signal
from amaranth_boards.arty_a7 import ArtyA7_35Platform, ArtyA7_100Platform

from haloconv.flow.boards.board import Board, BoardTop, connect_clock, input_pin
from haloconv.flow.boards.clocks import xilinx_pll

__all__ = ["ARTY_A7_35", "ARTY_A7_100", "ArtyA7Top"]

OSCILLATOR_HZ = 100e6
ENGINE = {"lanes": (8, 8), "bus_bytes": 8, "budget": 32768}


class _Platform35(ArtyA7_35Platform):
    haloconv_family = "xilinx"


class _Platform100(ArtyA7_100Platform):
    haloconv_family = "xilinx"


class ArtyA7Top(BoardTop):
    """Serial line of the FTDI chip, and a clock made by a PLLE2_BASE from 100 MHz."""

    def clock(self, m: Module, platform: Any) -> None:
        """Add ``sync`` from the PLL."""
        settings = xilinx_pll(OSCILLATOR_HZ, self.clock_hz)
        feedback, output, clock, locked = Signal(), Signal(), Signal(), Signal()
        m.submodules.pll = Instance(
            "PLLE2_BASE",
            p_CLKIN1_PERIOD=1e9 / OSCILLATOR_HZ,
            p_DIVCLK_DIVIDE=settings.reference_divider,
            p_CLKFBOUT_MULT=settings.multiplier,
            p_CLKOUT0_DIVIDE=settings.output_divider,
            i_CLKIN1=input_pin(m, platform, "clk100"),
            i_CLKFBIN=feedback,
            i_RST=C(0, 1),
            i_PWRDWN=C(0, 1),
            o_CLKFBOUT=feedback,
            o_CLKOUT0=output,
            o_LOCKED=locked,
        )
        m.submodules.clock_buffer = Instance("BUFG", i_I=output, o_O=clock)
        connect_clock(m, clock, locked)


def _clock(wanted_hz: float) -> float:
    return xilinx_pll(OSCILLATOR_HZ, wanted_hz).frequency


def _board(name: str, title: str, device: str, platform: Any, block_rams: int) -> Board:
    return Board(
        name=name,
        title=title,
        family="xilinx",
        device=device,
        package="",
        speed="",
        platform=platform,
        top=ArtyA7Top,
        clock=_clock,
        clock_hz=50e6,
        baud=1_000_000,
        technology="block",
        memory_step=2048,
        # Without a few for the buffers.
        most_memory=(block_rams - 8) * 2048,
        engine=ENGINE,
        bitstream="",
        constraints=".xdc",
        program="vivado -mode batch -source {name}.tcl",
    )


ARTY_A7_35 = _board(
    "arty_a7_35", "Digilent Arty A7-35T, XC7A35T", "xc7a35ti", _Platform35, block_rams=100
)
"""100 block RAMs of 18 kbit: 2 KiB each in words of bytes."""
ARTY_A7_100 = _board(
    "arty_a7_100", "Digilent Arty A7-100T, XC7A100T", "xc7a100ti", _Platform100, block_rams=270
)
"""270 block RAMs of 18 kbit."""
