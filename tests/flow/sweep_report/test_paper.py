"""Plots for papers: complete, the same each time, and of printable size."""

import struct
from typing import Any
from xml.etree import ElementTree

import pytest

from haloconv.flow.sweep_report.chart import pareto_chart
from haloconv.flow.sweep_report.paper import png_of, svg_of
from haloconv.flow.sweep_report.pareto import area_axes, rate_axes
from haloconv.flow.sweep_report.points import Sweep

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def chart(sweep: Sweep) -> dict[str, Any]:
    return pareto_chart(sweep, "separable", area_axes(sweep)[0], rate_axes(sweep)[1])


def test_svg(chart: dict[str, Any]) -> None:
    svg = svg_of(chart, "A title <&>", "what it is")
    root = ElementTree.fromstring(svg)
    texts = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
    for text in (
        "A title <&>",
        "what it is",
        "LUT4 (a CCU2C counts as two)",
        "Frames a second, at Fmax, else at 100 MHz",
        "Lanes (output x split)",
        "2x2",
        "16x8",
        "10,000",
    ):
        assert text in texts, texts
    dots = [
        group for group in root.iter(f"{SVG}g") if "dots_marks" in group.get("class", "").split()
    ]
    assert len(dots) == 1
    assert len(list(dots[0])) == len(chart["datasets"]["points"])
    # Nothing is loaded from elsewhere.
    assert not list(root.iter(f"{SVG}image"))


def test_svg_is_the_same_again(chart: dict[str, Any]) -> None:
    # With clipped marks it would not be: the library numbers their paths as it goes.
    assert svg_of(chart, "T", "s") == svg_of(chart, "T", "s")


def test_png(chart: dict[str, Any]) -> None:
    png = png_of(chart, "T", "s")
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    # 300 dots an inch at 6 inches at least.
    assert width >= 1800 and height >= 1000
