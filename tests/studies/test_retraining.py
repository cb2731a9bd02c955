"""Adapted models that are kept, averaged, and trained without some clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.evaluation.evaluate import Outcome
from glocal.experiment.adaptation import adapt, techniques
from glocal.experiment.adaptation_report import complexity
from glocal.experiment.adapted_clients import adapt_clients
from glocal.experiment.fit import fit
from glocal.experiment.repeat import evaluate_trained
from glocal.experiment.run import Run
from glocal.methods import resolve
from glocal.slots.method import as_plan
from glocal.studies import retraining as further
from glocal.testing import ragged
from glocal.training.sampling import Fixed, Fraction


@pytest.fixture(scope="module")
def run() -> Run:
    alone = "local(lr=0.1, max_epochs=2)"
    return fit("fedavg", ragged(), rounds=2, seed=1, baseline=alone, progress=False)


def test_the_models_that_are_kept_are_those_chosen(run: Run) -> None:
    assert run.trained is not None
    t, given = run.trained.training, run.trained.models()
    spec = "freeze-base(lr=0.5,max_epochs=9)+distill(lr=1.0,max_epochs=9)"
    wanted = techniques(f"{spec}+fine-tune(lr=0.5,max_epochs=9)")
    where = (t.task, t.fed, t.engine)
    found = adapt_clients(*where, wanted, run.trained.models, 0, keep=True)
    assert "fine-tune" in found.by
    assert found.models is not None
    each = {w.name: adapt(*where, w, given, 0).models for w in wanted}
    for k, name in enumerate(found.by):
        chosen = given if name == "none" else each[name]
        for leaf, want in zip(tree.leaves(found.models), tree.leaves(chosen), strict=True):
            assert torch.equal(leaf[k], want[k])
    assert adapt_clients(*where, wanted[:1], run.trained.models, 0).models is None


def test_again_is_the_plain_average(run: Run) -> None:
    assert run.trained is not None
    t = run.trained.training
    torch.manual_seed(0)
    models = tree.map(lambda x: x + torch.rand_like(x), run.trained.models())
    assert len(set(t.fed.train.counts().tolist())) > 1  # and all count alike
    K = len(t.fed)
    mean = {name: sum(leaf[k] for k in range(K)) / K for name, leaf in models.items()}
    found = further.averaged(models)
    assert all(torch.allclose(found[name], mean[name], atol=1e-6) for name in mean)
    evaluated = further.again(run.trained, models)
    assert set(evaluated.chosen) == {"averaged"}
    for k in range(K):
        x, y = t.fed[k].test
        right = t.task.predict(mean, x).argmax(-1) == y
        assert torch.equal(evaluated.own[k].bool(), right)


def test_equal_models_are_their_average(run: Run) -> None:
    assert run.trained is not None
    evaluated = further.again(run.trained, run.trained.models())
    assert [o.tolist() for o in evaluated.own] == [o.tolist() for o in run.repeats[0].outcome.own]


def test_who_is_removed_never_trains(run: Run) -> None:
    assert run.trained is not None
    cohorts: list[int] = []

    def watch(progress: Any) -> None:
        cohorts.extend(progress.decision.ids.tolist())

    new = further.without(run.trained, (1, 4), watch)
    kept = set(range(len(ragged()))) - {1, 4}
    assert set(cohorts) == kept
    assert set(new.progress.clients.seen.nonzero().flatten().tolist()) == kept
    assert new.progress.round == 2
    outcome, val = evaluate_trained(new, ragged())
    assert len(outcome.own) == len(val.value) == len(ragged())  # the removed are evaluated, too


def test_without_nobody_it_is_the_same_training(run: Run) -> None:
    assert run.trained is not None
    same = further.without(run.trained, ()).progress.server["params"]
    for name, leaf in run.trained.progress.server["params"].items():
        # To rounding: with several threads, fit adds up in another order than a plain run.
        torch.testing.assert_close(same[name], leaf, atol=1e-6, rtol=1e-5)


def test_a_number_of_clients_is_at_most_those_who_are_left(run: Run) -> None:
    assert run.trained is not None
    t, clients = run.trained.training, len(ragged())
    fewer = further.among(replace(t, sampler=Fixed(clients)), (0, 1))
    assert len(fewer.sampler.cohort(clients, t.key(0, 0))) == clients - 2
    half = further.among(replace(t, sampler=Fraction(0.5)), (0, 1))
    drawn = half.sampler.cohort(clients, t.key(0, 0)).tolist()
    assert len(drawn) == round((clients - 2) / 2)
    assert not {0, 1} & set(drawn)


@pytest.mark.parametrize(
    ("method", "removed", "said"),
    [
        ("fedavg", range(len(ragged())), "nobody is left to train"),
        ("fedavg+dp(noise=1)", (0,), "dp does not protect that"),
        ("afl", (0,), "without some clients cannot be done: afl needs every client"),
    ],
)
def test_trainings_that_need_everybody_are_refused(
    run: Run, method: str, removed: Any, said: str
) -> None:
    assert run.trained is not None
    training = replace(run.trained.training, plan=as_plan(resolve(method)))
    with pytest.raises(GlocalError, match=said):
        further.among(training, removed)


def test_who_gains_nothing() -> None:
    given, alone = torch.tensor([0.5, 0.7, 0.2]), torch.tensor([0.5, 0.8, 0.1])
    assert further.gain_nothing(given, alone) == (1,)


def test_the_change_of_a_group(run: Run) -> None:
    old = run.repeats[0].outcome
    fed = ragged()

    def everybody(right: float) -> Outcome:
        own = [torch.full((len(fed.test.of(k)),), right) for k in range(len(fed))]
        return Outcome({"accuracy": [right] * len(fed)}, own, None, ["x"] * len(fed))

    found = further.changed(fed, everybody(1.0), everybody(0.0), (2, 4))
    assert (found["before"], found["after"], found["lower"]) == (1.0, 0.0, 2)
    assert found["change"]["difference"] == -1
    assert found["clients"] == [fed.names[2], fed.names[4]]
    same = further.changed(fed, old, old, (0, 1, 2))
    assert (same["worse"], same["better"], same["lower"]) == (0, 0, 0)


def test_complexity_is_the_entropy_of_labels() -> None:
    fed = ragged()
    y = fed[3].train[1].numpy()
    shares = np.bincount(y)[np.bincount(y) > 0] / len(y)
    assert complexity(fed, 3) == pytest.approx(float(-(shares * np.log2(shares)).sum()))
