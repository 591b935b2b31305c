"""What is printed of a network's run, from records made by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from haloconv.flow.network_report import (
    first_difference,
    network_table,
    node_title,
    output_lines,
    output_records,
    total_lines,
)
from haloconv.flow.report import console
from haloconv.planner.network import MoveNode, Network, NetworkTensor
from haloconv.sim.network import LayerRecord, NetworkReport

NETWORK = Network(
    "net",
    "tflm",
    {
        0: NetworkTensor(0, "in", (1, 4), "int8", 0.5, 0),
        1: NetworkTensor(1, "middle", (1, 4), "int8", 0.5, 0),
        2: NetworkTensor(2, "end;fused", (1, 6), "int8", 0.25, -10),
    },
    (
        MoveNode(index=0, name="a", operator="PAD", inputs=(0,), outputs=(1,), kind="pad"),
        MoveNode(index=1, name="b", operator="SLICE", inputs=(1,), outputs=(2,), kind="slice"),
    ),
    (0,),
    (2,),
)
OUTPUT = np.array([[5, -3, 90, 90, -128, 7]], np.int8)


def report(*, counted: int = 500, host: bool = True) -> NetworkReport:
    layers = [
        LayerRecord(3, "conv/Relu;more", "CONV_2D", "engine", 1000, 1010, 500, 64640, 1.0),
        LayerRecord(4, "sum", "ADD", "engine", 200, 198, 0, 0, 0.0),
    ]
    if host:
        layers.append(LayerRecord(5, "end", "SOFTMAX", "host", 0, 0, 0, 0, 0.0, "no unit"))
    return NetworkReport(
        "net", "tflm", "amaranth", 1208, 1200, counted, 500, 64640, 0.836, 10, 90, tuple(layers)
    )


def shown(capsys: pytest.CaptureFixture[str], renderable: object) -> str:
    console().print(renderable)
    return capsys.readouterr().out


def test_titles() -> None:
    assert node_title("a/Relu;b;c") == "a/Relu"
    long = node_title("x" * 50 + "/end")
    assert len(long) == 32 and long.startswith("…") and long.endswith("/end")


def test_outputs_by_hand() -> None:
    # The largest five; of the two 90 the first leads. (90 + 10) / 4 = 25.
    line = output_lines(NETWORK, [OUTPUT])
    assert line == (
        "output end, 1x6 int8: 2: 90 (25), 3: 90 (25), 5: 7 (4.25), 0: 5 (3.75), 1: -3 (1.75)"
        "; 1 more, none larger"
    )
    (record,) = output_records(NETWORK, [OUTPUT])
    assert record["largest"][2] == {"code": 7, "index": [0, 5], "value": 4.25}
    assert (record["name"], record["shape"], record["tensor"]) == ("end;fused", [1, 6], 2)


def test_small_and_plain_outputs() -> None:
    tensors = {
        0: NetworkTensor(0, "p", (1, 1), "int8", 0.5, 1),
        1: NetworkTensor(1, "q", (2,), "float32"),
    }
    network = Network("net", "tflm", tensors, (), (), (0, 1))
    values: list[Any] = [np.array([[3]], np.int8), np.array([0.5, 1.5], np.float32)]
    assert output_lines(network, values).splitlines() == [
        "output p, 1x1 int8: 3 (1)",
        "output q, 2 float32: 1: 1.5, 0: 0.5",
    ]


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, network_table(report()))
    rows = [line.split() for line in out.splitlines()]
    assert ["3", "CONV_2D", "conv/Relu", "engine", "1,000", "1,010", "+1.00", "%", "500", "64,640",
            "100.0", "%"] in rows  # fmt: skip
    assert ["4", "ADD", "sum", "engine", "200", "198", "-1.00", "%", "0", "0", "-"] in rows
    assert ["5", "SOFTMAX", "end", "host", *"------"] in rows
    assert ["total", "1,200", "1,208", "+0.67", "%", "500", "64,640", "83.6", "%"] in rows


def test_totals() -> None:
    assert total_lines(report()).splitlines() == [
        "bytes: 500 predicted, as many counted",
        "host: 1 of 3 operators, 10.0 % of all elements",
        "  5 SOFTMAX end: no unit",
    ]
    lines = total_lines(report(counted=510, host=False)).splitlines()
    assert lines[0] == "bytes: 500 predicted, but 510 counted"
    assert lines[1] == "host: nothing, the engine ran the whole network"


def result(middle: Any, output: Any) -> Any:
    return SimpleNamespace(
        program=SimpleNamespace(network=NETWORK),
        tensors={} if middle is None else {1: np.array(middle, np.int8)},
        outputs=[np.array(output, np.int8)],
    )


def test_differences() -> None:
    middle = np.array([[1, 2, 3, 4]], np.int8)
    expected = {0: middle, 1: middle, 2: OUTPUT}
    assert first_difference(result(middle, OUTPUT), expected) is None
    wrong = OUTPUT.copy()
    wrong[0, 4:] = 1
    found = first_difference(result(None, wrong), expected)
    assert found is not None and found[0] == 1
    assert found[1] == (
        "tensor 2 end of SLICE (operator 1) differs in 2 of 6 elements, first at [0, 4]: "
        "1 instead of -128"
    )
    found = first_difference(result([[1, 2, 3, 5]], wrong), expected)
    assert found is not None and found[0] == 2
    assert found[1].startswith("tensor 1 middle of PAD (operator 0) differs in 1 of 4 elements")
