"""Boards in the simulator: the far end of a serial line, and whole boards behind it."""

__all__: list[str] = []
