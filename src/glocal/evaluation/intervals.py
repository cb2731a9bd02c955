"""Means that leave out missing values, and Student's confidence interval of a mean."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean, stdev
from typing import Any

LEVEL = 0.90
"""The confidence of all intervals unless given."""


def without_nan(values: Iterable[Any]) -> list[float]:
    """The values that exist, as floats."""
    return [v for v in map(float, values) if not math.isnan(v)]


def nan_mean(values: Iterable[Any]) -> float:
    """The mean of the values that exist; NaN if there is none."""
    existing = without_nan(values)
    return fmean(existing) if existing else math.nan


def half_width(values: Iterable[Any], level: float = LEVEL) -> float:
    """Half the width of Student's interval for the mean; NaN for fewer than two values."""
    from scipy import stats

    sample = [float(v) for v in values]
    n = len(sample)
    if n < 2:
        return math.nan
    return float(stats.t.ppf((1 + level) / 2, n - 1)) * stdev(sample) / math.sqrt(n)


def student(
    values: Iterable[Any], level: float = LEVEL
) -> tuple[float, float | None, float | None]:
    """The mean of the values and the ends of Student's interval; None for a single value."""
    sample = [float(v) for v in values]
    mean, half = nan_mean(sample), half_width(sample, level)
    return (mean, None, None) if math.isnan(half) else (mean, mean - half, mean + half)


def paired(differences: Iterable[Any], level: float, by: str | None) -> dict[str, Any]:
    """The mean of paired differences with its interval; ``by`` says what the pairs are.

    The ends, and ``by``, are None where there are no pairs, or fewer than two.
    """
    mean, low, high = student(differences, level)
    if by is None or low is None:
        return {"difference": mean, "low": None, "high": None, "by": None}
    return {"difference": mean, "low": low, "high": high, "by": by}
