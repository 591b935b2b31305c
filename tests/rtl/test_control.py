# amaranth: UnusedElaboratable=no
"""Registers, counters and the sequence of a program, with the engine's other blocks played."""

import numpy as np
import pytest
from amaranth.hdl import Signal

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, ELEMENTWISE, decode, encode
from haloconv.planner.layer import ConvLayer
from haloconv.planner.program import LayerAddresses, describe_layer
from haloconv.planner.registers import COUNTERS, IDENTITY, REVISION, ErrorCode, Register
from haloconv.planner.requantization import ROUNDINGS, Requantization
from haloconv.planner.tile import Tile
from haloconv.rtl.control import Control
from haloconv.rtl.register_file import ROUND
from haloconv.sim.streams import simulate

from ..support.kept_fields import kept_fields

START, ABORT = 1, 2
BUSY, DONE, ERROR = 1, 2, 4

CONFIG = EngineConfig(
    out_lanes=3, split_lanes=5, bus_bytes=4, requant_lanes=2, input_bytes=1024, weight_bytes=512,
    psum_bytes=160, bias_bytes=36, roundings=("double_up", "fp32"), address_bits=20,
)  # fmt: skip
LAYER = ConvLayer(5, 6, 7, 6, (3, 2), (2, 1), pads=(1, 1, 1, 1))
TILE = Tile(1, 5, 5, 6)


def descriptor(*, rounding="fp32", last=True, config=CONFIG, **changes):
    if rounding == "fp32":
        requantization = Requantization(scale=np.float32(0.5), rounding=rounding)
    else:
        requantization = Requantization(2**30, -3, rounding=rounding)
    fields = decode(
        describe_layer(
            LAYER, config, TILE, "channel", "hwmc", LayerAddresses(0, 0, 0, 0, 0), requantization,
            load_scale=True, last=last,
        )
    )  # fmt: skip
    fields.update(changes)
    return int.from_bytes(encode(fields), "little")


