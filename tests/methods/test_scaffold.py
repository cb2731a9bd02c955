"""SCAFFOLD: the correction, its variates by hand, and the optimum that FedAvg misses."""

from __future__ import annotations

import pytest
import torch
from loops import (
    ENGINES,
    SGD,
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
    state,
    trained,
)

from glocal.core.errors import GlocalError
from glocal.engines import Engine
from glocal.methods import resolve
from glocal.testing import check_method
from glocal.training.sampling import Fixed

both_engines = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)


@both_engines
def test_scaffold_is_the_plain_loop(engine: Engine) -> None:
    """Half of the clients in a round, so c moves by half of the mean change."""
    training, done = trained("scaffold(lr=0.1,epochs=2,schedule=step(0.5,2))", engine, rounds=4)
    zero = {n: torch.zeros_like(p) for n, p in first().items()}
    w, c, own = first(), zero, {}
    for r, cohort in enumerate(cohorts(training)):
        lr = 0.1 * 0.5 ** (r // 2)
        models, changes = [], []
        for k in cohort:
            mine, c_i, steps = SGD(w, lr), own.get(k, zero), 0
            for x, y in batches(training, r, k, 2):
                g = slope(loss, mine.model, x, y)
                mine.step({n: g[n] - c_i[n] + c[n] for n in g})
                steps += 1
            new = {n: c_i[n] - c[n] + (w[n] - mine.model[n]) / (steps * lr) for n in w}
            changes.append({n: new[n] - c_i[n] for n in w})
            models.append(mine.model)
            own[k] = new
        w = mean(models, [1.0] * len(models))
        change = mean(changes, [1.0] * len(changes))
        c = {n: c[n] + len(cohort) / 6 * change[n] for n in c}
    same(done.server["params"], w)
    same(done.server["memory"]["c"], c, 5e-5)
    for k, c_i in own.items():
        same(state(done, k)["c"], c_i, 5e-5)
    _, avg = trained("fedavg(lr=0.1,epochs=2,schedule=step(0.5,2))+uniform", engine, rounds=4)
    assert gap(done.server["params"], avg.server["params"]) > 1e-2


@both_engines
def test_the_first_round_is_fedavg_and_the_second_is_not(engine: Engine) -> None:
    """All variates are zero at first; a correction that does nothing would stay FedAvg."""
    for rounds, differs in ((1, False), (2, True)):
        _, done = trained("scaffold(lr=0.1)", engine, rounds=rounds)
        _, avg = trained("fedavg(lr=0.1)+uniform", engine, rounds=rounds)
        distance = gap(done.server["params"], avg.server["params"])
        assert distance > 1e-3 if differs else distance < 1e-6


@both_engines
def test_one_step_by_hand(engine: Engine) -> None:
    """Optima 3 and −1 with curvatures 1 and 2, η = 0.1, from 1, one step a round.

    Slopes −2 and 4 are the first c_i; c is their mean, 1; w = 1 + 0.1·mean(2, −4) = 0.9. Then the
    slopes are −2.1 and 3.8, corrected −2.1 + 2 + 1 = 0.9 and 3.8 − 4 + 1 = 0.8, so w_i = 0.81 and
    0.82, w = 0.815; c_i⁺ = c_i − c + corrected slope = −2.1 and 3.8, c = 0.85.
    """
    fed = bowls((1.0, 3.0), (2.0, -1.0), sizes=(8, 24))
    for rounds, w, c_i, c in ((1, 0.9, (-2.0, 4.0), 1.0), (2, 0.815, (-2.1, 3.8), 0.85)):
        _, done = trained(
            "scaffold(lr=0.1,epochs=1,batch_size=0)",
            engine,
            rounds=rounds,
            sampler=Fixed(2),
            task=bowl(),
            fed=fed,
        )
        assert float(done.server["params"]["w"]) == pytest.approx(w)
        assert [float(state(done, k)["c"]["w"]) for k in (0, 1)] == pytest.approx(c_i, abs=1e-5)
        assert float(done.server["memory"]["c"]["w"]) == pytest.approx(c, abs=1e-5)


@both_engines
@pytest.mark.parametrize("sampled", [1, 2, 4])
def test_c_moves_by_the_share_that_took_part(engine: Engine, sampled: int) -> None:
    """The first c_i⁺ is the slope at 1, so c is the sum of the cohort's slopes over K = 4."""
    clients = ((1.0, 3.0), (2.0, -1.0), (1.0, 0.0), (3.0, 2.0))
    training, done = trained(
        "scaffold(lr=0.1,epochs=1,batch_size=0)",
        engine,
        rounds=1,
        sampler=Fixed(sampled),
        task=bowl(),
        fed=bowls(*clients),
    )
    (cohort,) = cohorts(training)
    slopes = [a * (1.0 - b) for a, b in (clients[k] for k in cohort)]
    assert float(done.server["memory"]["c"]["w"]) == pytest.approx(sum(slopes) / 4, abs=1e-5)


@both_engines
def test_it_finds_the_optimum_that_fedavg_misses(engine: Engine) -> None:
    """Curvatures 1 and 10, optima 0 and 1, eight local steps of size 0.05, everybody.

    The sum of the losses is least at Σab/Σa = 10/11. FedAvg rests where w is the mean of
    b + (w − b)(1 − ηa)⁸, which leans towards the flat client's optimum.
    """
    clients, lr, steps = ((1.0, 0.0), (10.0, 1.0)), 0.05, 8
    keep = [(1 - lr * a) ** steps for a, _ in clients]
    biased = sum((1 - q) * b for q, (_, b) in zip(keep, clients, strict=True)) / (2 - sum(keep))
    optimum = 10 / 11
    ends = {}
    for base in ("scaffold", "fedavg"):
        _, done = trained(
            f"{base}(lr={lr},epochs={steps},batch_size=0)",
            engine,
            rounds=40,
            sampler=Fixed(2),
            task=bowl(0.3),
            fed=bowls(*clients),
        )
        ends[base] = float(done.server["params"]["w"])
    assert ends["fedavg"] == pytest.approx(biased, abs=1e-5)
    assert abs(ends["fedavg"] - optimum) > 0.1
    assert ends["scaffold"] == pytest.approx(optimum, abs=1e-5)


@pytest.mark.parametrize(
    "settings",
    ["momentum=0.9", "weight_decay=0.01", "optimiser=adam", "optimiser=adamw"],
)
def test_what_its_formula_does_not_hold_for_is_refused(settings: str) -> None:
    with pytest.raises(GlocalError, match=r"scaffold (needs|cannot take)"):
        resolve(f"scaffold({settings})")


def test_private_layers_are_refused() -> None:
    with pytest.raises(GlocalError, match="scaffold corrects whole models"):
        resolve("scaffold(shared=last(1))")


def test_contract() -> None:
    check_method("scaffold(lr=0.05,epochs=2,schedule=step(0.9))")
