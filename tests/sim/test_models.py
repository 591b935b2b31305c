"""Layers of real models in RTL: outputs hash to those of LiteRT's reference kernels."""

import json
from pathlib import Path

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.tflite import read_tflite
from haloconv.sim.backend import choose_backend
from haloconv.sim.verify import model_input, model_tasks, run_tasks, verify_model

from ..support.networks import LARGE_ENGINE as ENGINE

MODELS = Path(__file__).parents[2].parent / "shared" / "models"
GOLDEN = MODELS / "golden_ref.json"
CHOICE = choose_backend("auto")

LAYERS = {
    "resnet8_cifar10_int8": 10,
    "kws_dscnn_int8": 10,
    "mnv1_025_partial_int8": 2,
    "hello_world_int8": 3,
}
"""Convolution, depthwise and fully connected layers of each model."""


def model(name: str) -> Path:
    path = MODELS / f"{name}.tflite"
    if not path.exists() or not GOLDEN.exists():
        pytest.skip("the public models are not beside the checkout")
    return path


@pytest.mark.slow
@pytest.mark.skipif(
    CHOICE.name == "amaranth", reason=f"takes a compiled simulator; this machine: {CHOICE.reason}"
)
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_in_rtl(name: str) -> None:
    """golden_ref.json holds hashes of LiteRT's outputs for the same seeded input."""
    results = list(verify_model(model(name), ENGINE, hashes=GOLDEN))
    assert len(results) == LAYERS[name]
    for found in results:
        assert found.passed, f"{found.title}: {found.complaint()}"
        assert found.cycles == found.predicted_cycles, found.title
        assert found.utilisation > 0


def test_a_wrong_hash_fails(tmp_path: Path) -> None:
    path = model("hello_world_int8")
    listed = json.loads(GOLDEN.read_text())
    for entry in listed[path.name]["ops"]:
        entry["sha256"] = entry["sha256"][::-1]
    wrong = tmp_path / "hashes.json"
    wrong.write_text(json.dumps(listed))
    small = EngineConfig(
        out_lanes=2, split_lanes=2, bus_bytes=4, input_bytes=64, weight_bytes=64, bias_bytes=64
    )
    right = model_tasks(path, small, hashes=GOLDEN, backend="amaranth")
    # FULLY_CONNECTED alone, which LiteRT rounds halves away from zero.
    assert {task.arguments["config"].roundings for task in right} == {("away",)}
    assert right[2].run().passed
    found = model_tasks(path, small, hashes=wrong, backend="amaranth")[2].run()
    assert not found.exact and found.bytes_exact and found.cycles_close
    # Without hashes the golden model's outputs count.
    (*_, last) = run_tasks(model_tasks(path, small, backend="amaranth")[2:])
    assert last.passed and last.title == "hello_world_int8.tflite 2 fully_connected"


def test_hashes_that_do_not_fit(tmp_path: Path) -> None:
    path = model("hello_world_int8")
    file = tmp_path / "hashes.json"
    for text, message in (
        ("{}", "must hold 'hello_world_int8.tflite' to check hello_world_int8.tflite"),
        ("[", "must be a JSON file of hashes, but"),
        ('{"hello_world_int8.tflite": {"ops": []}}', "must list operator 0 of hello_world"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            model_tasks(path, ENGINE, hashes=file)


def test_seeded_inputs() -> None:
    """As golden_ref.json says it made its inputs."""
    loaded = read_tflite(model("hello_world_int8"))
    (first,) = model_input(loaded)
    expected = np.random.default_rng(0).integers(-128, 128, first.shape).astype(np.int8)
    np.testing.assert_array_equal(first, expected)
    (other,) = model_input(loaded, seed=1)
    assert first.dtype == other.dtype == np.int8
    images = read_tflite(model("kws_dscnn_int8"))
    assert not np.array_equal(model_input(images)[0], model_input(images, seed=1)[0])
