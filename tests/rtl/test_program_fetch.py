# amaranth: UnusedElaboratable=no
"""Descriptors arrive whole at every bus width, whatever the memory's pace."""

import random

import pytest
from amaranth import Signal

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, FIELDS, MARK, decode, encode
from haloconv.rtl.program_fetch import ProgramFetch
from haloconv.sim.streams import get, put_many, simulate

BUSES = (1, 2, 4, 8, 16, 32)


def engine(bus):
    return EngineConfig(out_lanes=1, split_lanes=1, bus_bytes=bus, address_bits=20)


def random_descriptor(rng):
    values = {f.name: rng.randint(f.minimum, f.maximum) for f in FIELDS} | {"mark": MARK}
    return values, encode(values)


def beats_of(descriptor, bus):
    return [
        {"data": int.from_bytes(descriptor[at : at + bus], "little"), "error": 0}
        for at in range(0, DESCRIPTOR_BYTES, bus)
    ]


def fields_of(ctx, dut):
    """The descriptor's fields as the hardware layout cuts them."""
    return {field.name: ctx.get(getattr(dut.descriptor, field.name)) for field in FIELDS}


@pytest.mark.parametrize("stalls", [0.0, 0.5])
@pytest.mark.parametrize("bus", BUSES)
def test_two_descriptors_in_turn(bus, stalls):
    seed = bus
    rng = random.Random(seed)
    dut = ProgramFetch(engine(bus))
    done_at, last_beat = [], []

    async def bench(ctx):
        for _ in range(2):
            values, descriptor = random_descriptor(rng)
            address = rng.randrange(0, 1 << 20, bus)
            ctx.set(dut.address, address)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            ctx.set(dut.address, rng.getrandbits(20))  # only looked at with start
            await ctx.tick().repeat(rng.randint(1, 4))
            segment = await get(ctx, dut.o)
            assert segment == {"address": address, "length": DESCRIPTOR_BYTES}
            await put_many(ctx, dut.i, beats_of(descriptor, bus), stalls=stalls, seed=seed)
            assert ctx.get(dut.done)
            assert fields_of(ctx, dut) == decode(descriptor) == values
            await ctx.tick()
            for _ in range(3):
                _, _, done, asking = await ctx.tick().sample(dut.done, dut.o.valid)
                assert not done and not asking
                assert fields_of(ctx, dut) == values

    async def watch(ctx):
        cycle = count = 0
        beats = DESCRIPTOR_BYTES // bus
        async for _, _, valid, done in ctx.tick().sample(dut.i.valid, dut.done):
            count += valid
            if valid and count % beats == 0:
                last_beat.append(cycle)
            if done:
                done_at.append(cycle)
            cycle += 1

    simulate(dut, bench, background=[watch])
    assert len(done_at) == 2 and done_at == [cycle + 1 for cycle in last_beat]


@pytest.mark.parametrize("reset_between", [False, True])
def test_start_over_after_half_a_descriptor(reset_between):
    rng = random.Random(5)
    values, descriptor = random_descriptor(rng)
    _, other = random_descriptor(rng)
    dut, reset = ProgramFetch(engine(8)), Signal()

    async def bench(ctx):
        for beats, address in ((beats_of(other, 8)[:17], 64), (beats_of(descriptor, 8), 4096)):
            ctx.set(dut.address, address)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            assert (await get(ctx, dut.o))["address"] == address
            await put_many(ctx, dut.i, beats)
            assert ctx.get(dut.done) == (address == 4096)
            ctx.set(reset, reset_between and address == 64)
            await ctx.tick()
            ctx.set(reset, 0)
        assert fields_of(ctx, dut) == values

    simulate(dut, bench, reset=reset)


def test_a_request_that_was_never_taken_gives_way_to_the_next():
    dut = ProgramFetch(engine(4))

    async def bench(ctx):
        for address in (0x100, 0x200):
            ctx.set(dut.address, address)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            await ctx.tick()
        assert (await get(ctx, dut.o))["address"] == 0x200
        assert not ctx.get(dut.o.valid)

    simulate(dut, bench)
