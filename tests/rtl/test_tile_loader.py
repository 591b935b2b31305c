# amaranth: UnusedElaboratable=no
"""What the loader writes for random tiles against where the definition puts each operand."""

import importlib.util
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from amaranth import Signal
from amaranth.back import rtlil

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.program import LayerAddresses
from haloconv.planner.requantization import Requantization
from haloconv.planner.tile import Tile
from haloconv.rtl.tile_loader import TileLoader, chunk_bytes
from haloconv.sim.streams import simulate

from ..support.kept_fields import kept_fields

_spec = importlib.util.spec_from_file_location(
    "tile_walk", Path(__file__).parents[1] / "support" / "tile_walk.py"
)
assert _spec is not None and _spec.loader is not None
walk = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(walk)

MODES = ("channel", "row", "depthwise")
ORDERS = ("hwmc", "mhwc")
WRITES_LATE = 2
"""Cycles from ``loaded`` to the last write; the walker's first read of a tile is later."""
KINDS = ("bias", "scale", "weight", "input")


def lanes_of(bits, width, count, signed=True):
    """Cut ``bits`` into ``count`` values of ``width``, the first one lowest."""
    values = [(bits >> index * width) & ((1 << width) - 1) for index in range(count)]
    if signed:
        values = [value - (1 << width) * (value >> (width - 1)) for value in values]
    return values


