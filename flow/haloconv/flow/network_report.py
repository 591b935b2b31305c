"""What the network commands print: outputs, a row for each node, totals."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from haloconv.flow.report import count, new_table, percent
from haloconv.planner.network import Network, NetworkTensor

if TYPE_CHECKING:
    from rich.table import Table

    from haloconv.sim.network import NetworkReport, NetworkResult

__all__ = [
    "first_difference",
    "network_table",
    "node_title",
    "output_lines",
    "output_records",
    "total_lines",
]

SHOWN = 5
"""Largest codes of an output that are shown."""
TITLE = 32
"""Characters of a node's name in a table."""

Array = npt.NDArray[Any]


def node_title(name: str) -> str:
    """Return a name for a table: converters name a tensor after everything they fused into it."""
    first = name.split(";")[0]
    return first if len(first) <= TITLE else "…" + first[1 - TITLE :]


def _real(tensor: NetworkTensor, code: Any) -> float:
    if tensor.scale:
        return float(tensor.scale) * (int(code) - tensor.zero_point)
    return float(code)


def _largest(values: Array) -> list[tuple[int, ...]]:
    """Return the places of the largest codes, in descending order; of equals the first leads."""
    flat = values.reshape(-1)
    order = np.argsort(-flat.astype(np.float64), kind="stable")[:SHOWN]
    return [tuple(int(part) for part in np.unravel_index(place, values.shape)) for place in order]


def output_records(network: Network, outputs: list[Array]) -> list[dict[str, Any]]:
    """Return the outputs for JSON: name, type, shape, scale, and the largest codes."""
    records: list[dict[str, Any]] = []
    for index, values in zip(network.outputs, outputs, strict=True):
        tensor = network.tensors[index]
        records.append(
            {
                "dtype": str(values.dtype),
                "largest": [
                    {
                        "code": values[place].item(),
                        "index": list(place),
                        "value": _real(tensor, values[place]),
                    }
                    for place in _largest(values)
                ],
                "name": tensor.name,
                "scale": tensor.scale,
                "shape": list(values.shape),
                "tensor": index,
                "zero_point": tensor.zero_point,
            }
        )
    return records


def output_lines(network: Network, outputs: list[Array]) -> str:
    """Return a line for each output: its largest codes and what they stand for."""
    lines: list[str] = []
    for index, values in zip(network.outputs, outputs, strict=True):
        tensor = network.tensors[index]
        # Axes of extent 1 tell nothing apart.
        wide = [axis for axis, extent in enumerate(values.shape) if extent > 1]
        parts: list[str] = []
        for place in _largest(values):
            where = ",".join(str(place[axis]) for axis in wide)
            code = f"{values[place].item():g}"
            value = f" ({_real(tensor, values[place]):.4g})" if tensor.scale else ""
            parts.append(f"{where}: {code}{value}" if where else f"{code}{value}")
        rest = values.size - len(parts)
        shape = "x".join(map(str, values.shape))
        more = f"; {count(rest)} more, none larger" if rest else ""
        lines.append(
            f"output {node_title(tensor.name)}, {shape} {values.dtype}: {', '.join(parts)}{more}"
        )
    return "\n".join(lines)


def network_table(report: "NetworkReport") -> "Table":
    """Return a row for each node that ran."""
    table = new_table(
        "operator",
        "name",
        "where",
        "cycles predicted",
        "measured",
        "off by",
        "bytes",
        "MACs",
        "use",
        left=3,
    )
    for layer in report.layers:
        title = f"{layer.index} {layer.operator}"
        if layer.where == "host":
            table.add_row(title, node_title(layer.name), "host", "-", "-", "-", "-", "-", "-")
            continue
        off = layer.cycles - layer.predicted_cycles
        table.add_row(
            title,
            node_title(layer.name),
            "engine",
            count(layer.predicted_cycles),
            count(layer.cycles),
            f"{100 * off / layer.predicted_cycles:+.2f} %",
            count(layer.bytes),
            count(layer.macs),
            percent(layer.utilisation) if layer.macs else "-",
        )
    table.add_section()
    off = report.cycles - report.predicted_cycles
    table.add_row(
        "total",
        "",
        "",
        count(report.predicted_cycles),
        count(report.cycles),
        f"{100 * off / report.predicted_cycles:+.2f} %" if report.predicted_cycles else "-",
        count(report.moved_bytes),
        count(report.macs),
        percent(report.utilisation),
    )
    return table


def total_lines(report: "NetworkReport") -> str:
    """Return where the bytes and the host's share stand, with the host's operators by name."""
    same = report.moved_bytes == report.predicted_moved_bytes
    text = f"bytes: {count(report.predicted_moved_bytes)} predicted, " + (
        "as many counted" if same else f"but {count(report.moved_bytes)} counted"
    )
    host = [layer for layer in report.layers if layer.where == "host"]
    if not host:
        return text + "\nhost: nothing, the engine ran the whole network"
    share = (
        f"host: {len(host)} of {len(report.layers)} operators, "
        f"{percent(report.host_share)} of all elements"
    )
    named = "\n".join(
        f"  {layer.index} {layer.operator} {node_title(layer.name)}: {layer.reason}"
        for layer in host
    )
    return f"{text}\n{share}\n{named}"


def first_difference(result: "NetworkResult", expected: dict[int, Array]) -> tuple[int, str] | None:
    """Compare every tensor of a run, and its outputs, with what they must hold.

    Returns
    -------
    None where all are equal, else the number of tensors that differ and a sentence on the first of
    them in the order of the nodes.
    """
    network = result.program.network
    made_by = {index: node for node in network.nodes for index in node.outputs}
    order = [index for node in network.nodes for index in node.outputs]
    found = dict(result.tensors) | dict(zip(network.outputs, result.outputs, strict=True))
    wrong = [
        index
        for index in order
        if index in found and not np.array_equal(found[index], expected[index])
    ]
    if not wrong:
        return None
    index = wrong[0]
    node, is_, should = made_by[index], found[index], expected[index]
    places = np.argwhere(is_ != should)
    place = tuple(int(part) for part in places[0])
    return len(wrong), (
        f"tensor {index} {node_title(network.tensors[index].name)} of {node.operator} (operator "
        f"{node.index}) differs in {count(len(places))} of {count(is_.size)} elements, first at "
        f"{list(place)}: {is_[place].item()} instead of {should[place].item()}"
    )
