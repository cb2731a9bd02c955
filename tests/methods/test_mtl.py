"""Mean-regularised multi-task learning: the mean, the pull to it, and its limits."""

from __future__ import annotations

import pytest
import torch
from loops import (
    ENGINES,
    EVERYBODY,
    SGD,
    Model,
    batches,
    bowl,
    bowls,
    cohorts,
    first,
    gap,
    loss,
    mean,
    same,
    slope,
    square,
    state,
    trained,
)
from torch import Tensor

from glocal.engines import Engine
from glocal.testing import check_method
from glocal.training.sampling import Fixed

both_engines = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)


@both_engines
def test_with_everybody_the_server_holds_the_mean_of_the_models(engine: Engine) -> None:
    training, done = trained("mtl(lam1=0.3,momentum=0.9)", engine, sampler=EVERYBODY)
    own = [state(done, k)["w"] for k in range(len(training.fed))]
    assert gap(own[0], own[1]) > 1e-2
    same(done.server["params"], mean(own, [1.0] * len(own)))


@both_engines
def test_without_its_terms_it_is_training_alone(engine: Engine) -> None:
    spec = "lr=0.1,momentum=0.9,weight_decay=0.01"
    training, done = trained(f"mtl(lam1=0,lam2=0,{spec})", engine, sampler=EVERYBODY)
    _, alone = trained(f"fedavg(shared=nothing,{spec})", engine, sampler=EVERYBODY)
    for k in range(len(training.fed)):
        same(state(done, k)["w"], state(alone, k)["private"], 1e-6)


@both_engines
def test_a_large_pull_makes_them_one(engine: Engine) -> None:
    def spread(lam1: float) -> float:
        training, done = trained(
            f"mtl(lam1={lam1},lam2=0,lr=0.02)", engine, rounds=4, sampler=EVERYBODY
        )
        own = [state(done, k)["w"] for k in range(len(training.fed))]
        return max(gap(w, mean(own, [1.0] * len(own))) for w in own)

    assert spread(20.0) < 0.2 * spread(0.0)
    assert spread(20.0) < 0.03


def objective(w: Model, w_bar: Model, x: Tensor, y: Tensor) -> Tensor:
    zero = {n: torch.zeros_like(p) for n, p in w.items()}
    return loss(w, x, y) + 0.3 * square(w, w_bar) + 0.02 * square(w, zero)


@both_engines
def test_mtl_is_the_plain_loop(engine: Engine) -> None:
    training, done = trained(
        "mtl(lam1=0.3,lam2=0.02,lr=0.1,epochs=2,momentum=0.5,weight_decay=0.01)", engine
    )
    w_bar, own = first(), {}
    for r, cohort in enumerate(cohorts(training)):
        for k in cohort:
            mine = SGD(own.get(k, w_bar), 0.1, 0.5, 0.01)
            for x, y in batches(training, r, k, 2):
                mine.step(slope(objective, mine.model, w_bar, x, y))
            own[k] = mine.model
        w_bar = mean([own[k] for k in cohort], [1.0] * len(cohort))
    same(done.server["params"], w_bar)
    for k, w in own.items():
        same(state(done, k)["w"], w)


@both_engines
@pytest.mark.parametrize(
    ("rounds", "a", "b"), [(1, 1.15, 0.95), (2, 1.2675, 0.9175)], ids=["one", "two"]
)
def test_steps_by_hand(engine: Engine, rounds: int, a: float, b: float) -> None:
    """Optima 3 and 1, η = 0.1, λ1 = 0.5, λ2 = 0.25, from 1; sizes differ and count alike.

    At first w̄ = 1: a = 1 − 0.1 (−2 + 0.5·1) = 1.15, b = 1 − 0.1 (0 + 0.5·1) = 0.95, so w̄ = 1.05.
    Then a = 1.15 − 0.1 (−1.85 + 2·0.5·0.1 + 0.5·1.15) = 1.2675,
    b = 0.95 − 0.1 (−0.05 − 2·0.5·0.1 + 0.5·0.95) = 0.9175.
    """
    _, done = trained(
        "mtl(lam1=0.5,lam2=0.25,lr=0.1,epochs=1,batch_size=0)",
        engine,
        rounds=rounds,
        sampler=Fixed(2),
        task=bowl(),
        fed=bowls((1.0, 3.0), (1.0, 1.0), sizes=(16, 8)),
    )
    found = [float(state(done, k)["w"]["w"]) for k in (0, 1)]
    assert found == pytest.approx([a, b])
    assert float(done.server["params"]["w"]) == pytest.approx((a + b) / 2)


def test_contract() -> None:
    check_method("mtl(lam1=0.3,lam2=0.01,momentum=0.9,weight_decay=0.01,epochs=2)")
