# amaranth: UnusedElaboratable=no
"""Descriptors arrive whole at every bus width, whatever the memory's pace."""

import random

import pytest
from amaranth import Signal

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, FIELDS, MARK, decode, encode, fetch_cycles
from haloconv.rtl.program_fetch import ProgramFetch
from haloconv.sim.streams import get, put_many, simulate

BUSES = (1, 2, 4, 8, 16, 32)


def engine(bus):
    return EngineConfig(
        out_lanes=1, split_lanes=1, bus_bytes=bus, units=("elementwise",), address_bits=20
    )


def random_descriptor(rng):
    values = {f.name: rng.randint(f.minimum, f.maximum) for f in FIELDS} | {"mark": MARK}
    return values, encode(values)


def beats_of(descriptor, bus):
    return [
        {"data": int.from_bytes(descriptor[at : at + bus], "little"), "error": 0}
        for at in range(0, DESCRIPTOR_BYTES, bus)
    ]


def fields_of(ctx, dut):
    """The kept fields as the hardware layout cuts them."""
    return {name: ctx.get(dut.descriptor[name]) for name, _ in dut.descriptor.shape()}


def kept(dut, values):
    return {name: values[name] for name, _ in dut.descriptor.shape()}


def words_of(descriptor):
    return [
        (at // 4, int.from_bytes(descriptor[at : at + 4], "little"))
        for at in range(0, DESCRIPTOR_BYTES, 4)
    ]


@pytest.mark.parametrize("stalls", [0.0, 0.5])
@pytest.mark.parametrize("bus", BUSES)
def test_two_descriptors_in_turn(bus, stalls):
    seed = bus
    rng = random.Random(seed)
    dut = ProgramFetch(engine(bus))
    done_at, last_beat, words, sent = [], [], [], []

    async def bench(ctx):
        for _ in range(2):
            values, descriptor = random_descriptor(rng)
            sent.extend(words_of(descriptor))
            address = rng.randrange(0, 1 << 20, bus)
            ctx.set(dut.address, address)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            await ctx.tick().repeat(rng.randint(1, 4))
            segment = await get(ctx, dut.o)
            assert segment == {"address": address, "length": DESCRIPTOR_BYTES}
            ctx.set(dut.address, rng.getrandbits(20))  # not looked at any longer
            await put_many(ctx, dut.i, beats_of(descriptor, bus), stalls=stalls, seed=seed)
            await ctx.tick()
            assert ctx.get(dut.done)
            assert decode(descriptor) == values
            assert fields_of(ctx, dut) == kept(dut, values)
            await ctx.tick()
            for _ in range(3):
                _, _, done, asking = await ctx.tick().sample(dut.done, dut.o.valid)
                assert not done and not asking
                assert fields_of(ctx, dut) == kept(dut, values)

    async def watch(ctx):
        cycle = count = 0
        beats = DESCRIPTOR_BYTES // bus
        ports = dut.i.valid & dut.i.ready, dut.done, dut.word.as_value()
        async for _, _, taken, done, word in ctx.tick().sample(*ports):
            count += taken
            if taken and count % beats == 0:
                last_beat.append(cycle)
            if done:
                done_at.append(cycle)
            shown = dut.word.shape().from_bits(word)
            if shown.valid:
                words.append((shown.index, shown.data))
            cycle += 1

    simulate(dut, bench, background=[watch])
    # The word is shown in the next cycle, and taken in it.
    assert len(done_at) == 2 and done_at == [cycle + 2 for cycle in last_beat]
    assert words == sent


@pytest.mark.parametrize("bus", BUSES)
def test_a_beat_or_a_word_a_cycle(bus):
    dut = ProgramFetch(engine(bus))
    taken_at = []

    async def bench(ctx):
        _, descriptor = random_descriptor(random.Random(bus))
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        await get(ctx, dut.o)
        await put_many(ctx, dut.i, beats_of(descriptor, bus))

    async def watch(ctx):
        cycle = 0
        async for _, _, valid in ctx.tick().sample(dut.i.valid):
            cycle += 1
            if valid:
                taken_at.append(cycle)

    simulate(dut, bench, background=[watch])
    assert len(taken_at) == taken_at[-1] - taken_at[0] + 1 == fetch_cycles(bus)


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
            await ctx.tick()
            assert ctx.get(dut.done) == (address == 4096)
            ctx.set(reset, reset_between and address == 64)
            await ctx.tick()
            ctx.set(reset, 0)
        assert fields_of(ctx, dut) == kept(dut, values)

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
