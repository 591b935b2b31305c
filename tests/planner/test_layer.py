"""Layer geometry against hand-worked figures and brute force; each refusal by its message."""

import dataclasses
import re

import numpy as np
import pytest

from haloconv.planner.layer import ConvLayer

GOOD = {
    "in_height": 8,
    "in_width": 10,
    "in_channels": 6,
    "out_channels": 4,
    "kernel": (3, 5),
}


def test_hand_worked_figures():
    layer = ConvLayer(**GOOD, stride=(2, 1), dilation=(1, 2), pads=(1, 2, 3, 4), groups=2)
    assert (layer.padded_height, layer.padded_width) == (11, 17)
    assert layer.window == (3, 9)
    assert (layer.out_height, layer.out_width) == (5, 9)
    assert (layer.group_in_channels, layer.group_out_channels) == (3, 2)
    assert layer.taps == 15
    assert layer.macs == 5 * 9 * 4 * 15 * 3
    assert layer.input_shape == (1, 8, 10, 6)
    assert layer.weight_shape == (4, 3, 5, 3)
    assert layer.output_shape == (1, 5, 9, 4)
    assert layer.span(2, 3) == (5, 11)


def test_worked_spans():
    # Two outputs of a 3x3 kernel span 4 rows at stride 1 and 5 at stride 2.
    assert ConvLayer(8, 8, 2, 2, (3, 3)).span(2, 2) == (4, 4)
    assert ConvLayer(8, 8, 2, 2, (3, 3), (2, 2)).span(2, 2) == (5, 5)


@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "depthwise"),
    [(6, 6, 6, True), (6, 12, 6, True), (6, 6, 3, False), (6, 6, 1, False), (1, 8, 1, False)],
)
def test_depthwise(channels, outputs, groups, depthwise):
    layer = ConvLayer(8, 8, channels, outputs, (3, 3), groups=groups)
    assert layer.is_depthwise is depthwise


def test_known_layers():
    # ResNet-50's first layer, MobileNetV1's first depthwise one, the first keyword-spotting one.
    first = ConvLayer(224, 224, 3, 64, (7, 7), (2, 2), pads=(3, 3, 3, 3))
    assert first.output_shape == (1, 112, 112, 64) and first.macs == 118013952
    depthwise = ConvLayer(112, 112, 32, 32, (3, 3), pads=(1, 1, 1, 1), groups=32)
    assert depthwise.output_shape == (1, 112, 112, 32) and depthwise.macs == 3612672
    speech = ConvLayer(49, 10, 1, 64, (10, 4), (2, 2), pads=(4, 5, 1, 1))
    assert speech.output_shape == (1, 25, 5, 64) and speech.macs == 320000


@pytest.mark.parametrize("seed", range(20))
def test_output_size_and_span_against_enumeration(seed):
    rng = np.random.default_rng(seed)
    kernel = tuple(int(n) for n in rng.integers(1, 5, 2))
    dilation = tuple(int(n) for n in rng.integers(1, 4, 2))
    stride = tuple(int(n) for n in rng.integers(1, 5, 2))
    pads = tuple(int(n) for n in rng.integers(0, 6, 4))
    extent = tuple(int(rng.integers((kernel[i] - 1) * dilation[i] + 1, 20)) for i in range(2))
    layer = ConvLayer(*extent, 1, 1, kernel, stride, dilation, pads)
    for axis, found in enumerate((layer.out_height, layer.out_width)):
        before, after = pads[2 * axis : 2 * axis + 2]
        size = before + extent[axis] + after
        taps = [tap * dilation[axis] for tap in range(kernel[axis])]
        starts = [n for n in range(0, size, stride[axis]) if n + taps[-1] < size]
        assert found == len(starts)
        for count in range(1, found + 1):
            touched = {start + tap for start in starts[:count] for tap in taps}
            assert layer.span(count, count)[axis] == max(touched) - min(touched) + 1


def test_pads_beyond_the_kernel_and_the_input():
    layer = ConvLayer(1, 1, 1, 1, (2, 2), pads=(5, 0, 0, 7))
    assert layer.output_shape == (1, 5, 7, 1)
    # The pads alone may hold the window.
    assert ConvLayer(1, 4, 1, 1, (3, 3), pads=(2, 0, 0, 0)).out_height == 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"in_height": 0}, ValueError, "in_height must be at least 1, not 0"),
        ({"in_height": 32768}, ValueError, "in_height must be at most 32767, not 32768"),
        ({"in_width": 2.0}, TypeError, "in_width must be an integer, not 2.0"),
        ({"in_width": 32768}, ValueError, "in_width must be at most 32767, not 32768"),
        ({"in_channels": 65536}, ValueError, "in_channels must be at most 65535, not 65536"),
        ({"out_channels": 0}, ValueError, "out_channels must be at least 1, not 0"),
        ({"kernel": 3}, TypeError, "kernel must be 2 integers, not 3"),
        ({"kernel": (3,)}, ValueError, "kernel must be 2 integers, not (3,)"),
        ({"kernel": (256, 1)}, ValueError, "kernel must be at most 255, not 256"),
        ({"stride": (0, 1)}, ValueError, "stride must be at least 1, not 0"),
        ({"stride": (1, 256)}, ValueError, "stride must be at most 255, not 256"),
        ({"dilation": (1, 0)}, ValueError, "dilation must be at least 1, not 0"),
        ({"pads": (0, 0)}, ValueError, "pads must be 4 integers, not (0, 0)"),
        ({"pads": (0, 0, 0, -1)}, ValueError, "pads must be at least 0, not -1"),
        ({"groups": 0}, ValueError, "groups must be at least 1, not 0"),
        ({"groups": 4}, ValueError, "groups must divide in_channels 6, not 4"),
        ({"groups": 3}, ValueError, "groups must divide out_channels 4, not 3"),
        ({"in_zero_point": -129}, ValueError, "in_zero_point must be at least -128, not -129"),
        ({"in_zero_point": 128}, ValueError, "in_zero_point must be at most 127, not 128"),
        (
            {"pads": (32767, 0, 0, 0)},
            ValueError,
            "input height with its pads must be at most 32767, not 32775",
        ),
        (
            {"pads": (0, 0, 20000, 20000)},
            ValueError,
            "input width with its pads must be at most 32767, not 40010",
        ),
        (
            {"kernel": (9, 1)},
            ValueError,
            (
                "the dilated kernel must fit the padded input, but its height is 9 and the padded "
                "input's is 8; pad more or use a smaller kernel"
            ),
        ),
        (
            {"dilation": (1, 3)},
            ValueError,
            (
                "the dilated kernel must fit the padded input, but its width is 13 and the padded "
                "input's is 10"
            ),
        ),
    ],
)
def test_refusals(change, error, message):
    with pytest.raises(error, match=re.escape(message)):
        ConvLayer(**(GOOD | change))


def test_fields_become_plain_and_frozen():
    layer = ConvLayer(np.int64(8), 8, 2, 2, np.array([3, 3]), [1, 1], has_bias=False)  # type: ignore[arg-type]
    assert layer == ConvLayer(8, 8, 2, 2, (3, 3), has_bias=False)
    assert type(layer.in_height) is int and layer.kernel == (3, 3) and layer.has_bias is False
    assert hash(layer) == hash(ConvLayer(8, 8, 2, 2, (3, 3), has_bias=False))
    with pytest.raises(dataclasses.FrozenInstanceError):
        layer.in_height = 9  # type: ignore[misc]
