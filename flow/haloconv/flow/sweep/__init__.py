"""Sweeps over spaces of engines: area, clock and cycles of every point (docs/sweep.md)."""

__all__: list[str] = []
