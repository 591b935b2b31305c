"""Layers from wherever a command takes them: a model, a workload file or words."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from haloconv.planner.layer import ConvLayer

if TYPE_CHECKING:
    from haloconv.planner.tflite import LayerData

__all__ = ["Item", "Source", "layer_words", "read_layers", "read_source"]


@dataclass(frozen=True, eq=False)
class Item:
    """One layer: its place in the source, a short name, and its data if it is a model's.

    Layers of a model are named after their operator, so that names may occur several times.
    """

    index: int
    name: str
    layer: ConvLayer
    data: "LayerData | None" = None

    @property
    def title(self) -> str:
        """Index and name; the words alone where the layer came as words."""
        return self.name if self.name == layer_words(self.layer) else f"{self.index} {self.name}"

    @property
    def long_title(self) -> str:
        """The title, and the layer's words unless they are it."""
        words = layer_words(self.layer)
        return self.name if self.name == words else f"{self.title} ({words})"


@dataclass(frozen=True, eq=False)
class Source:
    """Layers to work on, and what was left out because it is no convolution."""

    name: str
    items: tuple[Item, ...]
    skipped: tuple[str, ...] = ()

    @property
    def layers(self) -> list[ConvLayer]:
        """The layers alone."""
        return [item.layer for item in self.items]


def layer_words(layer: ConvLayer, *, geometry: bool = False) -> str:
    """Return a layer in the words that ``--layer`` takes, leaving out what is default.

    ``geometry`` leaves out zero point and bias too, which change no shape.
    """

    def pair(letter: str, values: tuple[int, ...], default: int | None = None) -> list[str]:
        if all(value == default for value in values):
            return []
        same = len(set(values)) == 1
        return [letter + ("x".join(map(str, values)) if not same else str(values[0]))]

    words = [f"{layer.in_height}x{layer.in_width}x{layer.in_channels}"]
    words += pair("k", layer.kernel)
    words += pair("s", layer.stride, 1)
    words += pair("d", layer.dilation, 1)
    if len(set(layer.pads)) > 1:
        words.append("p" + ",".join(map(str, layer.pads)))
    elif layer.pads[0]:
        words.append(f"p{layer.pads[0]}")
    words.append(f"m{layer.out_channels}")
    if layer.groups > 1:
        words.append(f"g{layer.groups}")
    if not geometry:
        if layer.in_zero_point:
            words.append(f"z{layer.in_zero_point}")
        if not layer.has_bias:
            words.append("nobias")
    return " ".join(words)


def read_source(
    path: Path | None, words: str | None, only: str | None = None, target: str = "tflm"
) -> Source:
    """Return the layers that SOURCE or ``--layer`` names.

    Raises
    ------
    click.UsageError
        If neither or both are given, or the file is of no known kind.
    ValueError
        If the layer or the file does not hold up.
    """
    if (path is None) == (words is None):
        raise click.UsageError("give a SOURCE (.tflite or .json) or a --layer, one of the two")
    if words is not None:
        from haloconv.planner.workload import parse_layer

        layer = parse_layer(words)
        source = Source(words, (Item(0, layer_words(layer), layer),))
    else:
        assert path is not None
        source = _read_file(path, target)
    if only is None:
        return source
    found = tuple(item for item in source.items if only in (item.name, str(item.index)))
    if not found:
        known = ", ".join(f"{item.index} {item.name}" for item in source.items)
        raise click.BadParameter(
            f"{only!r} is no layer of {source.name}; it has {known}", param_hint="--only"
        )
    return Source(source.name, found, source.skipped)


def read_layers(
    path: Path | None, words: str | None, only: str | None = None, target: str = "tflm"
) -> list[ConvLayer]:
    """Return the layers of SOURCE or ``--layer`` where one is given, none otherwise.

    Raises
    ------
    click.UsageError
        As :func:`read_source` does, and if ``only`` stands alone.
    ValueError
        If the layer or the file does not hold up.
    """
    if path is None and words is None:
        if only is not None:
            raise click.UsageError(f"--only {only} names a layer of a SOURCE; give one")
        return []
    return read_source(path, words, only, target).layers


def _read_file(path: Path, target: str) -> Source:
    if path.suffix == ".tflite":
        from haloconv.planner.tflite import CONV_OPERATORS, conv_layers, read_tflite

        model = read_tflite(path)
        items = tuple(
            # Converters name a tensor after everything they fused into it, a line or more.
            Item(entry.index, entry.operator.lower(), entry.layer, entry)
            for entry in conv_layers(model, target=target, skip_other=True)
        )
        skipped = tuple(
            f"{operator.index} {operator.kind}"
            for operator in model.operators
            if operator.kind not in CONV_OPERATORS
        )
        source = Source(path.name, items, skipped)
    elif path.suffix == ".json":
        from haloconv.planner.workload import read_workload

        workload = read_workload(path)
        items = tuple(
            Item(index, layer.name or layer_words(layer), layer)
            for index, layer in enumerate(workload.layers)
        )
        source = Source(workload.name, items, tuple(str(entry) for entry in workload.skipped))
    elif path.suffix == ".onnx":
        raise click.BadParameter(
            f"{path} is an ONNX model, which only commands for whole networks take, such as "
            "haloconv run or compile; give a .tflite model or a .json workload",
            param_hint="SOURCE",
        )
    else:
        raise click.BadParameter(
            f"{path} is neither a .tflite model nor a .json workload", param_hint="SOURCE"
        )
    if not source.items:
        raise click.BadParameter(
            f"{path} holds no layer that haloconv runs; it runs CONV_2D, DEPTHWISE_CONV_2D and "
            "FULLY_CONNECTED of int8",
            param_hint="SOURCE",
        )
    return source
