"""``haloconv pnr``: the clock that an engine reaches on a device, and what limits it."""

import tempfile
from pathlib import Path

import click

from haloconv.flow import report
from haloconv.flow.options import (
    EngineOptions,
    PositiveNumber,
    engine_options,
    json_option,
    latency_option,
    objective_option,
    source_arguments,
)
from haloconv.flow.progress import progress
from haloconv.flow.source import read_layers

__all__ = ["pnr"]


@click.command()
@source_arguments
@engine_options
@objective_option
@latency_option
@click.option(
    "--device", default="LFE5U-85F", show_default=True, help="Such as LFE5U-25F or iCE40UP5K."
)
@click.option("--package", help="Package; the usual one of the device otherwise.")
@click.option("--speed", help="Speed grade of an ECP5: 6, 7 or 8.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Runs; the clock is their median.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Runs at a time.  [default: the cores of this machine]",
)
@click.option("--frequency", type=PositiveNumber("MHz"), help="Target clock in MHz.")
@click.option(
    "--netlist",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A netlist of `haloconv synth` to place instead of synthesising the engine.",
)
@json_option
def pnr(
    path: Path | None,
    words: str | None,
    only: str | None,
    target: str,
    engine: EngineOptions,
    objective: str,
    latency: int,
    device: str,
    package: str | None,
    speed: str | None,
    seeds: int,
    jobs: int | None,
    frequency: float | None,
    netlist: Path | None,
    as_json: bool,
) -> None:
    """Synthesise, place and route the engine: median clock, critical path by block, utilisation.

    The bare engine has more ports than a package has pins, so it stands in a frame of registers,
    which is not counted. SOURCE is only needed for --budget, which sizes the buffers for its
    layers.
    """
    from haloconv.flow.area_report import placement_sheet
    from haloconv.flow.place_route import place_and_route
    from haloconv.flow.place_route.devices import check_speed, device_of
    from haloconv.flow.synthesis import synthesize

    chosen = device_of(device)
    check_speed(chosen, speed)
    given = [*engine.given, *(["--layer"] if words else []), *(["SOURCE"] if path else [])]
    if netlist is not None and given:
        raise click.UsageError(
            f"--netlist holds an engine, which {given[0]} would not change; leave one of them out"
        )
    layers = read_layers(path, words, only, target)
    with progress() as step, tempfile.TemporaryDirectory(prefix="haloconv-") as folder:
        config = None
        if netlist is None:
            step("sizing the engine")
            config = engine.build(layers, latency=latency, objective=objective)
            step(f"synthesising for {chosen.family}")
            netlist = Path(folder) / "netlist.json"
            synthesize(config, chosen.family, netlist=netlist)
        result = place_and_route(
            netlist,
            chosen.name,
            package=package,
            speed=speed,
            seeds=range(1, seeds + 1),
            frequency=frequency,
            jobs=jobs,
            progress=lambda done, total: step("placing and routing", done, total),
        )
    if as_json:
        record = result.to_dict()
        report.print_json(record | ({} if config is None else {"config": config.to_dict()}))
        return
    out = report.console()
    if config is not None:
        out.print(report.config_lines(config))
    out.print(placement_sheet(result))
