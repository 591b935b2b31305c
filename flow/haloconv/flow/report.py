"""What the commands print: rich tables for people, plain dictionaries for JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from haloconv.flow.source import Item, layer_words
from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer

if TYPE_CHECKING:
    from haloconv.planner.plan import Plan

__all__ = [
    "config_lines",
    "console",
    "error_console",
    "layer_record",
    "plan_record",
    "plan_sheet",
    "plan_table",
    "print_json",
    "storage_table",
    "tile_words",
    "traffic_table",
]

TENSORS = ("input", "weight", "bias", "sums", "output")
PLAIN_WIDTH = 140
"""Columns of tables that go to a file or a pipe."""


def console() -> Console:
    """Return the console for results. Names are printed as they are, without markup."""
    made = Console(markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made = Console(markup=False, highlight=False, emoji=False, width=PLAIN_WIDTH)
    return made


def error_console() -> Console:
    """Return the console for progress and warnings, on stderr."""
    return Console(stderr=True, markup=False, highlight=False, emoji=False)


def print_json(record: Mapping[str, Any]) -> None:
    """Print a record as JSON with sorted keys."""
    print(json.dumps(record, sort_keys=True, indent=2))


def count(number: float) -> str:
    """Return a count in groups of three digits: 12,345."""
    return f"{number:,}"


def percent(share: float) -> str:
    """Return a share with one decimal: 93.8 %."""
    return f"{100 * share:.1f} %"


def tile_words(tile: Any) -> str:
    """Return a tile as Th x Tw x Tc -> Tm."""
    return f"{tile.height}x{tile.width}x{tile.in_channels} -> {tile.out_channels}"


def config_lines(config: EngineConfig) -> str:
    """Return two lines that say what engine is meant and how its budget is split."""
    return (
        f"engine {config.digest}: {config.out_lanes}x{config.split_lanes} lanes, "
        f"{config.bus_bytes}-byte ports\n"
        f"budget {count(config.budget_bytes)} B = "
        f"2*({count(config.input_bytes)} input + {count(config.weight_bytes)} weights) + "
        f"{count(config.psum_bytes)} sums + {count(config.bias_bytes)} biases; "
        f"beside it {count(config.allowance_bytes)} B of scales and second biases"
    )


def layer_record(layer: ConvLayer) -> dict[str, Any]:
    """Return a layer for JSON: its parameters, output size and multiply-accumulates."""
    record = {key: _plain(value) for key, value in asdict(layer).items()}
    return record | {
        "macs": layer.macs,
        "out_height": layer.out_height,
        "out_width": layer.out_width,
        "words": layer_words(layer),
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON types: dataclasses as objects, tuples as lists, numpy as Python."""
    if is_dataclass(value) and not isinstance(value, type):
        return {key: _plain(item) for key, item in asdict(value).items()}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def bytes_record(moved: Any) -> dict[str, int]:
    """Return bytes by tensor and their total."""
    return {name: int(getattr(moved, name)) for name in (*TENSORS, "total")}


def plan_record(item: Item, plan: "Plan") -> dict[str, Any]:
    """Return a plan for JSON; docs/cli.md describes it."""
    storage = plan.storage
    return {
        "bounds": _plain(plan.bounds),
        "cycles": plan.cycles,
        "ideal_cycles": plan.ideal_cycles,
        "index": item.index,
        "latency": plan.latency,
        "layer": layer_record(item.layer),
        "mode": plan.mode,
        "moved_bytes": bytes_record(plan.moved_bytes),
        "name": item.name,
        "objective": plan.objective,
        "order": plan.order,
        "schedule": schedule_record(plan),
        "storage": {
            "allowance_bytes": plan.config.allowance_bytes,
            "budget_bytes": plan.config.budget_bytes,
            "double_buffered_bytes": storage.double_buffered,
            "psum_idle": storage.psum_idle,
            "rows": [
                {"bytes": size, "formula": formula, "label": label}
                for label, formula, size in storage.rows()
            ],
            "single_bytes": storage.single,
        },
        "tile": _plain(plan.tile),
        "unique_bytes": bytes_record(plan.unique_bytes),
        "utilisation": round(plan.utilisation, 6),
    }


def schedule_record(plan: "Plan") -> dict[str, Any]:
    """Return the totals of a schedule; its tiles are counted, in all and by what governed them."""
    schedule = plan.schedule
    record = {
        entry.name: int(getattr(schedule, entry.name))
        for entry in fields(schedule)
        if entry.name not in ("cycles", "tiles")
    }
    return record | {
        "tiles": len(schedule.tiles),
        "tiles_by_cause": {str(cause): int(tiles) for cause, tiles in schedule.causes.items()},
    }


def main_stall(plan: "Plan") -> str:
    """Return what the lanes waited for most: "load", "drain" or "write"."""
    schedule = plan.schedule
    if schedule.load_stall_cycles >= schedule.drain_stall_cycles:
        return "load"
    return "write" if schedule.causes.get("write", 0) else "drain"


def new_table(*columns: str, left: int = 1, title: str | None = None) -> Table:
    """Return an empty table: the first ``left`` columns to the left, numbers to the right."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(
            column,
            justify="left" if index < left else "right",
            overflow="fold",
            no_wrap=index >= left,
        )
    return table


def storage_table(plan: "Plan") -> Table:
    """Return a tile's storage, worked line by line, against the budget."""
    table = new_table("storage of a tile", "worked", "bytes", left=2)
    for label, formula, size in plan.storage.rows():
        table.add_row(label, formula, count(size))
    config = plan.config
    table.add_row(
        "budget",
        f"2*({config.input_bytes} + {config.weight_bytes}) + "
        f"{config.psum_bytes} + {config.bias_bytes}",
        count(config.budget_bytes),
    )
    return table


