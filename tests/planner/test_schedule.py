# amaranth: UnusedElaboratable=no
"""The schedule against the engine's own counters, and its short cuts against the long way."""

import random

import numpy as np
import pytest

from haloconv.planner import schedule as module
from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import Requantization
from haloconv.planner.schedule import CAUSES, Schedule, schedule_layer
from haloconv.planner.tile import ORDERS, Tile, check_fit
from haloconv.planner.timeline import ReadTimeline, WriteTimeline

from ..support.engine_bench import EngineBench
from ..support.random_layers import random_arrays, random_layer, random_mode, random_tile


def make_config(lanes, split, q, bus, roundings=(), **options):
    sizes = {"input_bytes": 2048, "weight_bytes": 2048, "psum_bytes": 1024} | options
    return EngineConfig(
        out_lanes=lanes, split_lanes=split, requant_lanes=q, bus_bytes=bus,
        bias_bytes=16 * lanes, roundings=roundings, address_bits=18, **sizes,
    )  # fmt: skip


CONFIGS = (
    make_config(1, 1, None, 1),
    make_config(3, 5, 2, 8),
    make_config(8, 2, 3, 16),
    make_config(4, 4, 1, 4),
    make_config(4, 4, 1, 1),
    make_config(2, 8, 1, 32),
    make_config(2, 3, None, 2, ("double",)),
    make_config(5, 2, None, 8, ("single", "fp32"), weight_zero_points=False),
    make_config(4, 2, 1, 2, ("double",), tiles_ahead=0),
    make_config(3, 2, None, 16, tiles_ahead=0),
    make_config(2, 2, 1, 4, tiles_ahead=1),
    make_config(4, 2, 1, 2, ("double",), serial_requantizers=True),
    make_config(3, 4, 2, 8, ("single", "away"), serial_requantizers=True, tiles_ahead=0),
    make_config(2, 1, None, 4, (), serial_requantizers=True),
)


def requantization_for(config):
    rounding = config.built_roundings[-1]
    if rounding == "fp32":
        return Requantization(scale=np.float32(0.01), rounding=rounding)
    return Requantization(2**30, -8, rounding=rounding)


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_cycles_are_those_of_the_engine(config):
    """Four random layers, tiles, orders and memories: every cycle and where it went."""
    bench = EngineBench(config)
    for number in range(4):
        seed = 10 * CONFIGS.index(config) + number
        rng = random.Random(seed)
        layer = random_layer(rng, extent=6, channels=8, most_macs=100 * config.lanes)
        mode, order = random_mode(rng, layer), rng.choice(ORDERS)
        tile = random_tile(rng, layer, config, mode)
        inputs, weights, bias = random_arrays(seed, layer)
        latency = rng.choice((1, 4, 16, 40))
        requantization, zero_points = None, None
        if config.built_roundings and number % 4:
            requantization = requantization_for(config)
        elif config.weight_zero_points and number % 2:
            zero_points = np.full(layer.out_channels, 3)
        _, outcome, _ = bench.run_layer(
            layer, tile, mode, order, inputs, weights, bias // 16 if bias is not None else None,
            requantization=requantization, weight_zero_points=zero_points, latency=latency,
        )  # fmt: skip
        assert outcome.done
        schedule = schedule_layer(
            layer, config, tile, mode, order, latency=latency, raw=requantization is None,
            load_scale=None if zero_points is None else True,
        )  # fmt: skip
        counters = outcome.counters
        assert {
            "cycles": schedule.cycles,
            "compute_cycles": schedule.compute_cycles,
            "load_stall_cycles": schedule.first_load_cycles + schedule.load_stall_cycles,
            "drain_stall_cycles": schedule.drain_stall_cycles,
        } == {
            name: counters[name]
            for name in ("cycles", "compute_cycles", "load_stall_cycles", "drain_stall_cycles")
        }, f"seed {seed}"


