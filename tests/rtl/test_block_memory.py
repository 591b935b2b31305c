# amaranth: UnusedElaboratable=no
"""Block memories: what synthesis is told, and that the engine never reads what it writes."""

import random

import numpy as np
import pytest
from amaranth.back import rtlil, verilog
from amaranth.hdl import Module

from haloconv.planner.config import EngineConfig
from haloconv.planner.tile import MODES, ORDERS, Tile, check_fit
from haloconv.rtl import drain, engine
from haloconv.rtl.block_memory import block_memory
from haloconv.sim.golden import convolve

from ..support.engine_bench import EngineBench
from ..support.random_layers import random_arrays, random_layer, random_mode, random_tile


def test_the_attribute_reaches_rtlil_and_verilog():
    m = Module()
    m.submodules.memory = memory = block_memory(8, 16)
    write, read = memory.write_port(), memory.read_port()
    ports = [write.addr, write.data, write.en, read.addr, read.data]
    text = rtlil.convert(m, ports=ports, emit_src=False)
    assert "attribute \\no_rw_check 1" in text
    text = verilog.convert(m, ports=ports, emit_src=False, strip_internal_attrs=True)
    assert "(* no_rw_check" in text


@pytest.mark.parametrize("depth", [0, -1])
def test_depth_is_positive(depth):
    with pytest.raises(ValueError, match="depth"):
        block_memory(8, depth)


class Watch:
    """Looks at the ports of an engine's buffers in every cycle of its simulation."""

    def __init__(self, config, monkeypatch):
        self.config = config
        self.steps = 0
        self.nearest = {"input": 10**6, "weights": 10**6, "parameters": 10**6}
        self._read = {}
        blocks = {}

        def recorded(name, module=engine):
            kind = getattr(module, name)

            def record(*args, **options):
                blocks[name] = kind(*args, **options)
                return blocks[name]

            return record

        for name in (
            "TapWalker",
            "OperandSelect",
            "HaloBuffer",
            "WeightBuffer",
            "MacLanes",
            "Drain",
        ):
            monkeypatch.setattr(engine, name, recorded(name))
        monkeypatch.setattr(drain, "ParameterTable", recorded("ParameterTable", drain))
        self.bench = EngineBench(config)
        self.walker, self.operands = blocks["TapWalker"], blocks["OperandSelect"]
        self.halo, self.weights = blocks["HaloBuffer"], blocks["WeightBuffer"]
        self.lanes, self.drain = blocks["MacLanes"], blocks["Drain"]
        self.table = blocks["ParameterTable"]
        self.bench._simulator.add_testbench(self.watch, background=True)

    def words(self, bank, word):
        """Places of the words that the split lanes ask for."""
        banks = self.config.split_lanes
        return [((bank + r) % banks, word + (bank + r) // banks) for r in range(banks)]

    async def watch(self, ctx):
        walker, operands, halo, weights = self.walker, self.operands, self.halo, self.weights
        table = self.table
        to_lanes = halo.latency + operands.latency
        weight_wait = to_lanes - weights.latency
        # The drain's first row is in the tree a cycle after its load.
        table_wait = to_lanes + self.lanes.latency + self.drain.levels
        due = {"input": {}, "weights": {}, "parameters": {}}
        now = 0
        ticks = ctx.tick().sample(
            walker.step, operands.channel_mode, operands.depthwise, halo.read_position,
            halo.write, halo.write_position, weights.read_address, weights.write_rows,
            weights.write_address, walker.token, table.read_row, table.write,
        )  # fmt: skip
        async for (
            _, _, step, channel, depthwise, place, write, at, address, rows, word, token, row,
            parameter,
        ) in ticks:  # fmt: skip
            if step.valid:
                self.steps += 1
                mode = "channel" if channel else "depthwise" if depthwise else "row"
                position = step.position.bank, step.position.word
                due["input"][now + operands.waits[mode]] = position
                due["weights"][now + weight_wait] = step.weight
            if step.last:
                steps = -(-token.channels // self.config.results_per_cycle)
                for number in range(token.columns * steps):
                    wanted = token.parameter_row + number % steps
                    due["parameters"][now + table_wait + number] = wanted
            read = due["weights"].pop(now, None)
            if read is not None:
                assert address == read
                self.note("weights", now, [read])
            if rows:
                self.check("weights", now, word)
            read = due["parameters"].pop(now, None)
            if read is not None:
                assert row == read
                self.note("parameters", now, [read])
            if parameter.bias or parameter.scale:
                self.check("parameters", now, parameter.row)
            # The address of the halo buffer is registered once more.
            if now in due["input"]:
                assert (place.bank, place.word) == due["input"][now]
            read = due["input"].pop(now - 1, None)
            if read is not None:
                self.note("input", now, self.words(*read))
            if write:
                self.check("input", now, (at.bank, at.word))
            now += 1

    def note(self, kind, now, places):
        self._read.update(((kind, place), now) for place in places)

    def check(self, kind, now, place):
        """A word is written: when was it read last, if it was since it was written last?"""
        read = self._read.pop((kind, place), None)
        if read is not None:
            self.nearest[kind] = min(self.nearest[kind], now - read)


@pytest.mark.parametrize("lanes", [(1, 1), (3, 5), (4, 4), (1, 16)])
def test_no_word_is_read_as_it_is_written(lanes, monkeypatch):
    """Halves keep reads and writes apart, also with the fastest memory."""
    config = EngineConfig(
        out_lanes=lanes[0], split_lanes=lanes[1], bus_bytes=16, roundings=(), address_bits=18,
        input_bytes=max(512, 4 * lanes[1] ** 2), weight_bytes=max(256, 8 * lanes[0] * lanes[1]),
        psum_bytes=1024, bias_bytes=16 * lanes[0],
    )  # fmt: skip
    watch = Watch(config, monkeypatch)
    for seed in range(4):
        rng = random.Random(f"{lanes} {seed}")
        while True:
            layer = random_layer(rng, extent=6, channels=8, most_macs=60 * config.lanes)
            mode = random_mode(rng, layer)
            wanted = mode == MODES[seed % 2] or mode == "depthwise"
            if wanted and check_fit(layer, config, Tile(1, 1, 1, 1), mode) is None:
                break
        tile = random_tile(rng, layer, config, mode)
        inputs, weights, bias = random_arrays(seed, layer)
        outputs, outcome, _ = watch.bench.run_layer(
            layer, tile, mode, rng.choice(ORDERS), inputs, weights, bias, latency=1
        )
        assert outcome.done
        np.testing.assert_array_equal(outputs, convolve(layer, inputs, weights, bias), str(seed))
    assert watch.steps
    # Words of all memories are used again.
    assert max(watch.nearest.values()) < 10**6
    # Words are written a cycle after they were read, at the earliest.
    assert min(watch.nearest.values()) >= 1
