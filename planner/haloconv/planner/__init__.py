"""What to compute and how to cut it: layers, tiles, storage, traffic, schedule and search.

Pure functions on frozen dataclasses; numpy is the only dependency.
"""

from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError, UnsupportedModel
from haloconv.planner.layer import ConvLayer
from haloconv.planner.requantization import ROUNDINGS, Requantization
from haloconv.planner.tile import Tile
from haloconv.planner.version import __version__

__all__ = [
    "ROUNDINGS",
    "ConvLayer",
    "EngineConfig",
    "PlanError",
    "Requantization",
    "Tile",
    "UnsupportedModel",
    "__version__",
]