class Host:
    """Register accesses, and the blocks around the control."""

    def __init__(self, ctx, dut):
        self.ctx, self.dut = ctx, dut

    async def write(self, register, value):
        bus = self.dut.registers
        self.ctx.set(bus.address, int(register))
        self.ctx.set(bus.write_data, value)
        self.ctx.set(bus.write, 1)
        await self.ctx.tick()
        self.ctx.set(bus.write, 0)

    async def read(self, register):
        self.ctx.set(self.dut.registers.address, int(register))
        await self.ctx.tick()
        return self.ctx.get(self.dut.registers.read_data)

    async def read_wide(self, register):
        return await self.read(register) | await self.read(register + 1) << 32

    def get(self, name):
        return self.ctx.get(getattr(self.dut, name))

    async def pulse(self, *names):
        """High for one cycle."""
        for name in names:
            self.ctx.set(getattr(self.dut, name), 1)
        await self.ctx.tick()
        for name in names:
            self.ctx.set(getattr(self.dut, name), 0)

    async def fetch(self, bits, *, delay=2):
        """From the start of a fetch to the end of the check."""
        ctx, dut = self.ctx, self.dut
        assert ctx.get(dut.fetch) and ctx.get(dut.clear)
        for _ in range(1 + delay):
            await ctx.tick()
            assert ctx.get(dut.fetching) and not ctx.get(dut.fetch)
        await self.show(bits)
        await self.pulse("fetched")

    async def show(self, bits):
        """The words of a descriptor, and the fields that are kept."""
        for index in range(DESCRIPTOR_BYTES // 4):
            word = {"valid": 1, "index": index, "data": bits >> 32 * index & 0xFFFFFFFF}
            self.ctx.set(self.dut.word, word)
            await self.ctx.tick()
        self.ctx.set(self.dut.word, {"valid": 0, "index": 0, "data": 0})
        self.ctx.set(self.dut.descriptor, kept_fields(bits))

    async def to_run(self, bits):
        await self.fetch(bits)
        assert self.get("start")
        await self.ctx.tick()
        assert not self.get("start")

    async def stopped(self, code, layers=0):
        """The halt, with nothing under way, and what the host sees."""
        await self.ctx.tick()
        assert self.get("halted") and self.get("clear")
        await self.ctx.tick()
        assert not self.get("halted") and not self.get("clear")
        assert await self.rest() == ERROR
        assert await self.read(Register.ERROR_CODE) == code
        assert await self.read(Register.ERROR_DETAIL) == layers

    async def status(self):
        return await self.read(Register.STATUS) & 0xFFFF

    async def rest(self):
        """Until the last events are counted; the status then."""
        for _ in range(2 * ROUND + 2):
            status = await self.status()
            if not status & BUSY:
                return status
            assert not status & DONE
        raise AssertionError("still busy")

    async def catch_up(self):
        """Until the counters show what has happened."""
        await self.ctx.tick().repeat(2 * ROUND + 4)


def play(bench, config=CONFIG, **options):
    dut = Control(config)

    async def run(ctx):
        await bench(Host(ctx, dut))

    simulate(dut, run, **options)


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        EngineConfig(),
        EngineConfig(out_lanes=1, split_lanes=1, bus_bytes=1, psum_bytes=0, roundings=()),
        EngineConfig(
            out_lanes=64, split_lanes=64, bus_bytes=32, input_bytes=1 << 16, bias_bytes=1024,
            roundings=ROUNDINGS, weight_zero_points=False, address_bits=16,
            units=("elementwise", "max_pool"), counters=False,
        ),
    ],
)  # fmt: skip
def test_identity_and_configuration(config):
    async def bench(host):
        assert await host.read(Register.IDENTITY) == IDENTITY == int.from_bytes(b"HALO", "big")
        assert await host.read(Register.REVISION) == REVISION
        lanes = await host.read(Register.LANES)
        assert [lanes >> shift & 0xFF for shift in (0, 8, 16, 24)] == [
            config.out_lanes, config.split_lanes, config.bus_bytes, config.results_per_cycle,
        ]  # fmt: skip
        options = await host.read(Register.OPTIONS)
        built = [name for code, name in enumerate(ROUNDINGS) if options >> code & 1]
        assert tuple(built) == config.built_roundings
        assert options >> 5 & 0b111 == 0
        assert options >> 8 & 1 == config.weight_zero_points
        assert options >> 9 & 1 == ("elementwise" in config.built_units)
        assert options >> 10 & 1 == ("max_pool" in config.built_units)
        assert options >> 11 & 1 == config.counters
        assert options >> 12 & 0b1111 == 0
        assert options >> 16 == config.address_bits
        assert await host.read(Register.INPUT_WORDS) == config.input_words
        assert await host.read(Register.WEIGHT_WORDS) == config.weight_words
        assert await host.read(Register.PSUM_WORDS) == config.psum_words
        assert await host.read(Register.CHANNEL_GROUPS) == config.channel_groups
        for register in (15, 38, 100, 255):
            assert await host.read(register) == 0
        # They are constants.
        for register in (Register.IDENTITY, Register.LANES, Register.STATUS, Register.CYCLES):
            before = await host.read(register)
            await host.write(register, 0xFFFFFFFF)
            assert await host.read(register) == before

    play(bench, config)


def test_a_program_of_two_layers():
    async def bench(host):
        ctx, dut = host.ctx, host.dut
        assert await host.status() == 0
        await host.write(Register.PROGRAM_LOW, 0x41200)
        assert await host.read(Register.PROGRAM_LOW) == 0x41200
        await host.write(Register.CONTROL, START)
        assert host.get("program") == 0x41200
        await host.to_run(descriptor(last=False))
        assert await host.status() == BUSY
        # Neither another start nor another address reaches a running program.
        await host.write(Register.PROGRAM_LOW, 0x100)
        await host.write(Register.CONTROL, START)
        assert not host.get("fetch")
        assert await host.read(Register.PROGRAM_LOW) == 0x41200
        assert await host.read(Register.LAYERS) == 0
        await host.catch_up()
        assert await host.read_wide(Register.PROGRAM_BYTES) == DESCRIPTOR_BYTES
        ctx.set(dut.layer_done, 1)
        await ctx.tick()
        assert not host.get("fetch")
        await ctx.tick()
        ctx.set(dut.layer_done, 0)
        assert host.get("program") == 0x41200 + DESCRIPTOR_BYTES
        await host.to_run(descriptor())
        assert await host.read(Register.STATUS) == BUSY | 1 << 16
        await host.catch_up()
        assert await host.read(Register.LAYERS) == 1
        await host.pulse("layer_done")
        await ctx.tick()
        assert await host.rest() == DONE
        assert await host.read(Register.LAYERS) == 2
        assert await host.read(Register.STATUS) == DONE | 2 << 16
        assert await host.read(Register.ERROR_CODE) == ErrorCode.NONE
        # Done holds until the next start.
        await host.write(Register.CONTROL, START)
        assert await host.status() == BUSY
        assert await host.read(Register.LAYERS) == 0

    play(bench)


