"""Writes small .tflite files for tests, right or wrong in one chosen point.

Test files load it by path, as importlib mode lets them import no siblings.
"""

from dataclasses import dataclass, field
from typing import Any, cast

import flatbuffers
import numpy as np
import tflite

schema = cast(Any, tflite)


@dataclass
class T:
    """A tensor: its type is that of ``data``, or ``dtype`` where there is none."""

    shape: tuple[int, ...]
    scales: Any = (0.5,)
    zero_points: Any = None
    dtype: str = "int8"
    data: np.ndarray | None = None
    dimension: int = 0
    name: str = ""
    sparse: bool = False


@dataclass
class Op:
    """An operator; ``options`` are the fields of its option table under their schema names."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: dict[str, Any] | None = field(default_factory=dict)
    custom: str = ""


TABLES = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "ADD": "AddOptions",
    "SUB": "SubOptions",
    "MUL": "MulOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "CONCATENATION": "ConcatenationOptions",
    "MEAN": "ReducerOptions",
    "RESHAPE": "ReshapeOptions",
    "SOFTMAX": "SoftmaxOptions",
}
DEFAULTS = {
    "CONV_2D": {"StrideH": 1, "StrideW": 1},
    "DEPTHWISE_CONV_2D": {"StrideH": 1, "StrideW": 1, "DepthMultiplier": 1},
}


def build(
    tensors: list[T],
    operators: list[Op],
    inputs: tuple[int, ...] = (0,),
    outputs: tuple[int, ...] = (),
    version: int = 3,
    graphs: int = 1,
    description: str = "made for a test",
) -> bytes:
    """Return the file."""
    b = flatbuffers.Builder(1024)

    def offsets(items: list[int]) -> int:
        b.StartVector(4, len(items), 4)
        for item in reversed(items):
            b.PrependUOffsetTRelative(item)
        return b.EndVector()

    def array(values: Any, dtype: str) -> int:
        return b.CreateNumpyVector(np.asarray(values, dtype).ravel())

    def table(kind: str, fields: dict[str, Any]) -> int:
        getattr(schema, f"{kind}Start")(b)
        for name, value in fields.items():
            getattr(schema, f"{kind}Add{name}")(b, value)
        return getattr(schema, f"{kind}End")(b)

    buffers, written = [table("Buffer", {})], []
    for i, t in enumerate(tensors):
        dtype, buffer = t.dtype, 0
        if t.data is not None:
            dtype = t.data.dtype.name
            vector = b.CreateNumpyVector(np.frombuffer(t.data.tobytes(), np.uint8))
            buffers.append(table("Buffer", {"Data": vector}))
            buffer = len(buffers) - 1
        fields: dict[str, Any] = {
            "Shape": array(t.shape, "int32"),
            "Type": getattr(schema.TensorType, dtype.upper()),
            "Buffer": buffer,
            "Name": b.CreateString(t.name or f"t{i}"),
        }
        if t.scales is not None:
            quantization: dict[str, Any] = {"Scale": array(t.scales, "float32")}
            if t.zero_points is not None:
                quantization["ZeroPoint"] = array(t.zero_points, "int64")
            quantization["QuantizedDimension"] = t.dimension
            fields["Quantization"] = table("QuantizationParameters", quantization)
        if t.sparse:
            fields["Sparsity"] = table("SparsityParameters", {})
        written.append(table("Tensor", fields))
    codes, steps = [], []
    for op in operators:
        number = getattr(schema.BuiltinOperator, op.kind)
        code = {"DeprecatedBuiltinCode": min(number, 127), "Version": 1, "BuiltinCode": number}
        if op.custom:
            code["CustomCode"] = b.CreateString(op.custom)
        codes.append(table("OperatorCode", code))
        fields = {
            "OpcodeIndex": len(codes) - 1,
            "Inputs": array(op.inputs, "int32"),
            "Outputs": array(op.outputs, "int32"),
        }
        if op.kind in TABLES and op.options is not None:
            options = DEFAULTS.get(op.kind, {}) | op.options
            fields["BuiltinOptionsType"] = getattr(schema.BuiltinOptions, TABLES[op.kind])
            fields["BuiltinOptions"] = table(TABLES[op.kind], options)
        steps.append(table("Operator", fields))
    graph = {
        "Tensors": offsets(written),
        "Inputs": array(inputs, "int32"),
        "Outputs": array(outputs or operators[-1].outputs, "int32"),
        "Operators": offsets(steps),
    }
    graph_table = table("SubGraph", graph)
    fields = {
        "Version": version,
        "OperatorCodes": offsets(codes),
        "Subgraphs": offsets([graph_table] * graphs),
        "Buffers": offsets(buffers),
        "Description": b.CreateString(description),
    }
    b.Finish(table("Model", fields), b"TFL3")
    return bytes(b.Output())
