"""The report of a sweep: one HTML page that works offline, and its plot for papers."""

__all__: list[str] = []
