"""Attribution of cells to blocks, on a netlist made by hand."""

import re
from collections import Counter
from typing import Any

import pytest

from haloconv.flow.synthesis.blocks import attribute_blocks, block_cells, top_module


def gate(inputs: list[int], output: int, kind: str = "LUT4", **attributes: str) -> dict[str, Any]:
    return {
        "type": kind,
        "attributes": attributes,
        "port_directions": {"A": "input", "Z": "output"},
        "connections": {"A": inputs, "Z": [output]},
    }


def scope() -> dict[str, Any]:
    return {"type": "$scopeinfo", "attributes": {}, "port_directions": {}, "connections": {}}


def net(*bits: int | str, driver: str | None = None) -> dict[str, Any]:
    return {"bits": list(bits), "attributes": {} if driver is None else {"haloconv_driver": driver}}


def attributed(cells: dict[str, Any], nets: dict[str, Any]) -> dict[str, str]:
    module = {"cells": cells, "netnames": nets}
    attribute_blocks(module)
    return {name: cell["attributes"]["haloconv_block"] for name, cell in module["cells"].items()}


def test_marks_go_before_names() -> None:
    source = "block:a.b|/share/cells_map.v:3.1-4.5"
    blocks = attributed(
        {
            "a": scope(),
            "c": scope(),
            # Named after a net of another block.
            "c.x_FF_Q": gate([1], 2, "FF", src=source),
            "c.x_LUT": gate([2], 3),
        },
        {"c.x": net(2), "c.y": net(3, driver="c")},
    )
    assert blocks["c.x_FF_Q"] == "a.b"
    assert blocks["c.x_LUT"] == "c"


def test_shared_cells_belong_to_the_innermost() -> None:
    blocks = attributed({"x": gate([1], 2, src="block:top|block:a.b|block:a")}, {})
    assert blocks == {"x": "a.b"}


def test_memories_keep_their_name() -> None:
    blocks = attributed(
        {
            "a": scope(),
            "a.fifo$7": scope(),
            "a.fifo$7.storage.0.12": gate([1], 2, "DP16KD"),
            "r": gate([2], 3, "FF", src="block:a"),
        },
        {"a.out": net(2, driver="a")},
    )
    assert blocks["a.fifo$7.storage.0.12"] == "a.fifo"


def test_gates_between_gates_take_the_block_of_most_readers() -> None:
    blocks = attributed(
        {
            "g0": gate([9], 1),  # read by g1 and g2
            "g1": gate([1], 2),  # read by three registers
            "g2": gate([1], 3),  # read by one
            "r0": gate([2], 10, "FF", src="block:a"),
            "r1": gate([2], 11, "FF", src="block:b"),
            "r2": gate([2], 12, "FF", src="block:b"),
            "r3": gate([3], 13, "FF", src="block:a"),
            "unread": gate([9], 4),
        },
        {"g0_Z": net(1)},
    )
    assert blocks["g1"] == "b"
    assert blocks["g2"] == "a"
    assert blocks["g0"] == "a"  # one of each: the first by name
    assert blocks["unread"] == "top"


def test_gates_between_gates_take_the_block_of_what_they_read() -> None:
    """Two registers of a feed a gate that is read once, by b, through another gate."""
    blocks = attributed(
        {
            "r0": gate([9], 1, "FF", src="block:a"),
            "r1": gate([9], 2, "FF", src="block:a"),
            "g0": gate([1, 2], 3),
            "g1": gate([3], 4),
            "r2": gate([4], 5, "FF", src="block:b"),
        },
        {},
    )
    assert blocks["g0"] == "a"
    assert blocks["g1"] == "b"


def test_loops_of_gates_end() -> None:
    blocks = attributed(
        {
            "g0": gate([2], 1),
            "g1": gate([1], 2),
            "r": gate([2], 3, "FF", src="block:b"),
        },
        {},
    )
    assert set(blocks) == {"g0", "g1", "r"}
    assert blocks["g1"] == "b"


def test_cells_by_block_are_all_cells() -> None:
    cells = {
        "a": scope(),
        "x": gate([1], 2, "FF", src="block:a"),
        "y": gate([2], 3),
        "z": gate([3], 4, "FF", src="block:top"),
    }
    module = {"cells": cells, "netnames": {"m": net(3, driver="a"), "k": net("0", "x")}}
    attribute_blocks(module)
    assert block_cells(module) == {"a": Counter(FF=1, LUT4=1), "top": Counter(FF=1)}


def test_top_module() -> None:
    marked = {"attributes": {"top": "00000000000000000000000000000001"}}
    assert top_module({"modules": {"a": {"attributes": {}}, "b": marked}}) is marked
    with pytest.raises(ValueError, match=re.escape("must have a module that is marked as top")):
        top_module({"modules": {"a": {"attributes": {}}}})
