"""Synthesis of an engine with Yosys: primitives of an FPGA family, in total and by block."""

from haloconv.flow.synthesis.area import FAMILIES, Area
from haloconv.flow.synthesis.run import (
    MappedDesign,
    SynthesisError,
    SynthesisResult,
    synthesize,
    synthesize_rtlil,
)

__all__ = [
    "FAMILIES",
    "Area",
    "MappedDesign",
    "SynthesisError",
    "SynthesisResult",
    "synthesize",
    "synthesize_rtlil",
]
