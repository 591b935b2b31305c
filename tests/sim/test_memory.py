# amaranth: UnusedElaboratable=no
"""The memory model keeps its timing, its content, its errors and its rules."""

import re

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from haloconv.rtl.ports import ReadData, ReadRequest
from haloconv.sim.memory import (
    MemoryModel,
    MemoryTraffic,
    ProtocolError,
    StallGenerator,
    memory_process,
    most_stalled,
    stall_thresholds,
)
from haloconv.sim.streams import simulate

BYTES = np.arange(64 * 256, dtype=np.uint32).astype(np.uint8)


def make(image=BYTES, **options):
    options = {"address_bits": 32, "bus_bytes": 8, "latency": 1, **options}
    return MemoryModel(image, **options)


def step(model, *, request=None, ready=0, write=None):
    """One cycle: request = (address, beats), write = (address, data, strobe)."""
    address, beats = request or (0, 0)
    write_address, data, strobe = write or (0, 0, 0)
    model.step(
        int(request is not None),
        address,
        beats,
        ready,
        int(write is not None),
        write_address,
        data,
        strobe,
    )


def collect(model, count, limit=10_000):
    """Accept ``count`` beats; returns (cycle, data, error) of each."""
    beats = []
    for _ in range(limit):
        if model.data_valid:
            beats.append((model.cycle, model.data, model.data_error))
        step(model, ready=1)
        if len(beats) == count:
            return beats
    raise AssertionError(f"only {len(beats)} of {count} beats")


def word(image, address, bus_bytes=8):
    return int.from_bytes(bytes(image[address : address + bus_bytes]), "little")


def test_generator_is_xorshift32():
    generator = StallGenerator(0, 0, 0)
    generator._state = 1
    states = []
    for _ in range(4):
        generator.draw()
        states.append(generator._state)
    # Shifts 13, 17, 5 from state 1, worked out by hand for the first: 1 ^ 1<<13 = 8193, no bit
    # reaches >>17, 8193 ^ 8193<<5 = 270369.
    assert states == [270369, 67634689, 2647435461, 307599695]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_stall_share(share):
    threshold = stall_thresholds(share)[0]
    draws = [StallGenerator(5, port, threshold) for port in range(3)]
    counts = [sum(generator.draw() for _ in range(20_000)) for generator in draws]
    # Five standard deviations of a binomial at most.
    margin = 5 * (20_000 * share * (1 - share)) ** 0.5
    assert all(abs(count - 20_000 * share) <= margin for count in counts)


def test_ports_and_seeds_draw_different_numbers():
    def sequence(seed, port):
        generator = StallGenerator(seed, port, 2**31)
        return tuple(generator.draw() for _ in range(64))

    assert len({sequence(seed, port) for seed in range(10) for port in range(3)}) == 30
    assert sequence(7, 1) == sequence(7, 1)


@pytest.mark.parametrize("latency", [1, 2, 16])
def test_first_beat_after_the_latency_then_one_a_cycle(latency):
    model = make(latency=latency)
    for _ in range(3):
        step(model)
    step(model, request=(64, 4))  # in cycle 3
    beats = collect(model, 4)
    assert beats == [(3 + latency + i, word(BYTES, 64 + 8 * i), 0) for i in range(4)]


def test_requests_overlap_without_gaps():
    model = make(latency=10)
    for i in range(3):
        step(model, request=(1024 * i, 4))
    beats = collect(model, 12)
    assert [cycle for cycle, _, _ in beats] == list(range(10, 22))
    expected = [word(BYTES, 1024 * i + 8 * k) for i in range(3) for k in range(4)]
    assert [data for _, data, _ in beats] == expected


def test_a_beat_holds_until_accepted():
    model = make(stalls=(0, 0.9, 0), seed=3)
    step(model, request=(8, 2))
    while not model.data_valid:
        step(model)
    for _ in range(50):
        assert (model.data_valid, model.data) == (1, word(BYTES, 8))
        step(model)
    assert collect(model, 2)[1][1] == word(BYTES, 16)


def test_outstanding_limit():
    model = make(latency=5, outstanding=2)
    step(model, request=(0, 2))
    assert model.request_ready
    step(model, request=(16, 1))
    assert not model.request_ready
    assert model.beats_owed == 3
    ready = []
    for _ in range(8):
        ready.append(model.request_ready)
        step(model, ready=1)
    # Beats arrive in cycles 5, 6 and 7; the first request ends in cycle 6.
    assert ready == [0, 0, 0, 0, 0, 1, 1, 1]
    assert model.beats_owed == 0


