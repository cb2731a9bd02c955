"""How differently predictions treat the groups of a protected attribute.

Of predicted classes ŷ, labels y and groups a (Hardt, Price, Srebro: *Equality of opportunity in
supervised learning*, NeurIPS 2016):

- *demographic parity gap*: the largest difference between two groups of P(ŷ = c | a), over c;
- *equalised odds gap*: the largest difference between two groups of P(ŷ = c | y, a), over c and y.
  With two classes that is the larger of the differences in true and in false positive rates.

Both are 0 where all groups are treated alike, and at most 1. A group without an example (of a
class) is not compared; where fewer than two are left, the gap is NaN.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glocal.evaluation.metrics import auc


def demographic_parity_gap(predicted: Tensor, group: Tensor) -> float:
    """The largest difference between groups in how often a class is predicted."""
    gaps = []
    for c in values_of(predicted):
        rates = [hit.double().mean() for hit in _by_group(predicted == c, group)]
        gaps.append(_spread(rates))
    return _largest(gaps)


def equalised_odds_gap(predicted: Tensor, y: Tensor, group: Tensor) -> float:
    """The largest difference between groups in how often a class is predicted where y is given."""
    gaps = [demographic_parity_gap(predicted[y == c], group[y == c]) for c in values_of(y)]
    return _largest(gaps)


def attribute_auc(logits: Tensor, attribute: Tensor) -> float:
    """The AUC of an adversary's logits; of more than two values, the mean of one against the rest.

    A half is chance. Less than a half is chance, too, if the adversary was not fitted to what it is
    tested on: it says that what it learnt holds the other way round.
    """
    values = logits.shape[-1]
    if values == 2:
        return auc(logits, attribute)
    shares = logits.log_softmax(-1).exp().clamp(1e-12, 1 - 1e-7)
    two = torch.stack([torch.log1p(-shares), shares.log()], dim=-1)
    each = [auc(two[..., v, :], (attribute == v).long()) for v in range(values)]
    known = [score for score in each if not math.isnan(score)]
    return sum(known) / len(known) if known else math.nan


def majority_share(values: Tensor) -> float:
    """How often a constant guess of the most frequent value is right."""
    return float(torch.bincount(values).max()) / max(1, len(values))


def values_of(codes: Tensor) -> list[int]:
    """The values that there are, in order."""
    return [int(value) for value in torch.bincount(codes).nonzero().flatten()]


def _by_group(hit: Tensor, group: Tensor) -> list[Tensor]:
    return [hit[group == g] for g in values_of(group)]


def _spread(rates: list[Tensor]) -> float:
    return float(max(rates) - min(rates)) if len(rates) > 1 else math.nan


def _largest(gaps: list[float]) -> float:
    return max((gap for gap in gaps if not math.isnan(gap)), default=math.nan)
