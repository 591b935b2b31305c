"""SPACE.toml: what it means and what is refused."""

import re
from pathlib import Path

import pytest

from haloconv.flow.sweep.space import SpaceError, read_space
from haloconv.planner.tile import Tile

ROOT = Path(__file__).parents[3]
GRID = '[grid]\nlanes = ["4x4"]\n'


def read(folder: Path, text: str):
    path = folder / "space.toml"
    path.write_text(text)
    return read_space(path)


def test_the_grid_is_a_product_in_order(tmp_path: Path) -> None:
    space = read(
        tmp_path,
        """
[engine]
weight_zero_points = false
[grid]
lanes = ["2x4", "8x8"]
input_bytes = [512, "4k"]
roundings = ["double", "double,fp32", ["away"], "none"]
""",
    )
    found = [tuple(point.parameters.values()) for point in space.points]
    roundings = [("double",), ("double", "fp32"), ("away",), ()]
    assert found == [
        (False, pm, pr, size, names)
        for pm, pr in ((2, 4), (8, 8))
        for size in (512, 4096)
        for names in roundings
    ]
    assert (space.family, space.clock_mhz, space.latency, space.fmax) == ("ecp5", 100, 16, None)


def test_points_and_exclusions(tmp_path: Path) -> None:
    space = read(
        tmp_path,
        """
[[grid]]
lanes = ["2x2", "4x4"]
requant_lanes = [1, 2, 4]
[[grid]]
lanes = ["1x1"]
[[exclude]]
lanes = "2x2"
requant_lanes = [2, 4]
[[exclude]]
requant_lanes = 1
out_lanes = 4
[[points]]
lanes = "4x4"
requant_lanes = 1
[[points]]
lanes = "4x4"
requant_lanes = 2
""",
    )
    found = [(p.parameters["out_lanes"], p.parameters.get("requant_lanes")) for p in space.points]
    # What is excluded from the grid may be a point; what is in the grid already is not repeated.
    assert found == [(2, 1), (4, 2), (4, 4), (1, None), (4, 1)]


def test_tiles_size_buffers_only_where_nothing_else_does(tmp_path: Path) -> None:
    space = read(
        tmp_path,
        """
[engine]
tile = "4x8x16->32"
[[points]]
[[points]]
weight_bytes = "8k"
[[points]]
budget_bytes = "1M"
[workloads]
one = { layer = "8x8x3 k3 m8" }
""",
    )
    assert [point.sizes_to_tile for point in space.points] == [True, False, False]
    assert all(point.tile == Tile(4, 8, 16, 32) for point in space.points)
    assert space.points[2].budget_bytes == 1 << 20
    assert space.size_for == ("one",)


def test_seeds(tmp_path: Path) -> None:
    space = read(tmp_path, GRID + '[fmax]\ndevice = "LFE5U-45F"\nseeds = 2\n')
    assert space.fmax is not None
    assert (space.fmax.seeds, space.fmax.package, space.fmax.speed) == ((1, 2), "CABGA381", "6")
    space = read(tmp_path, GRID + '[fmax]\ndevice = "LFE5U-45F"\nseeds = [7, 3]\n')
    assert space.fmax is not None and space.fmax.seeds == (7, 3)


