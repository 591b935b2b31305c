"""Networks from .tflite files: every operator of a graph becomes a node, or the file is refused."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import tflite  # pyright: ignore[reportMissingTypeStubs]

from haloconv.planner.conventions import activation_clamp, same_pads
from haloconv.planner.elementwise import (
    Elementwise,
    add_operator,
    product_operator,
    rescale_operator,
)
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
from haloconv.planner.pooling import (
    average_pool_requantization,
    max_pool_requantization,
    mean_requantization,
)
from haloconv.planner.requantization import Requantization
from haloconv.planner.tflite import (
    CONV_OPERATORS,
    TARGETS,
    TfliteModel,
    TfliteOperator,
    TfliteTensor,
    conv_layers,
    read_tflite,
)

__all__ = ["read_tflite_network"]

Array = npt.NDArray[Any]
schema = cast(Any, tflite)

_OWN_ROUNDING = (
    *("ADD", "SUB", "MUL", "MEAN", "RELU", "RELU6", "RELU_N1_TO_1"),
    *("LOGISTIC", "RESIZE_BILINEAR"),
)
"""Operators that XNNPACK rounds differently from the formulas used here."""


def read_tflite_network(path: str | PathLike[str], target: str = "tflm") -> Network:
    """Return the network of a .tflite file.

    Convolutions, fully connected layers, pooling and MEAN over the image become
    :class:`~haloconv.planner.network.ConvNode`, ADD, SUB, MUL by a constant and changes of scale
    :class:`~haloconv.planner.network.ElementwiseNode`, rearrangements
    :class:`~haloconv.planner.network.MoveNode`. PAD disappears into the convolutions behind it
    where it can. What has no unit in the engine is a :class:`~haloconv.planner.network.HostNode`.

    Parameters
    ----------
    path : path
    target : str
        One of :data:`~haloconv.planner.tflite.TARGETS`: whose rounding the network follows.

    Raises
    ------
    OSError
        If the file cannot be opened.
    ValueError
        If the target is unknown.
    UnsupportedModel
        For the first operator that is not supported, with its name, its place and the reason; if
        there is no operator.
    """
    if target not in TARGETS:
        raise ValueError(f"target must be one of {', '.join(TARGETS)}, not {target!r}")
    return _Importer(Path(path), target).network()


class _Importer:
    def __init__(self, path: Path, target: str) -> None:
        self._model: TfliteModel = read_tflite(path)
        self._target = target
        self._layers = {data.index: data for data in conv_layers(self._model, target)}
        self._more = _more_options(path)
        self._nodes: list[Node] = []
        # Tensors that the table of the model lacks, such as the inputs of a concatenation after
        # their scales were made equal.
        self._added: dict[int, NetworkTensor] = {}
        # Outputs of PAD operators that became pads of convolutions: their input, and the pads.
        self._fused: dict[int, tuple[int, tuple[int, int, int, int]]] = {}
        self._kinds: dict[str, Callable[[TfliteOperator], None]] = {
            **dict.fromkeys(CONV_OPERATORS, self._convolution),
            "ADD": self._sum,
            "SUB": self._sum,
            "MUL": self._product,
            "AVERAGE_POOL_2D": self._average_pool,
            "MAX_POOL_2D": self._max_pool,
            "MEAN": self._mean,
            "PAD": self._pad,
            "PADV2": self._pad,
            "RESHAPE": self._view,
            "SQUEEZE": self._view,
            "EXPAND_DIMS": self._view,
            "CONCATENATION": self._concatenate,
            "STRIDED_SLICE": self._strided_slice,
            "SLICE": self._slice,
            "TRANSPOSE": self._transpose,
            "RESIZE_NEAREST_NEIGHBOR": self._resize_nearest,
            "RESIZE_BILINEAR": self._resize_bilinear,
            "QUANTIZE": self._quantize,
            "DEQUANTIZE": self._dequantize,
            "RELU": self._relu,
            "RELU6": self._relu,
            "RELU_N1_TO_1": self._relu,
            "SOFTMAX": self._softmax,
            "LOGISTIC": self._logistic,
        }

    def network(self) -> Network:
        model = self._model
        if not model.operators:
            raise UnsupportedModel(f"{model.name} must have at least one operator, and has none")
        for operator in model.operators:
            step = self._kinds.get(operator.kind)
            if step is None:
                known = ", ".join(sorted(self._kinds))
                raise model.refuse(operator, f"known operators are {known}")
            if self._target == "xnnpack" and operator.kind in _OWN_ROUNDING:
                raise model.refuse(
                    operator,
                    "XNNPACK rounds it in a way of its own; use the target litert or tflm",
                )
            step(operator)
        self._check_order()
        used = {*model.inputs, *model.outputs}
        for node in self._nodes:
            used.update(node.inputs, node.outputs)
            if isinstance(node, HostNode):
                used.update(node.options.get("operands", ()))
        tensors = {
            index: self._added[index] if index in self._added else self._tensor(index)
            for index in sorted(used)
        }
        return Network(
            name=model.name,
            target=self._target,
            tensors=tensors,
            nodes=tuple(self._nodes),
            inputs=model.inputs,
            outputs=model.outputs,
        )

    def _tensor(self, index: int) -> NetworkTensor:
        tensor = self._model.tensors[index]
        quantized = bool(tensor.scales.size)
        return NetworkTensor(
            index=index,
            name=tensor.name,
            shape=tensor.shape,
            dtype=tensor.dtype,
            scale=float(tensor.scales[0]) if quantized else 0.0,
            zero_point=int(tensor.zero_points[0]) if quantized else 0,
            data=tensor.data,
        )

    def _check_order(self) -> None:
        """Refuse graphs that read what nobody has made."""
        model = self._model
        made = set(model.inputs)
        by_index = {operator.index: operator for operator in model.operators}
        for node in self._nodes:
            for index in node.inputs:
                if index in made:
                    continue
                tensor = model.tensors[index]
                if tensor.data is not None:
                    reason = f"input {tensor.name!r} is a constant; fold it when converting"
                elif tensor.is_variable:
                    reason = f"input {tensor.name!r} keeps its contents between inferences"
                else:
                    reason = f"input {tensor.name!r} is made by no earlier operator"
                raise model.refuse(by_index[node.index], reason)
            made.update(node.outputs)
        for index in model.outputs:
            if index not in made:
                raise UnsupportedModel(
                    f"{model.name}: output {model.tensors[index].name!r} is made by no operator; "
                    "convert the model again"
                )

    # What all operators need

    def _io(
        self, operator: TfliteOperator, inputs: int, *, at_most: int | None = None
    ) -> tuple[list[TfliteTensor], TfliteTensor]:
        """Return the input tensors and the output, whose numbers must be right."""
        count = len(operator.inputs)
        most = inputs if at_most is None else at_most
        if not inputs <= count <= most or min(operator.inputs) < 0 or len(operator.outputs) != 1:
            raise self._model.refuse(
                operator,
                f"it must have {inputs if most == inputs else f'{inputs} to {most}'} inputs and "
                f"one output, not {count} and {len(operator.outputs)}",
            )
        tensors = self._model.tensors
        return [tensors[i] for i in operator.inputs], tensors[operator.outputs[0]]

    def _options(self, operator: TfliteOperator) -> dict[str, Any]:
        options = operator.options
        if options is None:
            options = self._more.get(operator.index)
        if options is None:
            raise self._model.refuse(operator, "the file holds no options for it")
        return dict(options)

    def _check_int8(self, operator: TfliteOperator, *tensors: TfliteTensor) -> None:
        for tensor in tensors:
            if tensor.dtype != "int8":
                raise self._model.refuse(
                    operator,
                    f"{tensor.name!r} must be int8, not {tensor.dtype}; quantise the model to int8",
                )
            self._check_scale(operator, tensor, -128, 127)

    def _check_scale(
        self, operator: TfliteOperator, tensor: TfliteTensor, low: int, high: int
    ) -> None:
        refuse = self._model.refuse
        if tensor.scales.size != 1 or tensor.zero_points.size != 1:
            raise refuse(operator, f"{tensor.name!r} must have one scale, not {tensor.scales.size}")
        if not (np.isfinite(tensor.scales[0]) and tensor.scales[0] > 0):
            raise refuse(
                operator, f"scale of {tensor.name!r} must be positive, not {tensor.scales[0]}"
            )
        if not low <= int(tensor.zero_points[0]) <= high:
            raise refuse(
                operator,
                f"zero point of {tensor.name!r} must be within {low}..{high}, "
                f"not {int(tensor.zero_points[0])}",
            )

    def _check_same_scale(self, operator: TfliteOperator, x: TfliteTensor, y: TfliteTensor) -> None:
        if x.scales[0] != y.scales[0] or x.zero_points[0] != y.zero_points[0]:
            raise self._model.refuse(
                operator,
                f"input and output must have the same scale and zero point, not {x.scales[0]}, "
                f"{x.zero_points[0]} and {y.scales[0]}, {y.zero_points[0]}",
            )

    def _check_shape(self, operator: TfliteOperator, y: TfliteTensor, shape: Sequence[int]) -> None:
        if y.shape != tuple(shape):
            raise self._model.refuse(
                operator, f"output must have shape {tuple(shape)}, not {y.shape}"
            )

    def _clamp(self, operator: TfliteOperator, activation: str, y: TfliteTensor) -> tuple[int, int]:
        try:
            return activation_clamp(activation, y.scales[0], int(y.zero_points[0]))
        except ValueError as error:
            raise self._model.refuse(operator, str(error)) from None

    def _constant(
        self, operator: TfliteOperator, tensor: TfliteTensor, what: str, count: int | None = None
    ) -> list[int]:
        """Return the integers of a constant, such as axes or sizes."""
        if tensor.data is None or tensor.dtype not in ("int32", "int64"):
            raise self._model.refuse(operator, f"{what} must be constant integers")
        values = [int(v) for v in tensor.data.ravel()]
        if count is not None and len(values) != count:
            raise self._model.refuse(operator, f"{what} must be {count} integers, not {values}")
        return values

    def _base(
        self, operator: TfliteOperator, inputs: Sequence[int], output: int | None = None
    ) -> dict[str, Any]:
        outputs = operator.outputs if output is None else (output,)
        return {
            "index": operator.index,
            "name": self._model.tensors[operator.outputs[0]].name,
            "operator": operator.kind,
            "inputs": tuple(inputs),
            "outputs": tuple(outputs),
        }

    def _add(self, node: Node) -> None:
        self._nodes.append(node)

    # Convolutions

    def _convolution(self, operator: TfliteOperator) -> None:
        data = self._layers[operator.index]
        layer, source = data.layer, data.input_tensor
        batch = math.prod(self._model.tensors[source].shape) // math.prod(layer.input_shape)
        if source in self._fused:
            source, pads = self._fused[source]
            height, width = self._model.tensors[source].shape[1:3]
            top, bottom, left, right = (a + b for a, b in zip(layer.pads, pads, strict=True))
            layer = replace(
                layer, in_height=height, in_width=width, pads=(top, bottom, left, right)
            )
        self._add(
            ConvNode(
                **self._base(operator, (source,)),
                layer=layer,
                weights=data.weights,
                bias=data.bias,
                requantization=data.requantization,
                weight_zero_points=data.weight_zero_points,
                batch=batch,
            )
        )

    def _pad(self, operator: TfliteOperator) -> None:
        (x, amounts, *rest), y = self._io(operator, 2, at_most=3)
        self._check_int8(operator, x, y)
        self._check_same_scale(operator, x, y)
        flat = self._constant(operator, amounts, "paddings", 2 * len(x.shape))
        pads = tuple(zip(flat[0::2], flat[1::2], strict=True))
        if min(flat) < 0:
            raise self._model.refuse(operator, f"paddings must not be negative, not {flat}")
        self._check_shape(operator, y, [n + a + b for n, (a, b) in zip(x.shape, pads, strict=True)])
        fill = int(y.zero_points[0])
        if rest:
            value = rest[0]
            if value.data is None or value.dtype != "int8" or value.data.size != 1:
                raise self._model.refuse(operator, "its fill must be a constant int8 code")
            self._check_int8(operator, value)
            self._check_same_scale(operator, value, y)
            fill = int(value.data.ravel()[0])
        if (
            len(pads) == 4
            and pads[0] == pads[3] == (0, 0)
            and fill == int(y.zero_points[0])
            and self._feeds_convolutions_only(y.index)
        ):
            self._fused[y.index] = (x.index, (*pads[1], *pads[2]))
            return
        self._add(
            MoveNode(
                **self._base(operator, (x.index,)), kind="pad", options={"pads": pads, "fill": fill}
            )
        )

    def _feeds_convolutions_only(self, index: int) -> bool:
        readers = [op for op in self._model.operators if index in op.inputs]
        return (
            bool(readers)
            and index not in self._model.outputs
            and all(
                op.kind in ("CONV_2D", "DEPTHWISE_CONV_2D") and op.inputs.index(index) == 0
                for op in readers
            )
        )

    # Pooling

    def _pool_layer(
        self,
        x: TfliteTensor,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        pads: tuple[int, int, int, int],
        zero_point: int,
        name: str,
    ) -> tuple[ConvLayer, npt.NDArray[np.int8]]:
        """Return a depthwise layer with weights of one; ValueError where the engine has none."""
        _, height, width, channels = x.shape
        layer = ConvLayer(
            in_height=height,
            in_width=width,
            in_channels=channels,
            out_channels=channels,
            kernel=kernel,
            stride=stride,
            pads=pads,
            groups=channels,
            in_zero_point=zero_point,
            has_bias=False,
            name=name,
        )
        return layer, np.ones(layer.weight_shape, np.int8)

    def _window(
        self, operator: TfliteOperator
    ) -> tuple[TfliteTensor, TfliteTensor, dict[str, Any]]:
        """Return input, output and the options of a pooling operator, with pads and clamp."""
        (x,), y = self._io(operator, 1)
        self._check_int8(operator, x, y)
        self._check_same_scale(operator, x, y)
        options = self._options(operator)
        kernel, stride = options["kernel"], options["stride"]
        if len(x.shape) != 4:
            raise self._model.refuse(operator, f"input must have shape (N, H, W, C), not {x.shape}")
        if min(*kernel, *stride) < 1:
            raise self._model.refuse(
                operator, f"kernel and stride must be at least 1, not {kernel} and {stride}"
            )
        if options["padding"] not in ("SAME", "VALID"):
            raise self._model.refuse(
                operator, f"padding must be SAME or VALID, not {options['padding']}"
            )
        pads = (0, 0, 0, 0)
        if options["padding"] == "SAME":
            pads = same_pads(x.shape[1:3], kernel, stride)
        extent = [
            (size + before + after - taps) // step + 1
            for size, before, after, taps, step in zip(
                x.shape[1:3], pads[0::2], pads[1::2], kernel, stride, strict=True
            )
        ]
        self._check_shape(operator, y, (x.shape[0], *extent, x.shape[3]))
        clamp = self._clamp(operator, options["activation"], y)
        return x, y, {"kernel": kernel, "stride": stride, "pads": pads, "clamp": clamp}

    def _average_pool(self, operator: TfliteOperator) -> None:
        x, y, options = self._window(operator)
        kernel, pads = options["kernel"], options["pads"]
        if not any(pads):
            try:
                layer, weights = self._pool_layer(x, kernel, options["stride"], pads, 0, y.name)
                how = average_pool_requantization(kernel[0] * kernel[1], options["clamp"])
            except ValueError:
                pass  # beyond the limits of the engine's fields: the host has none
            else:
                self._add_pool(operator, x, layer, weights, how)
                return
        self._add(HostNode(**self._base(operator, (x.index,)), options=options))

    def _max_pool(self, operator: TfliteOperator) -> None:
        x, y, options = self._window(operator)
        try:
            # The engine shifts maxima by the input's zero point as it does products; -128 in and
            # out, and a scale of one, leaves the codes as they are and pads never win.
            layer, weights = self._pool_layer(
                x, options["kernel"], options["stride"], options["pads"], -128, y.name
            )
        except ValueError:
            self._add(HostNode(**self._base(operator, (x.index,)), options=options))
            return
        how = max_pool_requantization(options["clamp"])
        self._add_pool(operator, x, layer, weights, how, maximum=True)

    def _add_pool(
        self,
        operator: TfliteOperator,
        x: TfliteTensor,
        layer: ConvLayer,
        weights: npt.NDArray[np.int8],
        how: Requantization,
        *,
        maximum: bool = False,
    ) -> None:
        self._add(
            ConvNode(
                **self._base(operator, (x.index,)),
                layer=layer,
                weights=weights,
                bias=None,
                requantization=how,
                maximum=maximum,
                batch=x.shape[0],
            )
        )

    def _mean(self, operator: TfliteOperator) -> None:
        (x, which), y = self._io(operator, 2)
        self._check_int8(operator, x, y)
        rank = len(x.shape)
        listed = self._constant(operator, which, "axes")
        if not listed or any(not -rank <= axis < rank for axis in listed):
            raise self._model.refuse(
                operator, f"axes must be within {-rank}..{rank - 1}, not {listed}"
            )
        axes = tuple(sorted({axis % rank for axis in listed}))
        keep = bool(self._options(operator)["keep_dims"])
        shape = [1 if axis in axes else n for axis, n in enumerate(x.shape)]
        if not keep:
            shape = [n for axis, n in enumerate(x.shape) if axis not in axes]
        self._check_shape(operator, y, shape)
        if rank == 4 and axes == (1, 2):
            try:
                layer, weights = self._pool_layer(
                    x, (x.shape[1], x.shape[2]), (1, 1), (0, 0, 0, 0), int(x.zero_points[0]), y.name
                )
                how = mean_requantization(
                    layer.taps, x.scales[0], y.scales[0], int(y.zero_points[0])
                )
            except ValueError:
                pass  # beyond the limits of the engine's fields: the host has none
            else:
                self._add_pool(operator, x, layer, weights, how)
                return
        options = {"axes": axes, "keep_dims": keep}
        self._add(HostNode(**self._base(operator, (x.index,)), options=options))

    # Element by element

    def _operands(
        self, operator: TfliteOperator
    ) -> tuple[TfliteTensor, TfliteTensor, TfliteTensor, tuple[int, int]]:
        (a, b), y = self._io(operator, 2)
        self._check_int8(operator, a, b, y)
        try:
            shape = np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            raise self._model.refuse(
                operator, f"operands must have matching shapes, not {a.shape} and {b.shape}"
            ) from None
        self._check_shape(operator, y, shape)
        return a, b, y, self._clamp(operator, self._options(operator)["activation"], y)

    def _binary_host(
        self,
        operator: TfliteOperator,
        a: TfliteTensor,
        b: TfliteTensor,
        clamp: tuple[int, int],
    ) -> None:
        computed = [t.index for t in (a, b) if t.data is None]
        options = {"operands": (a.index, b.index), "clamp": clamp}
        self._add(HostNode(**self._base(operator, computed), options=options))

    def _sum(self, operator: TfliteOperator) -> None:
        a, b, y, clamp = self._operands(operator)
        subtract = operator.kind == "SUB"
        code_a, code_b = _single_code(a, y), _single_code(b, y)
        if (
            code_a is None
            and code_b is None
            and not (a.shape == b.shape and a.data is None and b.data is None)
        ):
            self._binary_host(operator, a, b, clamp)
            return
        function = add_operator(
            (float(a.scales[0]), float(b.scales[0])),
            (int(a.zero_points[0]), int(b.zero_points[0])),
            float(y.scales[0]),
            int(y.zero_points[0]),
            clamp,
            subtract=subtract,
            constant=code_b,
        )
        inputs = [t.index for t in (a, b) if t.data is None]
        if code_a is not None:
            assert function.second is not None
            table = (function.second + function.first[code_a + 128]).astype(np.int32)
            function = replace(function, first=table, second=None)
        self._add_function(operator, inputs, function)

    def _product(self, operator: TfliteOperator) -> None:
        a, b, y, clamp = self._operands(operator)
        if _single_code(a, y) is not None:
            a, b = b, a
        code = _single_code(b, y)
        if code is None:
            first, second = (self._model.tensors[i] for i in operator.inputs)
            self._binary_host(operator, first, second, clamp)
            return
        function = product_operator(
            (float(a.scales[0]), float(b.scales[0])),
            (int(a.zero_points[0]), int(b.zero_points[0])),
            float(y.scales[0]),
            int(y.zero_points[0]),
            clamp,
            constant=code,
        )
        self._add_function(operator, (a.index,), function)

    def _add_function(
        self, operator: TfliteOperator, inputs: Sequence[int], function: Elementwise
    ) -> None:
        self._add(ElementwiseNode(**self._base(operator, inputs), function=function))

    def _rescale(
        self, x: TfliteTensor, y: TfliteTensor, clamp: tuple[int, int] = (-128, 127)
    ) -> Elementwise:
        return rescale_operator(
            float(x.scales[0]),
            int(x.zero_points[0]),
            float(y.scales[0]),
            int(y.zero_points[0]),
            clamp,
        )

    def _relu(self, operator: TfliteOperator) -> None:
        (x,), y = self._io(operator, 1)
        self._check_int8(operator, x, y)
        self._check_shape(operator, y, x.shape)
        if operator.kind == "RELU6" and self._target == "tflm":
            # Its kernel clamps the codes and leaves the scale alone.
            self._check_same_scale(operator, x, y)
        clamp = self._clamp(operator, operator.kind, y)
        self._add_function(operator, (x.index,), self._rescale(x, y, clamp))

    def _quantize(self, operator: TfliteOperator) -> None:
        (x,), y = self._io(operator, 1)
        self._check_shape(operator, y, x.shape)
        self._border(operator, x, ("int8", "uint8", "float32"))
        self._border(operator, y, ("int8", "uint8"))
        if self._target == "xnnpack" and x.dtype != "float32" and x.scales[0] != y.scales[0]:
            raise self._model.refuse(
                operator,
                "XNNPACK rounds a change of scale in a way of its own; use the target litert or "
                "tflm",
            )
        if x.dtype == y.dtype == "int8":
            self._add_function(operator, (x.index,), self._rescale(x, y))
        else:
            self._add(HostNode(**self._base(operator, (x.index,))))

    def _dequantize(self, operator: TfliteOperator) -> None:
        (x,), y = self._io(operator, 1)
        self._check_shape(operator, y, x.shape)
        self._border(operator, x, ("int8", "uint8"))
        self._border(operator, y, ("float32",))
        self._add(HostNode(**self._base(operator, (x.index,))))

    def _border(
        self, operator: TfliteOperator, tensor: TfliteTensor, types: tuple[str, ...]
    ) -> None:
        if tensor.dtype not in types:
            raise self._model.refuse(
                operator,
                f"{tensor.name!r} must be {' or '.join(types)}, not {tensor.dtype}",
            )
        if tensor.dtype != "float32":
            low = 0 if tensor.dtype == "uint8" else -128
            self._check_scale(operator, tensor, low, low + 255)

    # Data movement

    def _moved(
        self, operator: TfliteOperator, inputs: int, *, at_most: int | None = None
    ) -> tuple[list[TfliteTensor], TfliteTensor]:
        """Return the tensors of an operator that moves int8 codes as they are."""
        found, y = self._io(operator, inputs, at_most=at_most)
        self._check_int8(operator, found[0], y)
        self._check_same_scale(operator, found[0], y)
        return found, y

    def _add_move(
        self, operator: TfliteOperator, x: TfliteTensor, kind: str, options: dict[str, Any]
    ) -> None:
        self._add(MoveNode(**self._base(operator, (x.index,)), kind=kind, options=options))

    def _view(self, operator: TfliteOperator) -> None:
        (x, *_), y = self._moved(operator, 1, at_most=2)
        if math.prod(x.shape) != math.prod(y.shape):
            raise self._model.refuse(
                operator, f"shape {y.shape} must hold as many values as {x.shape}"
            )
        self._add_move(operator, x, "view", {})

    def _concatenate(self, operator: TfliteOperator) -> None:
        tensors, y = self._io(operator, 1, at_most=len(operator.inputs))
        self._check_int8(operator, *tensors, y)
        options = self._options(operator)
        if options["activation"] != "NONE":
            raise self._model.refuse(
                operator, f"activation must be NONE, not {options['activation']}"
            )
        rank = len(y.shape)
        axis = options["axis"]
        if not -rank <= axis < rank:
            raise self._model.refuse(operator, f"axis must be within 0..{rank - 1}, not {axis}")
        axis %= rank
        for x in tensors:
            if x.shape[:axis] != y.shape[:axis] or x.shape[axis + 1 :] != y.shape[axis + 1 :]:
                raise self._model.refuse(
                    operator, f"shapes must differ along axis {axis} only, not {x.shape}, {y.shape}"
                )
        extents: list[int] = [x.shape[axis] for x in tensors]
        if sum(extents) != y.shape[axis]:
            raise self._model.refuse(
                operator,
                f"extents along axis {axis} must add up to {y.shape[axis]}, not {extents}",
            )
        inputs: list[int] = []
        for x in tensors:
            if x.scales[0] == y.scales[0] and x.zero_points[0] == y.zero_points[0]:
                inputs.append(x.index)
                continue
            if self._target == "xnnpack":
                raise self._model.refuse(
                    operator, f"{x.name!r} must have the scale of the output {y.name!r}"
                )
            new = len(self._model.tensors) + len(self._added)
            self._added[new] = NetworkTensor(
                index=new,
                name=f"{x.name} rescaled",
                shape=x.shape,
                dtype="int8",
                scale=float(y.scales[0]),
                zero_point=int(y.zero_points[0]),
            )
            base = self._base(operator, (x.index,), new)
            self._add(ElementwiseNode(**base, function=self._rescale(x, y)))
            inputs.append(new)
        self._add(
            MoveNode(**self._base(operator, inputs), kind="concatenate", options={"axis": axis})
        )

    def _strided_slice(self, operator: TfliteOperator) -> None:
        (x, *numbers), y = self._moved(operator, 4)
        rank = len(x.shape)
        options = self._options(operator)
        for name in ("ellipsis", "new_axis"):
            if options[name]:
                raise self._model.refuse(operator, f"its {name} mask must be 0")
        begin, end, strides = (
            self._constant(operator, tensor, what, rank)
            for tensor, what in zip(numbers, ("begin", "end", "strides"), strict=True)
        )
        ranges: list[range] = []
        for axis, size in enumerate(x.shape):
            step = strides[axis]
            if step < 1:
                raise self._model.refuse(operator, f"strides must be positive, not {strides}")
            first = None if options["begin"] >> axis & 1 else begin[axis]
            last = None if options["end"] >> axis & 1 else end[axis]
            if options["shrink"] >> axis & 1:
                position = begin[axis] + (size if begin[axis] < 0 else 0)
                first, last, step = position, position + 1, 1
            ranges.append(range(size)[first:last:step])
        self._add_slice(operator, x, y, ranges, options["shrink"])

    def _slice(self, operator: TfliteOperator) -> None:
        (x, starts, sizes), y = self._moved(operator, 3)
        rank = len(x.shape)
        begin = self._constant(operator, starts, "begin", rank)
        size = self._constant(operator, sizes, "size", rank)
        ranges: list[range] = []
        for extent, first, count in zip(x.shape, begin, size, strict=True):
            last = extent if count == -1 else first + count
            if not 0 <= first <= last <= extent:
                raise self._model.refuse(
                    operator, f"begin {begin} and size {size} must lie within {x.shape}"
                )
            ranges.append(range(first, last))
        self._add_slice(operator, x, y, ranges, 0)

    def _add_slice(
        self,
        operator: TfliteOperator,
        x: TfliteTensor,
        y: TfliteTensor,
        ranges: Sequence[range],
        shrink: int,
    ) -> None:
        self._check_shape(
            operator, y, [len(r) for axis, r in enumerate(ranges) if not shrink >> axis & 1]
        )
        options = {
            "begin": tuple(r.start for r in ranges),
            "end": tuple(r.stop for r in ranges),
            "strides": tuple(r.step for r in ranges),
        }
        self._add_move(operator, x, "slice", options)

    def _transpose(self, operator: TfliteOperator) -> None:
        (x, order), y = self._moved(operator, 2)
        rank = len(x.shape)
        listed = self._constant(operator, order, "permutation", rank)
        permutation = tuple(axis % rank for axis in listed)
        if sorted(permutation) != list(range(rank)):
            raise self._model.refuse(operator, f"permutation must name each axis, not {listed}")
        self._check_shape(operator, y, [x.shape[axis] for axis in permutation])
        self._add_move(operator, x, "transpose", {"permutation": permutation})

    def _resized(self, operator: TfliteOperator) -> tuple[TfliteTensor, dict[str, Any]]:
        (x, size), y = self._moved(operator, 2)
        if len(x.shape) != 4:
            raise self._model.refuse(operator, f"input must have shape (N, H, W, C), not {x.shape}")
        extent = self._constant(operator, size, "size", 2)
        self._check_shape(operator, y, (x.shape[0], *extent, x.shape[3]))
        if min(*extent, *x.shape[1:3]) < 1:
            raise self._model.refuse(operator, f"size must be positive, not {extent}")
        options = self._options(operator)
        if options["align_corners"] and options["half_pixel_centers"]:
            raise self._model.refuse(operator, "align_corners excludes half_pixel_centers")
        return x, {"size": tuple(extent), **options}

    def _resize_nearest(self, operator: TfliteOperator) -> None:
        x, options = self._resized(operator)
        sources = [
            _nearest(n, wanted, options["align_corners"], options["half_pixel_centers"])
            for n, wanted in zip(x.shape[1:3], options["size"], strict=True)
        ]
        factors = [wanted // n for n, wanted in zip(x.shape[1:3], options["size"], strict=True)]
        if all(
            np.array_equal(found, np.arange(n).repeat(factor))
            for found, n, factor in zip(sources, x.shape[1:3], factors, strict=True)
        ):
            self._add_move(operator, x, "repeat", {"factors": (1, *factors, 1)})
            return
        options = {"rows": sources[0].tolist(), "columns": sources[1].tolist()}
        self._add(HostNode(**self._base(operator, (x.index,)), options=options))

    def _resize_bilinear(self, operator: TfliteOperator) -> None:
        x, options = self._resized(operator)
        self._add(HostNode(**self._base(operator, (x.index,)), options=options))

    # Functions of the host

    def _check_unit_output(self, operator: TfliteOperator, y: TfliteTensor) -> None:
        if y.scales[0] != np.float32(1 / 256) or y.zero_points[0] != -128:
            raise self._model.refuse(
                operator,
                "output must have scale 1/256 and zero point -128, not "
                f"{y.scales[0]} and {y.zero_points[0]}",
            )

    def _softmax(self, operator: TfliteOperator) -> None:
        (x,), y = self._io(operator, 1)
        self._check_int8(operator, x, y)
        self._check_shape(operator, y, x.shape)
        self._check_unit_output(operator, y)
        options = {"beta": float(self._options(operator)["beta"])}
        self._add(HostNode(**self._base(operator, (x.index,)), options=options))

    def _logistic(self, operator: TfliteOperator) -> None:
        (x,), y = self._io(operator, 1)
        self._check_int8(operator, x, y)
        self._check_shape(operator, y, x.shape)
        self._check_unit_output(operator, y)
        self._add(HostNode(**self._base(operator, (x.index,))))


def _single_code(tensor: TfliteTensor, y: TfliteTensor) -> int | None:
    """Return the code that a constant repeats, None where there is no such code."""
    if tensor.data is None or not tensor.data.size or len(tensor.shape) > len(y.shape):
        return None
    codes = tensor.data.ravel()
    return int(codes[0]) if np.all(codes == codes[0]) else None


def _nearest(size: int, wanted: int, align_corners: bool, half_pixel: bool) -> Array:
    """Return the input position of each output position, in float32 as the kernels take it."""
    numbers = np.arange(wanted, dtype=np.float32) + np.float32(0.5 if half_pixel else 0.0)
    if align_corners and wanted > 1:
        scale = np.float32(size - 1) / np.float32(wanted - 1)
    else:
        scale = np.float32(size) / np.float32(wanted)
    real = numbers * scale
    found = np.floor(real + np.float32(0.5)) if align_corners else np.floor(real)
    return np.clip(found.astype(np.int64), 0, size - 1)


_MORE_OPTIONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "StridedSliceOptions": lambda o: {
        "begin": o.BeginMask(),
        "end": o.EndMask(),
        "ellipsis": o.EllipsisMask(),
        "new_axis": o.NewAxisMask(),
        "shrink": o.ShrinkAxisMask(),
    },
    "ResizeNearestNeighborOptions": lambda o: {
        "align_corners": bool(o.AlignCorners()),
        "half_pixel_centers": bool(o.HalfPixelCenters()),
    },
    "ResizeBilinearOptions": lambda o: {
        "align_corners": bool(o.AlignCorners()),
        "half_pixel_centers": bool(o.HalfPixelCenters()),
    },
}


def _more_options(path: Path) -> dict[int, dict[str, Any]]:
    """Return by operator the options that :func:`read_tflite` leaves out.

    The file has been read once, so that its tables are known to be whole.
    """
    types: dict[int, str] = {getattr(schema.BuiltinOptions, name): name for name in _MORE_OPTIONS}
    graph = schema.Model.GetRootAs(path.read_bytes(), 0).Subgraphs(0)
    found: dict[int, dict[str, Any]] = {}
    for index in range(int(graph.OperatorsLength())):
        operator = graph.Operators(index)
        name = types.get(operator.BuiltinOptionsType())
        table = operator.BuiltinOptions()
        if name is not None and table is not None:
            options = getattr(schema, name)()
            options.Init(table.Bytes, table.Pos)
            found[index] = _MORE_OPTIONS[name](options)
    return found
