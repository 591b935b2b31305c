# amaranth: UnusedElaboratable=no
"""The whole engine: results, errors, aborts, and what they leave behind for the next program."""

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, decode, encode
from haloconv.planner.layer import ConvLayer
from haloconv.planner.program import build_layer_program, read_outputs
from haloconv.planner.registers import ErrorCode, Register
from haloconv.planner.requantization import Requantization
from haloconv.planner.tile import ORDERS, Tile
from haloconv.rtl import engine as engine_module
from haloconv.rtl.engine import Engine
from haloconv.rtl.register_file import ROUND
from haloconv.sim.backend import run
from haloconv.sim.golden import convolve

from ..support import engine_bench
from ..support.engine_bench import ABORT, START, EngineBench
from ..support.random_layers import random_arrays, random_layer, random_mode, random_tile

CONFIG = EngineConfig(
    out_lanes=2, split_lanes=2, bus_bytes=4, input_bytes=512, weight_bytes=256, psum_bytes=128,
    bias_bytes=32, roundings=(), weight_zero_points=False, address_bits=16,
)  # fmt: skip
LAYER = ConvLayer(3, 4, 3, 4, (2, 2), pads=(1, 0, 0, 1), in_zero_point=-7)
TILE = Tile(2, 4, 2, 2)
"""Splits rows, input channels and output channels of LAYER: eight tiles."""


def small_program(*, batch=1, config=CONFIG, layer=LAYER, tile=TILE):
    inputs, weights, bias = random_arrays(3, layer)
    inputs = np.concatenate([np.roll(inputs, item, 1) for item in range(batch)])
    program = build_layer_program(
        layer, config, tile, "channel", "mhwc", inputs=inputs, weights=weights, bias=bias
    )
    return program, convolve(layer, inputs, weights, bias)


@pytest.fixture(scope="module")
def bench():
    """One engine for all tests of errors: each finds it as the one before has left it."""
    return EngineBench(CONFIG, quiet=12)


def run_well(bench, **options):
    """The following program must be right, whatever happened before."""
    program, expected = small_program()
    outcome = bench.run(program.image, program.program_address, **options)
    assert outcome.done
    assert outcome.error_code == ErrorCode.NONE
    np.testing.assert_array_equal(read_outputs(program, outcome.memory, LAYER, True), expected)
    return outcome


def check_stopped(outcome, code, detail=0):
    assert outcome.status & 7 == 4
    assert outcome.error_code == code
    assert outcome.error_detail == outcome.layers == detail


def patched(program, index=0, **changes):
    """The image with fields of a descriptor changed."""
    image = program.image.copy()
    first = program.program_address + index * DESCRIPTOR_BYTES
    fields = decode(image[first : first + DESCRIPTOR_BYTES].tobytes())
    fields.update(changes)
    image[first : first + DESCRIPTOR_BYTES] = np.frombuffer(encode(fields), np.uint8)
    return image


