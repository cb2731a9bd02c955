"""AAggFF with another range of responses, and with other parameters of its transforms."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import stats

from glocal.core.errors import GlocalError
from glocal.core.types import Uplink
from glocal.methods import resolve
from glocal.methods.aaggff_d import aaggff_d, entropic_decision, lipschitz
from glocal.methods.aaggff_s import aaggff_s, newton_start, newton_step
from glocal.methods.support.loss_responses import responses, transform_of
from glocal.methods.support.simplex import lowest
from glocal.slots.weighting import Setting

LOSS = torch.tensor([0.5, 1.0, 1.5, 3.0], dtype=torch.float64)


def sent(ids: list[int]) -> Uplink:
    there = torch.tensor(ids)
    return Uplink(there, there + 1, {"w": torch.ones(len(ids), 2)}, LOSS[there], {})


@pytest.mark.parametrize(
    ("name", "settings", "theirs"),
    [
        ("weibull", {"alpha": 1.5, "beta": 3.0}, stats.weibull_min(3, scale=1.5)),
        ("frechet", {"alpha": 0.7, "beta": 2.0}, stats.invweibull(2, scale=0.7)),
        ("gumbel", {"alpha": 0.8, "beta": 0.5}, stats.gumbel_r(0.8, 0.5)),
        ("exponential", {"alpha": 2.0}, stats.expon(scale=0.5)),
        ("logistic", {"alpha": 1.2, "beta": 0.3}, stats.logistic(1.2, 0.3)),
        ("normal", {"alpha": 0.9, "beta": 2.0}, stats.norm(0.9, 2.0)),
        ("normal", {"beta": 2.0}, stats.norm(1.0, 2.0)),
    ],
)
def test_transforms_against_scipy(name: str, settings: dict[str, float], theirs: Any) -> None:
    x = torch.linspace(0.05, 5, 30, dtype=torch.float64)
    assert transform_of(name, **settings)(x).tolist() == pytest.approx(theirs.cdf(x.numpy()))


def test_responses_range_from_c1_to_c2() -> None:
    """Mean loss 1.5: a third, two thirds, 1, 2 of it."""
    found = responses(LOSS, transform_of("exponential"), 0.5, low=0.2)
    x = (1 / 3, 2 / 3, 1, 2)
    assert found.tolist() == pytest.approx([0.2 + 0.3 * (1 - math.exp(-v)) for v in x])


def test_newton_step_by_hand() -> None:
    """``L = C2/(1 + C1)`` in α = 4KL and β = 1/(4L)."""
    K, low, high = 4, 0.25, 0.75
    weighting = aaggff_s("exponential", c1=low, c2=high, alpha=2.0)
    p, _ = weighting.weigh(weighting.init(Setting(K, 1.0, 9)), sent([0, 1, 2, 3]))
    r = torch.tensor([low + (high - low) * (1 - math.exp(-2 * f / 1.5)) for f in LOSS.tolist()])
    r = r.double()
    L, even = 0.75 / 1.25, torch.full((K,), 1 / K).double()
    g = -r / (1 + even @ r)
    matrix = 4 * K * L * torch.eye(K).double() + torch.outer(g, g) / (4 * L)
    want = lowest(matrix, g - (g @ even) * g / (4 * L))
    assert p.tolist() == pytest.approx(want.tolist(), abs=1e-6)
    assert float(p[3]) > float(p[0])
    # The default is the range from 0 to 1/K.
    assert torch.equal(
        newton_step(newton_start(4), r / 4)["p"], newton_step(newton_start(4), r / 4, 1 / 4)["p"]
    )


def test_entropic_step_by_hand() -> None:
    """Half of four clients: ``L̆ = C2/(1 + C1) + 2 (C2 − C1)/(C (1 + C1))``."""
    K, C, low, high = 4, 0.5, 0.2, 0.6
    weighting = aaggff_d("logistic", c1=low, c2=high, beta=0.5)
    state = weighting.weigh(weighting.init(Setting(K, C, 9)), sent([1, 3]))[1]
    # Losses 1 and 3, by their mean 2: a half and one and a half.
    r = [low + (high - low) / (1 + math.exp(-(x - 1) / 0.5)) for x in (0.5, 1.5)]
    mean = sum(r) / 2
    filled = [mean, mean + (r[0] - mean) / C, mean, mean + (r[1] - mean) / C]
    shift = mean * (sum(filled) / K - mean) / (1 + mean) ** 2
    g = [-f / (1 + mean) + shift for f in filled]
    assert state["g"].tolist() == pytest.approx(g)
    L = 0.6 / 1.2 + 2 * 0.4 / (0.5 * 1.2)
    assert lipschitz(C, low, high) == pytest.approx(L)
    e = [math.exp(-math.sqrt(math.log(K)) * x / (L * math.sqrt(2))) for x in g]
    assert entropic_decision(state).tolist() == pytest.approx([x / sum(e) for x in e])


def test_no_gradient_is_above_its_bound() -> None:
    """Whatever the responses in the range, and whoever is there."""
    torch.manual_seed(0)
    K, low, high = 6, 0.3, 0.9
    for m in (2, 6):
        C = m / K
        weighting = aaggff_d(c1=low, c2=high)
        state = weighting.init(Setting(K, C, 9))
        for _ in range(50):
            ids, loss = torch.randperm(K)[:m], 10 ** (4 * torch.rand(m) - 2).double()
            uplink = Uplink(ids, ids + 1, {}, loss, {})
            after = weighting.weigh(state, uplink)[1]
            assert float((after["g"] - state["g"]).abs().max()) <= lipschitz(C, low, high)
            state = after
    assert lipschitz(1.0, low, high) == pytest.approx(0.9 / 1.3)
    assert (lipschitz(1.0), lipschitz(0.25)) == (1.0, 2.25)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("aaggff-s(alpha=0)", "alpha must be above 0"),
        ("aaggff-s(beta=-1)", "beta must be above 0"),
        ("aaggff-d(transform=exponential,beta=2)", "leave beta out"),
        ("aaggff-d(transform=cauchy)", "cauchy"),
    ],
)
def test_parameters_that_cannot_be(spec: str, why: str) -> None:
    with pytest.raises(GlocalError, match=why):
        resolve(spec)


@pytest.mark.parametrize(
    ("weighting", "why"),
    [
        (aaggff_s(c1=0.3), "0.3 is not below 0.25"),
        (aaggff_s(c1=-0.1), "c1 must be 0 or more"),
        (aaggff_d(c2=0.0), "0 is not below 0"),
    ],
)
def test_ranges_that_cannot_be(weighting: Any, why: str) -> None:
    with pytest.raises(GlocalError, match=why):
        weighting.init(Setting(4, 1.0, 9))
