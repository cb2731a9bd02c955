"""The theory of interpolation against a simulation, in the paper's own setting.

Tolerances, for means over 4 draws of everything: the error is within 5 % of the closed form at
every α, and the best α within 0.02 (0.05 where σ drowns ρ). One draw has 100 devices of 20
dimensions, so its device term has a standard error of √(2 / 2000) = 3 %, the mean of four 1.6 %.
"""

from __future__ import annotations

import pytest
import torch

from glocal.studies.linear_teacher import Teachers, best_alpha, error, printed_error, simulated

GRID = torch.linspace(0, 1, 11, dtype=torch.float64)
DRAWS = 4


@pytest.mark.parametrize(
    ("rho", "star", "within"),
    [(0.5, 0.987, 0.02), (0.1, 0.748, 0.02), (0.06, 0.516, 0.02), (0.02, 0.106, 0.05)],
)
def test_the_simulation_follows_the_corrected_form(rho: float, star: float, within: float) -> None:
    teachers = Teachers(rho)
    assert best_alpha(teachers) == pytest.approx(star, abs=5e-4)
    draws = [simulated(teachers, GRID, seed) for seed in range(DRAWS)]
    curve = torch.stack([c for c, _ in draws]).mean(0)
    expected = torch.tensor([error(a, teachers) for a in GRID.tolist()], dtype=torch.float64)
    torch.testing.assert_close(curve, expected, rtol=0.05, atol=0.0)
    assert sum(a for _, a in draws) / DRAWS == pytest.approx(star, abs=within)


def test_the_printed_form_is_off_by_the_trace() -> None:
    """At α = 0 the simulation is more than five times what is printed."""
    teachers = Teachers(0.1)
    curve, _ = simulated(teachers, GRID, 0)
    assert float(curve[0]) > 5 * printed_error(0.0, teachers)
    assert printed_error(1.0, teachers) == error(1.0, teachers)  # no device term there


def test_at_a_rho_of_006_local_is_ahead_against_the_caption() -> None:
    teachers = Teachers(0.06)
    assert error(1.0, teachers) < error(0.0, teachers)
    assert printed_error(1.0, teachers) > printed_error(0.0, teachers)


def test_the_least_error_is_at_the_best_alpha() -> None:
    teachers = Teachers(0.1)
    star = best_alpha(teachers)
    assert error(star, teachers) < min(error(star - 0.01, teachers), error(star + 0.01, teachers))
