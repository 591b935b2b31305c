"""Tables of area and clock."""

import pytest
from rich.console import Console, RenderableType

from haloconv.flow.area_report import area_sheet, placement_sheet
from haloconv.flow.place_route import CriticalPath, PathStage, PlacementResult, PlacementRun
from haloconv.flow.synthesis import Area, MappedDesign


def shown(sheet: RenderableType) -> str:
    console = Console(width=140, record=True, markup=False, highlight=False)
    with console.capture() as capture:
        console.print(sheet)
    return capture.get()


def mapped(family: str) -> MappedDesign:
    blocks = {
        "a": Area(luts=10, carries=4, ffs=1000),
        "a.b": Area(luts=1500, dsps=4, block_rams=2),
    }
    return MappedDesign(
        family=family,
        area=sum(blocks.values(), Area()),
        cells={},
        blocks=blocks,
        tool="pyosys 1.2",
        seconds=3.25,
        netlist=None,
    )


def test_area_by_block() -> None:
    lines = shown(area_sheet(mapped("ecp5"))).splitlines()
    rows = [line.split() for line in lines if line.strip()]
    assert rows[0][:2] == ["block", "LUTs"] and "LUT4" in rows[0]
    numbers = [row for row in rows if row[0] in ("a", "a.b", "total")]
    assert numbers == [
        ["a.b", "1,500", "0", "0", "0", "4", "2", "0", "1,500"],
        ["a", "10", "4", "1,000", "0", "0", "0", "0", "18"],
        ["total", "1,510", "4", "1,000", "0", "4", "2", "0", "1,518"],
    ]
    assert "ecp5, pyosys 1.2, 3.2 s" in lines[-1] or "3.3 s" in lines[-1]


def test_carries_are_not_added_where_they_take_no_luts() -> None:
    assert "LUT4 + 2 carries" not in shown(area_sheet(mapped("xilinx")))


def result(*clocks: float) -> PlacementResult:
    path = CriticalPath("x_FF", "y_FF", (PathStage("a", 0.5, 1.25, 1), PathStage("b", 2.0, 3.0, 7)))
    runs = tuple(
        PlacementRun(seed, clock, "clk", path, {"TRELLIS_FF": (1234, 83640)})
        for seed, clock in enumerate(clocks, 1)
    )
    return PlacementResult(
        device="LFE5U-85F",
        package="CABGA381",
        speed="6",
        frequency=100.0,
        runs=runs,
        frame=None,
        bitstream=None,
        tool="nextpnr 0.11",
        seconds=12.0,
    )


def test_placement() -> None:
    text = shown(placement_sheet(result(90.0, 110.0, 100.5)))
    assert "LFE5U-85F CABGA381 speed 6: 100.5 MHz, median of 3 seeds, target 100 MHz" in text
    assert "critical path of seed 3: x_FF to y_FF" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["1", "90.0", "6.75", "a", ">", "b"] in rows
    assert ["b", "7", "2.00", "3.00", "5.00"] in rows
    assert ["TRELLIS_FF", "1,234", "83,640", "1.5", "%"] in rows


@pytest.mark.parametrize(
    ("clocks", "median"), [((90.0,), 90.0), ((90.0, 110.0), 100.0), ((3.0, 1.0, 2.0), 2.0)]
)
def test_median(clocks: tuple[float, ...], median: float) -> None:
    placed = result(*clocks)
    assert placed.fmax_mhz == median
    assert placed.median_run.fmax_mhz <= median
    assert placed.to_dict()["fmax_mhz"] == median
