"""The model of a serial line: levels of known bytes, and refusals of what is none."""

import random

import pytest

from haloconv.sim.board.serial_line import LineError, LineReceiver, LineSender


def test_levels_of_a_byte() -> None:
    sender = LineSender(3)
    assert sender.idle and sender.step() == 1
    sender.send(b"\x41")
    bits = [0, 1, 0, 0, 0, 0, 0, 1, 0, 1]  # start, 0x41 from its lowest bit, stop
    assert [sender.step() for _ in range(30)] == [bit for bit in bits for _ in range(3)]
    assert sender.idle and sender.step() == 1


@pytest.mark.parametrize("cycles, gaps", [(4, 0), (5, 1), (7, 40)])
def test_bytes_come_through(cycles, gaps) -> None:
    seed = 31
    print(f"seed {seed}")
    data = random.Random(seed).randbytes(50)
    sender, receiver = LineSender(cycles, gaps=gaps, seed=seed), LineReceiver(cycles)
    sender.send(data)
    found, levels = bytearray(), 0
    while not sender.idle:
        byte = receiver.step(sender.step())
        levels += 1
        if byte is not None:
            found.append(byte)
    assert bytes(found) == data
    if gaps == 0:
        assert levels == 10 * cycles * len(data)
    else:
        assert 10 * cycles * len(data) < levels <= (10 * cycles + gaps) * len(data)


def test_a_change_within_a_bit_is_refused() -> None:
    receiver = LineReceiver(4)
    levels = [1, 0, 0, 0, 0, 1, 1, 0]
    with pytest.raises(LineError, match="In cycle 8 the line changed within bit 1"):
        for level in levels:
            receiver.step(level)


def test_a_missing_stop_bit_is_refused() -> None:
    receiver = LineReceiver(2)
    with pytest.raises(LineError, match="In cycle 20 a stop bit was low"):
        for _ in range(20):
            receiver.step(0)
