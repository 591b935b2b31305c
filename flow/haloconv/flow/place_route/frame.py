"""A frame of registers around a design, so that the bare engine can be placed.

An engine has more ports than most packages have pins, and paths from pins say nothing about the
clock that it reaches inside a chip. The frame feeds every input from one register of a shift chain,
and folds every output into one register of a signature chain (exclusive or with the register
before), so that all logic is kept, nothing is optimised away, each path starts and ends at a
register, and three pins are enough.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from haloconv.flow.synthesis.blocks import BLOCK, top_module

__all__ = ["FRAME_BLOCK", "Frame", "add_frame"]

FRAME_BLOCK = "frame"
"""Block of the frame's cells."""
CLOCK = "clk"


@dataclass(frozen=True)
class Frame:
    """What the frame takes: a register for each input bit, a register and a LUT for each output."""

    inputs: int
    outputs: int


@dataclass(frozen=True)
class _Primitives:
    """A flip-flop and a two-input exclusive or of a family: type, parameters, ports."""

    ff: str
    ff_parameters: dict[str, str]
    ff_data: str
    ff_clock: str
    ff_constant: dict[str, str]
    lut: str
    lut_parameters: dict[str, str]
    lut_inputs: tuple[str, str, str, str]
    lut_output: str


_FAMILIES = {
    "ecp5": _Primitives(
        "TRELLIS_FF",
        {
            # With a blank: Yosys' JSON takes a text of zeros and ones for a number otherwise.
            "CEMUX": "1 ",
            "CLKMUX": "CLK",
            "GSR": "DISABLED",
            "LSRMUX": "LSR",
            "REGSET": "RESET",
            "SRMODE": "LSR_OVER_CE",
        },
        "DI",
        "CLK",
        {"LSR": "0"},
        "LUT4",
        {"INIT": "0110011001100110"},
        ("A", "B", "C", "D"),
        "Z",
    ),
    "ice40": _Primitives(
        "SB_DFF",
        {},
        "D",
        "C",
        {},
        "SB_LUT4",
        {"LUT_INIT": "0110011001100110"},
        ("I0", "I1", "I2", "I3"),
        "O",
    ),
}


def add_frame(netlist: dict[str, Any], family: str) -> Frame:
    """Put a frame around the top module of a netlist, in place.

    Parameters
    ----------
    netlist : dict
        As Yosys' ``write_json`` wrote it, in the primitives of the family, with one clock ``clk``.
    family : {"ecp5", "ice40"}

    Raises
    ------
    ValueError
        If there is no input ``clk``.
    """
    module: Any = top_module(netlist)
    primitives = _FAMILIES[family]
    ports = module["ports"]
    if CLOCK not in ports or ports[CLOCK]["direction"] != "input":
        raise ValueError(
            f"Design must have an input {CLOCK!r} to be placed without constraints; its inputs are "
            + ", ".join(name for name, port in ports.items() if port["direction"] == "input")
        )
    (clock,) = ports[CLOCK]["bits"]
    inputs = [
        bit
        for name, port in ports.items()
        if port["direction"] == "input" and name != CLOCK
        for bit in port["bits"]
    ]
    outputs = [
        bit
        for port in ports.values()
        if port["direction"] == "output"
        for bit in port["bits"]
        if isinstance(bit, int)
    ]
    fresh = _fresh(module)
    cells = module["cells"]
    start = last = next(fresh)
    for index, bit in enumerate(inputs):
        cells[f"frame.input_{index}"] = _register(primitives, clock, last, bit)
        last = bit
    last = "0"
    for index, bit in enumerate(outputs):
        folded, kept = next(fresh), next(fresh)
        cells[f"frame.fold_{index}"] = _exclusive_or(primitives, bit, last, folded)
        cells[f"frame.output_{index}"] = _register(primitives, clock, folded, kept)
        last = kept
    module["ports"] = {
        CLOCK: ports[CLOCK],
        "frame_in": {"direction": "input", "bits": [start]},
        "frame_out": {"direction": "output", "bits": [last]},
    }
    return Frame(len(inputs), len(outputs))


def _fresh(module: Any) -> Iterator[int]:
    """Yield numbers of nets that the module does not have yet."""
    used = [bit for net in module["netnames"].values() for bit in net["bits"]]
    for cell in module["cells"].values():
        for bits in cell["connections"].values():
            used += bits
    number = max(bit for bit in used if isinstance(bit, int))
    while True:
        number += 1
        yield number


def _register(primitives: _Primitives, clock: int, source: int | str, target: int) -> Any:
    connections = {primitives.ff_clock: clock, primitives.ff_data: source}
    connections |= primitives.ff_constant
    return _cell(primitives.ff, primitives.ff_parameters, connections, "Q", target)


def _exclusive_or(primitives: _Primitives, a: int, b: int | str, target: int) -> Any:
    connections = dict(zip(primitives.lut_inputs, (a, b, "0", "0"), strict=True))
    return _cell(
        primitives.lut, primitives.lut_parameters, connections, primitives.lut_output, target
    )


def _cell(
    kind: str, parameters: dict[str, str], inputs: dict[str, Any], output: str, target: int
) -> Any:
    return {
        "hide_name": 0,
        "type": kind,
        "parameters": parameters,
        "attributes": {BLOCK: FRAME_BLOCK},
        "port_directions": dict.fromkeys(inputs, "input") | {output: "output"},
        "connections": {port: [bit] for port, bit in inputs.items()} | {output: [target]},
    }
