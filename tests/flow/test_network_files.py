"""The files of a compiled network, apart from the command that writes them."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloconv.flow import network_files as module
from haloconv.flow.network_files import network_files, program_record, program_text, write_files
from haloconv.flow.network_inputs import seeded_inputs
from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, ELEMENTWISE
from haloconv.planner.network_file import read_network
from haloconv.planner.network_program import NetworkProgram, compile_network

_spec = importlib.util.spec_from_file_location(
    "small_network", Path(__file__).parents[1] / "support" / "small_network.py"
)
assert _spec is not None and _spec.loader is not None
small: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(small)


def compiled(folder: Path, units: tuple[str, ...] | None = None) -> NetworkProgram:
    path = folder / "residual.tflite"
    path.write_bytes(small.residual())
    network = read_network(path)
    options = {} if units is None else {"units": units}
    return compile_network(network, EngineConfig.for_network(network, 4096, 2, 2, **options))


def test_descriptors_follow_each_other(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    record = program_record(program)
    (run,) = record["steps"]
    nodes = run["nodes"]
    assert [node["operator"] for node in nodes] == ["DEPTHWISE_CONV_2D", "ADD", "MAX_POOL_2D"]
    found = [descriptor for node in nodes for descriptor in node["descriptors"]]
    start = run["program_address"]
    assert [entry["address"] for entry in found] == [
        start + index * DESCRIPTOR_BYTES for index in range(3)
    ]
    assert [entry["fields"]["last"] for entry in found] == [0, 0, 1]
    # An elementwise operator has no tile; its second operand is what the convolution wrote.
    assert ["plan" in node for node in nodes] == [True, False, True]
    add = found[1]["fields"]
    assert (add["mode"], add["elements"], add["binary"]) == (ELEMENTWISE, 144, 1)
    assert add["weight_address"] == found[0]["fields"]["output_address"]
    assert found[2]["fields"]["maximum"] == 1
    assert nodes[0]["plan"]["mode"] == "depthwise"
    # 6*6*4 outputs of 9 products each; bytes in, weights, biases and out at the least.
    assert nodes[0]["macs"] == 6 * 6 * 4 * 9
    assert nodes[0]["moved_bytes"] >= 144 + 36 + 16 + 144
    assert record["predicted_cycles"] == sum(node["predicted_cycles"] for node in nodes)


def test_declined_operators_are_host_steps(tmp_path: Path) -> None:
    record = program_record(compiled(tmp_path, ("max_pool",)))
    assert [step["where"] for step in record["steps"]] == ["engine", "host", "engine"]
    host = record["steps"][1]
    assert (host["operator"], host["inputs"], host["outputs"]) == ("ADD", [0, 3], [4])
    assert host["reason"] == "the engine has no elementwise unit"


def test_text_is_sorted_json(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    text = program_text(program)
    assert text == json.dumps(json.loads(text), sort_keys=True, indent=2) + "\n"
    assert json.loads(text) == program_record(program)


def test_numpy_values_become_plain() -> None:
    value = {"a": np.array([[1, 2]]), "b": (np.int64(3), [np.float32(0.5)]), "c": None}
    assert module._plain(value) == {"a": [[1, 2]], "b": [3, [0.5]], "c": None}


def test_files_are_written_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "engine_verilog", lambda config: f"// {config.digest} é\n")
    program = compiled(tmp_path)
    files = network_files(program, seeded_inputs(program.network, 1))
    folder = tmp_path / "a" / "b"
    write_files(folder, files)
    assert sorted(path.name for path in folder.iterdir()) == sorted(files)
    assert (folder / "image.bin").read_bytes() == program.image.tobytes()
    verilog = (folder / "haloconv_engine.v").read_bytes()
    assert verilog == f"// {program.config.digest} é\n".encode()
    write_files(folder, {"image.bin": b"again"})
    assert (folder / "image.bin").read_bytes() == b"again"
