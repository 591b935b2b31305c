"""Lower bounds on the bytes that any plan of a layer moves."""

from dataclasses import dataclass
from math import isqrt, sqrt

from haloconv.planner.layer import ConvLayer
from haloconv.planner.traffic import unique_bytes
from haloconv.planner.validate import check_int

__all__ = ["LowerBounds", "lower_bounds"]


@dataclass(frozen=True)
class LowerBounds:
    """Two bounds that hold at once; a plan's moved bytes reach neither in general.

    ``unique_bytes`` counts every touched tensor byte once. ``storage_bytes_bound`` follows from
    the size of the storage alone and is 0 where it says nothing.
    """

    unique_bytes: int
    storage_bytes_bound: int


def lower_bounds(layer: ConvLayer, storage_bytes: int, raw: bool = False) -> LowerBounds:
    """Return lower bounds on the bytes read and written.

    The second is the red-blue pebble bound for direct convolution, with int8 operands and int32
    sums in B bytes of storage: reads + writes >= 4*G/sqrt(R*B) - 2*B - 3*N for G
    multiply-accumulates, N outputs and R = ceil(Rh/Sh)*ceil(Rw/Sw) uses of an input by one output
    channel (docs/formulas.md, "Lower bounds").

    Parameters
    ----------
    layer : ConvLayer
    storage_bytes : int
        B, at least 1: all buffers together.
    raw : bool
        int32 sums are written instead of int8 results.

    Raises
    ------
    ValueError
        If the storage is not positive.
    """
    storage = check_int("storage_bytes", storage_bytes, 1)
    (rows, columns), (down, across) = layer.kernel, layer.stride
    reuse = -(-rows // down) * -(-columns // across)
    outputs = layer.out_height * layer.out_width * layer.out_channels
    product = reuse * storage
    root = isqrt(product)
    # A perfect square needs no float; elsewhere the float is below the true root by rounding only.
    divisor = float(root) if root * root == product else sqrt(product)
    bound = int(4 * layer.macs / divisor) - 2 * storage - 3 * outputs
    return LowerBounds(unique_bytes(layer, raw).total, max(0, bound))
