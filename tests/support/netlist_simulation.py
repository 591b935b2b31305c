"""Synthesised netlists in place of the engine, behind the compiled simulators' harness.

The cells are tables that one C++ file walks, since a compiler takes minutes for tens of thousands
of gates in a row. What each cell does is written from its maker's description, SB_MAC16 after
Yosys' model, and Yosys is asked for nothing: a netlist that runs here as it should is right by
another reading of the cells than the one that made it.
"""

import ctypes
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from haloconv.sim.backends.build_cache import (
    cached_file,
    compiler,
    compiler_version,
    digest,
    run_tool,
)
from haloconv.sim.backends.compiled import compile_library, definitions, harness_text
from haloconv.sim.backends.job import Job

__all__ = ["NetlistLibrary", "run_ports", "top_of"]

_SOURCE = Path(__file__).with_name("netlist_device.cc")
_UNSET = "0"


def top_of(netlist: Mapping[str, Any]) -> Any:
    """Return the top module."""
    for module in netlist["modules"].values():
        if int(module["attributes"].get("top", "0"), 2):
            return module
    raise AssertionError("no top module")


class NetlistLibrary:
    """Stands for ``library`` of a compiled backend: whatever the engine, it is this netlist."""

    def __init__(self, netlist: Mapping[str, Any]) -> None:
        self.text = _Tables(top_of(netlist)).text()

    def __call__(self, dut: Any, job: Job) -> Path:
        """Return the compiled library, from the cache where it is there."""
        options = ["-std=c++17", "-O2", "-DNETLIST_OF_ENGINE"]

        def build(folder: Path) -> Path:
            (folder / "netlist.inc").write_text(self.text)
            (folder / "unit.cc").write_text(_SOURCE.read_text())
            return compile_library(job, ["unit.cc"], options, folder, what="netlist")

        key = digest(
            "netlist", self.text, _SOURCE.read_text(), harness_text(), compiler_version(),
            " ".join([*options, *definitions(job)]),
        )  # fmt: skip
        return cached_file(key, ".so", build)


