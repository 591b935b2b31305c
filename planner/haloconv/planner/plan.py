"""The plan of one layer on one engine: tile, storage, traffic and cycles in one place."""

from dataclasses import dataclass, replace
from functools import cached_property

from haloconv.planner.bounds import LowerBounds, lower_bounds
from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.layer import ConvLayer
from haloconv.planner.schedule import Schedule, schedule_layer
from haloconv.planner.search import search_tiles
from haloconv.planner.storage import Storage, tile_storage
from haloconv.planner.tile import Tile, check_fit, check_mode
from haloconv.planner.traffic import TensorBytes, is_channelwise, moved_bytes, unique_bytes

__all__ = ["Plan", "plan_layer"]


@dataclass(frozen=True)
class Plan:
    """How an engine runs a layer, and what that costs.

    Parameters
    ----------
    layer : ConvLayer
    config : EngineConfig
    tile : Tile
    mode : str
        Use of the split lanes, of :data:`~haloconv.planner.tile.MODES`.
    order : str
        Tile loops, outer to inner, of :data:`~haloconv.planner.tile.ORDERS`.
    objective : str
        What the search put first; "given" where the tile was given.
    latency : int
        Cycles from a read request to its first beat.
    raw : bool
        int32 sums instead of int8 results.
    load_scale : bool
        The scale table is fetched.
    """

    layer: ConvLayer
    config: EngineConfig
    tile: Tile
    mode: str
    order: str
    objective: str
    latency: int
    raw: bool
    load_scale: bool

    @cached_property
    def storage(self) -> Storage:
        """Bytes of the tile, line by line."""
        return tile_storage(self.layer, self.tile, self.config, self.mode)

    @cached_property
    def unique_bytes(self) -> TensorBytes:
        """Every touched tensor byte once, a lower bound."""
        return unique_bytes(self.layer, self.raw)

    @cached_property
    def moved_bytes(self) -> TensorBytes:
        """Tensor bytes that this plan transfers."""
        return moved_bytes(self.layer, self.tile, self.order, self.raw)

    @cached_property
    def bounds(self) -> LowerBounds:
        """Lower bounds on the bytes of any plan in this storage."""
        return lower_bounds(self.layer, self.config.budget_bytes, self.raw)

    @cached_property
    def schedule(self) -> Schedule:
        """When each tile loads, computes and drains."""
        return schedule_layer(
            self.layer,
            self.config,
            self.tile,
            self.mode,
            self.order,
            latency=self.latency,
            raw=self.raw,
            load_scale=self.load_scale,
        )

    @property
    def cycles(self) -> int:
        """Cycles from start to the last write, as the engine counts them without random stalls."""
        return self.schedule.cycles

    @property
    def ideal_cycles(self) -> int:
        """Largest of MACs / lanes, bytes read / bus and bytes written / bus, unique bytes."""
        bus, unique = self.config.bus_bytes, self.unique_bytes
        reads = unique.total - unique.output
        return max(
            -(-self.layer.macs // self.config.lanes), -(-reads // bus), -(-unique.output // bus)
        )

    @property
    def utilisation(self) -> float:
        """MACs / (lanes * cycles), everything included."""
        return self.layer.macs / (self.config.lanes * self.cycles)


def plan_layer(
    layer: ConvLayer,
    config: EngineConfig | None = None,
    objective: str = "cycles",
    *,
    latency: int = 16,
    raw: bool = False,
    load_scale: bool | None = None,
    tile: Tile | None = None,
    mode: str | None = None,
    order: str | None = None,
) -> Plan:
    """Return the best plan of ``layer`` on ``config``, or the plan of a given tile.

    Parameters
    ----------
    layer : ConvLayer
    config : EngineConfig or None
        None: ``EngineConfig()``.
    objective : {"cycles", "bytes", "storage"}
        What the search puts first; the other two break ties.
    latency : int
        Cycles from a read request to its first beat, at least 1.
    raw : bool
        int32 sums instead of int8 results.
    load_scale : bool or None
        Whether the scale table is fetched; None: for int8 results alone.
    tile, mode, order
        To cost a tile of one's own instead of searching; ``mode`` and ``order`` then default to
        "channel" ("depthwise" for depthwise layers) and "hwmc".

    Raises
    ------
    PlanError
        If no tile fits, or the given one does not, with what would.
    ValueError
        For an unknown objective, mode or order.
    """
    config = EngineConfig() if config is None else config
    scale = (not raw) if load_scale is None else load_scale
    if tile is None:
        if mode is not None or order is not None:
            raise ValueError("mode and order go with a given tile; leave them out to search")
        found = search_tiles(layer, config, objective, latency=latency, raw=raw)
        return Plan(
            layer, config, found.tile, found.mode, found.order, objective, latency, raw, scale
        )
    channelwise = is_channelwise(layer)
    mode = mode or ("depthwise" if channelwise else "channel")
    order = order or "hwmc"
    check_mode(layer, mode, order)
    limits = {
        "height": layer.out_height,
        "width": layer.out_width,
        "in_channels": 1 if channelwise else layer.group_in_channels,
        "out_channels": layer.out_channels if channelwise else layer.group_out_channels,
    }
    tile = replace(tile, **{name: min(getattr(tile, name), most) for name, most in limits.items()})
    problem = check_fit(layer, config, tile, mode)
    if problem:
        raise PlanError(problem)
    return Plan(layer, config, tile, mode, order, "given", latency, raw, scale)
