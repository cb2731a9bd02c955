"""Metrics of predicted numbers, and what each example contributes to them.

With the error ``e = prediction − y`` of each of ``n`` examples, in the label's own unit::

    MAE = mean |e|,    RMSE = √(mean e²),    R² = 1 − Σ e² / Σ (y − ȳ)²

Contributions have the metric as their mean and its sampling error as their spread (the first-order
influence values; :mod:`glocal.evaluation.influence`)::

    |e|,    RMSE + (e² − RMSE²)/(2 RMSE),    R² − (e² − (1 − R²)(y − ȳ)²)/mean (y − ȳ)²

Without examples all are NaN, and R² also where all labels are the same.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def mae_each(prediction: Tensor, y: Tensor) -> Tensor:
    """Each example's absolute error."""
    return (prediction.double() - y.double()).abs()


def mae(prediction: Tensor, y: Tensor) -> float:
    """The mean absolute error."""
    return float(mae_each(prediction, y).mean()) if len(y) else math.nan


def rmse(prediction: Tensor, y: Tensor) -> float:
    """The root of the mean squared error."""
    return math.sqrt(float(mae_each(prediction, y).square().mean())) if len(y) else math.nan


def rmse_values(prediction: Tensor, y: Tensor) -> Tensor:
    """What each example contributes to it."""
    square, whole = mae_each(prediction, y).square(), rmse(prediction, y)
    return whole + (square - whole**2) / (2 * whole) if whole else torch.zeros_like(square)


def r2(prediction: Tensor, y: Tensor) -> float:
    """The share of the label's variance that is predicted."""
    y = y.double()
    total = float((y - y.mean()).square().sum()) if len(y) else 0.0
    return 1 - float(mae_each(prediction, y).square().sum()) / total if total > 0 else math.nan


def r2_values(prediction: Tensor, y: Tensor) -> Tensor:
    """What each example contributes to it."""
    square, whole = mae_each(prediction, y).square(), r2(prediction, y)
    spread = (y.double() - y.double().mean()).square()
    return whole - (square - (1 - whole) * spread) / spread.mean()
