"""How int32 sums become int8 outputs: scale, rounding mode, zero point and clamp."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from haloconv.planner.validate import check_int, check_ints

__all__ = ["ROUNDINGS", "Requantization"]

ROUNDINGS = ("double", "double_up", "single", "away", "fp32")
"""Rounding modes, in the order of their codes in descriptors."""


@dataclass(frozen=True, eq=False)
class Requantization:
    """Per-channel scale and what follows it (docs/arithmetic.md).

    Parameters
    ----------
    multiplier, shift : array of int, shape (M,) or scalar
        Fixed-point scale multiplier * 2**(shift - 31); multiplier 0..2**31 - 1, and 0 or at least
        2**30 where the shift is not negative; shift -31..31. Not used by the rounding "fp32".
    scale : array of float32, shape (M,) or scalar
        Positive finite scale of the rounding "fp32"; None for the others.
    zero_point : int
        Output code of the real value zero, -128..127.
    clamp : (int, int)
        Lowest and highest output code.
    rounding : str
        One of :data:`ROUNDINGS`.

    Raises
    ------
    TypeError, ValueError
        With the value at fault.
    """

    multiplier: Any = None
    shift: Any = None
    zero_point: int = 0
    clamp: tuple[int, int] = (-128, 127)
    rounding: str = "double"
    scale: Any = None

    def __post_init__(self) -> None:
        def put(field: str, value: object) -> None:
            object.__setattr__(self, field, value)

        if self.rounding not in ROUNDINGS:
            raise ValueError(
                f"rounding must be one of {', '.join(ROUNDINGS)}, not {self.rounding!r}"
            )
        put("zero_point", check_int("zero_point", self.zero_point, -128, 127))
        low, high = check_ints("clamp", self.clamp, 2, -128, 127)
        if low > high:
            raise ValueError(f"clamp must be (low, high) with low <= high, not {(low, high)!r}")
        put("clamp", (low, high))
        if self.rounding == "fp32":
            if self.scale is None:
                raise ValueError("rounding 'fp32' needs scale, a float32 for each output channel")
            scale = np.asarray(self.scale)
            if scale.dtype != np.float32:
                raise TypeError(f"scale must be float32, not {scale.dtype}")
            if not np.all(np.isfinite(scale) & (scale > 0)):
                raise ValueError("scale must be positive and finite in every channel")
            put("scale", np.atleast_1d(scale))
            return
        if self.multiplier is None or self.shift is None:
            raise ValueError(
                f"rounding {self.rounding!r} needs multiplier and shift for each output channel"
            )
        multiplier, shift = np.asarray(self.multiplier), np.asarray(self.shift)
        for name, array in (("multiplier", multiplier), ("shift", shift)):
            if not np.issubdtype(array.dtype, np.integer):
                raise TypeError(f"{name} must hold integers, not {array.dtype}")
        multiplier = np.atleast_1d(multiplier).astype(np.int64)
        shift = np.atleast_1d(shift).astype(np.int64)
        wrong = (multiplier < 0) | (multiplier >= 2**31)
        if np.any(wrong):
            raise ValueError(
                f"multiplier must be within 0..2**31 - 1, not {int(multiplier[wrong][0])}; "
                "halve or double it and adapt shift"
            )
        if multiplier.shape != shift.shape and 1 not in (multiplier.size, shift.size):
            raise ValueError(
                f"multiplier and shift must have as many entries, not {multiplier.size} and "
                f"{shift.size}"
            )
        # The engine's left shift relies on the leading one being in place.
        loose = (multiplier > 0) & (multiplier < 2**30) & (shift >= 0)
        if np.any(loose):
            low, at = np.broadcast_arrays(multiplier, shift)
            raise ValueError(
                "multiplier must be at least 2**30 where shift is not negative, not "
                f"{int(low[loose][0])} with shift {int(at[loose][0])}; double it and "
                "lessen shift"
            )
        if np.any((shift < -31) | (shift > 31)):
            bad = shift[(shift < -31) | (shift > 31)]
            raise ValueError(f"shift must be within -31..31, not {int(bad[0])}")
        put("multiplier", multiplier)
        put("shift", shift)

    def channels(self, name: str, count: int) -> "np.ndarray[Any, Any]":
        """Return the parameter ``name`` with one entry for each of ``count`` output channels.

        Raises
        ------
        ValueError
            If the array holds neither one entry nor ``count``.
        """
        values = np.asarray(getattr(self, name))
        if values.shape == (1,):
            return np.repeat(values, count)
        if values.shape != (count,):
            raise ValueError(
                f"{name} must hold 1 or {count} entries, one for each output channel, "
                f"not shape {values.shape}"
            )
        return values
