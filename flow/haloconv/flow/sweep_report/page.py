"""The report as one HTML page that needs no network."""

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Callable, Sequence
from importlib import resources
from string import Template
from typing import Any

from haloconv.flow.report import tile_words
from haloconv.flow.source import layer_words
from haloconv.flow.sweep_report.blocks import Block, block_tree
from haloconv.flow.sweep_report.chart import pareto_chart
from haloconv.flow.sweep_report.labels import (
    Parameter,
    engine_words,
    parameter_value,
    telling_parameters,
    varying_parameters,
)
from haloconv.flow.sweep_report.pareto import Axis, area_axes, rate_axes
from haloconv.flow.sweep_report.points import RESOURCES, Layer, Point, Sweep, Workload
from haloconv.flow.sweep_report.roofline import layer_dot, roof, roofline_chart
from haloconv.planner.config import EngineConfig
from haloconv.planner.plan import Plan
from haloconv.planner.version import __version__

__all__ = ["FAMILY_NAMES", "MAX_PICTURES", "build_page", "page_content"]

FAMILY_NAMES = {
    "ecp5": "ECP5",
    "ice40": "iCE40",
    "xilinx": "7 series",
    "gowin": "Gowin",
    "nexus": "Nexus",
}
SCRIPTS = ("format.js", "plots.js", "table.js", "details.js", "app.js")
"""Joined in this order to one module; a page cannot import its own parts from a file."""

MAX_PICTURES = 4000
"""Tile pictures in a page, each about 10 kB before packing; those of engines on a Pareto front
come first."""

RESOURCE_LABELS = {
    "lut4": "LUT4",
    "luts": "LUTs",
    "ffs": "Flip-flops",
    "carries": "Carries",
    "lut_rams": "LUT RAMs",
    "dsps": "DSPs",
    "block_rams": "Block RAMs",
    "large_rams": "Large RAMs",
}
LIBRARIES = (
    "Vega, Vega-Lite and Vega-Embed: Copyright (c) 2013-2025 University of Washington Interactive "
    "Data Lab and others, BSD-3-Clause, https://github.com/vega. Parts of D3: Copyright Mike "
    "Bostock, ISC, https://github.com/d3."
)


def build_page(sweep: Sweep, title: str, step: Callable[[str], None] = lambda text: None) -> str:
    """Return the report of a sweep as HTML: the same text for the same sweep.

    Scripts are allowed by their digest and requests not at all (Content-Security-Policy), so that
    no text of a sweep can become code and nothing leaves the page. The results lie compressed in
    it: the tile pictures alone are many times its size.

    Parameters
    ----------
    sweep : Sweep
    title : str
    step : callable
        Told what is being done.
    """
    import vl_convert

    content = page_content(sweep, title, step)
    step("packing the page")
    packed = gzip.compress(
        json.dumps(content, separators=(",", ":"), allow_nan=False).encode(), mtime=0
    )
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    program = "\n".join(_asset(name) for name in SCRIPTS)
    for script in (library, program):
        if "</script" in script.lower():
            raise ValueError("a script of the page must not hold its own end tag")
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (library, program)
    )
    return Template(_asset("page.html")).substitute(
        title=html.escape(title),
        generator=html.escape(f"haloconv {__version__}"),
        hashes=hashes,
        style=_asset("page.css"),
        libraries=LIBRARIES,
        library=library,
        program=program,
        content=base64.b64encode(packed).decode(),
    )


def _asset(name: str) -> str:
    folder = resources.files("haloconv.flow.sweep_report").joinpath("assets")
    return folder.joinpath(name).read_text(encoding="utf-8")


