"""ε from noise, noise from ε, rounds from ε: published values, exact formulas, and limits."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from glocal.core.errors import GlocalError
from glocal.slots import accounting
from glocal.slots.accounting import Scheme, bound, epsilon, noise_for, rounds_for, vacuous

PHONES = Scheme("poisson", 80_000, 100)
FEW = Scheme("poisson", 100, 10)


@pytest.mark.parametrize(
    ("noise", "rdp", "pld"),
    [(0.5, 7.37, 6.14), (0.8, 1.72, 0.917), (1.0, 1.009, 0.497), (1.2, 0.658, 0.363)],
)
def test_reference_values(noise: float, rdp: float, pld: float) -> None:
    assert epsilon(PHONES, noise, 5_000, 1e-6, "rdp") == pytest.approx(rdp, rel=0.01)
    found, accountant = bound(PHONES, noise, 5_000, 1e-6)
    assert found == pytest.approx(pld, rel=0.01)
    assert accountant == "PLD"


def delta_of(mu: float, eps: float) -> float:
    """Of a Gaussian whose means are ``mu`` standard deviations apart (Balle, Wang 2018, eq. 6)."""

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    return phi(mu / 2 - eps / mu) - math.exp(eps) * phi(-mu / 2 - eps / mu)


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (2.0, 10), (30.0, 400)])
def test_without_sampling_it_is_one_gaussian(noise: float, rounds: int) -> None:
    """T rounds of noise z are a single one of z / √T."""
    found, accountant = bound(Scheme("all", 20, 20), noise, rounds, 1e-5)
    assert accountant == "exact"
    assert delta_of(math.sqrt(rounds) / noise, found) == pytest.approx(1e-5, rel=1e-6)


def test_a_replaced_client_moves_the_sum_twice_as_far() -> None:
    """So noise that all clients' rounds hide in counts for half where one is replaced."""
    everybody, own = Scheme("all", 20, 20), Scheme("local", 20, 20)
    assert epsilon(own, 2.0, 10, 1e-5) == epsilon(everybody, 1.0, 10, 1e-5)
    # Drawn by a fixed number, the same: at most what it is without sampling, for noise of half.
    for m in (1, 10, 19):
        fixed = epsilon(Scheme("fixed", 20, m), 8.0, 10, 1e-5)
        assert fixed <= epsilon(everybody, 4.0, 10, 1e-5)
    nearly = epsilon(Scheme("fixed", 20, 19), 8.0, 10, 1e-5)
    assert nearly == pytest.approx(epsilon(everybody, 4.0, 10, 1e-5))


def test_exactly_m_of_n_is_rdp_and_costs_more_than_coins() -> None:
    fixed, accountant = bound(Scheme("fixed", 100, 10), 2.0, 50, 1e-5)
    assert accountant == "RDP"
    assert fixed == epsilon(Scheme("fixed", 100, 10), 2.0, 50, 1e-5, "rdp")
    assert fixed > 2 * epsilon(FEW, 2.0, 50, 1e-5)


def test_everybody_is_everybody_however_they_are_drawn() -> None:
    schemes = [Scheme(kind, 20, 20) for kind in ("poisson", "fixed", "all")]
    assert {s.sampling for s in schemes} == {"all"}
    assert {s.neighbours for s in schemes} == {"add or remove one client"}


def test_it_grows_with_rounds_and_clients_drawn_and_falls_with_noise_and_delta() -> None:
    base = epsilon(FEW, 2.0, 20, 1e-5)
    assert 0 == epsilon(FEW, 2.0, 0, 1e-5) < epsilon(FEW, 2.0, 10, 1e-5) < base
    assert epsilon(FEW, 3.0, 20, 1e-5) < base < epsilon(FEW, 1.5, 20, 1e-5)
    assert epsilon(Scheme("poisson", 100, 5), 2.0, 20, 1e-5) < base
    assert epsilon(FEW, 2.0, 20, 1e-4) < base < epsilon(FEW, 2.0, 20, 1e-5, "rdp")


def test_noise_for_an_epsilon_is_enough_and_hardly_more() -> None:
    for scheme in (FEW, Scheme("all", 100, 100)):
        noise = noise_for(4.0, scheme, 20, 1e-5)
        assert epsilon(scheme, noise, 20, 1e-5) <= 4.0
        assert epsilon(scheme, noise / 1.002, 20, 1e-5) > 4.0


