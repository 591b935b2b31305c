"""Terms and groups of the area model."""

import pytest

from haloconv.flow.explore.terms import GROUPS, group_of, quantities, term_names
from haloconv.planner.config import EngineConfig


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("datapath.lanes", "lanes"),
        ("datapath.lanes.sum_3", "lanes"),
        ("datapath.drain.requantizer_12", "requantizers"),
        ("datapath.drain", "drain"),
        ("datapath.drain.table", "drain"),
        ("datapath.halo", "operands"),
        ("datapath.loader.placer", "loading"),
        ("datapath.rows.fifo", "writing"),
        ("datapath.sequencer.load_queue.fifo", "walking"),
        ("datapath.loaders", "control"),
        ("datapath", "control"),
        ("top", "control"),
    ],
)
def test_groups(path: str, group: str) -> None:
    assert group_of(path) == group


def test_terms() -> None:
    config = EngineConfig(
        out_lanes=4, split_lanes=8, bus_bytes=16, requant_lanes=2, roundings=("double", "fp32"),
        units=("max_pool",), weight_zero_points=False, psum_bytes=0,
    )  # fmt: skip
    names = ("one", "lanes", "pr log_pr", "q fp32", "q away", "lanes max_pool", "elementwise",
             "chunk zero_points", "bank", "log_steps", "bus log_bus", "options", "ring",
             "sum_bits")  # fmt: skip
    assert quantities(config, names) == [
        1, 32, 24, 2, 0, 32, 0, 0, 0, 1, 64, 3, 32, 25,
    ]  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_has_terms_that_are_not_negative(group: str) -> None:
    for config in (EngineConfig(), EngineConfig(out_lanes=1, split_lanes=3, bus_bytes=1)):
        values = quantities(config, term_names(group))
        assert len(values) == len(set(term_names(group))) > 0
        assert min(values) >= 0
