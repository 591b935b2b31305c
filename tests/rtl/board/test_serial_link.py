# amaranth: UnusedElaboratable=no
"""The serial link against models of line, memory and registers; good frames and broken ones."""

import random

import pytest

from haloconv.rtl.board.frames import Command, Status, check_bytes, request
from haloconv.rtl.board.serial_link import SerialLink
from haloconv.sim.board.serial_line import LineReceiver, LineSender
from haloconv.sim.streams import simulate

CYCLES = 4
READ, WRITE = Command(0), Command.WRITE
READ_REGISTERS, WRITE_REGISTERS = Command.REGISTERS, Command.REGISTERS | Command.WRITE
MEMORY_BYTES = 5 * 1024  # no power of two


class Board:
    """A link, memory of some read latency, registers, and the far end of its line."""

    def __init__(self, *, gaps=0, seed=0, latency=3, memory_bytes=MEMORY_BYTES):
        self.dut = SerialLink(memory_bytes=memory_bytes, bit_cycles=CYCLES)
        self.latency = latency
        self.memory = {}
        self.register: list[int] = [random.Random(index).getrandbits(32) for index in range(256)]
        self.register_writes = []
        self.sender, self.receiver = LineSender(CYCLES, gaps=gaps, seed=seed), LineReceiver(CYCLES)
        self.answer = bytearray()

    async def line(self, ctx):
        while True:
            ctx.set(self.dut.rx, self.sender.step())
            _, _, level = await ctx.tick().sample(self.dut.tx)
            byte = self.receiver.step(level)
            if byte is not None:
                self.answer.append(byte)

    async def serve(self, ctx):
        port, registers = self.dut.memory, self.dut.registers
        due = []
        async for _, _, read, write, address, data, at, put, word in ctx.tick().sample(
            port.read, port.write, port.address, port.write_data,
            registers.address, registers.write, registers.write_data,
        ):  # fmt: skip
            due = [(left - 1, byte) for left, byte in due]
            if read:
                due.append((self.latency - 1, self.memory.get(address, 0)))
            if write:
                self.memory[address] = data
            if put:
                self.register_writes.append((at, word))
            # A register that counts on while it is read, so that a torn word would show.
            self.register[200] = (self.register[200] + 1) % 256
            word = self.register[at] * 0x01010101 if at == 200 else self.register[at]
            ctx.set(registers.read_data, word)
            now = [byte for left, byte in due if left == 0]
            due = [item for item in due if item[0] > 0]
            ctx.set(port.read_valid, len(now))
            ctx.set(port.read_data, now[0] if now else 0x77)

    def run(self, *exchanges, limit=200_000):
        """Send each (request, bytes of answer wanted) in turn; return the answers."""
        answers = []

        async def host(ctx):
            for frame, wanted in exchanges:
                self.answer.clear()
                self.sender.send(frame)
                for _ in range(limit):
                    if self.sender.idle and len(self.answer) >= wanted:
                        break
                    await ctx.tick()
                await ctx.tick().repeat(3 * 10 * CYCLES)  # nothing may follow
                answers.append(bytes(self.answer))

        simulate(self.dut, host, background=[self.line], processes=[self.serve], max_cycles=limit)
        return answers


def answer(status, data=b""):
    body = bytes([status]) + data
    return b"\x5a" + body + check_bytes(body)


