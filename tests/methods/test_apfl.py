"""APFL against FedAvg, a plain loop, and numbers worked out by hand."""

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
    loss,
    mean,
    same,
    slope,
    state,
    trained,
)
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.engines import Engine
from glocal.methods import resolve
from glocal.testing import check_method
from glocal.training.sampling import Fixed

both_engines = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)


def mixed(v: Model, w: Model, alpha: float | Tensor) -> Model:
    return {k: alpha * v[k] + (1 - alpha) * w[k] for k in v}


def mixed_loss(v: Model, w: Model, alpha: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return loss(mixed(v, w, alpha), x, y)


@both_engines
def test_with_no_share_it_predicts_with_the_global_model(engine: Engine) -> None:
    spec = "lr=0.1,momentum=0.9,weight_decay=0.01"
    training, done = trained(f"apfl(alpha=0,{spec})", engine)
    _, avg = trained(f"fedavg({spec})", engine)
    same(done.server["params"], avg.server["params"], 1e-6)
    models = training.models(done)(torch.arange(len(training.fed)))["mixed"]
    for k in range(len(training.fed)):
        same({n: p[k] for n, p in models.items()}, done.server["params"], 1e-7)


@both_engines
def test_with_the_whole_share_it_is_training_alone(engine: Engine) -> None:
    training, done = trained("apfl(alpha=1,lr=0.1)", engine, sampler=EVERYBODY)
    _, alone = trained("fedavg(shared=nothing,lr=0.1)", engine, sampler=EVERYBODY)
    models = training.models(done)(torch.arange(len(training.fed)))["mixed"]
    for k in range(len(training.fed)):
        same({n: p[k] for n, p in models.items()}, state(alone, k)["private"], 1e-6)


@both_engines
@pytest.mark.parametrize("adaptive", [False, True])
def test_apfl_is_the_plain_loop(engine: Engine, adaptive: bool) -> None:
    spec = f"apfl(alpha=0.3,adaptive={adaptive},lr=0.1,epochs=2,momentum=0.5,weight_decay=0.01)"
    training, done = trained(spec.replace("True", "true").replace("False", "false"), engine)
    w, kept = first(), {}
    for r, cohort in enumerate(cohorts(training)):
        models = []
        for k in cohort:
            v, alpha = kept.get(k, (w, torch.tensor(0.3)))
            mine, own = SGD(w, 0.1, 0.5, 0.01), SGD(v, 0.1, 0.5, 0.01)
            for x, y in batches(training, r, k, 2):
                # The client's own copy of w, as trained so far: not the received one.
                g_v = slope(mixed_loss, own.model, mine.model, alpha, x, y)
                share = alpha.clone().requires_grad_()
                at = mixed_loss(own.model, mine.model, share, x, y)
                (g_alpha,) = torch.autograd.grad(at, [share])
                own.step(g_v)
                mine.step(slope(loss, mine.model, x, y))
                if adaptive:
                    alpha = (alpha - 0.1 * g_alpha).clamp(0, 1)
            models.append(mine.model)
            kept[k] = own.model, alpha
        w = mean(models, examples(training, cohort))
    same(done.server["params"], w)
    shares = set()
    for k, (v, alpha) in kept.items():
        same(state(done, k)["v"], v)
        assert float(state(done, k)["alpha"]) == pytest.approx(float(alpha), abs=1e-5)
        shares.add(round(float(alpha), 4))
    assert (len(shares) > 1) == adaptive
    # In use it is the received model that is mixed in.
    models_now = training.models(done)(torch.tensor(sorted(kept)))["mixed"]
    for i, k in enumerate(sorted(kept)):
        same({n: p[i] for n, p in models_now.items()}, mixed(kept[k][0], w, kept[k][1]))


@both_engines
def test_two_steps_by_hand(engine: Engine) -> None:
    """``f(w) = ½(w − 3)²``, η = 0.1, α = 0.5, from 1.

    Both at 1, so α's slope is 0: v = 1 + 0.1·0.5·2 = 1.1, w = 1.2. Then the mixture is at 1.15,
    its slope −1.85: v = 1.1 + 0.1·0.5·1.85 = 1.1925, α = 0.5 − 0.1·(1.1 − 1.2)(−1.85) = 0.4815,
    w = 1.38. In use 0.4815·1.1925 + 0.5185·1.38.
    """
    training, done = trained(
        "apfl(alpha=0.5,adaptive=true,lr=0.1,epochs=2,batch_size=0)",
        engine,
        rounds=1,
        sampler=Fixed(1),
        task=bowl(),
        fed=bowls((1.0, 3.0)),
    )
    assert float(done.server["params"]["w"]) == pytest.approx(1.38)
    assert float(state(done, 0)["v"]["w"]) == pytest.approx(1.1925)
    assert float(state(done, 0)["alpha"]) == pytest.approx(0.4815)
    used = training.models(done)(torch.tensor([0]))["mixed"]["w"]
    assert float(used) == pytest.approx(0.4815 * 1.1925 + 0.5185 * 1.38)


@both_engines
def test_an_adaptive_share_stays_between_0_and_1(engine: Engine) -> None:
    """Clients with far optima: their own model wins, and α would run past 1 (or below 0)."""
    fed = bowls((1.0, 30.0), (1.0, -30.0))
    ends = []
    for alpha in (0.4, 0.9):
        _, done = trained(
            f"apfl(alpha={alpha},adaptive=true,lr=0.3,batch_size=0)",
            engine,
            rounds=1,
            sampler=Fixed(2),
            task=bowl(0.0),
            fed=fed,
        )
        ends += [float(state(done, k)["alpha"]) for k in (0, 1)]
        _, done = trained(
            f"apfl(alpha={alpha},adaptive=true,lr=0.3,batch_size=0)",
            engine,
            rounds=5,
            sampler=Fixed(2),
            task=bowl(0.0),
            fed=fed,
        )
        ends += [float(state(done, k)["alpha"]) for k in (0, 1)]
    assert all(0 <= end <= 1 for end in ends)
    assert {0.0, 1.0} <= set(ends)


def test_contract() -> None:
    check_method("apfl(alpha=0.4,adaptive=true,momentum=0.9,weight_decay=0.01,epochs=2)")


@pytest.mark.parametrize("alpha", [-0.1, 1.1])
def test_a_share_outside_0_and_1_is_refused(alpha: float) -> None:
    with pytest.raises(GlocalError, match="alpha must be between 0 and 1"):
        resolve(f"apfl(alpha={alpha})")
