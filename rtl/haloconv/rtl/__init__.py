"""The engine as Amaranth components, sized by an EngineConfig."""

__all__: list[str] = []
