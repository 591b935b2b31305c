"""Non-negative least squares: the conditions that its only solution meets."""

import numpy as np
import pytest

from haloconv.flow.explore.fit import non_negative_fit


@pytest.mark.parametrize("seed", range(20))
def test_solutions_meet_the_optimality_conditions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    terms = rng.uniform(0, 1, (30, 12)) * rng.uniform(0.1, 100, 12)
    wanted = np.maximum(rng.normal(0, 1, 12), 0)
    values = terms @ wanted + rng.normal(0, 1, 30)
    found = non_negative_fit(terms, values)
    slope = terms.T @ (terms @ found - values)
    scale = np.abs(terms.T @ values).max()
    assert (found >= 0).all()
    # Nothing is gained along a coefficient that is free, nor by raising one that is zero.
    assert np.abs(slope[found > 0]).max(initial=0) < 1e-6 * scale
    assert slope[found == 0].min(initial=0) > -1e-6 * scale


def test_exact_values_come_back() -> None:
    terms = np.array([[1, 2, 0], [1, 3, 0], [1, 5, 0], [1, 4, 0]], float)
    found = non_negative_fit(terms, terms @ [7, 0.5, 0])
    assert np.allclose(found, [7, 0.5, 0])
    # A term that would have to be negative is left out.
    found = non_negative_fit(terms[:, :2], terms[:, :2] @ [7, -0.5])
    assert found[1] == 0 and found[0] == pytest.approx(7 - 0.5 * 3.5)


def test_a_ridge_shares_between_terms_that_are_alike() -> None:
    terms = np.array([[1, 1], [2, 2], [3, 3]], float)
    found = non_negative_fit(terms, np.array([2.0, 4.0, 6.0]), ridge=1e-6)
    assert np.allclose(found, [1, 1], atol=1e-3)