def test_parameters_come_back_with_the_first_sums_drained():
    """A group that waits for the drain gives the parameters back later, which delays a load."""
    config = make_config(4, 4, 1, 4)
    layer = ConvLayer(3, 5, 2, 8, (1, 2), (1, 3), (2, 2), (5, 2, 5, 0), 2)
    inputs, weights, bias = random_arrays(0, layer)
    tile = Tile(4, 3, 1, 3)
    _, outcome, _ = EngineBench(config).run_layer(
        layer, tile, "row", "hwmc", inputs, weights, bias, latency=1
    )
    schedule = schedule_layer(layer, config, tile, "row", "hwmc", latency=1, raw=True)
    assert schedule.cycles == outcome.counters["cycles"]


def large_case(seed):
    """A layer with many rows a tile, large enough to repeat itself."""
    rng = random.Random(seed)
    while True:
        lanes, split, q = rng.choice(
            ((1, 1, None), (3, 5, 2), (8, 2, 3), (4, 4, 1), (8, 8, None), (2, 8, 1), (8, 8, 2))
        )
        config = make_config(
            lanes, split, q, rng.choice((1, 2, 4, 8, 16, 32)), rng.choice(((), ("double",))),
            input_bytes=1 << 15, weight_bytes=1 << 15, psum_bytes=1 << 14,
        )  # fmt: skip
        kernel = rng.choice(((1, 1), (rng.randint(1, 15), rng.randint(1, 7))))
        channels, outputs, groups = rng.randint(1, 40), rng.randint(1, 24), 1
        if rng.random() < 0.3:
            outputs = groups = channels
        try:
            layer = ConvLayer(
                rng.randint(16, 90), rng.randint(3, 40), channels, outputs, kernel,
                (rng.randint(1, 3), rng.randint(1, 3)), (1, rng.randint(1, 2)),
                tuple(rng.choice((0, 1, 2, 5)) for _ in range(4)), groups,
            )  # fmt: skip
        except ValueError:  # the window does not fit
            continue
        mode = random_mode(rng, layer)
        depthwise = mode == "depthwise"
        group_out = layer.out_channels if depthwise else layer.group_out_channels
        tile = Tile(
            rng.choice((layer.out_height, rng.randint(1, layer.out_height))),
            rng.choice((layer.out_width, rng.randint(1, layer.out_width))),
            1 if depthwise else rng.randint(1, layer.group_in_channels),
            rng.randint(1, group_out),
        )
        tiles = -(-layer.out_height // tile.height) * -(-layer.out_width // tile.width)
        tiles *= -(-layer.group_in_channels // tile.in_channels) * -(
            -group_out // tile.out_channels
        )
        if tiles * (1 if depthwise else groups) > 12 or layer.macs > 100_000 * config.lanes:
            continue
        if check_fit(layer, config, tile, mode) is None:
            break
    options = {"latency": rng.choice((1, 4, 16, 40, 200)), "raw": rng.random() < 0.4}
    return layer, config, tile, mode, rng.choice(ORDERS), options


@pytest.mark.parametrize("seed", range(24))
def test_jumps_change_nothing(seed, monkeypatch):
    *case, options = large_case(seed)
    short = schedule_layer(*case, **options)
    monkeypatch.setattr(module, "JUMPS", False)
    assert schedule_layer(*case, **options) == short


@pytest.mark.parametrize(
    ("layer", "tile", "mode", "jumps"),
    [
        # Rows of sums, and rows of input.
        (ConvLayer(500, 8, 8, 8, (1, 1)), Tile(500, 8, 8, 8), "channel", (1, 1)),
        # Pixel by pixel, each a segment of its own.
        (ConvLayer(300, 9, 16, 8, (1, 1)), Tile(300, 9, 8, 8), "row", (1, 1)),
        # Taps of a large kernel.
        (ConvLayer(40, 4, 8, 8, (40, 4)), Tile(1, 1, 8, 8), "channel", (1, 0)),
    ],
)
def test_long_repetitions_are_jumped_over(layer, tile, mode, jumps, monkeypatch):
    counts = {ReadTimeline: 0, WriteTimeline: 0}

    def count(kind):
        jump = kind.jump

        def counted(self, cycles, *args, **options):
            counts[kind] += cycles > 0
            return jump(self, cycles, *args, **options)

        monkeypatch.setattr(kind, "jump", counted)

    count(ReadTimeline)
    count(WriteTimeline)
    config = make_config(
        8, 8, None, 8, input_bytes=1 << 20, weight_bytes=1 << 20, psum_bytes=1 << 20
    )
    case = (layer, config, tile, mode, "hwmc")
    short = schedule_layer(*case, raw=True)
    assert (counts[ReadTimeline] >= jumps[0], counts[WriteTimeline] >= jumps[1]) == (True, True)
    monkeypatch.setattr(module, "JUMPS", False)
    assert schedule_layer(*case, raw=True) == short


def many_tiles_case(seed):
    """A layer in dozens of small tiles, at addresses that lie anyhow in beats and pages."""
    rng = random.Random(f"tiles {seed}")
    while True:
        lanes, split, q = rng.choice(
            ((1, 1, None), (3, 5, 2), (8, 2, 3), (4, 4, 1), (8, 8, None), (2, 8, 1), (16, 4, None))
        )
        config = make_config(
            lanes, split, q, rng.choice((1, 2, 4, 8, 16, 32)), rng.choice(((), ("double",))),
            input_bytes=1 << 15, weight_bytes=1 << 15, psum_bytes=1 << 14,
        )  # fmt: skip
        layer = random_layer(rng, extent=20, channels=rng.choice((24, 300)), most_macs=10**6)
        mode = random_mode(rng, layer)
        depthwise = mode == "depthwise"
        group_out = layer.out_channels if depthwise else layer.group_out_channels
        tile = Tile(
            rng.randint(1, min(6, layer.out_height)),
            rng.randint(1, min(8, layer.out_width)),
            1 if depthwise else rng.randint(1, layer.group_in_channels),
            rng.randint(1, group_out),
        )
        tiles = -(-layer.out_height // tile.height) * -(-layer.out_width // tile.width)
        tiles *= -(-group_out // tile.out_channels)
        if not depthwise:
            tiles *= layer.groups * -(-layer.group_in_channels // tile.in_channels)
        if 10 <= tiles <= 300 and check_fit(layer, config, tile, mode) is None:
            break
    options = {"latency": rng.choice((1, 4, 16, 40, 200)), "raw": rng.random() < 0.4}
    return layer, config, tile, mode, rng.choice(ORDERS), options


def test_repeated_tiles_change_nothing(monkeypatch):
    repeated = {ReadTimeline: 0, WriteTimeline: 0}

    def count(kind):
        restore = kind.restore

        def counted(self, *args):
            repeated[kind] += 1
            return restore(self, *args)

        monkeypatch.setattr(kind, "restore", counted)

    count(ReadTimeline)
    count(WriteTimeline)
    tiles = 0
    for seed in range(60):
        *case, options = many_tiles_case(seed)
        monkeypatch.setattr(module, "JUMPS", True)
        short = schedule_layer(*case, **options)
        monkeypatch.setattr(module, "JUMPS", False)
        assert schedule_layer(*case, **options) == short, f"seed {seed}"
        tiles += len(short.tiles)
    # Otherwise the comparison would say little.
    assert repeated[ReadTimeline] > tiles // 4
    assert repeated[WriteTimeline] > tiles // 8


def check_sums(schedule):
    """Every cycle is named once."""
    assert schedule.cycles == (
        schedule.first_load_cycles
        + schedule.compute_cycles
        + schedule.load_stall_cycles
        + schedule.drain_stall_cycles
        + schedule.end_cycles
    )
    assert sum(schedule.causes.values()) == len(schedule.tiles)
    assert tuple(schedule.causes) == CAUSES


@pytest.mark.parametrize("order", ORDERS)
def test_tiles_follow_the_loops(order):
    layer = ConvLayer(6, 5, 4, 6, (3, 3), pads=(1, 1, 1, 1), groups=2)
    config = make_config(2, 2, None, 4)
    schedule = schedule_layer(layer, config, Tile(3, 4, 1, 2), "row", order)
    loops = [
        (g, h, w, m, c)
        for g in range(2)
        for h in range(2)
        for w in range(2)
        for m in range(2)
        for c in range(2)
    ]
    if order == "mhwc":
        loops.sort(key=lambda at: (at[0], at[3], at[1], at[2], at[4]))
    assert [tile.index for tile in schedule.tiles] == loops
    check_sums(schedule)
    for before, tile in zip(schedule.tiles, schedule.tiles[1:], strict=False):
        assert tile.load_start >= before.load_end
        assert tile.compute_start >= before.compute_end + 2
    for tile in schedule.tiles:
        assert tile.load_start < tile.load_end < tile.compute_start < tile.compute_end
        assert tile.compute_end < tile.drain_end < schedule.cycles


def test_compute_cycles_count_steps():
    # Row mode: 6 rows, two steps of 4 and 1 columns, 2 groups of channels, 9 taps of 5 channels.
    layer = ConvLayer(6, 5, 5, 6, (3, 3), pads=(1, 1, 1, 1))
    config = make_config(4, 4, None, 4)
    whole = Tile(6, 5, 5, 6)
    assert schedule_layer(layer, config, whole, "row", "hwmc").compute_cycles == 6 * 2 * 2 * 9 * 5
    # Channel mode: 30 pixels, 2 groups, 9 taps of ceil(5 / 4) steps.
    channel = schedule_layer(layer, config, whole, "channel", "hwmc")
    assert channel.compute_cycles == 30 * 2 * 9 * 2


def causes(layer, tile, config, mode="channel", **options) -> Schedule:
    schedule = schedule_layer(layer, config, tile, mode, "hwmc", **options)
    check_sums(schedule)
    return schedule


def test_causes():
    # Many steps a tile behind a wide bus: nothing but the first tile waits.
    layer = ConvLayer(16, 8, 16, 4, (3, 3), pads=(1, 1, 1, 1))
    busy = causes(layer, Tile(4, 8, 16, 4), make_config(4, 4, None, 16))
    assert [tile.cause for tile in busy.tiles[1:]] == ["compute"] * 3
    assert busy.load_stall_cycles == 2 * 3  # from tile to tile
    # The same behind a bus of one byte, one step a pixel: every tile waits for its input.
    layer = ConvLayer(16, 8, 16, 4, (1, 1))
    starved = causes(layer, Tile(4, 8, 16, 4), make_config(4, 16, None, 1))
    assert starved.causes["load"] == 4
    assert starved.load_stall_cycles > starved.compute_cycles
    # Four channels leave one by one behind a single step.
    layer = ConvLayer(1, 30, 4, 4, (1, 1))
    drained = causes(layer, Tile(1, 30, 4, 4), make_config(4, 4, 1, 16), raw=True, latency=1)
    assert drained.drain_stall_cycles == 29 * 3
    # int32 results through one byte a cycle: the room fills, and the lanes wait for the port.
    layer = ConvLayer(20, 30, 4, 4, (1, 1))
    written = causes(
        layer, Tile(20, 30, 4, 4), make_config(4, 4, None, 1, input_bytes=8192), raw=True
    )
    assert written.tiles[0].drain_stall > 8000
    assert written.cycles > 600 * 4 * 4  # a byte a cycle


def test_scales_follow_the_results():
    layer = ConvLayer(4, 4, 4, 8, (1, 1))
    config = make_config(4, 4, None, 16, ("double",))
    tile = Tile(4, 4, 4, 8)
    open_ = schedule_layer(layer, config, tile, "channel", "hwmc")
    assert open_ == schedule_layer(layer, config, tile, "channel", "hwmc", load_scale=True)
    raw = schedule_layer(layer, config, tile, "channel", "hwmc", raw=True)
    assert raw == schedule_layer(layer, config, tile, "channel", "hwmc", raw=True, load_scale=False)
    scaled = schedule_layer(layer, config, tile, "channel", "hwmc", raw=True, load_scale=True)
    # The loader takes the scale of one channel a cycle at most.
    assert scaled.first_load_cycles - raw.first_load_cycles >= 8
    assert scaled.compute_cycles == raw.compute_cycles
