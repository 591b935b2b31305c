"""Loads a network into a board, runs it, and reads what it gives."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.flow.boards.link import Link, LinkError, LostAnswer
from haloconv.flow.boards.manifest import IMAGE, Manifest, read_manifest
from haloconv.planner.network import ElementwiseNode, HostNode, MoveNode, Network
from haloconv.planner.network_file import read_network
from haloconv.planner.registers import IDENTITY, REVISION, Register, built_counters
from haloconv.sim.host import run_host, run_move
from haloconv.sim.layer import EngineFault, fault_message
from haloconv.sim.network_golden import feed_network, look_up

__all__ = ["BoardHost", "BoardProgram", "BoardResult", "read_program"]

Array = npt.NDArray[Any]

STARTS = 3
"""Most runs of a network whose start the board did not confirm."""
PATIENCE = 4.0
"""A run is given up after so many times the predicted cycles, and a second."""
_BUSY, _ERROR = 1, 4


@dataclass(frozen=True)
class BoardProgram:
    """A network as the host program runs it.

    Attributes
    ----------
    manifest : Manifest
    network : Network
    image : bytes
    """

    manifest: Manifest
    network: Network = field(repr=False)
    image: bytes = field(repr=False)


@dataclass(frozen=True)
class BoardResult:
    """What a network gave on a board.

    Attributes
    ----------
    outputs : list of array
        As the model's outputs, in its types and shapes.
    counters : dict of str to int
        The engine's, summed over its runs: all of
        :data:`~haloconv.planner.registers.COUNTERS`, or "cycles" alone where the others are not
        built.
    engine_seconds : float
        The counted cycles at the board's clock.
    seconds : float
        From the first input byte sent to the last result, on this machine.
    """

    outputs: list[Array]
    counters: dict[str, int]
    engine_seconds: float
    seconds: float


def read_program(folder: Path) -> BoardProgram:
    """Return the program of a folder that ``haloconv build`` made.

    Raises
    ------
    ValueError
        If a file is missing, or files do not belong together.
    """
    manifest = read_manifest(folder)
    image = _read(folder / IMAGE, "image", manifest.image_sha256)
    model = folder / manifest.model
    _read(model, "model", manifest.model_sha256)
    return BoardProgram(manifest, read_network(model, target=manifest.target), image)


def _read(path: Path, what: str, sha256: str) -> bytes:
    """Return the bytes of a file that the manifest has the hash of."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; build it anew") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{path} is not the {what} of the manifest; build it anew")
    return content


