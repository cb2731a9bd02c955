"""Learning curves: what a line says of the models, and when; training does not care."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import toys
from glocal.data.split import from_counts
from glocal.engines import Vectorised
from glocal.evaluation.measures import named
from glocal.evaluation.scores import Scores, recorded
from glocal.methods import resolve
from glocal.nn.task import Task
from glocal.slots.method import as_plan
from glocal.testing import ragged
from glocal.testing.trees import assert_same
from glocal.training.evaluated_rounds import some_rows
from glocal.training.loop import Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fraction


def training(method: Any, **changes: Any) -> Training:
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    settings: dict[str, Any] = {"rounds": 3, "seed": 0, "sampler": Fraction(1.0), **changes}
    settings = {"fed": ragged(), "engine": Vectorised(), **settings}
    return Training(plan, Task(toys.dropout_net()), **settings)


def run(job: Training) -> Progress:
    return job.run(job.begin(job.task.params))


def test_the_worst_tenth_and_gini_by_hand() -> None:
    values = [0.9, 0.5, 0.7, 0.2, 0.8, 1.0, 0.6, 0.9, 0.4, 0.7, 0.3]
    found = Scores(torch.tensor(values), torch.ones(11))
    line = recorded(Task(toys.dropout_net()), found)
    assert line["val_worst10"] == pytest.approx((0.2 + 0.3) / 2)  # a tenth of 11, rounded up
    pairs = sum(abs(a - b) for a in values for b in values) / (2 * 11 * 11)
    assert line["val_gini"] == pytest.approx(100 * pairs / (sum(values) / 11), rel=1e-5)
    assert line["val_accuracy"] == pytest.approx(sum(values) / 11)
    assert "train_loss" not in line
    # Of an error the largest are the worst; a client without a value is none.
    task = Task(toys.dropout_net(), metric=named("brier"))
    line = recorded(task, Scores(-torch.tensor([0.1, float("nan"), 0.3]), torch.ones(3)))
    assert line["val_worst10"] == pytest.approx(0.3)
    assert line["val_brier"] == pytest.approx(0.2)
    assert line["val_gini"] == pytest.approx(25.0)


def test_some_training_rows_evenly_spaced() -> None:
    train = from_counts(torch.arange(100, 117), torch.tensor([10, 1, 6]))
    rows = some_rows(train, from_counts(torch.arange(8), torch.tensor([3, 2, 3])))
    assert [rows.of(k).tolist() for k in range(3)] == [[100, 103, 106], [110], [111, 113, 115]]


@pytest.mark.parametrize("method", ["fedavg", "two candidates"])
def test_a_line_is_what_a_loop_over_clients_finds(method: str) -> None:
    """With the models that clients would use: the candidate that does best on validation data."""
    job = training(toys.two_candidates() if method != "fedavg" else method, rounds=2)
    job = replace(job, validate_every=1)
    done = run(job)
    losses, accuracies, trained = [], [], []
    for k in range(len(job.fed)):
        best = None
        for model in job.models(done)(torch.tensor([k])).values():
            params = {name: leaf[0] for name, leaf in model.items()}

            def loss_and_hits(x: Any, y: Any, params: Any = params) -> tuple[float, float]:
                logits = job.task.predict(params, x)
                hits = (logits.argmax(1) == y).float().mean()
                return float(torch.nn.functional.cross_entropy(logits, y)), float(hits)

            loss, accuracy = loss_and_hits(*job.fed[k].val)
            if best is None or (accuracy, -loss) > (best[1], -best[0]):
                rows = some_rows(job.fed.train, job.fed.val).of(k)
                best = loss, accuracy, loss_and_hits(job.fed.x[rows], job.fed.y_train[rows])[0]
        assert best is not None
        for kept, value in zip((losses, accuracies, trained), best, strict=True):
            kept.append(value)
    last = done.history[-1]
    assert last["val_loss"] == pytest.approx(sum(losses) / 6, rel=1e-4)
    assert last["val_accuracy"] == pytest.approx(sum(accuracies) / 6, rel=1e-4)
    assert last["val_worst10"] == pytest.approx(min(accuracies), abs=1e-6)
    assert last["train_loss"] == pytest.approx(sum(trained) / 6, rel=1e-4)
    assert all("train_loss" in line for line in done.history)


@pytest.mark.parametrize("method", ["fedavg+adam", "pfedme", "ditto"])
def test_training_comes_to_the_same_bits_with_it_and_without(method: str) -> None:
    """Also where clients that never took part train before they are evaluated (pFedMe)."""
    how: dict[str, Any] = {"sampler": Fraction(0.4), "fed": central()}
    plain, looked = (run(training(method, validate_every=e, **how)) for e in (0, 1))
    assert_same("evaluated", "server", looked.server, plain.server)
    ids, states = plain.clients.saved()
    assert torch.equal(looked.clients.saved()[0], ids)
    assert_same("evaluated", "clients", looked.clients.saved()[1], states)
    assert "val_loss" in looked.history[0]
    assert "val_loss" not in plain.history[0]
    assert looked.history[-1] == plain.history[-1]


def central() -> Any:
    fed = ragged()
    return replace(fed, central=(fed.x[:9] + 0.5, fed.y[:9]))


def test_the_servers_model_on_the_central_test_set() -> None:
    fed = central()
    assert fed.central is not None
    job = training("fedavg", fed=fed, rounds=1)
    done = run(job)
    logits = job.task.predict(done.server["params"], fed.central[0])
    expected = float((logits.argmax(1) == fed.central[1]).float().mean())
    assert done.history[-1]["central_accuracy"] == pytest.approx(expected)
    private = run(training("fedper", fed=fed, rounds=1)).history[-1]
    assert "central_accuracy" not in private  # the server lacks the head
    assert "central_accuracy" not in run(replace(job, by_client=True)).history[-1]


def test_how_often_by_default() -> None:
    every = {t: training("fedavg", rounds=t, validate_every=None).spacing for t in (1, 20, 21, 200)}
    assert every == {1: 1, 20: 1, 21: 2, 200: 10}
    few = training("fedavg", rounds=200, validate_every=None, sampler=Fraction(1 / 6))
    # 12 of 43 rows are looked at, and a sixth of 32 trained on with 3 passes, in tenths of them.
    looked = int(few.training_rows.counts().sum() + few.fed.val.counts().sum())
    trained = 3 * int(few.gradients[0].sum()) / 6
    assert few.spacing == max(10, round(10 * looked / (trained + 1)))
    assert training("fedavg", rounds=200, validate_every=7).spacing == 7
    # Of pFedMe's clients (5/6)^t have never trained after t rounds, and do so to be evaluated.
    late = training("pfedme", rounds=40, validate_every=None, sampler=Fraction(1 / 6))
    absent = sum((5 / 6) ** t for t in range(1, 41)) / 40
    trained = 3 * int(late.gradients[0].sum())
    assert late.spacing == round(10 * (looked + absent * trained) / (trained / 6 + 1)) > 2
