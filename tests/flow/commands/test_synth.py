"""``haloconv synth``."""

import json
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.cli import main
from haloconv.flow.synthesis import Area, SynthesisError, SynthesisResult
from haloconv.planner.config import EngineConfig

SMALL = ["--lanes", "2x2", "--bus", "4", "--input-bytes", "256", "--weight-bytes", "256",
         "--psum-bytes", "256", "--bias-bytes", "32"]  # fmt: skip


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Record what is synthesised, and answer at once; the synthesis has tests of its own."""
    seen: list[tuple[Any, ...]] = []

    def synthesize(
        config: EngineConfig, family: str, *, netlist: Path | None, tool: str | None
    ) -> SynthesisResult:
        seen.append((config, family, netlist, tool))
        area = Area(luts=1234, dsps=5)
        return SynthesisResult(
            config=config, family=family, area=area, cells={"LUT4": 1234}, blocks={"top": area},
            tool="yosys", seconds=1.5, netlist=netlist,
        )  # fmt: skip

    monkeypatch.setattr("haloconv.flow.synthesis.synthesize", synthesize)
    return seen


def test_table(calls: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", *SMALL, "--family", "xilinx", "--netlist", "x.json"]) == 0
    out = capsys.readouterr().out
    ((config, family, netlist, tool),) = calls
    assert (config.out_lanes, config.bias_bytes, family) == (2, 32, "xilinx")
    assert (netlist, tool) == (Path("x.json"), None)
    assert config.digest in out and "1,234" in out and "wrote x.json" in out


def test_json(calls: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", *SMALL, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["family"] == "ecp5" and record["area"]["luts"] == 1234
    assert SynthesisResult.from_dict(record).config == calls[0][0]


def test_budget_needs_layers(
    calls: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synth", "--budget", "16k"]) == 2
    assert "--budget needs layers" in capsys.readouterr().err
    assert main(["synth", "--budget", "16k", "--layer", "16x16x8 k3 s1 p1 m8"]) == 0
    assert calls[0][0].budget_bytes <= 16384


def test_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synth", "--family", "spartan"]) == 2
    assert "spartan" in capsys.readouterr().err

    def fail(*arguments: Any, **options: Any) -> None:
        raise SynthesisError("Synthesis needs Yosys;\nrun pip install 'haloconv[synth]'")

    monkeypatch.setattr("haloconv.flow.synthesis.synthesize", fail)
    assert main(["synth", *SMALL]) == 2
    error = capsys.readouterr().err
    assert error == "haloconv: Synthesis needs Yosys; run pip install 'haloconv[synth]'\n"
