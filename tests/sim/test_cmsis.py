"""Unit-test vectors of CMSIS-NN through the simulated engine."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import plan_layer
from haloconv.planner.requantization import Requantization
from haloconv.sim.backend import choose_backend
from haloconv.sim.layer import simulate_layer

from ..support.networks import SMALL_ENGINE

VECTORS = Path(__file__).parents[3] / "shared" / "models" / "cmsis_nn_vectors.json"
COMPILED = choose_backend("auto").name == "cxxrtl"
NAMES = (
    *("conv_1_x_n_1", "conv_1_x_n_3", "conv_1_x_n_5", "conv_1_x_n_7"),
    *("depthwise_2", "depthwise_eq_in_out_ch", "depthwise_kernel_3x3_null_bias"),
    *("depthwise_null_bias_1", "depthwise_sub_block"),
    *("conv_2x2_dilation", "conv_2x3_dilation", "conv_3x3_dilation_5x5_input"),
    *("grouped_conv", "grouped_conv_2", "grouped_conv_4"),
    *("kernel1x1", "kernel1x1_stride_x_y", "kernel1x1_stride_x_y_2"),
    *("basic", "conv_3", "conv_5", "in_ch_one_out_ch_larger_one"),
)
TRANSPOSED = (
    *("reverse_transpose_conv_1", "reverse_transpose_conv_3"),
    *("transpose_conv_1", "transpose_conv_3"),
)
"""The engine has no transposed convolution."""


@cache
def cases():
    if not VECTORS.exists():
        pytest.skip("the CMSIS-NN vectors are not beside the checkout")
    return json.loads(VECTORS.read_text())["cases"]


def pads(before, size, out, stride, window):
    """Pads before and after one axis: what follows is what the output's extent asks for."""
    return before, max((out - 1) * stride + window - size - before, 0)


def test_every_vector_is_run_or_left_out_by_name():
    assert set(cases()) == {*NAMES, *TRANSPOSED}
    types = {name: case["types"] for name, case in cases().items()}
    for name, found in types.items():
        assert found["input"] == found["weights"] == found["output_ref"] == "int8_t", name


@pytest.mark.parametrize("name", NAMES)
def test_vector(name):
    case = cases()[name]
    c, arrays = case["config"], case["arrays"]
    depthwise = "CH_MULT" in c
    kernel, stride = (c["FILTER_Y"], c["FILTER_X"]), (c["STRIDE_Y"], c["STRIDE_X"])
    dilation = (c["DILATION_Y"], c["DILATION_X"])
    window = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    layer = ConvLayer(
        in_height=c["INPUT_H"],
        in_width=c["INPUT_W"],
        in_channels=c["IN_CH"],
        out_channels=c["OUT_CH"],
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        pads=(
            *pads(c["PAD_Y"], c["INPUT_H"], c["OUTPUT_H"], stride[0], window[0]),
            *pads(c["PAD_X"], c["INPUT_W"], c["OUTPUT_W"], stride[1], window[1]),
        ),
        groups=c["IN_CH"] if depthwise else c["IN_CH"] // c.get("FILTER_CH", c["IN_CH"]),
        in_zero_point=-c["INPUT_OFFSET"],
        name=name,
    )
    batch = c["INPUT_BATCHES"]
    inputs = np.array(arrays["input"], np.int8).reshape(batch, *layer.input_shape[1:])
    weights = np.array(arrays["weights"], np.int8)
    if depthwise:  # stored as (1, Rh, Rw, M)
        weights = weights.reshape(*kernel, layer.out_channels).transpose(2, 0, 1)[..., None]
    weights = np.ascontiguousarray(weights.reshape(layer.weight_shape))
    bias = np.array(arrays["biases"], np.int32)
    how = Requantization(
        multiplier=np.array(arrays["output_mult"]),
        shift=np.array(arrays["output_shift"]),
        zero_point=c["OUTPUT_OFFSET"],
        clamp=(c["OUT_ACTIVATION_MIN"], c["OUT_ACTIVATION_MAX"]),
    )
    expected = np.array(arrays["output_ref"], np.int8)
    expected = expected.reshape(batch, c["OUTPUT_H"], c["OUTPUT_W"], c["OUT_CH"])
    if not COMPILED and batch * plan_layer(layer, SMALL_ENGINE).cycles > 20_000:
        pytest.skip("takes too long in Amaranth's simulator")
    result = simulate_layer(
        layer,
        SMALL_ENGINE,
        inputs=inputs,
        weights=weights,
        bias=bias,
        requantization=how,
        backend="auto",
    )
    np.testing.assert_array_equal(result.output, expected)
    assert abs(result.cycles - batch * result.plan.cycles) <= 0.01 * result.cycles
