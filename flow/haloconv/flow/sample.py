"""Seeded random data for layers that come without any."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import Requantization

__all__ = ["LayerSample", "sample_inputs", "sample_layer"]

SPREAD = 48.0
"""Standard deviation of the outputs: most codes occur, and some meet the clamp."""


@dataclass(frozen=True, eq=False)
class LayerSample:
    """Weights (M, Rh, Rw, C/groups) int8, bias (M,) int32 or None, and requantization."""

    weights: npt.NDArray[np.int8]
    bias: npt.NDArray[np.int32] | None
    requantization: Requantization | None


def sample_inputs(layer: ConvLayer, seed: int) -> npt.NDArray[np.int8]:
    """Return a uniformly random int8 input of shape (1, H, W, C)."""
    rng = np.random.default_rng([seed, 0])
    return rng.integers(-128, 128, layer.input_shape, dtype=np.int8)


def sample_layer(layer: ConvLayer, seed: int, rounding: str = "double") -> LayerSample:
    """Return random weights and biases, and a scale that spreads the outputs over int8.

    Parameters
    ----------
    layer : ConvLayer
    seed : int
        The same seed gives the same data.
    rounding : str
        A rounding mode, or "raw" for int32 sums without requantisation.
    """
    rng = np.random.default_rng([seed, 1])
    weights = rng.integers(-127, 128, layer.weight_shape, dtype=np.int8)
    # Uniform codes have a deviation of 74; the terms of a sum are independent.
    deviation = 74.0 * 74.0 * float(np.sqrt(layer.taps * layer.group_in_channels))
    bias = None
    if layer.has_bias:
        bias = rng.normal(0.0, deviation / 4, layer.out_channels).astype(np.int32)
    if rounding == "raw":
        return LayerSample(weights, bias, None)
    scale = SPREAD / deviation * rng.uniform(0.5, 1.5, layer.out_channels)
    zero_point = int(rng.integers(-32, 33))
    arguments: dict[str, Any] = {"zero_point": zero_point, "rounding": rounding}
    if rounding == "fp32":
        return LayerSample(
            weights, bias, Requantization(scale=scale.astype(np.float32), **arguments)
        )
    fraction, exponent = np.frexp(scale)
    # 2**31 - 1 at most: rounding up to 2**31 would have to carry into the exponent.
    multiplier = np.minimum(np.rint(fraction * 2.0**31), 2.0**31 - 1).astype(np.int64)
    return LayerSample(
        weights,
        bias,
        Requantization(multiplier=multiplier, shift=exponent.astype(np.int64), **arguments),
    )
