"""What the testbench expects is what the engine leaves in memory."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloconv.flow.network_inputs import seeded_inputs
from haloconv.flow.testbench import bench_files, hex_text, run_memories
from haloconv.planner.config import EngineConfig
from haloconv.planner.network_file import read_network
from haloconv.planner.network_program import compile_network
from haloconv.rtl.engine import Engine
from haloconv.sim.backend import run

_spec = importlib.util.spec_from_file_location(
    "small_network", Path(__file__).parents[1] / "support" / "small_network.py"
)
assert _spec is not None and _spec.loader is not None
small: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(small)


def test_hex_by_hand() -> None:
    parts = [(0, np.arange(34, dtype=np.uint8)), (256, np.array([255], np.uint8))]
    lines = hex_text(parts).splitlines()
    assert lines[0] == "@0" and lines[2] == "20 21" and lines[3:] == ["@100", "ff"]
    assert lines[1] == " ".join(f"{value:02x}" for value in range(32))


@pytest.mark.parametrize("kind", ["chain", "residual"])
def test_the_engine_writes_what_is_expected_and_nothing_else(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(getattr(small, kind)(seed=3))
    network = read_network(path)
    config = EngineConfig.for_network(network, 4096, 2, 2, bus_bytes=4)
    program = compile_network(network, config)
    memories = run_memories(program, seeded_inputs(network, 3))
    assert len(memories) == (2 if kind == "chain" else 1)
    memory = program.image.copy()
    for entry in memories:
        for address, data in entry.before:
            memory[address : address + data.size] = data
        expected = memory.copy()
        for address, data in entry.after:
            expected[address : address + data.size] = data
        assert not np.array_equal(expected, memory)
        result = run(Engine(program.config), memory, program_address=entry.run.program_address)
        assert result.done
        assert np.array_equal(result.memory, expected)
        memory = expected


def test_latency_is_that_of_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small.chain())
    network = read_network(path)
    program = compile_network(network, EngineConfig(out_lanes=2, split_lanes=2, bias_bytes=64))
    inputs = seeded_inputs(network, 0)
    files = bench_files(program, inputs, latency=31)
    assert "parameter LATENCY = 31;" in files["testbench.v"]
    assert f"localparam BYTES = {program.image.size};" in files["testbench.v"]
    other = bench_files(program, inputs)
    assert {name for name in files if files[name] != other[name]} == {"testbench.v"}