@pytest.mark.parametrize("name", ["pareto", "smallest"])
def test_examples(name: str) -> None:
    space = read_space(ROOT / "examples" / "sweep" / f"{name}.toml")
    assert len(space.points) == {"pareto": 30, "smallest": 2}[name]
    assert space.workloads


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the space has no points; add a table grid or points"),
        (
            '[[grid]]\nlanes = ["2x2"]\n[[exclude]]\nlanes = "2x2"',
            "the space has no points; exclude leaves none of them",
        ),
        (
            '[[grid]]\nlanes = ["2x2"]\n[fmax]\ndevice = "LFE5U-25F"\nspeed = 5',
            "fmax: Speed of LFE5U-25F must be one of 6, 7, 8, not '5'",
        ),
        ("points = 3", r"points must be an array of tables \[\[points\]\], not 3"),
        ("[grid", "must be TOML, but:"),
        ('famili = "ecp5"\n' + GRID, "'famili' is no key of the space; known are family, "),
        ('family = "virtex"\n' + GRID, "family must be one of ecp5, .*, not 'virtex'"),
        ("clock_mhz = 0\n" + GRID, "clock_mhz must be a number above 0, not 0"),
        ("clock_mhz = true\n" + GRID, "clock_mhz must be a number above 0, not True"),
        ("latency = 0\n" + GRID, "latency must be an integer of at least 1, not 0"),
        ('objective = "area"\n' + GRID, "objective must be one of cycles, .*, not 'area'"),
        ('size_for = ["x"]\n' + GRID, r"size_for must be a list of workloads .* \(none\)"),
        ('[grid]\nlane = ["4x4"]', "'lane' is no key of grid; known are lanes, "),
        ('[grid]\nlanes = "4x4"', "lanes of grid must be a list of values, not '4x4'"),
        ('[grid]\nlanes = ["4"]', "lanes must be output by split lanes such as '8x8', not '4'"),
        ("[[points]]\nbus_bytes = 3", "bus_bytes must be a power of two, not 3 .*exclude it"),
        ('[[points]]\ninput_bytes = "much"', "input_bytes must be a number of bytes .* not 'much'"),
        ('[[points]]\nroundings = "up"', "roundings must be of double, .*, or 'none', not 'up'"),
        ("[[points]]\nweight_zero_points = 1", "weight_zero_points must be true or false, not 1"),
        ('[[points]]\ntile = "4x4"', "tile must be rows x columns x .* such as '8x8x16->32'"),
        ('[[points]]\ntile = "4x4x0->1"', "tile must be .* not '4x4x0->1'"),
        ('[[points]]\nlanes = "2x2"\nrequant_lanes = 4', "requant_lanes must be at most 2, not 4"),
        ('[[points]]\nlanes = "2x2"\nout_lanes = 2', "points must have lanes, or out_lanes and"),
        ("[[points]]\nbudget_bytes = 9\ninput_bytes = 9", "budget_bytes and input_bytes exclude"),
        ("[[points]]\nbudget_bytes = 9000", "budget_bytes needs workloads to size the buffers for"),
        ('[[points]]\ntile = "1x1x1->1"', "tile needs workloads to size the buffers for"),
        ("[[exclude]]\n" + GRID, "exclude must name at least one key"),
        (GRID + "[fmax]", "fmax: Device must be one of LFE5U-12F, .*, not ''"),
        (GRID + '[fmax]\ndevice = "iCE40UP5K"', "device must be one of family ecp5, not 'iCE40UP5"),
        (
            GRID + '[fmax]\ndevice = "LFE5U-12F"\nseeds = []',
            "seeds must be a number or a list of",
        ),
        (GRID + '[fmax]\ndevice = "LFE5U-12F"\nseed = 1', "'seed' is no key of fmax"),
        (
            'family = "gowin"\n' + GRID + '[fmax]\ndevice = "x"',
            "fmax is measured for ecp5 and ice40",
        ),
        (GRID + "[workloads]\na = 3", "workload a must be a file or a table, not 3"),
        (GRID + "[workloads]\na = {}", "workload a must have one of file, layer and layers"),
        (GRID + '[workloads]\na = "no.json"', "the file of workload a must exist, but .*no.json"),
        (GRID + "[workloads]\na = { layers = [] }", "workload a must have at least one layer"),
        (GRID + '[workloads]\na = { layer = "1x1x1 m1", target = "x" }', "target of workload a"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpaceError, match=message) as caught:
        read(tmp_path, text)
    assert str(tmp_path / "space.toml") in str(caught.value)
    assert not re.search(r"\n", str(caught.value))
