"""Random data is repeatable and exercises the whole int8 range."""

import numpy as np
import pytest

from haloconv.flow.sample import sample_inputs, sample_layer
from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import ROUNDINGS
from haloconv.sim.golden import golden_layer

LAYERS = (
    ConvLayer(16, 16, 8, 12, (3, 3), pads=(1, 1, 1, 1), in_zero_point=-9),
    ConvLayer(24, 24, 6, 6, (3, 3), groups=6, has_bias=False),
    ConvLayer(12, 12, 64, 16, (1, 1)),
)


def test_the_seed_decides() -> None:
    layer = LAYERS[0]
    assert np.array_equal(sample_inputs(layer, 3), sample_inputs(layer, 3))
    assert not np.array_equal(sample_inputs(layer, 3), sample_inputs(layer, 4))
    one, same, other = (sample_layer(layer, seed).weights for seed in (3, 3, 4))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("layer", LAYERS)
def test_shapes_and_types(layer: ConvLayer) -> None:
    data = sample_layer(layer, 1)
    assert sample_inputs(layer, 1).shape == (1, layer.in_height, layer.in_width, layer.in_channels)
    assert data.weights.dtype == np.int8
    assert data.weights.shape == (
        layer.out_channels,
        *layer.kernel,
        layer.in_channels // layer.groups,
    )
    if layer.has_bias:
        assert data.bias is not None
        assert data.bias.dtype == np.int32
        assert data.bias.shape == (layer.out_channels,)
    else:
        assert data.bias is None


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("layer", LAYERS)
def test_outputs_spread_over_int8(layer: ConvLayer, rounding: str) -> None:
    data = sample_layer(layer, 5, rounding)
    assert data.requantization is not None
    assert data.requantization.rounding == rounding
    output = golden_layer(
        layer, sample_inputs(layer, 5), data.weights, data.bias, data.requantization, None
    )
    assert 20 < output.astype(float).std() < 90
    assert len(np.unique(output)) > 150


def test_raw_has_no_requantisation() -> None:
    assert sample_layer(LAYERS[0], 1, "raw").requantization is None


def test_fixed_point_is_the_scale() -> None:
    """The same seed draws the same scale for every mode."""
    fixed = sample_layer(LAYERS[0], 2, "double").requantization
    real = sample_layer(LAYERS[0], 2, "fp32").requantization
    assert fixed is not None
    assert real is not None
    exact = fixed.multiplier * 2.0 ** (fixed.shift - 31.0)
    assert np.allclose(exact, real.scale, rtol=1e-6)
