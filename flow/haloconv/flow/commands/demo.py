"""``haloconv demo``: the whole way of one small layer, from plan to Verilog."""

import time
from pathlib import Path

import click

from haloconv.flow import report
from haloconv.flow.checks import check_layer, check_record
from haloconv.flow.files import write_text
from haloconv.flow.options import json_option, seed_option
from haloconv.flow.progress import progress
from haloconv.flow.source import Item, layer_words
from haloconv.planner.layer import ConvLayer

__all__ = ["DEMO_BUDGET", "DEMO_LAYER", "demo"]

DEMO_LAYER = ConvLayer(
    in_height=12,
    in_width=12,
    in_channels=8,
    out_channels=12,
    kernel=(3, 3),
    pads=(1, 1, 1, 1),
    in_zero_point=-5,
    name="demo",
)
"""Small enough for a minute in Amaranth's simulator, too large for its budget in one tile."""
DEMO_BUDGET = 2048
DEMO_LANES = (4, 4)


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=Path("out/haloconv_engine.v"),
    show_default=True,
    help="Where the Verilog goes, with its description beside it; - leaves it out.",
)
@seed_option
@json_option
def demo(output: Path, seed: int, as_json: bool) -> int:
    """Plan a layer under a budget, simulate it bit by bit, write the engine's Verilog."""
    from haloconv.flow.export import engine_description_text, engine_verilog
    from haloconv.planner.sizing import size_engine

    began = time.monotonic()
    item = Item(0, DEMO_LAYER.name, DEMO_LAYER)
    with progress() as step:
        step(f"sizing an engine of {DEMO_BUDGET} bytes")
        config = size_engine(
            [DEMO_LAYER],
            DEMO_BUDGET,
            out_lanes=DEMO_LANES[0],
            split_lanes=DEMO_LANES[1],
            bus_bytes=4,
            latency=16,
            objective="cycles",
        )
        step("simulating the layer cycle by cycle")
        check = check_layer(
            item,
            config,
            seed=seed,
            progress=lambda cycles: step(f"simulating the layer: {cycles:,} cycles"),
        )
        if str(output) != "-":
            step("generating Verilog")
            verilog = engine_verilog(config)
            write_text(output, verilog)
            write_text(output.with_suffix(".json"), engine_description_text(config))
    seconds = time.monotonic() - began
    if as_json:
        report.print_json(
            {
                "check": check_record(check),
                "config": config.to_dict(),
                "plan": report.plan_record(item, check.result.plan),
                "seed": seed,
                "verilog": None if str(output) == "-" else str(output),
            }
        )
        return 0 if check.passed else 1
    plan, result, out = check.result.plan, check.result, report.console()
    count = report.count
    lanes = f"{config.out_lanes}x{config.split_lanes} lanes, {config.bus_bytes}-byte ports"
    how = f"order {plan.order}, {plan.mode} mode, {len(plan.schedule.tiles)} tiles"
    unique = f"(unique {count(plan.unique_bytes.total)})"
    used = f"{report.percent(check.utilisation)} of the lanes used"
    rows = {
        "layer": f"{layer_words(DEMO_LAYER)}: {count(DEMO_LAYER.macs)} MACs, seed {seed}",
        "engine": f"{lanes}, {config.budget_bytes} of {DEMO_BUDGET} bytes of buffers",
        "plan": f"tile {report.tile_words(plan.tile)}, {how}",
        "bytes": f"{count(plan.moved_bytes.total)} planned, {count(check.moved)} counted {unique}",
        "cycles": f"{count(plan.cycles)} planned, {count(result.cycles)} measured, {used}",
        "golden model": f"{count(check.outputs)} outputs, {count(check.differences)} different",
        "Verilog": "not written" if str(output) == "-" else str(output),
        "time": f"{seconds:.1f} s",
    }
    for label, text in rows.items():
        out.print(f"{label:<13} {text}", soft_wrap=True)
    out.print("PASSED" if check.passed else "FAILED: the engine and its model differ")
    return 0 if check.passed else 1