def page_content(
    sweep: Sweep, title: str, step: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Return what the page shows, as plain JSON types."""
    areas, rates = area_axes(sweep), rate_axes(sweep)
    parameters, telling = varying_parameters(sweep), telling_parameters(sweep)
    plots = {
        workload: {
            x.key: {y.key: pareto_chart(sweep, workload, x, y) for y in rates} for x in areas
        }
        for workload in sweep.workloads
    }
    # The fronts in the order in which a reader meets them.
    fronts = [
        row["id"]
        for x in areas
        for by_area in plots.values()
        for chart in by_area[x.key].values()
        for row in chart["datasets"]["points"]
        if row["front"] == "yes"
    ]
    place = {identity: at for at, identity in enumerate(dict.fromkeys(fronts))}
    figures: dict[str, int] = {}
    records: dict[int, dict[str, Any]] = {}
    for point in sorted(sweep.points, key=lambda point: place.get(point.id, len(place))):
        step(f"drawing the tiles of point {len(records) + 1} of {len(sweep.points)}")
        words = engine_words(point, telling)
        records[point.number] = _point_record(point, words, parameters, figures)
    return {
        "title": title,
        "family": FAMILY_NAMES.get(sweep.family, sweep.family),
        "clock_mhz": sweep.clock_mhz,
        "missing": sweep.missing,
        "areas": [{"key": axis.key, "label": axis.label} for axis in areas],
        "rates": [{"key": axis.key, "label": axis.label} for axis in rates],
        "workloads": list(sweep.workloads),
        "columns": _columns(areas, parameters, sweep),
        "resources": _resources(sweep),
        "points": [records[point.number] for point in sweep.points],
        "plots": plots,
        "roofline": roofline_chart(),
        "figures": list(figures),
    }


def _columns(
    areas: Sequence[Axis], parameters: Sequence[Parameter], sweep: Sweep
) -> list[dict[str, Any]]:
    """Return the table's columns; ``of`` is what their values belong to: point or run."""

    def column(key: str, label: str, unit: str = "", digits: int = 0, of: str = "point") -> Any:
        return {"key": key, "label": label, "unit": unit, "digits": digits, "of": of}

    found = [
        column("number", "Point"),
        column("lanes", "Lanes"),
        column("budget_bytes", "Buffers", "B"),
    ]
    found += [column(entry.key, entry.label, entry.unit) for entry in parameters]
    found += [column(axis.key, axis.label) for axis in areas if axis.key != "budget_bytes"]
    if any(point.fmax_mhz is not None for point in sweep.points):
        found.append(column("fmax_mhz", "Fmax", "MHz", 1))
    if sweep.workloads:
        found += [
            column("cycles", "Cycles", of="run"),
            column("moved_bytes", "Moved", "B", of="run"),
            column("utilisation", "Lanes used", "%", 1, of="run"),
            column("fps", "Frames", "1/s", 2, of="run"),
            column("front", "Front", of="plot"),
        ]
    return [*found, column("status", "Status")]


def _resources(sweep: Sweep) -> list[dict[str, str]]:
    """Return what areas by block are shown of: what any point has at all."""
    areas = [point.area for point in sweep.points if point.area]
    carries = any(axis.key == "lut4" for axis in area_axes(sweep))
    # LUT4 holds the LUTs and the carries already.
    hidden = ("luts", "carries") if carries else ("lut4",)
    order = ("lut4", *(key for key in RESOURCES if key != "lut4"))
    return [
        {"key": key, "label": RESOURCE_LABELS[key]}
        for key in order
        if key not in hidden and any(area.get(key) for area in areas)
    ]


def _point_record(
    point: Point,
    words: str,
    parameters: Sequence[Parameter],
    figures: dict[str, int],
) -> dict[str, Any]:
    config = point.config
    values: dict[str, Any] = {"number": point.number, "lanes": point.lanes}
    values |= {entry.key: parameter_value(point, entry.key) for entry in parameters}
    values |= dict(point.area or {})
    values["budget_bytes"] = None if config is None else config.budget_bytes
    values["fmax_mhz"] = point.fmax_mhz
    values["status"] = "ok" if point.error is None else "failed"
    return {
        "id": point.id,
        "words": words,
        "error": point.error,
        "values": values,
        "fmax_runs": list(point.fmax_runs),
        "seconds": point.seconds,
        "parameters": [] if config is None else _parameters(config),
        "blocks": [_block_record(block) for block in block_tree(point)],
        "runs": {name: _run_record(run, config, figures) for name, run in point.workloads.items()},
    }


def _parameters(config: EngineConfig) -> list[tuple[str, Any, str]]:
    """Return all parameters of an engine: words, value, unit."""
    return [
        ("output lanes", config.out_lanes, ""),
        ("split lanes", config.split_lanes, ""),
        ("read and write port, each", config.bus_bytes, "B"),
        ("input buffer, each of two halves", config.input_bytes, "B"),
        ("weight buffer, each of two halves", config.weight_bytes, "B"),
        ("accumulator bank", config.psum_bytes, "B"),
        ("biases", config.bias_bytes, "B"),
        ("beside the budget", config.allowance_bytes, "B"),
        ("requantisers", config.results_per_cycle, ""),
        ("rounding", ", ".join(config.built_roundings) or "none", ""),
        ("weight zero points", "yes" if config.weight_zero_points else "no", ""),
        ("optional units", ", ".join(config.built_units) or "none", ""),
        ("address", config.address_bits, "bit"),
    ]


def _block_record(block: Block) -> dict[str, Any]:
    return {
        "name": block.name,
        "area": dict(block.area),
        "parts": [_block_record(part) for part in block.parts],
    }


def _run_record(
    run: Workload, config: EngineConfig | None, figures: dict[str, int]
) -> dict[str, Any]:
    layers = [_layer_record(layer, config, figures) for layer in run.layers]
    lines: dict[str, Any] = {"roof": [], "across": None, "up": None}
    if config is not None:
        dots = [dot for layer in run.layers if (dot := layer_dot(layer, config)) is not None]
        line = roof(config, dots)
        lowest = min([line[0][1], *(dot.rate for dot in dots)])
        lines = {
            "roof": [{"x": x, "y": y} for x, y in line],
            "across": [line[0][0], line[-1][0]],
            "up": [lowest / 1.3, 2 * config.lanes],
        }
    return {
        "cycles": run.cycles,
        "read_bytes": run.read_bytes,
        "write_bytes": run.write_bytes,
        "moved_bytes": run.read_bytes + run.write_bytes,
        "macs": run.macs,
        "utilisation": None if run.utilisation is None else 100 * run.utilisation,
        "fps": run.fps,
        "layers": layers,
    } | lines


def _layer_record(
    layer: Layer, config: EngineConfig | None, figures: dict[str, int]
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "name": layer.name,
        "words": "" if layer.shape is None else layer_words(layer.shape, geometry=True),
        "mode": layer.mode,
        "order": layer.order,
        "tile": None if layer.tile is None else tile_words(layer.tile),
        "cycles": layer.cycles,
        "read_bytes": layer.read_bytes,
        "write_bytes": layer.write_bytes,
        "macs": layer.macs,
        "x": None,
        "y": None,
        "bound": None,
        "figure": None,
    }
    dot = None if config is None else layer_dot(layer, config)
    if dot is not None:
        record |= {"x": dot.intensity, "y": dot.rate, "bound": dot.bound}
    if len(figures) < MAX_PICTURES:
        svg = _tile_picture(layer, config)
        if svg is not None:
            # Points that differ in ports or rounding alone share their pictures.
            record["figure"] = figures.setdefault(svg, len(figures))
    return record


def _tile_picture(layer: Layer, config: EngineConfig | None) -> str | None:
    from haloconv.flow.figure import tile_figure

    if None in (config, layer.shape, layer.tile, layer.mode, layer.order):
        return None
    assert config is not None and layer.shape is not None and layer.tile is not None
    assert layer.mode is not None and layer.order is not None
    plan = Plan(
        layer.shape,
        config,
        layer.tile,
        layer.mode,
        layer.order,
        objective="given",
        # Only the schedule depends on these, and the picture has none.
        latency=1,
        raw=False,
        load_scale=True,
    )
    return tile_figure(plan)
