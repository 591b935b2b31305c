"""A small engine synthesised once for each family in a test session, whatever the workers."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.synthesis import SynthesisResult, synthesize
from haloconv.planner.config import EngineConfig

try:
    import fcntl
except ImportError:  # not on Windows; there each worker does the work
    fcntl = None

__all__ = ["SMALL", "common_folder", "synthesised"]

SMALL = EngineConfig(
    out_lanes=2,
    split_lanes=2,
    bus_bytes=2,
    input_bytes=1024,
    weight_bytes=1024,
    psum_bytes=1024,
    bias_bytes=64,
    requant_lanes=1,
    address_bits=16,
)
"""Small logic, and buffers large enough for block RAM in every family."""


def common_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder that all workers of this session share."""
    root = factory.getbasetemp()
    return root.parent if "PYTEST_XDIST_WORKER" in os.environ else root


def synthesised(factory: pytest.TempPathFactory, family: str) -> tuple[SynthesisResult, Any]:
    """Return the result for :data:`SMALL`, and its netlist."""
    folder = common_folder(factory) / "synthesised"
    folder.mkdir(exist_ok=True)
    netlist, note = folder / f"{family}.netlist.json", folder / f"{family}.json"
    with open(folder / f"{family}.lock", "w", encoding="ascii") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            result = synthesize(SMALL, family, netlist=netlist)
            note.write_text(json.dumps(result.to_dict()))
    result = SynthesisResult.from_dict(json.loads(note.read_text()))
    return result, json.loads(netlist.read_text())
