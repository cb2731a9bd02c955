"""The moderated t against its formula, its limits and simulated truths."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from glocal.evaluation.moderated_t import inverse_trigamma, moderated

RNG = np.random.default_rng(0)


def test_the_inverse_of_trigamma() -> None:
    for x in (1e-5, 0.01, 0.3, 1.0, 7.0, 300.0, 1e7):
        assert inverse_trigamma(float(special.polygamma(1, x))) == pytest.approx(x, rel=1e-6)


def test_by_the_formula() -> None:
    """The equations, written out again."""
    repeats, clients = 4, 20_000
    noise = np.exp(RNG.normal(-6, 0.4, clients))
    spread = noise * 9 / RNG.chisquare(6, clients) * 6
    benefit = RNG.normal(0, np.sqrt(spread), (repeats, clients))
    found = moderated(benefit, np.broadcast_to(noise, benefit.shape), np.full(clients, 1 / repeats))
    nu, in_each = repeats - 1, benefit.mean(1, keepdims=True)
    s2 = (benefit - in_each).var(0, ddof=1) * clients / (clients - 1)
    shared = max(in_each.var(ddof=1) - s2.mean() / clients, 0)
    z = np.log(s2 / noise) - special.digamma(nu / 2) + np.log(nu / 2)
    e = z.var(ddof=1) - special.polygamma(1, nu / 2)
    assert e > 0
    d0 = 2 * inverse_trigamma(float(e))
    c = np.exp(z.mean() + special.digamma(d0 / 2) - np.log(d0 / 2))
    once = np.maximum((d0 * c * noise + nu * s2) / (d0 + nu), noise) + shared
    np.testing.assert_allclose(found.once, once)
    np.testing.assert_allclose(found.variance, once / repeats)
    assert found.shared == pytest.approx(shared)
    share = shared / once
    df = 1 / (share**2 / nu + (1 - share) ** 2 / (d0 + nu))
    np.testing.assert_allclose(found.df, df)
    assert d0 == pytest.approx(6, rel=0.2)  # as drawn
    assert c == pytest.approx(9, rel=0.2)


def test_without_luck_it_is_the_noise_of_the_tests() -> None:
    repeats, clients = 5, 300
    noise = np.full((repeats, clients), 0.01)
    benefit = RNG.normal(0, 0.1, (repeats, clients))
    found = moderated(benefit, noise, np.full(clients, 1 / repeats))
    assert np.median(found.variance) == pytest.approx(0.01 / repeats, rel=0.1)
    low, high = found.interval(0.9)
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(0.9, abs=0.05)


def test_one_client_is_students_t() -> None:
    benefit = np.array([[0.10], [0.16], [0.13]])
    found = moderated(benefit, np.full((3, 1), 1e-6), np.array([1 / 3]))
    assert found.df[0] == pytest.approx(2, rel=1e-2)
    low, _ = found.interval(0.9)
    half = stats.t.ppf(0.95, 2) * benefit.std(ddof=1) / np.sqrt(3)
    assert found.mean[0] - low[0] == pytest.approx(half, rel=1e-2)


def test_luck_that_all_share_has_the_repeats_degrees_of_freedom() -> None:
    repeats, clients = 3, 200
    luck = np.array([[-0.05], [0.0], [0.06]])
    benefit = luck + RNG.normal(0, 0.002, (repeats, clients))
    noise = np.full((repeats, clients), 4e-6)
    found = moderated(benefit, noise, np.full(clients, 1 / repeats))
    assert found.shared == pytest.approx(luck.var(ddof=1), rel=0.1)
    assert found.df.max() < 2.1


def test_tests_that_come_back_do_not_average_out() -> None:
    """One split for all repeats: what the spread over repeats cannot show is added."""
    repeats, clients, noise, training = 4, 3000, 0.01, 0.0025
    difficulty = RNG.normal(0, np.sqrt(noise), clients)
    benefit = difficulty + RNG.normal(0, np.sqrt(training), (repeats, clients))
    found = moderated(benefit, np.full((repeats, clients), noise), np.ones(clients))
    assert found.variance.mean() == pytest.approx(noise + training / repeats, rel=0.05)
    assert benefit.mean(0).var() == pytest.approx(noise + training / repeats, rel=0.1)


def test_p_values_and_a_client_without_tests() -> None:
    benefit = np.array([[0.1, np.nan], [0.2, np.nan], [0.3, np.nan]])
    found = moderated(benefit, np.full((3, 2), 0.001), np.full(2, 1 / 3))
    assert found.p_not_above()[0] < 0.05
    assert np.isnan(found.mean[1])
    assert np.isnan(found.p_not_above()[1])
