"""The closed forms: against a brute-force simulation, a numeric minimum, and their limits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from glocal.core.errors import GlocalError
from glocal.studies import linear_teacher as forms
from glocal.studies.linear_teacher import Teachers

SETTINGS = [
    Teachers(0.5),
    Teachers(0.02),
    Teachers(0.3, sigma=2.0, features=5, clients=3, examples=9, width=0.4),
    Teachers(0.0, features=1, clients=2, examples=4),
]


def simulated(t: Teachers, alphas: list[float], draws: int) -> np.ndarray:
    """Mean errors by numpy alone, from labels to predictions.

    Inputs are Gaussian with the second moment of the uniform ones: then d/(N−d−1) is exact.
    """
    r = np.random.default_rng(0)
    errors = np.zeros((draws, len(alphas)))
    deviation = t.width / math.sqrt(3)
    for each in errors:
        x = deviation * r.normal(size=(t.clients, t.examples, t.features))
        teachers = r.uniform(size=t.features) + t.rho * r.normal(size=(t.clients, t.features))
        y = np.einsum("mnd,md->mn", x, teachers) + t.sigma * r.normal(size=x.shape[:2])
        together = np.linalg.lstsq(x.reshape(-1, t.features), y.ravel(), rcond=None)[0]
        for client in range(t.clients):
            own = np.linalg.lstsq(x[client], y[client], rcond=None)[0]
            for i, alpha in enumerate(alphas):
                off = alpha * own + (1 - alpha) * together - teachers[client]
                each[i] += (deviation * off) @ (deviation * off) / t.clients
    return errors.mean(0)


def test_the_closed_form_is_what_brute_force_finds() -> None:
    """1,000 federations of 8 clients: a standard error below 1 % of each mean."""
    t = Teachers(0.4, sigma=1.2, features=4, clients=8, examples=40, width=1.3)
    alphas = [0.0, 0.5, 1.0]
    found = simulated(t, alphas, 1000)
    assert found == pytest.approx([forms.error(a, t) for a in alphas], rel=0.03)
    # Neither the printed form nor d/N passes this test.
    assert abs(forms.printed_error(0.0, t) / found[0] - 1) > 0.3
    assert abs(t.sigma**2 * t.features / t.examples / found[2] - 1) > 0.1


@pytest.mark.parametrize("t", SETTINGS, ids=str)
@pytest.mark.parametrize(
    ("error", "best"),
    [
        (forms.error, forms.best_alpha),
        (forms.printed_error, forms.printed_best_alpha),
    ],
)
def test_the_best_alpha_is_where_a_numeric_search_finds_it(
    t: Teachers, error: Callable[[float, Teachers], float], best: Callable[[Teachers], float]
) -> None:
    found = minimize_scalar(lambda a: error(a, t), bounds=(-0.5, 1.5), method="bounded").x
    assert best(t) == pytest.approx(found, abs=1e-4)
    assert 0 <= best(t) < 1


def test_the_papers_four_settings() -> None:
    """For N examples far above d: α* = ρ²/(ρ² + 3σ²/N); d/(N−d−1) takes off up to .003."""
    stars = {0.5: (0.987, 0.917), 0.1: (0.748, 0.308), 0.06: (0.516, 0.138), 0.02: (0.106, 0.017)}
    for rho, (star, printed) in stars.items():
        assert forms.best_alpha(Teachers(rho)) == pytest.approx(star, abs=0.003)
        assert forms.printed_best_alpha(Teachers(rho)) == pytest.approx(printed, abs=5e-4)


def test_at_a_rho_of_006_local_is_ahead_against_the_caption() -> None:
    teachers = Teachers(0.06)
    assert forms.error(1.0, teachers) < forms.error(0.0, teachers)
    assert forms.printed_error(1.0, teachers) > forms.printed_error(0.0, teachers)


def test_with_many_examples_and_a_second_moment_of_one_over_d_it_is_the_printed_form() -> None:
    t = Teachers(0.01, features=4, clients=2, examples=5_000_000, width=math.sqrt(3 / 4))
    for alpha in (0.0, 0.9, 0.999, 1.0):
        assert forms.error(alpha, t) == pytest.approx(forms.printed_error(alpha, t), rel=2e-6)
    assert forms.best_alpha(t) == pytest.approx(forms.printed_best_alpha(t), rel=2e-6)


def test_teachers_that_are_all_alike_want_the_global_model() -> None:
    alike = Teachers(0.0)
    assert forms.best_alpha(alike) == 0
    assert forms.error(0.0, alike) == forms.global_variance(alike) < forms.error(0.01, alike)
    assert forms.error(1.0, alike) == forms.local_variance(alike)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rho": -0.1}, "rho must be 0 or more"),
        ({"rho": math.nan}, "rho must be"),
        ({"sigma": 0.0}, "sigma must be above 0"),
        ({"width": 0.0}, "width must be above 0"),
        ({"clients": 1}, "clients must be an integer of 2 or more"),
        ({"examples": 21}, "examples must be 22 or more"),
        ({"tests": 0}, "tests must be"),
        ({"clients": 10_000}, "50 million or less"),
    ],
)
def test_settings_that_make_no_sense(given: dict[str, float], says: str) -> None:
    with pytest.raises(GlocalError, match=says):
        Teachers(**{"rho": 0.1, **given})  # type: ignore[arg-type]
