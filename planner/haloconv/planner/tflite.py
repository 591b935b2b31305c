"""Reader of .tflite files: tensors, operators, and the convolution layers among them."""

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import tflite  # pyright: ignore[reportMissingTypeStubs]

from haloconv.planner.conventions import (
    activation_clamp,
    fixed_point,
    float32_scale,
    same_pads,
)
from haloconv.planner.errors import UnsupportedModel
from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import Requantization

__all__ = [
    "CONV_OPERATORS",
    "TARGETS",
    "LayerData",
    "TfliteModel",
    "TfliteOperator",
    "TfliteTensor",
    "conv_layers",
    "read_tflite",
]

TARGETS = ("tflm", "litert", "xnnpack")
"""Runtimes whose results an import can reproduce bit for bit (docs/arithmetic.md).

tflm: TensorFlow Lite Micro. litert: LiteRT's reference kernels. xnnpack: LiteRT's default delegate.
"""

CONV_OPERATORS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
"""Operators that become a :class:`~haloconv.planner.layer.ConvLayer`."""

Array = npt.NDArray[Any]

# Generated code without types.
schema = cast(Any, tflite)


@dataclass(frozen=True, eq=False)
class TfliteTensor:
    """One tensor of the graph.

    Parameters
    ----------
    index : int
        Position in the tensor table; operators refer to it.
    name : str
    shape : tuple of int
    dtype : str
        Lower case, such as "int8".
    scales : float32 array, shape (n,)
        Empty for a tensor that is not quantised, one entry per tensor or one for each channel.
    zero_points : int64 array, shape (n,)
    quantized_dimension : int
        Axis of the channels of ``scales``.
    data : array or None
        Constant contents in ``shape``; None where an operator or the caller provides them. Types
        that numpy lacks, and sparse contents, stay raw bytes (uint8, one axis).
    is_variable : bool
        Keeps its contents from one inference to the next.
    is_sparse : bool
        ``data`` is compressed.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    scales: npt.NDArray[np.float32]
    zero_points: npt.NDArray[np.int64]
    quantized_dimension: int
    data: Array | None
    is_variable: bool
    is_sparse: bool


@dataclass(frozen=True, eq=False)
class TfliteOperator:
    """One operator of the graph.

    Parameters
    ----------
    index : int
        Position in the graph.
    kind : str
        TFLite's name, such as "CONV_2D"; "CUSTOM <code>" for a custom operator.
    version : int
    inputs, outputs : tuple of int
        Tensor indices; -1 stands for an optional input that is absent.
    options : mapping
        What the file says beside the tensors, of: stride, dilation, kernel (vertical, horizontal),
        padding ("SAME", "VALID"), activation, depth_multiplier, weights_format, keep_dims, axis,
        new_shape, beta. None where the file holds no option table or one that is not read here.
    """

    index: int
    kind: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] | None


@dataclass(frozen=True, eq=False)
class TfliteModel:
    """A model file with one graph.

    Parameters
    ----------
    name : str
        File name, for messages.
    description : str
        What the converter wrote about it.
    tensors : tuple of TfliteTensor
    operators : tuple of TfliteOperator
        In the order in which they run.
    inputs, outputs : tuple of int
        Tensor indices.
    """

    name: str
    description: str
    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def refuse(self, operator: TfliteOperator, reason: str) -> UnsupportedModel:
        """Return the error that names ``operator``, its place and the reason."""
        name = self.tensors[operator.outputs[0]].name if operator.outputs else ""
        return UnsupportedModel(
            f"{self.name}: {operator.kind} (operator {operator.index}, {name!r}) is not "
            f"supported: {reason}"
        )


@dataclass(frozen=True, eq=False)
class LayerData:
    """A convolution layer of a model with everything that it needs but its input.

    Parameters
    ----------
    index : int
        Position of the operator in the graph.
    name : str
        Name of the output tensor.
    operator : str
        One of :data:`CONV_OPERATORS`.
    layer : ConvLayer
        Geometry for one image, whatever batch the tensor table names. FULLY_CONNECTED is a 1x1
        convolution on a 1x1 image; each row of its input counts as one image.
    weights : int8 array, shape (M, Rh, Rw, C / groups)
    bias : int32 array, shape (M,), or None
    weight_zero_points : int32 array, shape (M,), or None
        None where all are 0, as the int8 specification of TFLite asks.
    requantization : Requantization
        Scale for each output channel, and the rounding of the target.
    input_tensor, output_tensor : int
        Tensor indices.
    """

    index: int
    name: str
    operator: str
    layer: ConvLayer
    weights: npt.NDArray[np.int8]
    bias: npt.NDArray[np.int32] | None
    weight_zero_points: npt.NDArray[np.int32] | None
    requantization: Requantization
    input_tensor: int
    output_tensor: int


# Reading the file


def _names(enumeration: type) -> dict[int, str]:
    return {
        value: name
        for name, value in vars(enumeration).items()
        if isinstance(value, int) and not name.startswith("_")
    }


_TYPES = {value: name.lower() for value, name in _names(schema.TensorType).items()}
_OPERATORS = _names(schema.BuiltinOperator)
_PADDINGS = _names(schema.Padding)
_FORMATS = _names(schema.FullyConnectedOptionsWeightsFormat)
# The schema spells them as TFLite's documentation does: NONE, RELU, RELU_N1_TO_1, RELU6, TANH.
_ACTIVATIONS = _names(schema.ActivationFunctionType)

_DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        *("float16", "float32", "float64", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128"),
    )
}


def read_tflite(path: str | PathLike[str]) -> TfliteModel:
    """Return the tensors and operators of a .tflite file.

    Any operator and any type can be read; what is run is up to the caller.

    Raises
    ------
    OSError
        If the file cannot be opened.
    UnsupportedModel
        If the file is no TFLite model, is damaged, or holds several graphs.
    """
    path = Path(path)
    data = path.read_bytes()
    if data[4:8] != b"TFL3":
        raise UnsupportedModel(
            f"{path.name} must be a TFLite model (identifier TFL3 at byte 4), not {data[4:8]!r}"
        )
    try:
        return _Reader(path.name, data).model()
    except UnsupportedModel:
        raise
    except _Damage as error:
        raise UnsupportedModel(
            f"{path.name} is damaged: {error}; fetch or convert it again"
        ) from error
    # Whatever a damaged offset, length or string makes the generated accessors stumble over. What
    # they say of it means nothing to who only has the file.
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        raise UnsupportedModel(
            f"{path.name} is damaged or cut short: a place that it refers to is not in its "
            f"{len(data)} bytes; fetch or convert it again"
        ) from error


class _Damage(ValueError):
    """What is wrong with a file, in words for its user."""


class _Reader:
    """Walks the flatbuffer, which carries no checks of its own."""

    def __init__(self, name: str, data: bytes) -> None:
        self._name = name
        self._data = data

    def model(self) -> TfliteModel:
        root: Any = schema.Model.GetRootAs(self._data, 0)
        if root.Version() != 3:
            raise UnsupportedModel(
                f"{self._name} must have schema version 3, not {root.Version()}; convert it again"
            )
        graphs = self._count(root.SubgraphsLength())
        if graphs != 1:
            raise UnsupportedModel(
                f"{self._name} must hold one graph, not {graphs}; "
                "export it without control flow and without several signatures"
            )
        graph: Any = root.Subgraphs(0)
        buffers = [root.Buffers(i) for i in range(self._count(root.BuffersLength()))]
        tensors = tuple(
            self._tensor(i, graph.Tensors(i), buffers)
            for i in range(self._count(graph.TensorsLength()))
        )
        codes = [root.OperatorCodes(i) for i in range(self._count(root.OperatorCodesLength()))]
        operators = tuple(
            self._operator(i, graph.Operators(i), codes, len(tensors))
            for i in range(self._count(graph.OperatorsLength()))
        )
        return TfliteModel(
            name=self._name,
            description=(root.Description() or b"").decode(errors="replace"),
            tensors=tensors,
            operators=operators,
            inputs=self._indices(graph.InputsAsNumpy(), 0, len(tensors)),
            outputs=self._indices(graph.OutputsAsNumpy(), 0, len(tensors)),
        )

    def _count(self, length: int) -> int:
        """Return the length of a vector of tables unless the file is too short to hold it."""
        if 4 * length > len(self._data):
            raise _Damage(f"a list of {length} entries is longer than the file")
        return length

    def _tensor(self, index: int, tensor: Any, buffers: list[Any]) -> TfliteTensor:
        kind = tensor.Type()
        dtype = _TYPES.get(kind, f"type {kind}")
        shape = tuple(int(n) for n in _vector(tensor.ShapeAsNumpy(), np.int32))
        if any(n < 0 for n in shape):
            raise _Damage(f"tensor {index} has shape {shape}")
        scales, zero_points, dimension = np.zeros(0, np.float32), np.zeros(0, np.int64), 0
        quantization = tensor.Quantization()
        if quantization is not None:
            scales = _vector(quantization.ScaleAsNumpy(), np.float32)
            zero_points = _vector(quantization.ZeroPointAsNumpy(), np.int64)
            if not zero_points.size:
                zero_points = np.zeros(scales.size, np.int64)
            dimension = quantization.QuantizedDimension()
        is_sparse = tensor.Sparsity() is not None
        return TfliteTensor(
            index=index,
            name=(tensor.Name() or b"").decode(errors="replace"),
            shape=shape,
            dtype=dtype,
            scales=scales,
            zero_points=zero_points,
            quantized_dimension=dimension,
            data=self._contents(index, buffers[tensor.Buffer()], dtype, shape, is_sparse),
            is_variable=bool(tensor.IsVariable()),
            is_sparse=is_sparse,
        )

    def _contents(
        self, index: int, buffer: Any, dtype: str, shape: tuple[int, ...], is_sparse: bool
    ) -> Array | None:
        if buffer.Offset() > 1:
            # Models beyond 2 GB keep contents behind the flatbuffer.
            end = buffer.Offset() + buffer.Size()
            raw = np.frombuffer(self._data[buffer.Offset() : end], np.uint8)
            if raw.size != buffer.Size():
                raise _Damage(f"tensor {index} lies beyond the end of the file")
        else:
            raw = _vector(buffer.DataAsNumpy(), np.uint8)
        # Buffers without bytes, the first of which every computed tensor shares.
        if not raw.size:
            return None
        if dtype not in _DTYPES or is_sparse:
            return raw
        expected = math.prod(shape) * _DTYPES[dtype].itemsize
        if raw.size != expected:
            raise _Damage(
                f"tensor {index} of shape {shape} and type {dtype} takes {expected} bytes, "
                f"but the file holds {raw.size}"
            )
        return raw.view(_DTYPES[dtype]).reshape(shape)

    def _indices(self, values: Any, minimum: int, count: int) -> tuple[int, ...]:
        found = tuple(int(i) for i in _vector(values, np.int32))
        for i in found:
            if not minimum <= i < count:
                raise _Damage(f"there is no tensor {i} among {count}")
        return found

    def _operator(
        self, index: int, operator: Any, codes: list[Any], tensors: int
    ) -> TfliteOperator:
        code = codes[operator.OpcodeIndex()]
        # Codes beyond 127 moved to a wider field; older files fill the narrow one only.
        number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        kind = _OPERATORS.get(number, f"operator code {number}")
        if kind == "CUSTOM":
            kind = f"CUSTOM {(code.CustomCode() or b'').decode(errors='replace')}"
        return TfliteOperator(
            index=index,
            kind=kind,
            version=code.Version(),
            inputs=self._indices(operator.InputsAsNumpy(), -1, tensors),
            outputs=self._indices(operator.OutputsAsNumpy(), 0, tensors),
            options=_options(operator),
        )


def _vector(values: Any, dtype: type[np.generic]) -> Array:
    """Return a vector of the file; the generated accessors give 0 for one that is absent."""
    return np.zeros(0, dtype) if isinstance(values, int) else np.asarray(values)


def _named(names: dict[int, str], value: int) -> str:
    return names.get(value, f"code {value}")


def _window(o: Any) -> dict[str, Any]:
    return {"stride": (o.StrideH(), o.StrideW()), "padding": _named(_PADDINGS, o.Padding())}


def _activation(o: Any) -> dict[str, Any]:
    return {"activation": _named(_ACTIVATIONS, o.FusedActivationFunction())}


def _dilation(o: Any) -> dict[str, Any]:
    return {"dilation": (o.DilationHFactor(), o.DilationWFactor())}


_OPTIONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "AddOptions": _activation,
    "ConcatenationOptions": lambda o: {"axis": o.Axis()} | _activation(o),
    "Conv2DOptions": lambda o: _window(o) | _dilation(o) | _activation(o),
    "DepthwiseConv2DOptions": lambda o: (
        _window(o) | _dilation(o) | _activation(o) | {"depth_multiplier": o.DepthMultiplier()}
    ),
    "FullyConnectedOptions": lambda o: (
        _activation(o)
        | {"weights_format": _named(_FORMATS, o.WeightsFormat()), "keep_dims": o.KeepNumDims()}
    ),
    "MulOptions": _activation,
    "Pool2DOptions": lambda o: (
        _window(o) | {"kernel": (o.FilterHeight(), o.FilterWidth())} | _activation(o)
    ),
    "ReducerOptions": lambda o: {"keep_dims": o.KeepDims()},
    "ReshapeOptions": lambda o: {
        "new_shape": tuple(int(n) for n in _vector(o.NewShapeAsNumpy(), np.int32))
    },
    "SoftmaxOptions": lambda o: {"beta": o.Beta()},
    "SubOptions": _activation,
    "TransposeConvOptions": lambda o: _window(o) | _activation(o),
}
_OPTION_TYPES = _names(schema.BuiltinOptions)


def _options(operator: Any) -> dict[str, Any] | None:
    name = _OPTION_TYPES.get(operator.BuiltinOptionsType(), "")
    table = operator.BuiltinOptions()
    if name not in _OPTIONS or table is None:
        return None
    options = getattr(schema, name)()
    options.Init(table.Bytes, table.Pos)
    return _OPTIONS[name](options)


# Convolution layers


def conv_layers(
    model: str | PathLike[str] | TfliteModel, target: str = "tflm", *, skip_other: bool = True
) -> list[LayerData]:
    """Return the convolution layers of a model in graph order.

    Parameters
    ----------
    model : path or TfliteModel
    target : str
        One of :data:`TARGETS`: whose rounding the layers follow.
    skip_other : bool
        Leave out operators that are no convolution, such as ADD or SOFTMAX; False refuses them.

    Raises
    ------
    ValueError
        If the target is unknown.
    UnsupportedModel
        For a layer that is not int8 throughout, whose weights are not constant, or that the engine
        cannot run, with operator, place and reason.
    """
    if target not in TARGETS:
        raise ValueError(f"target must be one of {', '.join(TARGETS)}, not {target!r}")
    if not isinstance(model, TfliteModel):
        model = read_tflite(model)
    layers: list[LayerData] = []
    for operator in model.operators:
        if operator.kind in CONV_OPERATORS:
            layers.append(_conv_layer(model, operator, target))
        elif not skip_other:
            raise model.refuse(operator, f"only {', '.join(CONV_OPERATORS)} are convolution layers")
    return layers


def _conv_layer(model: TfliteModel, operator: TfliteOperator, target: str) -> LayerData:
    def refuse(reason: str) -> UnsupportedModel:
        return model.refuse(operator, reason)

    options = operator.options
    if options is None:
        raise refuse("the file holds no options for it")
    if len(operator.inputs) < 2 or min(operator.inputs[:2]) < 0 or len(operator.outputs) != 1:
        raise refuse("it must have an input, weights, perhaps a bias, and one output")
    x, w = (model.tensors[i] for i in operator.inputs[:2])
    y = model.tensors[operator.outputs[0]]
    for what, tensor in (("input", x), ("weights", w), ("output", y)):
        if tensor.dtype != "int8":
            raise refuse(f"{what} must be int8, not {tensor.dtype}; quantise the model to int8")
        if not tensor.scales.size:
            raise refuse(f"{what} must be quantised, but the file gives no scale for it")
        if tensor.zero_points.size != tensor.scales.size:
            raise refuse(
                f"{what} must have as many zero points as scales, not "
                f"{tensor.zero_points.size} and {tensor.scales.size}"
            )
        if not np.all(np.isfinite(tensor.scales) & (tensor.scales > 0)):
            raise refuse(f"scales of the {what} must be positive and finite")
        outside = tensor.zero_points[(tensor.zero_points < -128) | (tensor.zero_points > 127)]
        if outside.size:
            raise refuse(
                f"zero point of the {what} must be within -128..127, not {int(outside[0])}"
            )
    for what, tensor in (("input", x), ("output", y)):
        if tensor.scales.size != 1:
            raise refuse(f"{what} must have one scale, not {tensor.scales.size}")
    if w.data is None:
        raise refuse("weights must be constant, not computed by another operator")
    if w.is_sparse:
        raise refuse("weights must be dense, not sparse")

    weights, channel_axis = _weights(operator, options, x, w, refuse)
    outputs = weights.shape[0]
    if w.scales.size not in (1, outputs):
        raise refuse(f"weights must have 1 or {outputs} scales, not {w.scales.size}")
    if w.scales.size > 1 and w.quantized_dimension != channel_axis:
        raise refuse(
            f"scales of the weights must run along dimension {channel_axis}, the output channels, "
            f"not {w.quantized_dimension}"
        )
    bias = _bias(model, operator, outputs, refuse)
    zero_points = None
    if np.any(w.zero_points):
        zero_points = np.broadcast_to(w.zero_points, (outputs,)).astype(np.int32)
    try:
        layer = _geometry(operator, options, x, weights, bias is not None, y.name)
        how = _requantization(operator, options, target, x, w, y, outputs)
    except (TypeError, ValueError) as error:
        raise refuse(str(error)) from None
    _check_output(operator, layer, x, y, refuse)
    return LayerData(
        index=operator.index,
        name=y.name,
        operator=operator.kind,
        layer=layer,
        weights=weights,
        bias=bias,
        weight_zero_points=zero_points,
        requantization=how,
        input_tensor=x.index,
        output_tensor=y.index,
    )


_Refuse = Callable[[str], UnsupportedModel]


def _weights(
    operator: TfliteOperator,
    options: Mapping[str, Any],
    x: TfliteTensor,
    w: TfliteTensor,
    refuse: _Refuse,
) -> tuple[npt.NDArray[np.int8], int]:
    """Return the weights as (M, Rh, Rw, C / groups) and the file's axis of output channels."""
    data = np.asarray(w.data)
    if operator.kind == "FULLY_CONNECTED":
        if options["weights_format"] != "DEFAULT":
            raise refuse(f"weights must be stored plainly, not as {options['weights_format']}")
        if data.ndim != 2 or not data.size:
            raise refuse(f"weights must have shape (M, C), not {data.shape}")
        depth = data.shape[1]
        if math.prod(x.shape) % depth:
            raise refuse(f"input must be rows of {depth} values, but its shape is {x.shape}")
        return np.ascontiguousarray(data.reshape(-1, 1, 1, depth)), 0
    if len(x.shape) != 4:
        raise refuse(f"input must have shape (N, H, W, C), not {x.shape}")
    channels = x.shape[3]
    if data.ndim != 4 or not data.size:
        raise refuse(f"weights must have four dimensions, not shape {data.shape}")
    if operator.kind == "CONV_2D":
        if channels % data.shape[3] or data.shape[0] % (channels // data.shape[3]):
            raise refuse(
                f"weights of shape {data.shape} do not divide {channels} input channels into groups"
            )
        return np.ascontiguousarray(data), 0
    multiplier = options["depth_multiplier"]
    if data.shape[0] != 1 or data.shape[3] != channels * multiplier:
        raise refuse(
            f"weights must have shape (1, Rh, Rw, {channels} * {multiplier}) for {channels} input "
            f"channels and depth multiplier {multiplier}, not {data.shape}"
        )
    return np.ascontiguousarray(data.transpose(3, 1, 2, 0)), 3


def _bias(
    model: TfliteModel, operator: TfliteOperator, outputs: int, refuse: _Refuse
) -> npt.NDArray[np.int32] | None:
    if len(operator.inputs) < 3 or operator.inputs[2] < 0:
        return None
    # Scale and quantized_dimension of a bias are not looked at: it counts in steps of Sx * Sw
    # whatever they say, and converters were seen to write a dimension that it does not have.
    tensor = model.tensors[operator.inputs[2]]
    if tensor.dtype != "int32":
        raise refuse(f"bias must be int32, not {tensor.dtype}")
    if np.any(tensor.zero_points):
        raise refuse("zero point of the bias must be 0")
    if tensor.data is None:
        raise refuse("bias must be constant, not computed by another operator")
    if tensor.is_sparse or tensor.data.shape != (outputs,):
        raise refuse(f"bias must have shape ({outputs},), not {tensor.shape}")
    return np.ascontiguousarray(tensor.data).astype(np.int32)


def _geometry(
    operator: TfliteOperator,
    options: Mapping[str, Any],
    x: TfliteTensor,
    weights: npt.NDArray[np.int8],
    has_bias: bool,
    name: str,
) -> ConvLayer:
    outputs, rows, columns, depth = weights.shape
    zero_point = int(x.zero_points[0])
    if operator.kind == "FULLY_CONNECTED":
        return ConvLayer(
            in_height=1,
            in_width=1,
            in_channels=depth,
            out_channels=outputs,
            kernel=(1, 1),
            in_zero_point=zero_point,
            has_bias=has_bias,
            name=name,
        )
    height, width, channels = x.shape[1:]
    kernel, stride, dilation = (rows, columns), options["stride"], options["dilation"]
    if options["padding"] not in ("SAME", "VALID"):
        raise ValueError(f"padding must be SAME or VALID, not {options['padding']}")
    if min(*stride, *dilation) < 1:
        raise ValueError(f"stride and dilation must be at least 1, not {stride} and {dilation}")
    pads = (0, 0, 0, 0)
    if options["padding"] == "SAME":
        pads = same_pads((height, width), kernel, stride, dilation)
    return ConvLayer(
        in_height=height,
        in_width=width,
        in_channels=channels,
        out_channels=outputs,
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        pads=pads,
        groups=channels // depth,
        in_zero_point=zero_point,
        has_bias=has_bias,
        name=name,
    )


def _requantization(
    operator: TfliteOperator,
    options: Mapping[str, Any],
    target: str,
    x: TfliteTensor,
    w: TfliteTensor,
    y: TfliteTensor,
    outputs: int,
) -> Requantization:
    zero_point = int(y.zero_points[0])
    clamp = activation_clamp(options["activation"], y.scales[0], zero_point)
    if target == "xnnpack":
        scale = float32_scale(x.scales[0], w.scales, y.scales[0])
        return Requantization(
            scale=np.broadcast_to(scale, (outputs,)),
            zero_point=zero_point,
            clamp=clamp,
            rounding="fp32",
        )
    product = x.scales.astype(np.float64) * w.scales.astype(np.float64)
    multiplier, shift = fixed_point(product / np.float64(y.scales[0]))
    return Requantization(
        multiplier=np.broadcast_to(multiplier, (outputs,)),
        shift=np.broadcast_to(shift, (outputs,)),
        zero_point=zero_point,
        clamp=clamp,
        rounding="away" if target == "litert" and operator.kind == "FULLY_CONNECTED" else "double",
    )


def _check_output(
    operator: TfliteOperator,
    layer: ConvLayer,
    x: TfliteTensor,
    y: TfliteTensor,
    refuse: _Refuse,
) -> None:
    """Refuse a file whose output shape is not what its geometry gives."""
    if operator.kind == "FULLY_CONNECTED":
        expected = math.prod(x.shape) // layer.in_channels * layer.out_channels
        if math.prod(y.shape) != expected or y.shape[-1:] != (layer.out_channels,):
            raise refuse(
                f"output must be rows of {layer.out_channels} values, {expected} in all, "
                f"but its shape is {y.shape}"
            )
    elif y.shape != (x.shape[0], *layer.output_shape[1:]):
        raise refuse(
            f"output must have shape {(x.shape[0], *layer.output_shape[1:])} by the geometry, "
            f"not {y.shape}"
        )
