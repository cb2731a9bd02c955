"""Metrics of one client's predictions, and fairness figures of a metric over clients.

A metric is a pure function that maps one client's ``logits`` [n, C], labels ``y`` [n] and,
optionally, a ``weight`` for each example (the pooled estimate needs one) to a float. For sequences
``logits`` are [n, T, C] and ``y`` is [n, T]: every position with a label counts as an example
(:mod:`glocal.core.padding`), with its sequence's weight or, where ``weight`` is [n, T], its own.
Without examples, or with weights that sum to zero, a metric is NaN. Sums are in double precision,
over the whole set: a mean of batches' calibration errors or AUCs is another quantity.

Calibration is that of Guo, Pleiss, Sun and Weinberger, *On calibration of modern neural networks*,
ICML 2017: with the top-1 confidences cut into 15 bins of equal width ``((b−1)/15, b/15]``::

    ECE = Σ_b (w_b / w) |accuracy_b − confidence_b|,    MCE = max_b |accuracy_b − confidence_b|.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.core.padding import IGNORED, over_positions

BINS = 15


Metric = Callable[..., float]
"""A function of one client's ``logits``, ``y`` and, if it is given, ``weight``."""


def correct(logits: Tensor, y: Tensor) -> Tensor:
    """Whether each example's label comes first, [n]; of a sequence, the share of its labels."""
    hit = (logits.argmax(-1) == y).to(torch.float64)
    return hit if hit.dim() == 1 else over_positions(hit, y)


