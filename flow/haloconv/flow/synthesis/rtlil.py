"""The engine as RTLIL, as synthesis takes it."""

import re
from typing import Any

from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]  # no stubs

from haloconv.planner.config import EngineConfig
from haloconv.rtl.engine import Engine

__all__ = ["TOP", "Target", "design_rtlil", "engine_rtlil", "plain_names"]

TOP = "haloconv_engine"
"""Name of the top module."""


class Target:
    """Stands for a board's platform where only the FPGA family is known.

    Blocks that use primitives of a family ask for ``haloconv_family``.
    """

    def __init__(self, family: str) -> None:
        self.haloconv_family = family


def plain_names(text: str) -> str:
    r"""Return RTLIL with identifiers like ``\sum[1]`` renamed to ``\sum.1``.

    Amaranth names the elements of array signals so. Beside a wire ``\sum`` of several bits, abc9 of
    Yosys 0.70 takes ``\sum[1]`` for a bit of that wire and stops with "Assert
    `count_id(wire->name) == 0' failed". Slices stand apart from their name (``\sum [1]``) and stay.
    """
    return re.sub(r"\\\S+", lambda name: re.sub(r"\[(\d+)\]", r".\1", name[0]), text)


def design_rtlil(design: Any, family: str, *, top: str, platform: Any = None) -> str:
    """Return an Amaranth design as RTLIL without source paths, ready for synthesis."""
    platform = Target(family) if platform is None else platform
    return plain_names(rtlil.convert(design, name=top, platform=platform, emit_src=False))


def engine_rtlil(config: EngineConfig, family: str) -> str:
    """Return an engine as RTLIL with :data:`TOP` at the top, built for a family."""
    return design_rtlil(Engine(config), family, top=TOP)
