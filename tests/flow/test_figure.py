"""The figures are well-formed and show the numbers of their plan."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from haloconv.flow.figure import curve_figure, plan_figure, tile_figure
from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import plan_layer

SVG = "{http://www.w3.org/2000/svg}"
LAYERS = {
    "dense": ConvLayer(32, 32, 16, 32, (3, 3), pads=(1, 1, 1, 1)),
    "strided": ConvLayer(14, 60, 16, 24, (5, 3), stride=(2, 2), pads=(2, 2, 1, 1)),
    "gaps": ConvLayer(40, 40, 8, 8, (1, 1), stride=(3, 3)),
    "depthwise": ConvLayer(24, 24, 32, 32, (3, 3), pads=(1, 1, 1, 1), groups=32),
    "padded": ConvLayer(3, 3, 4, 8, (3, 3), pads=(9, 2, 0, 7)),
    "point": ConvLayer(1, 1, 640, 10, (1, 1)),
    "tall": ConvLayer(400, 3, 4, 8, (3, 3), pads=(1, 1, 1, 1)),
}


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def check_inside(svg: str) -> None:
    """Every box and every text anchor lies on the canvas."""
    root = ElementTree.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for element in root.iter():
        if element.tag not in (f"{SVG}rect", f"{SVG}text"):
            continue
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        assert -0.1 <= x <= width, ElementTree.tostring(element)
        assert -0.1 <= y <= height, ElementTree.tostring(element)
        assert x + float(element.get("width", 0)) <= width + 0.1, ElementTree.tostring(element)
        assert y + float(element.get("height", 0)) <= height + 0.1, ElementTree.tostring(element)


@pytest.mark.parametrize("name", LAYERS)
def test_plan_figure(name: str) -> None:
    layer = LAYERS[name]
    plan = plan_layer(layer, EngineConfig())
    svg = plan_figure(plan, name)
    check_inside(svg)
    words = texts(svg)
    assert words[0].startswith(f"{name}: {layer.in_height}x{layer.in_width}x{layer.in_channels} ")
    assert any(f"{plan.cycles:,} cycles" in text for text in words)
    assert any(f"{plan.moved_bytes.total:,} bytes moved" in text for text in words)
    assert "Storage: budget 32,768 bytes" in words
    rows = -(-layer.out_height // plan.tile.height)
    columns = -(-layer.out_width // plan.tile.width)
    assert any(text.endswith(f": {rows}x{columns} tiles") for text in words)
    assert plan_figure(plan, name) == svg


@pytest.mark.parametrize("name", LAYERS)
def test_tile_figure_is_the_plan_without_its_schedule(name: str) -> None:
    plan = plan_layer(LAYERS[name], EngineConfig())
    whole, part = texts(plan_figure(plan)), texts(tile_figure(plan))
    check_inside(tile_figure(plan))
    assert part[0] == whole[0]
    assert whole[1].startswith(f"{part[1]}: ")
    timeline = next(index for index, text in enumerate(whole) if text.startswith("Timeline: "))
    assert part[2:] == whole[2:timeline]
    # A fresh plan stays without its schedule.
    fresh = replace(plan)
    tile_figure(fresh)
    assert "schedule" not in vars(fresh)


def test_storage_bar_is_to_scale() -> None:
    plan = plan_layer(LAYERS["dense"], EngineConfig())
    root = ElementTree.fromstring(plan_figure(plan))
    widths: dict[str, float] = {}
    for rectangle in root.iter(f"{SVG}rect"):
        title = rectangle.find(f"{SVG}title")
        if title is not None and title.text and re.search(r": \d+ of \d+ bytes", title.text):
            widths[title.text] = float(rectangle.attrib["width"])
    built = {text: int(re.findall(r"of (\d+) bytes", text)[0]) for text in widths}
    assert sum(built.values()) == 32768
    for text, width in widths.items():
        assert width / sum(widths.values()) == pytest.approx(built[text] / 32768, abs=1e-3)


def test_timeline_shows_each_tile_to_scale() -> None:
    plan = plan_layer(LAYERS["strided"], EngineConfig(input_bytes=1024))
    tiles = plan.schedule.tiles
    assert len(tiles) > 1
    root = ElementTree.fromstring(plan_figure(plan))
    bars = {
        title.text: float(rectangle.attrib["width"])
        for rectangle in root.iter(f"{SVG}rect")
        if (title := rectangle.find(f"{SVG}title")) is not None
        and (title.text or "").startswith("tile ")
    }
    cycles = {}
    for text in bars:
        begin, end = re.findall(r"(\d+) to (\d+)", text or "")[0]
        cycles[text] = int(end) - int(begin)
    first = f"tile 0: compute {tiles[0].compute_start} to {tiles[0].compute_end}"
    assert first in bars
    scale = bars[first] / cycles[first]
    for text, width in bars.items():
        assert width == pytest.approx(
            max(cycles[text] * scale, 1.0), abs=0.02 + 0.01 * cycles[text] * scale
        )


def test_names_are_escaped() -> None:
    plan = plan_layer(LAYERS["point"], EngineConfig())
    assert texts(plan_figure(plan, "a<b>&c"))[0].startswith("a<b>&c: ")


def test_curve_figure() -> None:
    svg = curve_figure(
        "Title", "what it is", "tile", [1, 2, 4], [("least", [24] * 3), ("model", [40, 24, 24])], 2
    )
    check_inside(svg)
    words = texts(svg)
    assert "least: 24 bytes at t = 2" in words
    assert "model: 24 bytes at t = 2" in words
    assert svg.count("stroke-linejoin") == 2


def test_curve_of_one_point() -> None:
    check_inside(curve_figure("T", "s", "tile", [1], [("least", [3]), ("model", [3])], 1))
