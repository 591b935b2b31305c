"""What bounds each layer: multiply-accumulates a cycle over those for each byte moved."""

from dataclasses import dataclass
from typing import Any

from haloconv.flow.sweep_report.chart import COLORS, SHAPES, SIZES, WIDTH
from haloconv.flow.sweep_report.points import Layer
from haloconv.planner.config import EngineConfig

__all__ = ["Dot", "layer_dot", "roof", "roofline_chart"]


@dataclass(frozen=True)
class Dot:
    """A layer in the roofline plot: MACs a byte, MACs a cycle, and what bounds it."""

    intensity: float
    rate: float
    bound: str


def layer_dot(layer: Layer, config: EngineConfig) -> Dot | None:
    """Return where a layer stands, None where it has no MACs or moves no bytes.

    Reads and writes have ports of their own, each ``bus_bytes`` wide, so the bytes that count are
    those of the busier one: the roof then holds exactly. ``bound`` is "lanes" right of the ridge,
    else "reads" or "writes".
    """
    busier = max(layer.read_bytes, layer.write_bytes)
    if not layer.macs or not busier or not layer.cycles:
        return None
    intensity = layer.macs / busier
    if intensity >= config.lanes / config.bus_bytes:
        bound = "lanes"
    else:
        bound = "reads" if layer.read_bytes >= layer.write_bytes else "writes"
    return Dot(intensity, layer.macs / layer.cycles, bound)


def roof(config: EngineConfig, dots: list[Dot]) -> list[tuple[float, float]]:
    """Return the roof as a line: rising with ``bus_bytes`` to the ridge, then flat at P.

    It reaches a little beyond the dots on both sides, so that both bounds show.
    """
    ridge = config.lanes / config.bus_bytes
    left = min([ridge, *(dot.intensity for dot in dots)]) / 2
    right = max([ridge, *(dot.intensity for dot in dots)]) * 2
    return [(left, left * config.bus_bytes), (ridge, config.lanes), (right, config.lanes)]


def roofline_chart() -> dict[str, Any]:
    """Return the roofline plot of a point and workload, both axes logarithmic.

    Its data come by name: ``roof`` with x, y, and ``layers`` with name, x, y, bound, cycles.
    Parameters of the specification: ``chosen`` is the index of a ringed layer, ``across`` and
    ``up`` are the ends of the axes.
    """
    bounds = ["lanes", "reads", "writes"]
    scales = {
        "x": {
            "field": "x",
            "type": "quantitative",
            "scale": {"type": "log", "nice": False, "domain": {"expr": "across"}},
            "title": "MACs for each byte on the busier port",
            "axis": {"format": ",~g", "labelOverlap": True, "tickCount": 6, "grid": False},
        },
        "y": {
            "field": "y",
            "type": "quantitative",
            "scale": {"type": "log", "nice": False, "domain": {"expr": "up"}},
            "title": "MACs a cycle",
            "axis": {"format": ",~g", "labelOverlap": True, "tickCount": 6, "grid": False},
        },
    }
    legend = {"title": "Bound by", "orient": "top", "symbolSize": 80}
    return {
        "width": WIDTH,
        "height": 300,
        "config": SIZES,
        "datasets": {"roof": [], "layers": []},
        "data": {"name": "layers"},
        "params": [
            {"name": "chosen", "value": None},
            {"name": "across", "value": [0.1, 100]},
            {"name": "up", "value": [0.1, 100]},
        ],
        "layer": [
            {
                "data": {"name": "roof"},
                "mark": {"type": "line", "strokeWidth": 2, "style": "front", "aria": False},
                "encoding": scales,
            },
            {
                "transform": [{"filter": "datum.index === chosen"}],
                "mark": {
                    "type": "point",
                    "shape": "circle",
                    "filled": False,
                    "size": 380,
                    "strokeWidth": 2.5,
                    "opacity": 1,
                    "style": "ring",
                    "aria": False,
                },
                "encoding": scales,
            },
            {
                "name": "dots",
                "mark": {
                    "type": "point",
                    "filled": True,
                    "size": 80,
                    "opacity": 0.85,
                    "cursor": "pointer",
                },
                "encoding": scales
                | {
                    "color": {
                        "field": "bound",
                        "type": "nominal",
                        "scale": {"domain": bounds, "range": list(COLORS[:3])},
                        "legend": legend,
                    },
                    "shape": {
                        "field": "bound",
                        "type": "nominal",
                        "scale": {"domain": bounds, "range": list(SHAPES[:3])},
                        "legend": legend,
                    },
                    "description": {"field": "name"},
                    "tooltip": [
                        {"field": "name", "title": "Layer"},
                        {"field": "y", "title": "MACs a cycle", "format": ",.2f"},
                        {"field": "x", "title": "MACs a byte", "format": ",.2f"},
                        {"field": "cycles", "title": "Cycles", "format": ","},
                        {"field": "bound", "title": "Bound by"},
                    ],
                },
            },
        ],
    }
