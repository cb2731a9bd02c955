"""AAggFF: the worked example, limits, regret under its bounds, and the doubly robust estimate."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from torch import Tensor

import glocal
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Uplink
from glocal.methods.aaggff_d import (
    aaggff_d,
    doubly_robust,
    entropic_decision,
    entropic_start,
    entropic_step,
    lipschitz,
)
from glocal.methods.aaggff_s import aaggff_s, newton_start, newton_step
from glocal.methods.support.loss_responses import TRANSFORMS, responses
from glocal.slots.weighting import Setting
from glocal.studies.decisions import best_fixed, decision_loss, regret
from glocal.testing import check_method
from glocal.training.sampling import Fixed, Poisson

WORKED = {
    "weibull": (0.05, 1.00, 0.19),
    "frechet": (0.01, 0.65, 0.11),
    "gumbel": (0.12, 0.76, 0.18),
    "exponential": (0.21, 0.90, 0.37),
    "logistic": (0.32, 0.79, 0.37),
    "normal": (0.22, 0.90, 0.30),
}
"""Losses .01, .10 and .02 under each transform, as published."""


def sent(loss: Tensor, ids: Tensor | None = None) -> Uplink:
    m = len(loss)
    ids = torch.arange(m) if ids is None else ids
    return Uplink(ids, torch.arange(m) + 1, {"w": torch.ones(m, 2)}, loss, {})


@pytest.mark.parametrize("name", WORKED)
def test_worked_example(name: str) -> None:
    found = responses(torch.tensor([0.01, 0.10, 0.02], dtype=torch.float64), name)
    assert found.tolist() == pytest.approx(WORKED[name], abs=0.006)


def test_transforms_against_scipy() -> None:
    x = torch.linspace(0.05, 5, 40, dtype=torch.float64)
    theirs = {
        "weibull": stats.weibull_min(2),
        "frechet": stats.invweibull(1),
        "gumbel": stats.gumbel_r(1),
        "exponential": stats.expon(),
        "logistic": stats.logistic(1),
        "normal": stats.norm(1),
    }
    assert theirs.keys() == TRANSFORMS.keys()
    for name, distribution in theirs.items():
        assert TRANSFORMS[name](x).tolist() == pytest.approx(distribution.cdf(x.numpy()), abs=1e-12)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_increase(name: str) -> None:
    x = torch.linspace(0, 4, 200, dtype=torch.float64)
    assert bool((TRANSFORMS[name](x).diff() > 0).all())
    r = responses(x, name, 0.2)
    assert float(r.min()) >= 0
    assert float(r.max()) <= 0.2
    assert bool((responses(torch.zeros(4), name).diff() == 0).all())  # nobody has a loss


def newton_decisions(
    respond: Callable[[int, Tensor], Tensor], K: int, T: int
) -> tuple[Tensor, Tensor]:
    """Decisions and responses of AAggFF-S against someone who may look at the decision first."""
    state, p, r = newton_start(K), [], []
    for t in range(T):
        p.append(state["p"])
        r.append(respond(t, state["p"]) / K)
        state = newton_step(state, r[-1])
    return torch.stack(p), torch.stack(r)


def entropic_decisions(
    respond: Callable[[int, Tensor], Tensor], K: int, T: int, m: int | None = None, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """The same of AAggFF-D; with ``m``, so many are drawn in each round and seen."""
    m = K if m is None else m
    state, p, r = entropic_start(K, m / K), [], []
    for t in range(T):
        p.append(entropic_decision(state))
        r.append(respond(t, p[-1]) * m / K)
        ids = rng.permutation(rng.fold(rng.key(seed), t), K)[:m]
        state = entropic_step(state, ids, r[-1][ids])
    return torch.stack(p), torch.stack(r)


def noise(seed: int, K: int) -> Callable[[int, Tensor], Tensor]:
    return lambda t, p: rng.uniform(rng.fold(rng.key(seed), t), (K,)).to(torch.float64)


def biased(seed: int, K: int) -> Callable[[int, Tensor], Tensor]:
    """A few clients are always worse than the others."""
    lift = (rng.uniform(rng.key(seed), (K,)) < 0.2).to(torch.float64)
    return lambda t, p: (noise(seed + 1, K)(t, p) + 2 * lift) / 3


def spiteful(seed: int, K: int) -> Callable[[int, Tensor], Tensor]:
    """All the response where the decision put least."""
    return lambda t, p: torch.nn.functional.one_hot(p.argmin(), K).to(torch.float64)


def flipping(seed: int, K: int) -> Callable[[int, Tensor], Tensor]:
    """Halves of the clients in turn, for spells that double in length."""

    def respond(t: int, p: Tensor) -> Tensor:
        half = (torch.arange(K) < max(1, K // 2)).to(torch.float64)
        return half if int(math.log2(t + 1)) % 2 else 1 - half

    return respond


FOES = [noise, biased, spiteful, flipping]


@given(st.sampled_from(FOES), st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_regret_of_newton_steps(foe: Callable[..., object], seed: int, K: int, T: int) -> None:
    p, r = newton_decisions(foe(seed, K), K, T)  # type: ignore[arg-type]
    bound = 2 / K * K * (1 + math.log(1 + T / (16 * K)))
    assert float(regret(p, r)[-1]) <= bound
    assert float(p.min()) >= 0
    assert torch.allclose(p.sum(1), torch.ones(T).to(p))


@given(st.sampled_from(FOES), st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 150))
@settings(max_examples=30, deadline=None)
def test_regret_of_entropic_steps_of_everybody(
    foe: Callable[..., object], seed: int, K: int, T: int
) -> None:
    p, r = entropic_decisions(foe(seed, K), K, T)  # type: ignore[arg-type]
    assert float(regret(p, r)[-1]) <= 2 * math.sqrt(T * math.log(K))


@pytest.mark.parametrize(("K", "T"), [(100, 800), (1000, 900)])
def test_regret_of_entropic_steps_of_everybody_when_one_is_far_worse(K: int, T: int) -> None:
    """One client has six times the others' loss in every round: steps of C + 2 are too short."""
    loss = torch.ones(K, dtype=torch.float64)
    loss[3] = 6.0
    r = responses(loss, "weibull")
    p, seen = entropic_decisions(lambda t, p: r, K, T)
    assert float(regret(p, seen)[-1]) <= 2 * math.sqrt(T * math.log(K))


