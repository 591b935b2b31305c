"""``haloconv simulate``."""

import json

import numpy as np
import pytest

from haloconv.flow.cli import main

SMALL = ["--lanes", "2x2", "--bus", "4", "--input-bytes", "128", "--weight-bytes", "128",
         "--psum-bytes", "128", "--bias-bytes", "16"]  # fmt: skip
WORDS = "5x6x3 k3 p1 m4"


@pytest.mark.parametrize("rounding", ["double", "raw"])
def test_json(capsys: pytest.CaptureFixture[str], rounding: str) -> None:
    arguments = ["simulate", "--layer", WORDS, *SMALL, "--rounding", rounding, "--seed", "3"]
    assert main([*arguments, "--json"]) == 0
    out = capsys.readouterr().out
    values = json.loads(out)
    assert out == json.dumps(values, sort_keys=True, indent=2) + "\n"
    assert values["passed"] is True
    assert values["seed"] == 3
    (layer,) = values["layers"]
    assert layer["differences"] == 0
    assert layer["outputs"] == 5 * 6 * 4
    moved = layer["bytes_read"] + layer["bytes_written"]
    assert moved == layer["predicted_moved_bytes"]["total"]
    assert layer["bytes_written"] >= 120 * (4 if rounding == "raw" else 1)
    assert layer["cycles"] == layer["counters"]["cycles"]
    assert abs(layer["cycles"] - layer["predicted_cycles"]) <= 0.01 * layer["cycles"] + 1


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--layer", WORDS, *SMALL, "--stalls", "0.2"]) == 0
    out = capsys.readouterr().out
    assert WORDS in out
    assert "every output equals the golden model's" in out


def test_a_wrong_output_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from haloconv.sim import golden

    true = golden.golden_layer

    def wrong(*arguments: object) -> np.ndarray:
        output = np.array(true(*arguments))  # type: ignore[arg-type]
        output.flat[7] ^= 1
        return output

    monkeypatch.setattr(golden, "golden_layer", wrong)
    assert main(["simulate", "--layer", WORDS, *SMALL]) == 1
    assert "DIFFERENT" in capsys.readouterr().out
    assert main(["simulate", "--layer", WORDS, *SMALL, "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert values["passed"] is False
    assert values["layers"][0]["differences"] == 1


def test_unknown_backend(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--layer", WORDS, *SMALL, "--backend", "abacus"]) == 2
    err = capsys.readouterr().err
    assert "'abacus' is not one of 'amaranth'" in err
    assert err.count("\n") == 1