class Bench:
    """Plays gearbox, sequencer and buffers around a loader."""

    def __init__(self, config, seed):
        self.config, self.dut, self.reset = config, TileLoader(config), Signal()
        self.rng = random.Random(seed)
        self.chunk = chunk_bytes(config)
        self.weight_bits = 9 if config.weight_zero_points else 8
        self.halo, self.weights = {}, {}
        self.bias, self.scale = {}, {}
        self.half = dict.fromkeys(("input", "weights", "parameters"), 1)

    async def begin(self, ctx, case):
        """Another layer, after a reset."""
        ctx.set(self.dut.descriptor, kept_fields(case.descriptor))
        ctx.set(self.dut.i.valid, 0)
        ctx.set(self.reset, 1)
        await ctx.tick()
        ctx.set(self.reset, 0)
        self.half = dict.fromkeys(self.half, 1)

    async def cycle(self, ctx, string, position, level):
        """One clock cycle; return how many bytes were taken, as what, and whether it loaded."""
        dut, chunk = self.dut, self.chunk
        shown = bytearray(self.rng.randbytes(chunk))  # nobody may look beyond the level
        shown[: min(level, chunk)] = string[position : position + min(level, chunk)]
        ctx.set(dut.data.as_value(), int.from_bytes(shown, "little"))
        ctx.set(dut.level, level)
        sampled = await ctx.tick().sample(
            dut.consume, dut.taken, dut.loaded, dut.i.ready,
            dut.input_write, dut.input_position, dut.input_data.as_value(),
            dut.weight_rows, dut.weight_address, dut.weight_data.as_value(), dut.parameter_write,
        )  # fmt: skip
        consume, taken, loaded, ready, *writes = sampled[2:]
        assert consume <= level
        assert taken.count == consume and ready == loaded
        kinds = [kind for kind in KINDS if getattr(taken, kind)]
        assert len(kinds) == (consume > 0)
        self._store(*writes)
        return consume, kinds, loaded

    def _store(self, write, place, halo_bits, rows, address, weight_bits, parameter):
        config = self.config
        if write:
            assert (place.bank, place.word) not in self.halo, "written twice"
            self.halo[place.bank, place.word] = lanes_of(halo_bits, 9, config.word_bytes)
        for lane in range(config.out_lanes):
            if rows >> lane & 1:
                row_bits = weight_bits >> lane * self.weight_bits * config.split_lanes
                values = lanes_of(row_bits, self.weight_bits, config.split_lanes)
                self.weights[lane, address] = values
        if parameter.bias:
            self.bias[parameter.row, parameter.lane] = parameter.value
        if parameter.scale:
            self.scale[parameter.row, parameter.lane] = (parameter.value, parameter.shift)

    async def load(self, ctx, case, at, *, stalls=0.0):
        """Load a tile and hold what it wrote against the expectation; return its cycles."""
        parts = case.loaded_bytes(at)
        string = b"".join(parts[kind] for kind in KINDS)
        self.halo, self.weights, self.bias, self.scale = {}, {}, {}, {}
        position = level = cycles = 0
        taken = Counter()
        order = []
        ctx.set(self.dut.i.payload, case.load_record(at))
        ctx.set(self.dut.i.valid, 1)
        loaded = False
        while not loaded:
            most = min(self.chunk + self.config.bus_bytes, len(string) - position)
            if stalls:
                level = min(most, level + self.rng.choice((0, 1, self.rng.randint(0, most))))
            else:
                level = most
            count, kinds, loaded = await self.cycle(ctx, string, position, level)
            position += count
            level -= count
            for kind in kinds:
                taken[kind] += count
                order.append(kind)
            cycles += 1
            assert cycles < 5000, "the loader hangs"
        ctx.set(self.dut.i.valid, 0)
        ctx.set(self.dut.i.payload.as_value(), self.rng.getrandbits(60))
        assert dict(taken) == {kind: len(data) for kind, data in parts.items() if data}
        assert order == sorted(order, key=KINDS.index)

        # Between tiles nothing moves but what is in registers on its way to the buffers.
        async def rest(ctx):
            count, _, loaded = await self.cycle(ctx, string + bytes(64), position, self.chunk)
            assert not count and not loaded

        for _ in range(WRITES_LATE):
            await rest(ctx)
        self.check(case, at)
        written = [dict(place) for place in (self.halo, self.weights, self.bias, self.scale)]
        for _ in range(self.rng.randint(0, 2)):
            await rest(ctx)
        assert written == [self.halo, self.weights, self.bias, self.scale]
        return cycles

    def check(self, case, at):
        """Everything that the tile brings is where it belongs, in the half whose turn it is."""
        config = self.config
        for name in self.half:
            new = {"input": at.new_input, "weights": at.new_weights}
            self.half[name] ^= new.get(name, at.new_parameters)

        base = self.half["input"] * config.input_words
        expected = case.halo_words(at) if at.new_input else {}
        assert set(self.halo) == {(bank, base + word) for bank, word in expected}
        for (bank, word), values in expected.items():
            assert word < config.input_words
            assert self.halo[bank, base + word][: len(values)] == values

        base = self.half["weights"] * config.weight_words
        expected = case.weight_words(at) if at.new_weights else {}
        found = {key: self.weights.get((key[0], base + key[1])) for key in expected}
        assert found == expected
        words = {word for _, word in expected}
        assert {word - base for _, word in self.weights} == words
        assert all(word < config.weight_words for word in words)

        base = self.half["parameters"] * config.channel_groups * config.group_steps
        rows = case.parameter_rows(at) if at.new_parameters else {}
        where = {(base + row, lane): channel for (row, lane), channel in rows.items()}
        bias = {key: int(case.bias[channel]) & 0xFFFF_FFFF for key, channel in where.items()}
        assert self.bias == (bias if case.layer.has_bias else {})
        scale = {}
        for key, channel in where.items():
            entry = case.scales[channel]
            scale[key] = int(entry[:4].view("<u4")[0]), int(entry[4].view(np.int8))
        assert self.scale == (scale if case.load_scale else {})


def chunks_of(case, at):
    """Cycles that the tile's bytes take, a chunk each."""
    count = 0
    if at.new_parameters:
        count += len(at.outputs) * (case.layer.has_bias + case.load_scale)
    if at.new_weights:
        count += len(case.weight_chunks(at))
    if at.new_input and not at.empty:
        words = len(range(0, len(at.inputs), case.channels_per_word))
        count += len(at.rows.inside) * len(at.columns.inside) * words
    return count


