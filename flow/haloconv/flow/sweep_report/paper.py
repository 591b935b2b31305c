"""Plots for papers: SVG and PNG, without a browser."""

from typing import Any

__all__ = ["PAPER", "png_of", "svg_of"]

PAPER: dict[str, Any] = {
    "background": "white",
    # The exporter brings this font along; Arial and Helvetica are as wide.
    "font": "Liberation Sans, Arial, Helvetica, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "domainColor": "#1d2733",
        "tickColor": "#1d2733",
        "gridColor": "#e3e6ea",
        "labelColor": "#1d2733",
        "titleColor": "#1d2733",
    },
    "legend": {"labelColor": "#1d2733", "titleColor": "#1d2733"},
    "title": {"color": "#1d2733", "subtitleColor": "#5b6672"},
    "style": {
        "front": {"color": "#5b6672"},
        "tag": {"color": "#1d2733"},
        "ring": {"color": "#1d2733"},
    },
}
"""Colours and font for papers; the page brings its own."""


def svg_of(chart: dict[str, Any], title: str, subtitle: str) -> str:
    """Return a chart for papers as SVG text, the same for the same chart.

    That holds as long as nothing is clipped: the library numbers its clip paths through the life of
    the process.
    """
    import vl_convert

    svg = vl_convert.vegalite_to_svg(_titled(chart, title, subtitle), config=PAPER)
    return svg.rstrip() + "\n"


def png_of(chart: dict[str, Any], title: str, subtitle: str) -> bytes:
    """Return a chart for papers as a PNG: 300 dots an inch where it is printed 7 inches wide."""
    import vl_convert

    return vl_convert.vegalite_to_png(_titled(chart, title, subtitle), config=PAPER, scale=3)


def _titled(chart: dict[str, Any], title: str, subtitle: str) -> dict[str, Any]:
    return chart | {"title": {"text": title, "subtitle": subtitle}}
