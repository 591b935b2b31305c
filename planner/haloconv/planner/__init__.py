"""What to compute and how to cut it: layers, tiles, storage, traffic, schedule and search.

Pure functions on frozen dataclasses; numpy is the only dependency. Model files are read by
``haloconv.planner.tflite`` and ``haloconv.planner.network_file``, which are not imported here.
"""

from haloconv.planner.bounds import LowerBounds, lower_bounds
from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError, UnsupportedModel
from haloconv.planner.gemm import GemmTraffic, gemm_traffic
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import Plan, plan_layer
from haloconv.planner.requantization import ROUNDINGS, Requantization
from haloconv.planner.schedule import Schedule, schedule_layer
from haloconv.planner.storage import Storage, tile_storage
from haloconv.planner.tile import Tile
from haloconv.planner.traffic import TensorBytes, moved_bytes, unique_bytes
from haloconv.planner.version import __version__
from haloconv.planner.workload import Workload, parse_layer, read_workload

__all__ = [
    "ROUNDINGS",
    "ConvLayer",
    "EngineConfig",
    "GemmTraffic",
    "LowerBounds",
    "Plan",
    "PlanError",
    "Requantization",
    "Schedule",
    "Storage",
    "TensorBytes",
    "Tile",
    "UnsupportedModel",
    "Workload",
    "__version__",
    "gemm_traffic",
    "lower_bounds",
    "moved_bytes",
    "parse_layer",
    "plan_layer",
    "read_workload",
    "schedule_layer",
    "tile_storage",
    "unique_bytes",
]