@pytest.mark.parametrize("lanes", [(1, 1, 1), (3, 5, 16), (8, 2, 32), (4, 4, 8)])
def test_random_layers(lanes):
    config = EngineConfig(
        out_lanes=lanes[0], split_lanes=lanes[1], bus_bytes=lanes[2], input_bytes=2048,
        weight_bytes=2048, psum_bytes=1024, bias_bytes=16 * lanes[0], roundings=(),
        address_bits=18,
    )  # fmt: skip
    engine = EngineBench(config)
    for seed in range(4):
        rng = random.Random(100 * lanes[0] + seed)
        layer = random_layer(rng, extent=6, channels=8, most_macs=120 * config.lanes)
        mode, order = random_mode(rng, layer), rng.choice(ORDERS)
        tile = random_tile(rng, layer, config, mode)
        inputs, weights, bias = random_arrays(seed, layer)
        zero_points = None
        if seed % 2:
            zero_points = np.random.default_rng(seed).integers(-128, 128, layer.out_channels)
        outputs, outcome, _ = engine.run_layer(
            layer, tile, mode, order, inputs, weights, bias, weight_zero_points=zero_points,
            latency=rng.choice((1, 9)), stalls=(0.0, 0.3)[seed // 2], seed=seed,
        )  # fmt: skip
        assert outcome.done
        np.testing.assert_array_equal(
            outputs, convolve(layer, inputs, weights, bias, zero_points), f"seed {seed}"
        )
        # What the counters name is what passed through the ports.
        assert outcome.counters["output_bytes"] == outcome.model.traffic.written_bytes


@pytest.mark.parametrize("serial", [False, True])
def test_int8_results(serial):
    config = replace(CONFIG, roundings=("double",), serial_requantizers=serial)
    inputs, weights, bias = random_arrays(5, LAYER)
    multiplier = np.array([2**30, 1518500250, 2**31 - 1, 1234567890])
    shift = np.array([-9, -12, -10, -8])
    requantization = Requantization(multiplier, shift, zero_point=5, clamp=(-100, 90))
    outputs, outcome, _ = EngineBench(config).run_layer(
        LAYER, TILE, "row", "hwmc", inputs, weights, bias >> 5, requantization=requantization
    )
    assert outcome.done
    # Mode "double" from its definition, in exact integers.
    expected = np.zeros(LAYER.output_shape, int)
    sums = convolve(LAYER, inputs, weights, bias >> 5)
    for place in np.ndindex(LAYER.output_shape):
        right = -int(shift[place[3]])
        b = (int(sums[place]) * int(multiplier[place[3]]) + 2**30) >> 31
        y = (b >> right) + (b % 2**right > 2 ** (right - 1) - 1 + (b < 0))
        expected[place] = min(max(y + 5, -100), 90)
    np.testing.assert_array_equal(outputs, expected)
    assert len(np.unique(expected)) > 20


def test_results_lie_between_untouched_bytes(bench):
    program, _ = small_program()
    image = program.image.copy()
    outcome = bench.run(image, program.program_address)
    first = program.output_addresses[0]
    untouched = np.ones(image.size, bool)
    untouched[first : first + program.output_bytes] = False
    np.testing.assert_array_equal(outcome.memory[untouched], image[untouched])


def test_counters_and_traffic(bench):
    outcome = run_well(bench, latency=6)
    counters, traffic = outcome.counters, outcome.model.traffic
    # Worked out by hand. Two row tiles of 3 and 2 rows (one row of pads above), three channels as
    # 2 + 1, twice for the output channel tiles; weights stay while the rows change.
    assert counters["input_bytes"] == 2 * (2 + 2) * 4 * 3
    assert counters["weight_bytes"] == 2 * 4 * 4 * 3
    assert counters["bias_bytes"] == 4 * 4
    assert counters["scale_bytes"] == counters["sum_bytes"] == 0
    assert counters["output_bytes"] == 3 * 4 * 4 * 4 == traffic.written_bytes
    assert counters["program_bytes"] == DESCRIPTOR_BYTES
    # Two steps of each of four taps for a pair of outputs; one for the lone channel.
    assert counters["compute_cycles"] == 2 * 3 * 4 * 4 * (1 + 1)
    waits = counters["load_stall_cycles"] + counters["drain_stall_cycles"]
    assert counters["compute_cycles"] + waits < counters["cycles"] <= outcome.cycles


def test_the_bench_counts_as_the_backend_does(bench):
    program, expected = small_program()
    result = run(Engine(CONFIG), program.image, program_address=0, latency=6)
    assert result.done
    np.testing.assert_array_equal(read_outputs(program, result.memory, LAYER, True), expected)
    # An engine that has run other programs before takes not a cycle more or less.
    assert run_well(bench, latency=6).counters == result.counters


def test_two_descriptors(bench):
    program, expected = small_program(batch=2)
    outcome = bench.run(program.image, program.program_address)
    assert outcome.done
    assert outcome.layers == 2
    np.testing.assert_array_equal(read_outputs(program, outcome.memory, LAYER, True), expected)
    single = run_well(bench)
    assert outcome.counters == {name: 2 * value for name, value in single.counters.items()}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"mark": 0x1234}, ErrorCode.DESCRIPTOR),
        ({"raw": 0, "rounding": 0}, ErrorCode.DESCRIPTOR),
        ({"tiles_c": 0}, ErrorCode.DESCRIPTOR),
        ({"kernel_w": 0}, ErrorCode.DESCRIPTOR),
        ({"mode": 3, "elements": 4}, ErrorCode.DESCRIPTOR),
        ({"input_words": CONFIG.input_words + 1}, ErrorCode.LIMIT),
        ({"m_groups": CONFIG.channel_groups + 1}, ErrorCode.LIMIT),
    ],
)
def test_refused_descriptors(bench, changes, code):
    program, _ = small_program(batch=2)
    for index in range(2):
        outcome = bench.run(patched(program, index, **changes), program.program_address)
        check_stopped(outcome, code, index)
        beats = DESCRIPTOR_BYTES // CONFIG.bus_bytes
        if index == 0:
            # Nothing but the descriptor was read, nothing was written.
            assert outcome.model.traffic.read_beats == beats
            assert outcome.model.traffic.write_beats == 0
    run_well(bench)


def test_a_program_off_the_bus_width(bench):
    program, _ = small_program()
    check_stopped(bench.run(program.image, 2), ErrorCode.DESCRIPTOR)
    run_well(bench)


