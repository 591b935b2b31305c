"""What attributes of ONNX nodes say of windows on images and of shapes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haloconv.planner.conventions import same_pads

__all__ = ["Window", "image_window", "rearranged_shape"]


@dataclass(frozen=True)
class Window:
    """Kernel, stride and dilation, each (vertical, horizontal); pads top, bottom, left, right."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int, int, int]

    def outputs(self, extent: Sequence[int]) -> tuple[int, int]:
        """Return the output positions on an input of ``extent`` (H, W)."""
        found = [
            (size + self.pads[2 * axis] + self.pads[2 * axis + 1] - (taps - 1) * gap - 1) // step
            for axis, (size, taps, gap, step) in enumerate(
                zip(extent, self.kernel, self.dilation, self.stride, strict=True)
            )
        ]
        return found[0] + 1, found[1] + 1


def _pair(name: str, values: Sequence[int]) -> tuple[int, int]:
    if len(values) != 2 or min(values) < 1:
        raise ValueError(f"{name} must be two positive numbers, not {list(values)}")
    return values[0], values[1]


def image_window(
    attributes: Mapping[str, Any], extent: tuple[int, int], kernel: Sequence[int] = ()
) -> Window:
    """Return the window of a node on images of ``extent`` (H, W).

    Parameters
    ----------
    attributes : mapping
        Of the node: kernel_shape, strides, dilations, pads, auto_pad, ceil_mode.
    extent : (int, int)
    kernel : (int, int)
        Where the node does not say, that of the weights.

    Raises
    ------
    ValueError
        For attributes that make no window on images.
    """
    size = _pair("kernel", attributes.get("kernel_shape", kernel))
    stride = _pair("strides", attributes.get("strides", (1, 1)))
    dilation = _pair("dilations", attributes.get("dilations", (1, 1)))
    auto = attributes.get("auto_pad", "NOTSET")
    if auto == "NOTSET":
        flat = attributes.get("pads", (0, 0, 0, 0))
        if len(flat) != 4 or min(flat) < 0:
            raise ValueError(f"pads must be four numbers of at least 0, not {list(flat)}")
        pads = (flat[0], flat[2], flat[1], flat[3])
    elif auto == "VALID":
        pads = (0, 0, 0, 0)
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = same_pads(extent, size, stride, dilation)
        if auto == "SAME_LOWER":
            pads = (pads[1], pads[0], pads[3], pads[2])
    else:
        raise ValueError(f"auto_pad must be NOTSET, VALID or SAME, not {auto}")
    if attributes.get("ceil_mode", 0):
        pads = _ceil_pads(extent, size, stride, dilation, pads)
    return Window(size, stride, dilation, pads)


def _ceil_pads(
    extent: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    pads: tuple[int, int, int, int],
) -> tuple[int, int, int, int]:
    """Return pads with which an output rounded down is as large as the one rounded up was."""
    ends: list[int] = []
    for axis in range(2):
        before, after, step = pads[2 * axis], pads[2 * axis + 1], stride[axis]
        window = (kernel[axis] - 1) * dilation[axis] + 1
        count = -(-(extent[axis] + before + after - window) // step) + 1
        if (count - 1) * step >= extent[axis] + before:
            count -= 1  # a window that would see nothing but pads
        ends.append(max(0, (count - 1) * step + window - extent[axis] - before))
    return pads[0], ends[0], pads[2], ends[1]


def rearranged_shape(
    kind: str,
    shape: tuple[int, ...],
    attributes: Mapping[str, Any],
    numbers: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Return the shape that Flatten, Reshape, Squeeze or Unsqueeze makes of ``shape``.

    Parameters
    ----------
    kind : str
    shape : tuple of int
    attributes : mapping
        Of the node.
    numbers : sequence of int or None
        The node's second input: new shape or axes; older files have them as attribute.

    Raises
    ------
    ValueError
        If the shapes do not hold as many values.
    """
    rank = len(shape)
    if kind == "Flatten":
        axis = attributes.get("axis", 1)
        axis += rank if axis < 0 else 0
        return math.prod(shape[:axis]), math.prod(shape[axis:])
    if numbers is None:
        numbers = attributes.get("shape" if kind == "Reshape" else "axes")
    if kind == "Reshape":
        if numbers is None:
            raise ValueError("it must have a shape")
        keep = not attributes.get("allowzero", 0)
        wanted = [
            shape[i] if n == 0 and keep and i < rank else int(n) for i, n in enumerate(numbers)
        ]
        if wanted.count(-1) == 1:
            rest = -math.prod(wanted)
            wanted[wanted.index(-1)] = math.prod(shape) // rest if rest else 0
    elif kind == "Squeeze":
        axes = (
            [axis for axis, n in enumerate(shape) if n == 1]
            if numbers is None
            else [axis % rank for axis in numbers]
        )
        wanted = [n for axis, n in enumerate(shape) if axis not in axes]
    else:
        axes = [axis % (rank + len(numbers or ())) for axis in numbers or ()]
        wanted = list(shape)
        for axis in sorted(axes):
            wanted.insert(axis, 1)
    if min(wanted, default=1) < 1 or math.prod(wanted) != math.prod(shape):
        raise ValueError(f"shape {wanted} must hold as many values as {shape}")
    return tuple(wanted)
