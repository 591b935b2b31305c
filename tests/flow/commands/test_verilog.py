"""``haloconv verilog``."""

import json
from pathlib import Path

import pytest

from haloconv.flow import export
from haloconv.flow.cli import main
from haloconv.flow.export import engine_description_text, engine_verilog
from haloconv.planner.config import EngineConfig

SMALL = ["--lanes", "2x2", "--bus", "4", "--input-bytes", "256", "--weight-bytes", "256",
         "--psum-bytes", "256", "--bias-bytes", "32"]  # fmt: skip
CONFIG = EngineConfig(
    out_lanes=2,
    split_lanes=2,
    bus_bytes=4,
    input_bytes=256,
    weight_bytes=256,
    psum_bytes=256,
    bias_bytes=32,
)


@pytest.fixture(scope="module")
def text() -> str:
    return engine_verilog(CONFIG)


def test_writes_both_files(text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "hw" / "engine.v"
    assert main(["verilog", *SMALL, "-o", str(path)]) == 0
    out = capsys.readouterr().out
    assert CONFIG.digest in out
    assert "engine.v" in out
    assert path.read_text(encoding="utf-8") == text
    described = path.with_suffix(".json").read_text(encoding="utf-8")
    assert described == engine_description_text(CONFIG)


def test_dash_prints_the_verilog_alone(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "engine_verilog", {CONFIG: text}.__getitem__)
    assert main(["verilog", *SMALL, "-o", "-"]) == 0
    assert capsys.readouterr().out == text


def test_json_prints_the_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verilog", *SMALL, "-o", "-", "--json"]) == 0
    out = capsys.readouterr().out
    assert out == engine_description_text(CONFIG)
    assert json.loads(out)["module"] == "haloconv_engine"


def test_budget_sizes_for_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["verilog", "--layer", "16x16x8 k3 p1 m16", "--lanes", "4x4", "--budget", "4096"]
    assert main([*arguments, "-o", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["budget_bytes"] <= 4096
