# amaranth: UnusedElaboratable=no
"""UART halves against the model of a line, at exact and at wrong bit rates."""

import random

import pytest

from haloconv.rtl.board.uart import UartReceiver, UartTransmitter, bit_cycles
from haloconv.sim.board.serial_line import LineReceiver, LineSender
from haloconv.sim.streams import put_many, simulate


def receive(dut, levels):
    """Return the bytes that a receiver makes of levels, one a cycle."""
    found = bytearray()

    async def line(ctx):
        for level in levels:
            ctx.set(dut.rx, level)
            _, _, valid, byte = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            if valid:
                found.append(byte)

    simulate(dut, line)
    return bytes(found)


def levels_of(data, cycles, *, gaps=0, seed=0):
    sender = LineSender(cycles, gaps=gaps, seed=seed)
    sender.send(data)
    levels = []
    while not sender.idle:
        levels.append(sender.step())
    return levels + [1] * (2 * cycles + 5)


@pytest.mark.parametrize("cycles, gaps", [(4, 0), (4, 3), (5, 0), (12, 30), (13, 0)])
def test_receives(cycles, gaps):
    seed = 5
    print(f"seed {seed}")
    data = random.Random(seed).randbytes(40) + b"\x00\xff\x55\xaa"
    levels = levels_of(data, cycles, gaps=gaps, seed=seed)
    assert receive(UartReceiver(cycles=cycles), levels) == data


@pytest.mark.parametrize("drift", [-0.03, 0.03])
def test_receives_at_a_rate_that_is_off(drift):
    cycles, data = 50, bytes(range(0, 256, 7))
    sent = round(cycles * (1 + drift))
    assert receive(UartReceiver(cycles=cycles), levels_of(data, sent)) == data


def test_a_short_low_is_no_start_bit():
    levels = [1] * 9 + [0] * 3 + [1] * 40
    dut = UartReceiver(cycles=12)
    assert receive(dut, levels + levels_of(b"\x17", 12)) == b"\x17"


def test_a_break_is_one_zero_and_the_next_byte_is_whole():
    levels = [0] * 400 + [1] * 5
    assert receive(UartReceiver(cycles=8), levels + levels_of(b"ok", 8)) == b"\0ok"


@pytest.mark.parametrize("cycles", [4, 5, 16])
@pytest.mark.parametrize("stalls", [0, 0.97])
def test_transmits(cycles, stalls):
    seed = 8
    print(f"seed {seed}")
    data = random.Random(seed).randbytes(30) + b"\x00\xff"
    dut, found = UartTransmitter(cycles=cycles), bytearray()

    async def source(ctx):
        await put_many(ctx, dut.i, data, stalls=stalls, seed=seed)

    async def line(ctx):
        far = LineReceiver(cycles)
        while len(found) < len(data):
            _, _, level = await ctx.tick().sample(dut.tx)
            byte = far.step(level)
            if byte is not None:
                found.append(byte)

    passed = simulate(dut, source, line)
    assert bytes(found) == data
    if not stalls:
        # Ten bits and the cycle in which the next byte is taken.
        assert passed <= len(data) * (10 * cycles + 1) + 5


def test_the_line_is_high_at_rest():
    dut = UartTransmitter(cycles=4)

    async def line(ctx):
        for _ in range(50):
            _, _, level = await ctx.tick().sample(dut.tx)
            assert level == 1

    simulate(dut, line)


@pytest.mark.parametrize("half", [UartReceiver, UartTransmitter])
def test_cycles_are_checked(half):
    with pytest.raises(ValueError, match="Cycles of a bit must be"):
        half(cycles=3)
    with pytest.raises(ValueError, match="Cycles of a bit must be"):
        half(cycles=65537)


def test_bit_cycles():
    assert bit_cycles(25e6, 1e6) == 25
    assert bit_cycles(12e6, 1e6) == 12
    assert bit_cycles(50e6, 3e6) == 17  # 1.96 % off
    with pytest.raises(ValueError, match=r"within 2%.*3000000 at 25000000 Hz comes to 3125000"):
        bit_cycles(25e6, 3e6)
    with pytest.raises(ValueError, match="must be 183 to 3000000 at a clock of 12000000 Hz"):
        bit_cycles(12e6, 4e6)
    with pytest.raises(ValueError, match="must be 183 to"):
        bit_cycles(12e6, 50)
    with pytest.raises(ValueError, match="above 0, not 0"):
        bit_cycles(12e6, 0)
