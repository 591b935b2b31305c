"""What is read from nextpnr's report."""

import pytest

from haloconv.flow.place_route.report import (
    CriticalPath,
    PathStage,
    block_of_cell,
    critical_path,
    slowest_clock,
)

BLOCKS = {"a.x_FF_Q": "a", "g_LUT4_Z": "b", "g_CCU2C": "b", "y_FF_Q": "top"}


def step(kind: str, delay: float, source: str, sink: str) -> dict[str, object]:
    return {"type": kind, "delay": delay, "from": {"cell": source}, "to": {"cell": sink}}


REPORT = {
    "fmax": {
        "fast": {"achieved": 90.0, "constraint": 50.0},
        "slow": {"achieved": 95.0, "constraint": 100.0},
    },
    "critical_paths": [
        {"from": "posedge fast", "to": "posedge fast", "path": []},
        {"from": "<async>", "to": "posedge slow", "path": []},
        {
            "from": "posedge slow",
            "to": "posedge slow",
            "path": [
                step("clk-to-q", 0.5, "a.x_FF_Q", "a.x_FF_Q"),
                step("routing", 1.0, "a.x_FF_Q", "g_LUT4_Z"),
                step("logic", 0.25, "g_LUT4_Z", "g_LUT4_Z"),
                step("routing", 0.75, "g_LUT4_Z", "g_CCU2C$CCU2_COMB0"),
                step("logic", 0.5, "g_CCU2C$CCU2_COMB0", "g_CCU2C$CCU2_COMB0"),
                step("routing", 2.0, "g_CCU2C$CCU2_COMB0", "y_FF_Q"),
                step("setup", 0.125, "y_FF_Q", "y_FF_Q"),
            ],
        },
    ],
}


def test_the_clock_that_misses_its_target_counts() -> None:
    assert slowest_clock(REPORT) == ("slow", 95.0)
    with pytest.raises(ValueError, match="must have a clocked register"):
        slowest_clock({"fmax": {}})


def test_path_by_block() -> None:
    path = critical_path(REPORT, "slow", BLOCKS)
    assert path == CriticalPath(
        "a.x_FF_Q",
        "y_FF_Q",
        (
            PathStage("a", 0.5, 1.0, 1),
            PathStage("b", 0.75, 2.75, 2),
            PathStage("top", 0.125, 0.0, 1),
        ),
    )
    assert path is not None
    assert path.delay_ns == 5.125
    assert critical_path(REPORT, "other", BLOCKS) is None


def test_names_that_packing_made() -> None:
    assert block_of_cell("g_LUT4_Z_LC", BLOCKS) == "b"
    assert block_of_cell("a.x_FF_Q_DFFLC", BLOCKS) == "a"
    assert block_of_cell("$PACKER_VCC", BLOCKS) == "top"