def run_ports(
    netlist: Mapping[str, Any], stimuli: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    """Run any netlist with a clock ``clk`` from its start.

    Parameters
    ----------
    netlist : mapping
        As Yosys' ``write_json`` wrote it.
    stimuli : mapping of str to sequence of int
        The level of each input in each cycle; inputs without are low.

    Returns
    -------
    dict of str to list of int
        The level of each output in each cycle, before the edge that ends it.
    """
    module = top_of(netlist)
    ports = {name: port for name, port in module["ports"].items() if name != "clk"}
    cycles = len(next(iter(stimuli.values())))
    tables = _Tables(module)
    sides = []
    for direction in ("input", "output"):
        names = [name for name, port in ports.items() if port["direction"] == direction]
        sides.append([(name, net) for name in names for net in tables.ports[name]])
    inputs, outputs = sides
    levels = np.zeros((cycles, len(inputs)), dtype=np.uint8)
    first: dict[str, int] = {}
    for column, (name, _) in enumerate(inputs):
        bit = column - first.setdefault(name, column)
        if name in stimuli:
            levels[:, column] = [value >> bit & 1 for value in stimuli[name]]
    seen = np.zeros((cycles, len(outputs)), dtype=np.uint8)
    lists = "".join(
        f"const Net {name}_nets[] = {{{', '.join(str(net) for _, net in side)}}};\n"
        for name, side in zip(("input", "output"), sides, strict=True)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "netlist.inc").write_text(tables.text() + lists)
        (folder / "unit.cc").write_text(_SOURCE.read_text())
        cxx = compiler()
        assert cxx is not None
        options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-o", "netlist.so", "unit.cc"]
        run_tool("The C++ compiler (netlist)", [cxx, *options], folder)
        library = ctypes.CDLL(str(folder / "netlist.so"))
        library.netlist_run(
            levels.ctypes.data_as(ctypes.c_void_p),
            seen.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_uint64(cycles),
        )
    results: dict[str, list[int]] = {}
    for column, (port, _) in enumerate(outputs):
        values = results.setdefault(port, [0] * cycles)
        bit = sum(name == port for name, _ in outputs[:column])
        results[port] = [
            value | int(level) << bit for value, level in zip(values, seen[:, column], strict=True)
        ]
    return results


class _Cell:
    """A cell with its connections as nets of the tables and its parameters as text."""

    def __init__(self, cell: Mapping[str, Any], nets: "_Nets") -> None:
        self._cell, self._nets = cell, nets

    def pins(self, port: str, width: int, unset: str = _UNSET) -> list[int]:
        bits = self._cell["connections"].get(port, [])
        return [self._nets(bit) for bit in [*bits, *[unset] * (width - len(bits))]]

    def pin(self, port: str, unset: str = _UNSET) -> int:
        return self.pins(port, 1, unset)[0]

    def row(self, port: str, width: int) -> list[int]:
        """Return pins that are named one by one: A0, A1, and on."""
        return [self.pin(f"{port}{index}") for index in range(width)]

    def word(self, name: str, default: str) -> str:
        """Return a parameter that is text; Yosys' JSON ends those of digits with a blank."""
        return str(self._cell["parameters"].get(name, default)).strip()

    def number(self, name: str, default: int = 0) -> int:
        value = self._cell["parameters"].get(name)
        return default if value is None else int(str(value).strip().replace("x", "0"), 2)


class _Nets:
    """Numbers of nets in the tables: 0 is low, also what is undefined; 1 is high."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {"0": 0, "x": 0, "z": 0, "1": 1}
        self.count = 2

    def __call__(self, bit: Any) -> int:
        if bit not in self._numbers:
            self._numbers[bit] = self.count
            self.count += 1
        return self._numbers[bit]

    def fresh(self) -> int:
        self.count += 1
        return self.count - 1


class _Tables:
    """The tables of a netlist, as C++."""

    def __init__(self, module: Mapping[str, Any]) -> None:
        self._nets = _Nets()
        self._luts: list[str] = []
        self._registers: list[str] = []
        self._distributed: list[str] = []
        self._multipliers: list[str] = []
        self._macs: list[str] = []
        self._block_rams: list[str] = []
        self._small_rams: list[str] = []
        self._rows: list[int] = []
        self._resets: set[int] = set()  # asynchronous ones
        # What is evaluated between two edges: kind, index, nets read, nets driven.
        self._steps: list[tuple[str, int, list[int], list[int]]] = []
        self.ports = {
            name: [self._nets(bit) for bit in port["bits"]]
            for name, port in module["ports"].items()
        }
        (self._clock,) = self.ports["clk"]
        for kind, entry in (
            (cell["type"], _Cell(cell, self._nets)) for cell in module["cells"].values()
        ):
            if kind != "$scopeinfo":
                getattr(self, f"_{kind.lower()}")(entry)
        gates = {net for step in self._steps for net in step[3]}
        assert not (self._resets - {0, 1}) & gates, (
            "an asynchronous reset from gates, which may glitch"
        )

    def text(self) -> str:
        """Return the C++ that the device includes."""
        steps, ordered = self._order()
        tables = {
            "Lut luts": self._luts,
            "Register registers": self._registers,
            "DistributedRam distributed_rams": self._distributed,
            "Multiplier multipliers": self._multipliers,
            "Mac macs": self._macs,
            "BlockRam block_rams": self._block_rams,
            "SmallRam small_rams": self._small_rams,
            "uint16_t ram_rows": [str(row) for row in [*self._rows, 0]],
            "Step steps": steps,
        }
        lines = [f"constexpr uint32_t net_count = {self._nets.count};"]
        lines.append(f"constexpr bool ordered = {str(ordered).lower()};")
        for head, entries in tables.items():
            # std::array, as a table may be empty.
            kind, name = head.split()
            body = ",\n".join(entries)
            if entries:
                lines.append(f"const {kind} {name}[] = {{\n{body}\n}};")
            else:
                lines.append(f"const std::vector<{kind}> {name}_none;")
                lines.append(f"#define {name} {name}_none")
        for name, nets in self.ports.items():
            lines.append(f"const Net port_{name}[] = {{{', '.join(map(str, nets))}}};")
        return "\n".join(lines) + "\n"

    def _order(self) -> tuple[list[str], bool]:
        """Return the steps in an order that needs one pass, and whether there is one."""
        drivers = {net: index for index, step in enumerate(self._steps) for net in step[3]}
        order: list[int] = []
        state = [0] * len(self._steps)  # 1 while what a step reads is visited, 2 behind
        ordered = True
        for first in range(len(self._steps)):
            stack = [first]
            while stack:
                index = stack[-1]
                if state[index] == 0:
                    state[index] = 1
                    for net in self._steps[index][2]:
                        before = drivers.get(net)
                        if before is not None and state[before] == 0:
                            stack.append(before)
                        elif before is not None and state[before] == 1:
                            ordered = False
                else:
                    stack.pop()
                    if state[index] == 1:
                        state[index] = 2
                        order.append(index)
        loops = [step for step in self._steps if step[0] == "lut_step"]
        assert ordered or len(loops) < len(self._steps), "a loop of gates"
        return [f"{{{self._steps[i][0]}, {self._steps[i][1]}}}" for i in order], ordered

    def _clocked(self, cell: _Cell, *ports: str) -> None:
        for port in ports:
            assert cell.pin(port) in (self._clock, 0), f"{port} is another clock"

    def _lut(self, inputs: list[int], output: int, init: int) -> int:
        nets = [*inputs, *[0] * (4 - len(inputs))]
        self._steps.append(("lut_step", len(self._luts), nets, [output]))
        self._luts.append(f"{{{output}, {_list(nets)}, {init}}}")
        return output

    # ECP5

    def _lut4(self, cell: _Cell) -> None:
        self._lut([cell.pin(port) for port in "ABCD"], cell.pin("Z"), cell.number("INIT"))

    def _pfumx(self, cell: _Cell) -> None:
        self._lut([cell.pin("BLUT"), cell.pin("ALUT"), cell.pin("C0")], cell.pin("Z"), 0xCA)

    def _l6mux21(self, cell: _Cell) -> None:
        self._lut([cell.pin("D0"), cell.pin("D1"), cell.pin("SD")], cell.pin("Z"), 0xCA)

    def _inv(self, cell: _Cell) -> None:
        self._lut([cell.pin("A")], cell.pin("Z"), 0x1)

    def _vlo(self, cell: _Cell) -> None:
        self._lut([], cell.pin("Z"), 0x0)

    def _vhi(self, cell: _Cell) -> None:
        self._lut([], cell.pin("Z"), 0x1)

    def _ccu2c(self, cell: _Cell) -> None:
        carry = cell.pin("CIN")
        for half in "01":
            inputs = [cell.pin(f"{port}{half}") for port in "ABCD"]
            init = cell.number(f"INIT{half}")
            inject = cell.word(f"INJECT1_{half}", "YES") == "YES"
            # The LUT propagates; where it does not, the carry is the LUT of A and B alone.
            propagate = self._lut(inputs, self._nets.fresh(), init)
            generate = 0 if inject else self._lut(inputs[:2], self._nets.fresh(), init & 15)
            self._lut([propagate, 0 if inject else carry], cell.pin(f"S{half}"), 0x6)
            out = cell.pin("COUT") if half == "1" else 0
            carry = self._lut([generate, carry, propagate], out or self._nets.fresh(), 0xCA)

    def _trellis_ff(self, cell: _Cell) -> None:
        self._clocked(cell, "CLK")
        assert cell.word("CLKMUX", "CLK") == "CLK"
        synchronous = cell.word("SRMODE", "LSR_OVER_CE") == "LSR_OVER_CE"
        assert cell.word("LSRMUX", "LSR") == "LSR" and cell.word("LSRMODE", "LSR") == "LSR"
        assert synchronous or cell.pin("LSR") == 0, "an asynchronous reset"
        enable = {"1": 1, "CE": cell.pin("CE")}[cell.word("CEMUX", "CE")]
        self._register(
            cell.pin("Q"), cell.pin("DI"), enable, cell.pin("LSR"),
            cell.word("REGSET", "RESET") == "SET", False,
        )  # fmt: skip

    def _register(self, q: int, d: int, enable: int, reset: int, preset: bool, gated: bool) -> None:
        self._registers.append(f"{{{q}, {d}, {enable}, {reset}, {preset:d}, {gated:d}}}")

    def _trellis_dpr16x4(self, cell: _Cell) -> None:
        self._clocked(cell, "WCK")
        assert cell.word("WCKMUX", "WCK") == "WCK" and cell.word("WREMUX", "WRE") == "WRE"
        reads, outputs = cell.pins("RAD", 4), cell.pins("DO", 4)
        self._steps.append(("ram_step", len(self._distributed), reads, outputs))
        nets = (cell.pins("DI", 4), cell.pins("WAD", 4), reads, outputs)
        self._distributed.append(
            f"{{{cell.pin('WRE')}, {', '.join(map(_list, nets))}, {cell.number('INITVAL')}ull}}"
        )

    def _mult18x18d(self, cell: _Cell) -> None:
        assert cell.pin("SOURCEA") == cell.pin("SOURCEB") == 0
        registered, enables, resets = [], [], []
        for kind in ("INPUTA", "INPUTB", "PIPELINE", "OUTPUT"):
            clock = cell.word(f"REG_{kind}_CLK", "NONE")
            registered.append(clock != "NONE")
            if clock != "NONE":
                self._clocked(cell, clock)
            enables.append(cell.pin(cell.word(f"REG_{kind}_CE", "CE0"), "1"))
            resets.append(cell.pin(cell.word(f"REG_{kind}_RST", "RST0")))
        a, b, out = cell.row("A", 18), cell.row("B", 18), cell.row("P", 36)
        signs = [cell.pin("SIGNEDA"), cell.pin("SIGNEDB")]
        through = not (registered[2] or registered[3] or all(registered[:2]))
        self._steps.append(
            ("multiplier_step", len(self._multipliers), [*a, *b, *signs] if through else [], out)
        )
        flags = [int(flag) for flag in registered]
        self._multipliers.append(
            f"{{{_list(a)}, {_list(b)}, {signs[0]}, {signs[1]}, {_list(out)}, "
            f"{_list(flags)}, {_list(enables)}, {_list(resets)}}}"
        )

    def _dp16kd(self, cell: _Cell) -> None:
        self._clocked(cell, "CLKA", "CLKB")
        ports = []
        for port in "AB":
            assert cell.word(f"CLK{port}MUX", f"CLK{port}") == f"CLK{port}"
            assert cell.word(f"CSDECODE_{port}", "0b000") == "0b000"
            reset = cell.pin(f"RST{port}")
            assert reset == 0 or cell.word("RESETMODE", "SYNC") == "SYNC"
            mode = cell.word(f"WRITEMODE_{port}", "NORMAL")
            nets = [_list(cell.row(f"AD{port}", 14)), _list(cell.row(f"DI{port}", 18)),
                    _list(cell.row(f"DO{port}", 18))]  # fmt: skip
            single = [cell.pin(f"CE{port}"), cell.pin(f"OCE{port}"), cell.pin(f"WE{port}"), reset]
            flags = [mode == "WRITETHROUGH", mode == "READBEFOREWRITE",
                     cell.word(f"REGMODE_{port}", "NOREG") == "OUTREG"]  # fmt: skip
            ports.append(
                f"{{{', '.join(nets)}, {', '.join(map(str, single))}, "
                f"{_list(cell.row(f'CS{port}', 3))}, {cell.number(f'DATA_WIDTH_{port}', 18)}, "
                f"{', '.join(str(int(flag)) for flag in flags)}}}"
            )
        self._block_rams.append(f"{{{{{', '.join(ports)}}}, {len(self._rows)}}}")
        for index in range(64):
            init = cell.number(f"INITVAL_{index:02X}")
            for pair in range(16):
                self._rows += [init >> 20 * pair & 511, init >> 20 * pair + 9 & 511]

    # iCE40

    def _sb_lut4(self, cell: _Cell) -> None:
        self._lut([cell.pin(f"I{i}") for i in range(4)], cell.pin("O"), cell.number("LUT_INIT"))

    def _sb_carry(self, cell: _Cell) -> None:
        self._lut([cell.pin("I0"), cell.pin("I1"), cell.pin("CI")], cell.pin("CO"), 0xE8)

    def _flip_flop(self, cell: _Cell, *, gated: bool = False, preset: bool = False) -> None:
        self._clocked(cell, "C")
        reset = cell.pin("S" if preset else "R")
        self._register(cell.pin("Q"), cell.pin("D"), cell.pin("E", "1"), reset, preset, gated)

    def _sb_dff(self, cell: _Cell) -> None:
        self._flip_flop(cell)

    _sb_dffe = _sb_dffsr = _sb_dff

    def _sb_dffss(self, cell: _Cell) -> None:
        self._flip_flop(cell, preset=True)

    def _sb_dffesr(self, cell: _Cell) -> None:
        self._flip_flop(cell, gated=True)

    def _sb_dffess(self, cell: _Cell) -> None:
        self._flip_flop(cell, gated=True, preset=True)

    def _sb_ram40_4k(self, cell: _Cell) -> None:
        self._clocked(cell, "RCLK", "WCLK")
        nets = [_list(cell.pins("RADDR", 11)), _list(cell.pins("WADDR", 11))]
        single = [cell.pin("RE"), cell.pin("RCLKE", "1"), cell.pin("WE"), cell.pin("WCLKE", "1")]
        data = [_list(cell.pins(port, 16)) for port in ("WDATA", "MASK", "RDATA")]
        modes = [cell.number("READ_MODE"), cell.number("WRITE_MODE"), len(self._rows)]
        parts = [*nets, *map(str, single), *data, *map(str, modes)]
        self._small_rams.append(f"{{{', '.join(parts)}}}")
        for index in range(16):
            init = cell.number(f"INIT_{index:X}")
            self._rows += [init >> 16 * row & 0xFFFF for row in range(16)]

    def _sb_mac16(self, cell: _Cell) -> None:
        self._clocked(cell, "CLK")
        assert cell.number("NEG_TRIGGER") == 0
        for port in ("IRSTTOP", "IRSTBOT"):
            assert cell.pin(port) == 0, "an asynchronous reset of operands"
        resets = [cell.pin(port) for port in ("ORSTTOP", "ORSTBOT")]
        self._resets.update(resets)
        operands = [cell.pins(port, 16) for port in "ABCD"]
        controls = [cell.pin("CE", "1"), *(
            cell.pin(port)
            for port in ("AHOLD", "BHOLD", "CHOLD", "DHOLD", "OLOADTOP", "OLOADBOT", "ADDSUBTOP",
                         "ADDSUBBOT", "OHOLDTOP", "OHOLDBOT", "CI", "ACCUMCI", "SIGNEXTIN")
        )]  # fmt: skip
        out = cell.pins("O", 32)
        carries = [cell.pin("CO"), cell.pin("ACCUMCO"), cell.pin("SIGNEXTOUT")]
        names = (
            "A_REG", "B_REG", "C_REG", "D_REG", "TOP_8x8_MULT_REG", "BOT_8x8_MULT_REG",
            "PIPELINE_16x16_MULT_REG1", "PIPELINE_16x16_MULT_REG2", "MODE_8x8", "A_SIGNED",
            "B_SIGNED", "TOPOUTPUT_SELECT", "TOPADDSUB_LOWERINPUT", "TOPADDSUB_UPPERINPUT",
            "TOPADDSUB_CARRYSELECT", "BOTOUTPUT_SELECT", "BOTADDSUB_LOWERINPUT",
            "BOTADDSUB_UPPERINPUT", "BOTADDSUB_CARRYSELECT",
        )  # fmt: skip
        values = {name: cell.number(name) for name in names}
        registered = values["TOPOUTPUT_SELECT"] == values["BOTOUTPUT_SELECT"] == 1
        reads = [] if registered else [*(net for port in operands for net in port), *controls]
        reads += resets
        controls += resets
        outputs = [*out, *carries]
        self._steps.append(("mac_step", len(self._macs), reads, outputs))
        parts = [*map(_list, operands), *map(str, controls), _list(out), *map(str, carries)]
        self._macs.append(f"{{{', '.join([*parts, *map(str, values.values())])}}}")


def _list(values: list[int]) -> str:
    return f"{{{', '.join(map(str, values))}}}"