def test_the_datapath_is_cleared_before_and_behind_a_layer():
    async def bench(host):
        cleared = []

        async def step(name):
            if host.get("clear"):
                cleared.append(name)
            await host.ctx.tick()

        await host.write(Register.CONTROL, START)
        await step("fetch")
        await host.show(descriptor())
        host.ctx.set(host.dut.fetched, 1)
        for name in ("descriptor", "check", "run"):
            await step(name)
        host.ctx.set(host.dut.layer_done, 1)
        for name in ("done", "settle", "idle", "idle"):
            await step(name)
        assert cleared == ["fetch", "settle"]

    play(bench)


COUNTS = (
    "groups", "tiles_h", "tiles_w", "tiles_m", "tiles_c", "rows", "rows_last", "column_groups",
    "column_groups_last", "column_tail", "column_tail_last", "m_groups", "m_groups_last", "m_tail",
    "m_tail_last", "tile_m", "tile_m_last", "c_steps", "c_steps_last", "c_tail", "c_tail_last",
    "segment_bytes", "segment_bytes_last", "pixel_words", "pixel_words_last", "word_tail",
    "word_tail_last", "kernel_h", "kernel_w", "taps", "stride_h", "stride_w", "phases",
    "weight_bytes",
)  # fmt: skip


SPANS = (
    "rows", "rows_last", "column_groups", "column_groups_last", "span_h", "span_h_last",
    "span_w", "span_w_last", "pixel_words", "pixel_words_last",
)  # fmt: skip


def test_descriptors_that_are_refused():
    # Counters are as wide as a count of all words of a half, or of all channels of the tables.
    spans, steps, channels = (
        (1 << most.bit_length()) - 1
        for most in (
            CONFIG.split_lanes * CONFIG.input_words,
            CONFIG.weight_words,
            CONFIG.channel_groups * CONFIG.out_lanes,
        )
    )
    cases = [(descriptor(mark=0), ErrorCode.DESCRIPTOR), (0, ErrorCode.DESCRIPTOR)]
    cases += [(descriptor(**{name: 0}), ErrorCode.DESCRIPTOR) for name in COUNTS]
    cases += [
        (descriptor(rounding=name), None if name in CONFIG.built_roundings else 1)
        for name in ROUNDINGS
    ]
    # Raw sums need no rounding mode at all.
    cases += [(descriptor(rounding="single", raw=1), None)]
    # Units that are not built.
    cases += [(descriptor(mode=ELEMENTWISE, elements=1), 1), (descriptor(maximum=1), 1)]
    for name, most in (
        ("input_words", CONFIG.input_words),
        ("weight_words", CONFIG.weight_words),
        ("psum_words", CONFIG.psum_words),
        ("m_groups", CONFIG.channel_groups),
        ("m_tail", 3),
        ("m_tail_last", 3),
        ("column_tail", 5),
        ("column_tail_last", 5),
        ("c_tail", 5),
        ("c_tail_last", 5),
        ("word_tail", CONFIG.word_bytes),
        ("word_tail_last", CONFIG.word_bytes),
        *((name, spans) for name in SPANS),
        ("c_steps", steps),
        ("c_steps_last", steps),
        ("taps", steps),
        ("tile_m", channels),
        ("tile_m_last", channels),
    ):
        cases += [
            (descriptor(**{name: most}), None),
            (descriptor(**{name: most + 1}), ErrorCode.LIMIT),
        ]

    async def bench(host):
        for bits, code in cases:
            await host.write(Register.CONTROL, START)
            await host.fetch(bits, delay=0)
            if code is None:
                assert host.get("start")
                await host.ctx.tick()
                await host.pulse("layer_done")
                await host.ctx.tick()
                assert await host.rest() == DONE
            else:
                assert not host.get("start")
                await host.stopped(code)

    play(bench)


