# amaranth: UnusedElaboratable=no
"""Helpers and structures hold the largest values that their configuration allows."""

import random
import re

import pytest
from amaranth import C, Module, Shape, Signal, Value, signed, unsigned
from amaranth.sim import Simulator

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, FIELDS, MARK, decode, encode
from haloconv.planner.layer import MAX_CHANNELS, MAX_EXTENT, MAX_KERNEL
from haloconv.rtl.widths import (
    COORDINATE,
    ComputeTile,
    DescriptorLayout,
    DrainToken,
    FetchTile,
    LoadTile,
    Position,
    Segment,
    WriteTile,
    index_bits,
    tree_sum,
)

CONFIGS = [
    EngineConfig(),
    EngineConfig(out_lanes=1, split_lanes=1, bus_bytes=1, input_bytes=1, weight_bytes=1,
                 psum_bytes=0, bias_bytes=4, address_bits=16),
    EngineConfig(out_lanes=3, split_lanes=5, requant_lanes=2, input_bytes=1000,
                 weight_bytes=5000, bias_bytes=132),
    EngineConfig(out_lanes=64, split_lanes=64, input_bytes=1 << 20, weight_bytes=1 << 13,
                 bias_bytes=1 << 18),
]  # fmt: skip


def most(shape):
    shape = Shape.cast(shape)
    return (1 << (shape.width - shape.signed)) - 1


@pytest.mark.parametrize(
    ("count", "bits"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (256, 8), (257, 9)]
)
def test_index_bits(count, bits):
    assert index_bits(count) == bits


def test_index_bits_refuses_nothing_to_count():
    with pytest.raises(ValueError, match="Count must be at least 1, not 0"):
        index_bits(0)


@pytest.mark.parametrize("count", range(1, 18))
def test_tree_sum(count):
    rng = random.Random(count)
    terms = [rng.choice((-128, 127, rng.randint(-128, 127))) for _ in range(count)]
    total = tree_sum([C(term, signed(8)) for term in terms])
    # A bit for each level, not for each term.
    assert len(total) == 8 + (count - 1).bit_length()
    result = Signal.like(total)
    module = Module()
    module.d.comb += result.eq(total)
    found = []

    async def bench(ctx):
        found.append(ctx.get(result))

    simulator = Simulator(module)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == [sum(terms)]


def test_tree_sum_refuses_no_terms():
    with pytest.raises(ValueError, match=re.escape("Terms must be at least one value, not []")):
        tree_sum([])


def test_coordinates_hold_the_largest_padded_span():
    # A tile's span ends at most a stride and a dilated kernel beyond the padded tensor.
    shape = signed(COORDINATE)
    assert most(shape) >= 2 * MAX_EXTENT + MAX_KERNEL
    assert Shape.cast(shape).signed


def test_descriptor_layout_holds_what_the_planner_writes():
    rng = random.Random(11)
    layout = DescriptorLayout()
    kept = [name for name, _ in layout]
    assert kept == [field.name for field in FIELDS if field.name in kept]
    # Side by side.
    assert Shape.cast(layout).width == sum(f.width for f in FIELDS if f.name in kept)
    # What only the tile sequencer reads is not kept, what runs with every step is.
    assert not {"tiles_h", "rows", "weight_m_step", "psum_words"} & set(kept)
    assert {"last", "kernel_h", "in_row_pitch", "tap_wrap_bank", "elements"} <= set(kept)
    for extreme in ("minimum", "maximum", None):
        values = {
            field.name: rng.randint(field.minimum, field.maximum)
            if extreme is None
            else getattr(field, extreme)
            for field in FIELDS
        } | {"mark": MARK}
        assert decode(encode(values)) == values
        constant = layout.const({name: values[name] for name in kept})
        assert {name: constant[name] for name in kept} == {name: values[name] for name in kept}


@pytest.mark.parametrize("config", CONFIGS)
def test_structures_hold_the_largest_values(config):
    position = Position(config)
    assert most(position["bank"].shape) >= config.split_lanes - 1
    assert most(position["word"].shape) >= 2 * config.input_words - 1
    # The longest runs: a whole half of a buffer; all biases or scales (6 bytes) of a tile.
    length = most(Segment(config)["length"].shape)
    channels = min(config.channel_groups * config.out_lanes, MAX_CHANNELS)
    longest = max(config.input_bytes, config.weight_bytes, 6 * channels, DESCRIPTOR_BYTES)
    assert length >= longest
    fetch = FetchTile(config)
    assert most(fetch["weight_length"].shape) == most(fetch["input_length"].shape) == length
    assert most(fetch["tile_m"].shape) >= channels
    for name in ("bias_address", "scale_address", "weight_address", "input_address"):
        assert fetch[name].shape == unsigned(config.address_bits)
    assert WriteTile(config)["address"].shape == unsigned(config.address_bits)
    load = LoadTile(config)
    assert most(load["m_tail"].shape) >= config.out_lanes
    assert most(load["c_tail"].shape) >= config.split_lanes
    assert most(load["word_tail"].shape) >= config.word_bytes
    compute = ComputeTile(config)
    assert most(compute["column_tail"].shape) >= config.split_lanes
    for name in ("low_q", "high_q"):
        assert compute[name].shape == signed(COORDINATE)
    token = DrainToken(config)
    assert most(token["columns"].shape) >= config.split_lanes
    assert most(token["channels"].shape) >= config.out_lanes
    assert most(token["parameter_row"].shape) >= 2 * config.channel_groups * config.group_steps - 1
    assert most(token["level"].shape) >= 5


def test_no_structure_has_an_empty_field():
    config = CONFIGS[1]
    for kind in (Position, Segment, FetchTile, LoadTile, ComputeTile, WriteTile, DrainToken):
        layout = kind(config)
        for name, field in layout:
            assert Shape.cast(field.shape).width >= 1, (kind, name)
        assert len(Value.cast(Signal(layout))) == sum(
            Shape.cast(field.shape).width for _, field in layout
        )
