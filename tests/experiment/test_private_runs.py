"""Private runs: what they spent and say of it, when they end, and what is refused before."""

from __future__ import annotations

import math
import re
import sys
from typing import Any

import pytest
import torch

import glocal
import toys
from glocal.core.errors import GlocalError
from glocal.slots import accounting
from glocal.slots.accounting import Scheme
from glocal.slots.client import minibatch_training
from glocal.slots.method import Method
from glocal.slots.privacy import dp, in_words, shown
from glocal.testing import check_method, ragged

QUICK = "local(lr=0.1,max_epochs=2)"


def fit(spec: Any, **settings: Any) -> glocal.Run:
    given: dict[str, Any] = {"model": "mlp(7)", "rounds": 4, "baseline": QUICK, **settings}
    return glocal.fit(spec, ragged(), **given)


def test_a_run_says_what_it_spent() -> None:
    run = fit("dp(clip=0.5,noise=2.0)", sampled=2, poisson=True)
    scheme = Scheme("poisson", 6, 2)
    want = accounting.epsilon(scheme, 2.0, 4, 1e-5)
    assert run.summary["epsilon"] == pytest.approx(want)
    assert run.summary["rounds"] == 4
    spent = run.summary["privacy"]
    assert spent == {
        "epsilon": run.summary["epsilon"],
        "delta": 1e-5,
        "vacuous": False,
        "noise": 2.0,
        "clip": 0.5,
        "where": "central",
        "neighbours": "add or remove one client",
        "sampling": "Poisson, 2 of 6 clients on average",
        "accountant": "PLD",
        "rounds": 4,
        "noise_key": "secret",
    }
    assert fit("fedavg").summary["epsilon"] is None
    assert "privacy" not in fit("fedavg").summary


@pytest.mark.parametrize(
    ("spec", "settings", "scheme", "noise"),
    [
        ("dp(noise=3,delta=0.001)", {}, Scheme("all", 6, 6), 3.0),
        ("dp(noise=3,delta=0.001)", {"sampled": 2}, Scheme("fixed", 6, 2), 3.0),
        ("dp(noise=3,delta=0.001)", {"fraction": 0.5}, Scheme("fixed", 6, 3), 3.0),
        ("dp(noise=3,delta=0.001,where=local)", {"sampled": 2}, Scheme("local", 6, 6), 3.0),
        ("dp(noise=3,delta=0.001,quantile=0.5)", {}, Scheme("all", 6, 6), 3.0),
        ("lg-fedavg(warmup=2)+dp(noise=3,delta=0.001)", {}, Scheme("all", 6, 6), 3.0),
    ],
)
def test_each_sampling_has_its_account(
    spec: str, settings: dict[str, Any], scheme: Scheme, noise: float
) -> None:
    run = fit(spec, **settings)
    assert run.summary["epsilon"] == pytest.approx(accounting.epsilon(scheme, noise, 4, 1e-3))
    assert run.summary["privacy"]["sampling"] == str(scheme)
    assert run.summary["privacy"]["neighbours"] == scheme.neighbours


def test_training_ends_when_the_budget_is_spent() -> None:
    spec = "dp(clip=0.5,noise=2.0,epsilon=4)"
    run = fit(spec, rounds=30, public_noise=True)
    scheme = Scheme("all", 6, 6)
    rounds = accounting.rounds_for(4.0, scheme, 2.0, 1e-5)
    assert 1 < rounds < 30
    assert len(run.history) == run.summary["rounds"] == rounds
    assert run.summary["epsilon"] <= 4 < accounting.epsilon(scheme, 2.0, rounds + 1, 1e-5)
    last = run.history[-1]
    assert last["stopped"] == "the privacy budget is spent"
    assert "val_accuracy" in last  # it ends as any run ends
    assert not any("stopped" in line for line in run.history[:-1])
    spent = run.summary["privacy"]
    assert (spent["budget"], spent["budget_spent"]) == (4, True)
    assert f"is spent: training ended after round {rounds}" in in_words(spent)
    enough = fit(spec, rounds=rounds)
    assert len(enough.history) == rounds
    assert not enough.summary["privacy"]["budget_spent"]
    assert "stopped" not in enough.history[-1]
    # The rounds that were run are those of a run without a budget.
    plain = fit("dp(clip=0.5,noise=2.0)", rounds=rounds, public_noise=True)
    assert all(torch.equal(plain.model[k], w) for k, w in run.model.items())


