"""A board in plain Python, written from the description of the frames: a transport for tests."""

import random


def crc(data):
    """CRC-16 of the frames, bit by bit."""
    value = 0xFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x8408 if value & 1 else 0)
    return value.to_bytes(2, "little")


class FakeBoard:
    """Memory and registers behind frames.

    ``damage(data)`` may return other bytes than it is given; it sees what goes to the board.
    """

    def __init__(self, size=4096, damage=None, damage_answers=None):
        self.memory = bytearray(size)
        self.registers = [0] * 64
        self.register_writes = []
        self.damage = damage or (lambda data: data)
        self.damage_answers = damage_answers or (lambda data: data)
        self.pending = bytearray()
        self.out = bytearray()
        self.now = 0.0
        self.requests = 0
        self.closed = False

    def write(self, data):
        self.now += len(data) / 100_000
        self.pending += self.damage(bytes(data))
        while self.step():
            pass

    def step(self):
        """Take one request off the line; False where it is not whole."""
        start = self.pending.find(0xA5)
        if start < 0:
            self.pending.clear()
            return False
        del self.pending[:start]
        if len(self.pending) < 9:
            return False
        header = bytes(self.pending[1:9])
        command, address, last = header[0], int.from_bytes(header[1:5], "little"), header[5]
        if crc(header[:6]) != header[6:]:
            del self.pending[:9]
            self.answer(1)
            return True
        count = (last - address) % 256 + 1
        data = b""
        total = 9 + (count + 2 if command & 1 else 0)
        if len(self.pending) < total:
            return False
        if command & 1:
            data, check = bytes(self.pending[9 : total - 2]), bytes(self.pending[total - 2 : total])
        # What comes while the board answers is lost.
        answering = 4 + (0 if command & 1 else count)
        if len(self.pending) < total + answering and any(self.pending[total:]):
            raise AssertionError("a request was sent while the board answers")
        del self.pending[:total]
        self.requests += 1
        page = address - address % 256
        places = [page + (address + k) % 256 for k in range(count)]
        if command & 2:
            bad = address % 4 or count % 4 or address >= 256 or (command & 1 and count != 4)
        else:
            bad = page >= len(self.memory)
        if command > 3 or bad:
            self.answer(2)
        elif command & 1 and crc(data) != check:
            self.answer(3)
        elif command == 3:
            self.write_register(address // 4, int.from_bytes(data, "little"))
            self.answer(0)
        elif command == 2:
            words = self.registers[address // 4 : (address + count) // 4]
            self.answer(0, b"".join(word.to_bytes(4, "little") for word in words))
        elif command == 1:
            for place, byte in zip(places, data, strict=True):
                self.memory[place] = byte
            self.answer(0)
        else:
            self.answer(0, bytes(self.memory[place] for place in places))
        return True

    def write_register(self, index, value):
        self.register_writes.append((index, value))

    def answer(self, status, data=b""):
        body = bytes([status]) + data
        self.out += self.damage_answers(b"\x5a" + body + crc(body))

    def read(self, count):
        data = bytes(self.out[:count])
        del self.out[:count]
        if len(data) < count:
            self.now += 1
        return data

    def drain(self):
        self.out.clear()

    def seconds(self):
        return self.now

    def close(self):
        self.closed = True


class Noise:
    """Changes, drops and adds bytes at random."""

    def __init__(self, seed, share):
        self.random = random.Random(seed)
        self.share = share
        self.done = 0

    def __call__(self, data):
        found = bytearray()
        for byte in data:
            draw = self.random.random() / self.share
            if draw >= 1:
                found.append(byte)
                continue
            self.done += 1
            if draw < 0.4:
                found.append(byte ^ 1 << self.random.randrange(8))
            elif draw < 0.6:
                found += bytes([byte, self.random.randrange(256)])
        return bytes(found)
