"""The area model, fitted to made-up areas whose laws are known."""

import json
import time
from pathlib import Path

import pytest

from haloconv.flow.explore.model import AreaModel, read_samples, samples_of
from haloconv.flow.sweep.jobs import sources
from haloconv.flow.synthesis.area import Area
from haloconv.planner.config import EngineConfig

from ...support.made_up_areas import point, training

UNSEEN = [
    EngineConfig(roundings=("double",)),
    EngineConfig(out_lanes=16, split_lanes=8, bus_bytes=32, weight_zero_points=False),
    EngineConfig(out_lanes=1, split_lanes=1, bus_bytes=1, bias_bytes=64, address_bits=24),
]


@pytest.fixture(scope="module")
def model() -> AreaModel:
    return AreaModel("ecp5", samples_of(training()))


@pytest.mark.parametrize("config", UNSEEN, ids=lambda config: config.digest)
def test_known_laws_are_found(model: AreaModel, config: EngineConfig) -> None:
    true = Area(**point(config)["area"])
    found = model.predict(config)
    for name in ("luts", "carries", "ffs", "lut_rams", "lut4"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.02, abs=30), name
    assert (found.dsps, found.block_rams) == (true.dsps, true.block_rams)
    assert sum(model.groups(config).values(), Area()).luts == found.luts


def test_errors_on_unseen_points(model: AreaModel) -> None:
    errors = model.errors
    assert errors.points == 40
    assert errors.median["lut4"] < 0.005 and errors.worst["lut4"] < 0.05
    assert errors.exact == {"dsps": 40, "block_rams": 40}
    assert "on 40 points left out of its fit, LUT + 2 carry is off by 0." in errors.sentence()
    noisy = AreaModel("ecp5", samples_of(training(noise=0.2))).errors
    assert errors.median["lut4"] < noisy.median["lut4"] < 0.1
    assert noisy.worst["lut4"] > 0.02
    assert noisy.exact == errors.exact


def test_errors_are_of_models_that_did_not_see_the_point() -> None:
    record = training()
    wrong = record["points"][7]
    wrong["area"] = {name: 3 * count for name, count in wrong["area"].items()}
    for area in wrong["blocks"].values():
        area.update({name: 3 * count for name, count in area.items()})
    model = AreaModel("ecp5", samples_of(record))
    # A fit that had seen it would come nearer than two thirds off.
    assert model.errors.worst["lut4"] > 0.6
    assert model.errors.exact["dsps"] <= 39


def test_errors_of_few_samples() -> None:
    assert AreaModel("ecp5", samples_of(training(7))).errors.points == 7
    errors = AreaModel("ecp5", samples_of(training(6))).errors
    assert errors.points == 0
    assert errors.sentence().startswith("too few points to leave any out")


def test_it_answers_in_milliseconds(model: AreaModel) -> None:
    started = time.process_time()
    for _ in range(20):
        model.predict(UNSEEN[0])
    assert (time.process_time() - started) / 20 < 0.02


def test_training_data_is_read_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(training(8)))
    assert len(read_samples(path, "ecp5")) == len(read_samples(tmp_path, "ecp5")) == 8
    with pytest.raises(ValueError, match="is a sweep of ecp5, but the device is of ice40"):
        read_samples(path, "ice40")
    for text in ("{", "[]", "{}"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"sweep.json is no sweep.json; make one with"):
            read_samples(path, "ecp5")
    path.write_text('{"family": "ecp5", "points": [{"area": {"luts": 1}, "blocks": {"a": 1}}]}')
    with pytest.raises(ValueError, match="there are no results of a sweep in it"):
        read_samples(path, "ecp5")
    # Points that failed have no area.
    path.write_text('{"family": "ecp5", "points": [{"area": null}]}')
    assert read_samples(path, "ecp5") == []


def test_other_sources_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haloconv.flow.explore.model.FOLDER", tmp_path)
    path = tmp_path / "more.json"
    for found, stale in ((sources("synthesis"), False), ("older", True)):
        path.write_text(json.dumps(training(8) | {"sources": found}))
        assert AreaModel.trained("ecp5", [path]).stale is stale


def test_too_few_samples_and_other_families() -> None:
    samples = samples_of(training(5))
    with pytest.raises(ValueError, match="at least 6 synthesised engines, not 5; sweep some"):
        AreaModel("ecp5", samples)
    with pytest.raises(ValueError, match="family must be one of ecp5, not 'gowin'"):
        AreaModel("gowin", samples_of(training(8)))


def test_the_data_that_the_package_keeps() -> None:
    errors = AreaModel.trained("ecp5").errors
    assert errors.points >= 12
    # The aim of 5 % in the median for LUTs, and multipliers exactly. Block RAM is exact but for
    # buffers of a few dozen words, where Yosys weighs LUTs and block RAM about alike.
    assert errors.median["lut4"] < 0.05
    assert errors.exact["dsps"] == errors.points
    assert errors.exact["block_rams"] >= 0.9 * errors.points
