"""What the logic of each block grows with."""

import math
import re
from collections.abc import Callable, Iterable, Mapping

from haloconv.planner.config import EngineConfig
from haloconv.planner.latency import chunk_bytes
from haloconv.planner.requantization import ROUNDINGS

__all__ = ["GROUPS", "group_of", "quantities", "term_names"]

GROUPS: Mapping[str, tuple[str, ...]] = {
    "lanes": ("datapath.lanes",),
    "requantizers": ("datapath.drain.requantizer",),
    "drain": ("datapath.drain",),
    "operands": ("datapath.operands", "datapath.halo", "datapath.weights"),
    "loading": ("datapath.loader", "datapath.gearbox"),
    "writing": ("datapath.writer", "datapath.rows"),
    "elementwise": ("datapath.elementwise", "elementwise"),
    "walking": (
        "datapath.sequencer",
        "datapath.walker",
        "datapath.segments",
        "datapath.ask",
        "datapath.asked",
    ),
    "control": (),
}
"""Groups of blocks and how the paths in them begin, the first match counting; the rest is control.

LUTs between two blocks count to either at random, so that neighbours are better fitted as one.
"""

_TERMS: Mapping[str, tuple[str, ...]] = {
    "lanes": ("one", "pm", "pr", "lanes", "lanes sum_bits", "lanes max_pool"),
    "requantizers": ("q", *(f"q {name}" for name in ROUNDINGS), "q serial", "serial"),
    "drain": ("one", "pm", "q", "q log_steps", "q bank", "lanes", "q pr", "q log_groups", "steps"),
    "operands": ("one", "pm", "pr", "lanes", "pr word", "pr word log_pr", "pr log_pr", "banks"),
    "loading": ("one", "bus", "bus log_bus", "bus log_ring", "ring", "chunk", "chunk log_ring",
                "word", "chunk zero_points", "pm zero_points", "pm", "pr", "address", "sizes"),
    "writing": ("one", "bus", "q", "bus q", "bus log_bus", "address", "pm"),
    "elementwise": ("elementwise", "q elementwise", "bus elementwise"),
    "walking": ("one", "address", "log_pm", "log_pr", "log_bus", "sizes", "max_pool", "zero_points",
                "queues", "steps", "pr"),
    "control": ("one", "bus", "address", "log_bus", "sizes", "elementwise", "options"),
}  # fmt: skip


def _log2(value: float) -> float:
    return math.log2(max(value, 1))


def _ring(config: EngineConfig) -> int:
    return 1 << (chunk_bytes(config) + config.bus_bytes - 1).bit_length()


_VALUES: Mapping[str, Callable[[EngineConfig], float]] = {
    "one": lambda config: 1,
    "pm": lambda config: config.out_lanes,
    "pr": lambda config: config.split_lanes,
    "lanes": lambda config: config.lanes,
    "q": lambda config: config.results_per_cycle,
    "bus": lambda config: config.bus_bytes,
    "word": lambda config: config.word_bytes,
    "chunk": chunk_bytes,
    # The gearbox keeps a chunk and a beat in a power of two of bytes.
    "ring": lambda config: _ring(config),
    "log_ring": lambda config: _log2(_ring(config)),
    "queues": lambda config: config.tiles_ahead > 0,
    "serial": lambda config: getattr(config, "serial_requantizers", False),
    # Drain steps that need counting.
    "steps": lambda config: config.group_steps > 1,
    "sum_bits": lambda config: min(32, 17 + _log2(config.weight_words)),
    "address": lambda config: config.address_bits,
    "bank": lambda config: config.psum_bytes > 0,
    # Banks whose number is no power of two are counted round.
    "banks": lambda config: config.split_lanes & (config.split_lanes - 1) != 0,
    "log_pm": lambda config: _log2(config.out_lanes),
    "log_pr": lambda config: _log2(config.split_lanes),
    "log_bus": lambda config: _log2(config.bus_bytes),
    "log_steps": lambda config: _log2(config.group_steps),
    "log_groups": lambda config: _log2(config.channel_groups),
    # Bits of the addresses of all buffers.
    "sizes": lambda config: (
        _log2(config.input_words) + _log2(config.weight_words) + _log2(config.psum_words)
    ),
    "zero_points": lambda config: config.weight_zero_points,
    "max_pool": lambda config: "max_pool" in config.built_units,
    "elementwise": lambda config: "elementwise" in config.built_units,
    "options": lambda config: len(config.built_roundings) + len(config.built_units),
    **{
        name: lambda config, name=name: name in config.built_roundings for name in ROUNDINGS
    },
}  # fmt: skip


def group_of(path: str) -> str:
    """Return the group of a block, by its instance path."""
    for group, starts in GROUPS.items():
        if any(re.match(rf"{re.escape(start)}(?![a-z])", path) for start in starts):
            return group
    return "control"


def term_names(group: str) -> tuple[str, ...]:
    """Return what a group grows with; a name of several words is their product."""
    return _TERMS[group]


def quantities(config: EngineConfig, names: Iterable[str]) -> list[float]:
    """Return the terms of an engine by their names."""
    values: list[float] = []
    for name in names:
        product = 1.0
        for part in name.split():
            product *= float(_VALUES[part](config))
        values.append(product)
    return values
