"""Golden model, memory models, benches and whole-layer simulation."""

__all__: list[str] = []
