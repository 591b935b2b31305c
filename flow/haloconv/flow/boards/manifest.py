"""What a build leaves for the host program: a folder with ``manifest.json``."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from haloconv.planner.config import EngineConfig
from haloconv.planner.network import Network
from haloconv.planner.network_program import EngineRun, HostStep, NetworkProgram
from haloconv.planner.program import ALIGNMENT
from haloconv.planner.validate import check_int
from haloconv.planner.version import __version__

__all__ = ["IMAGE", "MANIFEST", "BoardStep", "Manifest", "make_manifest", "read_manifest"]

MANIFEST, IMAGE = "manifest.json", "image.bin"


@dataclass(frozen=True)
class BoardStep:
    """A run of the engine from a descriptor on, or a node of the network for the host.

    ``program_address`` and ``predicted_cycles`` are None for the host, ``node`` for the engine.
    """

    program_address: int | None
    predicted_cycles: int | None
    node: int | None


@dataclass(frozen=True)
class Manifest:
    """A network on a board.

    Attributes
    ----------
    board : str
    config : EngineConfig
    clock_hz : float
    baud, bit_cycles : int
        Of the serial line.
    memory_bytes : int
    technology : str
    model, model_sha256, target : str
        File of the network in the same folder, and whose arithmetic it is read for.
    image_sha256 : str
        Of ``image.bin``.
    load : tuple of (start, end)
        Bytes of the image that have to be in memory before the first run; the rest are tensors.
    addresses : dict of int to int
        First byte of each tensor in memory.
    steps : tuple of BoardStep
    bitstream : str
        File in the same folder, empty where there is none.
    """

    board: str
    config: EngineConfig
    clock_hz: float
    baud: int
    bit_cycles: int
    memory_bytes: int
    technology: str
    model: str
    model_sha256: str
    target: str
    image_sha256: str
    load: tuple[tuple[int, int], ...]
    addresses: dict[int, int]
    steps: tuple[BoardStep, ...]
    bitstream: str

    @property
    def predicted_cycles(self) -> int:
        """Of all runs of the engine."""
        return sum(step.predicted_cycles or 0 for step in self.steps)

    def to_text(self) -> str:
        """Return the manifest as JSON text with sorted keys."""
        values = asdict(self) | {
            "addresses": {str(index): at for index, at in sorted(self.addresses.items())},
            "config": self.config.to_dict(),
            "generator": f"haloconv {__version__}",
        }
        return json.dumps(values, sort_keys=True, indent=2) + "\n"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Manifest":
        """Return the manifest of a JSON object.

        Raises
        ------
        KeyError, TypeError, ValueError
            If it is none.
        """
        fields = {name: values[name] for name in cls.__dataclass_fields__}
        fields["config"] = EngineConfig.from_dict(values["config"])
        fields["load"] = tuple((int(start), int(end)) for start, end in values["load"])
        fields["addresses"] = {int(index): at for index, at in values["addresses"].items()}
        fields["steps"] = tuple(BoardStep(**step) for step in values["steps"])
        for name in ("baud", "bit_cycles", "memory_bytes"):
            check_int(name, fields[name], 1)
        if not 0 < fields["clock_hz"] < math.inf:
            raise ValueError(f"clock_hz must be above 0, not {fields['clock_hz']!r}")
        return cls(**fields)


def make_manifest(program: NetworkProgram, **board: Any) -> Manifest:
    """Return the manifest of a compiled network.

    Parameters
    ----------
    program : NetworkProgram
    **board
        The attributes that the program does not have.
    """
    network = program.network
    position = {id(node): index for index, node in enumerate(network.nodes)}
    steps: list[BoardStep] = []
    for step in program.steps:
        if isinstance(step, EngineRun):
            cycles = sum(planned.cycles for planned in step.nodes)
            steps.append(BoardStep(step.program_address, cycles, None))
        else:
            assert isinstance(step, HostStep)
            steps.append(BoardStep(None, None, position[id(step.node)]))
    return Manifest(
        config=program.config,
        target=network.target,
        image_sha256=hashlib.sha256(program.image.tobytes()).hexdigest(),
        load=_ranges(program),
        addresses=dict(program.addresses),
        steps=tuple(steps),
        **board,
    )


def _ranges(program: NetworkProgram) -> tuple[tuple[int, int], ...]:
    """Descriptors and constants stand before the tensors, some of which are constant too."""
    tensors = -(-program.activation_bytes // ALIGNMENT) * ALIGNMENT
    ranges = [(0, int(program.image.size) - tensors)]
    for index, tensor in program.network.tensors.items():
        if tensor.data is not None and index in program.addresses:
            start = program.addresses[index]
            ranges.append((start, start + _size(program.network, index)))
    return tuple((start, end) for start, end in ranges if start < end)


def _size(network: Network, index: int) -> int:
    data = network.tensors[index].data
    return 0 if data is None else data.nbytes


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder that ``haloconv build`` made.

    Raises
    ------
    ValueError
        If there is none, or it is damaged.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(f"{folder} has no {MANIFEST}; make it with haloconv build")
    try:
        return Manifest.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is no manifest of a board: {why}; build it anew") from None
