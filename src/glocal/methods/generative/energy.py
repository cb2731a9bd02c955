"""The energy model that hides in a classifier, and the energy of a mixture of such models.

Grathwohl et al., *Your classifier is secretly an energy based model and you should treat it like
one*, ICLR 2020: with logits f, ``E(x, y) = −f(x)[y]``, so that p(x, y) ∝ exp(f(x)[y]).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.types import Params
from glocal.methods.generative import langevin
from glocal.nn.task import Task


def score(logits: Tensor, y: Tensor) -> Tensor:
    """``−E(x, y) = f(x)[y]`` of each example."""
    return logits.gather(1, y.unsqueeze(1)).squeeze(1)


def gradient(task: Task, w: Params, x: Tensor, y: Tensor) -> Tensor:
    """``∇_x E(x, y)`` of each example, the model in evaluation mode."""
    # Examples do not meet in the model, so the gradient of the sum is each one's own.
    grads, _ = task.grad(lambda at: -score(task.predict(w, at["x"]), y).sum(), {"x": x})
    g: Tensor = grads["x"]
    return g.detach()


@dataclass(frozen=True)
class Chain:
    """Langevin steps of size γ and with noise σ, by which examples find low energy."""

    steps: int
    gamma: float
    sigma: float
    clip: float | None
    """What gradients are clipped to."""

    def end(
        self,
        task: Task,
        w: Params,
        x: Tensor,
        y: Tensor,
        key: Tensor,
        inside: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Where chains end that begin at ``x``; every step is brought ``inside``.

        The children of a step's key from 0 up belong to the task's augmentation and dropout, and
        −2 to who begins: noise is drawn from −3 down.
        """
        for r in range(self.steps):
            g = langevin.clipped(gradient(task, w, x, y), self.clip)
            eps = rng.normal(rng.fold(key, -3 - r), x.shape)
            x = inside(langevin.step(x, g, self.gamma, self.sigma, eps))
        return x


LARGEST = 20.0
"""Scores count as no more than this where they are not divided by others': exp must be finite."""


def weighted_gradient(s: Tensor, g: Tensor) -> Tensor:
    """``exp(s) ∇E`` of each of M examples: one client's term of the sum in equation 4.13."""
    weight = s.clamp(max=LARGEST).exp()
    return weight.reshape(*s.shape, *(1,) * (g.dim() - 1)) * g


def mixture_gradient(scores: Tensor, gradients: Tensor, n: Tensor) -> Tensor:
    """``Σ_i n_i exp(s_i) ∇E_i / Σ_i n_i exp(s_i)``: equation 4.13, for each of M examples.

    With s = −E it is the gradient of ``−log Σ_i w_i exp(−E_i)`` (4.11), w_i = n_i / n. ``scores``
    [clients, M] are the clients' s, ``gradients`` [clients, M, …] their ∇_x E, and ``n`` is of
    each client ([clients, 1]) or of each client and example ([clients, M]); where all are 0, so is
    the gradient.
    """
    # A softmax over clients is the same quotient, and does not overflow.
    share = torch.softmax(scores + n.to(scores.dtype).log(), 0).nan_to_num(0.0)
    return (share.reshape(*share.shape, *(1,) * (gradients.dim() - 2)) * gradients).sum(0)
