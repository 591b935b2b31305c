"""The engine as Amaranth components, sized by an EngineConfig."""

from haloconv.rtl.engine import Engine
from haloconv.rtl.ports import MemorySignature, RegisterSignature
from haloconv.rtl.requantizer import Requantizer

__all__ = ["Engine", "MemorySignature", "RegisterSignature", "Requantizer"]
