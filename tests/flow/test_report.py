"""Records for JSON and tables for people say the same."""

import json

import pytest

from haloconv.flow.report import (
    config_lines,
    console,
    count,
    layer_record,
    percent,
    plan_record,
    plan_table,
    storage_table,
    tile_words,
    totals_record,
    traffic_table,
)
from haloconv.flow.source import Item
from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import plan_layer
from haloconv.planner.tile import Tile

LAYER = ConvLayer(12, 10, 8, 16, (3, 3), pads=(1, 1, 1, 1), name="[bold]x[/bold]")
ITEM = Item(4, "conv", LAYER)


def shown(capsys: pytest.CaptureFixture[str], renderable: object) -> str:
    console().print(renderable)
    return capsys.readouterr().out


def test_numbers() -> None:
    assert count(1234567) == "1,234,567"
    assert percent(0.93751) == "93.8 %"
    assert tile_words(Tile(4, 5, 6, 7)) == "4x5x6 -> 7"


def test_config_lines() -> None:
    line = config_lines(EngineConfig())
    assert "8x8 lanes, 8-byte ports" in line
    assert "budget 32,768 B = 2*(4,096 input + 8,192 weights) + 7,936 sums + 256 biases" in line


def test_layer_record() -> None:
    record = layer_record(LAYER)
    # 12*10 outputs of 16 channels, 9 taps of 8 channels.
    assert record["macs"] == 12 * 10 * 16 * 9 * 8
    assert record["pads"] == [1, 1, 1, 1]
    assert record["words"] == "12x10x8 k3 p1 m16"
    json.dumps(record)


def test_plan_record_is_plain_json() -> None:
    plan = plan_layer(LAYER, EngineConfig())
    record = json.loads(json.dumps(plan_record(ITEM, plan)))
    assert record["index"] == 4
    assert record["tile"] == {
        "height": plan.tile.height,
        "width": plan.tile.width,
        "in_channels": plan.tile.in_channels,
        "out_channels": plan.tile.out_channels,
    }
    # 12*10*8 input, 16*8*9 weights, 4*16 biases, 12*10*16 outputs.
    assert record["unique_bytes"]["total"] == 960 + 1152 + 64 + 1920
    assert record["bounds"]


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_layer(LAYER, EngineConfig())
    assert "32,768" in shown(capsys, storage_table(plan))
    traffic = shown(capsys, traffic_table(plan))
    assert "unique bytes" in traffic
    assert "4,096" in traffic
    rows = shown(capsys, plan_table([ITEM, ITEM], [plan, plan]))
    assert "2 layers" in rows
    assert f"{2 * plan.cycles:,}" in rows


def test_markup_in_names_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_layer(LAYER, EngineConfig())
    assert "[bold]y[/bold]" in shown(capsys, plan_table([Item(0, "[bold]y[/bold]", LAYER)], [plan]))


def test_totals() -> None:
    plan = plan_layer(LAYER, EngineConfig())
    total = totals_record([plan, plan, plan])
    assert total["cycles"] == 3 * plan.cycles
    assert total["utilisation"] == pytest.approx(plan.utilisation, abs=1e-6)
