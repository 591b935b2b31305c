"""A compiled network as a folder of files: Verilog, memory image, program, header, testbench."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.flow.c_header import HEADER, c_header
from haloconv.flow.export import TOP, engine_description_text, engine_verilog
from haloconv.flow.testbench import bench_files, hex_text
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, FIELDS, decode
from haloconv.planner.network_program import EngineRun, NetworkProgram, PlannedNode
from haloconv.planner.version import __version__

__all__ = ["network_files", "program_record", "program_text", "write_files"]


def network_files(
    program: NetworkProgram, inputs: Sequence[npt.NDArray[Any]], *, latency: int = 16
) -> dict[str, str | bytes]:
    """Return every file of a compiled network by name.

    The same program, inputs and latency give the same bytes, without date or path.

    Parameters
    ----------
    program : NetworkProgram
    inputs : sequence of array
        What the testbench feeds the network with.
    latency : int
        Of the testbench's memory.

    Raises
    ------
    TypeError, ValueError
        If the engine has nothing to run, or the inputs do not suit the model.
    """
    if not any(isinstance(step, EngineRun) for step in program.steps):
        raise ValueError(
            f"{program.network.name} has no operator that the engine runs; there is nothing to "
            "compile"
        )
    return {
        f"{TOP}.v": engine_verilog(program.config),
        f"{TOP}.json": engine_description_text(program.config),
        "image.bin": program.image.tobytes(),
        "image.hex": hex_text([(0, program.image)]),
        "program.json": program_text(program),
        HEADER: c_header(program),
        **bench_files(program, inputs, latency=latency),
    }


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files into a folder, which is made where it does not exist.

    Raises
    ------
    OSError
        If a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (folder / name).write_bytes(data)


def program_text(program: NetworkProgram) -> str:
    """Return :func:`program_record` as JSON text with sorted keys."""
    return json.dumps(program_record(program), sort_keys=True, indent=2) + "\n"


def program_record(program: NetworkProgram) -> dict[str, Any]:
    """Return tensors, steps and decoded descriptors for JSON; docs/cli.md describes it."""
    network, config = program.network, program.config
    steps: list[dict[str, Any]] = []
    for step in program.steps:
        if isinstance(step, EngineRun):
            steps.append(_run(program, step))
            continue
        node = step.node
        steps.append(
            {
                "index": node.index,
                "inputs": list(node.inputs),
                "name": node.name,
                "operator": node.operator,
                "options": _plain(getattr(node, "options", {})),
                "outputs": list(node.outputs),
                "reason": step.reason,
                "where": "host",
            }
        )
    return {
        "activation_bytes": program.activation_bytes,
        "config": config.to_dict(),
        "digest": config.digest,
        "generator": f"haloconv {__version__}",
        "image_bytes": int(program.image.size),
        "inputs": list(network.inputs),
        "name": network.name,
        "outputs": list(network.outputs),
        "predicted_cycles": program.cycles,
        "steps": steps,
        "target": network.target,
        "tensors": [
            {
                "address": program.addresses.get(index),
                "constant": tensor.data is not None,
                "dtype": tensor.dtype,
                "index": index,
                "name": tensor.name,
                "scale": tensor.scale,
                "shape": list(tensor.shape),
                "zero_point": tensor.zero_point,
            }
            for index, tensor in sorted(network.tensors.items())
        ],
    }


def _run(program: NetworkProgram, run: EngineRun) -> dict[str, Any]:
    address = run.program_address
    nodes: list[dict[str, Any]] = []
    for planned in run.nodes:
        nodes.append(_node(program, planned, address))
        address += planned.descriptors * DESCRIPTOR_BYTES
    return {
        "nodes": nodes,
        "predicted_cycles": sum(planned.cycles for planned in run.nodes),
        "program_address": run.program_address,
        "where": "engine",
    }


def _node(program: NetworkProgram, planned: PlannedNode, address: int) -> dict[str, Any]:
    node, plan = planned.node, planned.plan
    descriptors: list[dict[str, Any]] = []
    for start in range(address, address + planned.descriptors * DESCRIPTOR_BYTES, DESCRIPTOR_BYTES):
        fields = decode(program.image[start : start + DESCRIPTOR_BYTES].tobytes())
        descriptors.append(
            {"address": start, "fields": {field.name: fields[field.name] for field in FIELDS}}
        )
    record: dict[str, Any] = {
        "descriptors": descriptors,
        "index": node.index,
        "inputs": list(node.inputs),
        "macs": planned.macs,
        "moved_bytes": planned.moved_bytes,
        "name": node.name,
        "operator": node.operator,
        "outputs": list(node.outputs),
        "predicted_cycles": planned.cycles,
    }
    if plan is not None:
        record["plan"] = {
            "mode": plan.mode,
            "order": plan.order,
            "tile": {
                "height": plan.tile.height,
                "in_channels": plan.tile.in_channels,
                "out_channels": plan.tile.out_channels,
                "width": plan.tile.width,
            },
        }
    return record


def _plain(value: Any) -> Any:
    """Return what the host needs to know of an operator as JSON types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    return value