def place_of(program, name):
    return decode(program.image[:DESCRIPTOR_BYTES].tobytes())[f"{name}_address"]


@pytest.mark.parametrize("latency", [1, 30])
def test_read_errors(bench, latency):
    program, _ = small_program()
    faults = [0, 4, DESCRIPTOR_BYTES - 1]
    for name in ("bias", "weight", "input"):
        faults.append(place_of(program, name))
    faults += [place_of(program, "weight") + 17, place_of(program, "input") + 3 * 4 * 3 - 1]
    for at in faults:
        outcome = bench.run(
            program.image, program.program_address, faults=[(at, at + 1)], latency=latency
        )
        check_stopped(outcome, ErrorCode.READ)
    run_well(bench, latency=latency)


def test_a_read_error_in_the_second_layer(bench):
    program, _ = small_program(batch=2)
    fields = decode(program.image[DESCRIPTOR_BYTES : 2 * DESCRIPTOR_BYTES].tobytes())
    at = fields["input_address"]
    outcome = bench.run(program.image, program.program_address, faults=[(at, at + 4)])
    check_stopped(outcome, ErrorCode.READ, 1)
    run_well(bench)


def test_a_program_outside_memory(bench):
    program, _ = small_program()
    check_stopped(bench.run(program.image, 0xF000), ErrorCode.READ)
    run_well(bench)


def test_write_errors(bench):
    program, _ = small_program()
    first = program.output_addresses[0]
    last = first + program.output_bytes - 1
    for at in (first, first + 50, last):
        for stalls in (0.0, (0.0, 0.0, 0.7)):
            outcome = bench.run(
                program.image, program.program_address, faults=[(at, at + 1)], stalls=stalls
            )
            check_stopped(outcome, ErrorCode.WRITE)
    run_well(bench)


def abort_and_recover(bench, cycles, **options):
    program, _ = small_program()
    for abort_at in cycles:
        outcome = bench.run(program.image, program.program_address, abort_at=abort_at, **options)
        check_stopped(outcome, ErrorCode.ABORTED)
        assert outcome.cycles < abort_at + 400
    return program


def test_a_good_program_behind_each_of_some_aborts(bench):
    """The memory model checks the ports, the bench that they rest afterwards."""
    length = run_well(bench, latency=5).counters["cycles"]
    for abort_at in range(1, length - 2, 97):
        abort_and_recover(bench, [abort_at], latency=5)
        run_well(bench, latency=5)


@pytest.mark.slow
def test_an_abort_in_every_cycle(bench):
    """Of a program as short as they get with two tiles."""
    layer = ConvLayer(1, 2, 2, 2, (1, 1))
    program, expected = small_program(layer=layer, tile=Tile(1, 1, 2, 2))

    def run():
        outcome = bench.run(program.image, program.program_address, latency=2)
        assert outcome.done
        np.testing.assert_array_equal(read_outputs(program, outcome.memory, layer, True), expected)
        return outcome.counters["cycles"]

    length = run()
    for abort_at in range(1, length - 2):
        outcome = bench.run(program.image, program.program_address, abort_at=abort_at, latency=2)
        check_stopped(outcome, ErrorCode.ABORTED)
        # At most the descriptor is waited for, and the counters' turns.
        assert outcome.cycles < abort_at + 80 + 2 * ROUND + 20
        if not abort_at % 16:
            assert run() == length
    assert run() == length


def test_aborts_one_after_the_other(bench):
    length = run_well(bench, latency=5).counters["cycles"]
    abort_and_recover(bench, range(2, length - 2, 43), latency=5)
    run_well(bench)


@pytest.mark.parametrize("seed", range(2))
def test_aborts_under_stalls(bench, seed):
    rng = random.Random(seed)
    cycles = [rng.randrange(1, 500) for _ in range(6)]
    abort_and_recover(
        bench, cycles, latency=25, stalls=(0.6, 0.3, 0.6), seed=seed, outstanding=2 + seed
    )
    run_well(bench, stalls=(0.4, 0.4, 0.4), seed=seed)


