# amaranth: UnusedElaboratable=no
"""Banks, their copies and the address wrap of the halo buffer against a list of words."""

import random

import pytest
from amaranth.back import rtlil

from haloconv.planner.config import EngineConfig
from haloconv.rtl.halo_buffer import HaloBuffer, halo_shares
from haloconv.sim.streams import plain, simulate

# Split lanes of and between powers of two; words wider than the split lanes.
LANES = [(1, 1), (8, 2), (3, 5), (4, 4), (2, 3), (1, 7), (1, 8)]
SHALLOW, DEEP = 6, 130  # words of a half: several banks of a shallow one fit a block RAM


LATENCIES = (3, 2)
"""Without serial requantisers, and beside them."""


def engine(lanes, depth=SHALLOW, latency=3):
    out_lanes, split_lanes = lanes
    word = split_lanes * -(-out_lanes // split_lanes)
    return EngineConfig(
        out_lanes=out_lanes, split_lanes=split_lanes, input_bytes=depth * split_lanes * word,
        roundings=("double",), serial_requantizers=latency == 2,
    )  # fmt: skip


def random_word(rng, count):
    return [rng.choice((-256, 255, rng.randint(-256, 255))) for _ in range(count)]


def by_lane(config, bank, words):
    """Words of the memories, by copy, as the split lanes want them."""
    memories = config.split_lanes // halo_shares(config)
    lanes = (divmod(lane, memories) for lane in range(config.split_lanes))
    return [words[copy][(bank + index) % memories] for copy, index in lanes]


@pytest.mark.parametrize(
    ("split_lanes", "half", "shares"),
    [
        (1, 1, 1),
        (2, 64, 2),  # two banks of 128 words fill the 256 of the iCE40
        (2, 65, 1),
        (4, 1, 2),
        (8, 64, 4),  # 4 banks of 128 words fill 512
        (8, 65, 2),
        (8, 128, 2),
        (8, 129, 1),
        (64, 1, 32),
        (6, 1, 1),
    ],
)
def test_shares_by_hand(split_lanes, half, shares):
    assert halo_shares(engine((1, split_lanes), half)) == shares


def test_elaborates():
    for lanes in LANES:
        for latency in LATENCIES:
            rtlil.convert(HaloBuffer(engine(lanes, latency=latency)), emit_src=False)


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("depth", [SHALLOW, DEEP])
@pytest.mark.parametrize("lanes", LANES)
def test_every_position(lanes, depth, latency):
    """Words are numbered bank by bank: a read gives Pr words in a row, across the wrap."""
    rng = random.Random(f"{lanes} {depth}")
    config = engine(lanes, depth, latency)
    dut = HaloBuffer(config)
    banks, words = config.split_lanes, 2 * config.input_words
    assert words == 2 * depth
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

    assert dut.latency == latency
    simulate(dut, bench, check_loops=False)
    for place, found in zip(places, got, strict=False):
        assert by_lane(config, place % banks, found) == stored[place : place + banks]
    assert len(got) >= len(places)


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("depth", [SHALLOW, DEEP])
@pytest.mark.parametrize("lanes", LANES)
def test_reads_among_writes(lanes, depth, latency):
    """A read sees the writes up to and with its own cycle, no later ones."""
    rng = random.Random(f"{lanes} {depth}")
    config = engine(lanes, depth, latency)
    dut = HaloBuffer(config)
    banks = config.split_lanes
    # Few words, so that reads meet the writes around them; memories start as zeros.
    count = 2 * banks
    model = [[0] * config.word_bytes for _ in range(count + banks)]
    pending = []
    before = 0

    async def bench(ctx):
        nonlocal before
        for _ in range(200):
            place, read = rng.randrange(count), rng.randrange(count)
            # Nobody writes what is being read.
            write = rng.random() < 0.8 and not before <= place < before + banks
            data = random_word(rng, config.word_bytes)
            ctx.set(dut.write, write)
            ctx.set(dut.write_position, {"bank": place % banks, "word": place // banks})
            ctx.set(dut.write_data, data)
            ctx.set(dut.read_position, {"bank": read % banks, "word": read // banks})
            if write:
                model[place] = data
            pending.append((read, [list(word) for word in model[read : read + banks]]))
            before = read
            await ctx.tick()
            if len(pending) == dut.latency:
                read, expected = pending.pop(0)
                assert by_lane(config, read % banks, plain(ctx.get(dut.data))) == expected

    simulate(dut, bench, check_loops=False)
