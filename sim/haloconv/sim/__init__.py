"""Golden model, memory models, simulators, and runs of whole layers and networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from haloconv.sim.backend import BackendChoice, RunResult, choose_backend, run
    from haloconv.sim.backends.job import BackendUnavailable, BuildError, SimulationTimeout
    from haloconv.sim.golden import convolve, golden_layer, requantize
    from haloconv.sim.layer import EngineFault, LayerResult, simulate_layer
    from haloconv.sim.memory import MemoryModel, ProtocolError
    from haloconv.sim.network import NetworkResult, run_network, run_program
    from haloconv.sim.network_golden import golden_network

__all__ = [
    "BackendChoice",
    "BackendUnavailable",
    "BuildError",
    "EngineFault",
    "LayerResult",
    "MemoryModel",
    "NetworkResult",
    "ProtocolError",
    "RunResult",
    "SimulationTimeout",
    "choose_backend",
    "convolve",
    "golden_layer",
    "golden_network",
    "requantize",
    "run",
    "run_network",
    "run_program",
    "simulate_layer",
]

_HOMES = {
    "backend": ("BackendChoice", "RunResult", "choose_backend", "run"),
    "backends.job": ("BackendUnavailable", "BuildError", "SimulationTimeout"),
    "golden": ("convolve", "golden_layer", "requantize"),
    "layer": ("EngineFault", "LayerResult", "simulate_layer"),
    "memory": ("MemoryModel", "ProtocolError"),
    "network": ("NetworkResult", "run_network", "run_program"),
    "network_golden": ("golden_network",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # Loaded on first use: pytest imports this package in every environment that has the plugin,
    # and Amaranth takes a noticeable part of a second.
    if name in _HOME_OF:
        return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
