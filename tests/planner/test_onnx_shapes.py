"""Windows and shapes of ONNX nodes, by hand."""

import re

import pytest

from haloconv.planner.onnx_shapes import Window, image_window, rearranged_shape


def test_defaults_come_from_the_weights():
    assert image_window({}, (5, 6), (3, 2)) == Window((3, 2), (1, 1), (1, 1), (0, 0, 0, 0))


def test_pads_are_listed_by_side():
    window = image_window({"kernel_shape": [3, 3], "pads": [1, 2, 3, 4]}, (5, 6))
    assert window.pads == (1, 3, 2, 4)  # top, bottom, left, right
    assert window.outputs((5, 6)) == (7, 10)


@pytest.mark.parametrize(
    ("auto", "pads"),
    [("VALID", (0, 0, 0, 0)), ("SAME_UPPER", (0, 1, 1, 2)), ("SAME_LOWER", (1, 0, 2, 1))],
)
def test_auto_pad(auto, pads):
    # Down: ceil(6 / 2) = 3 outputs reach 2 * 2 + 3 = 7 rows; across: 7 outputs reach 6 + 4 = 10.
    given = {"kernel_shape": [3, 4], "strides": [2, 1], "auto_pad": auto, "pads": [9, 9, 9, 9]}
    window = image_window(given, (6, 7))
    assert window.pads == pads
    if auto != "VALID":
        assert window.outputs((6, 7)) == (3, 7)


def test_dilation_widens_the_window():
    window = image_window({"dilations": [2, 3]}, (9, 9), (3, 2))
    assert window.outputs((9, 9)) == (5, 6)


@pytest.mark.parametrize(
    ("extent", "kernel", "stride", "pads", "outputs"),
    [
        ((4, 4), 3, 2, [0, 0, 0, 0], (2, 2)),
        ((5, 5), 3, 2, [0, 0, 0, 0], (2, 2)),
        # The fourth window would start at 3 * 2 = 6, behind 5 values and one pad before.
        ((5, 5), 1, 2, [1, 1, 1, 1], (3, 3)),
        ((2, 2), 1, 2, [0, 0, 0, 0], (1, 1)),
    ],
)
def test_outputs_rounded_up(extent, kernel, stride, pads, outputs):
    given = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads, "ceil_mode": 1}
    assert image_window(given, extent).outputs(extent) == outputs


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({}, "kernel must be two positive numbers, not []"),
        ({"kernel_shape": [3]}, "kernel must be two positive numbers, not [3]"),
        ({"kernel_shape": [1, 1], "strides": [0, 1]}, "strides must be two positive numbers"),
        ({"kernel_shape": [1, 1], "dilations": [1]}, "dilations must be two positive numbers"),
        ({"kernel_shape": [1, 1], "pads": [0, 0, -1, 0]}, "pads must be four numbers of at least"),
        ({"kernel_shape": [1, 1], "auto_pad": "SOME"}, "auto_pad must be NOTSET, VALID or SAME"),
    ],
)
def test_what_is_no_window(attributes, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        image_window(attributes, (5, 5))


@pytest.mark.parametrize(
    ("kind", "attributes", "numbers", "expected"),
    [
        ("Flatten", {}, None, (2, 12)),
        ("Flatten", {"axis": 0}, None, (1, 24)),
        ("Flatten", {"axis": -1}, None, (6, 4)),
        ("Reshape", {}, [0, -1], (2, 12)),
        ("Reshape", {}, [4, 6], (4, 6)),
        ("Reshape", {"shape": [24]}, None, (24,)),
        ("Squeeze", {}, None, (2, 3, 4)),
        ("Squeeze", {}, [1], (2, 3, 4)),
        ("Unsqueeze", {}, [0, -1], (1, 2, 1, 3, 4, 1)),
        ("Unsqueeze", {"axes": [2]}, None, (2, 1, 1, 3, 4)),
    ],
)
def test_rearranged_shapes(kind, attributes, numbers, expected):
    assert rearranged_shape(kind, (2, 1, 3, 4), attributes, numbers) == expected


@pytest.mark.parametrize(
    ("kind", "numbers", "reason"),
    [
        ("Reshape", None, "it must have a shape"),
        ("Reshape", [5, -1], "shape [5, 4] must hold as many values as (2, 1, 3, 4)"),
        ("Reshape", [-1, -1], "shape [-1, -1] must hold as many values"),
        ("Squeeze", [0], "shape [1, 3, 4] must hold as many values"),
    ],
)
def test_shapes_that_do_not_fit(kind, numbers, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        rearranged_shape(kind, (2, 1, 3, 4), {}, numbers)
