# amaranth: UnusedElaboratable=no
"""Banks, rotation and address wrap of the halo buffer against a list of words."""

import random

import pytest
from amaranth.back import rtlil

from haloconv.planner.config import EngineConfig
from haloconv.rtl.halo_buffer import HaloBuffer
from haloconv.sim.streams import plain, simulate

# Split lanes of and between powers of two; words wider than the split lanes.
LANES = [(1, 1), (8, 2), (3, 5), (4, 4), (2, 3), (1, 7), (1, 8)]
DEPTH = 6


def engine(lanes):
    out_lanes, split_lanes = lanes
    word = split_lanes * -(-out_lanes // split_lanes)
    return EngineConfig(
        out_lanes=out_lanes, split_lanes=split_lanes, input_bytes=DEPTH * split_lanes * word
    )


def random_word(rng, count):
    return [rng.choice((-256, 255, rng.randint(-256, 255))) for _ in range(count)]


def test_elaborates():
    for lanes in LANES:
        rtlil.convert(HaloBuffer(engine(lanes)), emit_src=False)


@pytest.mark.parametrize(
    ("split_lanes", "latency"), [(1, 2), (2, 3), (3, 4), (4, 4), (5, 5), (8, 5), (9, 6)]
)
def test_latency_by_hand(split_lanes, latency):
    # Address, memory, and a stage for each bit of the turn.
    dut = HaloBuffer(engine((1, split_lanes)))
    assert dut.latency == latency and dut.rotator_stages == latency - 2


@pytest.mark.parametrize("lanes", LANES)
def test_every_position(lanes):
    """Words are numbered bank by bank: a read gives Pr words in a row, across the wrap."""
    rng = random.Random(str(lanes))
    config, dut = engine(lanes), HaloBuffer(engine(lanes))
    banks, words = config.split_lanes, 2 * config.input_words
    assert words == 2 * DEPTH
    stored = [random_word(rng, config.word_bytes) for _ in range(banks * words)]
    # The last read that wraps has no next address.
    places = list(range(banks * words - banks + 1))
    rng.shuffle(places)
    got = []

    async def bench(ctx):
        ctx.set(dut.write, 1)
        for place in rng.sample(range(len(stored)), len(stored)):
            ctx.set(dut.write_position, {"bank": place % banks, "word": place // banks})
            ctx.set(dut.write_data, stored[place])
            await ctx.tick()
        ctx.set(dut.write, 0)
        ctx.set(dut.write_data, random_word(rng, config.word_bytes))  # without write
        # A read every cycle.
        for cycle in range(len(places) + dut.latency):
            place = places[min(cycle, len(places) - 1)]
            ctx.set(dut.read_position, {"bank": place % banks, "word": place // banks})
            await ctx.tick()
            if cycle >= dut.latency - 1:
                got.append(plain(ctx.get(dut.data)))

    simulate(dut, bench, check_loops=False)
    for place, found in zip(places, got, strict=False):
        assert found == stored[place : place + banks]
    assert len(got) >= len(places)


@pytest.mark.parametrize("lanes", LANES)
def test_reads_among_writes(lanes):
    """A read sees the writes up to and with its own cycle, no later ones."""
    rng = random.Random(str(lanes))
    config, dut = engine(lanes), HaloBuffer(engine(lanes))
    banks = config.split_lanes
    # Few words, so that reads meet the writes around them; memories start as zeros.
    count = 2 * banks
    model = [[0] * config.word_bytes for _ in range(count + banks)]
    pending = []

    async def bench(ctx):
        for _ in range(200):
            write = rng.random() < 0.6
            place, read = rng.randrange(count), rng.randrange(count)
            data = random_word(rng, config.word_bytes)
            ctx.set(dut.write, write)
            ctx.set(dut.write_position, {"bank": place % banks, "word": place // banks})
            ctx.set(dut.write_data, data)
            ctx.set(dut.read_position, {"bank": read % banks, "word": read // banks})
            if write:
                model[place] = data
            pending.append([list(word) for word in model[read : read + banks]])
            await ctx.tick()
            if len(pending) == dut.latency:
                assert plain(ctx.get(dut.data)) == pending.pop(0)

    simulate(dut, bench, check_loops=False)
