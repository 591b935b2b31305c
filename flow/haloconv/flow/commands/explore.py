"""``haloconv explore``: the engine that suits a network and a device."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from haloconv.flow import report
from haloconv.flow.files import write_text
from haloconv.flow.options import PositiveNumber, json_option, latency_option
from haloconv.flow.progress import progress

if TYPE_CHECKING:
    from haloconv.flow.explore.devices import Capacity
    from haloconv.flow.explore.search import Exploration, Explorer, Tried
    from haloconv.flow.synthesis import Area, SynthesisResult

__all__ = ["explore"]

SHOWN = 12
"""Engines of those tried that the table shows; JSON holds them all."""
_QUANTITIES = {
    "lut4": "LUT + 2 carry",
    "luts": "LUT",
    "carries": "carry",
    "ffs": "FF",
    "lut_rams": "LUT RAM",
    "dsps": "DSP",
    "block_rams": "block RAM",
}


@click.command()
@click.argument(
    "model",
    metavar="MODEL",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option("--device", required=True, help="FPGA, such as LFE5U-85F.")
@click.option(
    "--fps",
    type=PositiveNumber("frames a second"),
    help="Frames a second to reach with the smallest engine.  [default: the fastest that fits]",
)
@click.option(
    "--clock",
    type=PositiveNumber("MHz"),
    default=100.0,
    show_default=True,
    help="MHz that the engine is taken to run at.",
)
@click.option(
    "--fill",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.85,
    show_default=True,
    help="Share of LUTs and flip-flops that may be used.",
)
@click.option(
    "--target",
    type=click.Choice(["tflm", "litert", "xnnpack", "ort"]),
    help="Whose arithmetic the model is read for.  [default: tflm, ort for .onnx]",
)
@click.option(
    "--training",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A sweep's folder or its sweep.json, for the area model; may be repeated.",
)
@click.option(
    "--confirm/--no-confirm",
    default=True,
    help="Synthesise the engine that is chosen.  [default: confirm]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Write the engine's parameters, for --config of other commands.",
)
@latency_option
@json_option
def explore(
    model: Path,
    device: str,
    fps: float | None,
    clock: float,
    fill: float,
    target: str | None,
    training: tuple[Path, ...],
    confirm: bool,
    output: Path | None,
    latency: int,
    as_json: bool,
) -> int:
    """Find an engine for MODEL on a device: the smallest that reaches --fps, or the fastest.

    MODEL is a .tflite or .onnx network or a workload .json. Planner and area model judge the
    candidates; synthesis then confirms the choice. The size of an engine is the share of the
    device's fullest resource. Exit code 1 means that the engine, once synthesised, does not fit.
    """
    from haloconv.flow.explore.devices import capacity_of
    from haloconv.flow.explore.model import AreaModel
    from haloconv.flow.explore.search import Explorer
    from haloconv.flow.sweep.space import WorkloadEntry
    from haloconv.flow.sweep.workloads import Workload

    capacity = capacity_of(device)
    result: SynthesisResult | None = None
    with progress() as step:
        step("fitting the area model")
        area_model = AreaModel.trained(capacity.family, training)
        errors = area_model.errors
        step(f"reading {model.name}")
        work = Workload(WorkloadEntry(model.stem, model, target=target)).work
        explorer = Explorer(
            work, capacity, area_model, clock_mhz=clock, fill=fill, latency=latency, step=step
        )
        found = explorer.fastest() if fps is None else explorer.smallest(fps)
        if found.choice is None:
            raise click.ClickException(_nothing(model, capacity, fps, clock, explorer))
        choice = found.choice
        if confirm:
            from haloconv.flow.synthesis import synthesize

            step("synthesising the choice")
            result = synthesize(choice.config, capacity.family)
    if output is not None:
        write_text(output, json.dumps(choice.config.to_dict(), sort_keys=True, indent=2) + "\n")
        if str(output) == "-":
            return 0
    full = _full(capacity, result.area, fill) if result is not None else []
    if as_json:
        report.print_json(
            {
                "area_model": {"points": errors.points, "median": dict(errors.median),
                               "worst": dict(errors.worst), "exact": dict(errors.exact),
                               "stale": area_model.stale},
                "choice": _record(choice),
                "clock_mhz": clock,
                "device": capacity.name,
                "family": capacity.family,
                "fps": fps,
                "host": list(work.host),
                "model": model.name,
                "ruled_out": found.ruled_out,
                "synthesised": None if result is None else result.area.to_dict(),
                "tried": [_record(tried) for tried in found.tried],
            }
        )  # fmt: skip
        return 1 if full else 0
    out = report.console()
    goal = "the fastest that fits" if fps is None else f"the smallest that reaches {fps:g} frames/s"
    out.print(f"{model.name} on {capacity.name} at {clock:g} MHz: {goal}")
    out.print(_tried_table(found))
    out.print(
        f"{len(found.tried)} engines planned, {found.ruled_out} ruled out by bounds on area and "
        f"cycles\narea model: {errors.sentence()}",
        soft_wrap=True,
    )
    if area_model.stale:
        out.print(
            "the hardware's sources are not those that the model was trained on; for its true "
            "error sweep again, and name the folder with --training",
            soft_wrap=True,
        )
    out.print(report.config_lines(choice.config))
    out.print(
        f"{report.count(choice.cycles)} cycles, {choice.fps:,.1f} frames/s at {clock:g} MHz; "
        f"needs {', '.join(choice.config.built_roundings)}"
        f"{''.join(f', {unit}' for unit in choice.config.built_units)}"
    )
    out.print(_area_table(capacity, choice, result))
    if work.host:
        out.print(Text(f"on the host: {', '.join(work.host)}"))
    if full:
        out.print(f"once synthesised it does not fit: {', '.join(full)}; try a lower --fill")
    return 1 if full else 0


def _nothing(
    model: Path, device: "Capacity", fps: float | None, clock: float, explorer: "Explorer"
) -> str:
    """Say that nothing was found, and what comes nearest."""
    if fps is None:
        return f"no engine for {model.name} fits {device.name}; take a larger device"
    best = explorer.fastest().choice
    if best is None:
        return f"no engine for {model.name} fits {device.name}, at any rate; take a larger device"
    return (
        f"no engine on {device.name} runs {model.name} at {fps:g} frames/s and {clock:g} MHz; the "
        f"fastest that fits, {best.config.out_lanes}x{best.config.split_lanes} lanes with "
        f"{best.config.bus_bytes}-byte ports, reaches {best.fps:.1f}"
    )


def _full(device: "Capacity", area: "Area", fill: float) -> list[str]:
    """Return the resources of which a design takes more than there are, or than may be filled."""
    return [
        f"{name} {report.percent(share)}"
        for name, share in device.shares(area).items()
        if share > (fill if name in ("LUT", "FF") else 1)
    ]


def _record(tried: "Tried") -> dict[str, Any]:
    return {
        "area": tried.area.to_dict() | {"lut4": tried.area.lut4},
        "config": tried.config.to_dict(),
        "cycles": tried.cycles,
        "fps": round(tried.fps, 3),
        "shares": {name: round(share, 4) for name, share in tried.shares.items()},
        "verdict": tried.verdict,
    }


def _tried_table(found: "Exploration") -> report.Table:
    table = report.new_table(
        "lanes", "bus", "results", "budget B", "LUT + 2 carry", "DSP", "RAM", "fullest", "cycles",
        "frames/s", "verdict",
    )  # fmt: skip
    chosen = found.choice
    # The last ones tried are nearest to the choice.
    shown = [tried for tried in found.tried if tried is not chosen][-(SHOWN - 1) :]
    for tried in [*shown, *([chosen] if chosen is not None else [])]:
        config, (name, share) = tried.config, max(tried.shares.items(), key=lambda item: item[1])
        table.add_row(
            f"{config.out_lanes}x{config.split_lanes}",
            str(config.bus_bytes),
            str(config.results_per_cycle),
            report.count(config.budget_bytes),
            report.count(tried.area.lut4),
            str(tried.area.dsps),
            str(tried.area.block_rams),
            f"{name} {report.percent(share)}",
            report.count(tried.cycles),
            f"{tried.fps:,.1f}",
            "chosen" if tried is chosen else tried.verdict,
        )
    return table


def _area_table(
    device: "Capacity", choice: "Tried", result: "SynthesisResult | None"
) -> report.Table:
    columns = ["predicted"] if result is None else ["predicted", "synthesised", "off"]
    table = report.new_table("area", *columns, f"of {device.name}")
    area = choice.area if result is None else result.area
    have = {"luts": device.logic, "ffs": device.ffs, "dsps": device.dsps,
            "block_rams": device.block_rams, "lut4": device.logic}  # fmt: skip
    for name, title in _QUANTITIES.items():
        cells = [report.count(getattr(choice.area, name))]
        used = getattr(area, name)
        if result is not None:
            off = (getattr(choice.area, name) - used) / max(used, 1)
            cells += [report.count(used), f"{100 * off:+.1f} %"]
        cells.append(report.percent(used / have[name]) if name in have else "")
        table.add_row(title, *cells)
    return table
