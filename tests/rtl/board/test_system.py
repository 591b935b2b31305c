# amaranth: UnusedElaboratable=no
"""Engine, memory and link together: registers and memory over the line, bit by bit.

Whole networks run on it in tests/flow/boards/test_host_program.py.
"""

import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.registers import IDENTITY
from haloconv.rtl.board.frames import Command, check_bytes, request
from haloconv.rtl.board.system import BoardSystem
from haloconv.sim.board.simulated import SimulatedBoard

TINY = EngineConfig(
    out_lanes=1,
    split_lanes=1,
    bus_bytes=2,
    input_bytes=16,
    weight_bytes=16,
    psum_bytes=0,
    bias_bytes=4,
    weight_zero_points=False,
    address_bits=16,
)


def test_registers_and_memory():
    system = BoardSystem(TINY, memory_bytes=4096, bit_cycles=4)
    board = SimulatedBoard(system, bit_cycles=4)
    board.write(request(Command.REGISTERS, 0, 4))
    answer = board.read(8)
    assert answer[:2] == b"\x5a\0" and int.from_bytes(answer[2:6], "little") == IDENTITY
    board.write(request(Command.WRITE, 0xF0F, 3, b"abc"))
    assert board.read(4) == b"\x5a\0" + check_bytes(b"\0")
    board.write(request(0, 0xF0E, 5))
    assert board.read(9)[3:6] == b"abc"
    board.write(request(0, 4096, 1))
    assert board.read(4)[:2] == b"\x5a\2"


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="Size must be"):
        BoardSystem(TINY, memory_bytes=1 << 17, bit_cycles=8)
    with pytest.raises(ValueError, match="Cycles of a bit must be"):
        BoardSystem(TINY, memory_bytes=4096, bit_cycles=2)
    with pytest.raises(ValueError, match="Technology must be one of"):
        BoardSystem(TINY, memory_bytes=4096, bit_cycles=8, technology="rom")
    assert BoardSystem(TINY, memory_bytes=4096, bit_cycles=8).config == TINY