def alone_bad(seed: int, K: int) -> Callable[[int, Tensor], Tensor]:
    """One client answers, nobody else ever does."""
    return lambda t, p: torch.nn.functional.one_hot(torch.tensor(1), K).to(torch.float64)


@pytest.mark.parametrize("foe", [biased, alone_bad])
@pytest.mark.parametrize(("K", "m", "T"), [(4, 2, 800), (5, 3, 600)])
def test_mean_regret_of_sampled_entropic_steps(
    foe: Callable[..., object], K: int, m: int, T: int
) -> None:
    """Long enough that who stays uniform against the second foe would be above the bound."""
    bound = 2 * lipschitz(m / K) * math.sqrt(T * math.log(K))
    draws = [entropic_decisions(foe(7, K), K, T, m, seed) for seed in range(4)]  # type: ignore[arg-type]
    found = [float(regret(p, r)[-1]) for p, r in draws]
    assert sum(found) / len(found) <= bound
    if foe is alone_bad:
        still = torch.full((T, K), 1 / K, dtype=torch.float64)
        assert float(regret(still, draws[0][1])[-1]) > bound


def test_gradient_estimates_are_bounded() -> None:
    """No entry of an estimate exceeds the constant the step is scaled with."""
    K, m = 12, 3
    state = entropic_start(K, m / K)
    for t in range(50):
        ids = rng.permutation(rng.fold(rng.key(1), t), K)[:m]
        extreme = (torch.arange(m) % 2).to(torch.float64) * m / K
        after = entropic_step(state, ids, extreme)
        assert float((after["g"] - state["g"]).abs().max()) <= lipschitz(m / K) + 1e-12
        state = after


