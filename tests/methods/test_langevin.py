"""Energies, mixtures and Langevin steps against what can be worked out otherwise."""

from __future__ import annotations

import pytest
import torch

from glocal.core import rng
from glocal.data.schema import Schema
from glocal.methods.generative import energy, langevin
from glocal.methods.support import simplex


def test_the_gradient_of_a_mixture_is_that_of_its_energy() -> None:
    """Equation 4.13 against automatic differentiation of 4.11, each client another quadratic."""
    n = torch.tensor([10, 30, 5])
    centres = rng.normal(rng.key(0), (3, 4, 2))
    x = rng.normal(rng.key(1), (4, 2)).requires_grad_()

    def energies(x: torch.Tensor) -> torch.Tensor:
        return ((x - centres).square() * torch.tensor([0.5, 2.0, 1.0]).view(3, 1, 1)).sum(-1)

    w = n / n.sum()
    mixture = -torch.log((w.unsqueeze(1) * torch.exp(-energies(x))).sum(0))
    (want,) = torch.autograd.grad(mixture.sum(), x)
    each = torch.stack([torch.autograd.grad(e.sum(), x, retain_graph=True)[0] for e in energies(x)])
    got = energy.mixture_gradient(-energies(x).detach(), each, n.unsqueeze(1))
    torch.testing.assert_close(got, want)


def test_large_scores_do_not_overflow_a_mixture() -> None:
    scores = torch.tensor([[1000.0], [900.0]])
    got = energy.mixture_gradient(scores, torch.tensor([[[2.0]], [[5.0]]]), torch.ones(2, 1))
    assert got.tolist() == [[2.0]]


def test_who_has_none_of_a_class_has_no_say_on_its_examples() -> None:
    n = torch.tensor([[3.0, 0.0, 0.0], [1.0, 2.0, 0.0]])  # of the class of each of three examples
    gradients = torch.tensor([[1.0, 1.0, 1.0], [5.0, 5.0, 5.0]]).unsqueeze(2)
    got = energy.mixture_gradient(torch.zeros(2, 3), gradients, n)
    assert got.flatten().tolist() == [2.0, 5.0, 0.0]


def test_langevin_steps_sample_from_a_gaussian() -> None:
    """E = (x − 3)² / 8 is the energy of N(3, 4)."""
    step, x = 0.05, torch.zeros(4000)
    for t in range(400):
        eps = rng.normal(rng.fold(rng.key(2), t), (4000,))
        x = langevin.step(x, (x - 3) / 4, step, (2 * step) ** 0.5, eps)
    assert float(x.mean()) == pytest.approx(3, abs=0.1)
    assert float(x.var()) == pytest.approx(4, abs=0.3)


def test_schedules() -> None:
    def at(name: str, t: float) -> float:
        return float(langevin.SCHEDULES[name](10.0, 2.0, torch.tensor(t), 101))

    assert [at("cosine", t) for t in (0, 50, 100)] == pytest.approx([10, 6, 2], abs=1e-4)
    assert [at("linear", t) for t in (0, 25, 100)] == pytest.approx([10, 8, 2])
    assert [at("constant", t) for t in (0, 100)] == [10, 10]
    held = [at("held", t) for t in range(101)]
    assert held == sorted(held, reverse=True)
    assert held[50] > 9.5
    assert held[-1] == pytest.approx(2, abs=0.01)


def test_categories_stay_on_their_simplex_and_numbers_in_their_box() -> None:
    room = langevin.room(Schema((6,), 2, ((1, 4),)), None, None)
    x = 3 * rng.normal(rng.key(3), (50, 6))
    inside = room.nearest(x)
    want = torch.stack([simplex.project(row) for row in x[:, 1:4]])
    torch.testing.assert_close(inside[:, 1:4], want)
    others = [0, 4, 5]
    assert torch.equal(inside[:, others], x[:, others].clamp(-4, 4))
    decided = room.decided(inside)
    assert torch.equal(decided[:, 1:4].argmax(1), inside[:, 1:4].argmax(1))
    assert decided[:, 1:4].unique().tolist() == [0, 1]
    assert decided[:, 1:4].sum(1).tolist() == [1] * 50


def test_of_equal_shares_one_word_is_chosen() -> None:
    room = langevin.room(Schema((4,), 2, ((1, 4),)), None, None)
    tied = torch.tensor([[9.0, 0.4, 0.4, 0.2], [9.0, 0.0, 0.0, 0.0]])
    assert room.decided(tied).tolist() == [[9.0, 1.0, 0.0, 0.0]] * 2


def test_a_score_is_the_logit_of_the_label() -> None:
    logits = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert energy.score(logits, torch.tensor([1, 0])).tolist() == [2.0, 3.0]
