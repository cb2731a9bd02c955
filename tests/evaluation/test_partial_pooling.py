"""Partial pooling in its limits, and its critical value against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

from glocal.evaluation.partial_pooling import (
    between,
    critical_values,
    exact_critical_values,
    partial_pooling,
)

RNG = np.random.default_rng(1)
ALIKE = np.full(30, 64.0)


@pytest.mark.parametrize("t", [0.01, 0.3, 1.0, 4.0, 30.0])
def test_no_two_points_of_that_mean_are_missed_more_often(t: float) -> None:
    """The worst of all distributions of the squared bias on two points, by brute force."""
    chi = float(exact_critical_values(np.array([t]), 0.9)[0])

    def misses(u: np.ndarray, chi: float) -> np.ndarray:
        root = np.sqrt(u)
        return np.asarray(stats.norm.cdf(-chi - root) + stats.norm.cdf(-chi + root))

    below, above = np.linspace(0, t, 60), t + np.geomspace(1e-3, 40 * (t + 10), 400)
    u1, u2 = np.meshgrid(below, above)
    share = (u2 - t) / (u2 - u1)
    worst = (share * misses(u1, chi) + (1 - share) * misses(u2, chi)).max()
    assert worst == pytest.approx(0.1, abs=2e-4)
    assert float(critical_values(np.array([t]), 0.9)[0]) == pytest.approx(chi, rel=5e-3)


def test_without_bias_it_is_the_normal_quantile_and_far_out_chebyshev() -> None:
    assert critical_values(np.zeros(1), 0.9)[0] == pytest.approx(stats.norm.ppf(0.95), abs=1e-3)
    far = critical_values(np.array([1e6]), 0.9)[0]
    assert far == pytest.approx(np.sqrt(1e6 / 0.1), rel=1e-3)


def test_equal_clients_are_drawn_to_their_mean() -> None:
    benefit = RNG.normal(0.05, 0.1, 30)
    found = partial_pooling(benefit, np.full(30, 0.01), ALIKE, 0.9)
    assert np.ptp(found.estimate) < 0.5 * np.ptp(benefit)
    assert found.estimate.mean() == pytest.approx(benefit.mean())


def test_clients_that_know_themselves_stay_where_they_are() -> None:
    benefit = RNG.normal(0.0, 0.2, 30)
    found = partial_pooling(benefit, np.full(30, 1e-6), ALIKE, 0.9)
    np.testing.assert_allclose(found.estimate, benefit, atol=1e-4)
    np.testing.assert_allclose(found.half, stats.t.ppf(0.95, 29) * 1e-3, rtol=0.02)


def test_sizes_are_regressed_on() -> None:
    n = 2.0 ** RNG.integers(3, 10, 40)
    benefit = 0.2 - 0.02 * np.log2(n) + RNG.normal(0, 0.03, 40)
    found = partial_pooling(benefit, np.full(40, 9e-4), n, 0.9)
    np.testing.assert_allclose(found.estimate, 0.2 - 0.02 * np.log2(n), atol=0.03)


def test_the_variance_between_clients_solves_its_equation() -> None:
    benefit, variance = RNG.normal(0, 0.1, 25), RNG.uniform(0.001, 0.01, 25)
    x = np.ones((25, 1))

    def excess(tau2: float) -> float:
        w = 1 / (variance + tau2)
        return float(w @ (benefit - w @ benefit / w.sum()) ** 2 - 24)

    assert between(benefit, variance, x) == pytest.approx(optimize.brentq(excess, 0, 1), rel=1e-6)
    assert between(np.full(25, 0.3), variance, x) == 0


def test_luck_in_common_is_added_and_does_not_shrink() -> None:
    benefit = RNG.normal(0.0, 0.02, 30)
    alone = partial_pooling(benefit, np.full(30, 1e-4), ALIKE, 0.9)
    common = partial_pooling(benefit, np.full(30, 1e-4), ALIKE, 0.9, 4e-4, 2)
    added = np.sqrt(common.half**2 - alone.half**2)
    np.testing.assert_allclose(added, 0.02 * stats.t.ppf(0.95, 2), rtol=1e-6)
    np.testing.assert_allclose(common.estimate, alone.estimate)
