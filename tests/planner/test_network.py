"""The form in which networks are handed from importers to the compiler."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from haloconv.planner.layer import ConvLayer
from haloconv.planner.network import ConvNode, HostNode, MoveNode, Network, NetworkTensor


def base(**more):
    return {"index": 0, "name": "n", "operator": "OP", "inputs": (0,), "outputs": (1,)} | more


def test_defaults_are_plain():
    layer = ConvLayer(1, 1, 2, 3, (1, 1), has_bias=False)
    weights = np.zeros(layer.weight_shape, np.int8)
    node = ConvNode(**base(), layer=layer, weights=weights, bias=None, requantization=None)
    assert (node.maximum, node.batch, node.weight_zero_points) == (False, 1, None)
    tensor = NetworkTensor(0, "x", (1, 2), "int8")
    assert (tensor.scale, tensor.zero_point, tensor.data) == (0.0, 0, None)


def test_options_are_not_shared_between_nodes():
    first, second = MoveNode(**base(), kind="view"), MoveNode(**base(), kind="view")
    assert first.options == second.options == {}
    assert first.options is not second.options
    assert HostNode(**base()).options == {}


def test_networks_do_not_change():
    network = Network("m", "tflm", {}, (), (), ())
    with pytest.raises(FrozenInstanceError):
        network.name = "other"
    with pytest.raises(FrozenInstanceError):
        HostNode(**base()).index = 1


def test_nodes_are_told_apart_by_identity():
    # Arrays have no single truth value, so that comparing contents would fail.
    assert HostNode(**base()) != HostNode(**base())
    with pytest.raises(TypeError):
        HostNode(0, "n", "OP", (0,), (1,))
