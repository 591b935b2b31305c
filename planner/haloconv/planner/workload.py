"""Layers without weights: workload files, and single layers in words."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast

from haloconv.planner.conventions import same_pads
from haloconv.planner.errors import PlanError
from haloconv.planner.layer import ConvLayer

__all__ = ["Skipped", "Workload", "parse_layer", "read_workload"]


@dataclass(frozen=True)
class Skipped:
    """A layer of a workload that is no convolution; ``str()`` gives "name (OPERATOR)"."""

    name: str
    operator: str

    def __str__(self) -> str:
        return f"{self.name} ({self.operator})"


@dataclass(frozen=True)
class Workload:
    """The convolution layers of a network, without weights.

    Parameters
    ----------
    name, source : str
        What the network is called and where the shapes come from.
    layers : tuple of ConvLayer
        CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED in order, each with its name.
    skipped : tuple of Skipped
        The other layers; TRANSPOSE_CONV is among them.
    """

    name: str
    source: str
    layers: tuple[ConvLayer, ...]
    skipped: tuple[Skipped, ...] = ()


class _Problem(Exception):
    """What is wrong with one field; the caller adds file and layer."""


def read_workload(path: str | PathLike[str]) -> Workload:
    """Return the layers of a workload .json.

    The file is an object with ``name``, ``source`` (optional) and ``layers``, a list of objects.
    Each has ``name``, ``op`` (TFLite's operator name), ``in_shape`` and ``out_shape``: N, H, W, C
    for a convolution, N and anything for FULLY_CONNECTED, which takes all values of one image.
    Convolutions add ``kernel`` and, where they differ from 1, ``stride``, ``dilation`` (each
    vertical, horizontal) and ``groups``, and either ``pads_tblr`` (top, bottom, left, right) or
    ``padding`` "SAME" or "VALID". ``bias_bytes`` 0 means no bias. Other fields are for readers.

    Raises
    ------
    OSError
        If the file cannot be opened.
    PlanError
        If the file or a layer in it is wrong, with file, layer and field.
    """
    path = Path(path)
    try:
        content: object = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PlanError(f"{path.name} must be JSON, but: {error}") from None
    if not isinstance(content, dict):
        raise PlanError(f"{path.name} must hold an object with name and layers")
    table = cast(dict[str, object], content)
    try:
        name = _text(table, "name", path.stem)
        source = _text(table, "source", "")
    except _Problem as problem:
        raise PlanError(f"{path.name}: {problem}") from None
    entries = table.get("layers")
    if not isinstance(entries, list) or not entries:
        raise PlanError(f"{path.name}: layers must be a list of at least one object")
    layers: list[ConvLayer] = []
    skipped: list[Skipped] = []
    for index, entry in enumerate(cast(list[object], entries)):
        place = f"{path.name}, layer {index}"
        if not isinstance(entry, dict):
            raise PlanError(f"{place}: it must be an object, not {entry!r}")
        fields = cast(dict[str, object], entry)
        try:
            label = _text(fields, "name", f"layer {index}")
            if label != f"layer {index}":
                place += f" ({label!r})"
            operator = _text(fields, "op")
            if operator in ("CONV_2D", "DEPTHWISE_CONV_2D"):
                layers.append(_convolution(fields, operator, label))
            elif operator == "FULLY_CONNECTED":
                layers.append(_fully_connected(fields, label))
            else:
                skipped.append(Skipped(label, operator))
        except (_Problem, ValueError) as problem:
            raise PlanError(f"{place}: {problem}") from None
    return Workload(name, source, tuple(layers), tuple(skipped))


def _text(fields: dict[str, object], key: str, default: str | None = None) -> str:
    value = fields.get(key, default)
    if not isinstance(value, str) or (default is None and not value):
        raise _Problem(
            f"{key} is missing" if key not in fields else f"{key} must be a text, not {value!r}"
        )
    return value


def _is_int(value: object) -> bool:
    # JSON's true and false are integers to Python.
    return isinstance(value, int) and not isinstance(value, bool)


def _ints(
    fields: dict[str, object], key: str, count: int, default: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    if key not in fields:
        if default is None:
            raise _Problem(f"{key} is missing")
        return default
    value = fields[key]
    items = cast(list[object], value) if isinstance(value, list) else []
    if len(items) != count or not all(_is_int(item) for item in items):
        raise _Problem(f"{key} must be a list of {count} integers, not {value!r}")
    return tuple(cast(list[int], items))


def _has_bias(fields: dict[str, object]) -> bool:
    value = fields.get("bias_bytes", 4)
    if not _is_int(value):
        raise _Problem(f"bias_bytes must be an integer, not {value!r}")
    return value != 0


def _convolution(fields: dict[str, object], operator: str, name: str) -> ConvLayer:
    _, height, width, channels = _ints(fields, "in_shape", 4)
    out_shape = _ints(fields, "out_shape", 4)
    kernel = _pair(fields, "kernel")
    stride, dilation = _pair(fields, "stride", 1), _pair(fields, "dilation", 1)
    default = channels if operator == "DEPTHWISE_CONV_2D" else 1
    groups = fields.get("groups", default)
    if not _is_int(groups):
        raise _Problem(f"groups must be an integer, not {groups!r}")
    if operator == "DEPTHWISE_CONV_2D" and groups != channels:
        raise _Problem(
            f"groups of a DEPTHWISE_CONV_2D must be its {channels} input channels, not {groups}"
        )
    layer = ConvLayer(
        in_height=height,
        in_width=width,
        in_channels=channels,
        out_channels=out_shape[3],
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        pads=_pads(fields, (height, width), kernel, stride, dilation),
        groups=cast(int, groups),
        has_bias=_has_bias(fields),
        name=name,
    )
    if out_shape[1:] != layer.output_shape[1:]:
        raise _Problem(
            f"out_shape must be {[out_shape[0], *layer.output_shape[1:]]} by the geometry, "
            f"not {list(out_shape)}"
        )
    return layer


def _pair(fields: dict[str, object], key: str, default: int | None = None) -> tuple[int, int]:
    fallback = None if default is None else (default, default)
    vertical, horizontal = _ints(fields, key, 2, fallback)
    if vertical < 1 or horizontal < 1:
        raise _Problem(f"{key} must be at least 1, not {[vertical, horizontal]}")
    return vertical, horizontal


def _pads(
    fields: dict[str, object],
    extent: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> tuple[int, int, int, int]:
    if "pads_tblr" in fields:
        top, bottom, left, right = _ints(fields, "pads_tblr", 4)
        return top, bottom, left, right
    padding = _text(fields, "padding", "VALID")
    if padding == "SAME":
        return same_pads(extent, kernel, stride, dilation)
    if padding != "VALID":
        raise _Problem(f"padding must be SAME or VALID where pads_tblr is missing, not {padding!r}")
    return 0, 0, 0, 0


def _fully_connected(fields: dict[str, object], name: str) -> ConvLayer:
    sizes: list[int] = []
    for key in ("in_shape", "out_shape"):
        value = fields.get(key)
        if not isinstance(value, list) or len(cast(list[object], value)) < 2:
            raise _Problem(
                f"{key} is missing"
                if key not in fields
                else f"{key} must be a list of at least 2 integers, not {value!r}"
            )
        sizes.append(math.prod(_ints(fields, key, len(cast(list[object], value)))[1:]))
    return ConvLayer(
        in_height=1,
        in_width=1,
        in_channels=sizes[0],
        out_channels=sizes[1],
        kernel=(1, 1),
        has_bias=_has_bias(fields),
        name=name,
    )


# Layers in words

_SYNTAX = (
    "HxWxC then any of k3 or k3x5, s2 or s2x1, d2 or d2x1, p1 or pT,B,L,R or psame, m32, g4, dw, "
    "z-128, nobias"
)
_NUMBER = r"[0-9]{1,9}"
_PAIR = rf"({_NUMBER})(?:x({_NUMBER}))?"
# What a token sets, its form, and the words for an error.
_TOKENS: dict[str, tuple[str, str]] = {
    "k": (_PAIR, "kernel k must be like k3 or k3x5"),
    "s": (_PAIR, "stride s must be like s2 or s2x1"),
    "d": (_PAIR, "dilation d must be like d2 or d2x1"),
    "p": (
        rf"(same|{_NUMBER}(?:,{_NUMBER}){{3}}|{_NUMBER})",
        "pads p must be like p1, p0,1,0,1 (top, bottom, left, right) or psame",
    ),
    "m": (rf"({_NUMBER})", "output channels m must be like m32"),
    "g": (rf"({_NUMBER})", "groups g must be like g4"),
    "z": (rf"(-?{_NUMBER})", "input zero point z must be like z3 or z-128"),
}
_FLAGS = ("dw", "nobias")


def parse_layer(text: str) -> ConvLayer:
    """Return a layer described in words, such as "32x32x16 k3 s1 p1 m32".

    The input shape HxWxC comes first. The rest may follow in any order: kernel ``k3`` or ``k3x5``
    (rows x columns), stride ``s2`` or ``s2x1`` (vertical x horizontal), dilation ``d2`` or
    ``d2x1``, pads ``p1`` (all four), ``p0,1,0,1`` (top, bottom, left, right) or ``psame``, output
    channels ``m32``, groups ``g4``, ``dw`` for a depthwise layer (groups and, unless given, output
    channels are C), input zero point ``z-128``, and ``nobias``. Kernel, stride, dilation and
    groups default to 1, pads and zero point to 0.

    Raises
    ------
    TypeError
        If ``text`` is no text.
    PlanError
        With the word at fault, or with what makes the geometry impossible.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a layer must be a text such as '32x32x16 k3 m32', not {text!r}")
    words = text.split()
    if not words:
        raise PlanError(f"a layer must be {_SYNTAX}; the text is empty")
    shape = re.fullmatch(rf"({_NUMBER})x({_NUMBER})x({_NUMBER})", words[0])
    if shape is None:
        raise PlanError(
            f"a layer must begin with its input HxWxC such as 32x32x16, not {words[0]!r}"
        )
    height, width, channels = (int(part) for part in shape.groups())
    found = _words(words[1:])

    def pair(key: str) -> tuple[int, int]:
        if key not in found:
            return 1, 1
        first, second = found[key].groups()
        return int(first), int(second or first)

    def number(key: str, default: int) -> int:
        return int(found[key][1]) if key in found else default

    depthwise = "dw" in found
    if depthwise and "g" in found:
        raise PlanError(f"dw and {found['g'][0]!r} contradict; dw sets the groups to C")
    if "m" not in found and not depthwise:
        raise PlanError("a layer must say its output channels, such as m32 (or dw)")
    kernel, stride, dilation = pair("k"), pair("s"), pair("d")
    if min(*kernel, *stride, *dilation, height, width) < 1:
        raise PlanError(f"sizes, kernel, stride and dilation must be at least 1 in {text!r}")
    try:
        return ConvLayer(
            in_height=height,
            in_width=width,
            in_channels=channels,
            out_channels=number("m", channels),
            kernel=kernel,
            stride=stride,
            dilation=dilation,
            pads=_word_pads(found, lambda: same_pads((height, width), kernel, stride, dilation)),
            groups=channels if depthwise else number("g", 1),
            in_zero_point=number("z", 0),
            has_bias="nobias" not in found,
        )
    except ValueError as error:
        raise PlanError(f"layer {text!r}: {error}") from None


def _words(words: list[str]) -> dict[str, re.Match[str]]:
    found: dict[str, re.Match[str]] = {}
    for word in words:
        if word in _FLAGS:
            key, match = word, re.fullmatch(".*", word)
            hint = ""
        elif word[0] in _TOKENS:
            key = word[0]
            form, hint = _TOKENS[key]
            match = re.fullmatch(key + form, word)
        else:
            raise PlanError(f"{word!r} is unknown in a layer; it must be {_SYNTAX}")
        if match is None:
            raise PlanError(f"{hint}, not {word!r}")
        if key in found:
            raise PlanError(f"{word!r} repeats {found[key][0]!r}; a layer must say each thing once")
        found[key] = match
    return found


def _word_pads(
    found: dict[str, re.Match[str]], same: Callable[[], tuple[int, int, int, int]]
) -> tuple[int, int, int, int]:
    if "p" not in found:
        return 0, 0, 0, 0
    value: Any = found["p"][1]
    if value == "same":
        return same()
    parts = [int(part) for part in value.split(",")]
    top, bottom, left, right = parts if len(parts) == 4 else parts * 4
    return top, bottom, left, right
