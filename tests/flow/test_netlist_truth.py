# amaranth: UnusedElaboratable=no
"""The synthesised netlist computes what the golden model says, in as many cycles as planned."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator

from haloconv.flow.synthesis import synthesize, synthesize_rtlil
from haloconv.flow.synthesis.rtlil import Target, design_rtlil
from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import plan_layer
from haloconv.planner.program import build_layer_program, read_outputs
from haloconv.planner.requantization import Requantization
from haloconv.planner.tile import Tile
from haloconv.rtl.engine import Engine
from haloconv.rtl.registered_product import registered_product
from haloconv.sim.backend import run
from haloconv.sim.backends import cxxrtl
from haloconv.sim.golden import golden_layer

from ..support.netlist_simulation import NetlistLibrary, run_ports, top_of
from ..support.synthesised import SMALL, common_folder, synthesised

needs_compiler = pytest.mark.skipif(
    cxxrtl.unavailable() is not None, reason=str(cxxrtl.unavailable())
)
pytestmark = [needs_compiler]

LAYERS = {
    "row": ConvLayer(6, 5, 5, 3, (3, 2), stride=(2, 1), pads=(1, 0, 2, 1), in_zero_point=-3),
    "depthwise": ConvLayer(5, 6, 5, 5, (3, 3), pads=(1, 1, 1, 1), groups=5, in_zero_point=9),
    "channel": ConvLayer(2, 3, 70, 4, (3, 3), pads=(1, 1, 1, 1), in_zero_point=5),
}
"""By the mode that the planner takes; the last splits its input channels, and stores sums."""


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Build anew in each test session, once for all its tests and workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALOCONV_CACHE_DIR", str(common_folder(tmp_path_factory) / "netlist-cache"))
        yield


class Case:
    """A layer with random operands on a small engine: program, golden result, planned cycles."""

    def __init__(
        self,
        layer: ConvLayer,
        seed: int = 1,
        *,
        config: EngineConfig = SMALL,
        tile: Tile | None = None,
        mode: str | None = None,
    ) -> None:
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        inputs = rng.integers(-128, 128, layer.input_shape, dtype=np.int8)
        weights = rng.integers(-128, 128, layer.weight_shape, dtype=np.int8)
        bias = rng.integers(-9999, 9999, layer.out_channels, dtype=np.int32)
        scale = Requantization(multiplier=2**30 + 12345, shift=-7, zero_point=-4, clamp=(-77, 99))
        self.layer = layer
        self.plan = plan_layer(layer, config, tile=tile, mode=mode)
        self.program = build_layer_program(
            layer, config, self.plan.tile, self.plan.mode, self.plan.order,
            inputs=inputs, weights=weights, bias=bias, requantization=scale,
        )  # fmt: skip
        self.golden = golden_layer(layer, inputs, weights, bias, scale)

    def outcome(self, engine: Engine, netlist: Any, patch: pytest.MonkeyPatch) -> tuple[Any, int]:
        """Return the result and cycles of a netlist in place of an engine."""
        patch.setattr(cxxrtl, "library", NetlistLibrary(netlist))
        result = run(
            engine, self.program.image, program_address=self.program.program_address,
            latency=self.plan.latency, max_cycles=50_000, backend="cxxrtl",
        )  # fmt: skip
        assert result.done
        output = read_outputs(self.program, result.memory, self.layer, raw=False)
        return output, result.counters["cycles"]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["ecp5", "ice40"])
def test_engine(
    family: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every mode, and tiles of input channels: the golden result in the planned cycles."""
    _, netlist = synthesised(tmp_path_factory, family)
    engine = Engine(SMALL)
    for mode, layer in LAYERS.items():
        case = Case(layer)
        assert case.plan.mode == mode
        output, cycles = case.outcome(engine, netlist, monkeypatch)
        np.testing.assert_array_equal(output, case.golden, err_msg=mode)
        assert cycles == case.plan.cycles, mode
    tile = plan_layer(LAYERS["channel"], SMALL).tile
    assert tile.in_channels < LAYERS["channel"].in_channels, "no sums would be stored"


