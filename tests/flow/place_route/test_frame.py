"""The frame of registers around a bare design."""

import re
from typing import Any

import pytest

from haloconv.flow.place_route.frame import Frame, add_frame


def design() -> dict[str, Any]:
    """Return y = a, z = register of b[1]; b[0] is unused and q[1] constant."""
    register = {
        "type": "TRELLIS_FF",
        "attributes": {},
        "port_directions": {"CLK": "input", "DI": "input", "Q": "output"},
        "connections": {"CLK": [2], "DI": [5], "Q": [6]},
    }
    module = {
        "attributes": {"top": "1"},
        "ports": {
            "clk": {"direction": "input", "bits": [2]},
            "a": {"direction": "input", "bits": [3]},
            "b": {"direction": "input", "bits": [4, 5]},
            "y": {"direction": "output", "bits": [3]},
            "q": {"direction": "output", "bits": [6, "1"]},
        },
        "cells": {"z": register},
        "netnames": {"y": {"bits": [3], "attributes": {}}, "q": {"bits": [6, "1"]}},
    }
    return {"modules": {"top": module}}


def evaluate(module: dict[str, Any], cycles: list[int]) -> list[int]:
    """Run a netlist of ecp5 registers and LUTs on ``frame_in``, return ``frame_out``."""
    values: dict[Any, int] = {"0": 0, "1": 1}
    cells = module["cells"].values()
    registers = [cell for cell in cells if cell["type"] == "TRELLIS_FF"]
    luts = [cell for cell in cells if cell["type"] == "LUT4"]
    assert len(registers) + len(luts) == len(cells)
    for cell in registers:
        assert cell["connections"]["CLK"] == module["ports"]["clk"]["bits"]
        values[cell["connections"]["Q"][0]] = 0
    (first,), (last,) = (module["ports"][name]["bits"] for name in ("frame_in", "frame_out"))
    seen = []
    for level in cycles:
        values[first] = level
        for cell in luts:
            index = sum(
                values[cell["connections"][port][0]] << place for place, port in enumerate("ABCD")
            )
            values[cell["connections"]["Z"][0]] = int(cell["parameters"]["INIT"][15 - index])
        seen.append(values[last])
        new = [values[cell["connections"]["DI"][0]] for cell in registers]
        for cell, value in zip(registers, new, strict=True):
            values[cell["connections"]["Q"][0]] = value
    return seen


def test_every_port_reaches_the_frame() -> None:
    netlist = design()
    assert add_frame(netlist, "ecp5") == Frame(inputs=3, outputs=2)
    module = netlist["modules"]["top"]
    assert set(module["ports"]) == {"clk", "frame_in", "frame_out"}
    # A pulse goes through a, b[0], b[1]. Output y is a, and follows a pulse after the first chain
    # register, with y and q[0] as the two registers of the second chain; q[0] comes out last.
    pulse = [1] + [0] * 9
    seen = evaluate(module, pulse)
    expected = [0] * 10
    expected[1 + 2] ^= 1  # a, folded into the first output register, then passed by the second
    expected[3 + 1 + 1] ^= 1  # b[1], the design's register, the second output register
    assert seen == expected


def test_frame_cells_are_told_apart() -> None:
    netlist = design()
    add_frame(netlist, "ecp5")
    cells = netlist["modules"]["top"]["cells"]
    frame = {name for name, cell in cells.items() if name != "z"}
    assert len(frame) == 3 + 2 * 2
    assert {cells[name]["attributes"]["haloconv_block"] for name in frame} == {"frame"}


def test_a_clock_is_needed() -> None:
    netlist = design()
    ports = netlist["modules"]["top"]["ports"]
    ports["clock"] = ports.pop("clk")
    with pytest.raises(ValueError, match=re.escape("must have an input 'clk' to be placed")):
        add_frame(netlist, "ecp5")
