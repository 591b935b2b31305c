"""Command line, reports, figures and Verilog export."""

__all__: list[str] = []
