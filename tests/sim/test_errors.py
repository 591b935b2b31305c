from haloconv.sim import (
    BackendUnavailable,
    BuildError,
    EngineFault,
    ProtocolError,
    SimulationTimeout,
)
from haloconv.sim.errors import SimulationError


def test_one_class_catches_all_failures() -> None:
    for failure in (BackendUnavailable, BuildError, EngineFault, ProtocolError, SimulationTimeout):
        assert issubclass(failure, SimulationError)
