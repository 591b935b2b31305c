# amaranth: UnusedElaboratable=no
"""Registers behind block RAM of the ECP5 become its own, where they are no more than that."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.sim import Simulator

from haloconv.flow.synthesis import synthesize_rtlil
from haloconv.flow.synthesis.output_registers import absorb_output_registers
from haloconv.flow.synthesis.rtlil import design_rtlil
from haloconv.rtl.block_memory import block_memory
from haloconv.sim.backends import cxxrtl

from ...support.netlist_simulation import run_ports, top_of
from ...support.synthesised import synthesised

SHAPES = {"one port's outputs": (9, 2048), "both ports' outputs": (36, 512)}
"""Bits and words of a block RAM that reads with port B, and of one that needs the outputs of A."""


class Read:
    """A memory whose halves are written and read by turns, so that no read meets a write."""

    def __init__(self, bits: int, depth: int, *, pauses: bool = False) -> None:
        self.m = m = Module()
        # Few words, so that what was written is read soon.
        row = Signal(3, name="row")
        write_row, half = Signal(3, name="write_row"), Signal(name="half")
        data, write = Signal(bits, name="data"), Signal(name="write")
        self.inputs = [row, write_row, half, data, write]
        self.outputs: list[Signal] = []
        m.submodules.memory = memory = block_memory(bits, depth)
        write_port, read_port = memory.write_port(), memory.read_port()
        gap = depth.bit_length() - 1 - 4
        m.d.comb += [
            write_port.addr.eq(Cat(write_row, Signal(gap), ~half)),
            write_port.data.eq(data),
            write_port.en.eq(write),
            read_port.addr.eq(Cat(row, Signal(gap), half)),
        ]
        if pauses:
            m.d.comb += read_port.en.eq(self.input("read", 1))
        self.raw = read_port.data

    def input(self, name: str, bits: int) -> Signal:
        signal = Signal(bits, name=name)
        self.inputs.append(signal)
        return signal

    def output(self, value: Any, name: str = "out") -> None:
        signal = Signal(len(value), name=name)
        self.m.d.comb += signal.eq(value)
        self.outputs.append(signal)

    def register(self, value: Any, name: str = "held", **options: Any) -> Signal:
        held = Signal(len(value), name=name, **({"reset_less": True} | options))
        self.m.d.sync += held.eq(value)
        return held


def synthesise(read: Read, path: Path) -> tuple[dict[str, int], Any]:
    """Return the cells by type, and the netlist."""
    ports = [*read.inputs, *read.outputs]
    text = design_rtlil(read.m, "ecp5", top="design", ports=ports)
    result = synthesize_rtlil(text, "ecp5", top="design", netlist=path)
    netlist = json.loads(path.read_text())
    assert result.area.ffs == result.cells.get("TRELLIS_FF", 0)
    return result.cells, netlist


def memory_of(netlist: Any) -> Any:
    (memory,) = (cell for cell in top_of(netlist)["cells"].values() if cell["type"] == "DP16KD")
    return memory


def modes(memory: Any) -> list[str]:
    return [memory["parameters"][f"REGMODE_{port}"] for port in "AB"]


def check_equal(make: Callable[[], Read], netlist: Any) -> None:
    """Compare a netlist with Amaranth's simulation, cycle by cycle."""
    print("seed 5")
    rng, cycles, read = np.random.default_rng(5), 600, make()
    stimuli = {
        signal.name: [int(value) for value in rng.integers(0, 1 << len(signal), cycles)]
        for signal in read.inputs
    }
    seen: dict[str, list[int]] = {output.name: [] for output in read.outputs}

    async def bench(ctx: Any) -> None:
        for cycle in range(cycles):
            for signal in read.inputs:
                ctx.set(signal, stimuli[signal.name][cycle])
            for output in read.outputs:
                seen[output.name].append(ctx.get(output))
            await ctx.tick()

    simulator = Simulator(read.m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(set(seen["out"])) > 100
    assert run_ports(netlist, stimuli) == seen


def plain(shape: str) -> Read:
    read = Read(*SHAPES[shape])
    read.output(read.register(read.raw))
    return read


def enabled(shape: str, *, pauses: bool = False) -> Read:
    """A register that takes a word in some cycles; with pauses the memory reads in others."""
    read = Read(*SHAPES[shape], pauses=pauses)
    held = Signal(len(read.raw), reset_less=True)
    with read.m.If(read.input("enable", 1)):
        read.m.d.sync += held.eq(read.raw)
    read.output(held)
    return read


def some_bits_unused() -> Read:
    read = Read(36, 512)
    read.output(read.register(Cat(read.raw[3:9], read.raw[20:33])))
    return read


MOVED: dict[str, Callable[[], Read]] = {
    **{f"plain, {shape}": lambda shape=shape: plain(shape) for shape in SHAPES},
    **{f"enable, {shape}": lambda shape=shape: enabled(shape) for shape in SHAPES},
    "enable of its own beside the memory's": lambda: enabled("both ports' outputs", pauses=True),
    "some bits unused": some_bits_unused,
}


@pytest.mark.skipif(cxxrtl.unavailable() is not None, reason=str(cxxrtl.unavailable()))
@pytest.mark.parametrize("name", MOVED)
def test_moved(name: str, tmp_path: Path) -> None:
    """No flip-flop is left, and every output is what it was in every cycle."""
    cells, netlist = synthesise(MOVED[name](), tmp_path / "netlist.json")
    assert cells["DP16KD"] == 1 and "TRELLIS_FF" not in cells
    memory = memory_of(netlist)
    wide = int(memory["parameters"]["DATA_WIDTH_B"], 2) == 36
    assert wide == ("one port" not in name)
    assert modes(memory) == ["OUTREG" if wide else "NOREG", "OUTREG"]
    ports = top_of(netlist)["ports"]
    enable = ports["enable"]["bits"] if "enable" in ports else ["1"]
    for port in "AB" if wide else "B":
        assert memory["connections"][f"OCE{port}"] == enable
    check_equal(MOVED[name], netlist)
    # They are gone, so that nothing is left to move.
    assert absorb_output_registers(top_of(netlist)) == 0


def with_reset() -> Read:
    read = Read(36, 512)
    read.output(read.register(read.raw, reset_less=False))
    return read


def cleared() -> Read:
    read = Read(36, 512)
    held = Signal(36, reset_less=True)
    read.m.d.sync += held.eq(read.raw)
    with read.m.If(read.input("clear", 1)):
        read.m.d.sync += held.eq(0)
    read.output(held)
    return read


def preset() -> Read:
    read = Read(36, 512)
    read.output(read.register(read.raw, init=1 << 17))
    return read


def second_reader() -> Read:
    """A gate reads one of the bits as well."""
    read = Read(36, 512)
    read.output(read.register(read.raw))
    read.output(read.raw[17] ^ read.raw[18], name="other")
    return read


def second_register() -> Read:
    """With an enable, lest it be the same."""
    read = Read(36, 512)
    read.output(read.register(read.raw))
    other = Signal(reset_less=True)
    with read.m.If(read.input("enable", 1)):
        read.m.d.sync += other.eq(read.raw[20])
    read.output(other, name="other")
    return read


def port() -> Read:
    read = Read(36, 512)
    read.output(read.register(read.raw))
    read.output(read.raw[35], name="other")
    return read


def part() -> Read:
    read = Read(36, 512)
    read.output(read.register(read.raw[:30]))
    read.output(read.raw[30:36].xor(), name="other")
    return read


def two_enables() -> Read:
    read = Read(36, 512)
    for index, word in enumerate((read.raw[:18], read.raw[18:])):
        held = Signal(18, reset_less=True, name=f"held_{index}")
        with read.m.If(read.input(f"enable_{index}", 1)):
            read.m.d.sync += held.eq(word)
        read.output(held, name=("out", "other")[index])
    return read


def gates_between() -> Read:
    read = Read(36, 512)
    read.output(read.register(read.raw ^ read.raw.rotate_left(1)))
    return read


@pytest.mark.parametrize(
    ("make", "flip_flops"),
    [
        (with_reset, 36),
        (cleared, 36),
        (preset, 36),
        (second_reader, 36),
        (second_register, 37),
        (port, 36),
        (part, 30),
        (two_enables, 36),
        (gates_between, 36),
    ],
)
def test_not_moved(make: Callable[[], Read], flip_flops: int, tmp_path: Path) -> None:
    """All or none: what one bit needs outside keeps the registers of all."""
    cells, netlist = synthesise(make(), tmp_path / "netlist.json")
    assert cells["DP16KD"] == 1 and cells["TRELLIS_FF"] == flip_flops
    assert modes(memory_of(netlist)) == ["NOREG", "NOREG"]


@pytest.mark.slow
def test_engine(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The buffers that the lanes read have their registers inside."""
    result, netlist = synthesised(tmp_path_factory, "ecp5")
    memories = [cell for cell in top_of(netlist)["cells"].values() if cell["type"] == "DP16KD"]
    assert len(memories) == result.area.block_rams
    for block in ("datapath.halo", "datapath.weights"):
        its = [cell for cell in memories if cell["attributes"]["haloconv_block"] == block]
        assert its, block
        for memory in its:
            wide = int(memory["parameters"]["DATA_WIDTH_B"], 2) == 36
            assert modes(memory) == ["OUTREG" if wide else "NOREG", "OUTREG"], block
