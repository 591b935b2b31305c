# amaranth: UnusedElaboratable=no
"""Engines that were elaborated before."""

# An engine may be asked for and then not run, as when its simulator cannot be built.

from dataclasses import replace
from functools import lru_cache

from haloconv.planner.config import EngineConfig
from haloconv.rtl.engine import Engine

__all__ = ["engine_for"]


@lru_cache(maxsize=8)
def engine_for(config: EngineConfig) -> Engine:
    """Return the engine of a configuration; the backends keep what they derive from the object.

    It counts even where the configuration leaves counters out, which changes no cycle: what moved
    is compared with the plan.
    """
    return Engine(config if config.counters else replace(config, counters=True))
