"""What all failures of a simulation have in common."""

__all__ = ["SimulationError"]


class SimulationError(RuntimeError):
    """A simulation that could not be built, did not finish, or whose engine failed."""
