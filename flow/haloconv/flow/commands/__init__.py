"""The commands, a module each."""

__all__: list[str] = []
