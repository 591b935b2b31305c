"""``haloconv plan``."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from haloconv.flow.cli import main
from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import plan_layer

WORDS = "32x32x16 k3 s1 p1 m32"
LAYER = ConvLayer(32, 32, 16, 32, (3, 3), pads=(1, 1, 1, 1))
MODEL = Path(__file__).parents[4] / "shared" / "models" / "resnet8_cifar10_int8.tflite"


def test_sheet_shows_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--layer", WORDS]) == 0
    out = capsys.readouterr().out
    plan = plan_layer(LAYER, EngineConfig())
    tile = plan.tile
    for text in (
        f"tile {tile.height}x{tile.width}x{tile.in_channels} -> {tile.out_channels}",
        f"order {plan.order}",
        f"{plan.mode} mode",
        "4,718,592 MACs",
        # 32*32*16 input, 32*16*9 weights, 4*32 biases, 32*32*32 outputs.
        "16,384",
        "4,608",
        "32,768",
        "53,888",
        f"{plan.moved_bytes.total:,}",
        f"{plan.cycles:,}",
        f"{100 * plan.utilisation:.1f} %",
        "allowance, outside the budget",
        "double-buffered",
        "waiting for operands",
    ):
        assert text in out
    for label, _, size in plan.storage.rows():
        assert label in out
        assert f"{size:,}" in out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--layer", WORDS, "--json"]) == 0
    out = capsys.readouterr().out
    values = json.loads(out)
    assert out == json.dumps(values, sort_keys=True, indent=2) + "\n"
    assert EngineConfig.from_dict(values["config"]) == EngineConfig()
    (layer,) = values["layers"]
    plan = plan_layer(LAYER, EngineConfig())
    assert layer["unique_bytes"] == {
        "input": 16384,
        "weight": 4608,
        "bias": 128,
        "sums": 0,
        "output": 32768,
        "total": 53888,
    }
    assert layer["moved_bytes"]["total"] == plan.moved_bytes.total >= 53888
    assert layer["cycles"] == plan.cycles
    # 4,718,592 MACs on 64 lanes.
    assert layer["ideal_cycles"] == 73728
    assert layer["utilisation"] == pytest.approx(73728 / plan.cycles, abs=1e-6)
    assert layer["storage"]["budget_bytes"] == 32768
    assert layer["storage"]["rows"][0]["label"] == "input"
    assert layer["layer"]["words"] == "32x32x16 k3 p1 m32"
    assert layer["schedule"]["tiles"] == len(plan.schedule.tiles)
    assert values["totals"]["cycles"] == plan.cycles


def test_raw(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--layer", WORDS, "--raw", "--json"]) == 0
    (layer,) = json.loads(capsys.readouterr().out)["layers"]
    assert layer["unique_bytes"]["output"] == 4 * 32768


def test_budget_and_objective(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "--layer", WORDS, "--lanes", "4x4", "--bus", "4", "--budget", "8k"]
    values = {}
    for objective in ("cycles", "bytes"):
        assert main([*arguments, "--objective", objective, "--json"]) == 0
        values[objective] = json.loads(capsys.readouterr().out)
        assert values[objective]["layers"][0]["storage"]["budget_bytes"] <= 8192
        assert values[objective]["layers"][0]["objective"] == objective
    assert values["bytes"]["totals"]["moved_bytes"] <= values["cycles"]["totals"]["moved_bytes"]


def test_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    assert main(["plan", "--layer", WORDS, "--figure", str(path)]) == 0
    assert "storage of a tile" in capsys.readouterr().out
    assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert main(["plan", "--layer", WORDS, "--figure", "-"]) == 0
    assert capsys.readouterr().out == path.read_text(encoding="utf-8")


def test_table_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    if not MODEL.exists():
        pytest.skip("the shared models are not beside this checkout")
    assert main(["plan", str(MODEL)]) == 0
    out = capsys.readouterr().out
    assert "0 conv_2d" in out
    assert "fully_connected" in out
    assert "total" in out
    assert "not planned, as no convolution: 3 ADD" in out
    assert main(["plan", str(MODEL), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert len(values["layers"]) == 10
    for key in ("cycles", "macs"):
        total = sum(
            layer[key] if key == "cycles" else layer["layer"][key] for layer in values["layers"]
        )
        assert values["totals"][key] == total


def test_figure_needs_one_layer(capsys: pytest.CaptureFixture[str]) -> None:
    if not MODEL.exists():
        pytest.skip("the shared models are not beside this checkout")
    assert main(["plan", str(MODEL), "--figure", "a.svg"]) == 2
    assert (
        "--figure draws one layer, but resnet8_cifar10_int8.tflite has 10; choose with --only"
        in (capsys.readouterr().err)
    )


def test_errors_name_the_layer(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "--layer", "8x8x4 k200 p100 m8", "--input-bytes", "64"]
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("haloconv: layer 8x8x4 k200 p100 m8")
    assert err.count("\n") == 1
