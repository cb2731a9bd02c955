"""Gradients as methods declare them, against those that were counted while they trained."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import glocal
from comparing import compared
from glocal.engines import Sequential
from glocal.engines.gradients import gradients, trained_on
from glocal.methods import resolve
from glocal.methods.generative.networks import Nets
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.client import Phase, minibatch_training
from glocal.slots.method import Method, as_plan
from glocal.testing import SIZES, ragged
from glocal.training.loop import Training
from glocal.training.sampling import Fixed
from glocal.training.stragglers import Stragglers
from specs import EVERYBODY, SMALL, SPECS

MORE = [
    "apfl(adaptive=true)",
    "fedavg(batch_size=0,epochs=3)",
    "fedcgan(width=1,code=2,steps=4,batch_size=4)",
    "fedcvae(width=1,code=2,steps=7,batch_size=0)",
    "fedevg(spc=2,chain=3,steps=3,batch_size=4)",
    "fedevg(spc=2,batch_size=0)",
    "fedevg(spc=1,synthetic_batch=2)",
    "fedrep(head_epochs=3,epochs=2,shared=everything)",
    "fedrep(head_epochs=3,shared=nothing)",
    "pfedme(inner=3,epochs=1)",
    "superfed-mm(start=0.5)",
]


class Counter:
    """How many examples went through a model while a gradient was taken.

    Clients may train in several threads: each knows for itself whether it takes a gradient.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, self.lock, self.here = 0, threading.Lock(), threading.local()
        for kind, name, place in (
            (Task, "logits", 2),
            (Task, "predict", 2),
            (Nets, "critic", 2),
            (Nets, "encoder", 2),
        ):
            patch.setattr(kind, name, self.counting(getattr(kind, name), place))
        grad = Task.grad

        def counted(task: Task, objective: Any, at: Any) -> Any:
            with self.taken():
                return grad(task, objective, at)

        patch.setattr(Task, "grad", counted)

    @contextmanager
    def taken(self) -> Iterator[None]:
        self.here.inside = True
        yield
        self.here.inside = False

    def counting(self, function: Any, place: int) -> Any:
        def call(*args: Any) -> Any:
            if getattr(self.here, "inside", False):
                with self.lock:
                    self.count += len(args[place])
            return function(*args)

        return call


def task(fed: glocal.Federation) -> Task:
    return Task(models.build("mlp(3)", input_shape=tuple(fed.x.shape[1:]), classes=fed.classes))


# dp-sgd draws how many examples a batch has: what it declares is their mean.
@pytest.mark.parametrize("spec", [*(spec for spec in SPECS if spec != "dp-sgd"), *MORE])
def test_declared_is_what_was_computed(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fed, many = ragged(), spec in EVERYBODY
    plan, sampler = as_plan(resolve(SMALL.get(spec, spec))), Fixed(len(SIZES) if many else 3)
    training = Training(plan, task(fed), fed, Sequential(), sampler, 2, 3)
    progress = training.begin(training.task.params)
    counter = Counter(monkeypatch)
    rounds = []
    for slow in (None, Stragglers(0.7, 0.0, used=True)):
        before = counter.count
        # The round alone: evaluation may have clients solve for their models.
        monkeypatch.setattr(Training, "_after", lambda *_: None)
        replace(training, stragglers=slow).one_round(progress)
        rounds.append(counter.count - before)
    assert rounds[0] > 0
    assert [line["gradients"] for line in progress.history] == rounds


def test_by_hand() -> None:
    """Seven and four examples in batches of three."""
    n, step = torch.tensor([7, 4]), minibatch_training().step

    def counted(**phase: Any) -> tuple[list[int], list[int]]:
        examples, steps = trained_on(Phase("train", 2, step, **phase), n, 3)
        return examples.tolist(), steps.tolist()

    assert counted() == ([14, 8], [6, 4])
    # Four steps: 3 + 3 + 1 and 3 of the next pass; 3 + 1 and 3 + 1.
    assert counted(steps=4) == ([10, 8], [4, 4])
    assert trained_on(Phase("train", 1, step, steps=5), n, 0)[0].tolist() == [35, 20]
    # Half of six steps, and a tenth of four, which is one.
    part = torch.tensor([0.5, 0.1], dtype=torch.float64)
    some = trained_on(Phase("train", 2, step), n, 3, part)
    assert [each.tolist() for each in some] == [[7, 3], [3, 1]]


def test_of_other_examples() -> None:
    def others(down: Any, steps: Tensor) -> Tensor:
        return steps * down["of_each_step"]

    local = minibatch_training(batch_size=3).replace(other_gradients=others)
    assert gradients(local, torch.tensor([7, 4]), {"of_each_step": 10}).tolist() == [37, 24]


def test_a_run_says_what_it_and_its_baseline_took() -> None:
    fed = ragged()
    n = fed.train.counts()
    settings: dict[str, Any] = {"rounds": 3, "model": "mlp(3)"}
    runs = compared(
        ["ditto(epochs=2)", "fedavg(epochs=2)", "local(lr=0.1,max_epochs=4,patience=4,epochs=3)"],
        fed,
        baseline="local(max_epochs=1)",
        **settings,
    )
    assert [run.summary["gradient_evaluations"] for run in runs.values()] == [
        int(n.sum()) * count for count in (3 * 2 * 2, 3 * 2, 4 * 3)
    ]
    # The baseline tried three rates, an epoch each.
    assert runs["ditto(epochs=2)"].baseline[0].gradients == 3 * int(n.sum())
    for run in runs.values():
        assert run.seconds > 0
        assert "seconds" not in run.summary


def test_a_client_that_stops_early_takes_fewer() -> None:
    """Patience of one: a run ends with its first epoch that is not kept."""
    fed = ragged()
    run = glocal.fit("local(lr=0.1,max_epochs=30,patience=1)", fed, model="mlp(3)")
    n = fed.train.counts()
    assert int(n.sum()) <= run.summary["gradient_evaluations"] < 30 * int(n.sum())


def test_a_baseline_that_is_refitted_learns_from_validation_data_too() -> None:
    """An epoch at its rate, and one on training and validation data."""
    fed = ragged()
    n, more = fed.train.counts(), fed.val.counts()
    run = glocal.fit("local(lr=0.1,max_epochs=1)", fed, model="mlp(3)", tune=True)
    assert run.summary["gradient_evaluations"] == int((n + n + more).sum())


def test_an_own_method_declares_what_its_step_takes() -> None:
    base = minibatch_training(epochs=1)
    local = base.replace(step=base.step, gradients=4)
    fed = ragged()
    run = glocal.fit(Method(local=local), fed, rounds=2, model="mlp(3)", fraction=1.0)
    assert run.summary["gradient_evaluations"] == 2 * 4 * len(fed.train.rows)
