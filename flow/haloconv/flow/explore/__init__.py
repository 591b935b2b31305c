"""The area of engines without synthesis, and the search for one for a network and a device."""

__all__: list[str] = []
