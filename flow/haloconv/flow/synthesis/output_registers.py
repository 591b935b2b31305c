"""Moves registers that follow block RAM of an ECP5 into it.

A DP16KD has a register of its own behind each data output, which Yosys does not use. Without it the
data come nearly 6 ns after the clock's edge, with it they come as fast as from any register.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["absorb_output_registers"]

_HALF = 18
"""Data outputs of a port; both ports' are the outputs of one 36 bits wide."""


def absorb_output_registers(module: Mapping[str, Any]) -> int:
    """Use the output registers of the block RAMs of a netlist, in place.

    Registers of a memory are moved where each data output has one, feeds nothing else, and all have
    the same clock and clock enable, and neither reset nor preset.

    Parameters
    ----------
    module : dict
        Top module of a flat netlist as Yosys' ``write_json`` wrote it, in primitives of the ECP5.

    Returns
    -------
    int
        Flip-flops that are gone.
    """
    cells = module["cells"]
    sinks: dict[int, list[tuple[str, str]]] = {}
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input":
                for bit in bits:
                    sinks.setdefault(bit, []).append((name, port))
    for name, port in module["ports"].items():
        for bit in port["bits"]:
            sinks.setdefault(bit, []).append(("", name))
    moved = 0
    for cell in list(cells.values()):
        if cell["type"] == "DP16KD":
            moved += _absorb(cell, cells, sinks)
    return moved


def _absorb(
    memory: dict[str, Any], cells: dict[str, Any], sinks: dict[int, list[tuple[str, str]]]
) -> int:
    """Use the registers of one memory that is written by port A and read by port B."""
    nets, parameters = memory["connections"], memory["parameters"]
    ports = "AB" if int(parameters.get("DATA_WIDTH_B", "0"), 2) == 2 * _HALF else "B"
    # At 36 bits either port's clock may drive the lower half's register.
    plain = (
        nets.get("WEB") == nets.get("RSTB") == ["0"]
        and all(parameters.get(f"CLK{port}MUX") == f"CLK{port}" for port in ports)
        and all(nets.get(f"CLK{port}") == nets["CLKB"] for port in ports)
        and all(parameters.get(f"REGMODE_{port}") == "NOREG" for port in ports)
    )
    if not plain:
        return 0
    outputs = [f"DO{port}{index}" for port in ports for index in range(_HALF)]
    used = {output: bit for output in outputs for bit in nets.get(output, []) if bit in sinks}
    registers: dict[str, str] = {}
    enables: set[Any] = set()
    for output, bit in used.items():
        (name, port), *others = sinks[bit]
        if others or not name or port not in ("DI", "M") or cells[name]["type"] != "TRELLIS_FF":
            return 0
        register = cells[name]
        pins, kinds = register["connections"], register["parameters"]
        plain = (
            "keep" not in register["attributes"]
            and pins["CLK"] == nets["CLKB"]
            and kinds.get("CLKMUX", "CLK") == "CLK"
            and pins.get("LSR", ["0"]) == ["0"]
            and kinds.get("LSRMUX", "LSR") == "LSR"
            and kinds.get("REGSET", "RESET") == "RESET"
            and kinds.get("CEMUX", "CE").strip() in ("CE", "1")
        )
        if not plain:
            return 0
        registers[output] = name
        always = kinds.get("CEMUX", "CE").strip() == "1"
        enables.add("1" if always else pins.get("CE", ["1"])[0])
    if len(enables) != 1:
        return 0
    (enable,) = enables
    for port in ports:
        parameters[f"REGMODE_{port}"] = "OUTREG"
        nets[f"OCE{port}"] = [enable]
    for output, name in registers.items():
        nets[output] = cells.pop(name)["connections"]["Q"]
    return len(registers)
