"""What is refused of a descriptor, against a rule of its own, word by word."""

import random

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, FIELDS, decode
from haloconv.planner.elementwise import (
    ElementwiseAddresses,
    describe_elementwise,
    rescale_operator,
)
from haloconv.planner.layer import ConvLayer
from haloconv.planner.program import LayerAddresses, describe_layer
from haloconv.planner.requantization import Requantization
from haloconv.planner.tile import Tile
from haloconv.rtl.descriptor_check import DescriptorCheck
from haloconv.sim.streams import simulate

from ..support.kept_fields import kept_fields

WORDS = DESCRIPTOR_BYTES // 4
BY_NAME = {field.name: field for field in FIELDS}
SMALL = EngineConfig(
    out_lanes=3, split_lanes=5, bus_bytes=4, requant_lanes=2, input_bytes=1024, weight_bytes=512,
    psum_bytes=160, bias_bytes=36, roundings=("double_up", "fp32"), address_bits=20,
)  # fmt: skip
CONFIGS = {
    "small": SMALL,
    "units": EngineConfig(
        out_lanes=4, split_lanes=2, roundings=("double",), units=("elementwise", "max_pool")
    ),
    # No accumulator bank, and no requantisation.
    "raw": EngineConfig(
        out_lanes=5, split_lanes=5, psum_bytes=0, bias_bytes=40, roundings=(),
        units=("max_pool",),
    ),
}  # fmt: skip
ROUNDINGS = ("double", "double_up", "single", "away", "fp32")  # in the order of their codes


def convolution(config, **changes):
    """The fields of a layer that ``config`` runs, in more than one tile along the output."""
    roundings = config.built_roundings
    if "fp32" in roundings:
        requantization = Requantization(scale=np.float32(0.5), rounding="fp32")
    elif roundings:
        requantization = Requantization(2**30, -3, rounding=roundings[0])
    else:
        requantization = None
    layer = ConvLayer(5, 6, 7, 6, (3, 2), (2, 1), pads=(1, 1, 1, 1))
    addresses = LayerAddresses(0, 0, 0, 0, 0)
    # Input channels are split where there is a bank for the sums.
    tile = Tile(1, 5, 5, 6) if config.psum_words else Tile(1, 5, 7, 5)
    described = describe_layer(
        layer, config, tile, "channel", "hwmc", addresses, requantization,
        load_scale=requantization is not None, last=True,
    )  # fmt: skip
    return decode(described) | changes


def elementwise(**changes):
    operator = rescale_operator(0.5, 3, 0.25, -4)
    addresses = ElementwiseAddresses(0, 0, 0, 0, 0)
    return decode(describe_elementwise(operator, 12, addresses, last=True)) | changes


