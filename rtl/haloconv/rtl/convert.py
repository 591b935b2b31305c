"""Designs as text for synthesis and compiled simulators."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amaranth.back import rtlil, verilog  # pyright: ignore[reportAttributeAccessIssue]  # no stubs

__all__ = ["garbage_kept", "to_rtlil", "to_verilog"]


@contextmanager
def garbage_kept() -> Iterator[None]:
    """Keep Python's garbage collector from running in between.

    Elaborating a design makes millions of small objects that all live until its end. The collector
    walks them again and again, which takes half of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def to_rtlil(design: Any, *, name: str = "top", platform: Any = None, ports: Any = None) -> str:
    """Return a design as RTLIL without source paths, so that equal designs have equal text.

    Parameters
    ----------
    design : Elaboratable
    name : str
        Of the top module.
    platform : Platform or None
    ports
        Of a design that has no signature, as Amaranth's ``rtlil.convert`` takes them.
    """
    with garbage_kept():
        return rtlil.convert(design, name=name, platform=platform, ports=ports, emit_src=False)


def to_verilog(design: Any, *, name: str = "top") -> str:
    """Return a design as Verilog without source paths and attributes of Amaranth's own.

    Parameters
    ----------
    design : Elaboratable
    name : str
        Of the top module.
    """
    with garbage_kept():
        return verilog.convert(design, name=name, emit_src=False, strip_internal_attrs=True)
