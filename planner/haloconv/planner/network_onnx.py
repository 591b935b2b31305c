"""Networks from quantised .onnx files, in operators on integers or between Q and DQ nodes.

Images are NHWC inside the network; the model's own inputs and outputs keep its order and are
transposed at the border. Codes of uint8 tensors are shifted by -128, zero points alike.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.planner.conventions import float32_scale
from haloconv.planner.errors import UnsupportedModel
from haloconv.planner.layer import ConvLayer
from haloconv.planner.network import (
    ConvNode,
    ElementwiseNode,
    HostNode,
    MoveNode,
    Network,
    NetworkTensor,
    Node,
)
from haloconv.planner.onnx_shapes import Window, image_window, rearranged_shape
from haloconv.planner.pooling import max_pool_requantization
from haloconv.planner.qlinear import QLinearSum, table_operator
from haloconv.planner.requantization import Requantization

__all__ = ["read_onnx_network"]

Array = npt.NDArray[Any]
F32 = np.float32

_TO_IMAGE, _FROM_IMAGE = (0, 2, 3, 1), (0, 3, 1, 2)
_NO_BOUNDS = (-math.inf, math.inf)


def read_onnx_network(
    model: str | PathLike[str] | bytes,
    target: str = "ort",
    *,
    constants: Mapping[str, Array] | None = None,
) -> Network:
    """Return the network of a quantised ONNX model.

    QLinearConv, ConvInteger, QLinearMatMul, MatMulInteger and the com.microsoft operators QGemm,
    QLinearAdd, QLinearConcat, QLinearAveragePool and QLinearGlobalAveragePool; or Conv, Gemm,
    MatMul, Add, Relu, Clip, MaxPool, AveragePool, GlobalAveragePool and Concat between
    DequantizeLinear and QuantizeLinear; with what rearranges their tensors.

    Parameters
    ----------
    model : path or bytes
    target : str
        "ort": ONNX Runtime's CPU kernels.
    constants : mapping of str to array, or None
        Values of inputs of the graph that are fixed, such as weights that are no initialisers.

    Raises
    ------
    ImportError
        Without the package onnx.
    OSError
        If the file cannot be opened.
    ValueError
        If the target is unknown.
    UnsupportedModel
        For the first node that is not supported, with its operator, its place and the reason; if
        there is no node, or the file is no model.
    """
    if target != "ort":
        raise ValueError(f"target of an ONNX model must be ort, not {target!r}")
    try:
        onnx: Any = import_module("onnx")
    except ImportError as error:
        raise ImportError(
            "reading .onnx files needs the package onnx: pip install 'haloconv[onnx]'"
        ) from error
    if isinstance(model, bytes):
        name, data = "model.onnx", model
    else:
        name, data = Path(model).name, Path(model).read_bytes()
    try:
        proto: Any = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's own classes differ between its releases
        raise UnsupportedModel(f"{name} must be an ONNX model: {error}") from None
    # An empty file is a model, too, all of whose fields are left out.
    if not proto.graph.node:
        raise UnsupportedModel(f"{name} must have at least one node, and has none")
    return _Importer(name, proto.graph, onnx.numpy_helper.to_array, dict(constants or {})).network()


@dataclass(frozen=True, eq=False)
class _Codes:
    """An int8 tensor of the network, or the int32 sums of one; ``shape`` in the model's order."""

    index: int
    shape: tuple[int, ...]
    unsigned: bool = False
    is_sum: bool = False


@dataclass(frozen=True, eq=False)
class _Real:
    """A dequantised tensor: codes, or a constant's int codes, with scale and zero point."""

    codes: _Codes | None
    constant: Array | None
    scale: Array
    zero_point: Array
    axis: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """In the model's order."""
        if self.codes is not None:
            return self.codes.shape
        return tuple(np.asarray(self.constant).shape)

    @property
    def one(self) -> tuple[np.float32, int]:
        """Scale and zero point of the whole tensor."""
        return F32(self.scale.ravel()[0]), int(self.zero_point.ravel()[0])


@dataclass(frozen=True, eq=False)
class _Onnx:
    """A node of the file."""

    index: int
    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


def _signed(codes: Array) -> npt.NDArray[np.int8]:
    """Return int8 codes; those of uint8 less 128."""
    if codes.dtype == np.uint8:
        return (codes.astype(np.int16) - 128).astype(np.int8)
    return codes.astype(np.int8)


