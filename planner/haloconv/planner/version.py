"""The version of haloconv: read by the packaging, and stated in generated files."""

__all__ = ["__version__"]

__version__ = "0.1.0"
