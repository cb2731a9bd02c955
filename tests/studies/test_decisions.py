"""Decisions and their cost: figures worked out anew, bounds, and that looking changes nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import stats
from studied import QUICK, digits
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.fit import fit
from glocal.experiment.runner import runner_of
from glocal.slots.server_half import whole_model
from glocal.studies.decisions import (
    Seen,
    by_transform,
    check,
    decisions,
    everybody,
    rank_correlation,
    watch,
    weighted,
)
from glocal.training.loop import Training
from glocal.training.run_state import Progress

K = 5
UNUSED = "local(lr=0.1, max_epochs=1)"


def begun(spec: str, **arguments: Any) -> tuple[Training, Progress]:
    order = Config(**{**QUICK, "engine": "sequential", **arguments})
    here = setups.make(order, digits(), 0)
    training = runner_of("method", spec).check(here)
    return training, training.begin(here.task.params)


def seen(spec: str, **arguments: Any) -> Seen:
    return watch(*begun(spec, **arguments))


def losses(fed: Federation, training: Training, params: dict[str, Tensor]) -> Tensor:
    """The loss of one model on every client's training data, client by client."""
    module = training.task.module.eval()
    rows = [fed.train.of(k) for k in range(K)]
    with torch.no_grad():
        each = [
            cross_entropy(functional_call(module, params, (fed.x[r],)), fed.y_train[r])
            for r in rows
        ]
    return torch.stack(each).double()


def newton(state: dict[str, Any]) -> Tensor:
    return state["p"]


def entropic(state: dict[str, Any]) -> Tensor:
    slope = math.sqrt(math.log(K)) / (2.4 * math.sqrt(float(state["rounds"]) + 1))
    e = torch.exp(-slope * state["g"])
    return e / e.sum()


@pytest.mark.parametrize(
    ("spec", "fraction", "standing", "cdf", "high"),
    [
        ("aaggff-s", 1.0, newton, stats.norm(1).cdf, 1 / K),
        ("aaggff-s(transform=gumbel)", 1.0, newton, stats.gumbel_r(1).cdf, 1 / K),
        # 0.45 of 5 clients are 2, and that is what responses range to: 0.4.
        ("aaggff-d(weibull)", 0.45, entropic, stats.weibull_min(2).cdf, 0.4),
    ],
)
def test_sums_worked_out_anew(
    spec: str, fraction: float, standing: Any, cdf: Any, high: float
) -> None:
    training, progress = begun(spec, fraction=fraction)
    objective = of_all = suffered = 0.0
    for _ in range(3):
        p = standing(progress.server["weighting"])
        F = losses(training.fed, training, progress.server["params"])
        training.one_round(progress)
        assert progress.decision is not None
        mean = F[progress.decision.ids].mean()
        r = high * torch.tensor(cdf((F / mean).numpy()))
        ids = progress.decision.ids
        objective += float(p[ids] @ F[ids])
        of_all += float(p @ F)
        suffered -= math.log(1 + float(p @ r))
    settings = {**QUICK, "engine": "sequential", "fraction": fraction}
    found = decisions(digits(), spec, **settings)
    assert found["high"] == pytest.approx(high)
    assert found["objective"]["mean"] == pytest.approx(objective, abs=1e-5)
    assert found["objective_of_all"]["mean"] == pytest.approx(of_all, abs=1e-5)
    assert (objective < of_all) == (fraction < 1)
    assert found["decision_loss"]["mean"] == pytest.approx(suffered, abs=1e-6)
    assert found["regret"]["mean"] == pytest.approx(
        found["decision_loss"]["mean"] - found["best_fixed"]["mean"], abs=1e-9
    )
    assert found["regret"]["mean"] > 0
    assert found["weights"][-1] == pytest.approx(standing(progress.server["weighting"]).tolist())
    assert found["heaviest"]["mean"] == max(found["weights"][-1])
    assert found["curves"]["objective"][0][-1] == found["objective"]["mean"]


@pytest.mark.parametrize("spec", ["aaggff-s", "aaggff-d", "aaggff-d(weibull)"])
def test_regret_stays_below_its_bound(spec: str) -> None:
    found = decisions(
        digits("pair-noise(0.8, clients=1)"), spec, model="mlp(8)", rounds=12, repeats=2
    )
    T = 12
    bound = 2 * (1 + math.log(1 + T / (16 * K))) if "-s" in spec else 2 * math.sqrt(T * math.log(K))
    assert found["bound"] == pytest.approx(bound)
    assert all(0 < regret < bound for regret in found["regret"]["values"])
    assert [len(c) for c in found["curves"]["regret"]] == [T, T]


def test_the_bound_with_sampling_has_the_constant_of_the_estimate() -> None:
    found = decisions(digits(), "aaggff-d", sampled=2, **QUICK)
    assert found["bound"] == pytest.approx(2 * 2.4 * math.sqrt(3 * math.log(K)))
    assert decisions(digits(), "fedavg", **QUICK)["bound"] is None


@pytest.mark.parametrize("spec", ["aaggff-d", "term", "fedavg", "uniform", "q-fedavg", "propfair"])
def test_with_sampling_everybody_has_a_weight(spec: str) -> None:
    p = seen(spec, fraction=0.4).p
    assert p.shape == (4, K)
    assert bool((p > 0).all())
    torch.testing.assert_close(p.sum(1), torch.ones(4).double())


