"""Operators that work element by element, as sums of table look-ups.

The engine's elementwise unit computes y = requantise(A[a] + B[b]) with an int32 table entry for
each int8 code. ADD and SUB bring both operands to a common scale, one code at a time; whatever
depends on one int8 tensor alone (requantisation, a product with a constant, a difference from one)
fits a single table.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloconv.planner.config import EngineConfig
from haloconv.planner.conventions import fixed_point
from haloconv.planner.descriptor import ELEMENTWISE, FIELDS, encode, fetch_cycles
from haloconv.planner.latency import (
    chunk_bytes,
    queue_latency,
    requantizer_latency,
    run_latency,
    scale_entry_bytes,
    segments_waiting,
)
from haloconv.planner.requantization import ROUNDINGS
from haloconv.planner.timeline import ReadTimeline, WriteTimeline

__all__ = [
    "BLOCK_ROWS",
    "Elementwise",
    "ElementwiseAddresses",
    "add_operator",
    "describe_elementwise",
    "elementwise_bytes",
    "elementwise_cycles",
    "pack_scale",
    "pack_tables",
    "product_operator",
    "rescale_operator",
]

BLOCK_ROWS = 16
"""Rows of Q elements that the unit reads of one operand before it turns to the other."""
_CODES = np.arange(-128, 128, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Elementwise:
    """One operator: tables by code from -128 on, and what happens to their sum.

    Parameters
    ----------
    first : int32 array, shape (256,)
    second : int32 array, shape (256,), or None
        None: there is one operand.
    multiplier, shift : int
        Fixed-point scale of the sum, rounding mode "double".
    zero_point : int
    clamp : (int, int)
    """

    first: "NDArray[np.int32]"
    second: "NDArray[np.int32] | None"
    multiplier: int
    shift: int
    zero_point: int
    clamp: tuple[int, int] = (-128, 127)


@dataclass(frozen=True)
class ElementwiseAddresses:
    """First byte of each operand, of the tables, of the scale and of the output."""

    first: int
    second: int
    tables: int
    scale: int
    output: int


def _scaled(values: "NDArray[np.int64]", scale: float) -> "NDArray[np.int64]":
    """values * scale in the reference's fixed point: two roundings, the second half away."""
    multipliers, shifts = fixed_point(np.float64(scale))
    q, e = int(multipliers), int(shifts)
    left, right = max(e, 0), max(-e, 0)
    high = ((values << left) * q + (1 << 30)) >> 31
    mask = (1 << right) - 1
    rest = high & mask
    limit = (mask >> 1) + (high < 0)
    return (high >> right) + (rest > limit)


def add_operator(
    scales: tuple[float, float],
    zero_points: tuple[int, int],
    out_scale: float,
    out_zero_point: int,
    clamp: tuple[int, int] = (-128, 127),
    *,
    subtract: bool = False,
    constant: int | None = None,
) -> Elementwise:
    """Return ADD, or SUB with ``subtract``, as the int8 reference kernels round it.

    Parameters
    ----------
    scales, zero_points : pair
        Of the first and of the second operand.
    out_scale : float
    out_zero_point : int
    clamp : (int, int)
    subtract : bool
    constant : int or None
        Code of the second operand where it is the same everywhere: one table is enough.
    """
    twice = 2.0 * max(float(scales[0]), float(scales[1]))
    parts = [
        _scaled((_CODES - zero) << 20, float(scale) / twice)
        for scale, zero in zip(scales, zero_points, strict=True)
    ]
    if subtract:
        parts[1] = -parts[1]
    multiplier, shift = fixed_point(np.float64(twice / (2.0**20 * float(out_scale))))
    first, second = parts[0].astype(np.int32), parts[1].astype(np.int32)
    if constant is not None:
        first = (first + second[constant + 128]).astype(np.int32)
    return Elementwise(
        first,
        None if constant is not None else second,
        int(multiplier),
        int(shift),
        out_zero_point,
        clamp,
    )


def product_operator(
    scales: tuple[float, float],
    zero_points: tuple[int, int],
    out_scale: float,
    out_zero_point: int,
    clamp: tuple[int, int] = (-128, 127),
    *,
    constant: int,
) -> Elementwise:
    """Return MUL by a ``constant`` code of the second operand's scale."""
    multiplier, shift = fixed_point(np.float64(float(scales[0]) * float(scales[1]) / out_scale))
    table = ((_CODES - zero_points[0]) * (constant - zero_points[1])).astype(np.int32)
    return Elementwise(table, None, int(multiplier), int(shift), out_zero_point, clamp)


