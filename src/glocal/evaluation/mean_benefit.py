"""The federation's mean benefit over clients and repeats, with its interval.

The mean over clients ``m_r`` differs from repeat to repeat by the luck that the clients of a repeat
share, by their own, and by the test examples. All of it is in its variance over repeats, of which
``R − 1`` differences were seen::

    mean_r m_r ± t_{R−1} √max(Var_r(m_r)/R + max(V − v/R, 0), V)

``V`` is the variance that the test examples alone give the mean over repeats, and ``v`` that of one
repeat's mean (:mod:`glocal.evaluation.paired_differences`): ``V`` is ``v/R`` while every repeat
tests other examples, and more where they come back.

It is about these clients: that others would gain as much is another question.
"""

from __future__ import annotations

import math

import numpy as np

from glocal.evaluation.distributions import t_quantile
from glocal.evaluation.paired_differences import PairedDifferences


def mean_benefit(differences: PairedDifferences, level: float) -> tuple[float, float, float]:
    """The mean and its ends; of fewer than three repeats, an interval for these trained models."""
    benefit = differences.benefit
    there = np.isfinite(benefit)
    if not there.any():
        return math.nan, math.nan, math.nan
    in_each = np.array(
        [row[seen].mean() for row, seen in zip(benefit, there, strict=True) if seen.any()]
    )
    mean, repeats = float(in_each.mean()), len(in_each)
    variance, free = differences.of_mean, np.inf
    if repeats > 2:
        over = float(np.var(in_each, ddof=1)) / repeats
        again = max(differences.of_mean - differences.of_mean_once / repeats, 0.0)
        variance, free = max(over + again, differences.of_mean), repeats - 1
    half = float(t_quantile((1 + level) / 2, free)) * math.sqrt(variance)
    return mean, mean - half, mean + half
