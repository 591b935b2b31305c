# amaranth: UnusedElaboratable=no
"""The compiled board does what the one in Amaranth's simulator does."""

import random
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from haloconv.rtl.board.frames import Command, check_bytes, request
from haloconv.rtl.board.on_chip_memory import OnChipMemory
from haloconv.rtl.board.serial_link import SerialLink
from haloconv.rtl.board.uart import LINE_IN, LINE_OUT
from haloconv.sim.backends import cxxrtl
from haloconv.sim.board.compiled import CompiledBoard, compile_board
from haloconv.sim.board.simulated import SimulatedBoard

pytestmark = pytest.mark.skipif(cxxrtl.unavailable() is not None, reason="no compiled simulator")
CYCLES = 6


class MemoryBoard(wiring.Component):
    """A link with memory and no engine: small, so that it is built in no time."""

    rx: Signal
    tx: Signal

    def __init__(self, technology="block", size=4096) -> None:
        self.memory = OnChipMemory(address_bits=17, bus_bytes=2, size=size, technology=technology)
        self.link = SerialLink(memory_bytes=size, bit_cycles=CYCLES)
        super().__init__({"rx": LINE_IN, "tx": LINE_OUT})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.memory, m.submodules.link = self.memory, self.link
        wiring.connect(m, self.link.memory, self.memory.host)
        m.d.comb += [self.link.rx.eq(self.rx), self.tx.eq(self.link.tx)]
        return m


class UltraPlus:
    """All that the storage asks of a platform."""

    device = "iCE40UP5K"


# SB_SPRAM256KA by its data sheet (Lattice TN1314): what a write leaves at the output is undefined.
# The undefined value is one that differs from cycle to cycle.
SPRAM = """
module SB_SPRAM256KA(input [13:0] ADDRESS, input [15:0] DATAIN, input [3:0] MASKWREN,
    input WREN, CHIPSELECT, CLOCK, STANDBY, SLEEP, POWEROFF, output reg [15:0] DATAOUT);
  reg [15:0] mem [0:16383];
  reg [15:0] junk = 16'hBEEF;
  always @(posedge CLOCK) begin
    junk <= {junk[14:0], junk[15] ^ junk[13]};
    if (CHIPSELECT && !STANDBY && !SLEEP && POWEROFF) begin
      if (WREN) begin
        if (MASKWREN[0]) mem[ADDRESS][3:0] <= DATAIN[3:0];
        if (MASKWREN[1]) mem[ADDRESS][7:4] <= DATAIN[7:4];
        if (MASKWREN[2]) mem[ADDRESS][11:8] <= DATAIN[11:8];
        if (MASKWREN[3]) mem[ADDRESS][15:12] <= DATAIN[15:12];
        DATAOUT <= junk;
      end else DATAOUT <= mem[ADDRESS];
    end
  end
endmodule
"""


def exchange(board, frames):
    answers = []
    for frame, count in frames:
        board.write(frame)
        answers.append(board.read(4 + count))
    return answers


def frames_of(seed, size):
    rng = random.Random(seed)
    frames = []
    for _ in range(6):
        count = rng.randrange(1, 9)
        address = rng.randrange(size // 256) * 256 + rng.randrange(248)
        data = rng.randbytes(count)
        frames += [(request(Command.WRITE, address, count, data), 0)]
        frames += [(request(0, address, count), count)]
    return frames


def test_as_in_the_simulator():
    seed = 12
    print(f"seed {seed}")
    frames = frames_of(seed, 4096)
    interpreted = SimulatedBoard(MemoryBoard(), bit_cycles=CYCLES)
    compiled = CompiledBoard(compile_board(MemoryBoard()), bit_cycles=CYCLES, gaps=40, seed=3)
    wanted = exchange(interpreted, frames)
    assert exchange(compiled, frames) == wanted
    assert wanted[0] == b"\x5a\0" + check_bytes(b"\0")
    assert compiled.cycle > 0
    compiled.close()


@pytest.mark.parametrize("cells", [(), (SPRAM,)], ids=["model", "primitive"])
def test_large_rams(cells):
    """All 128 KiB, in the behaviour that simulations take and in the device's primitive."""
    size = 131072
    library = compile_board(
        MemoryBoard("spram", size), platform=UltraPlus() if cells else None, cells=cells
    )
    board = CompiledBoard(library, bit_cycles=CYCLES)
    pages = {page: random.Random(page).randbytes(256) for page in range(0, 512, 37)}
    for page, data in pages.items():
        board.write(request(Command.WRITE, 256 * page, 256, data))
        assert board.read(4) == b"\x5a\0" + check_bytes(b"\0")
    for page, data in pages.items():
        board.write(request(0, 256 * page, 256))
        assert board.read(260)[2:-2] == data
    assert (Path(library).suffix, board.seconds()) == (".so", board.cycle / 1e6)
    board.close()


def test_silence_ends_a_read():
    board = CompiledBoard(compile_board(MemoryBoard()), bit_cycles=CYCLES)
    board.write(b"\0" * 5)
    assert board.read(3) == b""
    board.drain()
    board.write(request(0, 0, 1))
    assert len(board.read(9)) == 5
    board.close()
