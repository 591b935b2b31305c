"""``haloconv run``."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloconv.flow.cli import main

ROOT = Path(__file__).parents[3]
spec = importlib.util.spec_from_file_location(
    "small_network", ROOT / "tests" / "support" / "small_network.py"
)
assert spec is not None and spec.loader is not None
small: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(small)

SMALL = ["--lanes", "2x2", "--bus", "4", "--backend", "amaranth"]


@pytest.fixture
def chain(tmp_path: Path) -> str:
    path = tmp_path / "chain.tflite"
    path.write_bytes(small.chain())
    return str(path)


def test_table(chain: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", chain, *SMALL, "--reference"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    rows = [line.split() for line in out.splitlines()]
    assert [row[:4] for row in rows if row[1:2] == ["CONV_2D"]] == [
        ["0", "CONV_2D", "sums", "engine"],
        ["2", "CONV_2D", "scores", "engine"],
    ]
    assert ["1", "LOGISTIC", "shares", "host", *"------"] in rows
    # 6*6*(4 + 4 + 3) elements, 6*6*4 of them on the host.
    assert "host: 1 of 3 operators, 36.4 % of all elements" in out
    assert "  1 LOGISTIC shares: " in out
    assert "output scores, 1x6x6x3 int8: " in out
    assert out.endswith("all 3 tensors equal the reference's\n")


def test_json(chain: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", chain, *SMALL, "--reference", "--json", "--stalls", "0.2", "--seed", "4"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    values = json.loads(out)
    assert out == json.dumps(values, sort_keys=True, indent=2) + "\n"
    assert values["reference"] == {
        "different_tensors": 0,
        "equal": True,
        "first_difference": None,
        "tensors": 3,
    }
    assert values["backend"] == "amaranth"
    assert (values["stalls"], values["seed"], values["latency"]) == (0.2, 4, 16)
    first, host, second = values["layers"]
    assert (first["where"], host["where"], second["where"]) == ("engine", "host", "engine")
    assert first["macs"] == 6 * 6 * 4 * 3 * 3 * 2 and second["macs"] == 6 * 6 * 3 * 4
    assert first["cycles"] + second["cycles"] == values["cycles"] == values["counters"]["cycles"]
    assert values["config"]["roundings"] == ["double"]
    (output,) = values["outputs"]
    codes = [entry["code"] for entry in output["largest"]]
    assert codes == sorted(codes, reverse=True) and len(codes) == 5


def test_units_are_built_as_needed_or_declined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "residual.tflite"
    path.write_bytes(small.residual())
    assert main(["run", str(path), *SMALL, "--reference", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["config"]["units"] == ["elementwise", "max_pool"]
    assert values["host_share"] == 0.0
    assert main(["run", str(path), *SMALL, "--units", "max_pool", "--reference", "--json"]) == 0
    declined = json.loads(capsys.readouterr().out)
    assert [layer["where"] for layer in declined["layers"]] == ["engine", "host", "engine"]
    assert declined["outputs"] == values["outputs"]
    assert main(["run", str(path), *SMALL, "--units", "none"]) == 2
    assert "MAX_POOL_2D 'largest' needs the unit 'max_pool'" in capsys.readouterr().err


def test_input_from_a_file(chain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The seeded input of seed 7, given as a file, gives what --seed 7 gives.
    drawn = np.random.default_rng(7).integers(-128, 128, (1, 6, 6, 2)).astype(np.int8)
    np.save(tmp_path / "x.npy", drawn)
    outputs = []
    for more in (["--seed", "7"], ["--input", str(tmp_path / "x.npy")]):
        assert main(["run", chain, *SMALL, *more, "--json"]) == 0
        outputs.append(json.loads(capsys.readouterr().out)["outputs"])
    assert outputs[0] == outputs[1]
    np.save(tmp_path / "x.npy", drawn[:, 1:])
    assert main(["run", chain, *SMALL, "--input", str(tmp_path / "x.npy")]) == 2
    assert "holds 1x5x6x2, but input 'image' takes 1x6x6x2" in capsys.readouterr().err


def test_a_wrong_tensor_is_exit_code_1(
    chain: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from haloconv.sim import network_golden

    true = network_golden.golden_network

    def wrong(*arguments: Any) -> dict[int, Any]:
        values = true(*arguments)
        values[4] = values[4].copy()
        values[4].flat[9] ^= 1
        return values

    monkeypatch.setattr(network_golden, "golden_network", wrong)
    assert main(["run", chain, *SMALL, "--reference"]) == 1
    out = capsys.readouterr().out
    assert "DIFFERENT from the reference: tensor 4 shares of LOGISTIC (operator 1) differs" in out
    assert "in 1 of 144 elements, first at [0, 0, 2, 1]" in out
    assert main(["run", chain, *SMALL, "--reference", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["reference"]["different_tensors"] == 1


def test_notice_without_a_compiler(
    chain: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from haloconv.sim.backends import cxxrtl

    monkeypatch.setattr(cxxrtl, "unavailable", lambda: "install a C++ compiler")
    assert main(["run", chain, "--lanes", "2x2", "--bus", "4"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("no compiled simulator: install a C++ compiler; Amaranth's own takes")
    assert "output scores" in out


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"")
    assert main(["run", str(path)]) == 2
    assert "a model must be a .tflite or .onnx file" in capsys.readouterr().err
    path = tmp_path / "broken.tflite"
    path.write_bytes(b"no model")
    assert main(["run", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
