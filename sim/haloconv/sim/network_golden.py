"""Whole networks by the golden model: what every tensor of a network must hold."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.planner.network import ConvNode, ElementwiseNode, HostNode, MoveNode, Network
from haloconv.planner.requantization import Requantization
from haloconv.sim import golden
from haloconv.sim.host import run_host, run_move

__all__ = ["feed_network", "golden_network", "look_up"]

Array = npt.NDArray[Any]


def feed_network(
    network: Network, inputs: Array | Sequence[Array] | Mapping[int, Array]
) -> dict[int, Array]:
    """Return the model's inputs by tensor index, checked.

    Parameters
    ----------
    network : Network
    inputs : array, sequence of arrays, or mapping of tensor index to array
        In the order of the model's inputs, with the type and shape that it gives.

    Raises
    ------
    TypeError
        If an array has another type.
    ValueError
        If one is missing, unknown, or of another shape.
    """
    if isinstance(inputs, Mapping):
        given = {int(index): np.asarray(array) for index, array in inputs.items()}
        if set(given) != set(network.inputs):
            raise ValueError(
                f"inputs must be given for tensors {sorted(network.inputs)}, not {sorted(given)}"
            )
    else:
        listed = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        if len(listed) != len(network.inputs):
            raise ValueError(f"inputs must be {len(network.inputs)} arrays, not {len(listed)}")
        given = {
            index: np.asarray(array) for index, array in zip(network.inputs, listed, strict=True)
        }
    for index, array in given.items():
        tensor = network.tensors[index]
        if array.dtype != np.dtype(tensor.dtype):
            raise TypeError(f"input {tensor.name!r} must be {tensor.dtype}, not {array.dtype}")
        if array.shape != tensor.shape:
            raise ValueError(
                f"input {tensor.name!r} must have shape {tensor.shape}, not {array.shape}"
            )
    return given


def golden_network(
    network: Network, inputs: Array | Sequence[Array] | Mapping[int, Array]
) -> dict[int, Array]:
    """Return the contents of every tensor that the network makes from ``inputs``.

    Parameters
    ----------
    network : Network
    inputs : array, sequence of arrays, or mapping of tensor index to array
        As :func:`feed_network`.

    Returns
    -------
    dict of int to array
        Tensor index to contents, in the shapes of the model; the inputs included.

    Raises
    ------
    TypeError, ValueError
        As :func:`feed_network`.
    """
    values = feed_network(network, inputs)
    for node in network.nodes:
        shapes = [network.tensors[index].shape for index in node.outputs]
        arrays = [values[index] for index in node.inputs]
        if isinstance(node, ConvNode):
            found = [_convolve(node, arrays[0])]
        elif isinstance(node, ElementwiseNode):
            found = [look_up(node, arrays)]
        elif isinstance(node, MoveNode):
            found = [run_move(node, arrays, shapes[0])]
        elif isinstance(node, HostNode):
            found = run_host(node, values, network)
        else:
            raise TypeError(f"a node must be of the four kinds, not {type(node).__name__}")
        for index, array, shape in zip(node.outputs, found, shapes, strict=True):
            values[index] = array.reshape(shape)
    return values


def _convolve(node: ConvNode, x: Array) -> Array:
    layer = node.layer
    x = x.reshape(node.batch, layer.in_height, layer.in_width, layer.in_channels)
    if node.maximum:
        assert node.requantization is not None
        return golden.max_pool(x, layer.kernel, layer.stride, layer.pads, node.requantization.clamp)
    return golden.golden_layer(
        layer, x, node.weights, node.bias, node.requantization, node.weight_zero_points
    )


def look_up(node: ElementwiseNode, arrays: Sequence[Array]) -> Array:
    """Return the codes of an elementwise node: its tables summed and requantised in numpy."""
    function = node.function
    total = function.first[arrays[0].astype(np.int64) + 128].astype(np.int64)
    if function.second is not None:
        total = total + function.second[arrays[1].astype(np.int64) + 128]
    how = Requantization(
        multiplier=function.multiplier,
        shift=function.shift,
        zero_point=function.zero_point,
        clamp=function.clamp,
    )
    return golden.requantize(total, how)
