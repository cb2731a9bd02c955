"""What a client's own test examples come to in a few figures, from which verdicts follow.

Where clients are on different machines, these are what leaves them: no example's figure does. Of
one repeat they are all that :func:`glocal.evaluation.verdict.of_these_models` takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from glocal.evaluation.paired_differences import PairedDifferences, noise_of
from glocal.evaluation.trials import Estimate, Trial
from glocal.evaluation.verdict import Verdict, of_these_models

MOST = 1e60
"""No figure that another machine sends may be further from 0: squares of it are still numbers."""


@dataclass(frozen=True)
class ClientTest:
    """Of one client, tested once on its own test split against what it has alone."""

    benefit: float
    differing: float
    effective: float
    """``b``, ``d`` and ``n_e`` of :mod:`glocal.evaluation.paired_differences`."""
    exact_low: float
    exact_high: float
    """The ends of the exact paired test; NaN of another metric than accuracy."""
    same: float
    """The difference up to which it counts as none."""
    examples: int
    total: float
    squares: float
    """How many finite contributions to the metric there are, their sum, and that of squares."""

    @classmethod
    def of(cls, trial: Trial, same: float | None) -> list[ClientTest]:
        """Of every client of a trial."""
        tests = Estimate([trial], pooled=False)
        tested = tests.tested([trial.alone])
        found = tests.differences(tested)
        exact = tests.exact(tested) or [(math.nan, math.nan)] * tests.clients
        delta = tests.same_within([trial.alone], same)
        each = []
        for k, values in enumerate(tests.of(trial.outcome)):
            known = values[np.isfinite(values)]
            client = cls(
                float(found.benefit[0, k]),
                float(found.differing[0, k]),
                float(found.effective[0, k]),
                exact[k][0],
                exact[k][1],
                float(delta[k]),
                len(known),
                float(known.sum()),
                float((known**2).sum()),
            )
            each.append(client)
        return each

    @classmethod
    def from_json(cls, given: Any) -> ClientTest | None:
        """What another machine sent; None where it is nothing of the kind."""
        names = [each.name for each in fields(cls)]
        if not isinstance(given, Mapping) or set(given) != set(names):
            return None
        if any(type(value) not in (int, float) for value in given.values()):
            return None
        if any(type(value) is int and abs(value) > MOST for value in given.values()):
            return None
        client = cls(**given)
        return client if client._is_possible() else None

    def _is_possible(self) -> bool:
        """Whether test examples could come to these figures: others would spoil all verdicts."""
        sums = 0 <= self.squares <= MOST and abs(self.total) <= MOST
        if type(self.examples) is not int or not 0 <= self.examples < 1 << 40 or not sums:
            return False
        if math.isnan(self.benefit):
            return True  # the metric has no value on them, and no verdict is made of the rest
        ends = (self.exact_low, self.exact_high)
        return (
            abs(self.benefit) <= MOST
            and 0 <= self.differing <= MOST
            and 0 < self.effective < 1 << 40
            and (math.isnan(self.same) or 0 <= self.same <= MOST)
            and all(math.isnan(end) or abs(end) <= 1 for end in ends)
        )


def verdicts_of(clients: Sequence[ClientTest], metric: str) -> list[Verdict]:
    """The verdict on every client, as where their test examples are at hand."""

    def row(name: str) -> Any:
        return np.array([[getattr(client, name) for client in clients]], dtype=float)

    benefit, differing, effective = (row(name) for name in ("benefit", "differing", "effective"))
    by_accuracy, unit = metric == "accuracy", 1.0
    if not by_accuracy:
        n = max(float(row("examples").sum()), 1.0)
        mean = float(row("total").sum()) / n
        unit = max(float(row("squares").sum()) / n - mean**2, 1e-12)
    noise = noise_of(benefit, differing, effective, pooled=False, unit=unit)
    overlap = np.ones(len(clients))
    found = PairedDifferences(benefit, differing, effective, noise, overlap, 0.0, 0.0)
    exact = [(c.exact_low, c.exact_high) for c in clients] if by_accuracy else None
    return of_these_models(found, exact, row("same")[0])
