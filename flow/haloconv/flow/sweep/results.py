"""The results of a sweep as JSON, CSV and a table (docs/sweep.md)."""

import csv
import io
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from haloconv.flow import report
from haloconv.flow.sweep.digest import digest
from haloconv.flow.sweep.jobs import sources
from haloconv.flow.sweep.runner import Built, Sweep
from haloconv.flow.sweep.space import tile_dict

__all__ = ["FORMAT", "results_csv", "results_record", "results_table", "write_results"]

FORMAT = 1
AREA = ("luts", "ffs", "carries", "lut_rams", "dsps", "block_rams", "large_rams", "lut4")
TOTALS = ("cycles", "read_bytes", "write_bytes", "macs", "utilisation", "fps")


def results_record(sweep: Sweep) -> dict[str, Any]:
    """Return everything that is known of a sweep's points; those not yet built are left out."""
    space = sweep.space
    points: dict[str, dict[str, Any]] = {}
    missing = 0
    for built in sweep.built():
        if built.missing:
            missing += 1
            continue
        record = _point_record(sweep, built)
        # Two points of the space may come out as the same engine.
        points.setdefault(record["id"], record)
    return {
        "clock_mhz": space.clock_mhz,
        "family": space.family,
        "fmax": None if space.fmax is None else space.fmax.to_dict(),
        "format": FORMAT,
        "latency": space.latency,
        "missing": missing,
        "objective": space.objective,
        "points": list(points.values()),
        "sources": sources("synthesis"),
        "tool": sweep.tool,
        "workloads": {
            work.name: {"layers": _layer_count(points, work.name), "source": work.source}
            for work in sweep.workloads
        },
    }


def _layer_count(points: Mapping[str, Mapping[str, Any]], name: str) -> int | None:
    """Return the layers of a workload as a point ran them; its network need not be read again."""
    for point in points.values():
        if name in point["workloads"]:
            return len(point["workloads"][name]["layers"])
    return None


def _point_record(sweep: Sweep, built: Built) -> dict[str, Any]:
    point, config = built.point, built.config
    tile = None if point.tile is None else tile_dict(point.tile)
    named = point.to_dict() if config is None else config.to_dict()
    record: dict[str, Any] = {
        "area": None,
        "blocks": None,
        "config": None if config is None else config.to_dict(),
        "error": built.error,
        "fmax_mhz": None,
        "fmax_runs": [],
        "given": point.to_dict(),
        "id": digest([named, tile, sweep.space.family])[:12],
        "seconds": None,
        "status": "ok",
        "tile": tile,
        "workloads": {},
    }
    errors = [] if built.error is None else [built.error]
    made = built.synthesis
    if made is not None and made.output is not None:
        record |= {name: made.output[name] for name in ("area", "blocks", "seconds")}
    elif made is not None:
        errors.append(f"synthesis: {made.error}")
    runs = [row.output["fmax_mhz"] for row in built.placements if row is not None and row.output]
    if runs:
        record["fmax_runs"] = runs
        record["fmax_mhz"] = statistics.median(runs)
    if made is not None and made.error is None:
        # One sentence for seeds that failed alike.
        failed = [row.error for row in built.placements if row is not None and row.error]
        errors += [f"place and route: {error}" for error in dict.fromkeys(failed)]
    clock = record["fmax_mhz"] or sweep.space.clock_mhz
    for work, row in zip(sweep.workloads, built.workloads, strict=False):
        assert row is not None
        if row.output is None:
            errors.append(f"{work.name}: {row.error}")
        else:
            fps = round(clock * 1e6 / row.output["cycles"], 3)
            record["workloads"][work.name] = {**row.output, "fps": fps}
    if errors:
        record |= {"error": "; ".join(errors), "status": "failed"}
    return record


def results_csv(record: Mapping[str, Any]) -> str:
    """Return a row for each point and workload; one for a point without."""
    parameters: dict[str, None] = {}
    for point in record["points"]:
        parameters |= dict.fromkeys(point["config"] or {})
    columns = ["id", "status", "error", *parameters, "tile", *AREA, "fmax_mhz", "workload", *TOTALS]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for point in record["points"]:
        row: dict[str, Any] = {name: point[name] for name in ("id", "status", "error", "fmax_mhz")}
        for name, value in (point["config"] or {}).items():
            row[name] = " ".join(value) if isinstance(value, list) else value
        row |= point["area"] or {}
        tile = point["tile"]
        row["tile"] = tile and (
            f"{tile['height']}x{tile['width']}x{tile['in_channels']}->{tile['out_channels']}"
        )
        for name, work in (point["workloads"] or {"": {}}).items():
            totals = {column: work.get(column) for column in TOTALS}
            writer.writerow(row | {"workload": name} | totals)
    return text.getvalue()


def write_results(folder: Path, record: Mapping[str, Any]) -> None:
    """Write ``sweep.json`` and ``sweep.csv``, each in one step, so that no half file is left."""
    text = json.dumps(record, sort_keys=True, indent=1) + "\n"
    for name, content in (("sweep.json", text), ("sweep.csv", results_csv(record))):
        draft = folder / f".{name}.new"
        draft.write_text(content, encoding="utf-8", newline="\n")
        os.replace(draft, folder / name)


def results_table(record: Mapping[str, Any]) -> report.Table:
    """Return a row for each point that has an area."""
    names = list(record["workloads"])
    clock = record["fmax"] is not None
    # A carry of these two families takes the place of two LUTs.
    logic = "lut4" if record["family"] in ("ecp5", "nexus") else "luts"
    # Of many workloads only what they are compared by, so that the table stays readable.
    shown = ("frames/s",) if len(names) > 3 else ("cycles", "frames/s", "use")
    table = report.new_table(
        "lanes", "bus", "re-\nquant", "buffers\nbytes",
        "LUT +\n2 carry" if logic == "lut4" else "LUT", "FF", "DSP", "RAM",
        *(["MHz"] if clock else []),
        *(f"{name}\n{what}" for name in names for what in shown),
    )  # fmt: skip
    for point in record["points"]:
        config, area = point["config"], point["area"]
        if config is None or area is None:
            continue
        budget = 2 * (config["input_bytes"] + config["weight_bytes"])
        budget += config["psum_bytes"] + config["bias_bytes"]
        cells = [
            f"{config['out_lanes']}x{config['split_lanes']}",
            str(config["bus_bytes"]),
            str(config["requant_lanes"]),
            report.count(budget),
            *(report.count(area[name]) for name in (logic, "ffs", "dsps", "block_rams")),
        ]
        if clock:
            cells.append("-" if point["fmax_mhz"] is None else f"{point['fmax_mhz']:.1f}")
        for name in names:
            cells += _work_cells(point["workloads"].get(name), shown)
        table.add_row(*cells)
    return table


def _work_cells(work: Mapping[str, Any] | None, shown: Sequence[str]) -> list[str]:
    if work is None:
        return ["-"] * len(shown)
    cells = {
        "cycles": report.count(work["cycles"]),
        "frames/s": f"{work['fps']:,.1f}",
        "use": report.percent(work["utilisation"]),
    }
    return [cells[name] for name in shown]