def accuracy(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
    """The share of labels that come first."""
    logits, y, w = _flat(logits, y, weight)
    return _mean(logits.argmax(-1) == y, w)


def top_k(k: int) -> Metric:
    """The metric: the share of labels among the first ``k``."""

    def metric(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
        logits, y, w = _flat(logits, y, weight)
        first = logits.topk(min(k, logits.shape[-1]), dim=-1).indices
        return _mean((first == y.unsqueeze(-1)).any(-1), w)

    return metric


def cross_entropy(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
    """The mean of ``−log`` of the label's probability."""
    logits, y, w = _flat(logits, y, weight)
    log_p = logits.to(torch.float64).log_softmax(-1)
    return _mean(-log_p.gather(-1, y.unsqueeze(-1)).squeeze(-1), w)


def perplexity(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
    """``exp`` of the cross-entropy: among how many equally likely classes it is as hard to guess.

    Of text, the cross-entropy is a mean over all tokens of a client, not over sequences.
    """
    return float(np.exp(cross_entropy(logits, y, weight)))


def auc(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
    """The chance that a positive is scored above a negative, ties counting half.

    Two classes only; the score is the difference of the two logits. NaN where a class is absent.
    """
    logits, y, w = _flat(logits, y, weight)
    score = _score(logits, "the AUC")
    positive, negative = y == 1, y == 0
    ranked, order = score[negative].sort()
    cumulated = torch.cat([w.new_zeros(1), w[negative][order].cumsum(0)])
    below = cumulated[torch.searchsorted(ranked, score[positive])]
    up_to = cumulated[torch.searchsorted(ranked, score[positive], right=True)]
    pairs = w[positive].sum() * cumulated[-1]
    return float((w[positive] * (below + up_to) / 2.0).sum() / pairs) if pairs > 0 else math.nan


def ece(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
    """Expected calibration error."""
    gap, w = _calibration(logits, y, weight)
    return _mean(gap, w)


def mce(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
    """Maximum calibration error, over the bins that hold something."""
    gap, w = _calibration(logits, y, weight)
    return float(gap[w > 0].max()) if bool((w > 0).any()) else math.nan


def balanced_accuracy(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
    """The mean over the classes that there are of the share of each that comes first."""
    logits, y, w = _flat(logits, y, weight)
    hit, held = torch.zeros(2, logits.shape[-1], dtype=w.dtype, device=w.device)
    held = held.index_add(0, y, w)
    hit = hit.index_add(0, y, w * (logits.argmax(-1) == y))
    there = held > 0
    return float((hit[there] / held[there]).mean()) if bool(there.any()) else math.nan


def f1(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
    """``2 TP / (2 TP + FP + FN)``: of two classes, the second's; of more, the mean over classes.

    Classes that neither occur nor are predicted are left out; without any positive it is 0.
    """
    logits, y, w = _flat(logits, y, weight)
    if not w.sum() > 0:
        return math.nan
    right, either = f1_parts(logits, y)
    twice, total = w @ right, w @ either
    if logits.shape[-1] == 2:
        return float(twice[1] / total[1]) if total[1] > 0 else 0.0
    there = total > 0
    return float((twice[there] / total[there]).mean())


def f1_parts(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Of each example and class [n, C]: 2 where it is a true positive; and that plus errors."""
    classes = logits.shape[-1]
    truth, said = (torch.nn.functional.one_hot(c, classes).double() for c in (y, logits.argmax(-1)))
    return 2 * truth * said, truth + said


def average_precision(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
    """``Σ_k (R_k − R_{k−1}) P_k`` over the scores from the highest, ties together.

    Two classes only; the score is the difference of the two logits. NaN without a positive.
    """
    logits, y, w = _flat(logits, y, weight)
    score = _score(logits, "average precision")
    order = score.argsort(descending=True)
    ranked, positive, w = score[order], (y[order] == 1).to(w), w[order]
    last = torch.ones_like(ranked, dtype=torch.bool)
    last[:-1] = ranked[1:] != ranked[:-1]
    found, listed = (positive * w).cumsum(0)[last], w.cumsum(0)[last]
    if not len(found) or not found[-1] > 0:
        return math.nan
    recall = found / found[-1]
    step = torch.diff(recall, prepend=recall.new_zeros(1))
    return float((step * found / listed.clamp(min=1e-300)).sum())


def brier(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
    """The mean squared error of the probabilities (:func:`brier_each`)."""
    logits, y, w = _flat(logits, y, weight)
    return _mean(brier_each(logits, y), w)


def brier_each(logits: Tensor, y: Tensor) -> Tensor:
    """``(p − y)²`` with the second class's probability; of more classes, the sum over them."""
    p = logits.to(torch.float64).softmax(-1)
    error = (p - torch.nn.functional.one_hot(y, logits.shape[-1])).square().sum(-1)
    return error / 2 if logits.shape[-1] == 2 else error


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "auc": auc,
    "average_precision": average_precision,
    "balanced_accuracy": balanced_accuracy,
    "brier": brier,
    "cross_entropy": cross_entropy,
    "ece": ece,
    "f1": f1,
    "log_loss": cross_entropy,
    "mce": mce,
    "perplexity": perplexity,
    "top5": top_k(5),
}
"""The metrics of classes; :mod:`glocal.evaluation.errors` has those of numbers."""

LOWER_IS_BETTER = ("brier", "cross_entropy", "ece", "log_loss", "mae", "mce", "perplexity", "rmse")

PERCENT = ("accuracy", "balanced_accuracy", "top5")
"""The metrics that tables and figures show in per cent."""

FIGURES = ("mean", "worst10", "best10", "gini", "gap")
"""What :func:`fairness` tells of a metric, and methods are set against each other by."""

SPREAD = ("std", "median")
"""What it tells beside these."""

NOTHING = dict.fromkeys((*FIGURES, *SPREAD), math.nan)
"""What it tells without clients."""


def fairness(
    values: Sequence[float], n: Sequence[int] | None = None, *, lower_is_better: bool = False
) -> dict[str, Any]:
    """How any per-client metric is spread over clients.

    Clients without a value (NaN: no test examples, or an AUC with one class) are left out. Nothing
    is defined without clients, and every number is then NaN. ``n`` are the clients' test examples.

    Returns:
        ``over`` ("clients": every client counts once in all that follows), ``clients`` (how many
        had a value), ``mean``, ``worst10`` and ``best10`` (means of the worst and best tenth of
        clients, rounded up), ``gap`` (between the best and the worst client), ``gini`` (×100: half
        the mean absolute difference of two clients, in per cent of the mean; 0 if all values are 0;
        NaN if one is negative, as a benefit can be, for which it has no meaning), ``std`` (the
        standard deviation of these very clients, ``√(Σ (x − mean)² / K)``), ``median`` and, given
        ``n``, ``mean_examples``, in which every test example counts once.
    """
    x = np.asarray(values, dtype=np.float64)
    exists = ~np.isnan(x)
    best_first = np.sort(x[exists]) if lower_is_better else -np.sort(-x[exists])
    k = len(best_first)
    tenth = -(-k // 10)
    summary: dict[str, Any] = {"over": "clients", "clients": k, **NOTHING}
    if k:
        summary |= {
            "mean": float(best_first.mean()),
            "worst10": float(best_first[k - tenth :].mean()),
            "best10": float(best_first[:tenth].mean()),
            "gini": _gini(x[exists]),
            "gap": float(abs(best_first[0] - best_first[-1])),
            "std": float(best_first.std()),
            "median": float(np.median(best_first)),
        }
    if n is not None:
        w = np.asarray(n, dtype=np.float64)[exists]
        summary["mean_examples"] = float(x[exists] @ w / w.sum()) if w.sum() > 0 else math.nan
    return summary


def lorenz(values: Sequence[float]) -> list[tuple[float, float]]:
    """The Lorenz curve: how much of the total the lowest clients hold.

    ``values`` are one for each client, and those without one (NaN) are left out as in
    :func:`fairness`, whose ``gini`` is 100 times twice the area between the curve and the diagonal.

    Returns:
        Points ``(share of clients from the lowest, their share of the total)`` from (0, 0) to
        (1, 1), straight lines between them; the diagonal if all values are 0, shares of NaN if one
        is negative, no points without clients.
    """
    x = np.asarray(values, dtype=np.float64)
    x = np.sort(x[~np.isnan(x)])
    k = len(x)
    if not k:
        return []
    clients = np.arange(k + 1) / k
    if x[0] < 0:
        held = np.full(k + 1, math.nan)
    elif x[-1] == 0:
        held = clients
    else:
        held = np.concatenate([[0.0], np.cumsum(x)])
        held /= held[-1]
    return list(zip(clients.tolist(), held.tolist(), strict=True))


def _gini(x: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """``100 · Σ_ij |x_i − x_j| / (2 K² mean)``, from the sorted values."""
    if x.min() < 0:
        return math.nan
    if x.max() == 0:
        return 0.0
    k = len(x)
    rank = 2.0 * np.arange(1, k + 1) - k - 1.0
    # The ranks sum to zero: equal values would leave the rounding error of their sum.
    return 100.0 * max(0.0, float(rank @ np.sort(x)) / (k * float(x.sum())))


def _score(logits: Tensor, what: str) -> Tensor:
    """By how much the second of two classes is the likelier."""
    if logits.shape[-1] != 2:
        raise GlocalError(
            f"{what} is for two classes and the model has {logits.shape[-1]}: "
            "use accuracy, top5 or cross_entropy instead."
        )
    return logits[:, 1].to(torch.float64) - logits[:, 0].to(torch.float64)


def _flat(logits: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Positions as examples: logits [m, C], labels [m] and weights [m]."""
    if logits.shape[:-1] != y.shape:
        raise GlocalError(
            f"logits of shape {tuple(logits.shape)} need labels of shape "
            f"{tuple(logits.shape[:-1])}, not {tuple(y.shape)}."
        )
    w = torch.ones(y.shape, dtype=torch.float64, device=y.device)
    if weight is not None:
        if weight.shape not in (y.shape, y.shape[:1]):
            raise GlocalError(
                f"weights must be one for each example, {tuple(y.shape[:1])}, or one for each "
                f"label, {tuple(y.shape)}, not {tuple(weight.shape)}."
            )
        w = w * weight.to(w).view(*weight.shape, *(1,) * (y.dim() - weight.dim()))
    if y.dim() > 1:
        w = w * (y != IGNORED)
        y = y.clamp(min=0)
    return logits.flatten(0, -2), y.flatten(), w.flatten()


def _mean(x: Tensor, w: Tensor) -> float:
    total = w.sum()
    return float((x.to(w) * w).sum() / total) if total > 0 else math.nan


def _calibration(logits: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """``|accuracy_b − confidence_b|`` and ``w_b`` of every bin."""
    logits, y, w = _flat(logits, y, weight)
    confidence, label = logits.to(torch.float64).softmax(-1).max(-1)
    bin_ = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
    over, held = torch.zeros(2, BINS, dtype=torch.float64, device=w.device)
    over = over.index_add(0, bin_, w * ((label == y).to(w) - confidence))
    held = held.index_add(0, bin_, w)
    return over.abs() / torch.where(held > 0, held, 1.0), held
