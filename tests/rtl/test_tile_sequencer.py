# amaranth: UnusedElaboratable=no
"""Every record of every output against plain loops over the tiles of random layers."""

import importlib.util
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from amaranth import Signal
from amaranth.back import rtlil

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES
from haloconv.planner.layer import ConvLayer
from haloconv.planner.program import LayerAddresses
from haloconv.planner.requantization import Requantization
from haloconv.planner.tile import Tile
from haloconv.rtl.tile_sequencer import TileSequencer
from haloconv.sim.streams import plain, simulate

from ..support.kept_fields import kept_fields

_spec = importlib.util.spec_from_file_location(
    "tile_walk", Path(__file__).parents[1] / "support" / "tile_walk.py"
)
assert _spec is not None and _spec.loader is not None
walk = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(walk)

OUTPUTS = ("fetch", "load", "compute", "write")
MODES = ("channel", "row", "depthwise")
ORDERS = ("hwmc", "mhwc")


def expected_records(case):
    """The records of each output; a write record where the sums of a tile are finished."""
    return {
        "fetch": [case.fetch_record(at) for at in case.tiles],
        "load": [case.load_record(at) for at in case.tiles],
        "compute": [case.compute_record(at) for at in case.tiles],
        "write": [{"address": case.write_address(at)} for at in case.tiles if at.last["c"]],
    }


def compare(name, case, got, expected):
    """Hold the records against the expected ones, as far as these say something."""
    for number, (found, wanted) in enumerate(zip(got, expected, strict=False)):
        if name == "load" and not wanted["rows"]:
            # Nothing is stored, so what is stepped over does not matter.
            wanted = {key: value for key, value in wanted.items() if not key.startswith("skip")}
        shown = {key: found[key] for key in wanted}
        assert shown == wanted, (name, number, case.layer, case.tile, case.mode, case.order)


class Monitor:
    """Takes the records of all outputs at random and checks that they hold until taken."""

    def __init__(self, dut, seed):
        self.dut, self.rng = dut, random.Random(seed)
        self.stalls = 0.0
        self.got, self.cycles = {}, {}
        self.held = {}
        self.clear()

    def clear(self):
        self.got = {name: [] for name in OUTPUTS}
        self.cycles = {name: [] for name in OUTPUTS}
        self.held = dict.fromkeys(OUTPUTS)

    def benches(self, blocked=None):
        """One for each output but ``blocked``."""
        return [self._bench(name) for name in OUTPUTS if name != blocked]

    def _bench(self, name):
        async def bench(ctx):
            await self._run(ctx, name)

        return bench

    async def _run(self, ctx, name):
        port = getattr(self.dut, f"o_{name}")
        layout, bits = port.payload.shape(), port.payload.as_value()
        cycle = 0
        while True:
            ready = self.rng.random() >= self.stalls
            ctx.set(port.ready, ready)
            _, reset, valid, payload = await ctx.tick().sample(port.valid, bits)
            cycle += 1
            if reset:
                continue
            if self.held[name] is not None:
                assert valid and payload == self.held[name]
            self.held[name] = payload if valid and not ready else None
            if valid and ready:
                self.got[name].append(plain(layout.from_bits(payload)))
                self.cycles[name].append(cycle)


