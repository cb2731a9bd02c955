"""At least u of the clients, against all subsets."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from glocal.evaluation.at_least import at_least

RNG = np.random.default_rng(2)


def combined(p: np.ndarray, shared: float, repeats: int) -> float:
    """The p-value that none of these clients gains, by SciPy."""
    m, q = len(p), np.sort(p)
    simes = min(m * q[i] / (i + 1) for i in range(m))
    variance = m + m * (m - 1) * shared
    df = (repeats - 1) * (variance / (m * m * shared)) ** 2 if shared else np.inf
    return 2 * min(simes, stats.t.sf(stats.norm.isf(p).sum() / variance**0.5, df))


@pytest.mark.parametrize("shared", [0.0, 0.4])
@pytest.mark.parametrize("draw", range(6))
def test_the_hardest_set_is_that_of_the_largest_p_values(shared: float, draw: int) -> None:
    p = RNG.beta(0.2, 2.0, 7)
    u = 0
    while u < 7:
        sets = combinations(range(7), 7 - u)
        if max(combined(p[list(s)], shared, 5) for s in sets) > 0.1:
            break
        u += 1
    assert at_least(p, shared, 5) == u


def test_many_small_gains_are_found_although_nobody_is_called() -> None:
    assert at_least(np.full(20, 0.15), 0.0, 5) > 5
    assert at_least(np.full(20, 0.15), 1.0, 3) == 0


def test_nothing_is_nothing() -> None:
    assert at_least(np.array([0.5, np.nan, 0.9]), 0.0, 3) == 0
    assert at_least(np.array([1e-15]), 0.0, 3) == 1