def test_a_read_sees_writes_of_earlier_cycles_only():
    model = make(latency=4)
    full = 0xFF
    step(model, write=(0, 1, full))
    step(model, write=(8, 2, full), request=(0, 2))
    step(model, write=(0, 3, full))
    assert [data for _, data, _ in collect(model, 2)] == [1, word(BYTES, 8)]
    step(model, request=(0, 2))
    assert [data for _, data, _ in collect(model, 2)] == [3, 2]


def test_strobes_choose_bytes():
    model = make()
    step(model, write=(16, 0x8877665544332211, 0b10100101))
    expected = BYTES.copy()
    expected[[16, 18, 21, 23]] = [0x11, 0x33, 0x66, 0x88]
    assert (model.memory == expected).all()
    assert model.traffic == MemoryTraffic(0, 0, 1, 4)


def test_outside_and_faulty_reads_give_error_beats():
    model = make(BYTES[:44], base=4096 - 8, faults=[(4096 + 9, 4096 + 10)])
    step(model, request=(4096 - 16, 2))
    step(model, request=(4096, 8))
    beats = collect(model, 10)
    assert [error for _, _, error in beats] == [1, 0, 0, 1, 0, 0, 0, 1, 1, 1]
    assert beats[1][1] == word(BYTES, 0)
    # The last beat of the image is half full: the rest reads as zero.
    assert beats[6][1] == word(BYTES[:44], 40)
    assert all(data == 0 for _, data, error in beats if error)


@pytest.mark.parametrize(
    ("write", "fails"),
    [
        ((32, 1, 0xFF), False),
        ((40, 1, 0x0F), False),
        ((40, 1, 0x1F), True),
        ((48, 1, 0x01), True),
        ((48, 1, 0x00), True),
        ((8, 1, 0xFF), True),
        ((16, 1, 0xFF), False),
    ],
)
def test_write_errors_last_one_cycle(write, fails):
    model = make(BYTES[:44], faults=[(12, 16)])
    before = model.memory
    step(model, write=write)
    assert model.write_error == fails
    assert (model.memory == before).all() == fails
    step(model)
    assert model.write_error == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("bus_bytes", [1, 4, 16])
