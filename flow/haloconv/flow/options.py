"""Options that several commands share, and the engine they describe."""

import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haloconv.planner.config import UNITS, EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import ROUNDINGS

if TYPE_CHECKING:
    from haloconv.planner.network import Network

__all__ = [
    "BYTES",
    "LANES",
    "NETWORK_BUDGET",
    "ROUNDING_LIST",
    "UNIT_LIST",
    "ByteCount",
    "EngineOptions",
    "Lanes",
    "RoundingList",
    "UnitList",
    "engine_options",
    "figure_option",
    "input_option",
    "json_option",
    "latency_option",
    "model_arguments",
    "objective_option",
    "seed_option",
    "source_arguments",
]

Command = Callable[..., Any]

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}


class ByteCount(click.ParamType):
    """A number of bytes, plain or in units of 1024: 32768, 32k, 32KiB, 1M."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return ``value`` in bytes."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+)\s*([km]?)(?:i?b)?", str(value).strip(), re.IGNORECASE)
        if match is None:
            self.fail(f"{value!r} is no number of bytes; write 32768, 32k or 1M", param, ctx)
        return int(match[1]) * _UNITS[match[2].lower()]


class PositiveNumber(click.ParamType):
    """A finite number above 0, in a unit of its own."""

    name = "number"

    def __init__(self, unit: str) -> None:
        self.unit = unit

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return ``value`` as a float."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf:
            self.fail(f"{value!r} must be a number of {self.unit} above 0", param, ctx)
        return number


class Lanes(click.ParamType):
    """Lanes as PmxPr, output lanes by split lanes."""

    name = "PmxPr"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return (Pm, Pr)."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(\d+)[xX](\d+)", str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no pair of lane counts; write 8x8", param, ctx)
        lanes = int(match[1]), int(match[2])
        if not all(1 <= count <= MOST_LANES for count in lanes):
            self.fail(
                f"{value!r} must be two lane counts from 1 to {MOST_LANES}, such as 8x8", param, ctx
            )
        return lanes


class RoundingList(click.ParamType):
    """Rounding modes, separated by commas."""

    name = "modes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names."""
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in str(value).split(","))
        for name in names:
            if name not in ROUNDINGS:
                self.fail(f"{name!r} is no rounding mode; known are {', '.join(ROUNDINGS)}")
        return names


class UnitList(click.ParamType):
    """Optional units, separated by commas, or none."""

    name = "units"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names."""
        if isinstance(value, tuple):
            return value
        if str(value).strip() == "none":
            return ()
        names = tuple(name.strip() for name in str(value).split(","))
        for name in names:
            if name not in UNITS:
                self.fail(f"{name!r} is no unit; known are {', '.join(UNITS)}, or none for none")
        return names


BYTES = ByteCount()
LANES = Lanes()
ROUNDING_LIST = RoundingList()
UNIT_LIST = UnitList()

MOST_LANES = 64
"""Of either kind, as EngineConfig has it."""
NETWORK_BUDGET = 65536
"""Bytes of buffers for a network where nothing is said about them."""

_BUFFERS = ("input_bytes", "weight_bytes", "psum_bytes", "bias_bytes")

_ENGINE: tuple[Callable[[Command], Command], ...] = (
    click.option("--lanes", type=LANES, help="Output lanes by split lanes.  [default: 8x8]"),
    click.option("--bus", "bus_bytes", type=int, help="Width of each memory port in bytes."),
    click.option(
        "--budget",
        type=BYTES,
        help="Bytes of on-chip storage, split over the buffers as suits the layers.",
    ),
    click.option("--input-bytes", type=BYTES, help="One half of the halo buffer."),
    click.option("--weight-bytes", type=BYTES, help="One half of the weight buffer."),
    click.option("--psum-bytes", type=BYTES, help="Accumulator bank."),
    click.option("--bias-bytes", type=BYTES, help="Bias table of one tile."),
    click.option("--requant-lanes", type=int, help="Results requantised a cycle."),
    click.option(
        "--roundings", type=ROUNDING_LIST, help=f"Modes built in: {', '.join(ROUNDINGS)}."
    ),
    click.option("--units", type=UNIT_LIST, help=f"Units built in: {', '.join(UNITS)}, or none."),
    click.option("--address-bits", type=int, help="Width of memory addresses."),
    click.option(
        "--tiles-ahead", type=int, help="Tiles worked out ahead; 0 saves area where RAM is scarce."
    ),
    click.option(
        "--serial-requantizers/--parallel-requantizers",
        "serial_requantizers",
        default=None,
        help="Requantisers without multipliers, 32 cycles a result.",
    ),
    click.option(
        "--counters/--no-counters",
        "counters",
        default=None,
        help="Count bytes and what cycles are spent on, beside the cycles.",
    ),
    click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="JSON file of engine parameters; the options above override it.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What the command line says about the engine; None where it says nothing."""

    lanes: tuple[int, int] | None = None
    bus_bytes: int | None = None
    budget: int | None = None
    input_bytes: int | None = None
    weight_bytes: int | None = None
    psum_bytes: int | None = None
    bias_bytes: int | None = None
    requant_lanes: int | None = None
    roundings: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    address_bits: int | None = None
    tiles_ahead: int | None = None
    serial_requantizers: bool | None = None
    counters: bool | None = None
    config: Path | None = None

    @property
    def given(self) -> list[str]:
        """The options given, as they are written."""
        return [
            "--" + name.replace("_", "-")
            for name in self.__dataclass_fields__
            if getattr(self, name) is not None
        ]

    def build(
        self, layers: Sequence[ConvLayer] = (), *, latency: int = 16, objective: str = "cycles"
    ) -> EngineConfig:
        """Return the engine, sized for ``layers`` where a budget is given.

        Raises
        ------
        click.UsageError
            If options contradict each other.
        ValueError
            If the engine cannot be built so.
        """
        base, changes = self._parts()
        if self.budget is None:
            return replace(base, **changes)
        if not layers:
            raise click.UsageError("--budget needs layers to size the buffers for; give a SOURCE")
        from haloconv.planner.sizing import size_engine

        return size_engine(
            list(layers),
            self.budget,
            latency=latency,
            objective=objective,
            **self._kept(base, changes),
        )

    def build_for_network(
        self, network: "Network", *, latency: int = 16, objective: str = "cycles"
    ) -> EngineConfig:
        """Return the engine, sized for a network where no buffer is given.

        Raises
        ------
        click.UsageError
            If options contradict each other.
        ValueError
            If the engine cannot be built so.
        """
        from haloconv.planner.network import ConvNode

        base, changes = self._parts()
        given = self.config is not None or any(name in changes for name in _BUFFERS)
        if self.budget is None and given:
            return replace(base, **changes)
        if not any(isinstance(node, ConvNode) for node in network.nodes):
            return replace(base, **changes)
        kept = {
            name: value for name, value in self._kept(base, changes).items() if value is not None
        }
        if self.config is None:
            # Only what the network needs, unless a file asks for more.
            kept.pop("weight_zero_points")
        return EngineConfig.for_network(
            network,
            NETWORK_BUDGET if self.budget is None else self.budget,
            latency=latency,
            objective=objective,
            **kept,
        )

    def _parts(self) -> tuple[EngineConfig, dict[str, Any]]:
        """Return the engine of the file, and what the other options change."""
        base = EngineConfig() if self.config is None else _read_config(self.config)
        changes: dict[str, Any] = {}
        if self.lanes is not None:
            changes["out_lanes"], changes["split_lanes"] = self.lanes
        plain = (
            "bus_bytes", *_BUFFERS, "requant_lanes", "roundings", "units", "address_bits",
            "tiles_ahead", "serial_requantizers", "counters",
        )  # fmt: skip
        for name in plain:
            if (value := getattr(self, name)) is not None:
                changes[name] = value
        for name in _BUFFERS:
            if self.budget is not None and name in changes:
                raise click.UsageError(
                    f"--budget and --{name.replace('_', '-')} exclude each other: "
                    "a budget sizes all buffers"
                )
        return base, changes

    @staticmethod
    def _kept(base: EngineConfig, changes: dict[str, Any]) -> dict[str, Any]:
        """Return what a budget leaves as the file or the command line sets it."""
        values = {name: getattr(base, name) for name in base.to_dict() if name not in _BUFFERS}
        return values | changes