@pytest.mark.slow
def test_engine_of_the_icebreaker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums in the multipliers, halo buffers without alignment, serial requantisers."""
    config = EngineConfig(
        out_lanes=4, split_lanes=2, bus_bytes=2, input_bytes=512, weight_bytes=512, psum_bytes=512,
        bias_bytes=32, requant_lanes=1, weight_zero_points=False, address_bits=16, tiles_ahead=0,
        serial_requantizers=True, counters=False,
    )  # fmt: skip
    path = tmp_path / "netlist.json"
    area = synthesize(config, "ice40", netlist=path).area
    assert area.dsps == config.lanes
    netlist, engine = json.loads(path.read_text()), Engine(config)
    tiles = {"row": Tile(3, 3, 5, 3), "depthwise": Tile(3, 4, 1, 3), "channel": Tile(2, 2, 12, 4)}
    for mode, layer in LAYERS.items():
        case = Case(layer, config=config, tile=tiles[mode], mode=mode)
        output, cycles = case.outcome(engine, netlist, monkeypatch)
        np.testing.assert_array_equal(output, case.golden, err_msg=mode)
        assert cycles == case.plan.cycles, mode


@pytest.mark.slow
@pytest.mark.parametrize("block", ["datapath.lanes", "datapath.writer"])
def test_one_wrong_gate_is_seen(
    block: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison is not blind: a LUT that gives the opposite makes another result, or none.

    Not each is seen, as one layer does not need them all: sums reach their upper bits only in
    larger ones.
    """
    _, netlist = synthesised(tmp_path_factory, "ice40")
    engine, case = Engine(SMALL), Case(LAYERS["row"])
    output, cycles = case.outcome(engine, netlist, monkeypatch)
    assert (output == case.golden).all() and cycles == case.plan.cycles
    names = sorted(
        name
        for name, cell in top_of(netlist)["cells"].items()
        if cell["type"] == "SB_LUT4" and cell["attributes"]["haloconv_block"] == block
    )
    tried = names[:: -(-len(names) // 8)]
    seen = []
    for name in tried:
        broken = copy.deepcopy(netlist)
        parameters = top_of(broken)["cells"][name]["parameters"]
        parameters["LUT_INIT"] = parameters["LUT_INIT"].translate(str.maketrans("01", "10"))
        try:
            output, cycles = case.outcome(engine, broken, monkeypatch)
        except Exception as error:
            print(f"{name}: {error}")
            seen.append(name)
            continue
        if (output != case.golden).any() or cycles != case.plan.cycles:
            seen.append(name)
    assert 2 * len(seen) >= len(tried), f"of {tried} only {seen}"


def dot_product(*, reset_less: bool) -> tuple[Module, dict[str, Signal], Signal]:
    """Return two products, registered, added and registered, as iCE40's MAC16 could do alone."""
    m = Module()
    inputs = {name: Signal(signed(8), name=name) for name in ("a", "b", "c", "d")}
    products = [
        Signal(signed(16), name=f"product_{index}", reset_less=reset_less) for index in range(2)
    ]
    total = Signal(signed(20), name="total", reset_less=reset_less)
    m.d.sync += products[0].eq(inputs["a"] * inputs["b"])
    m.d.sync += products[1].eq(inputs["c"] * inputs["d"])
    m.d.sync += total.eq(products[0] + products[1])
    return m, inputs, total


def simulated(
    m: Module, inputs: list[Signal], stimuli: dict[str, list[int]], outputs: list[Signal]
) -> dict[str, list[int]]:
    """Return what Amaranth's simulator shows for a design, as ``run_ports`` does."""
    seen: dict[str, list[int]] = {output.name: [] for output in outputs}

    async def bench(ctx: Any) -> None:
        cycles = len(next(iter(stimuli.values())))
        for cycle in range(cycles):
            for signal in inputs:
                ctx.set(signal, stimuli[signal.name][cycle])
            for output in outputs:
                seen[output.name].append(ctx.get(output) & ((1 << len(output)) - 1))
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return seen


def mapped(m: Module, ports: list[Signal], family: str, path: Path) -> Any:
    text = design_rtlil(m, family, top="design", ports=ports)
    synthesize_rtlil(text, family, top="design", netlist=path)
    return json.loads(path.read_text())


def random_stimuli(signals: list[Signal], cycles: int, seed: int) -> dict[str, list[int]]:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    return {
        signal.name: [int(value) for value in rng.integers(0, 1 << len(signal), cycles)]
        for signal in signals
    }


@pytest.mark.parametrize("reset_less", [False, True], ids=["reset", "reset-less"])
def test_products_of_ice40(reset_less: bool, tmp_path: Path) -> None:
    """With resets the netlist is right; without, Yosys 0.70 is known to build wrong ones.

    So registers of products keep their reset. Where the comparison finds no difference without,
    that Yosys has got over it, or this form was never at fault.
    """
    m, inputs, total = dot_product(reset_less=reset_less)
    netlist = mapped(m, [*inputs.values(), total], "ice40", tmp_path / "netlist.json")
    stimuli = random_stimuli(list(inputs.values()), 200, 3)
    again, others, sums = dot_product(reset_less=reset_less)
    ours = simulated(again, list(others.values()), stimuli, [sums])
    theirs = run_ports(netlist, stimuli)
    if reset_less and theirs != ours:
        return
    assert theirs == ours
    if reset_less:
        pytest.xfail("this Yosys builds the reset-less form right")


def lane(platform: Any) -> tuple[Module, list[Signal], Signal]:
    """Return a lane as engines have it: operands, a product in its register, a sum that is held."""
    m = Module()
    a, b = Signal(signed(9), name="a"), Signal(signed(9), name="b")
    take, last = Signal(name="take"), Signal(name="last")
    operand, weight = Signal(signed(9)), Signal(signed(9), reset_less=True)
    m.d.sync += [operand.eq(a), weight.eq(b)]
    product = registered_product(m, platform, "product", operand, weight)
    held, total = Signal(signed(25)), Signal(signed(25), name="total")
    m.d.comb += total.eq(held + product)
    with m.If(take & last):
        m.d.sync += held.eq(0)
    with m.Elif(take):
        m.d.sync += held.eq(total)
    return m, [a, b, take, last], total


@pytest.mark.parametrize("family", ["ecp5", "ice40"])
def test_registers_of_products_stay(family: str, tmp_path: Path) -> None:
    """A multiplier that is written out with its register still has it in the netlist.

    Yosys 0.70's ``synth_ice40 -dsp`` by itself drops it without a word: a lone SB_MAC16 with
    PIPELINE_16x16_MULT_REG2 = 1 and its output from there (both selects 3) comes out with
    PIPELINE_16x16_MULT_REG2 = 0, CE and CLK at 0, as ``ice40_dsp`` sets each register to what it
    found around the multiplier. A register without reset before an operand it moves inside, as
    here, so that one factor is a cycle later than the other.
    """
    m, inputs, total = lane(Target(family))
    netlist = mapped(m, [*inputs, total], family, tmp_path / "netlist.json")
    assert not [name for name in netlist["modules"] if "haloconv" in name], "a stand-in is left"
    stimuli = random_stimuli(inputs, 200, 7)
    m, inputs, total = lane(None)
    assert run_ports(netlist, stimuli) == simulated(m, inputs, stimuli, [total])


def primitives() -> tuple[Module, list[Signal], list[Signal]]:
    """Return a design that uses adders, both kinds of memory, multipliers and register controls."""
    m = Module()
    names = {"a": 12, "b": 12, "address": 6, "write": 1, "enable": 1, "clear": 1}
    inputs = {name: Signal(width, name=name) for name, width in names.items()}
    a, b, address = inputs["a"], inputs["b"], inputs["address"]
    outputs = []

    def output(name: str, shape: Any) -> Signal:
        signal = Signal(shape, name=name)
        outputs.append(signal)
        return signal

    total = output("total", 16)
    with m.If(inputs["enable"]):
        m.d.sync += total.eq(total + a - b)
    with m.If(inputs["clear"]):
        m.d.sync += total.eq(0x1234)
    product = output("product", signed(24))
    m.d.sync += product.eq(a.as_signed() * b.as_signed())
    plain = output("plain", 24)
    m.d.sync += plain.eq(a * b)
    less = output("less", 1)
    m.d.comb += less.eq(a < b)
    for name, depth, width in (("small", 16, 8), ("large", 64, 72)):
        m.submodules[name] = memory = Memory(
            shape=width,
            depth=depth,
            init=[(index * 0x9E3779B1) % (1 << width) for index in range(depth)],
        )
        write, read = memory.write_port(), memory.read_port()
        shown = output(name, width)
        m.d.comb += [
            write.addr.eq(address), write.en.eq(inputs["write"]), read.addr.eq(a),
            write.data.eq((a << 60) ^ (b << 31) ^ (a << 9) ^ b), shown.eq(read.data),
        ]  # fmt: skip
    return m, list(inputs.values()), outputs


@pytest.mark.parametrize("family", ["ecp5", "ice40"])
def test_cells(family: str, tmp_path: Path) -> None:
    """The tables read cells as Amaranth's simulator reads the design that they came from."""
    m, inputs, outputs = primitives()
    netlist = mapped(m, [*inputs, *outputs], family, tmp_path / "netlist.json")
    kinds = {cell["type"] for cell in top_of(netlist)["cells"].values()}
    if family == "ecp5":
        assert {"LUT4", "CCU2C", "TRELLIS_FF", "MULT18X18D", "DP16KD", "TRELLIS_DPR16X4"} <= kinds
    else:
        assert {"SB_LUT4", "SB_CARRY", "SB_MAC16", "SB_RAM40_4K"} <= kinds
    stimuli = random_stimuli(inputs, 400, 5)
    m, inputs, outputs = primitives()
    ours = simulated(m, inputs, stimuli, outputs)
    theirs = run_ports(netlist, stimuli)
    assert theirs == ours