class BoardHost:
    """A board with one network.

    Parameters
    ----------
    link : Link
    program : BoardProgram

    Raises
    ------
    LinkError
        If no engine answers, or another one than the program is for.
    """

    def __init__(self, link: Link, program: BoardProgram) -> None:
        self._link, self._program = link, program
        self._check_engine()

    def _check_engine(self) -> None:
        identity, revision, lanes, options = self._link.read_registers(Register.IDENTITY, 4)
        if identity != IDENTITY:
            raise LinkError(f"no engine answers: its identity is {identity:#010x}")
        if revision != REVISION:
            raise LinkError(
                f"the board's engine has revision {revision} of the registers, and this program "
                f"needs {REVISION}; load a bitstream of this version"
            )
        self._counted = built_counters(options)
        config = self._program.manifest.config
        wanted = (config.out_lanes, config.split_lanes, config.bus_bytes)
        found = (lanes & 0xFF, lanes >> 8 & 0xFF, lanes >> 16 & 0xFF)
        words = self._link.read_registers(Register.INPUT_WORDS, 4)
        buffers = [
            config.input_words,
            config.weight_words,
            config.psum_words,
            config.channel_groups,
        ]
        if found != wanted or options >> 16 != config.address_bits or words != buffers:
            raise LinkError(
                "the board runs another engine than this build's: "
                f"{found[0]}x{found[1]} lanes, {found[2]}-byte ports, buffers {words} instead of "
                f"{wanted[0]}x{wanted[1]}, {wanted[2]}, {buffers}; load its bitstream"
            )

    def load(self) -> int:
        """Write descriptors and constants, and return their bytes.

        Raises
        ------
        LinkError
            If the board does not answer.
        """
        total = 0
        for start, end in self._program.manifest.load:
            self._link.write_memory(start, self._program.image[start:end])
            total += end - start
        return total

    def run(self, inputs: Sequence[Array]) -> BoardResult:
        """Run the network on inputs, after :meth:`load`.

        Raises
        ------
        TypeError, ValueError
            If the inputs do not suit the model.
        EngineFault
            If the engine stops with an error.
        LinkError
            If the board does not answer, or the engine does not finish.
        """
        given = feed_network(self._program.network, inputs)
        started = time.perf_counter()
        outputs, counters = self._run_confirmed(given)
        return BoardResult(
            outputs=outputs,
            counters=counters,
            engine_seconds=counters["cycles"] / self._program.manifest.clock_hz,
            seconds=time.perf_counter() - started,
        )

    def _run_confirmed(self, given: Mapping[int, Array]) -> tuple[list[Array], dict[str, int]]:
        for _ in range(STARTS - 1):
            try:
                return self._run(given)
            except LostAnswer:
                # The engine may have begun or not, and overwritten its inputs.
                self._wait(self._program.manifest.predicted_cycles)
        return self._run(given)

    def _run(self, given: Mapping[int, Array]) -> tuple[list[Array], dict[str, int]]:
        network, manifest = self._program.network, self._program.manifest
        values: dict[int, Array] = {
            index: tensor.data
            for index, tensor in network.tensors.items()
            if tensor.data is not None
        }
        for index, value in given.items():
            self._put(index, value, values)
        counters = dict.fromkeys(self._counted, 0)
        for step in manifest.steps:
            if step.program_address is not None:
                self._start(step.program_address)
                status = self._wait(step.predicted_cycles or 0)
                if status & _ERROR:
                    code, detail = self._link.read_registers(Register.ERROR_CODE, 2)
                    raise EngineFault(fault_message(code, detail))
                for name, count in self._counters().items():
                    counters[name] += count
                continue
            assert step.node is not None
            node = network.nodes[step.node]
            arrays = [self._fetch(index, values) for index in node.inputs]
            for index, value in zip(node.outputs, self._host(node, arrays, values), strict=True):
                self._put(index, value.reshape(network.tensors[index].shape), values)
        return [self._fetch(index, values) for index in network.outputs], counters

    def _put(self, index: int, value: Array, values: dict[int, Array]) -> None:
        values[index] = value
        address = self._program.manifest.addresses.get(index)
        if address is not None:
            self._link.write_memory(address, np.ascontiguousarray(value).tobytes())

    def _fetch(self, index: int, values: Mapping[int, Array]) -> Array:
        address = self._program.manifest.addresses.get(index)
        if address is None:
            return values[index]
        tensor = self._program.network.tensors[index]
        kind = np.dtype(tensor.dtype)
        count = int(np.prod(tensor.shape, dtype=np.int64)) * kind.itemsize
        data = self._link.read_memory(address, count)
        return np.frombuffer(data, kind).reshape(tensor.shape)

    def _host(self, node: Any, arrays: list[Array], values: Mapping[int, Array]) -> list[Array]:
        network = self._program.network
        if isinstance(node, MoveNode):
            return [run_move(node, arrays, network.tensors[node.outputs[0]].shape)]
        if isinstance(node, ElementwiseNode):
            return [look_up(node, arrays)]
        assert isinstance(node, HostNode)
        now = dict(zip(node.inputs, arrays, strict=True))
        return run_host(node, {**values, **now}, network)

    def _start(self, program_address: int) -> None:
        self._link.write_register(Register.PROGRAM_LOW, program_address)
        self._link.write_register(Register.CONTROL, 1, once=True)

    def _wait(self, cycles: int) -> int:
        """Wait for the engine to stop, and return its status."""
        seconds = PATIENCE * cycles / self._program.manifest.clock_hz + 1
        end = self._link.seconds() + seconds
        while True:
            late = self._link.seconds() > end
            (status,) = self._link.read_registers(Register.STATUS)
            if not status & _BUSY:
                return status
            if late:
                self._link.write_register(Register.CONTROL, 2)
                raise LinkError(
                    f"the engine is still busy after {seconds:.1f} s, {status >> 16} descriptors "
                    "on; it was told to stop"
                )

    def _counters(self) -> dict[str, int]:
        first, last = min(self._counted.values()), max(self._counted.values())
        words = self._link.read_registers(first, last + 2 - first)
        return {
            name: words[register - first] | words[register - first + 1] << 32
            for name, register in self._counted.items()
        }
