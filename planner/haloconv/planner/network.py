"""Networks as the engine sees them: tensors, and nodes that make tensors out of tensors.

Importers (``network_tflite``, ``network_onnx``) write this form, the compiler
(``network_program``) reads it. All tensors that nodes exchange are int8; codes of uint8 models are
shifted by -128 where the model is read.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloconv.planner.elementwise import Elementwise
from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import Requantization

__all__ = [
    "ConvNode",
    "ElementwiseNode",
    "HostNode",
    "MoveNode",
    "Network",
    "NetworkTensor",
    "Node",
]


@dataclass(frozen=True, eq=False)
class NetworkTensor:
    """A tensor of the model, by the model's own index.

    Parameters
    ----------
    index : int
    name : str
    shape : tuple of int
        As in the model; the compiler sees it as (N, H, W, C) by its nodes.
    dtype : str
        numpy name of the type in the model.
    scale : float
        Real value of one code step; 0.0 where the tensor is not quantised.
    zero_point : int
    data : array or None
        The value of a constant.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: float = 0.0
    zero_point: int = 0
    data: "NDArray[Any] | None" = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """What all nodes have.

    Parameters
    ----------
    index : int
        Of the operator in the model's own order. Several nodes have the same where one operator
        takes several; negative where the importer added the node at the model's border.
    name : str
        Of the operator, or of its output.
    operator : str
        The model's word for it, such as CONV_2D or QLinearConv.
    inputs, outputs : tuple of int
        Indices of tensors; constants that are part of the node are left out.
    """

    index: int
    name: str
    operator: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class ConvNode(Node):
    """A convolution on the engine; also fully connected, average and maximum pooling, mean.

    Average pooling and mean are depthwise convolutions with weights of one whose requantisation
    divides; maximum pooling has ``maximum``. ``batch`` items lie behind each other in the tensor.
    """

    layer: ConvLayer
    weights: "NDArray[np.int8]"
    bias: "NDArray[np.int32] | None"
    requantization: Requantization | None
    weight_zero_points: "NDArray[Any] | None" = None
    maximum: bool = False
    batch: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementwiseNode(Node):
    """Sums of table look-ups on the engine: one or two inputs of as many elements as the output."""

    function: Elementwise


@dataclass(frozen=True, eq=False, kw_only=True)
class MoveNode(Node):
    """Data movement that needs no arithmetic.

    ``kind`` is "view" (the same bytes under another shape), "concatenate" (along ``axis``), "pad"
    (``pads``: (before, after) for each axis, filled with ``fill``), "slice" (``begin``, ``end``,
    ``strides``), "transpose" (``permutation``) or "repeat" (nearest resize, ``factors``).
    """

    kind: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, eq=False, kw_only=True)
class HostNode(Node):
    """An operator that runs on the host: ``operator`` names it, ``options`` are its numbers."""

    options: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, eq=False)
class Network:
    """A model ready to be compiled.

    Parameters
    ----------
    name : str
    target : str
        Whose rounding the model follows (docs/arithmetic.md).
    tensors : dict of int to NetworkTensor
    nodes : tuple of Node
        In an order in which every input is made before it is used.
    inputs, outputs : tuple of int
        The model's inputs and outputs.
    """

    name: str
    target: str
    tensors: dict[int, NetworkTensor]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
