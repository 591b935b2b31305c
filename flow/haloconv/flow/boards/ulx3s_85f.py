"""ULX3S with an LFE5U-85F: the engine with a whole network in block RAM."""

from typing import Any

from amaranth.hdl import C, Instance, Module, Signal
from amaranth.lib import io
from amaranth_boards.ulx3s import ULX3S_85F_Platform

from haloconv.flow.boards.board import Board, BoardTop, connect_clock, input_pin
from haloconv.flow.boards.clocks import ecp5_pll

__all__ = ["BOARD", "Ulx3sTop"]

OSCILLATOR_HZ = 25e6
ENGINE = {"lanes": (8, 8), "bus_bytes": 8, "budget": 32768}


class _Platform(ULX3S_85F_Platform):
    haloconv_family = "ecp5"


class Ulx3sTop(BoardTop):
    """Serial line of the FTDI chip, and a clock made by an EHXPLLL from 25 MHz."""

    def clock(self, m: Module, platform: Any) -> None:
        """Add ``sync`` from the PLL."""
        settings = ecp5_pll(OSCILLATOR_HZ, self.clock_hz)
        clock, locked = Signal(), Signal()
        oscillator = input_pin(m, platform, "clk25")
        m.submodules.pll = Instance(
            "EHXPLLL",
            a_FREQUENCY_PIN_CLKI=f"{OSCILLATOR_HZ / 1e6:g}",
            a_FREQUENCY_PIN_CLKOP=f"{settings.frequency / 1e6:g}",
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            p_PLLRST_ENA="DISABLED",
            p_INTFB_WAKE="DISABLED",
            p_STDBY_ENABLE="DISABLED",
            p_DPHASE_SOURCE="DISABLED",
            p_OUTDIVIDER_MUXA="DIVA",
            p_OUTDIVIDER_MUXB="DIVB",
            p_OUTDIVIDER_MUXC="DIVC",
            p_OUTDIVIDER_MUXD="DIVD",
            p_FEEDBK_PATH="CLKOP",
            p_CLKI_DIV=settings.reference_divider,
            p_CLKFB_DIV=settings.multiplier,
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=settings.output_divider,
            p_CLKOP_CPHASE=settings.output_divider - 1,
            p_CLKOP_FPHASE=0,
            i_CLKI=oscillator,
            i_CLKFB=clock,
            i_RST=C(0, 1),
            i_STDBY=C(0, 1),
            i_PHASESEL0=C(0, 1),
            i_PHASESEL1=C(0, 1),
            i_PHASEDIR=C(1, 1),
            i_PHASESTEP=C(1, 1),
            i_PHASELOADREG=C(1, 1),
            i_PLLWAKESYNC=C(0, 1),
            i_ENCLKOP=C(0, 1),
            o_CLKOP=clock,
            o_LOCK=locked,
        )
        connect_clock(m, clock, locked)

    def elaborate(self, platform: Any) -> Module:
        """Return the design of the board."""
        m = super().elaborate(platform)
        # Low, this pin has the board's ESP32 take over the FPGA.
        gpio0 = platform.request("esp32", 0, dir="-").gpio0
        m.submodules.esp32_pin = pin = io.Buffer(io.Direction.Output, gpio0)
        m.d.comb += pin.o.eq(1)
        return m


def _clock(wanted_hz: float) -> float:
    return ecp5_pll(OSCILLATOR_HZ, wanted_hz).frequency


BOARD = Board(
    name="ulx3s_85f",
    title="Radiona ULX3S, LFE5U-85F",
    family="ecp5",
    device="LFE5U-85F",
    package="CABGA381",
    speed="6",
    platform=_Platform,
    top=Ulx3sTop,
    clock=_clock,
    clock_hz=50e6,
    baud=1_000_000,
    technology="block",
    memory_step=2048,
    # 208 block RAMs of 2 KiB, without a few for the buffers.
    most_memory=200 * 2048,
    engine=ENGINE,
    bitstream=".bit",
    constraints=".lpf",
    program="openFPGALoader -b ulx3s {file}",
)
"""208 block RAMs: ResNet-8 takes 72 of them for its image, person detection 152."""