class _Importer:
    def __init__(
        self,
        name: str,
        graph: Any,
        to_array: Callable[[Any], Array],
        constants: dict[str, Array],
    ) -> None:
        self._name = name
        self._graph = graph
        self._constants = {str(t.name): to_array(t) for t in graph.initializer} | constants
        self._file = [self._node(i, node, to_array) for i, node in enumerate(graph.node)]
        self._tensors: dict[int, NetworkTensor] = {}
        self._nodes: list[Node] = []
        self._codes: dict[str, _Codes] = {}
        self._reals: dict[str, _Real] = {}
        self._pending: dict[str, _Onnx] = {}
        self._float_inputs: dict[str, int] = {}
        self._readers: dict[str, int] = {}
        for node in self._file:
            for source in node.inputs:
                self._readers[source] = self._readers.get(source, 0) + 1
        for value in graph.output:
            self._readers[str(value.name)] = self._readers.get(str(value.name), 0) + 1
        self._at = self._file[0] if self._file else None
        self._kinds: dict[str, Callable[[_Onnx], None]] = {
            "Constant": self._constant,
            "QuantizeLinear": self._quantize,
            "DequantizeLinear": self._dequantize,
            "QLinearConv": self._qlinear_conv,
            "ConvInteger": self._conv_integer,
            "QLinearMatMul": self._qlinear_matmul,
            "MatMulInteger": self._matmul_integer,
            "QGemm": self._qgemm,
            "QLinearAdd": self._qlinear_add,
            "QLinearAveragePool": self._qlinear_average,
            "QLinearConcat": self._qlinear_concat,
            "QLinearGlobalAveragePool": self._qlinear_average,
            "MaxPool": self._max_pool,
            "Concat": self._concat,
            "Flatten": self._rearrange,
            "Reshape": self._rearrange,
            "Squeeze": self._rearrange,
            "Unsqueeze": self._rearrange,
            "Transpose": self._rearrange,
            "Identity": self._alias,
            "Dropout": self._alias,
            **dict.fromkeys(
                ("Conv", "Gemm", "MatMul", "Add", "Relu", "Clip", "AveragePool"), self._postpone
            ),
            "GlobalAveragePool": self._postpone,
        }

    @staticmethod
    def _node(index: int, node: Any, to_array: Callable[[Any], Array]) -> _Onnx:
        attributes: dict[str, Any] = {}
        for a in node.attribute:
            # Types: FLOAT 1, INT 2, STRING 3, TENSOR 4, FLOATS 6, INTS 7.
            kinds: dict[int, Callable[[Any], Any]] = {
                1: lambda a: float(a.f),
                2: lambda a: int(a.i),
                3: lambda a: a.s.decode(errors="replace"),
                4: lambda a: to_array(a.t),
                6: lambda a: [float(v) for v in a.floats],
                7: lambda a: [int(v) for v in a.ints],
            }
            if a.type in kinds:
                attributes[str(a.name)] = kinds[a.type](a)
        return _Onnx(
            index,
            str(node.op_type),
            str(node.name) or (str(node.output[0]) if node.output else ""),
            tuple(str(n) for n in node.input),
            tuple(str(n) for n in node.output),
            attributes,
        )

    # The graph

    def network(self) -> Network:
        inputs = [self._input(value) for value in self._graph.input if self._is_fed(value)]
        for node in self._file:
            self._at = node
            step = self._kinds.get(node.kind)
            if step is None:
                raise self._refuse(f"known operators are {', '.join(sorted(self._kinds))}")
            try:
                step(node)
            except UnsupportedModel:
                raise
            # Whatever a missing input or an attribute of another kind makes the steps stumble over.
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise self._refuse(f"it is damaged: {type(error).__name__}: {error}") from error
        outputs = [self._output(str(value.name)) for value in self._graph.output]
        used = {*inputs, *outputs}
        for node in self._nodes:
            used.update((*node.inputs, *node.outputs))
        return Network(
            name=self._name,
            target="ort",
            tensors={index: self._tensors[index] for index in sorted(used)},
            nodes=tuple(self._nodes),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
        )

    def _refuse(self, reason: str, node: _Onnx | None = None) -> UnsupportedModel:
        node = node or self._at
        if node is None:
            return UnsupportedModel(f"{self._name}: {reason}")
        return UnsupportedModel(
            f"{self._name}: {node.kind} (node {node.index}, {node.name!r}) is not supported: "
            f"{reason}"
        )

    def _is_fed(self, value: Any) -> bool:
        return str(value.name) not in self._constants

    def _input(self, value: Any) -> int:
        name, kind = str(value.name), value.type.tensor_type
        shape: list[int] = []
        for axis, dim in enumerate(kind.shape.dim):
            # A batch that the file leaves open is one image.
            size = int(dim.dim_value) or (1 if axis == 0 else 0)
            if size < 1:
                raise UnsupportedModel(
                    f"{self._name}: input {name!r} must have a fixed shape; set the extent of axis "
                    f"{axis} before quantising"
                )
            shape.append(size)
        # Types: FLOAT 1, UINT8 2, INT8 3.
        dtype = {1: "float32", 2: "uint8", 3: "int8"}.get(kind.elem_type)
        if dtype is None:
            raise UnsupportedModel(
                f"{self._name}: input {name!r} must be float32, uint8 or int8, "
                f"not type {kind.elem_type}"
            )
        index = self._new(name, shape, dtype)
        if dtype == "float32":
            self._float_inputs[name] = index
            return index
        codes = index
        if dtype == "uint8":
            codes = self._new(f"{name} shifted", shape, "int8")
            self._host("Shift", (index,), codes, {"by": -128})
        self._codes[name] = self._stored(codes, tuple(shape), dtype == "uint8")
        return index

    def _output(self, name: str) -> int:
        self._at = next((node for node in self._file if name in node.outputs), None)
        if name in self._codes:
            codes = self._codes[name]
            index, shape = self._plain(codes, name), codes.shape
            if not codes.unsigned:
                return index
            result = self._new(name, shape, "uint8")
            self._host("Shift", (index,), result, {"by": 128})
            return result
        real = self._reals.get(name)
        if real is not None and real.codes is not None:
            scale, zero_point = real.one
            result = self._new(name, real.codes.shape, "float32")
            options = {"scale": scale, "zero_point": zero_point}
            self._host("DequantizeLinear", (self._plain(real.codes),), result, options)
            return result
        if name in self._pending:
            raise self._refuse("its float result must be quantised before it leaves the graph")
        raise UnsupportedModel(f"{self._name}: output {name!r} is made by no node")

    # Tensors and nodes of the network

    def _new(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        scale: Any = 0.0,
        zero_point: int = 0,
    ) -> int:
        index = len(self._tensors)
        self._tensors[index] = NetworkTensor(
            index, name, tuple(shape), dtype, float(scale), int(zero_point)
        )
        return index

    def _made(
        self,
        shape: Sequence[int],
        unsigned: bool,
        scale: Any = 0.0,
        zero_point: int = 0,
        *,
        dtype: str = "int8",
    ) -> _Codes:
        """Return a new tensor for the result of the node at hand, images stored NHWC."""
        assert self._at is not None
        shape = tuple(shape)
        stored = tuple(shape[axis] for axis in _TO_IMAGE) if len(shape) == 4 else shape
        index = self._new(self._at.outputs[0], stored, dtype, scale, zero_point)
        return _Codes(index, shape, unsigned, dtype == "int32")

    def _base(self, inputs: Sequence[int], output: int, operator: str = "") -> dict[str, Any]:
        at = self._at
        return {
            "index": at.index if at is not None and not operator else -1 - len(self._nodes),
            "name": at.name if at is not None and not operator else self._tensors[output].name,
            "operator": operator or (at.kind if at is not None else ""),
            "inputs": tuple(inputs),
            "outputs": (output,),
        }

    def _host(
        self, operator: str, inputs: Sequence[int], output: int, options: dict[str, Any]
    ) -> None:
        self._nodes.append(HostNode(**self._base(inputs, output, operator), options=options))

    def _move(
        self,
        inputs: Sequence[int],
        output: int,
        kind: str,
        options: dict[str, Any],
        operator: str = "",
    ) -> None:
        base = self._base(inputs, output, operator)
        self._nodes.append(MoveNode(**base, kind=kind, options=options))

    def _permuted(self, index: int, order: Sequence[int], name: str, operator: str = "") -> int:
        """Return a tensor with permuted axes, a view where no byte moves."""
        source = self._tensors[index]
        shape = [source.shape[axis] for axis in order]
        output = self._new(name, shape, source.dtype, source.scale, source.zero_point)
        real = [axis for axis in order if source.shape[axis] != 1]
        if real == sorted(real):
            self._move((index,), output, "view", {}, operator)
        else:
            self._move((index,), output, "transpose", {"permutation": tuple(order)}, operator)
        return output

    def _plain(self, codes: _Codes, name: str | None = None) -> int:
        """Return the tensor in the model's order of axes."""
        if len(codes.shape) != 4:
            return codes.index
        name = f"{self._tensors[codes.index].name} as NCHW" if name is None else name
        return self._permuted(codes.index, _FROM_IMAGE, name, "Transpose")

    def _stored(self, index: int, shape: tuple[int, ...], unsigned: bool) -> _Codes:
        """Return the codes of a tensor that is in the model's order."""
        if len(shape) == 4:
            name = f"{self._tensors[index].name} as NHWC"
            index = self._permuted(index, _TO_IMAGE, name, "Transpose")
        return _Codes(index, shape, unsigned)

    # What nodes read

    def _value(self, node: _Onnx, position: int, what: str) -> Array | None:
        """Return a constant input, None where it is absent."""
        if position >= len(node.inputs) or not node.inputs[position]:
            return None
        name = node.inputs[position]
        if name not in self._constants:
            raise self._refuse(f"its {what} {name!r} must be constant", node)
        return self._constants[name]

    def _needed(self, node: _Onnx, position: int, what: str) -> Array:
        value = self._value(node, position, what)
        if value is None:
            raise self._refuse(f"it must have a {what}", node)
        return value

    def _source(self, node: _Onnx, position: int = 0) -> _Codes:
        name = node.inputs[position] if position < len(node.inputs) else ""
        codes = self._codes.get(name)
        if codes is None or codes.is_sum:
            reason = "is a constant; fold it" if name in self._constants else "must hold int8 codes"
            raise self._refuse(f"its input {name!r} {reason}", node)
        return codes

    def _zero(self, value: Array | None, unsigned: bool) -> npt.NDArray[np.int32]:
        """Return zero points as they stand beside shifted codes."""
        zero = np.zeros((), np.int32) if value is None else value.astype(np.int32)
        if value is not None and (value.dtype == np.uint8) != unsigned:
            raise self._refuse("a zero point must have the type of its tensor")
        return zero - 128 if unsigned else zero

    def _scalar(self, value: Array, what: str) -> Any:
        if value.size != 1:
            raise self._refuse(f"its {what} must be one number, not {value.size}")
        return value.ravel()[0]

    def _scale(self, node: _Onnx, position: int, what: str) -> Array:
        value = self._needed(node, position, what)
        if value.dtype != np.float32:
            raise self._refuse(f"its {what} must be float32, not {value.dtype}")
        if not np.all(np.isfinite(value) & (value > 0)):
            raise self._refuse(f"its {what} must be positive")
        return value

    def _activation(self, node: _Onnx, first: int, what: str) -> tuple[np.float32, int]:
        """Return scale and zero point of the computed tensor before position ``first``."""
        scale = self._scalar(self._scale(node, first, f"scale of {what}"), f"scale of {what}")
        zero = self._value(node, first + 1, f"zero point of {what}")
        unsigned = self._source(node, first - 1).unsigned
        return F32(scale), int(self._scalar(self._zero(zero, unsigned), f"zero point of {what}"))

    def _output_type(self, node: _Onnx, first: int) -> tuple[np.float32, int, bool]:
        """Return scale and zero point of the result, and whether it is uint8."""
        scale = self._scalar(self._scale(node, first, "output scale"), "output scale")
        zero = self._value(node, first + 1, "output zero point")
        if zero is not None and zero.dtype.name not in ("uint8", "int8"):
            raise self._refuse(f"its output must be uint8 or int8, not {zero.dtype}")
        unsigned = zero is None or zero.dtype == np.uint8
        point = self._scalar(self._zero(zero, unsigned), "output zero point")
        return F32(scale), int(point), unsigned

    def _weights(
        self, node: _Onnx, position: int, zero_position: int
    ) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int32]]:
        """Return constant weights and their zero points, as int8."""
        w = self._needed(node, position, "weights")
        if w.dtype.name not in ("uint8", "int8"):
            raise self._refuse(f"weights must be uint8 or int8, not {w.dtype}")
        zero = self._value(node, zero_position, "zero point of the weights")
        return _signed(w), self._zero(zero, w.dtype == np.uint8)

    def _constant(self, node: _Onnx) -> None:
        for name in ("value", "value_int", "value_ints", "value_float", "value_floats"):
            if name in node.attributes:
                kind = F32 if "float" in name else None
                self._constants[node.outputs[0]] = np.asarray(node.attributes[name], kind)
                return
        raise self._refuse("its value must be a dense tensor or numbers")

    def _alias(self, node: _Onnx) -> None:
        source, name = node.inputs[0], node.outputs[0]
        for table in (self._constants, self._codes, self._reals):
            if source in table:
                table[name] = table[source]  # type: ignore[index]
                return
        raise self._refuse(f"its input {source!r} must be quantised")

    # From and to float

    def _dequantize(self, node: _Onnx) -> None:
        scale = self._scale(node, 1, "scale")
        zero = self._value(node, 2, "zero point")
        if node.attributes.get("block_size", 0):
            raise self._refuse("scales of blocks are not supported")
        name, axis = node.inputs[0], node.attributes.get("axis", 1)
        if name in self._constants:
            data = self._constants[name]
            if data.dtype.name not in ("uint8", "int8", "int32"):
                raise self._refuse(f"its constant must be uint8, int8 or int32, not {data.dtype}")
            if data.dtype == np.int32:
                if zero is not None and np.any(zero):
                    raise self._refuse("the zero point of int32 codes must be 0")
                points = np.zeros(scale.shape, np.int32)
            else:
                points = self._zero(zero, data.dtype == np.uint8)
                data = _signed(data)
            real = _Real(None, data, scale, points, axis)
        else:
            codes = self._source(node)
            self._scalar(scale, "scale")
            points = self._zero(zero, codes.unsigned)
            self._scalar(points, "zero point")
            real = _Real(codes, None, scale, points)
        self._reals[node.outputs[0]] = real

    def _postpone(self, node: _Onnx) -> None:
        self._pending[node.outputs[0]] = node

    def _quantize(self, node: _Onnx) -> None:
        scale, zero_point, unsigned = self._output_type(node, 1)
        name, result = node.inputs[0], node.outputs[0]
        if name in self._float_inputs:
            source = self._float_inputs[name]
            shape = self._tensors[source].shape
            index = self._new(f"{result} plain", shape, "int8", scale, zero_point)
            options = {"scale": scale, "zero_point": zero_point}
            self._nodes.append(HostNode(**self._base((source,), index), options=options))
            self._codes[result] = self._stored(index, shape, unsigned)
            return
        bounds, chain = _NO_BOUNDS, list[_Onnx]()
        while name in self._pending and self._pending[name].kind in ("Relu", "Clip"):
            chain.append(self._once(name))
            name = chain[-1].inputs[0]
        for step in reversed(chain):
            low, high = self._limits(step)
            bounds = (min(max(bounds[0], low), high), min(max(bounds[1], low), high))
        real = self._reals.get(name)
        if real is not None:
            if real.codes is None:
                raise self._refuse(f"its input {name!r} is a constant; fold it")
            found = self._requantized(real, scale, zero_point, unsigned, bounds)
        elif name in self._pending:
            source_node = self._once(name)
            clamp = self._clamp(bounds, scale, zero_point)
            # Messages and reports name the operator, not the quantiser behind it.
            self._at = replace(source_node, outputs=(result,))
            found = self._float_operator(source_node, scale, zero_point, unsigned, clamp)
        else:
            raise self._refuse(f"its input {name!r} must come from a supported operator")
        self._codes[result] = found

    def _once(self, name: str) -> _Onnx:
        node = self._pending[name]
        if self._readers.get(name, 0) != 1:
            raise self._refuse("its float result must be read by one quantiser only", node)
        return node

    def _limits(self, node: _Onnx) -> tuple[float, float]:
        if node.kind == "Relu":
            return (0.0, math.inf)
        low, high = node.attributes.get("min", -math.inf), node.attributes.get("max", math.inf)
        given = (self._value(node, 1, "minimum"), self._value(node, 2, "maximum"))
        low = low if given[0] is None else float(self._scalar(given[0], "minimum"))
        high = high if given[1] is None else float(self._scalar(given[1], "maximum"))
        return low, high

    @staticmethod
    def _clamp(bounds: tuple[float, float], scale: np.float32, zero_point: int) -> tuple[int, int]:
        """Return the codes of two real bounds."""
        codes = [
            int(np.clip(np.rint(F32(bound) / scale) + F32(zero_point), -128, 127))
            for bound in bounds
        ]
        return codes[0], codes[1]

    def _requantized(
        self,
        real: _Real,
        scale: np.float32,
        zero_point: int,
        unsigned: bool,
        bounds: tuple[float, float] = _NO_BOUNDS,
    ) -> _Codes:
        """Return codes of another scale: one table, made as the runtime makes each value."""
        assert real.codes is not None
        in_scale, in_zero = real.one
        values = (np.arange(-128, 128) - in_zero).astype(F32) * in_scale
        clamp = self._clamp(bounds, scale, zero_point)
        table = np.rint(values / scale).astype(np.int64) + zero_point
        table = np.clip(table, *clamp).astype(np.int32)
        made = self._made(real.codes.shape, unsigned, scale, zero_point)
        base = self._base((real.codes.index,), made.index)
        if np.array_equal(table, np.arange(-128, 128)):
            self._nodes.append(MoveNode(**base, kind="view"))
        else:
            self._nodes.append(ElementwiseNode(**base, function=table_operator(table)))
        return made

    def _float_operator(
        self,
        node: _Onnx,
        scale: np.float32,
        zero_point: int,
        unsigned: bool,
        clamp: tuple[int, int],
    ) -> _Codes:
        to = (scale, zero_point, unsigned, clamp)
        if node.kind in ("Conv", "Gemm", "MatMul"):
            return self._float_product(node, *to)
        if node.kind == "Add":
            a, b = self._real(node, 0), self._real(node, 1)
            return self._sum(a, b, *to)
        if node.kind in ("AveragePool", "GlobalAveragePool"):
            real = self._real(node, 0)
            if real.codes is None:
                raise self._refuse("its input is a constant; fold it")
            return self._average(node, real.codes, *real.one, *to)
        return self._joined(node, [self._real(node, i) for i in range(len(node.inputs))], *to)

    def _real(self, node: _Onnx, position: int) -> _Real:
        name = node.inputs[position] if position < len(node.inputs) else ""
        if name not in self._reals:
            raise self._refuse(f"its input {name!r} must come from DequantizeLinear", node)
        return self._reals[name]

    def _float_product(
        self,
        node: _Onnx,
        scale: np.float32,
        zero_point: int,
        unsigned: bool,
        clamp: tuple[int, int],
    ) -> _Codes:
        x, w = self._real(node, 0), self._real(node, 1)
        if x.codes is None or w.constant is None or w.constant.dtype != np.int8:
            raise self._refuse("it must have a computed input and constant int8 or uint8 weights")
        in_scale, in_zero = x.one
        is_conv, weights = node.kind == "Conv", w.constant
        channels = 0 if is_conv or node.attributes.get("transB", 0) else weights.ndim - 1
        axis = w.axis % weights.ndim
        if w.scale.size > 1 and (axis != channels or w.scale.size != weights.shape[channels]):
            raise self._refuse(f"scales of the weights must run along axis {channels}, not {axis}")
        if node.kind == "Gemm":
            self._check_gemm(node)
            weights = weights.T if node.attributes.get("transB", 0) else weights
        outputs = weights.shape[0 if is_conv else -1]
        bias = None
        if len(node.inputs) > 2 and node.inputs[2]:
            b = self._real(node, 2)
            if b.constant is None or b.constant.dtype != np.int32:
                raise self._refuse("its bias must be constant int32 codes")
            expected, given = in_scale * w.scale.ravel(), b.scale.ravel()
            if {expected.size, given.size} - {1, outputs} or not np.allclose(
                given, expected, rtol=1e-5, atol=0
            ):
                raise self._refuse(
                    "the scale of its bias must be the product of the scales of input and weights"
                )
            bias = self._bias(b.constant, outputs)
        how = self._how(in_scale, w.scale.ravel(), scale, zero_point, clamp)
        kind = "" if is_conv else "matrix"
        return self._product(
            node, x.codes, in_zero, weights, w.zero_point, bias, how, scale, unsigned, kind
        )

    # Convolutions and products

    def _how(
        self,
        in_scale: np.float32,
        weight_scale: Array,
        out_scale: np.float32,
        zero_point: int,
        clamp: tuple[int, int] = (-128, 127),
    ) -> Requantization:
        scale = np.atleast_1d(float32_scale(in_scale, weight_scale.ravel(), out_scale))
        try:
            return Requantization(scale=scale, zero_point=zero_point, clamp=clamp, rounding="fp32")
        except ValueError as error:
            raise self._refuse(str(error)) from None

    def _bias(self, value: Array | None, outputs: int) -> npt.NDArray[np.int32] | None:
        if value is None:
            return None
        if value.dtype != np.int32:
            raise self._refuse(f"its bias must be int32, not {value.dtype}")
        if value.size not in (1, outputs):
            raise self._refuse(f"its bias must hold {outputs} numbers, not {value.size}")
        return np.ascontiguousarray(np.broadcast_to(value.ravel(), (outputs,)))

    def _check_gemm(self, node: _Onnx) -> None:
        for name, plain in (("alpha", 1.0), ("beta", 1.0), ("transA", 0)):
            if node.attributes.get(name, plain) != plain:
                raise self._refuse(f"{name} must be {plain}, not {node.attributes[name]}")

    def _product(
        self,
        node: _Onnx,
        x: _Codes,
        in_zero: int,
        weights: npt.NDArray[np.int8],
        weight_zero: npt.NDArray[np.int32],
        bias: npt.NDArray[np.int32] | None,
        how: Requantization | None,
        scale: Any,
        unsigned: bool,
        kind: str = "",
    ) -> _Codes:
        """Add a convolution, or with ``kind`` a product with a matrix (K, N)."""
        if kind:
            if weights.ndim == 3:
                return self._batches(node, x, in_zero, weights, weight_zero, how, scale, unsigned)
            if weights.ndim != 2 or len(x.shape) not in (2, 3) or x.shape[-1] != weights.shape[0]:
                raise self._refuse(
                    "it must multiply rows by a constant matrix, not shapes "
                    f"{x.shape} and {weights.shape}"
                )
            layer = self._layer(
                in_height=1,
                in_width=1,
                in_channels=weights.shape[0],
                out_channels=weights.shape[1],
                kernel=(1, 1),
                in_zero_point=in_zero,
                has_bias=bias is not None,
            )
            stored = np.ascontiguousarray(weights.T).reshape(layer.weight_shape)
            shape, batch = (*x.shape[:-1], weights.shape[1]), math.prod(x.shape[:-1])
        else:
            layer = self._conv_layer(node, x, weights, in_zero, bias is not None)
            stored = np.ascontiguousarray(weights.transpose(0, 2, 3, 1))
            batch = x.shape[0]
            shape = (batch, layer.out_channels, layer.out_height, layer.out_width)
        if weight_zero.size not in (1, layer.out_channels):
            raise self._refuse(
                f"weights must have 1 or {layer.out_channels} zero points, not {weight_zero.size}"
            )
        if how is not None and how.scale.size not in (1, layer.out_channels):
            raise self._refuse(
                f"weights must have 1 or {layer.out_channels} scales, not {how.scale.size}"
            )
        zero_points = None
        if np.any(weight_zero):
            zero_points = np.broadcast_to(weight_zero.ravel(), (layer.out_channels,))
            zero_points = zero_points.astype(np.int32)
        made = self._made(
            shape,
            unsigned,
            scale,
            0 if how is None else how.zero_point,
            dtype="int32" if how is None else "int8",
        )
        self._nodes.append(
            ConvNode(
                **self._base((x.index,), made.index),
                layer=layer,
                weights=stored,
                bias=bias,
                requantization=how,
                weight_zero_points=zero_points,
                batch=batch,
            )
        )
        return made

    def _batches(
        self,
        node: _Onnx,
        x: _Codes,
        in_zero: int,
        weights: npt.NDArray[np.int8],
        weight_zero: npt.NDArray[np.int32],
        how: Requantization | None,
        scale: Any,
        unsigned: bool,
    ) -> _Codes:
        """Add a product of each matrix of a batch with its own constant matrix."""
        if len(x.shape) != 3 or weights.shape[0] not in (1, x.shape[0]):
            raise self._refuse(
                f"it must multiply as many matrices, not shapes {x.shape} and {weights.shape}"
            )
        if weights.shape[0] == 1:
            return self._product(
                node, x, in_zero, weights[0], weight_zero, None, how, scale, unsigned, "matrix"
            )
        parts: list[_Codes] = []
        count, rows, depth = x.shape
        for i in range(count):
            part = self._new(f"{self._tensors[x.index].name}[{i}]", (1, rows, depth), "int8")
            options = {"begin": (i, 0, 0), "end": (i + 1, rows, depth), "strides": (1, 1, 1)}
            self._move((x.index,), part, "slice", options, "Slice")
            one = _Codes(part, (1, rows, depth))
            parts.append(
                self._product(
                    node,
                    one,
                    in_zero,
                    weights[i],
                    weight_zero,
                    None,
                    how,
                    scale,
                    unsigned,
                    "matrix",
                )
            )
        if how is None:
            raise self._refuse("batches of raw sums are not supported; requantise them")
        made = self._made((count, rows, weights.shape[2]), unsigned, scale, how.zero_point)
        self._move([part.index for part in parts], made.index, "concatenate", {"axis": 0}, "Concat")
        return made

    def _layer(self, **fields: Any) -> ConvLayer:
        assert self._at is not None
        try:
            return ConvLayer(**fields, name=self._at.name)
        except (TypeError, ValueError) as error:
            raise self._refuse(str(error)) from None

    def _window(self, node: _Onnx, extent: tuple[int, int], kernel: Sequence[int] = ()) -> Window:
        try:
            return image_window(node.attributes, extent, kernel)
        except ValueError as error:
            raise self._refuse(str(error)) from None

    def _image(self, x: _Codes) -> tuple[int, int, int, int]:
        if len(x.shape) != 4:
            raise self._refuse(f"its input must have shape (N, C, H, W), not {x.shape}")
        n, c, h, w = x.shape
        return n, c, h, w

    def _conv_layer(
        self,
        node: _Onnx,
        x: _Codes,
        weights: npt.NDArray[np.int8],
        in_zero: int,
        has_bias: bool,
    ) -> ConvLayer:
        _, channels, height, width = self._image(x)
        if weights.ndim != 4:
            raise self._refuse(f"weights must have shape (M, C, Rh, Rw), not {weights.shape}")
        groups = node.attributes.get("group", 1)
        if groups < 1 or weights.shape[1] * groups != channels:
            raise self._refuse(
                f"weights of shape {weights.shape} in {groups} groups must fit the input's "
                f"{channels} channels"
            )
        return self._layer(
            in_height=height,
            in_width=width,
            in_channels=channels,
            out_channels=weights.shape[0],
            **vars(self._window(node, (height, width), weights.shape[2:])),
            groups=groups,
            in_zero_point=in_zero,
            has_bias=has_bias,
        )

    def _qlinear_conv(self, node: _Onnx) -> None:
        x = self._source(node)
        in_scale, in_zero = self._activation(node, 1, "the input")
        weights, weight_zero = self._weights(node, 3, 5)
        scale, zero_point, unsigned = self._output_type(node, 6)
        how = self._how(in_scale, self._scale(node, 4, "scale of the weights"), scale, zero_point)
        bias = self._bias(self._value(node, 8, "bias"), weights.shape[0])
        self._codes[node.outputs[0]] = self._product(
            node, x, in_zero, weights, weight_zero, bias, how, scale, unsigned
        )

    def _qlinear_matmul(self, node: _Onnx) -> None:
        x = self._source(node)
        in_scale, in_zero = self._activation(node, 1, "the input")
        weights, weight_zero = self._weights(node, 3, 5)
        scale, zero_point, unsigned = self._output_type(node, 6)
        how = self._how(in_scale, self._scale(node, 4, "scale of the weights"), scale, zero_point)
        self._codes[node.outputs[0]] = self._product(
            node, x, in_zero, weights, weight_zero, None, how, scale, unsigned, "matrix"
        )

    def _qgemm(self, node: _Onnx) -> None:
        self._check_gemm(node)
        x = self._source(node)
        in_scale, in_zero = self._activation(node, 1, "the input")
        weights, weight_zero = self._weights(node, 3, 5)
        if node.attributes.get("transB", 0):
            weights = np.ascontiguousarray(weights.T)
        scale, zero_point, unsigned = self._output_type(node, 7)
        how = self._how(in_scale, self._scale(node, 4, "scale of the weights"), scale, zero_point)
        bias = self._bias(self._value(node, 6, "bias"), weights.shape[-1])
        self._codes[node.outputs[0]] = self._product(
            node, x, in_zero, weights, weight_zero, bias, how, scale, unsigned, "matrix"
        )

    def _conv_integer(self, node: _Onnx) -> None:
        self._raw(node, "")

    def _matmul_integer(self, node: _Onnx) -> None:
        self._raw(node, "matrix")

    def _raw(self, node: _Onnx, kind: str) -> None:
        x = self._source(node)
        zero = self._zero(self._value(node, 2, "zero point of the input"), x.unsigned)
        in_zero = int(self._scalar(zero, "zero point of the input"))
        weights, weight_zero = self._weights(node, 1, 3)
        self._codes[node.outputs[0]] = self._product(
            node, x, in_zero, weights, weight_zero, None, None, 0.0, False, kind
        )

    # Sums and pooling

    def _qlinear_add(self, node: _Onnx) -> None:
        reals: list[_Real] = []
        for first in (0, 3):
            name = node.inputs[first]
            scale = self._scale(node, first + 1, "scale of an operand")
            self._scalar(scale, "scale of an operand")
            zero = self._value(node, first + 2, "zero point of an operand")
            if name in self._constants:
                data = self._constants[name]
                points = self._zero(zero, data.dtype == np.uint8)
                reals.append(_Real(None, _signed(data), scale, points))
            else:
                codes = self._source(node, first)
                reals.append(_Real(codes, None, scale, self._zero(zero, codes.unsigned)))
        scale, zero_point, unsigned = self._output_type(node, 6)
        self._codes[node.outputs[0]] = self._sum(
            reals[0], reals[1], scale, zero_point, unsigned, (-128, 127)
        )

    def _sum(
        self,
        a: _Real,
        b: _Real,
        scale: np.float32,
        zero_point: int,
        unsigned: bool,
        clamp: tuple[int, int],
    ) -> _Codes:
        """Add the sum of two tensors, on the engine where its integers always agree."""
        if a.scale.size != 1 or b.scale.size != 1:
            raise self._refuse("its operands must have one scale each")
        swapped = a.codes is None
        if swapped:
            a, b = b, a
        if a.codes is None:
            raise self._refuse("both operands are constants; fold them")
        shapes = [t.shape for t in (a, b)]
        try:
            shape = tuple(int(n) for n in np.broadcast_shapes(*shapes))
        except ValueError:
            raise self._refuse(f"operands must have matching shapes, not {shapes}") from None
        if shape != a.codes.shape and (b.codes is None or shape != b.codes.shape):
            raise self._refuse(f"one operand must have the shape {shape} of the result")
        first, second = (b, a) if swapped else (a, b)
        rule = QLinearSum(
            (float(first.one[0]), float(second.one[0]), float(scale)),
            (first.one[1], second.one[1], zero_point),
            unsigned,
            clamp,
        )
        made = self._made(shape, unsigned, scale, zero_point)
        inputs = [t.codes.index for t in (a, b) if t.codes is not None]
        base = self._base(inputs, made.index)
        if b.codes is None:
            constant = np.asarray(b.constant)
            if shape == a.codes.shape and np.all(constant == constant.flat[0]):
                code = int(constant.flat[0]) + 128
                pairs = rule.every_pair()
                table = pairs[code] if swapped else pairs[:, code]
                self._nodes.append(ElementwiseNode(**base, function=table_operator(table)))
                return made
            if len(shape) == 4:
                constant = constant.reshape((1,) * (4 - constant.ndim) + constant.shape)
                constant = constant.transpose(_TO_IMAGE)
            options = {"constant": constant, "constant_first": swapped}
        else:
            function = rule.tables() if a.codes.shape == b.codes.shape else None
            if function is not None:
                self._nodes.append(ElementwiseNode(**base, function=function))
                return made
            if len(shapes[0]) != len(shapes[1]):
                raise self._refuse(f"operands must have the same rank, not shapes {shapes}")
            options = {}
        options["table"] = rule.every_pair().astype(np.int8)
        self._nodes.append(HostNode(**base, options=options))
        return made

    def _qlinear_average(self, node: _Onnx) -> None:
        if node.attributes.get("channels_last", 0):
            raise self._refuse("channels_last must be 0")
        x = self._source(node)
        in_scale, in_zero = self._activation(node, 1, "the input")
        scale, zero_point, unsigned = self._output_type(node, 3)
        self._codes[node.outputs[0]] = self._average(
            node, x, in_scale, in_zero, scale, zero_point, unsigned, (-128, 127)
        )

    def _average(
        self,
        node: _Onnx,
        x: _Codes,
        in_scale: np.float32,
        in_zero: int,
        scale: np.float32,
        zero_point: int,
        unsigned: bool,
        clamp: tuple[int, int],
    ) -> _Codes:
        batch, channels, height, width = self._image(x)
        if node.kind.endswith("GlobalAveragePool"):
            layer = self._layer(
                in_height=height,
                in_width=width,
                in_channels=channels,
                out_channels=channels,
                kernel=(height, width),
                groups=channels,
                in_zero_point=in_zero,
                has_bias=False,
            )
            factor = in_scale / (scale * F32(height * width))
            how = Requantization(
                scale=np.array([factor], F32), zero_point=zero_point, clamp=clamp, rounding="fp32"
            )
            made = self._made((batch, channels, 1, 1), unsigned, scale, zero_point)
            self._nodes.append(
                ConvNode(
                    **self._base((x.index,), made.index),
                    layer=layer,
                    weights=np.ones(layer.weight_shape, np.int8),
                    bias=None,
                    requantization=how,
                    batch=batch,
                )
            )
            return made
        window = self._window(node, (height, width))
        if window.dilation != (1, 1):
            raise self._refuse(f"dilations must be 1, not {window.dilation}")
        if node.attributes.get("ceil_mode", 0):
            raise self._refuse("ceil_mode must be 0")
        shape = window.outputs((height, width))
        if min(shape) < 1:
            raise self._refuse(f"the kernel must fit the padded input, but gives {shape}")
        # The runtime sums floats, so that the order of the sum matters and only the host is exact.
        options = {
            "kernel": window.kernel,
            "stride": window.stride,
            "pads": window.pads,
            "scales": (in_scale, scale),
            "zero_points": (in_zero, zero_point),
            "unsigned": unsigned,
            "clamp": clamp,
            "count_include_pad": bool(node.attributes.get("count_include_pad", 0)),
        }
        made = self._made((batch, channels, *shape), unsigned, scale, zero_point)
        self._nodes.append(HostNode(**self._base((x.index,), made.index), options=options))
        return made

    def _max_pool(self, node: _Onnx) -> None:
        if len(node.outputs) > 1 and node.outputs[1]:
            raise self._refuse("its indices are not supported")
        name = node.inputs[0]
        real = self._reals.get(name)
        x = real.codes if real is not None else self._source(node)
        if x is None:
            raise self._refuse("its input is a constant; fold it")
        batch, channels, height, width = self._image(x)
        window = self._window(node, (height, width))
        if window.dilation != (1, 1):
            raise self._refuse(f"dilations must be 1, not {window.dilation}")
        layer = self._layer(
            in_height=height,
            in_width=width,
            in_channels=channels,
            out_channels=channels,
            **vars(window),
            groups=channels,
            in_zero_point=-128,
            has_bias=False,
        )
        source = self._tensors[x.index]
        made = self._made(
            (batch, channels, layer.out_height, layer.out_width),
            x.unsigned,
            source.scale,
            source.zero_point,
        )
        self._nodes.append(
            ConvNode(
                **self._base((x.index,), made.index),
                layer=layer,
                weights=np.ones(layer.weight_shape, np.int8),
                bias=None,
                requantization=max_pool_requantization(),
                maximum=True,
                batch=batch,
            )
        )
        self._store(node, real, made)

    # Data movement, on codes or on what was made of them

    def _store(self, node: _Onnx, real: _Real | None, made: _Codes) -> None:
        """Keep codes under the node's output, dequantised where its input was."""
        if real is None:
            self._codes[node.outputs[0]] = made
        else:
            self._reals[node.outputs[0]] = replace(real, codes=made)

    def _concat(self, node: _Onnx) -> None:
        if all(name in self._codes for name in node.inputs):
            sources = [self._source(node, i) for i in range(len(node.inputs))]
            if len({source.unsigned for source in sources}) != 1:
                raise self._refuse("its inputs must have one type")
            self._codes[node.outputs[0]] = self._concatenated(node, sources)
        else:
            self._postpone(node)

    def _qlinear_concat(self, node: _Onnx) -> None:
        scale, zero_point, unsigned = self._output_type(node, 0)
        reals: list[_Real] = []
        for first in range(2, len(node.inputs), 3):
            codes = self._source(node, first)
            one, zero = self._activation(node, first + 1, "an input")
            reals.append(_Real(codes, None, np.asarray(one), np.asarray(zero)))
        if not reals:
            raise self._refuse("it must have inputs")
        self._codes[node.outputs[0]] = self._joined(
            node, reals, scale, zero_point, unsigned, (-128, 127)
        )

    def _joined(
        self,
        node: _Onnx,
        reals: Sequence[_Real],
        scale: np.float32,
        zero_point: int,
        unsigned: bool,
        clamp: tuple[int, int],
    ) -> _Codes:
        parts: list[_Codes] = []
        for real in reals:
            if real.codes is None:
                raise self._refuse("its input is a constant; fold it")
            if clamp == (-128, 127) and real.one == (scale, zero_point):
                parts.append(real.codes)
            else:
                bounds = ((np.array(clamp) - zero_point) * float(scale)).tolist()
                bounds = (
                    bounds[0] if clamp[0] > -128 else -math.inf,
                    bounds[1] if clamp[1] < 127 else math.inf,
                )
                parts.append(self._requantized(real, scale, zero_point, unsigned, bounds))
        return replace(self._concatenated(node, parts), unsigned=unsigned)

    def _concatenated(self, node: _Onnx, parts: Sequence[_Codes]) -> _Codes:
        rank = len(parts[0].shape)
        axis = node.attributes.get("axis", 0)
        if not -rank <= axis < rank:
            raise self._refuse(f"axis must be within {-rank}..{rank - 1}, not {axis}")
        axis %= rank
        others = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}
        if len(others) != 1 or any(len(part.shape) != rank for part in parts):
            raise self._refuse(
                f"shapes must differ along axis {axis} only, not {[part.shape for part in parts]}"
            )
        shape = list(parts[0].shape)
        extents: list[int] = [part.shape[axis] for part in parts]
        shape[axis] = sum(extents)
        tensor = self._tensors[parts[0].index]
        made = self._made(shape, parts[0].unsigned, tensor.scale, tensor.zero_point)
        where = _TO_IMAGE.index(axis) if rank == 4 else axis
        inputs = [part.index for part in parts]
        self._move(inputs, made.index, "concatenate", {"axis": where})
        return made

    def _rearrange(self, node: _Onnx) -> None:
        real = self._reals.get(node.inputs[0])
        if real is not None and real.codes is None:
            raise self._refuse("its input is a constant; fold it")
        x = self._source(node) if real is None or real.codes is None else real.codes
        name, rank = node.outputs[0], len(x.shape)
        if node.kind == "Transpose":
            order = node.attributes.get("perm", list(range(rank))[::-1])
            if sorted(order) != list(range(rank)):
                raise self._refuse(f"perm must name each axis, not {order}")
            shape = tuple([x.shape[int(axis)] for axis in order])
            if rank == 4:
                order = [_TO_IMAGE.index(order[axis]) for axis in _TO_IMAGE]
            index = self._permuted(x.index, order, name)
            self._store(node, real, replace(x, index=index, shape=shape))
            return
        given = None
        if node.kind != "Flatten":
            given = self._value(node, 1, "shape" if node.kind == "Reshape" else "axes")
        numbers = None if given is None else [int(n) for n in given.ravel()]
        try:
            shape = rearranged_shape(node.kind, x.shape, node.attributes, numbers)
        except ValueError as error:
            raise self._refuse(str(error)) from None
        source = self._plain(x)
        tensor = self._tensors[source]
        index = self._new(name, shape, tensor.dtype, tensor.scale, tensor.zero_point)
        self._move((source,), index, "view", {})
        self._store(node, real, self._stored(index, shape, x.unsigned))
