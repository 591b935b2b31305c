"""Activations of a whole model by the golden model: what each tensor must hold."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.planner.conventions import activation_clamp, same_pads
from haloconv.planner.tflite import (
    CONV_OPERATORS,
    LayerData,
    TfliteModel,
    TfliteOperator,
    TfliteTensor,
    conv_layers,
    read_tflite,
)
from haloconv.sim import golden

__all__ = ["reference_tensors"]

Array = npt.NDArray[Any]


def reference_tensors(
    model: str | PathLike[str] | TfliteModel,
    inputs: Array | Sequence[Array] | Mapping[int, Array],
    target: str = "litert",
) -> dict[int, Array]:
    """Return the contents of every tensor that the model computes from ``inputs``.

    Covers CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED, ADD, SUB, MUL, AVERAGE_POOL_2D, MAX_POOL_2D,
    MEAN, PAD, CONCATENATION, RESHAPE, and QUANTIZE between equal scales. Another operator, such as
    a SOFTMAX at the end, is left out with all that follows from it, unless that holds a
    convolution.

    Parameters
    ----------
    model : path or TfliteModel
    inputs : array, sequence of arrays, or mapping of tensor index to array
        In the order of the model's inputs, with the type and shape that it gives.
    target : str
        Whose rounding the convolutions follow, one of
        :data:`~haloconv.planner.tflite.TARGETS`.

    Returns
    -------
    dict of int to array
        Tensor index to contents, the inputs included and constants not.

    Raises
    ------
    TypeError, ValueError
        If an input is missing or has another type or shape.
    UnsupportedModel
        If a convolution needs an operator that is not covered here.
    """
    if not isinstance(model, TfliteModel):
        model = read_tflite(model)
    run = _Run(model, conv_layers(model, target))
    run.feed(inputs)
    for operator in model.operators:
        run.step(operator)
    return run.values


class _Run:
    def __init__(self, model: TfliteModel, layers: list[LayerData]) -> None:
        self.values: dict[int, Array] = {}
        self._model = model
        self._layers = {layer.index: layer for layer in layers}
        # Tensors that were left out, and the operator that is to blame.
        self._missing: dict[int, TfliteOperator] = {}
        self._kinds = {
            "ADD": self._add,
            "SUB": self._subtract,
            "MUL": self._multiply,
            "AVERAGE_POOL_2D": self._average_pool,
            "MAX_POOL_2D": self._max_pool,
            "MEAN": self._mean,
            "PAD": self._pad,
            "CONCATENATION": self._concatenate,
            "RESHAPE": self._reshape,
            "QUANTIZE": self._quantize,
        } | dict.fromkeys(CONV_OPERATORS, self._convolve)

    def feed(self, inputs: Array | Sequence[Array] | Mapping[int, Array]) -> None:
        model = self._model
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(model.inputs):
                raise ValueError(
                    f"inputs must be {len(model.inputs)} arrays, one for each input of the model, "
                    f"not {len(inputs)}"
                )
            inputs = dict(zip(model.inputs, inputs, strict=True))
        for index in model.inputs:
            tensor = model.tensors[index]
            if index not in inputs:
                raise ValueError(f"inputs must hold tensor {index} ({tensor.name!r})")
            array = np.asarray(inputs[index])
            if array.dtype != tensor.dtype:
                raise TypeError(f"input {tensor.name!r} must be {tensor.dtype}, not {array.dtype}")
            if array.shape != tensor.shape:
                raise ValueError(
                    f"input {tensor.name!r} must have shape {tensor.shape}, not {array.shape}"
                )
            self.values[index] = array

    def step(self, operator: TfliteOperator) -> None:
        compute = self._kinds.get(operator.kind)
        lost = [self._missing[index] for index in operator.inputs if index in self._missing]
        if lost and operator.kind in CONV_OPERATORS:
            raise self._model.refuse(
                lost[0], f"operator {operator.index}, {operator.kind}, needs its result"
            )
        if lost or compute is None:
            self._missing |= dict.fromkeys(operator.outputs, lost[0] if lost else operator)
            return
        output = self._model.tensors[operator.outputs[0]]
        result = np.asarray(compute(operator, output))
        if result.size != np.prod(output.shape, dtype=np.int64):
            raise self._model.refuse(
                operator, f"its output must have shape {output.shape}, not {result.shape}"
            )
        self.values[output.index] = result.reshape(output.shape)

    def _tensor(self, operator: TfliteOperator, position: int) -> TfliteTensor:
        if position >= len(operator.inputs) or operator.inputs[position] < 0:
            raise self._model.refuse(operator, f"it must have an input {position}")
        return self._model.tensors[operator.inputs[position]]

    def _value(self, operator: TfliteOperator, position: int) -> Array:
        tensor = self._tensor(operator, position)
        if tensor.data is not None:
            return tensor.data
        if tensor.index not in self.values:
            raise self._model.refuse(operator, f"nothing computes its input {tensor.name!r}")
        return self.values[tensor.index]

    def _scale(self, operator: TfliteOperator, tensor: TfliteTensor) -> tuple[float, int]:
        if tensor.dtype != "int8" or tensor.scales.size != 1 or tensor.zero_points.size != 1:
            raise self._model.refuse(
                operator, f"tensor {tensor.name!r} must be int8 with one scale, not {tensor.dtype}"
            )
        return float(tensor.scales[0]), int(tensor.zero_points[0])

    def _quantized(self, operator: TfliteOperator, position: int) -> golden.Quantized:
        scale, zero_point = self._scale(operator, self._tensor(operator, position))
        return golden.Quantized(self._value(operator, position), scale, zero_point)

    def _same_scale(self, operator: TfliteOperator, output: TfliteTensor, position: int) -> Array:
        """Return an input after checking that its codes mean the same in the output."""
        if self._scale(operator, self._tensor(operator, position)) != self._scale(operator, output):
            raise self._model.refuse(operator, "input and output must have the same quantisation")
        return self._value(operator, position)

    def _option(self, operator: TfliteOperator, name: str) -> Any:
        if operator.options is None or name not in operator.options:
            raise self._model.refuse(operator, f"the file gives no {name} for it")
        return operator.options[name]

    def _clamp(self, operator: TfliteOperator, output: TfliteTensor) -> tuple[int, int]:
        scale, zero_point = self._scale(operator, output)
        # Files may leave the option table out where every option has its default.
        activation = "NONE" if operator.options is None else self._option(operator, "activation")
        try:
            return activation_clamp(activation, scale, zero_point)
        except ValueError as error:
            raise self._model.refuse(operator, str(error)) from None

    def _convolve(self, operator: TfliteOperator, output: TfliteTensor) -> Array:
        data = self._layers[operator.index]
        x = self._value(operator, 0)
        if operator.kind == "FULLY_CONNECTED":
            x = x.reshape(-1, 1, 1, data.layer.in_channels)
        return golden.golden_layer(
            data.layer, x, data.weights, data.bias, data.requantization, data.weight_zero_points
        )

    def _add(self, operator: TfliteOperator, output: TfliteTensor) -> Array:
        a, b = self._quantized(operator, 0), self._quantized(operator, 1)
        return golden.add(a, b, *self._scale(operator, output), self._clamp(operator, output))

    def _subtract(self, operator: TfliteOperator, output: TfliteTensor) -> Array:
        a, b = self._quantized(operator, 0), self._quantized(operator, 1)
        return golden.subtract(a, b, *self._scale(operator, output), self._clamp(operator, output))

    def _multiply(self, operator: TfliteOperator, output: TfliteTensor) -> Array:
        a, b = self._quantized(operator, 0), self._quantized(operator, 1)
        return golden.multiply(a, b, *self._scale(operator, output), self._clamp(operator, output))

    def _pool_window(
        self, operator: TfliteOperator, x: Array
    ) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int, int, int]]:
        kernel, stride = self._option(operator, "kernel"), self._option(operator, "stride")
        if min(*kernel, *stride) < 1:
            raise self._model.refuse(
                operator, f"kernel and stride must be at least 1, not {kernel} and {stride}"
            )
        if self._option(operator, "padding") == "SAME":
            return kernel, stride, same_pads((x.shape[1], x.shape[2]), kernel, stride)
        return kernel, stride, (0, 0, 0, 0)

    def _average_pool(self, operator: TfliteOperator, output: TfliteTensor) -> Array:
        x = self._same_scale(operator, output, 0)
        window = self._pool_window(operator, x)
        return golden.average_pool(x, *window, self._clamp(operator, output))

    def _max_pool(self, operator: TfliteOperator, output: TfliteTensor) -> Array:
        x = self._same_scale(operator, output, 0)
        window = self._pool_window(operator, x)
        return golden.max_pool(x, *window, self._clamp(operator, output))

    def _mean(self, operator: TfliteOperator, output: TfliteTensor) -> Array:
        x = self._quantized(operator, 0)
        axes = tuple(int(axis) % x.codes.ndim for axis in self._value(operator, 1).ravel())
        return golden.mean(x, axes, *self._scale(operator, output))

    def _pad(self, operator: TfliteOperator, output: TfliteTensor) -> Array:
        x = self._same_scale(operator, output, 0)
        return golden.pad(x, self._value(operator, 1), self._scale(operator, output)[1])

    def _concatenate(self, operator: TfliteOperator, output: TfliteTensor) -> Array:
        parts = [self._same_scale(operator, output, i) for i in range(len(operator.inputs))]
        if self._option(operator, "activation") != "NONE":
            raise self._model.refuse(operator, "a fused activation does not apply to it")
        return np.concatenate(parts, axis=self._option(operator, "axis"))

    def _reshape(self, operator: TfliteOperator, output: TfliteTensor) -> Array:
        return self._value(operator, 0)

    def _quantize(self, operator: TfliteOperator, output: TfliteTensor) -> Array:
        x = self._tensor(operator, 0)
        if (
            x.dtype not in ("int8", "uint8")
            or output.dtype not in ("int8", "uint8")
            or not np.array_equal(x.scales, output.scales)
            or x.scales.size != 1
        ):
            raise self._model.refuse(operator, "only a change of zero point is covered")
        shift = int(output.zero_points[0]) - int(x.zero_points[0])
        limits = np.iinfo(output.dtype)
        codes = np.clip(self._value(operator, 0).astype(np.int64) + shift, limits.min, limits.max)
        return codes.astype(output.dtype)