def test_regret_is_worth_its_name() -> None:
    """Who stays uniform while one client answers alone regrets more than the bound allows."""
    K, T = 4, 250
    r = torch.zeros(T, K, dtype=torch.float64)
    r[:, 2] = 1 / K
    p = torch.full((T, K), 1 / K, dtype=torch.float64)
    assert float(regret(p, r)[-1]) > 2 * (1 + math.log(1 + T / (16 * K)))
    ours, same = newton_decisions(lambda t, p: r[t] * K, K, T)
    assert torch.equal(same, r)
    assert float(ours[-1, 2]) > 0.9


def test_best_fixed_decision_against_scipy() -> None:
    g = torch.Generator().manual_seed(0)
    r = torch.rand(30, 5, generator=g, dtype=torch.float64)
    ours = best_fixed(r)
    found = optimize.minimize(
        lambda p: float(decision_loss(torch.tensor(p), r).sum()),
        torch.full((5,), 0.2).numpy(),
        method="SLSQP",
        bounds=[(0, 1)] * 5,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        options={"ftol": 1e-14},
    )
    assert float(decision_loss(ours, r).sum()) == pytest.approx(found.fun, abs=1e-7)
    assert ours.tolist() == pytest.approx(found.x.tolist(), abs=1e-3)


def test_newton_step_is_the_stated_minimum() -> None:
    """Against the objective as written, minimised by another solver."""
    K, T = 5, 12
    p, r = newton_decisions(biased(3, K), K, T)
    L = 1 / K
    g = -r / (1 + (p * r).sum(1, keepdim=True))

    def objective(x: object) -> float:
        q = torch.tensor(x, dtype=torch.float64)
        bend = ((g * (q - p)).sum(1) ** 2).sum()
        return float((g.sum(0) @ q) + 2 * K * L * q @ q + bend / (8 * L))

    found = optimize.minimize(
        objective,
        torch.full((K,), 1 / K).numpy(),
        method="SLSQP",
        bounds=[(0, 1)] * K,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    state = newton_start(K)
    for row in r:
        state = newton_step(state, row)
    assert objective(state["p"].numpy()) <= found.fun + 1e-9
    assert state["p"].tolist() == pytest.approx(found.x.tolist(), abs=1e-4)


def test_entropic_step_worked_by_hand() -> None:
    """Three clients, the last two seen with 0.2 and 0.6 (C = 2/3)."""
    C = 2 / 3
    state = entropic_step(
        entropic_start(3, C), torch.tensor([1, 2]), torch.tensor([0.2, 0.6]).double()
    )
    filled = [0.4, 0.4 - 0.2 / C, 0.4 + 0.2 / C]
    shift = 0.4 * (sum(filled) / 3 - 0.4) / 1.4**2
    g = [-f / 1.4 + shift for f in filled]
    assert state["g"].tolist() == pytest.approx(g)
    e = [math.exp(-math.sqrt(math.log(3)) * x / ((C + 2) * math.sqrt(2))) for x in g]
    assert entropic_decision(state).tolist() == pytest.approx([x / sum(e) for x in e])


@pytest.mark.parametrize("own", [False, True])
def test_doubly_robust(own: bool) -> None:
    """Over all draws of m of K: unbiased with a value from elsewhere, else biased as stated."""
    K, m = 6, 2
    r = torch.tensor([0.1, 0.9, 0.3, 0.4, 0.0, 0.7], dtype=torch.float64)
    draws = list(torch.combinations(torch.arange(K), m))
    elsewhere = torch.tensor(0.33, dtype=torch.float64)
    estimates = torch.stack(
        [doubly_robust(r[s], s, K, m / K, r[s].mean() if own else elsewhere) for s in draws]
    )
    bias = -(r - r.mean()) * (K - m) / (m * (K - 1)) if own else torch.zeros(K).double()
    assert torch.allclose(estimates.mean(0) - r, bias, atol=1e-12)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_equal_losses_are_the_uniform_mean(name: str) -> None:
    loss = torch.full((5,), 0.7)
    for weighting, ids in ((aaggff_s(name), torch.arange(5)), (aaggff_d(name), torch.arange(5))):
        state = weighting.init(Setting(5, 1.0, 10))
        for _ in range(4):
            p, state = weighting.weigh(state, sent(loss, ids))
            assert torch.allclose(p, torch.full((5,), 0.2).to(p), atol=1e-8)


def test_sampled_equal_losses_are_the_uniform_mean() -> None:
    weighting = aaggff_d()
    state = weighting.init(Setting(8, 0.25, 10))
    for t in range(6):
        p, state = weighting.weigh(state, sent(torch.full((2,), 0.7), torch.tensor([t, t + 1])))
        assert torch.allclose(p, torch.full((2,), 0.5).to(p))


def test_a_client_that_is_always_worse_comes_to_count_more() -> None:
    for weighting in (aaggff_s(), aaggff_d()):
        state = weighting.init(Setting(4, 1.0, 30))
        shares = []
        for _ in range(20):
            p, state = weighting.weigh(state, sent(torch.tensor([0.1, 0.1, 0.1, 0.9])))
            shares.append(float(p[3]))
        assert shares == sorted(shares)
        assert shares[-1] > 0.3


def test_new_decision_aggregates_the_same_round() -> None:
    """The weights of a round already follow its own losses; the standing ones do not."""
    weighting = aaggff_d()
    state = weighting.init(Setting(3, 1.0, 10))
    assert weighting.standing is not None
    assert weighting.standing(state, torch.arange(3)).tolist() == pytest.approx([1 / 3] * 3)
    p, state = weighting.weigh(state, sent(torch.tensor([0.1, 0.2, 0.9])))
    assert p[2] > p[1] > p[0]
    assert torch.equal(weighting.standing(state, torch.arange(3)), p)


def test_order_of_a_cohort_does_not_matter() -> None:
    loss, turn = torch.tensor([0.3, 0.1, 0.6]), torch.tensor([2, 0, 1])
    for weighting in (aaggff_s(), aaggff_d()):
        state = weighting.init(Setting(3, 1.0, 10))
        p, after = weighting.weigh(state, sent(loss))
        q, other = weighting.weigh(state, sent(loss[turn], turn))
        assert torch.allclose(p[turn], q, atol=1e-9)
        assert all(
            torch.allclose(a, b)
            for a, b in zip(tree.leaves(after), tree.leaves(other), strict=True)
        )


def test_refusals() -> None:
    with pytest.raises(GlocalError, match="aaggff-s needs every client"):
        aaggff_s().init(Setting(10, 0.5, 10))
    with pytest.raises(GlocalError, match=r"unknown transform 'nromal'.*normal"):
        aaggff_d("nromal")
    with pytest.raises(GlocalError, match="negative"):
        aaggff_d().weigh(aaggff_d().init(Setting(2, 1.0, 3)), sent(torch.tensor([-1.0, 1.0])))


@pytest.mark.parametrize(
    ("spec", "sampler"),
    [
        ("aaggff-d(transform=weibull)", Poisson(0.4)),
        ("ditto+aaggff-d+yogi(lr=0.01)", None),
        ("lg-fedavg+aaggff-d", None),
        ("fedprox(mu=0.1)+aaggff-s+adam(lr=0.01)", Fixed(6)),
    ],
)
def test_conformance(spec: str, sampler: Fixed | Poisson | None) -> None:
    check_method(spec, sampler=sampler, rounds=5)


def test_losses_are_computed_only_when_asked_for() -> None:
    fed = glocal.load("digits", clients=4, partition="iid", seed=0)
    for spec, asked in (("fedavg", False), ("aaggff-d", True), ("grad-norm", False)):
        run = glocal.fit(spec, fed, rounds=1, baseline="local(lr=0.1,max_epochs=1)", progress=False)
        assert run.trained is not None
        decision = run.trained.progress.decision
        assert decision is not None
        assert (decision.loss is not None) == asked
        assert ("extra" in run.summary["traffic"]["up"]) == asked
