"""What model files leave to convention: SAME padding, fixed-point scales, folded activations."""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ACTIVATIONS", "activation_clamp", "fixed_point", "float32_scale", "same_pads"]

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")
"""Activations that fold into the output clamp, by their TFLite names."""


def same_pads(
    extent: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
) -> tuple[int, int, int, int]:
    """Return (top, bottom, left, right) of SAME padding for an input of ``extent`` (H, W).

    The output has ceil(in / S) positions and pads as little as that takes, the odd one after.
    """
    pads: list[int] = []
    for size, taps, step, gap in zip(extent, kernel, stride, dilation, strict=True):
        outputs = -(-size // step)
        total = max(0, (outputs - 1) * step + (taps - 1) * gap + 1 - size)
        pads += [total // 2, total - total // 2]
    return pads[0], pads[1], pads[2], pads[3]


def fixed_point(scales: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (multiplier, shift) with scale = multiplier * 2**(shift - 31) for each real scale.

    The 31 bit fraction is rounded half away from zero. Scales whose shift would fall below -31
    become 0, as in the reference kernels.

    Parameters
    ----------
    scales : array of float64
        Finite and not negative.
    """
    # frexp and the product with 2**31 are exact in float64, and so is the sum with 1/2 wherever
    # it does not carry into 2**31, which the next step takes care of.
    fraction, exponent = np.frexp(np.asarray(scales, np.float64))
    multiplier = np.floor(fraction * 2.0**31 + 0.5).astype(np.int64)
    shift = exponent.astype(np.int64)
    carried = multiplier == 2**31
    multiplier = np.where(carried, 2**30, multiplier)
    shift = np.where(carried, shift + 1, shift)
    tiny = (shift < -31) | (multiplier == 0)
    return np.where(tiny, 0, multiplier), np.where(tiny, 0, shift)


def float32_scale(in_scale: Any, weight_scales: Any, out_scale: Any) -> npt.NDArray[np.float32]:
    """Return Sx * Sw / Sy for the rounding "fp32", both steps in float32 as XNNPACK takes them."""
    product = np.float32(in_scale) * np.asarray(weight_scales, np.float32)
    return np.asarray(product / np.float32(out_scale), np.float32)


def activation_clamp(activation: str, scale: Any, zero_point: int) -> tuple[int, int]:
    """Return the lowest and the highest int8 code that ``activation`` leaves.

    Parameters
    ----------
    activation : str
        One of :data:`ACTIVATIONS`.
    scale : float32
        Scale of the output.
    zero_point : int
        Zero point of the output.

    Raises
    ------
    ValueError
        If the activation does not fold into a clamp.
    """
    bounds: dict[str, tuple[float | None, float | None]] = {
        "NONE": (None, None),
        "RELU": (0.0, None),
        "RELU_N1_TO_1": (-1.0, 1.0),
        "RELU6": (0.0, 6.0),
    }
    if activation not in bounds:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r}")

    def code(real: float) -> int:
        # The quotient is a float32 in the reference kernels; halves go away from zero.
        with np.errstate(over="ignore"):
            quotient = float(np.float32(real) / np.float32(scale))
        magnitude = int(min(abs(quotient), 1024.0) + 0.5)
        return zero_point + (magnitude if quotient >= 0 else -magnitude)

    low, high = bounds[activation]
    return (
        -128 if low is None else max(-128, code(low)),
        127 if high is None else min(127, code(high)),
    )
