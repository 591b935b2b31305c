"""``haloconv demo``: what the README's first command promises."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from haloconv.flow.cli import main
from haloconv.flow.commands.demo import DEMO_BUDGET, DEMO_LAYER


@pytest.mark.slow
def test_demo(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "engine.v"
    assert main(["demo", "-o", str(path)]) == 0
    out = capsys.readouterr().out
    assert "1,728 outputs, 0 different" in out
    assert out.splitlines()[-1] == "PASSED"
    assert path.exists()
    assert json.loads(path.with_suffix(".json").read_text())["budget_bytes"] <= DEMO_BUDGET


@pytest.mark.slow
def test_json_without_verilog(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a smaller layer, as the one above has shown the whole."""
    module = import_module("haloconv.flow.commands.demo")
    monkeypatch.setattr(module, "DEMO_LAYER", replace(DEMO_LAYER, in_height=5, in_width=5))
    monkeypatch.setattr(module, "DEMO_BUDGET", 1024)
    assert main(["demo", "-o", "-", "--json", "--seed", "5"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["verilog"] is None
    assert values["seed"] == 5
    assert values["check"]["differences"] == 0
    assert values["check"]["bytes_agree"] is True
    assert values["plan"]["schedule"]["tiles"] > 1