@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_what_stands_of_weightings_that_decide_anew(fraction: float) -> None:
    n = digits().train.counts().double()
    assert len(set(n.tolist())) > 1
    shares = (n / n.sum()).expand(4, K)
    torch.testing.assert_close(seen("fedavg", fraction=fraction).p, shares, rtol=1e-6, atol=0)
    torch.testing.assert_close(
        seen("uniform", fraction=fraction).p, torch.full((4, K), 0.2).double()
    )
    found = seen("term", fraction=fraction)
    torch.testing.assert_close(found.p[0], shares[0], rtol=1e-6, atol=0)
    tilted = n * found.F.exp()  # of the round before
    expected = tilted / tilted.sum(1, keepdim=True)
    torch.testing.assert_close(found.p[1:], expected, rtol=1e-5, atol=0)


def test_with_everybody_there_what_stands_is_what_was_given() -> None:
    training, progress = begun("fedmgda")
    found = watch(training, progress)
    assert progress.decision is not None
    given = progress.decision.weights.double()
    assert float(given.sum()) != pytest.approx(1)  # a step of its own length
    torch.testing.assert_close(found.p[-1], given / given.sum())
    n = digits().train.counts().double()
    torch.testing.assert_close(found.p[0], n / n.sum())  # nobody has moved


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("spec", ["aaggff-d", "scaffold+adam", "ditto", "lg-fedavg+aaggff-d"])
def test_looking_does_not_change_training(spec: str, engine: str) -> None:
    settings: dict[str, Any] = {**QUICK, "engine": engine, "fraction": 0.6}
    training, progress = begun(spec, **settings)
    watch(training, progress)
    run = fit(spec, digits(), baseline=UNUSED, progress=False, **settings)
    ours = whole_model(training.task, progress.server)
    assert ours.keys() == run.model.keys()
    assert all(torch.equal(ours[k], run.model[k]) for k in ours)
    ids, states = progress.clients.saved()
    theirs = {"ids": ids, **states}
    pairs = zip(tree.leaves(theirs), tree.leaves(run.states), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_engines_see_the_same() -> None:
    one, other = (seen("fedrep+aaggff-d", engine=e) for e in ("sequential", "vectorised"))
    for name in ("p", "F", "mean"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", ["aaggff-d", "term"])
def test_rounds_in_which_nobody_comes_count_too(spec: str) -> None:
    settings: dict[str, Any] = {"fraction": 0.1, "poisson": True, "rounds": 6}
    training, progress = begun(spec, **settings)
    found = watch(training, progress)
    empty = [i for i, line in enumerate(progress.history) if line["cohort"] == 0]
    assert 0 < len(empty) < 6
    for i in empty:
        torch.testing.assert_close(found.mean[i], found.F[i].mean())
    if spec == "aaggff-d":
        assert torch.equal(found.p[empty[0]], found.p[empty[0] + 1])
    figures = decisions(digits(), spec, repeats=2, **{**QUICK, **settings})
    assert [len(c) for c in figures["curves"]["objective"]] == [6, 6]


def test_stages_begin_anew_and_have_no_bound() -> None:
    spec = "lg-fedavg(warmup=2)+aaggff-d"
    found = seen(spec, rounds=4)
    assert found.p[1].std() > 0
    torch.testing.assert_close(found.p[2], torch.full((K,), 0.2).double())
    assert found.p[3].std() > 0
    assert decisions(digits(), spec, **QUICK)["bound"] is None


@pytest.mark.parametrize(
    ("spec", "settings", "says"),
    [
        ("fedavg", {"response": "nromal"}, "did you mean 'normal'"),
        ("local", {}, "decides nothing"),
        ("aaggff-s", {"fraction": 0.5}, "needs every client"),
        ("afl", {"sampled": 2}, "needs every client"),
        ("grad-norm", {"fraction": 0.5}, "with every client in every round"),
        ("fedmgda", {"sampled": 2}, "with every client in every round"),
        ("aaggff-d(transform=nromal)", {}, "did you mean 'normal'"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_anyone_trains(
    monkeypatch: pytest.MonkeyPatch, spec: str, settings: dict[str, Any], says: str
) -> None:
    monkeypatch.setattr(Training, "one_round", lambda *_: pytest.fail("somebody trained"))
    for study in (check, decisions):
        with pytest.raises(GlocalError, match=says):
            study(digits(), spec, **{**QUICK, **settings})


def test_methods_unless_given() -> None:
    assert by_transform(True)[:2] == [
        "aaggff-s(transform=normal)",
        "aaggff-s(transform=exponential)",
    ]
    assert len(by_transform(False)) == 6
    assert weighted(True) == ["fedavg", "term", "afl", "aaggff-s", "aaggff-d"]
    for spec in weighted(False):
        check(digits(), spec, fraction=0.4, **QUICK)
    assert everybody(20, 0.99, None)  # 19.8 clients are 20
    assert everybody(20, 1.0, 20)
    assert not everybody(20, 1.0, 19)
    assert not everybody(20, 0.5, None)


def test_rank_correlation_is_spearmans() -> None:
    x, y = [0.3, 0.1, 0.9, 0.9, 0.5], [2.0, 1.0, 3.0, 2.5, 2.5]
    assert rank_correlation(x, y) == pytest.approx(float(stats.spearmanr(x, y).statistic))
    assert rank_correlation(x, [0.2, 0.2 + 1e-12, 0.2, 0.2, 0.2]) is None