def traffic_table(plan: "Plan") -> Table:
    """Return unique and moved bytes by tensor, two columns that are never added up."""
    table = new_table("traffic", "unique bytes", "moved bytes", "moved / unique")
    for name in (*TENSORS, "total"):
        unique, moved = getattr(plan.unique_bytes, name), getattr(plan.moved_bytes, name)
        ratio = f"{moved / unique:.2f}" if unique else "-"
        table.add_row(
            "partial sums" if name == "sums" else name, count(unique), count(moved), ratio
        )
    return table


def bounds_table(plan: "Plan") -> Table:
    """Return the lower bounds beside the moved bytes."""
    table = new_table("lower bound on moved bytes", "bytes", "moved / bound")
    bounds, moved = plan.bounds, plan.moved_bytes.total
    for label, bound in (
        ("each touched byte once", bounds.unique_bytes),
        ("for this storage, any tiling", bounds.storage_bytes_bound),
    ):
        table.add_row(label, count(bound), f"{moved / bound:.2f}" if bound else "says nothing")
    return table


def cycle_table(plan: "Plan") -> Table:
    """Return cycles, their ideal, and where the difference goes."""
    table = new_table("cycles", "", "")
    schedule = plan.schedule
    rows = [
        ("predicted", plan.cycles),
        ("ideal", plan.ideal_cycles),
        ("lanes computing", schedule.compute_cycles),
        ("first load", schedule.first_load_cycles),
        ("waiting for operands", schedule.load_stall_cycles),
        ("waiting for drain or writes", schedule.drain_stall_cycles),
        ("last drain", schedule.end_cycles),
    ]
    for name, cycles in rows:
        table.add_row(name, count(cycles), percent(cycles / plan.cycles))
    return table


def causes_line(plan: "Plan") -> str:
    """Return how many tiles each cause governed."""
    parts = [f"{tiles} by {cause}" for cause, tiles in plan.schedule.causes.items() if tiles]
    return f"tiles whose length is decided: {', '.join(parts)}"


def plan_sheet(item: Item, plan: "Plan") -> RenderableType:
    """Return everything about one planned layer."""
    layer = item.layer
    head = Text(
        f"{item.long_title}\n"
        f"output {layer.out_height}x{layer.out_width}x{layer.out_channels}, "
        f"{count(layer.macs)} MACs\n"
        f"tile {tile_words(plan.tile)} (rows x columns x input channels -> output channels), "
        f"{len(plan.schedule.tiles)} tiles\n"
        f"order {plan.order} (outer to inner), {plan.mode} mode, objective {plan.objective}\n"
        f"utilisation {percent(plan.utilisation)} of "
        f"{plan.config.out_lanes}x{plan.config.split_lanes} lanes, "
        f"memory latency {plan.latency} cycles"
    )
    return Group(
        head,
        storage_table(plan),
        traffic_table(plan),
        bounds_table(plan),
        cycle_table(plan),
        Text(causes_line(plan)),
    )


def plan_table(items: Sequence[Item], plans: Sequence["Plan"]) -> RenderableType:
    """Return a row for each planned layer, and totals."""
    table = new_table(
        "layer",
        "shape",
        "tile",
        "order, mode",
        "storage",
        "unique B",
        "moved B",
        "cycles",
        "stalls",
        "MACs",
        "use",
        left=4,
    )
    for item, plan in zip(items, plans, strict=True):
        schedule = plan.schedule
        stalls = schedule.load_stall_cycles + schedule.drain_stall_cycles
        table.add_row(
            item.title,
            layer_words(item.layer, geometry=True),
            tile_words(plan.tile),
            f"{plan.order} {plan.mode}",
            count(plan.storage.double_buffered),
            count(plan.unique_bytes.total),
            count(plan.moved_bytes.total),
            count(plan.cycles),
            f"{count(stalls)} {main_stall(plan)}" if stalls else "0",
            count(item.layer.macs),
            percent(plan.utilisation),
        )
    total = totals_record(plans)
    table.add_section()
    table.add_row(
        "total",
        f"{len(plans)} layers",
        "",
        "",
        "",
        count(total["unique_bytes"]),
        count(total["moved_bytes"]),
        count(total["cycles"]),
        count(total["stall_cycles"]),
        count(total["macs"]),
        percent(total["utilisation"]),
    )
    return table


def totals_record(plans: Iterable["Plan"]) -> dict[str, Any]:
    """Return the sums over all layers, and the utilisation over all cycles."""
    plans = list(plans)
    cycles = sum(plan.cycles for plan in plans)
    macs = sum(plan.layer.macs for plan in plans)
    return {
        "cycles": cycles,
        "macs": macs,
        "moved_bytes": sum(plan.moved_bytes.total for plan in plans),
        "stall_cycles": sum(
            plan.schedule.load_stall_cycles + plan.schedule.drain_stall_cycles for plan in plans
        ),
        "unique_bytes": sum(plan.unique_bytes.total for plan in plans),
        "utilisation": round(macs / (plans[0].config.lanes * cycles), 6) if plans else 0.0,
    }
