# amaranth: UnusedElaboratable=no
"""Operand selection against numpy, in every mode."""

import numpy as np
import pytest
from amaranth.hdl import Signal

from haloconv.planner.config import EngineConfig
from haloconv.rtl.halo_buffer import halo_latency, halo_shares
from haloconv.rtl.operand_select import OperandSelect
from haloconv.sim.streams import plain, simulate

LANES = ((1, 1), (3, 5), (8, 2), (4, 4), (2, 3), (9, 4), (2, 8), (1, 16))
MODES = ("channel", "row", "depthwise")


def expected(mode, words, select, mask, lanes, split):
    """Operands (Pm, Pr) for words (Pr, word_bytes)."""
    result = np.zeros((lanes, split), int)
    for m in range(lanes):
        for r in range(split):
            if mode == "channel":
                value, kept = words[0, select * split + r], mask[0]
            elif mode == "row":
                value, kept = words[r, select], mask[r]
            else:
                value, kept = words[r, m], mask[r]
            result[m, r] = value if kept else 0
    return result


def make(lanes, split, half=16):
    """An operand select whose halo buffer has ``half`` words in each half of a bank."""
    word = split * -(-lanes // split)
    config = EngineConfig(out_lanes=lanes, split_lanes=split, input_bytes=half * split * word)
    return OperandSelect(config), config


def stimuli(mode, config, rng, count, *, extreme=False):
    """Bank, words of the lanes, select and mask of ``count`` steps."""
    limit = config.word_steps if mode == "channel" else config.word_bytes
    shape = (count, config.split_lanes, config.word_bytes)
    words = rng.choice((-255, 255), shape) if extreme else rng.integers(-255, 256, shape)
    selects = rng.integers(0, limit, count)
    banks = rng.integers(0, config.split_lanes, count)
    return banks, words, selects, rng.random((count, config.split_lanes)) < 0.7


def set_mode(ctx, dut, mode):
    ctx.set(dut.channel_mode, int(mode == "channel"))
    ctx.set(dut.depthwise, int(mode == "depthwise"))


async def play(ctx, dut, config, rng, banks, words, selects, masks):
    """One step a cycle; returns what came out ``latency`` cycles behind each.

    The number of a step is its word address, so that the halo buffer played here knows which words
    are asked for, whenever that is.
    """
    shares = halo_shares(config)
    memories = config.split_lanes // shares
    channel = ctx.get(dut.channel_mode)
    latency = dut.latency + halo_latency(config)
    noise = rng.integers(-255, 256, (shares, memories, config.word_bytes))
    asked, seen = [None] * halo_latency(config), []
    count = len(words)
    for cycle in range(count + latency):
        step = cycle if cycle < count else 0
        ctx.set(dut.position, {"bank": int(banks[step]), "word": step})
        ctx.set(dut.select, int(selects[step]))
        of_mask = cycle - latency + dut.mask_latency
        kept = masks[of_mask] if 0 <= of_mask < count else rng.random(config.split_lanes) < 0.5
        ctx.set(dut.mask, sum(int(bit) << r for r, bit in enumerate(kept)))
        shown = noise.copy()
        if asked[0] is not None:
            word, bank = asked[0]
            for lane in range(config.split_lanes):
                copy, index = divmod(lane, memories)
                # In channel mode all copies give the words of the first lanes.
                asker = index if channel else lane
                shown[copy, (bank + index) % memories] = words[word][asker]
        ctx.set(dut.words, shown.tolist())
        if cycle >= latency:
            seen.append(plain(ctx.get(dut.operands)))
        read = plain(ctx.get(dut.read_position))
        asked = [*asked[1:], (read["word"], read["bank"]) if read["word"] < count else None]
        await ctx.tick()
    return np.array(seen)


@pytest.mark.parametrize("half", [32, 300])
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("mode", MODES)
def test_random_steps(mode, lanes, half):
    dut, config = make(*lanes, half)
    rng = np.random.default_rng([*lanes, MODES.index(mode), half])
    banks, words, selects, masks = stimuli(mode, config, rng, 60)

    async def bench(ctx):
        set_mode(ctx, dut, mode)
        await ctx.tick().repeat(2)
        seen = await play(ctx, dut, config, rng, banks, words, selects, masks)
        for index in range(len(words)):
            want = expected(mode, words[index], selects[index], masks[index], *lanes)
            np.testing.assert_array_equal(seen[index], want, f"step {index}")

    simulate(dut, bench)


@pytest.mark.parametrize(
    ("split", "half", "latency"),
    [(1, 9, 2), (2, 9, 3), (4, 9, 4), (5, 9, 5), (8, 9, 5), (8, 300, 5)],
)
def test_latency_by_hand(split, half, latency):
    """As many turns as split lanes need, whether memories share banks or not."""
    dut, _ = make(2, split, half)
    assert dut.latency == latency


def test_one_mode_after_another():
    """Nothing of a mode stays behind in the operands of the next."""
    dut, config = make(4, 8)
    rng = np.random.default_rng(11)

    async def bench(ctx):
        for mode in (*MODES, *reversed(MODES)):
            banks, words, selects, masks = stimuli(mode, config, rng, 12, extreme=True)
            set_mode(ctx, dut, mode)
            # As many cycles as a descriptor takes to be read, at least.
            await ctx.tick().repeat(4)
            seen = await play(ctx, dut, config, rng, banks, words, selects, masks)
            for index in range(len(words)):
                want = expected(mode, words[index], selects[index], masks[index], 4, 8)
                np.testing.assert_array_equal(seen[index], want, f"{mode}, step {index}")

    simulate(dut, bench)


@pytest.mark.parametrize("mode", MODES)
def test_extremes_and_a_reset_in_mid_stream(mode):
    dut, config = make(4, 4)
    rng = np.random.default_rng(7)
    reset = Signal()

    async def bench(ctx):
        set_mode(ctx, dut, mode)
        await ctx.tick().repeat(2)
        for _ in range(2):
            banks, words, selects, masks = stimuli(mode, config, rng, 20, extreme=True)
            seen = await play(ctx, dut, config, rng, banks, words, selects, masks)
            for index in range(len(words)):
                want = expected(mode, words[index], selects[index], masks[index], 4, 4)
                np.testing.assert_array_equal(seen[index], want)
            # The words on their way may be lost, those that come afterwards may not.
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            await ctx.tick()

    simulate(dut, bench, reset=reset)


@pytest.mark.parametrize(("lanes", "split"), LANES)
def test_every_part_of_a_word_can_be_selected(lanes, split):
    dut, config = make(lanes, split)
    rng = np.random.default_rng(3)
    words = np.arange(split * config.word_bytes).reshape(split, config.word_bytes)

    async def bench(ctx):
        for mode, count in (("channel", config.word_steps), ("row", config.word_bytes)):
            set_mode(ctx, dut, mode)
            await ctx.tick().repeat(2)
            masks = np.ones((count, split), bool)
            repeated = np.repeat(words[None], count, 0)
            banks = rng.integers(0, split, count)
            seen = await play(ctx, dut, config, rng, banks, repeated, np.arange(count), masks)
            for select in range(count):
                if mode == "channel":
                    want = words[0, select * split : (select + 1) * split]
                else:
                    want = words[:, select]
                np.testing.assert_array_equal(seen[select], np.broadcast_to(want, (lanes, split)))

    simulate(dut, bench)
