"""Imported networks against the hashes of LiteRT's reference kernels, tensor by tensor."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from haloconv.planner.network_tflite import read_tflite_network
from haloconv.sim.network_golden import feed_network, golden_network

MODELS = Path(__file__).parents[3] / "shared" / "models"
HASHES = MODELS / "golden_ref.json"
# Tensors that the reference holds and the network does not: PAD that became pads.
FUSED = {"ssd_slim_120x160_int8": 15}
NAMES = (
    "resnet8_cifar10_int8",
    "kws_dscnn_int8",
    "ad01_autoencoder_int8",
    "person_detect_int8_litert",
    "micro_speech_int8",
    "hello_world_int8",
    "mnv1_025_partial_int8",
    "mobilenetv2_035_160_int8",
    "ssd_slim_120x160_int8",
    pytest.param("mobilenetv2_100_224_ptq_int8", marks=pytest.mark.slow),
)


def seeded(network):
    """Inputs as the recipe in golden_ref.json makes them."""
    found = []
    for index in network.inputs:
        tensor, rng = network.tensors[index], np.random.default_rng(0)
        low, high = (0, 256) if tensor.dtype == "uint8" else (-128, 128)
        found.append(rng.integers(low, high, tensor.shape).astype(tensor.dtype))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_hashes_as_the_reference(name):
    path = MODELS / f"{name}.tflite"
    if not path.exists() or not HASHES.exists():
        pytest.skip("the public models are not beside the checkout")
    network = read_tflite_network(path, "litert")
    values = golden_network(network, seeded(network))
    entries = json.loads(HASHES.read_text())[path.name]["ops"]
    absent = [entry for entry in entries if entry["tensor"] not in values]
    assert [entry["op"] for entry in absent] == ["PAD"] * FUSED.get(name, 0)
    checked = 0
    for entry in entries:
        if entry["tensor"] in values:
            found = values[entry["tensor"]]
            assert list(found.shape) == entry["shape"]
            assert found.dtype.name == entry["dtype"]
            digest = hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest()
            assert digest == entry["sha256"], f"{entry['op']} at {entry['index']}"
            checked += 1
    assert checked == len(entries) - len(absent)
