"""Is a set of made examples any good, and does it give anybody away?

Judging sees everybody's data, which a server does not: it belongs to simulations, where it says
what to expect of a method.

- :func:`train_classifier`, :func:`accuracy`: a classifier that has seen the made examples alone.
- :func:`frechet`: the distance of Heusel et al., *GANs trained by a two time-scale update rule*,
  NIPS 2017, but on the features of a classifier of one's own, which must be named with it.
- :func:`nearness`: are made examples nearer to what was trained on than to what was not?
- :func:`membership`: can one tell from the made examples who was trained on?
"""

from __future__ import annotations

import copy
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

PIECE = 2000
"""Examples at once: bounds memory, changes nothing."""


STEPS = 3000
"""Mini-batches after which a classifier of made examples is taken as it is."""


@dataclass(frozen=True)
class TrainedClassifier:
    """A model, and how its training ended."""

    w: Params
    steps: int
    """Mini-batches."""
    loss: float
    """Mean training loss of the last ten passes."""
    converged: bool
    """Whether that was under what is enough; if not, the steps were used up."""


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
) -> TrainedClassifier:
    """The task's model, newly drawn and trained on these examples alone.

    Adam, mini-batches of ``batch_size``, whole passes: until the mean training loss of ten in a row
    is under ``enough``, or ``steps`` mini-batches are done.
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
        losses.append(total / len(x))
        if len(losses) % 10 == 0:
            converged = float(torch.stack(losses[-10:]).mean()) < enough
    return TrainedClassifier(w, done, float(torch.stack(losses[-10:]).mean()), converged)


def accuracy(task: Task, w: Params, x: Tensor, y: Tensor) -> float:
    """The share of examples that a model gets right."""
    with torch.no_grad():
        hits = [
            (task.predict(w, a).argmax(-1) == b).sum()
            for a, b in zip(torch.split(x, PIECE), torch.split(y, PIECE), strict=True)
        ]
    return int(torch.stack(hits).sum()) / max(1, len(x))


def features(task: Task, w: Params, x: Tensor) -> Tensor:
    """What the linear layer that is called last in a model reads, [n, d]: its penultimate layer."""
    module = copy.deepcopy(task.module).eval()
    read: list[Tensor] = []
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_pre_hook(lambda layer, given: read.append(given[0]))
    found: list[Tensor] = []
    with torch.no_grad():
        for piece in torch.split(x, PIECE):
            read.clear()
            functional_call(module, w, (piece,))
            if not read or len(read[-1]) != len(piece):
                raise GlocalError(
                    "this model calls no linear layer to take features from: use 'mlp', say."
                )
            found.append(read[-1].flatten(1))
    return torch.cat(found)


def frechet(a: Tensor, b: Tensor) -> float:
    """``‖μ_a − μ_b‖² + tr(C_a + C_b − 2 (C_a C_b)^½)`` of two sets of features."""
    a, b = a.double().cpu(), b.double().cpu()
    if min(len(a), len(b)) < 2:
        raise GlocalError("a distance of distributions needs two examples or more of each.")
    if not bool(a.isfinite().all() and b.isfinite().all()):
        raise GlocalError("a distance of distributions needs features that are finite.")
    ca, cb = (torch.cov(v.T).reshape(v.shape[1], v.shape[1]) for v in (a, b))
    root = _root(ca)
    cross = torch.linalg.eigvalsh(root @ cb @ root).clamp(min=0).sqrt().sum()
    gap = (a.mean(0) - b.mean(0)).square().sum()
    return float(gap + ca.trace() + cb.trace() - 2 * cross)


def nearness(made: Tensor, trained: Tensor, held_out: Tensor, key: Tensor) -> dict[str, float]:
    """Of how many made examples the nearest real one was trained on.

    Both pools are cut to one size, so 0.5 is what a set that copied nobody has. ``copies`` counts
    made examples that are a training example to within a thousandth of the usual distance,
    ``copies_of_held_out`` those of one that nobody trained on: where examples repeat, as in tables
    of a few categories, there are such by chance.
    """
    n = min(len(trained), len(held_out))
    some = trained[rng.permutation(rng.fold(key, 0), len(trained))[:n]]
    others = held_out[rng.permutation(rng.fold(key, 1), len(held_out))[:n]]
    near, far = nearest(made, some), nearest(made, others)
    usual = float(nearest(others[:500], some).median())
    copies, chance = (
        int((nearest(made, all_of) <= 1e-3 * usual).sum()) for all_of in (trained, held_out)
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


def membership(made: Tensor, trained: Tensor, held_out: Tensor) -> dict[str, float]:
    """An attacker calls those members to whom a made example is near: how often is it right?

    ``auc`` is the chance that a member is nearer than a non-member (0.5: nothing to be had),
    ``advantage`` the largest difference of true and false alarms, ``tpr_at_1`` the share of members
    found with one false alarm in a hundred.
    """
    inside, outside = nearest(trained, made), nearest(held_out, made)
    # Who is as near as another is called the same: only distances that occur are thresholds.
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
    """Distance of each of ``a`` to the nearest of ``b``."""
    flat = b.flatten(1)
    exact = "donot_use_mm_for_euclid_dist"  # a product of matrices would blur what is very near
    pieces = torch.split(a.flatten(1), PIECE)
    return torch.cat([torch.cdist(p, flat, compute_mode=exact).amin(1) for p in pieces])


def _root(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    root: Tensor = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    return root
