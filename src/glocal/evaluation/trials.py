"""One repeat after another: what each client's test examples say of a method and of being alone.

There are two estimates of a client's accuracy, both compared with its baseline on the same
examples. The *own* estimate uses the client's own test split. The *pooled* estimate uses all
clients' test examples, weighted by the client's label shares; it has far more power, and is valid
where clients differ only in their labels. The pooled one is used where it is valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glocal.data.federation import Federation
from glocal.evaluation import paired_test, pooling_test
from glocal.evaluation.communication import Traffic
from glocal.evaluation.distributions import Array
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.influence import differences
from glocal.evaluation.intervals import LEVEL, nan_mean
from glocal.evaluation.label_shares import share_variances, widened
from glocal.evaluation.measures import relative
from glocal.evaluation.paired_differences import (
    PairedDifferences,
    Pairs,
    paired_differences,
)
from glocal.evaluation.verdict import (
    ENOUGH,
    POINTS,
    SHARE,
    Ends,
    Verdict,
    exact_ends,
    of_these_models,
    verdicts,
)


@dataclass(frozen=True)
class Trial:
    """One repeat: the federation's split, a method's outcome on it, and those of being alone."""

    fed: Federation
    outcome: Outcome
    baseline: Outcome
    """Of the same model, trained by each client alone."""
    traffic: Traffic = field(default_factory=Traffic)
    best: Outcome | None = None
    """Of the best that each client can train alone, where that was asked for."""
    uncertain_shares: bool = False
    """Whether intervals of the pooled estimate cover its label shares, too."""

    @property
    def alone(self) -> Outcome:
        """What the verdict is set against."""
        return self.baseline if self.best is None else self.best


def pool_is_valid(fed: Federation) -> bool:
    """Whether clients are said to differ only in labels, by the data or by the user."""
    return pooling_test.claimed(fed)


class Estimate:
    """The test examples of all repeats, by the own or the pooled estimate."""

    def __init__(self, trials: Sequence[Trial], *, pooled: bool, metric: str | None = None) -> None:
        self.trials, self.pooled = trials, pooled
        self.metric = metric or trials[0].outcome.metric
        self.lower = trials[0].outcome.lower and self.metric != "accuracy"
        self.clients = len(trials[0].fed)

    @cached_property
    def weights(self) -> list[list[Array]]:
        """[repeats][clients]: what each test example counts for, of sum 1."""
        if self.pooled:
            return [list(label_weights(t.fed).double().numpy()) for t in self.trials]
        return [[_by_labels(t.fed, k) for k in range(self.clients)] for t in self.trials]

    @cached_property
    def units(self) -> list[list[NDArray[np.int64]]]:
        """[repeats][clients]: which unit each test example belongs to."""
        found = []
        for t in self.trials:
            ids = t.fed.units_of(t.fed.test.rows).numpy()
            start = t.fed.test.start.tolist()
            found.append(
                [ids] * self.clients
                if self.pooled
                else [ids[start[k] : start[k + 1]] for k in range(self.clients)]
            )
        return found

    def of(self, outcome: Outcome) -> list[Array]:
        """[clients]: each test example's contribution to the metric."""
        if self.pooled:
            if outcome.pool is None:
                raise RuntimeError("the pooled test set was not evaluated")
            return list(outcome.pool.double().cpu().numpy())
        of_examples = outcome.own if self.metric == "accuracy" else outcome.of_examples()
        return [x.double().cpu().numpy() for x in of_examples]

    def means(self, outcomes: Sequence[Outcome]) -> list[list[float]]:
        """[repeats][clients]: the metric of each; NaN without test examples."""
        return [
            [float(w @ x) if len(x) else np.nan for w, x in zip(weight, self.of(o), strict=True)]
            for weight, o in zip(self.weights, outcomes, strict=True)
        ]

    def tested(self, alone: Sequence[Outcome]) -> list[Pairs]:
        """How the method differs from one outcome of being alone a repeat; above 0 is better."""
        sign, repeats = -1.0 if self.lower else 1.0, []
        for r, (trial, other) in enumerate(zip(self.trials, alone, strict=True)):
            pairs = zip(self.of(trial.outcome), self.of(other), strict=True)
            difference = [
                sign * differences(self.metric, x, z, w)
                for (x, z), w in zip(pairs, self.weights[r], strict=True)
            ]
            repeats.append(_without_nan(Pairs(self.units[r], self.weights[r], difference)))
        return repeats

    def differences(self, tested: Sequence[Pairs]) -> PairedDifferences:
        """What these tests say of every client's benefit."""
        return paired_differences(tested, pooled=self.pooled, unit=self.unit)

    @cached_property
    def unit(self) -> float:
        """By how much examples may differ, squared: 1, or the variance of their contributions."""
        if self.metric == "accuracy":
            return 1.0
        values = np.concatenate([x for t in self.trials for x in self.of(t.outcome)])
        values = values[np.isfinite(values)]
        return max(float(values.var()) if len(values) else 0.0, 1e-12)

    def verdicts(self, alone: Sequence[Outcome], same: float | None = None) -> list[Verdict]:
        """The verdict on every client, ``same`` being δ."""
        tested = self.tested(alone)
        differences = self.differences(tested)
        delta = self.same_within(alone, same)
        found = self._verdicts(tested, differences, delta)
        if not (self.pooled and self.trials[0].uncertain_shares):
            return found
        variance = share_variances([t.fed for t in self.trials], [t.difference for t in tested])
        return [widened(*each) for each in zip(found, variance, delta, strict=True)]

    def _verdicts(
        self, tested: Sequence[Pairs], differences: PairedDifferences, delta: Array
    ) -> list[Verdict]:
        if len(tested) >= ENOUGH:
            n_train = self.trials[0].fed.train.counts().cpu().double().numpy()
            return verdicts(differences, n_train, delta, LEVEL, pooled=self.pooled)
        return of_these_models(differences, self.exact(tested), delta)

    def exact(self, tested: Sequence[Pairs]) -> list[Ends] | None:
        """The ends of each client's exact paired test, which there is of accuracies."""
        if self.metric != "accuracy":
            return None
        tests: list[list[paired_test.Repeat]] = [
            [(t.units[k], t.difference[k], 0 * t.difference[k], t.weight[k]) for t in tested]
            for k in range(self.clients)
        ]
        return [exact_ends(test, LEVEL) for test in tests]

    def same_within(self, alone: Sequence[Outcome], same: float | None) -> Array:
        """δ of each client."""
        if same is None and relative(self.metric, self.lower):
            values: Array = np.array(over_repeats(self.means(alone)))
            return SHARE * np.abs(values)
        return np.full(self.clients, POINTS if same is None else same)


