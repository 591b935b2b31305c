"""Engines of points and workloads on them, against the planner itself."""

from dataclasses import replace
from pathlib import Path

import pytest

from haloconv.flow.sweep.space import Point, WorkloadEntry
from haloconv.flow.sweep.workloads import Workload, best_with_tile, network_work, resolve, run_work
from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.network import Network
from haloconv.planner.network_file import read_network
from haloconv.planner.network_program import compile_network, configure
from haloconv.planner.plan import plan_layer
from haloconv.planner.tile import Tile
from haloconv.planner.workload import parse_layer

from ...support.small_network import residual

ROOT = Path(__file__).parents[3]
SMALL = {"out_lanes": 2, "split_lanes": 2, "bus_bytes": 4}


def workload(*words: str) -> Workload:
    return Workload(WorkloadEntry("w", words=words))


@pytest.fixture
def network(tmp_path: Path) -> Network:
    path = tmp_path / "residual.tflite"
    path.write_bytes(residual())
    return read_network(path)


def test_a_network_takes_what_its_program_takes(network: Network) -> None:
    work = network_work(network)
    for units in (None, ("max_pool",)):
        config = configure(EngineConfig(units=units), network)
        program = compile_network(network, config)
        found = run_work(work, config)
        planned = list(program.planned)
        assert found["cycles"] == program.cycles
        moved = sum(node.moved_bytes for node in planned)
        assert found["read_bytes"] + found["write_bytes"] == moved
        assert found["macs"] == sum(node.macs for node in planned)
        assert [row["name"] for row in found["layers"]] == [node.node.name for node in planned]
        use = found["macs"] / (config.lanes * program.cycles)
        assert found["utilisation"] == pytest.approx(use, abs=1e-6)
    # Without the unit the host adds.
    assert any("ADD" in name for name in found["host"])


def test_options_left_open_are_what_the_networks_need(network: Network) -> None:
    work = network_work(network)
    config = resolve(Point({}), [], [work], "cycles", 16)
    assert (config.roundings, config.units) == (("double",), ("elementwise", "max_pool"))
    assert config.requant_lanes == 8
    config = resolve(Point({"units": (), "roundings": ("fp32",)}), [], [work], "cycles", 16)
    assert (config.roundings, config.units) == (("fp32",), ())
    with pytest.raises(PlanError, match="needs rounding 'double'; build it in or leave it open"):
        run_work(work, config)
    with pytest.raises(PlanError, match="'largest' needs the unit 'max_pool'; build it in"):
        run_work(work, replace(config, roundings=("double",)))
    assert resolve(Point({}), [], [], "cycles", 16).roundings == ("double",)


@pytest.mark.parametrize("tile", [Tile(4, 4, 8, 6), Tile(2, 8, 3, 16), Tile(64, 64, 64, 64)])
def test_buffers_that_just_hold_a_tile(tile: Tile) -> None:
    works = [workload("12x10x8 k3 p1 m16", "9x9x6 k3 dw", "7x7x3 k3 s2 m4").work]
    config = resolve(Point(SMALL, tile=tile), works, [], "cycles", 16)
    found = run_work(works[0], config, tile)
    for row, layer in zip(found["layers"], works[0].layers, strict=True):
        height = min(tile.height, layer.out_height)
        assert row["tile"]["height"] == height and row["tile"]["width"] <= tile.width
        plan = best_with_tile(layer, config, tile)
        assert row["cycles"] == plan.cycles
    # With a word less in any buffer one of the layers no longer runs so.
    one = {
        "input_bytes": config.split_lanes * config.word_bytes,
        "weight_bytes": config.lanes,
        "psum_bytes": 4 * config.results_per_cycle,
        "bias_bytes": 4 * config.out_lanes,
    }
    for name, word in one.items():
        size = getattr(config, name)
        if size < word or (size == word and name != "psum_bytes"):
            continue
        less = replace(config, **{name: size - word})
        try:
            smaller = run_work(works[0], less, tile)
        except PlanError:
            continue
        assert smaller["cycles"] > found["cycles"]


def test_a_given_tile_runs_in_its_best_mode() -> None:
    layer = parse_layer("16x16x3 k3 p1 m8")
    config = EngineConfig()
    tile = Tile(8, 16, 3, 8)
    best = best_with_tile(layer, config, tile)
    every = [
        plan_layer(layer, config, tile=tile, mode=mode, order=order)
        for mode in ("channel", "row")
        for order in ("hwmc", "mhwc")
    ]
    assert best.cycles == min(plan.cycles for plan in every) < max(plan.cycles for plan in every)
    assert best.mode == "row"
    with pytest.raises(PlanError, match="raise input_bytes or take a smaller tile"):
        best_with_tile(layer, replace(config, input_bytes=64), tile)


def test_a_layer_that_does_not_fit_is_named() -> None:
    work = workload("8x8x2 k1 m2", "40x40x512 k11 m8").work
    config = EngineConfig(**SMALL, input_bytes=64, weight_bytes=64, psum_bytes=0, bias_bytes=64)
    with pytest.raises(PlanError, match=r"layer '40x40x512 k11 m8': .* takes .*_bytes \d+ or more"):
        run_work(work, config)


def test_digests_follow_layers_and_files(tmp_path: Path) -> None:
    first, second = workload("8x8x3 k3 m8"), workload("8x8x3 k3 m9")
    assert first.digest != second.digest
    assert first.digest == workload("8x8x3 k3 m8").digest
    table = ROOT / "examples" / "sweep" / "resnet8.json"
    copy = tmp_path / "other.json"
    copy.write_text(table.read_text().replace("  ", " "))
    # The layers count, not how they are written.
    assert Workload(WorkloadEntry("a", table)).digest == Workload(WorkloadEntry("b", copy)).digest


def test_resnet8_is_the_network_of_mlperf_tiny() -> None:
    work = Workload(WorkloadEntry("resnet8", ROOT / "examples" / "sweep" / "resnet8.json")).work
    # 12.5 million multiply-accumulates, as its authors count them.
    assert sum(layer.macs for layer in work.layers) == 12_501_632


def test_files_of_other_kinds(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("")
    with pytest.raises(PlanError, match=r"x.csv is no .json workload, .tflite or .onnx model"):
        Workload(WorkloadEntry("x", path))
