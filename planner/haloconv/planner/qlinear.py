"""Sums of two quantised tensors as ONNX Runtime rounds them, and tables for the engine."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from haloconv.planner.elementwise import Elementwise

__all__ = ["QLinearSum", "table_operator"]

Array = npt.NDArray[Any]
_CODES = np.arange(-128, 128, dtype=np.int64)


def table_operator(results: Array) -> Elementwise:
    """Return the operator that gives ``results``, one for each code from -128 on."""
    # The scale is one: 2**30 * 2**(1 - 31).
    return Elementwise(np.asarray(results).astype(np.int32), None, 1 << 30, 1, 0)


@dataclass(frozen=True)
class QLinearSum:
    """The arithmetic of QLinearAdd on int8 codes.

    Parameters
    ----------
    scales : (float, float, float)
        float32 values: of both operands and of the result.
    zero_points : (int, int, int)
        Of int8 codes.
    unsigned : bool
        The runtime sees codes and zero points 128 above those here.
    clamp : (int, int)
    """

    scales: tuple[float, float, float]
    zero_points: tuple[int, int, int]
    unsigned: bool = False
    clamp: tuple[int, int] = (-128, 127)

    def codes(self, a: Array, b: Array) -> npt.NDArray[np.int64]:
        """Return the codes of a + b; shapes broadcast.

        With ra, rb the quotients of the scales: Zy - (ra Za + rb Zb), then rb * b added, then
        ra * a, every step a float32 and every product but rb Zb fused with its addition; halves to
        even.
        """
        # float64 stands in for the fused steps: products of a float32 and a code are exact in it.
        shift = 128 if self.unsigned else 0
        out = np.float32(self.scales[2])
        ratio_a = np.float64(np.float32(self.scales[0]) / out)
        ratio_b = np.float64(np.float32(self.scales[1]) / out)
        zero_a, zero_b, zero_y = (zero + shift for zero in self.zero_points)
        both = np.float32(ratio_a * zero_a + np.float64(np.float32(ratio_b * zero_b)))
        fixed = np.float64(np.float32(zero_y) - both)
        inner = (ratio_b * (np.asarray(b, np.int64) + shift) + fixed).astype(np.float32)
        outer = ratio_a * (np.asarray(a, np.int64) + shift) + inner.astype(np.float64)
        real = np.rint(outer.astype(np.float32))
        return np.clip(np.clip(real, -1024, 1024).astype(np.int64) - shift, *self.clamp)

    def every_pair(self) -> npt.NDArray[np.int64]:
        """Return :meth:`codes` of every pair of codes, shape (256, 256)."""
        return self.codes(_CODES[:, None], _CODES[None, :])

    def tables(self) -> Elementwise | None:
        """Return two tables that give :meth:`every_pair`, None where integers round otherwise.

        Integers are nearer to the real sum than floats, so that a few sums next to a half may
        differ; and the engine rounds exact halves away from zero.
        """
        parts = [
            (_CODES - zero) * float(scale) / float(self.scales[2])
            for scale, zero in zip(self.scales[:2], self.zero_points[:2], strict=True)
        ]
        largest = max(1.0, *(float(np.abs(part).max()) for part in parts))
        bits = min(24, 28 - math.ceil(math.log2(largest)))
        if bits < 1:
            return None
        first, second = (np.rint(part * 2.0**bits).astype(np.int64) for part in parts)
        # The engine halves the sum of the tables, ties up, and shifts by bits, ties away from zero;
        # the tables hold the double, so that the first step is exact.
        total = first[:, None] + second[None, :]
        found = np.sign(total) * ((np.abs(total) + (1 << (bits - 1))) >> bits)
        found = np.clip(found + self.zero_points[2], *self.clamp)
        if not np.array_equal(found, self.every_pair()):
            return None
        return Elementwise(
            (2 * first).astype(np.int32),
            (2 * second).astype(np.int32),
            1 << 30,
            -bits,
            self.zero_points[2],
            self.clamp,
        )
