"""Ditto against training alone, a plain loop, and numbers worked out by hand."""

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
    examples,
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
def test_without_its_pull_v_is_training_alone(engine: Engine) -> None:
    settings = "lr=0.1,epochs=2,momentum=0.9,weight_decay=0.01"
    training, done = trained(f"ditto(lam=0,{settings})", engine, sampler=EVERYBODY)
    _, alone = trained(f"fedavg(shared=nothing,{settings})", engine, sampler=EVERYBODY)
    for k in range(len(training.fed)):
        same(state(done, k)["v"], state(alone, k)["private"], 1e-6)


@both_engines
def test_the_global_model_is_fedavg(engine: Engine) -> None:
    _, done = trained("ditto(lam=0.7)", engine)
    _, avg = trained("fedavg", engine)
    same(done.server["params"], avg.server["params"], 1e-6)


@both_engines
def test_a_large_pull_keeps_v_at_the_received_model(engine: Engine) -> None:
    def distance(lam: float) -> float:
        training, done = trained(
            f"ditto(lam={lam},lr=0.02,epochs=3)", engine, rounds=2, sampler=EVERYBODY
        )
        _, before = trained("fedavg(lr=0.02,epochs=3)", engine, rounds=1, sampler=EVERYBODY)
        received = before.server["params"]
        return max(gap(state(done, k)["v"], received) for k in range(len(training.fed)))

    free, pulled = distance(0.0), distance(45.0)
    assert pulled < 0.3 * free
    # Where it rests, F_i's slope g and λ(v − w) cancel: v is off by g/λ, in which g is about 1.
    assert 0 < pulled < 2 / 45


def pulled_loss(v: Model, w: Model, x: Tensor, y: Tensor) -> Tensor:
    return loss(v, x, y) + 0.6 / 2 * square(v, w)


@both_engines
def test_ditto_is_the_plain_loop(engine: Engine) -> None:
    spec = "ditto(lam=0.6,lr=0.1,epochs=2,momentum=0.5,weight_decay=0.01)"
    training, done = trained(spec, engine)
    w, v = first(), {}
    for r, cohort in enumerate(cohorts(training)):
        models = []
        for k in cohort:
            mine = SGD(w, 0.1, 0.5, 0.01)
            own = SGD(v.setdefault(k, w), 0.1, 0.5, 0.01)
            for x, y in batches(training, r, k, 2):
                mine.step(slope(loss, mine.model, x, y))
                own.step(slope(pulled_loss, own.model, w, x, y))
            models.append(mine.model)
            v[k] = own.model
        w = mean(models, examples(training, cohort))
    same(done.server["params"], w)
    assert len({k for cohort in cohorts(training) for k in cohort}) > len(cohorts(training)[0])
    for k, own_model in v.items():
        same(state(done, k)["v"], own_model)


@both_engines
@pytest.mark.parametrize(("rounds", "w", "v"), [(1, 1.38, 1.34), (2, 1.6878, 1.6358)])
def test_two_steps_a_round_by_hand(engine: Engine, rounds: int, w: float, v: float) -> None:
    """``f(w) = ½(w − 3)²``, η = 0.1, λ = 2, from 1, and the pull is to w as received.

    w: 1, 1.2, 1.38 | 1.542, 1.6878. v in round one, pulled to 1: 1.2, then
    1.2 − 0.1 (−1.8 + 2·0.2) = 1.34; in round two, pulled to 1.38:
    1.34 − 0.1 (−1.66 + 2·(−0.04)) = 1.514, then 1.514 − 0.1 (−1.486 + 2·0.134) = 1.6358.
    """
    _, done = trained(
        "ditto(lam=2,lr=0.1,epochs=2,batch_size=0)",
        engine,
        rounds=rounds,
        sampler=Fixed(1),
        task=bowl(),
        fed=bowls((1.0, 3.0)),
    )
    assert float(done.server["params"]["w"]) == pytest.approx(w)
    assert float(state(done, 0)["v"]["w"]) == pytest.approx(v)


def test_the_personal_model_is_evaluated() -> None:
    training, done = trained("ditto(lam=0.6)", ENGINES[1])
    models = training.models(done)(torch.arange(len(training.fed)))
    assert list(models) == ["personal"]
    for k in done.clients.seen.nonzero().flatten().tolist():
        same({n: p[k] for n, p in models["personal"].items()}, state(done, k)["v"], 0.0)


def test_contract() -> None:
    check_method("ditto(lam=0.5,momentum=0.9,weight_decay=0.01,epochs=2,schedule=step(0.9))")
