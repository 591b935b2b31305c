"""``haloconv host``."""

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloconv.flow.boards import host_program
from haloconv.flow.cli import main
from haloconv.planner.network_file import read_network
from haloconv.planner.registers import COUNTERS, Register
from haloconv.sim.backends import cxxrtl
from haloconv.sim.network_golden import golden_network

ROOT = Path(__file__).parents[3]
spec = importlib.util.spec_from_file_location(
    "small_network", ROOT / "tests" / "support" / "small_network.py"
)
assert spec is not None and spec.loader is not None
small: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(small)

compiled = pytest.mark.skipif(cxxrtl.unavailable() is not None, reason="no compiled simulator")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build that runs no tool of an FPGA maker, with a fast line."""
    base = tmp_path_factory.mktemp("host")
    (base / "chain.tflite").write_bytes(small.chain())
    arguments = ["build", str(base / "chain.tflite"), "--board", "arty_a7_35", "-o"]
    options = ["--lanes", "1x2", "--bus", "2", "--budget", "600", "--baud", "12500000"]
    assert main([*arguments, str(base / "out"), *options]) == 0
    return base / "out"


@compiled
def test_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["host", str(folder), "--simulate", "--check", "--runs", "2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "1,088 bytes loaded, 0 batches repeated" in out
    assert "output scores, 1x6x6x3 int8: " in out
    assert out.endswith("output equals the reference's\n")


@compiled
def test_json(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = np.arange(-36, 36, dtype=np.int8).reshape(1, 6, 6, 2)
    np.save(tmp_path / "image.npy", image)
    arguments = ["host", str(folder), "--simulate", "--input", str(tmp_path / "image.npy")]
    assert main([*arguments, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    network = read_network(folder / "model.tflite")
    (wanted,) = (golden_network(network, [image])[index] for index in network.outputs)
    (output,) = values["outputs"]
    assert output["largest"][0]["code"] == wanted.max()
    assert values["different_outputs"] is None and values["runs_equal"]
    assert values["counters"]["output_bytes"] == 6 * 6 * (4 + 3)
    assert values["engine_seconds"] == values["counters"]["cycles"] / 50e6


@compiled
def test_counters_that_are_not_built(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are no zeros."""
    # As if this board's options lacked their bit: to compile another board takes long.
    monkeypatch.setattr(host_program, "built_counters", lambda _: {"cycles": Register.CYCLES})
    assert main(["host", str(folder), "--simulate"]) == 0
    out = capsys.readouterr().out
    assert out.count("not built") == len(COUNTERS) - 1
    for name in COUNTERS:
        (row,) = re.findall(rf"^ *{name.replace('_', ' ')} +(\S.*?) *$", out, re.MULTILINE)
        assert (row == "not built") == (name != "cycles")
    assert main(["host", str(folder), "--simulate", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["counters"].pop("cycles") > 0
    assert values["counters"] == dict.fromkeys(set(COUNTERS) - {"cycles"})


@compiled
def test_a_difference(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another model of the same shape: the board is right, and not what the model says."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    other = small.chain(seed=5)
    (tmp_path / "model.tflite").write_bytes(other)
    values = json.loads((tmp_path / "manifest.json").read_text())
    values["model_sha256"] = hashlib.sha256(other).hexdigest()
    (tmp_path / "manifest.json").write_text(json.dumps(values))
    assert main(["host", str(tmp_path), "--simulate", "--check"]) == 1
    assert "DIFFERENT from the reference: scores" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "give --port, or --simulate in its place"),
        (["--simulate", "--port", "x"], "give --port, or --simulate in its place"),
        (["--port", "/nowhere/tty"], "/nowhere/tty cannot be opened"),
    ],
)
def test_errors(folder, capsys, arguments, message) -> None:
    if "tty" in message:
        pytest.importorskip("serial")
    assert main(["host", str(folder), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and err.count("\n") == 1


def test_a_folder_without_a_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["host", str(tmp_path), "--simulate"]) == 2
    assert "has no manifest.json; make it with haloconv build" in capsys.readouterr().err
