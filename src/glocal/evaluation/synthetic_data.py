"""Evaluation of synthetic data: how useful it is, and what it reveals about the clients.

The evaluation uses all clients' data, which a server does not have: it is for simulations, where it
says what to expect of a method.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.nn.optim import adam
from glocal.nn.task import Task

CHUNK = 2000
"""Examples that are processed at once: bounds memory, changes nothing."""

STEPS = 3000
"""Mini-batches after which the training of a classifier ends, converged or not."""


@dataclass(frozen=True)
class TrainedClassifier:
    """A model, and how its training ended."""

    w: Params
    steps: int
    """Mini-batches."""
    loss: float
    """Mean training loss of the last ten passes."""
    converged: bool
    """Whether that loss was below the threshold; if not, the steps were used up."""


def train_classifier(
    task: Task,
    x: Tensor,
    y: Tensor,
    key: Tensor,
    *,
    lr: float = 1e-3,
    batch_size: int = 64,
    steps: int = STEPS,
    enough: float = 0.02,
    tick: Callable[[int], None] = lambda done: None,
) -> TrainedClassifier:
    """Train the task's model from a new initialisation on these examples alone.

    The optimiser is Adam on mini-batches of ``batch_size``. Training ends when the mean training
    loss of ten passes is below ``enough``, or after ``steps`` mini-batches, at the end of a pass.
    ``tick`` is told after each of these, and of all ``steps`` at the end, however soon that comes.
    """
    task, opt = task.plain(), adam(lr)
    w = task.init(rng.fold(key, 0))
    state, done, converged = opt.init(w), 0, False
    losses: list[Tensor] = []
    while done < steps and not converged:
        p = len(losses)
        order = rng.permutation(rng.fold(rng.fold(key, 1), p), len(x))
        drawn = rng.fold(rng.fold(key, 2), p)
        total = torch.zeros((), device=x.device)
        for b, rows in enumerate(torch.split(order, batch_size)):
            batch = {"x": x[rows], "y": y[rows], "weight": torch.ones(len(rows), device=x.device)}
            objective = partial(task.loss, batch=batch, key=rng.fold(drawn, b))
            grads, loss = task.grad(objective, w)
            w, state = opt.update(grads, state, w, 1.0)
            total += loss * len(rows)
            done += 1
            tick(min(done, steps))
        losses.append(total / len(x))
        if len(losses) % 10 == 0:
            converged = float(torch.stack(losses[-10:]).mean()) < enough
    tick(steps)
    return TrainedClassifier(w, done, float(torch.stack(losses[-10:]).mean()), converged)


def accuracy(task: Task, w: Params, x: Tensor, y: Tensor) -> float:
    """The share of examples that a model gets right."""
    with torch.no_grad():
        hits = [
            (task.predict(w, a).argmax(-1) == b).sum()
            for a, b in zip(torch.split(x, CHUNK), torch.split(y, CHUNK), strict=True)
        ]
    return int(torch.stack(hits).sum()) / max(1, len(x))


def features(task: Task, w: Params, x: Tensor) -> Tensor:
    """The inputs of the linear layer that a model calls last, [n, d]: its penultimate layer."""
    module = copy.deepcopy(task.module).eval()
    read: list[Tensor] = []
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_pre_hook(lambda layer, given: read.append(given[0]))
    chunks: list[Tensor] = []
    with torch.no_grad():
        for chunk in torch.split(x, CHUNK):
            read.clear()
            functional_call(module, w, (chunk,))
            if not read or len(read[-1]) != len(chunk):
                raise GlocalError(
                    "this model calls no linear layer to take features from: use 'mlp', say."
                )
            chunks.append(read[-1].flatten(1))
    return torch.cat(chunks)


def frechet(a: Tensor, b: Tensor) -> float:
    """``‖μ_a − μ_b‖² + tr(C_a + C_b − 2 (C_a C_b)^½)`` of two sets of features.

    The distance of Heusel et al., *GANs trained by a two time-scale update rule*, NIPS 2017, but on
    the features of another classifier, which must be named with it.
    """
    a, b = a.double().cpu(), b.double().cpu()
    if min(len(a), len(b)) < 2:
        raise GlocalError("a distance of distributions needs two examples or more of each.")
    if not bool(a.isfinite().all() and b.isfinite().all()):
        raise GlocalError("a distance of distributions needs features that are finite.")
    ca, cb = (torch.cov(v.T).reshape(v.shape[1], v.shape[1]) for v in (a, b))
    values, vectors = torch.linalg.eigh(ca)
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    cross = torch.linalg.eigvalsh(root @ cb @ root).clamp(min=0).sqrt().sum()
    gap = (a.mean(0) - b.mean(0)).square().sum()
    return float(gap + ca.trace() + cb.trace() - 2 * cross)


def nearness(synthetic: Tensor, trained: Tensor, held_out: Tensor, key: Tensor) -> dict[str, float]:
    """The share of synthetic examples whose nearest real example was trained on.

    Both pools have the same size, so the share is 0.5 for data that copies nothing. ``copies``
    counts synthetic examples that equal a training example to within a thousandth of the usual
    distance, and ``copies_of_held_out`` those that equal a held-out one: where examples repeat, as
    in tables of a few categories, some do so by chance.
    """
    n = min(len(trained), len(held_out))
    some = trained[rng.permutation(rng.fold(key, 0), len(trained))[:n]]
    others = held_out[rng.permutation(rng.fold(key, 1), len(held_out))[:n]]
    near, far = nearest(synthetic, some), nearest(synthetic, others)
    usual = float(nearest(others[:500], some).median())
    copies, chance = (
        int((nearest(synthetic, pool) <= 1e-3 * usual).sum()) for pool in (trained, held_out)
    )
    return {
        "nearer_to_trained": float(((near < far) + 0.5 * (near == far)).mean()),
        "distance_to_trained": float(near.mean()),
        "distance_to_held_out": float(far.mean()),
        "usual_distance": usual,
        "copies": copies,
        "copies_of_held_out": chance,
        "pool": n,
        "trained": len(trained),
        "held_out": len(held_out),
    }


def membership(synthetic: Tensor, trained: Tensor, held_out: Tensor) -> dict[str, float]:
    """A membership inference attack that predicts "member" where a synthetic example is near."""
    return told_apart(nearest(trained, synthetic), nearest(held_out, synthetic))


def told_apart(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """How well members are told from others by a number of each that is lower for members.

    ``auc`` is the chance that it is lower of a member than of another (0.5: nothing is revealed),
    ``advantage`` is the largest difference of true and false positive rates, and ``tpr_at_1`` is
    the true positive rate at a false positive rate of 1 %.
    """
    # Equal distances get equal predictions: only distances that occur are thresholds.
    thresholds = torch.unique(torch.cat([inside, outside]))
    tpr, fpr = (
        torch.searchsorted(some.sort().values, thresholds, right=True).double() / len(some)
        for some in (inside, outside)
    )
    below = torch.searchsorted(outside.sort().values, inside, right=False)
    ties = torch.searchsorted(outside.sort().values, inside, right=True) - below
    wins = (len(outside) - below - ties).double() + 0.5 * ties.double()
    return {
        "auc": float((wins / len(outside)).mean()),
        "advantage": float((tpr - fpr).max().clamp(min=0)),
        "tpr_at_1": float(tpr[fpr <= 0.01].max()) if bool((fpr <= 0.01).any()) else 0.0,
        "members": len(inside),
        "others": len(outside),
    }


def nearest(a: Tensor, b: Tensor) -> Tensor:
    """The distance of each example of ``a`` to the nearest of ``b``."""
    flat = b.flatten(1)
    exact = "donot_use_mm_for_euclid_dist"  # a product of matrices would blur what is very near
    chunks = torch.split(a.flatten(1), CHUNK)
    return torch.cat([torch.cdist(c, flat, compute_mode=exact).amin(1) for c in chunks])