def steps_of(at):
    """Cycles without a chunk: next, operands, input, settle, and what is stepped over."""
    if not at.new_input or at.empty:
        return 4
    return 4 + 2 + at.rows.skip + at.columns.skip


def test_chunk_bytes():
    # A word of 8 channels; a scale entry; Pr weights; a word of 3 x 5 lanes is 5 bytes.
    assert chunk_bytes(EngineConfig()) == 8
    assert chunk_bytes(EngineConfig(out_lanes=2, split_lanes=2)) == 6
    assert chunk_bytes(EngineConfig(out_lanes=2, split_lanes=2, weight_zero_points=False)) == 5
    assert chunk_bytes(EngineConfig(out_lanes=2, split_lanes=12)) == 12
    assert chunk_bytes(EngineConfig(out_lanes=7, split_lanes=5)) == 10


def test_elaborates():
    for config in walk.CONFIGS.values():
        rtlil.convert(TileLoader(config), emit_src=False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stalls", [0.0, 0.5])
@pytest.mark.parametrize("name", walk.CONFIGS)
def test_random_layers(name, stalls, mode):
    config = walk.CONFIGS[name]
    seed = [list(walk.CONFIGS).index(name), MODES.index(mode), int(10 * stalls)]
    rng = np.random.default_rng(seed)
    bench = Bench(config, str(seed))
    loaded = 0

    async def run(ctx):
        nonlocal loaded
        for trial in range(4):
            case = walk.random_case(rng, config, mode, ORDERS[trial % 2], most=40)
            await bench.begin(ctx, case)
            # The first tiles and the last one, with its tails.
            for at in [*case.tiles[:5], *case.tiles[5:][-1:]]:
                at = as_if_first(at) if at is case.tiles[-1] and len(case.tiles) > 5 else at
                cycles = await bench.load(ctx, case, at, stalls=stalls)
                loaded += 1
                if not stalls:
                    assert cycles == chunks_of(case, at) + steps_of(at)

    simulate(bench.dut, run, reset=bench.reset, check_loops=False)
    assert loaded >= 4


def as_if_first(at):
    """The tile with all its operands new."""
    return replace(at, new_input=True, new_weights=True, new_parameters=True)


def small_case(**values):
    """A channel-mode layer of 2 x 3 pixels, 3 input and 2 output channels, on 2 x 2 lanes."""
    config = EngineConfig(
        out_lanes=2, split_lanes=2, bus_bytes=4, requant_lanes=1, input_bytes=64, weight_bytes=64,
        psum_bytes=64, bias_bytes=16, **values.pop("config", {}),
    )  # fmt: skip
    layer = ConvLayer(2, 3, 3, 2, (1, 2), pads=(0, 0, 1, 0), in_zero_point=-128, has_bias=True)
    inputs = np.arange(18, dtype=np.int8).reshape(2, 3, 3) + 100
    weights = np.array([[[[1, 2, 3], [4, 5, 6]]], [[[-1, -2, -3], [-128, 127, -6]]]], np.int8)
    return walk.Case(
        **{
            "layer": layer,
            "config": config,
            "tile": Tile(2, 3, 3, 2),
            "mode": "channel",
            "order": "hwmc",
            "addresses": LayerAddresses(0, 0, 0, 0, 0),
            "requantization": Requantization(multiplier=2**30, shift=0),
            "load_scale": True,
            "inputs": inputs,
            "weights": weights,
            "bias": np.array([1, -2], np.int32),
            "scales": np.array([[1, 2, 3, 64, 0xE1, 0x80], [9, 8, 7, 65, 3, 127]], np.uint8),
        }
        | values
    )


def test_by_hand():
    case = small_case()
    bench = Bench(case.config, 1)

    async def run(ctx):
        await bench.begin(ctx, case)
        await bench.load(ctx, case, case.tiles[0])
        assert bench.bias == {(0, 0): 1, (1, 0): 0xFFFF_FFFE}
        # Little-endian multipliers; shifts -31 and 3.
        assert bench.scale == {(0, 0): (0x40030201, -31), (1, 0): (0x41070809, 3)}
        # Zero points -128 and 127: two steps a tap, the third channel alone in the second.
        assert bench.weights[0, 0] == [129, 130] and bench.weights[0, 1] == [131, 0]
        assert bench.weights[0, 2] == [132, 133] and bench.weights[0, 3] == [134, 0]
        assert bench.weights[1, 0] == [-128, -129] and bench.weights[1, 1] == [-130, 0]
        assert bench.weights[1, 2] == [-255, 0] and bench.weights[1, 3] == [-133, 0]
        # A row spans 4 columns of 2 words; the first column is left pad and is stepped over.
        # Pixel (0, 0) is at words 2 and 3: bank 0 word 1, bank 1 word 1.
        assert bench.halo[0, 1] == [228, 229] and bench.halo[1, 1][0] == 230
        # Pixel (1, 2), codes 115 to 117, is at words 8 + 6 and 8 + 7.
        assert bench.halo[0, 7] == [243, 244] and bench.halo[1, 7][0] == 245

    simulate(bench.dut, run, reset=bench.reset)


@pytest.mark.parametrize("zero_points_built", [True, False])
@pytest.mark.parametrize("load_scale", [True, False])
def test_without_scales_no_zero_point_counts(zero_points_built, load_scale):
    """A layer without scales after one with: zero points that stayed in the table are not used."""
    config = {"config": {"weight_zero_points": zero_points_built}}
    first = small_case(**config)
    second = small_case(load_scale=load_scale, requantization=None, **config)
    bench = Bench(first.config, 1)

    async def run(ctx):
        for case in (first, second):
            await bench.begin(ctx, case)
            await bench.load(ctx, case, case.tiles[0])
            subtracted = case.load_scale and zero_points_built
            assert bench.weights[0, 0] == ([129, 130] if subtracted else [1, 2])

    simulate(bench.dut, run, reset=bench.reset, check_loops=False)


def test_halves_alternate_by_operand():
    """Each operand has halves of its own, which change only when that operand is new."""
    case = small_case()
    bench = Bench(case.config, 1)
    at = case.tiles[0]

    async def run(ctx):
        await bench.begin(ctx, case)
        await bench.load(ctx, case, at)
        assert bench.half == {"input": 0, "weights": 0, "parameters": 0}
        kept = dict(new_input=False, new_weights=False, new_parameters=False)
        for name, other, expected in (
            ("new_input", kept, (1, 0, 0)),
            ("new_weights", kept, (1, 1, 0)),
            ("new_parameters", kept, (1, 1, 1)),
            ("new_input", kept, (0, 1, 1)),
        ):
            await bench.load(ctx, case, replace(at, **(other | {name: True})))
            assert tuple(bench.half.values()) == expected
        # Nothing new at all: nothing is taken and nothing written.
        assert await bench.load(ctx, case, replace(at, **kept)) == 4
        assert not bench.halo and not bench.weights and not bench.bias and not bench.scale

    simulate(bench.dut, run, reset=bench.reset, check_loops=False)


def test_reset_in_the_middle_of_a_tile():
    case = small_case()
    bench = Bench(case.config, 1)
    parts = case.loaded_bytes(case.tiles[0])
    string = b"".join(parts[kind] for kind in KINDS)

    async def run(ctx):
        for stop in range(2, 30, 3):
            await bench.begin(ctx, case)
            bench.halo = {}
            ctx.set(bench.dut.i.payload, case.load_record(case.tiles[0]))
            ctx.set(bench.dut.i.valid, 1)
            position = 0
            for _ in range(stop):
                count, _, _ = await bench.cycle(ctx, string, position, bench.chunk)
                position += count
            await bench.begin(ctx, case)
            await bench.load(ctx, case, case.tiles[0])

    simulate(bench.dut, run, reset=bench.reset, check_loops=False)
