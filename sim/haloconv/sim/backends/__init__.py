"""Simulators behind :func:`haloconv.sim.backend.run`; each runs the same job to the same outcome."""