def test_no_noise_is_no_protection() -> None:
    run = fit("dp(noise=0)")
    assert run.summary["epsilon"] == math.inf
    assert run.summary["privacy"]["vacuous"]
    assert "ε = ∞ (vacuous: no protection)" in in_words(run.summary["privacy"])


def test_the_word_stands_beside_the_number() -> None:
    assert shown(0.4974) == "0.497"
    assert shown(18.5) == "18.5 (vacuous)"
    assert shown(1e7) == "1.0e+07 (vacuous)"
    spent = fit("dp(noise=0.1)").summary["privacy"]
    assert re.search(
        r"ε = \d+ \(vacuous\) at δ = 1e-05 after 4 rounds, for what the", in_words(spent)
    )


def more() -> Method:
    base = minibatch_training()

    def finish(task: Any, down: Any, carry: Any) -> Any:
        update, state, _ = base.finish(task, down, carry)
        return update, state, {"count": torch.ones(())}

    return Method(local=base.replace(finish=finish), privacy=dp())


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("dp+term", "all count alike, so term cannot go with it: leave the weighting out"),
        ("dp+by-examples", "all count alike, so by-examples cannot go with it"),
        ("scaffold+dp", "dp protects the update alone, and scaffold sends more than that: use"),
        ("dp+median", "dp adds noise made for a mean, so median cannot go with it"),
        ("dp+krum", "so krum cannot go with it: leave one of the two out"),
        ("local+dp", "local sends nothing, so the rest of 'local.dp' would do nothing"),
        ("dp+dp", r"dp and dp in .* fill the same slot \(privacy\)"),
        ("lg-fedavg(goal=0.9)+dp", "a goal looks at the clients' validation data, which dp does"),
        (more, r"this method's clients send more than that \(count\): use another base"),
        ("dp(clip=0)", "clip must be above 0, not 0"),
        ("dp(clip=-1)", "clip must be above 0, not -1"),
        ("dp(noise=-1)", "noise must be 0 or more, not -1"),
        ("dp(noise=much)", "in dp, noise must be a number, not 'much'"),
        ("dp(delta=1)", "delta must be above 0 and below 1, not 1"),
        ("dp(epsilon=0)", "epsilon must be above 0, not 0"),
        ("dp(quantile=1.5)", "quantile must be above 0 and below 1, not 1.5"),
        ("dp(where=server)", "unknown place of the noise 'server': known are central, local"),
        ("dp(where=local,quantile=0.5)", "so it cannot go with where=local: leave quantile out"),
        ("dp(noise=1,epsilon=1)", r"first round of dp\(noise=1\) would cost ε = 4.38, more than"),
        ("dp(noise=0,epsilon=1)", "would cost ε = inf, more than the budget of 1: add noise"),
    ],
)
def test_what_is_refused_before_anyone_trains(
    method: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("somebody trained")

    monkeypatch.setattr("glocal.experiment.setup.measured", never)
    with pytest.raises(GlocalError, match=message):
        fit(method() if callable(method) else method)


def test_without_the_accountant_nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(GlocalError, match=r"pip install 'glocal\[privacy\]'"):
        fit("dp")


def test_toys_without_extras_may_be_private() -> None:
    method = toys.own_model().replace(privacy=dp(noise=0.5))
    check_method(method)
    assert fit(method).summary["epsilon"] > 0