def _by_labels(fed: Federation, client: int) -> Array:
    """What each of a client's test examples counts for, of sum 1: as much as it has labels."""
    counts = fed.label_counts[fed.test.of(client)].double().cpu().numpy()
    shares: Array = counts / max(counts.sum(), 1.0)
    return shares


def _without_nan(tested: Pairs) -> Pairs:
    """A client whose metric is not defined on its test examples has none."""
    none = np.zeros(0)
    keep = [bool(np.isfinite(x).all()) for x in tested.difference]
    if all(keep):
        return tested
    return Pairs(
        [u if k else none.astype(np.int64) for u, k in zip(tested.units, keep, strict=True)],
        [w if k else none for w, k in zip(tested.weight, keep, strict=True)],
        [x if k else none for x, k in zip(tested.difference, keep, strict=True)],
    )


def over_repeats(table: Sequence[Sequence[float]]) -> list[float]:
    """[clients]: the mean of what there is over repeats."""
    return [nan_mean(column) for column in zip(*table, strict=True)]


def label_weights(fed: Federation) -> Tensor:
    """[clients, pooled examples]: what each pooled test example counts for, for each client."""
    y = fed.y[fed.test.rows].cpu()
    return torch.stack([paired_test.pool_weights(y, _labels(fed, k, y)) for k in range(len(fed))])


def _labels(fed: Federation, k: int, pool: Tensor) -> Tensor:
    """How many of each class a client trains on.

    Of a client so small that none of these is in the pool, all its labels are counted: its own test
    examples are in the pool, so that there is always a verdict.
    """
    counts = torch.bincount(fed.y[fed.train.of(k)], minlength=fed.classes).cpu()
    if counts[pool].any():
        return counts
    rows = torch.cat([fed.train.of(k), fed.val.of(k), fed.test.of(k)])
    return torch.bincount(fed.y[rows], minlength=fed.classes).cpu()
