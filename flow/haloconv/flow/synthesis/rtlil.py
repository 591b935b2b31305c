"""The engine as RTLIL, as synthesis takes it."""

import re
from typing import Any

from haloconv.planner.config import EngineConfig
from haloconv.rtl.convert import to_rtlil
from haloconv.rtl.engine import Engine

__all__ = ["TOP", "Target", "design_rtlil", "engine_rtlil", "plain_names", "unchecked_reads"]

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


def unchecked_reads(text: str) -> str:
    """Return RTLIL whose reads of memories with the attribute no_rw_check may give anything in the
    cycle of a write to the same word.

    Yosys heeds the attribute where it merges a register into a memory; the synchronous reads that
    Amaranth writes have theirs already, and promise the old word. Block RAM of the ECP5 and the
    iCE40 does not keep the promise without registers and multiplexers around it.
    """
    lines = text.split("\n")
    memories: set[str] = set()
    marked = reads = False
    unchecked = (0, "")
    for number, line in enumerate(lines):
        words = line.split()
        if line.startswith("module "):
            memories.clear()
        elif words[:2] == ["attribute", r"\no_rw_check"]:
            marked = True
        elif words[:1] == ["memory"]:
            if marked:
                memories.add(words[-1])
            marked = False
        elif words[:1] == ["cell"]:
            reads = words[1] == "$memrd_v2"
        elif reads and words[:2] == ["parameter", r"\MEMID"]:
            reads = words[2].strip('"').replace("\\\\", "\\") in memories
        elif reads and words[:2] == ["parameter", r"\COLLISION_X_MASK"]:
            width, bits = words[2].split("'")
            unchecked = number, line.replace(words[2], f"{width}'{'1' * len(bits)}")
        elif reads and words[:2] == ["parameter", r"\CLK_ENABLE"] and words[2] == "1":
            # Without a clock there is no such cycle, and Yosys refuses the mask.
            lines[unchecked[0]] = unchecked[1]
    return "\n".join(lines)


def design_rtlil(
    design: Any, family: str, *, top: str, platform: Any = None, ports: Any = None
) -> str:
    """Return an Amaranth design as RTLIL without source paths, ready for synthesis.

    Parameters
    ----------
    design : wiring.Component or Elaboratable
    family : str
        Blocks are built for it, unless ``platform`` says otherwise.
    top : str
        Name of the top module.
    platform
        What blocks are elaborated with; None stands for a bare :class:`Target`.
    ports
        Of a design that has no signature, as Amaranth's ``rtlil.convert`` takes them.
    """
    platform = Target(family) if platform is None else platform
    text = to_rtlil(design, name=top, platform=platform, ports=ports)
    return unchecked_reads(plain_names(text))


def engine_rtlil(config: EngineConfig, family: str) -> str:
    """Return an engine as RTLIL with :data:`TOP` at the top, built for a family."""
    return design_rtlil(Engine(config), family, top=TOP)
