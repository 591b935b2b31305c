"""Least squares with coefficients that are not negative."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["non_negative_fit"]

Floats = NDArray[np.float64]


def non_negative_fit(terms: Floats, values: Floats, *, ridge: float = 0.0) -> Floats:
    """Return x >= 0 that makes ``|terms @ x - values|**2 + ridge * |x * norms|**2`` least.

    Hardware only adds, so a negative coefficient would be noise that another one balances; without
    any, predictions beyond the training points stay sensible.

    Parameters
    ----------
    terms : array, shape (points, terms)
    values : array, shape (points,)
    ridge : float
        Share of each term's own norm that is added; keeps terms apart that grow alike.

    Returns
    -------
    array, shape (terms,)

    Notes
    -----
    Active sets after Lawson and Hanson, Solving Least Squares Problems, chapter 23, on the normal
    equations of columns scaled to length one.
    """
    norms = np.sqrt((terms**2).sum(axis=0))
    used = norms > 0
    scaled = terms[:, used] / norms[used]
    gram = scaled.T @ scaled + ridge * np.eye(scaled.shape[1])
    target = scaled.T @ values
    x = np.zeros(scaled.shape[1])
    free = np.zeros(x.size, bool)
    tolerance = 1e-10 * max(1.0, float(np.abs(target).max(initial=0.0)))
    for _ in range(10 * x.size + 10):
        slope = target - gram @ x
        slope[free] = -np.inf
        if not slope.size or slope.max() <= tolerance:
            break
        free[int(slope.argmax())] = True
        while True:
            best = np.zeros_like(x)
            best[free] = np.linalg.lstsq(gram[np.ix_(free, free)], target[free], rcond=None)[0]
            low = free & (best <= 0)
            if not low.any():
                break
            # As far towards the best as the first coefficient that would turn negative allows.
            step = (x[low] / np.maximum(x[low] - best[low], 1e-300)).min()
            x = x + step * (best - x)
            free &= x > 1e-12
            x[~free] = 0.0
        x = best
    result = np.zeros(norms.size)
    result[used] = x / norms[used]
    return result
