"""Small .tflite networks for tests of whole networks.

Test files load it by path, as importlib mode lets them import no siblings.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

_spec = importlib.util.spec_from_file_location(
    "tflite_builder", Path(__file__).with_name("tflite_builder.py")
)
assert _spec is not None and _spec.loader is not None
builder: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(builder)
T, Op = builder.T, builder.Op

_SAME, _RELU = 0, 1


def _filter(rng: np.random.Generator, shape: tuple[int, ...], channels: int, axis: int = 0) -> Any:
    return T(
        shape,
        scales=rng.uniform(0.004, 0.008, channels).astype(np.float32),
        zero_points=[0] * channels,
        data=rng.integers(-127, 128, shape).astype(np.int8),
        dimension=axis,
    )


def _bias(rng: np.random.Generator, channels: int) -> Any:
    data = rng.integers(-800, 800, channels).astype(np.int32)
    return T((channels,), scales=None, data=data)


def chain(seed: int = 0) -> bytes:
    """Return input 6x6x2, a convolution, LOGISTIC on the host, a convolution, output 6x6x3."""
    rng = np.random.default_rng(seed)
    tensors = [
        T((1, 6, 6, 2), scales=(0.02,), zero_points=(-5,), name="image"),
        _filter(rng, (4, 3, 3, 2), 4),
        _bias(rng, 4),
        T((1, 6, 6, 4), scales=(0.05,), zero_points=(3,), name="sums"),
        T((1, 6, 6, 4), scales=(1 / 256,), zero_points=(-128,), name="shares"),
        _filter(rng, (3, 1, 1, 4), 3),
        _bias(rng, 3),
        T((1, 6, 6, 3), scales=(0.01,), zero_points=(-20,), name="scores"),
    ]
    operators = [
        Op("CONV_2D", (0, 1, 2), (3,), {"Padding": _SAME, "StrideH": 1, "StrideW": 1}),
        Op("LOGISTIC", (3,), (4,)),
        Op("CONV_2D", (4, 5, 6), (7,), {"Padding": _SAME, "StrideH": 1, "StrideW": 1}),
    ]
    return builder.build(tensors, operators)


def residual(seed: int = 0) -> bytes:
    """Return input 6x6x4, a depthwise convolution, ADD, maximum pooling, output 3x3x4."""
    rng = np.random.default_rng(seed)
    tensors = [
        T((1, 6, 6, 4), scales=(0.02,), zero_points=(-5,), name="image"),
        _filter(rng, (1, 3, 3, 4), 4, axis=3),
        _bias(rng, 4),
        T((1, 6, 6, 4), scales=(0.03,), zero_points=(-128,), name="features"),
        T((1, 6, 6, 4), scales=(0.04,), zero_points=(-100,), name="total"),
        T((1, 3, 3, 4), scales=(0.04,), zero_points=(-100,), name="largest"),
    ]
    window = {"Padding": _SAME, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    operators = [
        Op("DEPTHWISE_CONV_2D", (0, 1, 2), (3,), {"FusedActivationFunction": _RELU}),
        Op("ADD", (0, 3), (4,)),
        Op("MAX_POOL_2D", (4,), (5,), window),
    ]
    return builder.build(tensors, operators)
