# amaranth: UnusedElaboratable=no
"""Operand selection against numpy, in every mode."""

import numpy as np
import pytest
from amaranth.hdl import Signal

from haloconv.planner.config import EngineConfig
from haloconv.rtl.operand_select import OperandSelect
from haloconv.sim.streams import plain, simulate

LANES = ((1, 1), (3, 5), (8, 2), (4, 4), (2, 3))
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


def make(lanes, split):
    config = EngineConfig(out_lanes=lanes, split_lanes=split, input_bytes=1024)
    return OperandSelect(config), config


def stimuli(mode, config, rng, count, *, extreme=False):
    limit = config.word_steps if mode == "channel" else config.word_bytes
    shape = (count, config.split_lanes, config.word_bytes)
    words = rng.choice((-255, 255), shape) if extreme else rng.integers(-255, 256, shape)
    selects = rng.integers(0, limit, count)
    return words, selects, rng.random((count, config.split_lanes)) < 0.7


def set_mode(ctx, dut, mode):
    ctx.set(dut.channel_mode, int(mode == "channel"))
    ctx.set(dut.depthwise, int(mode == "depthwise"))


async def play(ctx, dut, words, selects, masks):
    """One step a cycle; returns what came out ``latency`` cycles behind each."""
    seen = []
    for index in range(len(words) + dut.latency):
        if index < len(words):
            ctx.set(dut.words, words[index].tolist())
            ctx.set(dut.select, int(selects[index]))
            ctx.set(dut.mask, sum(int(bit) << r for r, bit in enumerate(masks[index])))
        else:
            # Nothing of a step may come later than its latency.
            ctx.set(dut.mask, 0)
        if index >= dut.latency:
            seen.append(plain(ctx.get(dut.operands)))
        await ctx.tick()
    return np.array(seen)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("mode", MODES)
def test_random_steps(mode, lanes):
    dut, config = make(*lanes)
    rng = np.random.default_rng([*lanes, MODES.index(mode)])
    words, selects, masks = stimuli(mode, config, rng, 60)

    async def bench(ctx):
        set_mode(ctx, dut, mode)
        seen = await play(ctx, dut, words, selects, masks)
        for index in range(len(words)):
            want = expected(mode, words[index], selects[index], masks[index], *lanes)
            np.testing.assert_array_equal(seen[index], want, f"step {index}")

    simulate(dut, bench)


@pytest.mark.parametrize("mode", MODES)
def test_extremes_and_a_reset_in_mid_stream(mode):
    dut, config = make(4, 4)
    rng = np.random.default_rng(7)
    reset = Signal()

    async def bench(ctx):
        set_mode(ctx, dut, mode)
        for _ in range(2):
            words, selects, masks = stimuli(mode, config, rng, 20, extreme=True)
            seen = await play(ctx, dut, words, selects, masks)
            for index in range(len(words)):
                want = expected(mode, words[index], selects[index], masks[index], 4, 4)
                np.testing.assert_array_equal(seen[index], want)
            # The words on their way may be lost, those that come afterwards may not.
            ctx.set(dut.words, words[0].tolist())
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)

    simulate(dut, bench, reset=reset)


@pytest.mark.parametrize(("lanes", "split"), LANES)
def test_every_part_of_a_word_can_be_selected(lanes, split):
    dut, config = make(lanes, split)
    limit = config.word_steps
    words = np.arange(split * config.word_bytes).reshape(split, config.word_bytes)

    async def bench(ctx):
        for mode, count in (("channel", limit), ("row", config.word_bytes)):
            set_mode(ctx, dut, mode)
            masks = np.ones((count, split), bool)
            seen = await play(ctx, dut, np.repeat(words[None], count, 0), np.arange(count), masks)
            for select in range(count):
                if mode == "channel":
                    want = words[0, select * split : (select + 1) * split]
                else:
                    want = words[:, select]
                np.testing.assert_array_equal(seen[select], np.broadcast_to(want, (lanes, split)))

    simulate(dut, bench)
