"""Metrics as means: what each test example contributes to one client's metric.

The verdict compares two models example by example, and so needs, of any metric, values whose mean
is the metric and whose spread is its sampling error. Of accuracy or the loss these are the
examples' own. Of the AUC they are the placements of DeLong, DeLong and Clarke-Pearson (*Comparing
the areas under two or more correlated receiver operating characteristic curves*, Biometrics 1988):
with ``n⁺`` positives, ``n⁻`` negatives and ``ψ`` 1, ½ or 0 as a pair is in order, tied or not::

    positive i:  V_i = mean_j ψ(i, j),     value = AUC + (n/n⁺)(V_i − AUC)
    negative j:  V_j = mean_i ψ(i, j),     value = AUC + (n/n⁻)(V_j − AUC)

Perplexity is a function of a mean, whose linear part they are (:func:`perplexity`). Of any other
metric they are the jackknife's pseudo-values, moved to have the metric as their mean
(Tukey, *Bias and confidence in not quite large samples*, Annals of Mathematical Statistics 1958)::

    n θ − (n − 1) θ_{−i}

That is for metrics that change little when one example is left out, and ``mce``, the error of the
worst bin, is none.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.core.padding import IGNORED, label_counts, over_positions
from glocal.evaluation import metrics

Array = npt.NDArray[np.float64]

MOST = 200
"""Examples up to which pseudo-values leave out one at a time, beyond it a share of them."""


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """Whether each example is right."""
    return metrics.correct(logits, y)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Each example's loss; of a sequence, the mean of its labels'."""
    log_p = logits.to(torch.float64).log_softmax(-1)
    loss = -log_p.gather(-1, y.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return loss if loss.dim() == 1 else over_positions(loss, y)


def perplexity(logits: Tensor, y: Tensor) -> Tensor:
    """``P (1 + l − L)`` of an example with loss ``l``, where ``P = e^L`` and ``L`` is their mean.

    That mean is over labels, so that an example counts for as much as it has labels.
    """
    loss, weight = cross_entropy(logits, y), label_counts(y).double()
    mean = (loss * weight).sum() / weight.sum()
    return mean.exp() * (1.0 + loss - mean)


def differences(metric: str, x: Array, z: Array, weight: Array) -> Array:
    """By how much each example's contribution to a metric differs between two models, x − z.

    Of two perplexities ``P`` and ``Q`` the logarithms are compared, since losses of one example
    under two models are alike, and perplexities of models that differ much are not: the difference
    of the losses, times the logarithmic mean ``(P − Q)/(log P − log Q)``. Its mean is ``P − Q``,
    and it is as sure as that of the losses.
    """
    if metric != "perplexity" or not len(x):
        return x - z
    p, q = float(weight @ x), float(weight @ z)
    if not (p > 0 and q > 0 and p + q < np.inf):
        return x - z
    losses = np.log(p) - np.log(q) + (x / p - z / q)
    scale = (p - q) / (np.log(p) - np.log(q)) if abs(np.log(p / q)) > 1e-6 else p
    scaled: Array = scale * losses
    return scaled


def top5(logits: Tensor, y: Tensor) -> Tensor:
    """Whether each example's label is among the first five."""
    first = logits.topk(min(5, logits.shape[-1]), dim=-1).indices
    hit = (first == y.unsqueeze(-1)).any(-1).to(torch.float64)
    return hit if hit.dim() == 1 else over_positions(hit, y)


def ece(logits: Tensor, y: Tensor) -> Tensor:
    """What each example adds to its bin's gap, with the sign of that gap."""
    shape = y.shape
    flat, y = logits.reshape(-1, logits.shape[-1]).to(torch.float64), y.reshape(-1)
    confidence, label = flat.softmax(-1).max(-1)
    bin_ = (confidence * metrics.BINS).ceil().long().clamp(1, metrics.BINS) - 1
    over = torch.where(y == IGNORED, 0.0, (label == y).to(confidence) - confidence)
    gap = torch.zeros(metrics.BINS, dtype=over.dtype, device=over.device).index_add(0, bin_, over)
    value = (gap.sign()[bin_] * over).reshape(shape)
    return value if value.dim() == 1 else over_positions(value, y.reshape(shape))


def auc(logits: Tensor, y: Tensor) -> Tensor:
    """DeLong's placements; NaN where a class is absent."""
    score = logits[:, 1].to(torch.float64) - logits[:, 0].to(torch.float64)
    positive, negative = score[y == 1], score[y == 0]
    value = torch.full_like(score, torch.nan)
    if len(positive) and len(negative):
        over, under = _placed(positive, negative), 1.0 - _placed(negative, positive)
        area = over.mean()
        value[y == 1] = area + len(score) / len(positive) * (over - area)
        value[y == 0] = area + len(score) / len(negative) * (under - area)
    return value


def _placed(score: Tensor, others: Tensor) -> Tensor:
    """The share of the others that each score is above, ties counting half."""
    ranked = others.sort().values
    below = torch.searchsorted(ranked, score)
    up_to = torch.searchsorted(ranked, score, right=True)
    return (below + up_to).to(score) / 2 / len(others)


def pseudo_values(
    metric: Callable[[Tensor, Tensor], float], logits: Tensor, y: Tensor, most: int = MOST
) -> Tensor:
    """The jackknife's, of any metric; of many examples, the same for each of a share of them."""
    n = len(y)
    whole = metric(logits, y)
    if n < 2:
        return torch.full((n,), whole, dtype=torch.float64)
    part = torch.arange(n) % min(n, most)
    parts = int(part.max()) + 1
    without = torch.tensor(
        [metric(logits[part != g], y[part != g]) for g in range(parts)], dtype=torch.float64
    )
    value = (parts * whole - (parts - 1) * without)[part]
    # Of examples that share a value there are n/parts, which say no more than one.
    scale: float = (n / parts) ** 0.5
    return whole + scale * (value - value.mean())


def balanced_accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """``B + n/(C n_c) (hit − recall_c)`` for an example of class ``c``, of ``C`` that occur."""
    logits, y = logits.reshape(-1, logits.shape[-1]), y.reshape(-1)
    hit = (logits.argmax(-1) == y).to(torch.float64)
    _, of, count = torch.unique(y, return_inverse=True, return_counts=True)
    if not len(y):
        return hit
    recall = torch.zeros(len(count), dtype=hit.dtype).index_add(0, of, hit) / count
    value: Tensor = recall.mean() + len(y) / len(count) / count[of] * (hit - recall[of])
    return value


def f1(logits: Tensor, y: Tensor) -> Tensor:
    """``F + (a − F b)/mean(b)`` of a ratio of means ``F = mean(a)/mean(b)``; mean over classes."""
    if not len(y):
        return torch.zeros(0, dtype=torch.float64)
    a, b = metrics.f1_parts(logits, y)
    if logits.shape[-1] == 2:
        a, b = a[:, 1:], b[:, 1:]
    there = b.sum(0) > 0
    a, b = a[:, there], b[:, there]
    if not a.shape[1]:
        return torch.zeros(len(y), dtype=torch.float64)
    ratio = a.sum(0) / b.sum(0)
    return (ratio + (a - ratio * b) / b.mean(0)).mean(1)


def average_precision(logits: Tensor, y: Tensor) -> Tensor:
    """The jackknife's; NaN without a positive."""
    if int((y == 1).sum()) < 2:  # without the only one there is no metric
        whole = metrics.average_precision(logits, y)
        return torch.full((len(y),), whole, dtype=torch.float64)
    return pseudo_values(metrics.average_precision, logits, y)


def brier(logits: Tensor, y: Tensor) -> Tensor:
    """Each example's squared error of the probabilities; of a sequence, the mean."""
    each = metrics.brier_each(logits, y.clamp(min=0))
    return each if each.dim() == 1 else over_positions(each, y)


Influence = Callable[[Tensor, Tensor], Tensor]

VALUES: dict[str, Influence] = {
    "accuracy": accuracy,
    "cross_entropy": cross_entropy,
    "ece": ece,
    "top5": top5,
    "auc": auc,
    "average_precision": average_precision,
    "balanced_accuracy": balanced_accuracy,
    "brier": brier,
    "f1": f1,
    "log_loss": cross_entropy,
    "perplexity": perplexity,
}
"""Metrics of classes that a verdict can be about."""
