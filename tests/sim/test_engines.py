from dataclasses import replace

from haloconv.planner.config import EngineConfig
from haloconv.sim.engines import engine_for


def test_one_engine_for_equal_configurations() -> None:
    config = EngineConfig(out_lanes=2, split_lanes=2)
    assert engine_for(config) is engine_for(replace(config))
    assert engine_for(config).config == config
    assert engine_for(replace(config, bus_bytes=4)).config.bus_bytes == 4


def test_simulations_count() -> None:
    config = EngineConfig(out_lanes=2, split_lanes=2, counters=False)
    assert engine_for(config).config == replace(config, counters=True)
