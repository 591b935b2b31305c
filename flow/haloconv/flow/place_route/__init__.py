"""Place and route with nextpnr: clock, critical path by block, utilisation, bitstream."""

from haloconv.flow.place_route.devices import DEVICES, Device
from haloconv.flow.place_route.report import CriticalPath, PathStage
from haloconv.flow.place_route.run import (
    PlacementError,
    PlacementResult,
    PlacementRun,
    place_and_route,
)

__all__ = [
    "DEVICES",
    "CriticalPath",
    "Device",
    "PathStage",
    "PlacementError",
    "PlacementResult",
    "PlacementRun",
    "place_and_route",
]
