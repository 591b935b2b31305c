"""``haloconv explore``: what it finds, prints and writes, and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow import synthesis
from haloconv.flow.cli import main
from haloconv.flow.explore import model, search
from haloconv.flow.synthesis import Area, SynthesisResult
from haloconv.planner.config import EngineConfig

from ...support.made_up_areas import point, training
from ...support.small_network import residual

LAYER = {
    "name": "w",
    "layers": [
        {"name": "first", "op": "CONV_2D", "in_shape": [1, 12, 12, 3], "out_shape": [1, 12, 12, 8],
         "kernel": [3, 3], "padding": "SAME"},
    ],
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with a workload, a network and training data, and few engines to try."""
    monkeypatch.setattr(search, "SIDES", (1, 2, 4))
    monkeypatch.setattr(search, "BUSES", (4, 8))
    monkeypatch.setattr(model, "FOLDER", tmp_path / "none")
    (tmp_path / "w.json").write_text(json.dumps(LAYER))
    (tmp_path / "residual.tflite").write_bytes(residual())
    (tmp_path / "train.json").write_text(json.dumps(training()))
    return tmp_path


def run(
    capsys: pytest.CaptureFixture[str], files: Path, name: str, *arguments: str
) -> tuple[int, str, str]:
    training = ["--training", str(files / "train.json")]
    code = main(["explore", str(files / name), "--device", "LFE5U-25F", *training, *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def pretend(monkeypatch: pytest.MonkeyPatch, factor: int = 1) -> list[EngineConfig]:
    """Let synthesis give the made-up areas, ``factor`` times."""
    asked: list[EngineConfig] = []

    def synthesize(config: EngineConfig, family: str, **options: Any) -> SynthesisResult:
        asked.append(config)
        area = Area(**{k: factor * v for k, v in point(config)["area"].items()})
        return SynthesisResult(config=config, family=family, area=area, cells={}, blocks={},
                               tool="none", seconds=1.0, netlist=None)  # fmt: skip

    monkeypatch.setattr(synthesis, "synthesize", synthesize)
    return asked


def test_the_smallest_is_confirmed(
    capsys: pytest.CaptureFixture[str], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = pretend(monkeypatch)
    code, out, err = run(capsys, files, "w.json", "--fps", "2000", "-o", str(files / "c.json"))
    assert (code, err) == (0, "")
    (config,) = asked
    assert EngineConfig.from_dict(json.loads((files / "c.json").read_text())) == config
    assert "w.json on LFE5U-25F at 100 MHz: the smallest that reaches 2000 frames/s" in out
    (line,) = [line for line in out.splitlines() if line.rstrip().endswith("chosen")]
    assert line.split()[:3] == [f"{config.out_lanes}x{config.split_lanes}", str(config.bus_bytes),
                                str(config.results_per_cycle)]  # fmt: skip
    (line,) = [line for line in out.splitlines() if line.strip().startswith("DSP  ")]
    dsps = str(point(config)["area"]["dsps"])
    assert line.split()[1:5] == [dsps, dsps, "+0.0", "%"]
    assert "engines planned" in out and "points left out of its fit" in out


def test_json_and_no_confirm(
    capsys: pytest.CaptureFixture[str], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = pretend(monkeypatch)
    code, out, err = run(capsys, files, "residual.tflite", "--no-confirm", "--json")
    assert (code, err, asked) == (0, "", [])
    values = json.loads(out)
    assert out == json.dumps(values, sort_keys=True, indent=2) + "\n"
    choice = values["choice"]
    # What the network needs is built in, and nothing is faster among what was tried.
    assert choice["config"]["units"] == ["elementwise", "max_pool"]
    assert choice["config"]["weight_zero_points"] is False
    assert choice["fps"] == pytest.approx(100e6 / choice["cycles"], abs=1e-3)
    assert choice["fps"] == max(t["fps"] for t in values["tried"] if t["verdict"] == "fits")
    assert values["synthesised"] is None and values["area_model"]["points"] == 40


def test_an_engine_that_does_not_fit_after_all(
    capsys: pytest.CaptureFixture[str], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, factor=9)
    code, out, err = run(capsys, files, "w.json")
    assert (code, err) == (1, "")
    assert "once synthesised it does not fit: LUT" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("w.json", "--fps", "1000000"), r"no engine on LFE5U-25F runs w.json at 1e+06 frames/s"),
        (("w.json", "--fps", "0"), "'0' must be a number of frames a second above 0"),
        (("w.json", "--fps", "nan"), "'nan' must be a number of frames a second above 0"),
        (("w.json", "--clock", "inf"), "'inf' must be a number of MHz above 0"),
        (("w.json", "--device", "x"), "device must be one of LFE5U-12F"),
        (("w.json", "--fill", "0.01"), "no engine for w.json fits LFE5U-25F"),
        (("train.json",), "train.json"),
    ],
)
def test_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], files: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, files, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and message in err


def test_without_training_data(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    code = main(["explore", str(files / "w.json"), "--device", "LFE5U-25F"])
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert "needs at least 6 synthesised engines, not 0" in captured.err
