"""``simulate_layer``, the call that users make: its contract, its options and its refusals."""

import gc
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import plan_layer
from haloconv.planner.requantization import Requantization
from haloconv.planner.sizing import size_engine
from haloconv.planner.storage import tile_storage
from haloconv.planner.tile import Tile
from haloconv.sim import layer as module
from haloconv.sim.backend import SimulationTimeout
from haloconv.sim.golden import convolve, golden_layer
from haloconv.sim.layer import EngineFault, simulate_layer

TINY = EngineConfig(
    out_lanes=2,
    split_lanes=2,
    bus_bytes=4,
    input_bytes=128,
    weight_bytes=128,
    psum_bytes=128,
    bias_bytes=16,
)
LAYER = ConvLayer(
    in_height=5, in_width=4, in_channels=3, out_channels=5, kernel=(3, 2), pads=(1, 0, 0, 1),
    in_zero_point=-7,
)  # fmt: skip
SHORT = ConvLayer(3, 4, 2, 3, (2, 2), pads=(1, 0, 0, 1), in_zero_point=-7)
"""For what takes many runs or many tiles."""
SCALE = Requantization(multiplier=1_500_000_000, shift=-8, zero_point=4, clamp=(-100, 90))


def data(layer: ConvLayer = LAYER, batch: int = 1, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {
        "inputs": rng.integers(-128, 128, (batch, *layer.input_shape[1:]), dtype=np.int8),
        "weights": rng.integers(-128, 128, layer.weight_shape, dtype=np.int8),
    }
    if layer.has_bias:
        arrays["bias"] = rng.integers(-5000, 5000, layer.out_channels, dtype=np.int32)
    return arrays


def test_the_contract() -> None:
    """The names that other suites use, and what they add up to."""
    layer = ConvLayer(
        in_height=9, in_width=9, in_channels=4, out_channels=8, kernel=(3, 3), stride=(1, 1),
        dilation=(1, 1), pads=(1, 1, 1, 1), groups=1, in_zero_point=-128,
    )  # fmt: skip
    x, w, b = data(layer).values()
    rng = np.random.default_rng(1)
    q = rng.integers(2**30, 2**31, 8)
    e = rng.integers(-10, -7, 8)
    scale = Requantization(multiplier=q, shift=e, zero_point=-3, clamp=(-90, 80), rounding="double")
    result = simulate_layer(
        layer, EngineConfig(out_lanes=4, split_lanes=4, bus_bytes=8), inputs=x, weights=w, bias=b,
        requantization=scale, weight_zero_points=None, backend="amaranth", latency=16, stalls=0.0,
        seed=0,
    )  # fmt: skip
    assert result.output.dtype == np.int8
    np.testing.assert_array_equal(result.output, golden_layer(layer, x, w, b, scale))
    plan = result.plan
    assert result.cycles == result.counters["cycles"] == plan.cycles
    assert result.bytes_read + result.bytes_written == plan.moved_bytes.total
    assert result.bytes_written == 9 * 9 * 8
    assert result.counters["input_bytes"] == plan.moved_bytes.input
    # 9*9*4 inputs, 8*3*3*4 weights, 8 biases, 9*9*8 outputs, each once.
    assert plan.unique_bytes.total == 324 + 288 + 32 + 648 <= plan.moved_bytes.total
    assert plan.storage == tile_storage(layer, plan.tile, plan.config, plan.mode)
    assert plan.tile.height <= 9 and plan.tile.out_channels <= 8
    # Multiplier, shift and weight zero point: 6 bytes a channel, outside the tensor bytes.
    assert result.counters["scale_bytes"] >= 6 * 8
    assert result.counters["program_bytes"] > 0
    assert result.counters["sum_bytes"] == 0
    assert result.counters["compute_cycles"] <= result.cycles
    assert result.backend == "amaranth"


def test_everything_but_the_arrays_has_a_default() -> None:
    """The layer's has_bias gives way to the absent bias; no engine means 64 lanes of 32 KiB."""
    layer = ConvLayer(in_height=3, in_width=3, in_channels=2, out_channels=3, kernel=(2, 2))
    arrays = data(replace(layer, has_bias=False))
    result = simulate_layer(layer, **arrays)
    assert result.output.dtype == np.int32
    np.testing.assert_array_equal(result.output, convolve(layer, **arrays))
    assert (result.plan.config.lanes, result.plan.config.budget_bytes) == (64, 32 * 1024)
    assert result.counters["bias_bytes"] == 0
    assert result.plan.moved_bytes.total == 18 + 24 + 4 * 12


def test_sums_by_hand() -> None:
    """(1 + 2) * 3 + (-4 + 2) * -5 + 100 = 119; times 2**30 / 2**31 it is 59.5, rounded to 60."""
    layer = ConvLayer(1, 2, 1, 1, (1, 2), in_zero_point=-2)
    arrays = {
        "inputs": np.array([[[[1], [-4]]]], np.int8),
        "weights": np.array([[[[3], [-5]]]], np.int8),
        "bias": np.array([100], np.int32),
    }
    assert simulate_layer(layer, TINY, **arrays).output.tolist() == [[[[119]]]]
    half = Requantization(multiplier=2**30, shift=0)
    assert simulate_layer(layer, TINY, requantization=half, **arrays).output.tolist() == [[[[60]]]]


@pytest.mark.parametrize(
    ("layer", "batch"),
    [
        pytest.param(LAYER, 2, id="batch"),
        pytest.param(
            ConvLayer(1, 9, 3, 4, (1, 3), pads=(0, 0, 1, 1), stride=(1, 2)), 1, id="height 1"
        ),
        pytest.param(ConvLayer(9, 1, 3, 4, (3, 1), dilation=(2, 1)), 1, id="width 1"),
        pytest.param(ConvLayer(1, 1, 17, 5, (1, 1), in_zero_point=127), 3, id="fully connected"),
        pytest.param(replace(LAYER, has_bias=False), 1, id="no bias"),
        pytest.param(ConvLayer(1, 1, 1, 1, (1, 1), pads=(3, 2, 1, 4)), 1, id="pads alone"),
        pytest.param(ConvLayer(5, 4, 6, 6, (3, 3), pads=(1, 1, 1, 1), groups=6), 2, id="depthwise"),
        pytest.param(ConvLayer(4, 4, 6, 9, (2, 2), groups=3), 1, id="groups"),
    ],
)
def test_corners(layer: ConvLayer, batch: int) -> None:
    arrays = data(layer, batch)
    result = simulate_layer(layer, TINY, requantization=SCALE, **arrays)
    expected = golden_layer(layer, requantization=SCALE, **arrays)
    assert result.output.shape == (batch, *layer.output_shape[1:])
    np.testing.assert_array_equal(result.output, expected)
    assert result.bytes_read + result.bytes_written == batch * result.plan.moved_bytes.total
    assert result.cycles == batch * result.plan.cycles


@pytest.mark.parametrize("zero_points", [5, np.arange(-2, 3), np.zeros(5, np.int64), None])
def test_weight_zero_points(zero_points: Any) -> None:
    arrays = data()
    result = simulate_layer(LAYER, TINY, weight_zero_points=zero_points, **arrays)
    expected = convolve(LAYER, weight_zero_points=zero_points, **arrays)
    np.testing.assert_array_equal(result.output, expected)
    # Zero points are fetched with the scales, and only where there are some.
    some = zero_points is not None and bool(np.any(zero_points))
    assert (result.counters["scale_bytes"] > 0) == some
    assert result.cycles == result.plan.cycles


def test_stalls_change_cycles_and_nothing_else() -> None:
    arrays = data(SHORT)
    free = simulate_layer(SHORT, TINY, **arrays)
    runs = [simulate_layer(SHORT, TINY, stalls=0.4, seed=seed, **arrays) for seed in (1, 1, 2)]
    assert runs[0].cycles == runs[1].cycles != runs[2].cycles
    writes = simulate_layer(SHORT, TINY, stalls=(0.0, 0.0, 0.8), **arrays)
    for run in (*runs, writes):
        assert run.cycles > free.cycles
        np.testing.assert_array_equal(run.output, free.output)
        assert run.bytes_read == free.bytes_read and run.bytes_written == free.bytes_written
        assert run.plan.cycles == free.plan.cycles
    reads = simulate_layer(SHORT, TINY, stalls=(0.0, 0.8, 0.0), **arrays)
    assert reads.counters["load_stall_cycles"] > free.counters["load_stall_cycles"]


def test_latency_is_planned() -> None:
    arrays = data(SHORT)
    near, far = (simulate_layer(SHORT, TINY, latency=cycles, **arrays) for cycles in (1, 60))
    assert near.cycles == near.plan.cycles < far.cycles == far.plan.cycles
    np.testing.assert_array_equal(near.output, far.output)


def test_a_tile_of_ones_own() -> None:
    tile = Tile(2, 3, 2, 1)
    result = simulate_layer(SHORT, TINY, tile=tile, mode="row", order="mhwc", **data(SHORT))
    plan = result.plan
    assert (plan.tile, plan.mode, plan.order, plan.objective) == (tile, "row", "mhwc", "given")
    np.testing.assert_array_equal(result.output, convolve(SHORT, **data(SHORT)))
    assert result.bytes_read + result.bytes_written == plan.moved_bytes.total
    assert result.cycles == plan.cycles


@pytest.mark.parametrize("objective", ["cycles", "bytes", "storage"])
def test_objectives(objective: str) -> None:
    result = simulate_layer(SHORT, TINY, objective=objective, **data(SHORT))
    assert result.plan.objective == objective
    np.testing.assert_array_equal(result.output, convolve(SHORT, **data(SHORT)))
    assert result.bytes_read + result.bytes_written == result.plan.moved_bytes.total


def test_waveform_and_progress(tmp_path: Path) -> None:
    seen: list[int] = []
    path = tmp_path / "wave.vcd"
    layer = ConvLayer(1, 1, 1, 1, (1, 1), has_bias=False)
    simulate_layer(layer, TINY, **data(layer), vcd=path, progress=seen.append)
    assert path.stat().st_size > 0 and "$enddefinitions" in path.read_text()
    assert seen == sorted(seen)


@pytest.mark.filterwarnings("error")
def test_a_waveform_that_cannot_be_written(tmp_path: Path) -> None:
    """Nothing is run, and no warning of what was not."""
    layer = ConvLayer(1, 1, 1, 1, (1, 1), has_bias=False)
    path = tmp_path / "absent" / "wave.vcd"
    with pytest.raises(FileNotFoundError, match=r"absent.wave\.vcd"):
        simulate_layer(layer, TINY, **data(layer), vcd=path)
    with pytest.raises(IsADirectoryError):
        simulate_layer(layer, TINY, **data(layer), vcd=tmp_path)
    gc.collect()


def test_an_engine_that_hangs_or_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SimulationTimeout, match="50"):
        simulate_layer(LAYER, TINY, max_cycles=50, **data())
    true = module.run

    def faulty(*args: Any, **kwargs: Any) -> Any:
        image = args[1].copy()
        image[kwargs["program_address"]] ^= 0xFF  # the descriptor's mark
        return true(args[0], image, **kwargs)

    monkeypatch.setattr(module, "run", faulty)
    with pytest.raises(EngineFault, match="stopped with error DESCRIPTOR in descriptor 0"):
        simulate_layer(LAYER, TINY, **data())


