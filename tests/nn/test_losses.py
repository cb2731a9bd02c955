"""Losses by name, against torch's and by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from glocal.core.errors import GlocalError
from glocal.core.target import TASKS, Target
from glocal.nn.losses import LOSSES, named, resolve
from glocal.nn.task import Task, try_out

OUTPUT = torch.tensor([[0.5], [-2.0], [3.0]])
Y = torch.tensor([0.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [("squared", [0.125, 2.0, 2.0]), ("absolute", [0.5, 2.0, 2.0]), ("huber", [0.125, 1.5, 1.5])],
)
def test_losses_of_numbers_by_hand(name: str, by_hand: list[float]) -> None:
    assert named(name, "regression")(OUTPUT, Y).tolist() == pytest.approx(by_hand)


def test_poisson_is_half_the_deviance() -> None:
    mean, counts = 4.0, torch.tensor([0.0, 3.0, 9.0])
    ours = named("poisson", "counts")(OUTPUT, counts / mean)
    said, best = (
        torch.distributions.Poisson(m) for m in (mean * OUTPUT[:, 0].exp(), counts + 1e-9)
    )
    theirs = (best.log_prob(counts) - said.log_prob(counts)) / mean
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_errors_of_counts_are_those_of_what_is_predicted() -> None:
    assert torch.allclose(named("absolute", "counts")(OUTPUT, Y), (OUTPUT[:, 0].exp() - Y).abs())


def test_every_task_names_losses_that_there_are() -> None:
    assert {loss for kind in TASKS.values() for loss in kind.losses} == set(LOSSES)
    assert named(None, "regression") is named("squared", "regression")
    with pytest.raises(GlocalError, match="poisson is no loss of regression: use squared or"):
        named("poisson", "regression")


def test_a_module_that_averages_is_refused() -> None:
    with pytest.raises(GlocalError, match=r"write CrossEntropyLoss\(reduction='none'\)"):
        resolve(torch.nn.CrossEntropyLoss(), "classification")
    assert resolve(torch.nn.CrossEntropyLoss(reduction="none"), "classification") is not None
    with pytest.raises(GlocalError, match=r"is a class.* write CrossEntropyLoss\(reduction='none"):
        resolve(torch.nn.CrossEntropyLoss, "classification")


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        (functional.cross_entropy, r"of shape \(2,\) here, and gave shape \(\): take no mean"),
        (lambda o, y: 3, "and gave 3: take no mean"),
        (lambda o, y: o[0], r"gave shape \(3,\)"),
        (lambda o, y: o @ y, "the loss cannot take outputs of shape .* RuntimeError"),
    ],
)
def test_a_function_must_give_one_loss_for_each_example(losses: Any, said: str) -> None:
    with pytest.raises(GlocalError, match=said):
        try_out(Task(torch.nn.Linear(4, 3), losses=losses), torch.rand(5, 4), torch.arange(5) % 3)


@pytest.mark.parametrize("task", ["regression", "counts"])
def test_units_come_back(task: str) -> None:
    y = torch.tensor([1.0, 4.0, 7.0, 100.0], dtype=torch.float64)
    target = Target(task).fitted(y)
    seen = target.standardised(y)
    assert torch.allclose(target.labels(seen), y, rtol=1e-6)
    if task == "regression":
        assert float(seen.mean()) == pytest.approx(0, abs=1e-6)
        assert float(seen.std(unbiased=False)) == pytest.approx(1)
        output = seen[:, None]
    else:
        assert float(seen.mean()) == pytest.approx(1)
        output = seen.log()[:, None]
    assert torch.allclose(target.predictions(output), y, rtol=1e-5)
    assert Target.from_json(target.to_json()) == target