def test_rounds_for_an_epsilon_are_affordable_and_no_more_are() -> None:
    for scheme in (FEW, Scheme("fixed", 100, 10)):
        rounds = rounds_for(6.0, scheme, 2.0, 1e-5)
        assert epsilon(scheme, 2.0, rounds, 1e-5) <= 6.0
        assert epsilon(scheme, 2.0, rounds + 1, 1e-5) > 6.0
    assert rounds_for(6.0, FEW, 2.0, 1e-5, most=3) == 3
    assert rounds_for(0.01, FEW, 1.0, 1e-5) == 0
    assert rounds_for(0.01, FEW, 0.0, 1e-5) == 0


def test_vacuous() -> None:
    """An attacker's odds grow by e^ε: 10^8 is where it ends to mean anything."""
    assert not vacuous(0.5)
    assert not vacuous(math.log(1e8))
    assert vacuous(18.43)
    assert vacuous(math.inf)
    assert vacuous(math.nan)


def test_a_published_setting_is_vacuous() -> None:
    """Clip 15 and noise .01 on the mean of 10 updates: a multiplier of .01 · 10 / 15."""
    for sampling in ("fixed", "poisson"):
        assert vacuous(epsilon(Scheme(sampling, 100, 10), 0.01 * 10 / 15, 1_000, 1e-5))
        assert vacuous(epsilon(Scheme(sampling, 100, 10), 0.01 * 10 / 15, 1, 1e-5))
    # Of words, with 100 of 80,000 users a round, too.
    assert vacuous(epsilon(PHONES, 0.01 * 100 / 15, 5_000, 1e-6))


def test_no_noise_is_no_protection() -> None:
    assert epsilon(FEW, 0.0, 1, 1e-5) == math.inf
    assert vacuous(epsilon(FEW, 1e-9, 1, 1e-5))


def test_the_usual_delta() -> None:
    assert accounting.usual_delta(20) == 1e-5
    assert accounting.usual_delta(80_000) == pytest.approx(1.25e-6)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: Scheme("mixed", 10, 5), "unknown sampling that can be accounted for 'mixed'"),
        (lambda: Scheme("poisson", 0, 1), "clients must be an integer of 1 or more, not 0"),
        (lambda: Scheme("fixed", 10, 11), "11 clients a round cannot be drawn from 10: ask for"),
        (lambda: epsilon(FEW, -1.0, 1, 1e-5), "noise must be 0 or more, not -1.0"),
        (lambda: epsilon(FEW, 1.0, 1, 0.0), "delta must be above 0 and below 1, not 0.0"),
        (lambda: epsilon(FEW, 1.0, 1, 1e-5, "zcdp"), "unknown accountant 'zcdp'"),
        (lambda: noise_for(0.0, FEW, 1, 1e-5), "epsilon must be above 0, not 0.0"),
        (lambda: noise_for(1e-8, FEW, 10, 1e-9), "no noise brings ε down to 1e-08: ask for fewer"),
    ],
)
def test_what_makes_no_sense(ask, message) -> None:
    with pytest.raises(GlocalError, match=message):
        ask()


def test_without_the_library_a_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(GlocalError, match=r"not installed: pip install 'glocal\[privacy\]'"):
        accounting.require()


def test_the_library_is_not_imported_before_it_is_needed() -> None:
    code = "import glocal.cli.app, glocal.methods, sys; assert 'dp_accounting' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_delta_that_gives_a_client_away_is_refused() -> None:
    with pytest.raises(GlocalError, match="below 1/10"):
        accounting.epsilon(Scheme("poisson", 10, 5), 1.0, 2, 0.5)


def test_next_to_no_noise_and_endless_budgets_end_at_once() -> None:
    for noise in (1e-300, 1e-160, 1e-5):
        assert math.isinf(accounting.epsilon(Scheme("poisson", 100, 50), noise, 10, 1e-6))
    with pytest.raises(GlocalError, match="protects nobody"):
        accounting.noise_for(1e12, Scheme("fixed", 100, 50), 10, 1e-6)
