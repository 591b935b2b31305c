"""Small networks, node by node, with random weights.

Every tensor is int8. Convolutions take a random fixed-point scale that spreads their results over
the codes; all nodes are what the importers would make of such an operator.
"""

import math
from typing import Any

import numpy as np

from haloconv.planner.config import EngineConfig
from haloconv.planner.elementwise import (
    add_operator,
    product_operator,
    rescale_operator,
)
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
from haloconv.planner.pooling import average_pool_requantization, max_pool_requantization
from haloconv.planner.requantization import Requantization

__all__ = ["LARGE_ENGINE", "SMALL_ENGINE", "NetworkBuilder"]

SMALL_ENGINE = EngineConfig(
    out_lanes=4,
    split_lanes=3,
    bus_bytes=4,
    input_bytes=1024,
    weight_bytes=768,
    psum_bytes=256,
    bias_bytes=128,
    roundings=("double", "away"),
    units=("elementwise", "max_pool"),
    weight_zero_points=False,
    address_bits=24,
)
"""Quickly built and simulated; one for many tests, so that it is built once."""

LARGE_ENGINE = EngineConfig(
    input_bytes=8192,
    weight_bytes=16384,
    psum_bytes=15872,
    bias_bytes=512,
    roundings=("double", "away"),
    units=("elementwise",),
)
"""64 lanes and 64 KiB for the public models; one for all tests, as its build takes a while."""

NO_PADS = (0, 0, 0, 0)