def test_random_traffic(seed, bus_bytes):
    """Reads and writes at random, in disjoint halves, with stalls on every port."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, 2 * 4096, dtype=np.uint8)
    model = make(image, bus_bytes=bus_bytes, stalls=0.4, seed=seed, latency=7, outstanding=4)
    expected_reads, reads, expected = [], [], image.copy()
    request = write = None
    for _ in range(3000):
        if request is None and rng.random() < 0.3:
            beats = int(rng.integers(1, 17))
            request = (int(rng.integers(0, 4096 // bus_bytes - beats)) * bus_bytes, beats)
        if write is None and rng.random() < 0.5:
            address = 4096 + int(rng.integers(0, 4096 // bus_bytes)) * bus_bytes
            content = rng.integers(0, 256, bus_bytes, dtype=np.uint8)
            write = (address, content, rng.integers(0, 2, bus_bytes).astype(bool))
        ready = int(rng.random() < 0.7)
        if model.data_valid and ready:
            reads.append(model.data)
        taken = model.request_ready and request, model.write_ready and write
        packed = None
        if write:
            strobe = sum(int(bit) << lane for lane, bit in enumerate(write[2]))
            packed = (write[0], int.from_bytes(bytes(write[1]), "little"), strobe)
        step(model, request=request, ready=ready, write=packed)
        if taken[0]:
            start, beats = taken[0]
            places = range(start, start + beats * bus_bytes, bus_bytes)
            expected_reads += [word(image, place, bus_bytes) for place in places]
            request = None
        if taken[1]:
            address, content, lanes = taken[1]
            expected[address : address + bus_bytes][lanes] = content[lanes]
            write = None
    assert len(reads) > 500
    assert reads == expected_reads[: len(reads)]
    assert (model.memory == expected).all()
    assert model.beats_owed == len(expected_reads) - len(reads)


VIOLATIONS = {
    "beats 0": (
        [{"request": (0, 0)}],
        "In cycle 0 read_request.payload.beats must be 1..256, not 0",
    ),
    "beats 257": ([{"request": (0, 257)}], "beats must be 1..256, not 257"),
    "unaligned request": (
        [{}, {"request": (12, 1)}],
        (
            "In cycle 1 read_request.payload.address must be a multiple of the 8-byte bus width, "
            "not 0xc"
        ),
    ),
    "crossing": (
        [{"request": (4088, 2)}],
        "In cycle 0 read_request of 2 beats at 0xff8 must not cross a multiple of 4096 bytes",
    ),
    "request falls": (
        [{"request": (64, 2)}, {}],
        "In cycle 1 read_request.valid fell before the request was accepted",
    ),
    "request changes": (
        [{"request": (64, 2)}, {"request": (64, 3)}],
        (
            "In cycle 1 read_request.payload changed before the request was accepted "
            "(now address 0x40, 3 beats)"
        ),
    ),
    "write falls": (
        [{"write": (64, 1, 1)}, {}],
        "In cycle 1 write.valid fell before the beat was accepted",
    ),
    "write data changes": (
        [{"write": (64, 1, 1)}, {"write": (64, 2, 1)}],
        "In cycle 1 write.payload changed before the beat was accepted (now address 0x40)",
    ),
    "write strobe changes": (
        [{"write": (64, 1, 1)}, {"write": (64, 1, 3)}],
        "In cycle 1 write.payload changed before the beat was accepted (now address 0x40)",
    ),
    "unaligned write": (
        [{"write": (65, 1, 1)}],
        "In cycle 0 write.payload.address must be a multiple of the 8-byte bus width, not 0x41",
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_protocol_violations(name):
    cycles, message = VIOLATIONS[name]
    model = make(stalls=(1.0, 0.0, 1.0))
    for cycle in cycles[:-1]:
        step(model, **cycle)
    with pytest.raises(ProtocolError, match=re.escape(message)):
        step(model, **cycles[-1])


def test_longest_bursts_are_allowed():
    model = make()
    step(model, request=(4096 - 2048, 256))
    assert len(collect(model, 256)) == 256


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"latency": 0}, ValueError, "Latency must be at least 1, not 0"),
        ({"latency": 1.5}, TypeError, "Latency must be an integer, not 1.5"),
        ({"seed": -1}, ValueError, "Seed must be at least 0, not -1"),
        ({"outstanding": 0}, ValueError, "Outstanding requests must be at least 1, not 0"),
        ({"base": 4}, ValueError, "Base address must be a multiple of 8 bytes, not 0x4"),
        ({"faults": [(8, 8)]}, ValueError, "Fault range must be (start, end) with start < end"),
        ({"faults": [8]}, TypeError, "Fault range must be 2 integers, not 8"),
        ({"stalls": 1.5}, ValueError, "Stalls must be between 0 and 1, not 1.5"),
        ({"stalls": (0, 0)}, ValueError, "Stalls must be one or three shares of cycles"),
        ({"stalls": "0.5"}, TypeError, "Stalls must be a share of cycles or three shares"),
        ({"stalls": (0, None, 0)}, TypeError, "Stalls must be a share of cycles or three shares"),
        ({"image": BYTES.astype(np.int8)}, TypeError, "1-d uint8 array, not 1-d int8"),
        ({"image": [1, 2]}, TypeError, "Memory image must be bytes or a 1-d uint8 array"),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        make(**options)


class Summer(wiring.Component):
    """Adds up the beats of one request; it has no write side."""

    def __init__(self):
        super().__init__(
            {
                "request": Out(stream.Signature(ReadRequest(32))),
                "data": In(stream.Signature(ReadData(4))),
                "total": Out(40),
                "beats": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        sent = Signal()
        m.d.comb += [
            self.request.valid.eq(~sent),
            self.request.payload.address.eq(32),
            self.request.payload.beats.eq(20),
            self.data.ready.eq(1),
        ]
        with m.If(self.request.ready):
            m.d.sync += sent.eq(1)
        with m.If(self.data.valid):
            m.d.sync += [
                self.total.eq(self.total + self.data.payload.data),
                self.beats.eq(self.beats + 1),
            ]
        return m


@pytest.mark.parametrize("stalls", [0.0, 0.5])
def test_process_serves_a_block_with_a_read_side_only(stalls):
    image = np.random.default_rng(4).integers(0, 256, 256, dtype=np.uint8)
    model = MemoryModel(image, address_bits=32, bus_bytes=4, latency=3, stalls=stalls, seed=1)
    dut = Summer()
    cycles = 0

    async def bench(ctx):
        nonlocal cycles
        while ctx.get(dut.beats) < 20:
            await ctx.tick()
            cycles += 1
        assert ctx.get(dut.total) == int(image[32:112].view("<u4").astype(np.uint64).sum())

    process = memory_process(model, read_request=dut.request, read_data=dut.data)
    simulate(dut, bench, processes=[process], max_cycles=1000)
    # Request in cycle 0, beats in cycles 3 to 22, the last counted one cycle later.
    assert cycles == 23 if stalls == 0 else cycles > 30


@pytest.mark.parametrize("stalls", [0.25, np.float32(0.25), [0.0, 0.25, 0.1], (0, 0.25, 0)])
def test_largest_share_of_stalls(stalls):
    assert most_stalled(stalls) == 0.25


@pytest.mark.parametrize("stalls", [1, 1.0, (0, 0, 1.0)])
def test_a_port_that_always_stalls_never_finishes(stalls):
    with pytest.raises(ValueError, match="Stalls must be below 1 for a run to finish"):
        most_stalled(stalls)