def most(config):
    """The largest value of every field that has one, by what the buffers hold.

    Counts of rows, columns and words take a halo buffer word each, those of operand steps a weight
    word, those of channels an entry of the tables. Their counters have whole bits, so that only
    what does not fit the bits is refused.
    """

    def counter(capacity):
        return 2 ** len(f"{capacity:b}") - 1

    pr, pm = config.split_lanes, config.out_lanes
    word = pr * -(-pm // pr)
    input_words, weight_words = config.input_bytes // (pr * word), config.weight_bytes // (pm * pr)
    groups = config.bias_bytes // (4 * pm)
    tiles = {name: counter(pr * input_words) for name in (
        "rows", "column_groups", "span_h", "span_w", "pixel_words",
    )}  # fmt: skip
    tiles |= {"c_steps": counter(weight_words), "tile_m": counter(groups * pm), "m_groups": groups}
    tiles |= {"m_tail": pm, "column_tail": pr, "c_tail": pr, "word_tail": word}
    return tiles | {f"{name}_last": value for name, value in tiles.items()} | {
        "taps": counter(weight_words),
        "input_words": input_words,
        "weight_words": weight_words,
        "psum_words": config.psum_bytes // (4 * config.results_per_cycle),
    }  # fmt: skip


TILE_COUNTS = (
    "rows", "column_groups", "column_tail", "tile_m", "m_groups", "m_tail", "c_steps", "c_tail",
    "pixel_words", "word_tail", "segment_bytes",
)  # fmt: skip
NEVER_ZERO = {
    "groups", "tiles_h", "tiles_w", "tiles_m", "tiles_c",
    "kernel_h", "kernel_w", "taps", "stride_h", "stride_w", "phases", "weight_bytes",
    *TILE_COUNTS, *(f"{name}_last" for name in TILE_COUNTS),
}  # fmt: skip
"""What counts trips, steps or bytes of a convolution; spans may lie outside the input."""


def verdict(config, values):
    """(unsuited, oversized) by docs/registers.md and the engine's parameters."""
    requantised = values["raw"] == 0
    built = {code for code, name in enumerate(ROUNDINGS) if name in config.built_roundings}
    unsuited = values["mark"] != 0x4C43
    unsuited |= requantised and values["rounding"] not in built
    unsuited |= values["maximum"] == 1 and "max_pool" not in config.built_units
    if values["mode"] == 3:
        unsuited |= "elementwise" not in config.built_units or values["elements"] == 0
    else:
        unsuited |= any(values[name] == 0 for name in NEVER_ZERO)
    oversized = any(not 0 <= values[name] <= limit for name, limit in most(config).items())
    return unsuited, oversized


def pack(values):
    """The words of a descriptor, of a wrong mark too."""
    words = [0] * WORDS
    for name, value in values.items():
        field = BY_NAME[name]
        words[field.word] |= (value & (1 << field.width) - 1) << field.bit % 32
    return words


def verdicts(config, descriptors, *, seed=None):
    """The answers to descriptors in turn; with gaps between words if there is a seed."""
    dut = DescriptorCheck(config)
    rng = random.Random(seed)
    answers = []

    async def bench(ctx):
        def answer():
            return bool(ctx.get(dut.unsuited)), bool(ctx.get(dut.oversized))

        for values in descriptors:
            words = pack(values)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            for index, word in enumerate(words):
                while seed is not None and rng.random() < 0.5:
                    # Nothing is looked at that is not valid.
                    noise = rng.getrandbits(32) if rng.random() < 0.5 else 0
                    ctx.set(dut.word, {"valid": 0, "index": rng.randrange(WORDS), "data": noise})
                    await ctx.tick()
                ctx.set(dut.word, {"valid": 1, "index": index, "data": word})
                await ctx.tick()
            ctx.set(dut.word, {"valid": 0, "index": 0, "data": 0})
            whole = sum(word << 32 * index for index, word in enumerate(words))
            ctx.set(dut.descriptor, kept_fields(whole))
            first = answer()
            for _ in range(3):
                await ctx.tick()
                assert answer() == first, "the answers hold"
            answers.append(first)

    simulate(dut, bench, max_cycles=1_000_000)
    return answers


def compare(config, descriptors, *, seed=None):
    """Play descriptors, each behind a good one and behind each other; return the answers."""
    answers = verdicts(config, descriptors, seed=seed)
    for values, answer in zip(descriptors, answers, strict=True):
        assert answer == verdict(config, values), (config, values)
    return answers


@pytest.mark.parametrize("name", CONFIGS)
def test_a_good_descriptor_is_accepted(name):
    config = CONFIGS[name]
    assert compare(config, [convolution(config)] * 2) == [(False, False)] * 2


@pytest.mark.parametrize("limited", most(SMALL))
@pytest.mark.parametrize("name", CONFIGS)
def test_limits_are_reached_and_not_exceeded(name, limited):
    config = CONFIGS[name]
    limit = most(config)[limited]
    assert limit < BY_NAME[limited].maximum
    tries = [limit, limit + 1, BY_NAME[limited].maximum, limit, BY_NAME[limited].minimum]
    answers = compare(config, [convolution(config, **{limited: value}) for value in tries])
    reached, exceeded, largest, again, _ = answers
    assert reached == again == (limit == 0 and limited in NEVER_ZERO, False)
    assert exceeded == largest == (False, True)


@pytest.mark.parametrize("first", range(0, WORDS, 16))
@pytest.mark.parametrize("name", CONFIGS)
def test_every_field_at_its_ends(name, first):
    """One field at a time, those too that nothing is asked of."""
    config = CONFIGS[name]
    compare(
        config,
        [
            convolution(config, **{field.name: value})
            for field in FIELDS
            if first <= field.word < first + 16
            for value in sorted({0, 1, field.minimum, field.maximum})
        ],
    )


def test_no_loop_is_without_trips():
    names = sorted(NEVER_ZERO)
    answers = compare(SMALL, [convolution(SMALL, **{n: value}) for n in names for value in (0, 1)])
    assert answers == [(True, False), (False, False)] * len(names)


def test_the_mark_is_compared_whole():
    marks = [0x4C43 ^ 1 << bit for bit in range(16)] + [0, 0xFFFF, 0x434C]
    answers = compare(SMALL, [convolution(SMALL, mark=mark) for mark in marks])
    assert answers == [(True, False)] * len(marks)


@pytest.mark.parametrize("raw", [0, 1])
@pytest.mark.parametrize("name", CONFIGS)
def test_roundings_that_are_built(name, raw):
    """Codes without a name are refused as well; raw sums need none."""
    config = CONFIGS[name]
    codes = range(8)
    answers = compare(config, [convolution(config, raw=raw, rounding=code) for code in codes])
    accepted = [ROUNDINGS[code] for code in codes if not answers[code][0] and code < 5]
    assert accepted == list(ROUNDINGS if raw else config.built_roundings)


@pytest.mark.parametrize("name", CONFIGS)
def test_modes_and_units_that_are_built(name):
    config = CONFIGS[name]
    descriptors = [convolution(config, mode=mode) for mode in range(4)]
    descriptors += [convolution(config, mode=mode, maximum=1) for mode in range(4)]
    descriptors += [elementwise(elements=count) for count in (12, 0, 1, 1 << 31, 0)]
    descriptors += [elementwise(rounding=4), elementwise(maximum=1), elementwise(mode=0)]
    descriptors += [elementwise(psum_words=config.psum_words + 1)]
    answers = compare(config, descriptors)
    assert answers[:3] == [(False, False)] * 3
    refused = "elementwise" not in config.built_units
    assert answers[8:10] == [(refused, False), (True, False)]


@pytest.mark.parametrize("seed", range(4))
def test_gaps_between_words_and_several_faults(seed):
    rng = random.Random(seed)
    config = CONFIGS[rng.choice(["small", "units"])]
    watched = sorted({*NEVER_ZERO, *most(config)})
    descriptors = []
    for _ in range(12):
        changes = {}
        for field in rng.sample(watched, rng.randrange(4)):
            values = [0, BY_NAME[field].maximum]
            limit = most(config).get(field)
            changes[field] = rng.choice(values if limit is None else [*values, limit, limit + 1])
        descriptors.append(convolution(config, **changes))
    compare(config, descriptors, seed=seed)
