"""Traffic of a matrix product: the same question as a convolution's, for fully connected layers."""

from dataclasses import dataclass

from haloconv.planner.validate import check_int

__all__ = ["LEFT_OUT", "GemmTraffic", "gemm_traffic"]

LEFT_OUT = (
    "reading C (beta = 0)",
    "addresses",
    "eviction",
    "synchronisation",
    "double buffering",
)
"""What the model does not count."""


@dataclass(frozen=True)
class GemmTraffic:
    """Bytes of A (m x k), B (k x n) and C (m x n).

    ``ideal_bytes`` touches every element once. ``modelled_bytes`` is that of square output tiles
    without reuse between them. Neither stands for the other.
    """

    ideal_bytes: int
    modelled_bytes: int


def gemm_traffic(m: int, k: int, n: int, *, element_bytes: int, tile: int) -> GemmTraffic:
    """Return the least and the modelled traffic of C = A B.

    Q_min = (mk + kn + mn) b and, with t x t output tiles, Q_tile = b (mk ceil(n/t) + kn ceil(m/t)
    + mn): each tile reads its rows of A and its columns of B anew, and writes itself once.

    Parameters
    ----------
    m, k, n : int
        Rows of A, columns of A, columns of B.
    element_bytes : int
        b.
    tile : int
        t, rows and columns of an output tile.

    Raises
    ------
    TypeError, ValueError
        If an argument is no positive integer.
    """
    m, k, n = check_int("m", m, 1), check_int("k", k, 1), check_int("n", n, 1)
    b, t = check_int("element_bytes", element_bytes, 1), check_int("tile", tile, 1)
    across, down = -(-n // t), -(-m // t)
    return GemmTraffic(
        ideal_bytes=b * (m * k + k * n + m * n),
        modelled_bytes=b * (m * k * across + k * n * down + m * n),
    )
