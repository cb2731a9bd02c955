"""Student's t and the others against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from glocal.evaluation import distributions as ours

DF = np.array([1.0, 2.0, 2.5, 4.0, 7.3, 12.0, 50.0, 1000.0])


@pytest.mark.parametrize("t", [-30.0, -3.0, -0.1, 0.0, 0.5, 2.0, 8.0, 100.0])
def test_tails_of_t(t: float) -> None:
    np.testing.assert_allclose(ours.t_upper(t, DF), stats.t.sf(t, DF), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.55, 0.9, 0.95, 0.995])
def test_quantiles_of_t(p: float) -> None:
    np.testing.assert_allclose(ours.t_quantile(p, DF), stats.t.ppf(p, DF), rtol=1e-9, atol=1e-12)


def test_t_of_many_degrees_is_normal_and_nan_stays() -> None:
    assert ours.t_quantile(0.95, np.inf) == pytest.approx(stats.norm.ppf(0.95))
    assert ours.t_upper(1.3, 1e9) == pytest.approx(stats.norm.sf(1.3))
    assert np.isnan(ours.t_upper(np.nan, 3.0))
    assert np.isnan(ours.t_quantile(0.9, np.nan))


def test_psi_and_the_normal_distribution() -> None:
    x = np.array([0.3, 1.0, 2.5, 40.0])
    np.testing.assert_allclose(ours.digamma(x), special.digamma(x), rtol=1e-8)
    for n in (1, 2):
        np.testing.assert_allclose(ours.polygamma(n, x), special.polygamma(n, x), rtol=1e-8)
    np.testing.assert_allclose(ours.normal_cdf(x), stats.norm.cdf(x), rtol=1e-12)
    np.testing.assert_allclose(ours.normal_quantile([0.05, 0.6]), stats.norm.ppf([0.05, 0.6]))