async def start(ctx, dut, case, reset, monitor):
    ctx.set(dut.descriptor, kept_fields(case.descriptor))
    for index in range(DESCRIPTOR_BYTES // 4):
        word = int.from_bytes(case.descriptor[4 * index : 4 * index + 4], "little")
        ctx.set(dut.word, {"valid": 1, "index": index, "data": word})
        await ctx.tick()
    ctx.set(dut.word, {"valid": 0, "index": 0, "data": 0})
    ctx.set(reset, 1)
    await ctx.tick()
    ctx.set(reset, 0)
    monitor.clear()
    ctx.set(dut.start, 1)
    await ctx.tick()
    ctx.set(dut.start, 0)


async def run_case(ctx, dut, case, reset, monitor):
    await start(ctx, dut, case, reset, monitor)
    expected = expected_records(case)
    for _ in range((60 + dut.interval) * len(case.tiles) + 100):
        if all(len(monitor.got[name]) >= len(expected[name]) for name in OUTPUTS):
            break
        await ctx.tick()
    await ctx.tick().repeat(8)
    for name in OUTPUTS:
        compare(name, case, monitor.got[name], expected[name])
        assert len(monitor.got[name]) == len(expected[name]), name
    assert ctx.get(dut.done)


def test_elaborates():
    for config in walk.CONFIGS.values():
        rtlil.convert(TileSequencer(config), emit_src=False)


def simulate_cases(config, cases, seed, stalls):
    """Run cases one after the other on one sequencer; return the number of tiles."""
    dut, reset = TileSequencer(config), Signal()
    monitor = Monitor(dut, seed)

    async def bench(ctx):
        for case in cases:
            monitor.stalls = stalls
            await run_case(ctx, dut, case, reset, monitor)

    simulate(
        dut,
        bench,
        background=monitor.benches(),
        reset=reset,
        max_cycles=400_000,
        check_loops=False,
    )


@pytest.mark.parametrize("stalls", [0.0, 0.6])
@pytest.mark.parametrize("name", walk.CONFIGS)
def test_random_layers(name, stalls):
    config = walk.CONFIGS[name]
    seed = [list(walk.CONFIGS).index(name), int(10 * stalls) + 1]
    rng = np.random.default_rng(seed)
    cases = [
        walk.random_case(rng, config, MODES[trial % 3], ORDERS[trial // 3 % 2], most=30)
        for trial in range(12)
    ]
    assert sum(at.empty for case in cases for at in case.tiles) > 0
    simulate_cases(config, cases, seed[0], stalls)


def make_case(layer, tile, mode, order, *, config=None, requantized=True):
    """A case with arrays of zeros: the sequencer does not look at them."""
    config = config or EngineConfig(
        input_bytes=1 << 20, weight_bytes=1 << 20, psum_bytes=1 << 20, bias_bytes=1 << 12
    )
    return walk.Case(
        layer=layer,
        config=config,
        tile=tile,
        mode=mode,
        order=order,
        addresses=LayerAddresses(0x1000, 0x80001, 0x90002, 0xA0003, 0xFFFF_F000),
        requantization=Requantization(multiplier=0, shift=0) if requantized else None,
        load_scale=requantized,
        inputs=np.zeros(layer.input_shape[1:], np.int8),
        weights=np.zeros(layer.weight_shape, np.int8),
        bias=np.zeros(layer.out_channels, np.int32),
        scales=np.zeros((layer.out_channels, 6), np.uint8),
    )


@pytest.mark.parametrize("order", ORDERS)
def test_corners(order):
    """Pads beyond tiles on every side, strides beyond kernels, single loops, wrapping addresses."""
    layers = [
        # Whole tiles above, below, left and right of the tensor.
        (ConvLayer(3, 4, 6, 10, (2, 2), pads=(7, 6, 8, 9)), Tile(2, 3, 6, 10), "channel"),
        (ConvLayer(3, 4, 6, 10, (2, 2), (3, 4), pads=(7, 6, 8, 9)), Tile(1, 1, 6, 5), "row"),
        (ConvLayer(5, 5, 9, 9, (3, 3), (1, 2), (2, 1), (4, 0, 0, 4), 9), Tile(2, 2, 1, 4),
         "depthwise"),
        # Strides that leave rows and columns out.
        (ConvLayer(11, 12, 3, 4, (1, 1), (5, 4)), Tile(2, 1, 2, 3), "row"),
        # One trip along each loop but one.
        (ConvLayer(9, 1, 1, 1, (1, 1)), Tile(2, 1, 1, 1), "channel"),
        (ConvLayer(1, 9, 1, 1, (1, 1)), Tile(1, 2, 1, 1), "channel"),
        (ConvLayer(1, 1, 9, 1, (1, 1)), Tile(1, 1, 2, 1), "channel"),
        (ConvLayer(1, 1, 1, 9, (1, 1)), Tile(1, 1, 1, 2), "channel"),
        (ConvLayer(1, 1, 4, 8, (1, 1), groups=4), Tile(1, 1, 1, 2), "row"),
        (ConvLayer(1, 1, 1, 1, (1, 1)), Tile(1, 1, 1, 1), "channel"),
        # Depthwise tiles of all channels: rows are runs of bytes, m has one trip.
        (ConvLayer(6, 6, 5, 5, (3, 3), pads=(1, 1, 1, 1), groups=5), Tile(2, 3, 1, 5),
         "depthwise"),
    ]  # fmt: skip
    cases = [
        make_case(layer, tile, mode, order, requantized=bool(number % 2))
        for number, (layer, tile, mode) in enumerate(layers)
    ]
    simulate_cases(cases[0].config, cases, 3, 0.0)


def test_new_flags_by_hand():
    """2 x 1 x 2 x 2 tiles, hwmc: reused only where the next tile has the same operand."""
    case = make_case(ConvLayer(4, 2, 16, 16, (1, 1)), Tile(2, 2, 8, 8), "channel", "hwmc")
    flags = [(at.new_parameters, at.new_weights, at.new_input) for at in case.tiles]
    # m0c0 m0c1 m1c0 m1c1, twice: parameters change with m, weights and input with c.
    assert flags == [(True, True, True), (False, True, True)] * 4
    unsplit = make_case(ConvLayer(4, 2, 8, 16, (1, 1)), Tile(2, 2, 8, 8), "channel", "hwmc")
    assert [at.new_input for at in unsplit.tiles] == [True, False, True, False]
    mhwc = make_case(ConvLayer(4, 2, 8, 16, (1, 1)), Tile(2, 2, 8, 8), "channel", "mhwc")
    assert [at.new_input for at in mhwc.tiles] == [True] * 4
    assert [at.new_weights for at in mhwc.tiles] == [True, False, True, False]
    simulate_cases(case.config, [case, unsplit, mhwc], 1, 0.0)


def test_a_tile_every_interval_cycles():
    case = make_case(ConvLayer(8, 8, 16, 16, (3, 3)), Tile(2, 2, 8, 8), "channel", "hwmc")
    dut, reset = TileSequencer(case.config), Signal()
    monitor = Monitor(dut, 1)

    async def bench(ctx):
        await run_case(ctx, dut, case, reset, monitor)
        for name in ("fetch", "load", "compute"):
            cycles = monitor.cycles[name]
            assert len(cycles) == 36
            assert {b - a for a, b in pairwise(cycles)} == {dut.interval}

    simulate(dut, bench, background=monitor.benches(), reset=reset)


@pytest.mark.parametrize("ahead", [0, 1, 4])
@pytest.mark.parametrize("blocked", OUTPUTS)
def test_runs_ahead_of_a_blocked_consumer(blocked, ahead):
    # Unsplit input channels: every tile has a record for every output.
    config = EngineConfig(weight_bytes=1 << 14, tiles_ahead=ahead)
    case = make_case(
        ConvLayer(8, 8, 8, 8, (1, 1)), Tile(2, 2, 8, 8), "channel", "hwmc", config=config
    )
    dut, reset = TileSequencer(case.config), Signal()
    monitor = Monitor(dut, 1)

    async def bench(ctx):
        await start(ctx, dut, case, reset, monitor)
        await ctx.tick().repeat((ahead + 2) * dut.interval)
        assert not ctx.get(dut.done)
        for name in OUTPUTS:
            # Without queues, the tile that one does not take was handed to the others.
            assert len(monitor.got[name]) == (0 if name == blocked else max(1, ahead))

    simulate(
        dut,
        bench,
        background=monitor.benches(blocked),
        reset=reset,
        check_loops=False,
    )


@pytest.mark.parametrize("stalls", [0.0, 0.9])
def test_without_queues(stalls):
    """A tile follows the last consumer of the one before by an interval and a cycle."""
    config = replace(walk.CONFIGS["8x2_bus16"], tiles_ahead=0)
    rng = np.random.default_rng(17)
    cases = [
        walk.random_case(rng, config, MODES[trial % 3], ORDERS[trial // 3 % 2], most=20)
        for trial in range(6)
    ]
    dut, reset = TileSequencer(config), Signal()
    monitor = Monitor(dut, 2)

    async def bench(ctx):
        for case in cases:
            monitor.stalls = stalls
            await run_case(ctx, dut, case, reset, monitor)
            if stalls:
                continue
            for name in OUTPUTS[:3]:
                cycles = monitor.cycles[name]
                # Taken in a cycle, seen in the next.
                assert {b - a for a, b in pairwise(cycles)} <= {dut.interval + 2}

    simulate(
        dut,
        bench,
        background=monitor.benches(),
        reset=reset,
        max_cycles=200_000,
        check_loops=False,
    )


@pytest.mark.parametrize("seed", range(2))
def test_reset_in_the_middle(seed):
    config = walk.CONFIGS["4x4_bus32"]
    rng = np.random.default_rng(seed)
    dut, reset = TileSequencer(config), Signal()
    monitor = Monitor(dut, seed)
    cut = make_case(
        ConvLayer(8, 8, 8, 4, (1, 1)), Tile(1, 1, 3, 2), "channel", "mhwc", config=config
    )

    async def bench(ctx):
        for trial in range(4):
            monitor.stalls = 0.3
            await start(ctx, dut, cut, reset, monitor)
            await ctx.tick().repeat(int(rng.integers(1, 12 * dut.interval)))
            assert not ctx.get(dut.done)
            case = walk.random_case(rng, config, MODES[trial % 3], ORDERS[trial % 2])
            await run_case(ctx, dut, case, reset, monitor)

    simulate(
        dut,
        bench,
        background=monitor.benches(),
        reset=reset,
        check_loops=False,
    )


def test_done_falls_with_the_next_start():
    case = make_case(ConvLayer(2, 2, 8, 8, (1, 1)), Tile(2, 2, 8, 8), "channel", "hwmc")
    dut, reset = TileSequencer(case.config), Signal()
    monitor = Monitor(dut, 1)

    async def bench(ctx):
        assert not ctx.get(dut.done)
        await run_case(ctx, dut, case, reset, monitor)
        # Without a reset between two layers.
        monitor.clear()
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        assert not ctx.get(dut.done)
        await ctx.tick().repeat(dut.interval + 8)
        assert ctx.get(dut.done)
        for name in OUTPUTS:
            compare(name, case, monitor.got[name], expected_records(case)[name])
            assert len(monitor.got[name]) == 1

    simulate(
        dut,
        bench,
        background=monitor.benches(),
        reset=reset,
        check_loops=False,
    )
