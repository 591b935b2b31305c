"""Synthesised netlists as RTLIL, so that the simulators run them in place of the engine.

The cells' models are Yosys' own where it has them; of ecp5 it has none for block RAM and
multipliers, whose models are written here after the maker's description.
"""

import json
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from haloconv.sim.backends import compiled

__all__ = ["replace_netlist", "simulated", "top_of"]

_YOSYS = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for command in sys.argv[1:]:
    libyosys.run_pass(command, design)
"""


def top_of(netlist: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return name and content of the top module."""
    for name, module in netlist["modules"].items():
        if int(module["attributes"].get("top", "0"), 2):
            return name, module
    raise AssertionError("no top module")


def simulated(netlist: dict[str, Any], family: str, folder: Path) -> str:
    """Return a netlist with the models of its cells in place, as RTLIL of a module ``device``."""
    name, module = top_of(netlist)
    gates = [cell for cell in module["cells"].values() if cell["type"] != "$scopeinfo"]
    # Names and attributes would only slow the simulator's build down.
    cells = {f"c{index}": {**cell, "attributes": {}} for index, cell in enumerate(gates)}
    nets = {key: {**module["netnames"][key], "attributes": {}} for key in module["ports"]}
    bare = {**module, "cells": cells, "netnames": nets}
    (folder / "netlist.json").write_text(
        json.dumps({"creator": netlist["creator"], "modules": {name: bare}})
    )
    types = {cell["type"] for cell in gates}
    (folder / "models.v").write_text(_models(family, types))
    commands = [
        "read_verilog models.v",
        "read_json netlist.json",
        f"hierarchy -check -top {name}",
        "proc",
        "flatten -noscopeinfo",
        "opt_expr -keepdc",
        "opt_clean -purge",
        "setattr -unset src -unset hdlname -unset defaultvalue */*",
        "memory_collect",
        "rename -enumerate",
        "check -assert",
        f"rename {name} {compiled.TOP}",
        "write_rtlil device.il",
    ]
    done = subprocess.run(
        [sys.executable, "-c", _YOSYS, *commands],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    return (folder / "device.il").read_text()


def replace_netlist(engine: Any, text: str) -> Any:
    """Have the compiled simulators run ``text`` for an engine, and return it."""
    compiled._netlists[engine] = text
    return engine


def _models(family: str, types: set[str]) -> str:
    """Return Verilog of the models of some cells."""
    share = _share()
    if family == "ice40":
        text = _modules((share / "ice40" / "cells_sim.v").read_text(), types)
        # Bits that are written while they are read come complemented: nothing is promised there.
        read, clash = "memory[RADDR[7:0]]", "WE && WCLKE && WADDR[7:0] == RADDR[7:0]"
        assert "SB_RAM40_4K" not in types or text.count(f"<= {read}") == 1
        return text.replace(f"<= {read}", f"<= ({read} ^ ({clash} ? ~WMASK_I : 16'd0))")
    assert family == "ecp5"
    own = {"DP16KD": _BLOCK_RAM, "MULT18X18D": _MULTIPLIER}
    sources = [share / "lattice" / file for file in ("common_sim.vh", "ccu2c_sim.vh")]
    # The models of distributed memory and wide multiplexers are made of others.
    common = "".join(
        _modules(path.read_text(), types | {"LUT2", "LUT4", "TRELLIS_RAM16X2"}) for path in sources
    )
    return common + "".join(own[kind]() for kind in sorted(types & own.keys()))


@cache
def _share() -> Path:
    spec = find_spec("pyosys")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "share"


def _modules(text: str, types: set[str]) -> str:
    """Return those modules of a Verilog file, and what stands before the first."""
    start = re.search(r"^(\(\*.*\*\)\s*)?module ", text, re.MULTILINE)
    assert start is not None
    parts = ["\n".join(line for line in text[: start.start()].split("\n") if line[:1] == "`")]
    for match in re.finditer(r"^module (\w+).*?^endmodule", text, re.MULTILINE | re.DOTALL):
        if match[1] in types:
            parts.append(match[0])
    return "\n".join(parts) + "\n"


def _pins(name: str, width: int) -> str:
    return ", ".join(f"{name}{index}" for index in reversed(range(width)))


def _multiplier_register(name: str, width: int, kind: str, source: str) -> str:
    """Return a register that REG_<kind>_CLK switches on, clock enable and reset as chosen."""
    return f"""
  reg [{width - 1}:0] {name}_q = 0;
  wire {name}_clock = REG_{kind}_CLK == "CLK1" ? CLK1 : REG_{kind}_CLK == "CLK2" ? CLK2 :
    REG_{kind}_CLK == "CLK3" ? CLK3 : CLK0;
  wire {name}_enable = REG_{kind}_CE == "CE1" ? CE1 : REG_{kind}_CE == "CE2" ? CE2 :
    REG_{kind}_CE == "CE3" ? CE3 : CE0;
  wire {name}_reset = REG_{kind}_RST == "RST1" ? RST1 : REG_{kind}_RST == "RST2" ? RST2 :
    REG_{kind}_RST == "RST3" ? RST3 : RST0;
  always @(posedge {name}_clock)
    if ({name}_reset) {name}_q <= 0; else if ({name}_enable) {name}_q <= {source};
  wire [{width - 1}:0] {name} = REG_{kind}_CLK == "NONE" ? {source} : {name}_q;
"""


def _multiplier() -> str:
    """Return MULT18X18D: an 18 by 18 product of signed or unsigned operands."""
    stages = (("INPUTA", "NONE"), ("INPUTB", "NONE"), ("PIPELINE", "NONE"), ("OUTPUT", "NONE"))
    parameters = "\n".join(
        f'  parameter REG_{kind}_CLK = "{clock}"; parameter REG_{kind}_CE = "CE0"; '
        f'parameter REG_{kind}_RST = "RST0";'
        for kind, clock in stages
    )
    return f"""
module MULT18X18D(input {_pins("A", 18)}, {_pins("B", 18)}, {_pins("C", 18)},
  SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, CLK3, CLK2, CLK1, CLK0, CE3, CE2, CE1, CE0,
  RST3, RST2, RST1, RST0, output {_pins("P", 36)});
{parameters}
  parameter CLK0_DIV = "ENABLED"; parameter CLK1_DIV = "ENABLED"; parameter CLK2_DIV = "ENABLED";
  parameter CLK3_DIV = "ENABLED"; parameter GSR = "ENABLED"; parameter RESETMODE = "SYNC";
  parameter SOURCEB_MODE = "B_SHIFT"; parameter MULT_BYPASS = "DISABLED";
  wire [18:0] a_in = {{SIGNEDA & A17, {_pins("A", 18)}}};
  wire [18:0] b_in = {{SIGNEDB & B17, {_pins("B", 18)}}};
{_multiplier_register("a", 19, "INPUTA", "a_in")}{_multiplier_register("b", 19, "INPUTB", "b_in")}
  wire [37:0] product = $signed(a) * $signed(b);
{_multiplier_register("middle", 38, "PIPELINE", "product")}
{_multiplier_register("last", 38, "OUTPUT", "middle")}
  assign {{{_pins("P", 36)}}} = last[35:0];
endmodule
"""


def _block_ram() -> str:
    """Return DP16KD: 2048 rows of nine bits behind two ports of 1 to 18 bits, or one of 36.

    Ports of 36 bits write through A and read through B. Narrow ports leave the ninth bits unused.
    Byte enables of wide writes are the low address bits. A row that is read while the other port
    writes it reads as its complement, as the maker promises nothing there.
    """
    init = "\n".join(f"  parameter INITVAL_{index:02X} = 320'h0;" for index in range(64))
    load = "\n".join(
        f"    for (i = 0; i < 32; i = i + 1) memory[{32 * index} + i] = "
        f"INITVAL_{index:02X}[20 * (i / 2) + 9 * (i % 2) +: 9];"
        for index in range(64)
    )
    ports = "".join(_ram_port(port) for port in "AB")
    return f"""
module DP16KD(
  input {_pins("DIA", 18)}, {_pins("ADA", 14)}, CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0,
  input {_pins("DIB", 18)}, {_pins("ADB", 14)}, CEB, OCEB, CLKB, WEB, RSTB, CSB2, CSB1, CSB0,
  output {_pins("DOA", 18)}, {_pins("DOB", 18)});
  parameter DATA_WIDTH_A = 18; parameter DATA_WIDTH_B = 18;
  parameter REGMODE_A = "NOREG"; parameter REGMODE_B = "NOREG";
  parameter RESETMODE = "SYNC"; parameter ASYNC_RESET_RELEASE = "SYNC";
  parameter CSDECODE_A = "0b000"; parameter CSDECODE_B = "0b000";
  parameter WRITEMODE_A = "NORMAL"; parameter WRITEMODE_B = "NORMAL";
  parameter CLKAMUX = "CLKA"; parameter CLKBMUX = "CLKB"; parameter GSR = "ENABLED";
  parameter INIT_DATA = "STATIC";
{init}
  reg [8:0] memory [0:2047];
  integer i;
  initial begin
{load}
  end
{ports}
  assign {{{_pins("DOA", 18)}}} = DATA_WIDTH_B == 36 ? out_B[17:0] : out_A[17:0];
  assign {{{_pins("DOB", 18)}}} = DATA_WIDTH_B == 36 ? out_B[35:18] : out_B[17:0];
endmodule
"""


def _ram_port(port: str) -> str:
    wide = f"{{{_pins('DIB', 18)}, {_pins('DIA', 18)}}}" if port == "A" else "36'd0"
    rows = "\n".join(
        f"""
  wire [10:0] row_{port}{lane} = WIDTH_{port} == 36 ? {{address_{port}[13:5], 2'd{lane}}} :
    WIDTH_{port} == 18 ? {{address_{port}[13:4], 1'd{lane % 2}}} : address_{port}[13:3];
  wire write_{port}{lane} = write_{port} & (WIDTH_{port} == 36 ? address_{port}[{lane}] :
    WIDTH_{port} == 18 ? {"0" if lane > 1 else f"address_{port}[{lane}]"} : {int(lane == 0)});
  wire [8:0] old_{port}{lane} = memory[row_{port}{lane}];
  always @(posedge CLK{port}) if (write_{port}{lane}) memory[row_{port}{lane}] <=
    {f"narrow_{port}" if lane == 0 else f"data_{port}[{9 * lane} +: 9]"};"""
        for lane in range(4)
    )
    other = "B" if port == "A" else "A"
    rows += "".join(
        f"""
  wire clash_{port}{lane} = {
            " | ".join(
                f"write_{other}{there} & row_{other}{there} == row_{port}{lane}"
                for there in range(4)
            )
        };"""
        for lane in range(4)
    )
    olds = ", ".join(
        f"old_{port}{lane} ^ {{9{{clash_{port}{lane}}}}}" for lane in reversed(range(4))
    )
    return f"""
  localparam WIDTH_{port} = DATA_WIDTH_{port};
  wire [13:0] address_{port} = {{{_pins(f"AD{port}", 14)}}};
  wire selected_{port} = CE{port} & ~CS{port}0 & ~CS{port}1 & ~CS{port}2;
  wire write_{port} = selected_{port} & WE{port};
  wire [35:0] data_{port} = WIDTH_{port} == 36 ? {wide} : {{18'd0, {_pins(f"DI{port}", 18)}}};
  wire [2:0] shift_{port} = WIDTH_{port} == 4 ? {{address_{port}[2], 2'd0}} :
    WIDTH_{port} == 2 ? {{address_{port}[2:1], 1'd0}} : WIDTH_{port} == 1 ? address_{port}[2:0] : 0;
  wire [8:0] mask_{port} = WIDTH_{port} >= 9 ? 9'h1ff :
    (9'd1 << WIDTH_{port}) - 9'd1 << shift_{port};
  wire [8:0] narrow_{port} = (old_{port}0 & ~mask_{port}) |
    (data_{port}[8:0] << shift_{port} & mask_{port});
{rows}
  wire [35:0] read_{port} = {{{olds}}} >> shift_{port};
  reg [35:0] latch_{port} = 0;
  always @(posedge CLK{port})
    if (RESETMODE == "SYNC" && RST{port}) latch_{port} <= 0;
    else if (selected_{port} && (!WE{port} || WRITEMODE_{port} == "READBEFOREWRITE"))
      latch_{port} <= read_{port};
    else if (selected_{port} && WRITEMODE_{port} == "WRITETHROUGH") latch_{port} <= data_{port};
  reg [35:0] output_{port} = 0;
  always @(posedge CLK{port})
    if (RESETMODE == "SYNC" && RST{port}) output_{port} <= 0;
    else if (OCE{port}) output_{port} <= latch_{port};
  wire [35:0] out_{port} = REGMODE_{port} == "OUTREG" ? output_{port} : latch_{port};
"""


_BLOCK_RAM, _MULTIPLIER = _block_ram, _multiplier
