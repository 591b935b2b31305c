"""Simulators behind :func:`haloconv.sim.backend.run`: the same job, the same outcome."""

__all__: list[str] = []