class NetworkBuilder:
    """Collects nodes; methods return the index of the tensor that they make.

    Parameters
    ----------
    seed : int
        Of weights, scales and zero points.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: dict[int, NetworkTensor] = {}
        self.nodes: list[Node] = []
        self.inputs: list[int] = []

    def tensor(self, shape: Any, like: int | None = None, **more: Any) -> int:
        index = len(self.tensors)
        if like is None:
            scale, zero = float(np.float32(self.rng.uniform(0.02, 0.1))), self.rng.integers(-99, 99)
        else:
            scale, zero = self.tensors[like].scale, self.tensors[like].zero_point
        self.tensors[index] = NetworkTensor(
            index, f"t{index}", tuple(shape), "int8", scale, int(zero), **more
        )
        return index

    def shape(self, index: int) -> tuple[int, ...]:
        return self.tensors[index].shape

    def input(self, *shape: int) -> int:
        index = self.tensor(shape)
        self.inputs.append(index)
        return index

    def _base(self, operator: str, inputs: Any, output: int) -> dict[str, Any]:
        number = len(self.nodes)
        return {
            "index": number,
            "name": f"{operator.lower()} {number}",
            "operator": operator,
            "inputs": tuple(inputs),
            "outputs": (output,),
        }

    # Convolutions

    def conv(
        self,
        x: int,
        channels: int,
        kernel: tuple[int, int] = (3, 3),
        stride: tuple[int, int] = (1, 1),
        pads: tuple[int, int, int, int] = NO_PADS,
        *,
        groups: int = 1,
        bias: bool = True,
        raw: bool = False,
    ) -> int:
        batch, height, width, depth = self.shape(x)
        layer = ConvLayer(
            height,
            width,
            depth,
            channels,
            kernel,
            stride,
            pads=pads,
            groups=groups,
            in_zero_point=self.tensors[x].zero_point,
            has_bias=bias,
        )
        y = self.tensor((batch, layer.out_height, layer.out_width, channels))
        self._convolution("CONV_2D", x, y, layer, batch, raw)
        return y

    def dense(self, x: int, outputs: int) -> int:
        batch, depth = self.shape(x)
        layer = ConvLayer(
            1, 1, depth, outputs, (1, 1), in_zero_point=self.tensors[x].zero_point, has_bias=True
        )
        y = self.tensor((batch, outputs))
        self._convolution("FULLY_CONNECTED", x, y, layer, batch, False)
        return y

    def _convolution(
        self, operator: str, x: int, y: int, layer: ConvLayer, batch: int, raw: bool
    ) -> None:
        rng, channels = self.rng, layer.out_channels
        terms = layer.taps * layer.group_in_channels
        how = Requantization(
            multiplier=rng.integers(2**30, 2**31, channels),
            # Sums of random products spread over some 5000 * sqrt(terms).
            shift=np.full(channels, -6 - math.ceil(math.log2(terms) / 2)),
            zero_point=self.tensors[y].zero_point,
        )
        if raw:
            self.tensors[y] = NetworkTensor(y, f"t{y}", self.shape(y), "int32")
        self.nodes.append(
            ConvNode(
                **self._base(operator, (x,), y),
                layer=layer,
                weights=rng.integers(-128, 128, layer.weight_shape).astype(np.int8),
                bias=rng.integers(-999, 999, channels).astype(np.int32) if layer.has_bias else None,
                requantization=None if raw else how,
                batch=batch,
            )
        )

    def pool(
        self,
        x: int,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        pads: tuple[int, int, int, int] = NO_PADS,
        *,
        maximum: bool = False,
    ) -> int:
        """An average on the engine (no pads), a maximum on the engine."""
        batch, height, width, depth = self.shape(x)
        layer = ConvLayer(
            height,
            width,
            depth,
            depth,
            kernel,
            stride,
            pads=pads,
            groups=depth,
            in_zero_point=-128 if maximum else 0,
            has_bias=False,
        )
        y = self.tensor((batch, layer.out_height, layer.out_width, depth), like=x)
        taps = kernel[0] * kernel[1]
        how = max_pool_requantization() if maximum else average_pool_requantization(taps)
        self.nodes.append(
            ConvNode(
                **self._base("MAX_POOL_2D" if maximum else "AVERAGE_POOL_2D", (x,), y),
                layer=layer,
                weights=np.ones(layer.weight_shape, np.int8),
                bias=None,
                requantization=how,
                maximum=maximum,
                batch=batch,
            )
        )
        return y

    # Element by element

    def add(self, a: int, b: int, *, subtract: bool = False) -> int:
        y = self.tensor(self.shape(a))
        ends = [self.tensors[index] for index in (a, b, y)]
        function = add_operator(
            (ends[0].scale, ends[1].scale),
            (ends[0].zero_point, ends[1].zero_point),
            ends[2].scale,
            ends[2].zero_point,
            subtract=subtract,
        )
        base = self._base("SUB" if subtract else "ADD", (a, b), y)
        self.nodes.append(ElementwiseNode(**base, function=function))
        return y

    def product(self, x: int, code: int) -> int:
        y = self.tensor(self.shape(x))
        a, b = self.tensors[x], self.tensors[y]
        function = product_operator(
            (a.scale, 0.05), (a.zero_point, -3), b.scale, b.zero_point, constant=code
        )
        self.nodes.append(ElementwiseNode(**self._base("MUL", (x,), y), function=function))
        return y

    def rescale(self, x: int) -> int:
        y = self.tensor(self.shape(x))
        a, b = self.tensors[x], self.tensors[y]
        function = rescale_operator(a.scale, a.zero_point, b.scale, b.zero_point)
        self.nodes.append(ElementwiseNode(**self._base("QUANTIZE", (x,), y), function=function))
        return y

    # Data movement, and what the host computes

    def view(self, x: int, *shape: int) -> int:
        return self.move("view", (x,), shape)

    def concatenate(self, axis: int, *inputs: int) -> int:
        shape = list(self.shape(inputs[0]))
        shape[axis] = sum(self.shape(index)[axis] for index in inputs)
        return self.move("concatenate", inputs, shape, axis=axis)

    def pad(self, x: int, *pads: tuple[int, int]) -> int:
        shape = [n + sum(pair) for n, pair in zip(self.shape(x), pads, strict=True)]
        return self.move("pad", (x,), shape, pads=pads, fill=self.tensors[x].zero_point)

    def move(self, kind: str, inputs: Any, shape: Any, **options: Any) -> int:
        y = self.tensor(shape, like=inputs[0])
        base = self._base(kind.upper(), inputs, y)
        self.nodes.append(MoveNode(**base, kind=kind, options=options))
        return y

    def host(self, operator: str, x: int, shape: Any = None, **options: Any) -> int:
        y = self.tensor(self.shape(x) if shape is None else shape, like=x)
        base = self._base(operator, (x,), y)
        self.nodes.append(HostNode(**base, options=options))
        return y

    def network(self, *outputs: int) -> Network:
        return Network(
            name="built",
            target="tflm",
            tensors=dict(self.tensors),
            nodes=tuple(self.nodes),
            inputs=tuple(self.inputs),
            outputs=outputs,
        )

    def data(self, seed: int = 0) -> list[np.ndarray[Any, Any]]:
        """Random arrays for the inputs."""
        rng = np.random.default_rng(seed)
        return [rng.integers(-128, 128, self.shape(index)).astype(np.int8) for index in self.inputs]