# Bad input: every message says what is wrong and what to do, before anything is built.


@pytest.fixture
def no_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the simulation started")

    monkeypatch.setattr(module, "run", refuse)


WIDE = np.zeros((1, 5, 4, 3), np.int16)


@pytest.mark.usefixtures("no_simulation")
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"inputs": WIDE}, TypeError, "inputs must be int8, not int16"),
        ({"inputs": [[1]]}, TypeError, "inputs must be a numpy array, not list"),
        ({"inputs": WIDE[0].astype(np.int8)}, ValueError,
         "inputs must have shape (N, 5, 4, 3), not (5, 4, 3)"),
        ({"inputs": WIDE[:0].astype(np.int8)}, ValueError, "(N, 5, 4, 3), not (0, 5, 4, 3)"),
        ({"weights": np.zeros((5, 3, 2, 4), np.int8)}, ValueError,
         "weights must have shape (M, Rh, Rw, C / groups) = (5, 3, 2, 3), not (5, 3, 2, 4)"),
        ({"weights": np.zeros((5, 3, 2, 3))}, TypeError, "weights must be int8, not float64"),
        ({"bias": np.zeros(5)}, TypeError, "bias must be int32, not float64"),
        ({"bias": np.zeros(4, np.int32)}, ValueError, "bias must have shape (5,), not (4,)"),
        ({"weight_zero_points": np.zeros(3, int)}, ValueError, "have shape (5,), not (3,)"),
        ({"weight_zero_points": 200}, ValueError, "within -128..127, not 200"),
        ({"weight_zero_points": 0.5}, TypeError, "must hold integers, not float64"),
        ({"requantization": Requantization(multiplier=[2**30] * 4, shift=[0] * 4)}, ValueError,
         "must hold 1 or 5 entries, one for each output channel, not shape (4,)"),
        # The bound is 2**31 - 1 and 18 taps of at most 127 * (127 + 7).
        ({"bias": np.full(5, 2**31 - 1, np.int32), "weights": np.full((5, 3, 2, 3), 127, np.int8)},
         ValueError, f"output channel 0 can reach {2**31 - 1 + 18 * 127 * 134}; use smaller"),
        ({"stalls": 1.0}, ValueError, "Stalls must be below 1 for a run to finish, not 1.0"),
        ({"objective": "area"}, ValueError, "objective must be one of cycles, bytes, storage"),
        ({"mode": "row"}, ValueError, "mode and order go with a given tile"),
        ({"tile": Tile(5, 4, 3, 5)}, PlanError, "the tile needs"),
        ({"tile": Tile(1, 1, 3, 1), "mode": "depthwise"}, PlanError, "does not suit this layer"),
        ({"tile": Tile(1, 1, 3, 1), "order": "cmhw"}, ValueError, "order must be one of hwmc"),
    ],
)  # fmt: skip
def test_refusals(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        simulate_layer(LAYER, TINY, **(data() | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stalls": (0.0, -0.5, 0.0)}, "-0.5"),
        ({"backend": "abacus"}, "must be one of amaranth, cxxrtl, verilator, auto, not 'abacus'"),
        ({"latency": 0}, "must be at least 1, not 0"),
        ({"seed": -1}, "must be at least 0, not -1"),
        ({"vcd": "wave.vcd", "backend": "cxxrtl"}, "VCD must be written with the amaranth backend"),
    ],
)
def test_refusals_of_the_run(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        simulate_layer(LAYER, TINY, **(data() | changes))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": (6, 2)}, "its height is 6 and the padded input's is 5; pad more"),
        ({"kernel": (3, 3), "dilation": (1, 3)}, "its width is 7 and the padded input's is 4"),
        ({"kernel": (1, 1), "groups": 2}, "groups must divide in_channels 3, not 2"),
        ({"kernel": (1, 1), "stride": (0, 1)}, "stride must be at least 1, not 0"),
        ({"kernel": (1, 1), "pads": (0, -1, 0, 0)}, "pads must be at least 0, not -1"),
        ({"kernel": (1, 1), "in_zero_point": 128}, "in_zero_point must be at most 127, not 128"),
    ],
)
def test_impossible_geometry(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ConvLayer(in_height=5, in_width=4, in_channels=3, out_channels=5, **arguments)


@pytest.mark.usefixtures("no_simulation")
@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (
            replace(TINY, roundings=("away",)),
            {"requantization": SCALE},
            "rounding 'double' is not built into this engine, which has away; add it to",
        ),
        (
            replace(TINY, roundings=()),
            {"requantization": SCALE},
            "rounding 'double' is not built into this engine, which has none",
        ),
        (
            replace(TINY, weight_zero_points=False),
            {"weight_zero_points": 1},
            "weight zero points are not built into this engine; set EngineConfig.weight_zero",
        ),
    ],
)
def test_what_is_not_built(config: EngineConfig, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        simulate_layer(LAYER, config, **(data() | changes))


DEEP = ConvLayer(3, 3, 10, 3, (2, 2), pads=(1, 0, 0, 0), has_bias=False, name="deep")


def test_buffers_too_small_name_the_smallest_that_work() -> None:
    """What the message asks for works, and one byte less does not."""
    arrays = data(DEEP)
    config = replace(TINY, weight_bytes=4, psum_bytes=0)
    with pytest.raises(PlanError, match="no tile of layer 'deep' fits the engine") as caught:
        simulate_layer(DEEP, config, **arrays)
    asked = {name: int(size) for name, size in re.findall(r"(\w+_bytes) (\d+) or more",
                                                          str(caught.value))}  # fmt: skip
    assert asked
    grown = replace(config, **asked)
    result = simulate_layer(DEEP, grown, **arrays)
    np.testing.assert_array_equal(result.output, convolve(DEEP, **arrays))
    for name, size in asked.items():
        with pytest.raises(PlanError, match=name):
            plan_layer(DEEP, replace(grown, **{name: size - 1}))


def test_a_layer_without_a_name_is_not_named() -> None:
    config = replace(TINY, weight_bytes=4, psum_bytes=0)
    with pytest.raises(PlanError, match=r"^no tile of the layer fits the engine: it takes "):
        plan_layer(replace(DEEP, name=""), config)


def test_needed_sums_without_a_bank() -> None:
    """A single tap of all 24 channels fits neither buffer half, so the channels must be split."""
    layer = ConvLayer(4, 4, 24, 4, (1, 1), has_bias=False, name="deep")
    config = replace(TINY, input_bytes=16, weight_bytes=16, psum_bytes=0)
    with pytest.raises(PlanError, match="no tile of layer 'deep' fits"):
        simulate_layer(layer, config, **data(layer))
    # One output of two channels: two sums of four bytes.
    result = simulate_layer(layer, replace(config, psum_bytes=8), **data(layer))
    assert result.plan.tile.in_channels < 24
    np.testing.assert_array_equal(result.output, convolve(layer, **data(layer)))


def test_a_budget_too_small_names_the_smallest_that_works() -> None:
    options: dict[str, Any] = {"out_lanes": 2, "split_lanes": 2, "bus_bytes": 4}
    with pytest.raises(PlanError, match="the smallest that works is") as caught:
        size_engine([DEEP], 20, **options)
    found = re.search(r"smallest that works is (\d+)", str(caught.value))
    assert found is not None
    least = int(found[1])
    config = size_engine([DEEP], least, **options)
    assert config.budget_bytes <= least
    result = simulate_layer(DEEP, config, **data(DEEP))
    np.testing.assert_array_equal(result.output, convolve(DEEP, **data(DEEP)))
    assert result.bytes_read + result.bytes_written == result.plan.moved_bytes.total
    with pytest.raises(PlanError, match=f"the smallest that works is {least}"):
        size_engine([DEEP], least - 1, **options)
