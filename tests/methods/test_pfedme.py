"""pFedMe: the inner problem against its closed form, the outer step, who is evaluated with what."""

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

from glocal.core.errors import GlocalError
from glocal.engines import Engine
from glocal.methods import resolve
from glocal.testing import check_method
from glocal.training.loop import Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fixed

both_engines = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
BOWLS = ((1.0, 3.0), (4.0, -1.0), (2.0, 0.5))
SOLVE = "inner=200,batch_size=0,epochs=1"


def proximal(a: float, b: float, lam: float, w: float) -> float:
    """Where ``a/2 (θ − b)² + λ/2 (θ − w)²`` is least."""
    return (a * b + lam * w) / (a + lam)


def on_bowls(
    spec: str, engine: Engine, sampled: int = 3, rounds: int = 1
) -> tuple[Training, Progress]:
    fed = bowls(*BOWLS, sizes=(8, 16, 32))
    return trained(spec, engine, rounds=rounds, sampler=Fixed(sampled), task=bowl(), fed=fed)


@both_engines
def test_theta_solves_the_proximal_problem_and_w_steps_towards_it(engine: Engine) -> None:
    """w ← w − ηλ(w − θ), and the server takes the plain mean, whatever the clients' sizes."""
    lam, lr = 15.0, 0.02
    _, done = on_bowls(f"pfedme(lam={lam},lr={lr},inner_lr=0.05,{SOLVE})", engine)
    steps = []
    for k, (a, b) in enumerate(BOWLS):
        theta = proximal(a, b, lam, 1.0)
        assert float(state(done, k)["theta"]["w"]) == pytest.approx(theta, abs=1e-6)
        steps.append(1.0 - lr * lam * (1.0 - theta))
    assert float(done.server["params"]["w"]) == pytest.approx(sum(steps) / 3, abs=1e-6)


@both_engines
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_beta_mixes_with_what_the_server_had(engine: Engine, beta: float) -> None:
    spec = f"pfedme(lam=2,lr=0.1,inner_lr=0.1,beta={beta},{SOLVE})"
    _, done = on_bowls(spec, engine)
    steps = [1.0 - 0.1 * 2 * (1.0 - proximal(a, b, 2.0, 1.0)) for a, b in BOWLS]
    expected = (1 - beta) * 1.0 + beta * sum(steps) / 3
    assert float(done.server["params"]["w"]) == pytest.approx(expected, abs=1e-6)


@both_engines
def test_few_inner_steps_by_hand(engine: Engine) -> None:
    """Two inner steps on ``½(θ − 3)² + (θ − w)²`` of size 0.1 from 1, then η = 0.2.

    θ = 1.2, then 1.2 − 0.1 (−1.8 + 2·0.2) = 1.34; w = 1 − 0.2·2·(1 − 1.34) = 1.136. On the next
    mini-batch θ goes on from 1.34: 1.34 − 0.1 (−1.66 + 2·0.204) = 1.4652, then
    1.4652 − 0.1 (−1.5348 + 2·0.3292) = 1.55284; w = 1.136 + 0.4·(1.55284 − 1.136) = 1.302736.
    """
    _, done = trained(
        "pfedme(lam=2,lr=0.2,inner=2,inner_lr=0.1,batch_size=0,epochs=2)",
        engine,
        rounds=1,
        sampler=Fixed(1),
        task=bowl(),
        fed=bowls((1.0, 3.0)),
    )
    assert float(state(done, 0)["theta"]["w"]) == pytest.approx(1.55284)
    assert float(done.server["params"]["w"]) == pytest.approx(1.302736)


@both_engines
def test_who_was_never_sampled_is_evaluated_with_a_theta_of_its_own(engine: Engine) -> None:
    training, done = on_bowls(f"pfedme(lam=2,lr=0.2,inner_lr=0.1,{SOLVE})", engine, sampled=1)
    ((sampled,),) = cohorts(training)
    w = float(done.server["params"]["w"])
    evaluated = training.models(done)(torch.arange(3))
    assert list(evaluated) == ["theta"]
    for k, (a, b) in enumerate(BOWLS):
        received = 1.0 if k == sampled else w
        theta = proximal(a, b, 2.0, received)
        assert abs(theta - w) > 1e-2
        assert float(evaluated["theta"]["w"][k]) == pytest.approx(theta, abs=1e-6)
    # BatchedEvaluation is not taking part.
    assert done.clients.seen.tolist() == [k == sampled for k in range(3)]
    assert float(done.server["params"]["w"]) == w


@both_engines
def test_a_schedule_is_for_the_outer_step(engine: Engine) -> None:
    """The inner problem is solved as well as ever when η has become small."""
    spec = f"pfedme(lam=2,lr=0.2,inner_lr=0.1,schedule=step(0.001),{SOLVE})"
    training, done = on_bowls(spec, engine, rounds=2)
    _, before = on_bowls(spec, engine, rounds=1)
    w = float(before.server["params"]["w"])
    assert float(done.server["params"]["w"]) == pytest.approx(w, abs=1e-3)
    assert len(training.fed) == 3
    for k, (a, b) in enumerate(BOWLS):
        theta = proximal(a, b, 2.0, w)
        assert float(state(done, k)["theta"]["w"]) == pytest.approx(theta, abs=1e-6)


def inner_loss(theta: Model, w: Model, x: Tensor, y: Tensor) -> Tensor:
    return loss(theta, x, y) + 5 / 2 * square(theta, w)


@both_engines
def test_pfedme_is_the_plain_loop(engine: Engine) -> None:
    training, done = trained(
        "pfedme(lam=5,inner=3,inner_lr=0.04,beta=0.8,lr=0.03,epochs=2,momentum=0.5)", engine
    )
    w, kept = first(), {}
    for r, cohort in enumerate(cohorts(training)):
        models = []
        for k in cohort:
            mine, theta = SGD(w, 0.03, 0.5), kept.get(k, w)
            for x, y in batches(training, r, k, 2):
                inner = SGD(theta, 0.04)
                for _ in range(3):
                    inner.step(slope(inner_loss, inner.model, mine.model, x, y))
                theta = inner.model
                mine.step({n: 5 * (mine.model[n] - theta[n]) for n in w})
            models.append(mine.model)
            kept[k] = theta
        w = mean([w, mean(models, [1.0] * len(models))], [0.2, 0.8])
    same(done.server["params"], w)
    for k, theta in kept.items():
        same(state(done, k)["theta"], theta)


@both_engines
def test_a_large_pull_is_fedavg(engine: Engine) -> None:
    """θ is then at w − g/λ, so that the outer step is a step along −g at w."""
    _, done = trained(
        "pfedme(lam=1000,inner=5,inner_lr=0.001,lr=0.05,epochs=1)", engine, sampler=EVERYBODY
    )
    _, avg = trained("fedavg(lr=0.05,epochs=1)+uniform", engine, sampler=EVERYBODY)
    moved = gap(avg.server["params"], first())
    assert gap(done.server["params"], avg.server["params"]) < 0.02 * moved


def test_contract() -> None:
    check_method("pfedme(lam=5,inner=2,beta=0.7,lr=0.05,momentum=0.9,weight_decay=0.01,epochs=2)")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("inner=0", "inner must be an integer"),
        ("inner=2.5", "inner must be an integer"),
        ("inner=10001", "inner must be an integer from 1 to 10,000, not 10001"),
        ("beta=0", "beta must be above 0"),
        ("inner_lr=0", "inner_lr must be above 0"),
        ("lam=50,inner_lr=0.05", "inner steps run away"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: str, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        resolve(f"pfedme({settings})")
