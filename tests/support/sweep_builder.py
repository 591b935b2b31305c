"""A synthetic sweep: cycles, bytes and tiles are the planner's, areas are made up.

Test files load it by path, as importlib mode lets them import no siblings.
"""

from dataclasses import asdict, replace
from typing import Any

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import plan_layer

SAME = (1, 1, 1, 1)
WORKLOADS = {
    "separable": [
        ConvLayer(48, 48, 3, 16, (3, 3), stride=(2, 2), pads=(0, 1, 0, 1), name="first"),
        ConvLayer(24, 24, 16, 16, (3, 3), pads=SAME, groups=16, name="depthwise"),
        ConvLayer(24, 24, 16, 32, (1, 1), name="pointwise"),
        ConvLayer(1, 1, 256, 10, (1, 1), name="classifier"),
    ],
    "residual": [
        ConvLayer(32, 32, 16, 16, (3, 3), pads=SAME, name="body"),
        ConvLayer(32, 32, 16, 32, (3, 3), stride=(2, 2), pads=(0, 1, 0, 1), name="down"),
    ],
}
LANES = ((2, 2), (4, 4), (8, 4), (8, 8), (16, 8))
KIBIBYTES = (8, 16, 32)
CLOCK = 100.0
HOSTILE = (
    'abc9 said </script><script>document.title = "owned"</script> & <img src=x onerror=alert(1)>'
)
"""The error of the failed point: text that must stay text."""


def synthetic_area(config: EngineConfig) -> dict[str, dict[str, int]]:
    """Return made-up areas by block, growing with lanes and buffers as real ones do."""
    lanes, kilobytes = config.lanes, config.budget_bytes // 1024
    blocks = {
        "top": (40, 60, 0, 0, 0),
        "control": (600 + 6 * config.bus_bytes, 900, 40, 0, 0),
        "loader": (500 + 70 * config.bus_bytes, 640, 60, 0, 0),
        "loader.gearbox": (40 * config.bus_bytes, 32 * config.bus_bytes, 0, 0, 0),
        "datapath": (0, 0, 0, 0, 0),
        "datapath.halo": (60 * config.split_lanes, 40 * config.split_lanes, 0, 0, kilobytes // 4),
        "datapath.lanes": (38 * lanes, 80 * lanes, 16 * lanes, lanes, 0),
        "datapath.drain": (190 * config.results_per_cycle, 320, 60, 0, kilobytes // 8 + 1),
        "datapath.drain.requantizer_0": (191, 260, 59, 4, 0),
    }
    names = ("luts", "ffs", "carries", "dsps", "block_rams")
    areas = {path: dict(zip(names, values, strict=True)) for path, values in blocks.items()}
    for area in areas.values():
        area |= {"lut_rams": 0, "large_rams": 0, "lut4": area["luts"] + 2 * area["carries"]}
    return areas


def workload(config: EngineConfig, layers: list[ConvLayer], clock: float) -> dict[str, Any]:
    """Return what a workload costs, planned layer by layer."""
    records = []
    for layer in layers:
        plan = plan_layer(layer, config)
        records.append(
            {
                "name": layer.name,
                "operator": "CONV_2D",
                "cycles": plan.cycles,
                "read_bytes": plan.moved_bytes.total - plan.moved_bytes.output,
                "write_bytes": plan.moved_bytes.output,
                "macs": layer.macs,
                "mode": plan.mode,
                "order": plan.order,
                "tile": asdict(plan.tile),
                "layer": asdict(layer),
            }
        )
    # An elementwise layer has no tile.
    records.append(
        {
            "name": "add",
            "operator": "ADD",
            "cycles": 300,
            "read_bytes": 2048,
            "write_bytes": 1024,
            "macs": 0,
            "mode": None,
            "order": None,
            "tile": None,
            "layer": None,
        }
    )
    total = {
        key: sum(record[key] for record in records)
        for key in ("cycles", "read_bytes", "write_bytes", "macs")
    }
    return total | {
        "utilisation": round(total["macs"] / (config.lanes * total["cycles"]), 6),
        "fps": round(clock * 1e6 / total["cycles"], 3),
        "layers": records,
        "host": [],
    }


def point(config: EngineConfig, number: int) -> dict[str, Any]:
    """Return a point that is ok; every other one has a clock of its own."""
    blocks = synthetic_area(config)
    total = {key: sum(area[key] for area in blocks.values()) for key in blocks["top"]}
    fmax = round(130 - 2.5 * number, 2) if number % 2 else None
    return {
        "id": f"{number:02d}{config.digest}",
        "given": {},
        "config": config.to_dict(),
        "tile": None,
        "status": "ok",
        "error": None,
        "area": total,
        "blocks": blocks,
        "seconds": 20.5 + number,
        "fmax_mhz": fmax,
        "fmax_runs": [] if fmax is None else [fmax - 3.0, fmax, fmax + 1.5],
        "workloads": {
            name: workload(config, layers, fmax or CLOCK) for name, layers in WORKLOADS.items()
        },
    }


def sweep() -> dict[str, Any]:
    """Return the content of a ``sweep.json``: fifteen points, and two that failed."""
    points = []
    for out_lanes, split_lanes in LANES:
        for size in KIBIBYTES:
            config = EngineConfig(
                out_lanes=out_lanes,
                split_lanes=split_lanes,
                bus_bytes=4 if out_lanes < 8 else 8,
                input_bytes=size * 128,
                weight_bytes=size * 256,
                psum_bytes=size * 256 - 256,
                bias_bytes=256,
                weight_zero_points=False,
            )
            points.append(point(config, len(points) + 1))
    # One keeps its area though a workload did not fit; one never became an engine.
    part = point(replace(EngineConfig(), psum_bytes=0), len(points) + 1)
    del part["workloads"]["residual"]
    points.append(part | {"status": "failed", "error": HOSTILE})
    nothing = point(EngineConfig(), len(points) + 1)
    points.append(
        nothing
        | {"status": "failed", "error": "the clock was not met", "config": None, "area": None}
        | {"blocks": {}, "workloads": {}, "seconds": None, "fmax_mhz": None, "fmax_runs": []}
    )
    return {
        "format": 1,
        "family": "ecp5",
        "clock_mhz": CLOCK,
        "latency": 16,
        "objective": "cycles",
        "tool": "made up",
        "fmax": None,
        "missing": 0,
        "workloads": {
            name: {"source": "made up", "layers": len(layers)} for name, layers in WORKLOADS.items()
        },
        "points": points,
    }