class Gates:
    """Sees from the start on what the datapath asks for and what the engine lets through."""

    def __init__(self, monkeypatch):
        blocks = {}

        def record(module, name):
            kind = getattr(module, name)

            def make(*args):
                blocks[name] = kind(*args)
                return blocks[name]

            monkeypatch.setattr(module, name, make)

        record(engine_bench, "Engine")
        for name in ("Datapath", "Control", "BurstSplitter"):
            record(engine_module, name)
        self.bench = EngineBench(CONFIG, quiet=12)
        # The engine's blocks come with its elaboration, as the bench makes its simulator.
        dut, datapath, control = (blocks[name] for name in ("Engine", "Datapath", "Control"))
        self._sampled = {
            "access": dut.registers.write & (dut.registers.address == Register.CONTROL),
            "fetching": control.fetching,
            "halted": control.halted,
            "clearing": datapath.clearing,
            "reading": control.reads_outstanding,
            "write_waiting": control.write_waiting,
            "segment": datapath.o_segment.valid,
            "write": datapath.o.valid,
            "segment_out": blocks["BurstSplitter"].i.valid,
            "write_out": dut.memory.write.valid,
        }
        self.cycles: list[dict[str, int]] = []
        self.bench._simulator.add_testbench(self._watch, background=True)

    async def _watch(self, ctx):
        async for _, _, *values in ctx.tick().sample(*self._sampled.values()):
            self.cycles.append(dict(zip(self._sampled, values, strict=True)))

    def run(self, **options):
        """Run the small program; return its outcome, and the cycles from the start's on."""
        self.cycles.clear()
        program, _ = small_program()
        outcome = self.bench.run(program.image, program.program_address, **options)
        first = next(index for index, cycle in enumerate(self.cycles) if cycle["access"])
        return outcome, self.cycles[first:]


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("port", ["write", "segment"])
def test_nothing_leaves_in_the_cycle_that_clears_the_datapath(port, ready, monkeypatch):
    """The clear comes from a register, a cycle behind the halt: the datapath may begin a write or
    ask for a segment in the very cycle in which it is cleared."""
    gates = Gates(monkeypatch)
    options = {"latency": 5}
    if not ready:
        options |= {"stalls": (0.5, 0.0, 0.5), "seed": 4}
    _, cycles = gates.run(**options)
    # An abort is acted upon two cycles later, and a halt in which nothing is under way is a cycle.
    halt, clear = 2, 3
    begins = [
        number
        for number, (before, now) in enumerate(pairwise(cycles), 1)
        if now[port] and not now["fetching"] and not before["reading"]
        and not before["write_waiting"] and number > clear
    ]  # fmt: skip
    assert begins
    seen = 0
    for number in begins[:: len(begins) // 4 + 1]:
        outcome, cycles = gates.run(abort_at=number - clear, **options)
        check_stopped(outcome, ErrorCode.ABORTED)
        assert cycles[number - clear + halt]["halted"]
        cleared = cycles[number]
        assert cleared["clearing"] and not cleared["halted"]
        seen += cleared[port]
        assert not cleared[f"{port}_out"]
    assert seen
    run_well(gates.bench)


def test_a_halted_engine_asks_for_nothing(monkeypatch):
    """While reads are waited for, the datapath goes on asking."""
    gates = Gates(monkeypatch)
    _, cycles = gates.run(latency=25)
    waits = [number for number, cycle in enumerate(cycles) if cycle["segment"] and cycle["reading"]]
    held = 0
    for number in waits[5 :: len(waits) // 4]:
        outcome, cycles = gates.run(abort_at=number - 2, latency=25)
        check_stopped(outcome, ErrorCode.ABORTED)
        halted = [cycle for cycle in cycles if cycle["halted"]]
        assert not any(cycle["segment_out"] for cycle in halted)
        held += sum(cycle["segment"] for cycle in halted)
    assert held > 25
    run_well(gates.bench)


def test_an_abort_behind_the_end_is_too_late(bench):
    length = run_well(bench).counters["cycles"]
    program, _ = small_program()
    model = bench.memory_model(program.image)

    def script():
        yield Register.PROGRAM_LOW, 1, program.program_address
        yield Register.CONTROL, 1, START
        for _ in range(length + 5 + 2 * ROUND):
            yield Register.STATUS, 0, 0
        yield Register.CONTROL, 1, ABORT
        words = yield from bench.read_all()
        return words

    words = bench.play(script(), model)
    assert words[Register.STATUS] & 7 == 2
    assert words[Register.ERROR_CODE] == ErrorCode.NONE


def test_a_second_start_is_ignored_while_it_runs(bench):
    program, expected = small_program()
    model = bench.memory_model(program.image)

    def script():
        yield Register.PROGRAM_LOW, 1, program.program_address
        yield Register.CONTROL, 1, START
        for _ in range(150):
            yield Register.STATUS, 0, 0
        yield Register.PROGRAM_LOW, 1, 64
        yield Register.CONTROL, 1, START
        while (yield Register.STATUS, 0, 0) & 1 or (yield Register.STATUS, 0, 0) & 1:
            pass

    bench.play(script(), model)
    np.testing.assert_array_equal(read_outputs(program, model.memory, LAYER, True), expected)


def test_configuration_property():
    assert Engine(CONFIG).config is CONFIG
    assert Engine().config == EngineConfig()