def _read_config(path: Path) -> EngineConfig:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise click.ClickException(f"{path} is no JSON file: {error}") from None
    if not isinstance(values, dict):
        raise click.ClickException(f"{path} must hold an object of engine parameters")
    try:
        return EngineConfig.from_dict(values.get("config", values))
    except (TypeError, ValueError) as error:
        raise click.ClickException(f"{path}: {error}") from None


def engine_options(command: Command) -> Command:
    """Add the engine's options to a command and pass them as ``engine``, an EngineOptions."""
    names = tuple(EngineOptions.__dataclass_fields__)

    @functools.wraps(command)
    def collect(**values: Any) -> Any:
        chosen = {name: values.pop(name) for name in names}
        return command(engine=EngineOptions(**chosen), **values)

    decorated: Command = collect
    for option in reversed(_ENGINE):
        decorated = option(decorated)
    return decorated


def source_arguments(command: Command) -> Command:
    """Add SOURCE, ``--layer``, ``--only`` and ``--target``, which say what layers are meant."""
    for option in (
        click.option(
            "--target",
            type=click.Choice(["tflm", "litert", "xnnpack"]),
            default="tflm",
            show_default=True,
            help="Whose arithmetic a model is read for.",
        ),
        click.option("--only", metavar="INDEX|NAME", help="One layer of SOURCE."),
        click.option("--layer", "words", help='A layer in words, like "32x32x16 k3 s1 p1 m32".'),
        click.argument(
            "path",
            metavar="[SOURCE]",
            required=False,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
        ),
    ):
        command = option(command)
    return command


def model_arguments(command: Command) -> Command:
    """Add MODEL and ``--target``, a whole network and its arithmetic."""
    for option in (
        click.option(
            "--target",
            type=click.Choice(["tflm", "litert", "xnnpack", "ort"]),
            help="Whose arithmetic the model is read for.  [default: tflm, ort for .onnx]",
        ),
        click.argument(
            "model",
            metavar="MODEL",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
        ),
    ):
        command = option(command)
    return command


input_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A .npy array or an image for the model's input; repeat it for several.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, keys sorted.")
latency_option = click.option(
    "--latency",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Cycles from a read request to its first data.",
)
objective_option = click.option(
    "--objective",
    type=click.Choice(["cycles", "bytes", "storage"]),
    default="cycles",
    show_default=True,
    help="What the tile search minimises first.",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Of random data and stalls.",
)
figure_option = click.option(
    "--figure",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Draw into this SVG file.",
)
