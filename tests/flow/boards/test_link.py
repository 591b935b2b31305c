"""The host's end of the line against a board in plain Python, on good and on bad lines."""

import importlib.util
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.boards.link import WINDOW, Link, LinkError, LostAnswer, SerialTransport

ROOT = Path(__file__).parents[3]
spec = importlib.util.spec_from_file_location(
    "fake_board", ROOT / "tests" / "support" / "fake_board.py"
)
assert spec is not None and spec.loader is not None
fake: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake)
FakeBoard, Noise = fake.FakeBoard, fake.Noise


def test_memory_across_pages():
    board = FakeBoard(size=8192)
    moved = []
    link = Link(board, progress=moved.append)
    data = random.Random(2).randbytes(3000)
    link.write_memory(0x7F, data)
    assert bytes(board.memory[0x7F : 0x7F + 3000]) == data
    assert link.read_memory(0x7F, 3000) == data
    pages = len({(0x7F + k) // 256 for k in range(3000)})
    assert board.requests == 2 * pages
    # Both ways: the bytes, a header and a sync each, and the check of what was written.
    assert sum(moved) == 2 * 3000 + 2 * 9 * pages + 2 * pages
    assert len(moved) == 2 * -(-pages // WINDOW)
    assert link.repeats == 0
    assert link.read_memory(5, 0) == b""


def test_registers():
    board = FakeBoard()
    board.registers[10:13] = [1, 0xFFFFFFFF, 0x12345678]
    link = Link(board)
    assert link.read_registers(10, 3) == [1, 0xFFFFFFFF, 0x12345678]
    link.write_register(12, 0xDEADBEEF)
    link.write_register(8, 1, once=True)
    assert board.register_writes == [(12, 0xDEADBEEF), (8, 1)]


@pytest.mark.parametrize("seed", range(6))
def test_noise_is_overcome(seed):
    print(f"seed {seed}")
    there, back = Noise(seed, 0.002), Noise(seed + 100, 0.002)
    board = FakeBoard(size=8192, damage=there, damage_answers=back)
    link = Link(board)
    data = random.Random(seed).randbytes(2500)
    link.write_memory(100, data)
    assert link.read_memory(100, 2500) == data
    assert there.done and back.done and link.repeats


def test_refusals_are_told():
    link = Link(FakeBoard(size=1024))
    with pytest.raises(LinkError, match="the board refuses reading 4 bytes at 0x400"):
        link.read_memory(1024, 4)
    with pytest.raises(LinkError, match="the board refuses writing 2 bytes at 0x500"):
        link.write_memory(1280, b"ab")
    assert link.read_memory(0, 2) == b"\0\0"
    assert link.repeats == 0


def test_a_silent_board_is_given_up():
    board = FakeBoard(damage=lambda data: b"")
    with pytest.raises(LinkError, match=r"reading 1 bytes at 0x0: the board does not answer, 9"):
        Link(board).read_memory(0, 1)


def test_another_device_is_given_up():
    board = FakeBoard(damage_answers=lambda data: b"login: ")
    with pytest.raises(LinkError, match=r"begins with 6c6f, 9 times over; check the port"):
        Link(board).read_registers(0)


def test_a_start_is_not_repeated():
    answers = iter([b""])
    board = FakeBoard(damage_answers=lambda data: next(answers, data))
    link = Link(board)
    with pytest.raises(LostAnswer, match="writing register 8: the board does not answer"):
        link.write_register(8, 1, once=True)
    assert board.register_writes == [(8, 1)]
    # The line is fine for what follows.
    assert link.read_memory(0, 1) == b"\0"
    link.write_register(8, 1)
    assert board.register_writes == [(8, 1), (8, 1)]


@pytest.fixture
def terminal():
    """A pair of a pseudo-terminal's end and its path, with a board behind it."""
    pty = pytest.importorskip("pty")
    tty = pytest.importorskip("tty")
    pytest.importorskip("serial")
    master, slave = pty.openpty()
    tty.setraw(slave)
    board = FakeBoard()

    def serve():
        while True:
            try:
                data = os.read(master, 4096)
            except OSError:
                return
            if not data:
                return
            board.write(data)
            os.write(master, board.read(len(board.out)))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield os.ttyname(slave), board
    os.close(slave)
    os.close(master)


def test_a_serial_port(terminal):
    path, board = terminal
    transport = SerialTransport(path, 115200)
    link = Link(transport)
    data = bytes(range(256)) * 3
    link.write_memory(0x180, data)
    assert bytes(board.memory[0x180 : 0x180 + len(data)]) == data
    assert link.read_memory(0x180, len(data)) == data
    link.recover()
    before = link.seconds()
    assert link.read_registers(3) == [0]
    assert link.seconds() > before
    transport.close()


def test_ports_that_do_not_open(tmp_path: Path):
    pytest.importorskip("serial")
    with pytest.raises(LinkError, match="none cannot be opened"):
        SerialTransport(str(tmp_path / "none"), 115200)