def rescale_operator(
    scale: float,
    zero_point: int,
    out_scale: float,
    out_zero_point: int,
    clamp: tuple[int, int] = (-128, 127),
) -> Elementwise:
    """Return the change of scale and zero point of one tensor."""
    multiplier, shift = fixed_point(np.float64(float(scale) / float(out_scale)))
    table = (_CODES - zero_point).astype(np.int32)
    return Elementwise(table, None, int(multiplier), int(shift), out_zero_point, clamp)


def pack_tables(operator: Elementwise) -> "NDArray[np.uint8]":
    """Return the tables as the unit reads them, the first operand's before the second's."""
    tables = [operator.first] if operator.second is None else [operator.first, operator.second]
    return np.concatenate([table.astype("<i4") for table in tables]).view(np.uint8)


def pack_scale(operator: Elementwise, config: EngineConfig) -> "NDArray[np.uint8]":
    """Return the one entry of the scale table."""
    entry = np.zeros(scale_entry_bytes(config), np.uint8)
    entry[:4] = np.array([operator.multiplier], "<u4").view(np.uint8)
    entry[4] = operator.shift & 0xFF
    return entry


def describe_elementwise(
    operator: Elementwise, elements: int, addresses: ElementwiseAddresses, *, last: bool
) -> bytes:
    """Return the descriptor of an elementwise layer of ``elements`` bytes.

    Operands and output are contiguous.
    """
    fields: dict[str, Any] = {field.name: 0 for field in FIELDS if field.name != "mark"}
    fields |= {
        "last": int(last),
        "mode": ELEMENTWISE,
        "binary": int(operator.second is not None),
        "rounding": ROUNDINGS.index("double"),
        "out_zero_point": operator.zero_point,
        "clamp_low": operator.clamp[0],
        "clamp_high": operator.clamp[1],
        "elements": elements,
        "input_address": addresses.first,
        "weight_address": addresses.second,
        "bias_address": addresses.tables,
        "scale_address": addresses.scale,
        "output_address": addresses.output,
    }
    return encode(fields)


def elementwise_bytes(operator: Elementwise, elements: int) -> tuple[int, int]:
    """Return tensor bytes read and written."""
    return elements * (1 if operator.second is None else 2), elements


def elementwise_cycles(
    operator: Elementwise, elements: int, config: EngineConfig, *, latency: int = 16
) -> int:
    """Return the cycles of an elementwise layer from start to its last write.

    Events as in :mod:`haloconv.planner.schedule`; long tensors are taken by the pace of two equal
    stretches.
    """
    q, bus = config.results_per_cycle, config.bus_bytes
    binary = operator.second is not None
    reads = ReadTimeline(
        bus, chunk_bytes(config), latency, run_latency(config), segments_waiting(config)
    )
    writes = WriteTimeline(bus)
    start = 3 + latency + fetch_cycles(bus) + 2
    reads.walker_free = start + 1
    writes.free = start + 3
    entries = 512 if binary else 256
    reads.ask(0, 4 * entries)
    for _ in range(entries):
        reads.take(4, start + 1)
    reads.ask(0, scale_entry_bytes(config))
    reads.take(scale_entry_bytes(config), start + 1)
    behind = 3 + requantizer_latency(config) + queue_latency(config)
    block = BLOCK_ROWS * q
    done, marks = 0, [(0, 0)]
    while done < elements:
        size = min(block, elements - done)
        rows = [min(q, size - first) for first in range(0, size, q)]
        for operand in range(2 if binary else 1):
            reads.ask(done, size)
            for index, count in enumerate(rows):
                taken = reads.take(count, start + 1)
                if operand == (1 if binary else 0):
                    writes.row(taken + behind, done + index * q, count)
        done += size
        marks.append((reads.taken_at, writes.popped_at))
        left = (elements - done) // block - 1
        paces = {
            b - a
            for x, y in zip(marks[-5:-1], marks[-4:], strict=False)
            for a, b in zip(x, y, strict=True)
        }
        if left > 0 and len(marks) > 80 and len(paces) == 1:
            cycles = left * paces.pop()
            reads.jump(cycles, left * block * (2 if binary else 1))
            writes.jump(cycles, left * block // bus)
            done += left * block
            marks = [(reads.taken_at, writes.popped_at)]
    return writes.idle_at + 2