def test_units_that_are_built():
    config = EngineConfig(out_lanes=2, split_lanes=2, units=("elementwise", "max_pool"))
    elementwise = {field: 0 for field in COUNTS} | {"mode": ELEMENTWISE}
    cases = [
        (descriptor(config=config, rounding="double", maximum=1), None),
        (descriptor(config=config, rounding="double", elements=5, **elementwise), None),
        (descriptor(config=config, rounding="double", elements=0, **elementwise), 1),
    ]

    async def bench(host):
        for bits, code in cases:
            await host.write(Register.CONTROL, START)
            await host.fetch(bits)
            if code is None:
                assert host.get("start")
                await host.ctx.tick()
                await host.pulse("layer_done")
                await host.ctx.tick()
                assert await host.rest() == DONE
            else:
                await host.stopped(code)

    play(bench, config)


def test_a_program_must_lie_at_a_beat():
    async def bench(host):
        for address, good in ((0x104, True), (0x106, False), (0x103, False)):
            await host.write(Register.PROGRAM_LOW, address)
            await host.write(Register.CONTROL, START)
            await host.fetch(descriptor())
            if good:
                assert host.get("start")
                await host.ctx.tick()
                await host.pulse("layer_done")
                await host.ctx.tick()
                assert await host.rest() == DONE
            else:
                await host.stopped(ErrorCode.DESCRIPTOR)

    play(bench)


@pytest.mark.parametrize(
    ("event", "code"), [("read_error", ErrorCode.READ), ("write_error", ErrorCode.WRITE)]
)
def test_bus_errors_stop_a_running_layer(event, code):
    async def bench(host):
        await host.write(Register.CONTROL, START)
        await host.to_run(descriptor(last=False))
        await host.pulse("layer_done")
        await host.ctx.tick()
        await host.to_run(descriptor())
        await host.pulse(event)
        # What comes afterwards does not change the cause.
        await host.pulse("read_error", "write_error")
        host.ctx.set(host.dut.reads_outstanding, 0)
        assert host.get("halted") and host.get("clear")
        await host.ctx.tick()
        assert await host.rest() == ERROR
        assert await host.read(Register.ERROR_CODE) == code
        assert await host.read(Register.ERROR_DETAIL) == 1

    play(bench)


def test_errors_with_the_last_beats():
    async def bench(host):
        # Of the descriptor: seen before it is looked at.
        await host.write(Register.CONTROL, START)
        await host.ctx.tick()
        await host.show(descriptor())
        await host.pulse("read_error")
        host.ctx.set(host.dut.fetched, 1)
        await host.stopped(ErrorCode.READ)
        host.ctx.set(host.dut.fetched, 0)
        # Of the last write: its answer comes in the cycle behind it, when the layer is done.
        for early in (True, False):
            await host.write(Register.CONTROL, START)
            await host.to_run(descriptor())
            if early:
                await host.pulse("layer_done", "write_error")
            else:
                await host.pulse("layer_done")
                host.ctx.set(host.dut.write_error, 1)
            await host.stopped(ErrorCode.WRITE)
            host.ctx.set(host.dut.write_error, 0)

    play(bench)


def test_the_halt_waits_for_reads_and_for_a_write():
    async def bench(host):
        ctx, dut = host.ctx, host.dut
        await host.write(Register.CONTROL, START)
        await host.to_run(descriptor())
        ctx.set(dut.reads_outstanding, 1)
        ctx.set(dut.write_waiting, 1)
        await host.write(Register.CONTROL, ABORT)
        await ctx.tick()
        for name in ("reads_outstanding", "write_waiting"):
            for _ in range(5):
                assert host.get("halted") and not host.get("clear")
                assert await host.status() & BUSY
            ctx.set(getattr(dut, name), 0)
        assert host.get("clear")
        await ctx.tick()
        assert not host.get("halted")
        assert await host.rest() == ERROR
        assert await host.read(Register.ERROR_CODE) == ErrorCode.ABORTED

    play(bench)


