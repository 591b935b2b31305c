"""``haloconv verify``: what it runs, what it prints, and its exit codes."""

import json
import re
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest

from haloconv.flow.cli import main
from haloconv.flow.commands.verify import verify
from haloconv.sim.verify import Verification

ROOT = Path(__file__).parents[3]
CASES = ROOT / "tests" / "data" / "cases"
MODELS = ROOT.parent / "shared" / "models"
SMALL = ["--lanes", "2x2", "--bus", "4", "--input-bytes", "64", "--weight-bytes", "64",
         "--psum-bytes", "64", "--bias-bytes", "64"]  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["verify", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--help")
    assert (code, err) == (0, "")
    for name in ("cases", "models", "random"):
        assert re.search(rf"^  {name}  ", out, re.MULTILINE)
        code, out_of_one, _ = run(capsys, name, "--help")
        assert code == 0 and "--json" in out_of_one and "--jobs" in out_of_one
        for option in verify.commands[name].params:
            assert option.param_type_name == "argument" or option.help  # type: ignore[attr-defined]


def test_random(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["random", "--count", "2", "--seed", "7", "--max-macs", "200"]
    code, out, err = run(capsys, *arguments, "--backend", "amaranth", "--json")
    assert (code, err) == (0, "")
    values = json.loads(out)
    assert out == json.dumps(values, sort_keys=True, indent=2) + "\n"
    assert (values["passed"], values["failed"], values["seed"]) == (True, 0, 7)
    assert [r["title"][:14] for r in values["results"]] == [f"random_case({n}," for n in (7, 8)]
    for result in values["results"]:
        assert result["passed"] and result["differences"] == 0 and result["outputs"] > 0
        assert result["bytes_counted"] == result["bytes_predicted"]
        assert result["macs"] <= 2 * 200


def test_random_results_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["random", "--count", "1", "--max-macs", "64", "--result", "away"]
    code, out, _ = run(capsys, *arguments, "--backend", "amaranth")
    assert code == 0
    assert re.match(r"1 runs, 0 failed; [\d,]+ outputs and [\d,]+ bytes compared", out)
    code, out, _ = run(capsys, *arguments, "--backend", "amaranth", "--json")
    assert all("roundings=('away',)" in result["title"] for result in json.loads(out)["results"])


def test_one_case(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Spread: each result once, and once in a small engine. Whole: everything with everything."""
    seen: list[str] = []

    def fake(title: str, **arguments: object) -> Verification:
        seen.append(title)
        return Verification(
            title=title, outputs=4, bytes_counted={"input": 3}, bytes_predicted={"input": 3},
            trips={"h": 1}, cycles=99, predicted_cycles=100,
        )  # fmt: skip

    monkeypatch.setattr("haloconv.sim.verify.verify_case", fake)
    code, out, _ = run(capsys, "cases", "--cases", str(CASES), "--only", "ties")
    assert code == 0
    assert out.startswith("7 runs, 0 failed; 28 outputs and 21 bytes compared")
    assert "0 took exactly the planned cycles, the worst was 1.00 % off" in out
    assert [title.split(",")[0] for title in seen[:6]] == [
        f"ties {name}" for name in ("raw", "double", "double_up", "single", "away", "fp32")
    ]
    seen.clear()
    code, out, _ = run(capsys, "cases", "--cases", str(CASES), "--only", "ties", "--all")
    # 5 engines, planned in 2 sizes and split in 2 modes and 2 orders, 6 results, 2 stalls.
    assert len(seen) == 5 * (2 + 4) * 6 * 2
    assert {title.split(" lanes")[0].rsplit(" ", 1)[1] for title in seen} == {
        "8x8", "4x4", "1x1", "16x4", "3x5"
    }  # fmt: skip


def test_models(capsys: pytest.CaptureFixture[str]) -> None:
    path, hashes = MODELS / "hello_world_int8.tflite", MODELS / "golden_ref.json"
    if not path.exists() or not hashes.exists():
        pytest.skip("the public models are not beside the checkout")
    arguments = ["models", str(path), "--hashes", str(hashes), *SMALL, "--backend", "amaranth"]
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    values = json.loads(out)
    assert values["models"] == ["hello_world_int8.tflite"]
    assert [result["outputs"] for result in values["results"]] == [16, 16, 1]
    assert all(result["passed"] for result in values["results"])
    assert values["config"]["roundings"] == ["away"]
    code, out, _ = run(capsys, *arguments, "--stalls", "0.2")
    assert code == 0
    assert out.count("fully_connected") == 3
    assert "3 runs, 0 failed; 33 outputs" in out


def test_a_difference_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from haloconv.sim import verify as module

    true = module.golden_layer

    def wrong(*arguments: object) -> np.ndarray:
        output = np.array(true(*arguments))  # type: ignore[arg-type]
        output.flat[0] ^= 1
        return output

    monkeypatch.setattr(module, "golden_layer", wrong)
    arguments = ["random", "--count", "1", "--max-macs", "64", "--backend", "amaranth"]
    code, out, _ = run(capsys, *arguments)
    assert code == 1
    assert re.search(r"^FAILED random_case\(0, max_macs=64, .*: 1 of \d+ outputs differ\n", out)
    assert "1 runs, 1 failed" in out
    code, out, _ = run(capsys, *arguments, "--json")
    values = json.loads(out)
    assert (code, values["passed"], values["failed"]) == (1, False, 1)


def test_many_failures_are_cut_short(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(seed: int, **arguments: object) -> Verification:
        return Verification(
            title=f"case {seed}", error="RuntimeError: no", bytes_counted={}, bytes_predicted={},
            trips={},
        )  # fmt: skip

    monkeypatch.setattr("haloconv.sim.verify._run_random", fake)
    code, out, _ = run(capsys, "random", "--count", "23", "--backend", "amaranth")
    assert code == 1
    assert out.count("FAILED case ") == 20
    assert "FAILED case 19: RuntimeError: no\n" in out
    assert "and 3 more failures, which --json lists\n23 runs, 23 failed" in out


def test_a_process_that_dies(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*arguments: object) -> None:
        raise BrokenProcessPool("terminated abruptly")

    monkeypatch.setattr("haloconv.sim.verify.run_tasks", dies)
    code, out, err = run(capsys, "random", "--count", "4", "--backend", "amaranth")
    assert (code, out) == (2, "")
    assert "a process died after 0 of 4 runs, killed or out of memory; use fewer --jobs" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cases", "--cases", "nowhere"], "nowhere holds no index.json; name a folder of cases"),
        (["cases", "--cases", str(CASES), "--only", "odd"], "'odd' is no case of"),
        (["random", "--count", "0"], "0 is not in the range"),
        (["random", "--seed", "-1", "--backend", "amaranth"], "-1 is not in the range"),
        (["random", "--backend", "abacus"], "'abacus' is not one of"),
        (["models"], "Missing argument 'MODEL.tflite...'"),
        (["models", "nothing.tflite"], "'nothing.tflite' does not exist"),
        (["everything"], "No such command 'everything'"),
    ],
)
def test_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
