import re

import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import plan_layer
from haloconv.planner.tile import Tile

LAYER = ConvLayer(6, 6, 4, 8, (3, 3), pads=(1, 1, 1, 1))
SMALL = EngineConfig(
    out_lanes=2,
    split_lanes=2,
    bus_bytes=4,
    input_bytes=128,
    weight_bytes=128,
    psum_bytes=256,
    bias_bytes=32,
)


def test_given_tile_is_costed_by_hand() -> None:
    plan = plan_layer(LAYER, SMALL, tile=Tile(3, 2, 4, 2), mode="channel", order="mhwc")
    assert (plan.objective, plan.mode, plan.order) == ("given", "channel", "mhwc")
    # Rows inside the image under the two halves: 4 and 4; columns under the three thirds: 3, 4, 3.
    assert plan.moved_bytes.input == 4 * (4 + 4) * (3 + 4 + 3) * 4
    assert plan.moved_bytes.weight == 8 * 4 * 9
    assert plan.moved_bytes.bias == 32
    assert plan.moved_bytes.output == 36 * 8
    assert plan.unique_bytes.total == 36 * 4 + 8 * 4 * 9 + 32 + 36 * 8
    assert plan.storage.single == 4 * 5 * 4 + 2 * 4 * 9 + 4 * 3 * 2 * 2 + 4 * 2
    assert len(plan.schedule.tiles) == 4 * 2 * 3
    assert plan.cycles == plan.schedule.cycles
    # 36 outputs of 8 channels, 36 products each, on 4 lanes.
    assert plan.ideal_cycles == 36 * 8 * 36 // 4
    assert plan.utilisation == pytest.approx(36 * 8 * 36 / (4 * plan.cycles))


def test_tile_larger_than_the_layer_is_the_layer() -> None:
    plan = plan_layer(LAYER, EngineConfig(), tile=Tile(99, 99, 99, 99))
    assert plan.tile == Tile(6, 6, 4, 8)


def test_search_keeps_its_promise() -> None:
    """No given tile of a coarse sample beats the plan that the search found."""
    found = plan_layer(LAYER, SMALL)
    for height in (1, 2, 3, 6):
        for outputs in (2, 4, 8):
            try:
                other = plan_layer(LAYER, SMALL, tile=Tile(height, 2, 4, outputs))
            except PlanError:
                continue
            assert found.cycles <= 1.01 * other.cycles


@pytest.mark.parametrize("objective", ["cycles", "bytes", "storage"])
def test_objectives_order_their_figures(objective: str) -> None:
    figures = {
        "cycles": lambda plan: plan.cycles,
        "bytes": lambda plan: plan.moved_bytes.total,
        "storage": lambda plan: plan.storage.double_buffered,
    }
    best = figures[objective](plan_layer(LAYER, SMALL, objective))
    for other in figures:
        assert best <= 1.01 * figures[objective](plan_layer(LAYER, SMALL, other))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mode": "row"}, ValueError, "mode and order go with a given tile"),
        ({"tile": Tile(1, 1, 1, 1), "mode": "rows"}, ValueError, "mode must be one of channel"),
        ({"tile": Tile(1, 1, 1, 1), "order": "chwm"}, ValueError, "order must be one of hwmc"),
        ({"tile": Tile(1, 1, 1, 1), "mode": "depthwise"}, PlanError, "does not suit this layer"),
        ({"tile": Tile(6, 6, 4, 8)}, PlanError, "raise input_bytes or take a smaller tile"),
        ({"objective": "speed"}, ValueError, "objective must be one of"),
    ],
)
def test_refusals(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        plan_layer(LAYER, SMALL, **arguments)  # type: ignore[arg-type]


def test_too_small_an_engine_names_what_works() -> None:
    layer = ConvLayer(40, 40, 4, 4, (15, 15))
    with pytest.raises(PlanError, match="input_bytes"):
        plan_layer(layer, SMALL)