@pytest.mark.parametrize("when", range(8))
def test_abort_in_every_state(when):
    async def bench(host):
        ctx, dut = host.ctx, host.dut
        await host.write(Register.CONTROL, START)
        ctx.set(dut.descriptor, kept_fields(descriptor()))
        stopped = False
        for cycle in range(12):
            # Fetch 0, descriptor 1 and 2, check 3, run 4 to 6, settle 7.
            ctx.set(dut.fetched, int(cycle == 2))
            ctx.set(dut.layer_done, int(cycle >= 6))
            if cycle == when:
                await host.write(Register.CONTROL, ABORT)
            else:
                await ctx.tick()
            stopped |= bool(host.get("halted"))
        # In the last cycle of the last layer it comes too late.
        assert stopped == (when < 7)
        assert await host.rest() == (ERROR if when < 7 else DONE)
        code = ErrorCode.ABORTED if when < 7 else ErrorCode.NONE
        assert await host.read(Register.ERROR_CODE) == code
        ctx.set(dut.layer_done, 0)
        # Nothing of it is left for the next program.
        await host.write(Register.CONTROL, START)
        await host.to_run(descriptor())
        await host.pulse("layer_done")
        await ctx.tick()
        assert await host.rest() == DONE
        assert await host.read(Register.ERROR_CODE) == ErrorCode.NONE

    play(bench)


def test_abort_of_an_idle_engine_does_nothing():
    async def bench(host):
        await host.write(Register.CONTROL, ABORT)
        assert await host.status() == 0
        await host.write(Register.CONTROL, START)
        await host.to_run(descriptor())
        assert await host.status() == BUSY

    play(bench)


def test_counters():
    async def bench(host):
        ctx, dut = host.ctx, host.dut
        events = dut.events

        async def expect(**values):
            for name, register in COUNTERS.items():
                seen = await host.read_wide(register)
                assert seen == values.get(name, 0), name

        # Nothing counts before a start.
        ctx.set(events.computing, 1)
        ctx.set(events.written, 7)
        for _ in range(5):
            await ctx.tick()
        await expect()
        ctx.set(events.computing, 0)
        ctx.set(events.written, 0)
        await host.write(Register.CONTROL, START)
        await host.to_run(descriptor())
        # Fetch, three before the words, the words, fetched, check, and this run's first cycle.
        cycles = 1 + 3 + DESCRIPTOR_BYTES // 4 + 1 + 1
        for name, amount, length in (
            ("computing", 1, 5), ("waiting_load", 1, 3), ("waiting_drain", 1, 4),
            ("written", 7, 3),
        ):  # fmt: skip
            ctx.set(events[name], amount)
            for _ in range(length):
                await ctx.tick()
            ctx.set(events[name], 0)
            cycles += length
        for kind, count in (("input", 5), ("weight", 4), ("bias", 3), ("scale", 2)):
            ctx.set(events.taken.count, count)
            ctx.set(events.taken[kind], 1)
            for _ in range(count):
                await ctx.tick()
            ctx.set(events.taken[kind], 0)
            cycles += count
        await host.pulse("layer_done")
        await ctx.tick()
        cycles += 1  # settle
        ctx.set(events.computing, 1)  # and nothing counts behind the end
        await host.rest()
        await expect(
            cycles=cycles, compute_cycles=5, load_stall_cycles=3, drain_stall_cycles=4,
            output_bytes=3 * 7, input_bytes=25, weight_bytes=16, bias_bytes=9, scale_bytes=4,
            program_bytes=DESCRIPTOR_BYTES,
        )  # fmt: skip
        ctx.set(events.computing, 0)
        # The next start clears them.
        await host.write(Register.CONTROL, START)
        await ctx.tick()
        assert await host.read_wide(Register.COMPUTE_CYCLES) == 0
        assert await host.read_wide(Register.OUTPUT_BYTES) == 0

    play(bench)


def test_reset_in_mid_program():
    reset = Signal()

    async def bench(host):
        await host.write(Register.PROGRAM_LOW, 0x40)
        await host.write(Register.CONTROL, START)
        await host.to_run(descriptor())
        await host.pulse("read_error")
        host.ctx.set(reset, 1)
        await host.ctx.tick()
        host.ctx.set(reset, 0)
        for register in (Register.STATUS, Register.ERROR_CODE, Register.PROGRAM_LOW):
            assert await host.read(register) == 0
        for register in COUNTERS.values():
            assert await host.read_wide(register) == 0
        await host.write(Register.CONTROL, START)
        await host.to_run(descriptor())
        await host.pulse("layer_done")
        await host.ctx.tick()
        assert await host.rest() == DONE

    play(bench, reset=reset)
