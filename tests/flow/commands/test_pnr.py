"""``haloconv pnr``."""

import json
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.cli import main
from haloconv.flow.place_route import PlacementError, PlacementResult, PlacementRun
from haloconv.planner.config import EngineConfig


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Record what is synthesised and placed, and answer at once; both have tests of their own."""
    seen: dict[str, list[Any]] = {"synthesize": [], "place": []}

    def synthesize(config: EngineConfig, family: str, *, netlist: Path) -> None:
        seen["synthesize"].append((config, family))
        netlist.write_text("{}")

    def place(netlist: Path, device: str, *, seeds: range, progress: Any, **options: Any) -> Any:
        assert netlist.exists()
        progress(0, len(seeds))
        seen["place"].append((device, list(seeds), options))
        runs = tuple(PlacementRun(seed, 100.0 + seed, "clk", None, {}) for seed in seeds)
        return PlacementResult(
            device=device, package="P", speed="7", frequency=100.0, runs=runs, frame=None,
            bitstream=None, tool="nextpnr", seconds=1.0,
        )  # fmt: skip

    monkeypatch.setattr("haloconv.flow.synthesis.synthesize", synthesize)
    monkeypatch.setattr("haloconv.flow.place_route.place_and_route", place)
    return seen


def test_table(calls: dict[str, list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["pnr", "--lanes", "4x4", "--device", "lfe5u-25f", "--speed", "7", "--seeds", "3"]
    assert main([*arguments, "--frequency", "120", "--jobs", "2"]) == 0
    ((config, family),) = calls["synthesize"]
    assert (config.out_lanes, family) == (4, "ecp5")
    ((device, seeds, options),) = calls["place"]
    assert (device, seeds) == ("LFE5U-25F", [1, 2, 3])
    assert options == {"package": None, "speed": "7", "frequency": 120.0, "jobs": 2}
    out = capsys.readouterr().out
    assert "102.0 MHz, median of 3 seeds" in out and config.digest in out


def test_json(calls: dict[str, list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pnr", "--device", "iCE40UP5K", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["fmax_mhz"] == 103.0 and len(record["runs"]) == 5
    assert EngineConfig.from_dict(record["config"]) == calls["synthesize"][0][0]
    assert calls["synthesize"][0][1] == "ice40"


def test_a_netlist_is_not_synthesised_again(
    calls: dict[str, list[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "netlist.json"
    path.write_text("{}")
    assert main(["pnr", "--netlist", str(path), "--seeds", "1"]) == 0
    assert not calls["synthesize"] and len(calls["place"]) == 1
    assert "median of 1 seed," in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--netlist", "{file}", "--lanes", "4x4"], "--netlist holds an engine, which --lanes"),
        (
            ["--netlist", "{file}", "--layer", "8x8x8 m8"],
            "--netlist holds an engine, which --layer",
        ),
        (["--only", "3"], "--only 3 names a layer of a SOURCE; give one"),
        (["--speed", "5"], "Speed of LFE5U-85F must be one of 6, 7, 8, not '5'"),
        (["--device", "iCE40UP5K", "--speed", "7"], "iCE40UP5K has one speed only"),
        (["--frequency", "nan"], "'nan' must be a number of MHz above 0"),
        (["--frequency", "-1"], "'-1' must be a number of MHz above 0"),
    ],
)
def test_what_does_not_go_together_is_refused_at_once(
    calls: dict[str, list[Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    message: str,
) -> None:
    path = tmp_path / "netlist.json"
    path.write_text("{}")
    assert main(["pnr", *(word.format(file=path) for word in more)]) == 2
    assert message in capsys.readouterr().err
    assert not calls["synthesize"] and not calls["place"]


def test_errors_are_one_line(
    calls: dict[str, list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["pnr", "--device", "XC7A35T"]) == 2
    assert "Device must be one of LFE5U-12F" in capsys.readouterr().err
    assert not calls["synthesize"], "refused before the minute of synthesis"

    def fail(*arguments: Any, **options: Any) -> None:
        raise PlacementError("no room")

    monkeypatch.setattr("haloconv.flow.place_route.place_and_route", fail)
    assert main(["pnr"]) == 2
    assert capsys.readouterr().err == "haloconv: no room\n"