@pytest.mark.parametrize("gaps", [0, 25])
def test_memory_is_written_and_read(gaps):
    seed = 3
    print(f"seed {seed}")
    rng = random.Random(seed)
    board = Board(gaps=gaps, seed=seed)
    exchanges, wanted, mirror = [], [], {}
    for _ in range(12):
        count = rng.choice([1, 2, 5, 17])
        address = rng.randrange(MEMORY_BYTES // 256) * 256 + rng.randrange(257 - count)
        data = rng.randbytes(count)
        mirror.update({address + place: byte for place, byte in enumerate(data)})
        exchanges += [(request(WRITE, address, count, data), 4), (request(READ, address, count), 4)]
        wanted += [answer(Status.OK), answer(Status.OK, data)]
    answers = board.run(
        *((frame, len(want)) for (frame, _), want in zip(exchanges, wanted, strict=True))
    )
    assert answers == wanted
    assert board.memory == mirror


def test_a_whole_page_both_ways():
    data = random.Random(1).randbytes(256)
    board = Board()
    write, read = board.run(
        (request(WRITE, 0x1300, 256, data), 4), (request(READ, 0x1300, 256), 260)
    )
    assert write == answer(Status.OK)
    assert read == answer(Status.OK, data)
    assert board.memory == {0x1300 + place: byte for place, byte in enumerate(data)}


def test_a_frame_stays_in_its_page():
    board = Board()
    board.run((request(WRITE, 0x2FE, 4, b"abcd"), 4))
    assert board.memory == {0x2FE: 97, 0x2FF: 98, 0x200: 99, 0x201: 100}


def test_sync_bytes_in_the_data_do_no_harm():
    board = Board()
    data = b"\xa5" * 30
    assert board.run((request(WRITE, 64, 30, data), 4), (request(READ, 64, 30), 34)) == [
        answer(Status.OK),
        answer(Status.OK, data),
    ]


def test_registers_are_read_whole():
    board = Board()
    word = (0x28 // 4, board.register[10:13])
    (found,) = board.run((request(READ_REGISTERS, 40, 12), 16))
    assert found == answer(Status.OK, b"".join(w.to_bytes(4, "little") for w in word[1]))
    # Each byte of register 200 counts; all four must be of one moment.
    board.register[200] = 0
    (found,) = board.run((request(READ_REGISTERS, 800, 4), 8))
    assert found[:2] == b"\x5a\0" and len(set(found[2:6])) == 1


def test_a_register_is_written_once_its_check_passed():
    board = Board()
    frame = request(WRITE_REGISTERS, 4 * 12, 4, (0xCAFE1234).to_bytes(4, "little"))
    broken = frame[:-1] + bytes([frame[-1] ^ 1])
    assert board.run((broken, 4)) == [answer(Status.PAYLOAD)]
    assert board.register_writes == []
    assert board.run((frame, 4)) == [answer(Status.OK)]
    assert board.register_writes == [(12, 0xCAFE1234)]
    assert board.memory == {}


def test_what_cannot_be_is_refused():
    frames = [
        request(READ, MEMORY_BYTES, 1),
        request(READ, 1 << 31, 1),
        request(READ, MEMORY_BYTES - 256 + (1 << 16), 1),
        request(4, 0, 1),
        request(128, 0, 1),
        request(READ_REGISTERS, 2, 4),
        request(READ_REGISTERS, 0, 3),
        request(READ_REGISTERS, 1024, 4),
        request(WRITE, MEMORY_BYTES, 2, b"xy"),
        request(WRITE_REGISTERS, 8, 8, b"12345678"),
        request(WRITE_REGISTERS, 9, 4, b"1234"),
        request(WRITE_REGISTERS | 8, 8, 4, b"1234"),
    ]
    board = Board()
    good = (request(READ, MEMORY_BYTES - 1, 1), 5)
    found = board.run(*(exchange for frame in frames for exchange in ((frame, 4), good)))
    assert found == [answer(Status.REFUSED), answer(Status.OK, b"\0")] * len(frames)
    assert board.memory == {} and board.register_writes == []


def test_a_broken_header_does_nothing():
    good = request(READ, 0x100, 2)
    broken = []
    for place in range(1, 9):
        frame = bytearray(good)
        frame[place] ^= 0x10
        broken.append(bytes(frame))
    board = Board()
    found = board.run(*(exchange for frame in broken for exchange in ((frame, 4), (good, 6))))
    assert found == [answer(Status.HEADER), answer(Status.OK, b"\0\0")] * len(broken)


def test_a_broken_payload_is_told():
    frame = bytearray(request(WRITE, 0x20, 6, b"sixsix"))
    frame[11] ^= 0x80
    board = Board()
    assert board.run((bytes(frame), 4)) == [answer(Status.PAYLOAD)]
    good = request(WRITE, 0x20, 6, b"sixsix")
    assert board.run((good, 4)) == [answer(Status.OK)]
    assert bytes(board.memory[0x20 + place] for place in range(6)) == b"sixsix"


@pytest.mark.parametrize("lost", [1, 3, 8, 10, 14])
def test_zeros_bring_it_back_after_lost_bytes(lost):
    """The longest request is 1 + 8 + 256 + 2 bytes; as many zeros end any that was begun."""
    frame = request(WRITE, 0x300, 8, b"12345678")
    board = Board()
    answers = board.run(
        (frame[:lost] + frame[lost + 1 :], 0),
        (bytes(267), 0),
        (request(READ, 0x1000, 1), 5),
        limit=60_000,
    )
    assert answers[2] == answer(Status.OK, b"\0")
    assert set(board.memory) <= set(range(0x300, 0x400))


def test_noise_between_frames_is_skipped():
    noise = bytes(byte for byte in random.Random(4).randbytes(60) if byte != 0xA5)
    board = Board()
    assert board.run((noise, 0), (request(READ, 1, 1), 5)) == [b"", answer(Status.OK, b"\0")]


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="Memory bytes must be a multiple of 256, not 5000"):
        SerialLink(memory_bytes=5000, bit_cycles=8)
    with pytest.raises(ValueError, match="Memory bytes must be"):
        SerialLink(memory_bytes=512, bit_cycles=8)
