"""Means that leave out missing values, and Student's confidence interval of a mean."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean, stdev
from typing import Any

from glocal.evaluation.distributions import t_quantile

LEVEL = 0.90
"""The confidence of all intervals."""


def without_nan(values: Iterable[Any]) -> list[float]:
    """The values that exist, as floats."""
    return [v for v in map(float, values) if not math.isnan(v)]


def nan_mean(values: Iterable[Any]) -> float:
    """The mean of the values that exist; NaN if there is none."""
    existing = without_nan(values)
    return fmean(existing) if existing else math.nan


def student(values: Iterable[Any]) -> tuple[float, float | None, float | None]:
    """The mean of the values and the ends of Student's interval; None for a single value."""
    sample = [float(v) for v in values]
    mean, n = nan_mean(sample), len(sample)
    if n < 2 or any(map(math.isnan, sample)):
        return mean, None, None
    half = float(t_quantile((1 + LEVEL) / 2, n - 1)) * stdev(sample) / math.sqrt(n)
    return mean, mean - half, mean + half


def paired(differences: Iterable[Any], by: str | None) -> dict[str, Any]:
    """The mean of paired differences with its interval; ``by`` says what the pairs are.

    The ends, and ``by``, are None where there are no pairs, or fewer than two.
    """
    mean, low, high = student(differences)
    if by is None or low is None:
        return {"difference": mean, "low": None, "high": None, "by": None}
    return {"difference": mean, "low": low, "high": high, "by": by}
