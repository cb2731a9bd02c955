"""The verdict: is a client better off than alone, worse off, about the same, or is it undecided?

*For this client, with its data: does taking part, trained anew, serve it better on new examples
than what it can train by itself?* With three repeats or more the interval covers test examples and
the luck of training on both sides: :mod:`glocal.evaluation.moderated_t` on all clients' test
examples, :mod:`glocal.evaluation.partial_pooling` of those on own test splits. With fewer the luck
of training cannot be told, and the verdict is about these trained models alone:
:mod:`glocal.evaluation.paired_test`.

- *better off*, *worse off*: the interval is above or below zero.
- *same*: it is within ±δ.
- *undecided*: neither, and ``needs`` says what would decide, with the power of 80 %: so many test
  examples in each repeat, or, where training alone varies by more than the benefit, so many
  repeats::

      (z_.95 + z_.80)² (s²_train/R + v n/(R n*)) = benefit²,   s²_train = s̃² − v

No interval says more than its level: of 20 clients that gain nothing, two may be called.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from glocal.evaluation.distributions import Array
from glocal.evaluation.moderated_t import Moderated, moderated
from glocal.evaluation.paired_differences import PairedDifferences
from glocal.evaluation.paired_test import Repeat, compare_repeats
from glocal.evaluation.partial_pooling import FEWEST, partial_pooling

Word = Literal["better off", "worse off", "same", "undecided"]

VERDICTS: tuple[Word, ...] = ("better off", "worse off", "same", "undecided")

ENOUGH = 3
"""Repeats from which on the luck of training can be told."""

POINTS = 0.02
"""δ of an accuracy or another metric of which 1 is all there is."""

SHARE = 0.05
"""δ of an error, as a share of the baseline's."""

Z = 1.6449
"""Of a normal variable, the 95 % quantile."""

POWER = Z + 0.8416
"""Standard errors that a benefit must have to be shown in 80 % of cases, at 90 % both sides."""

MOST_EXAMPLES = 1_000_000
"""Beyond which it is not worth saying how many examples would decide."""


MOST_REPEATS = 100


@dataclass(frozen=True)
class Verdict:
    """A client's benefit over its baseline, what is known of it, and what follows."""

    benefit: float
    """The mean over repeats of the difference to the baseline; NaN without test examples."""
    estimate: float
    """What it is taken for: on own test splits, drawn towards what clients of its size gain."""
    low: float
    high: float
    """The interval around ``estimate``."""
    verdict: Word
    p_worse: float
    """How probable it is that the client is worse off."""
    needs: dict[str, int] | None
    """What would decide: ``{"examples": n}`` tested in each repeat, or ``{"repeats": n}``."""


_NOTHING = Verdict(math.nan, math.nan, math.nan, math.nan, "undecided", math.nan, None)


def word(low: float, high: float, same: float) -> Word:
    """The verdict that an interval stands for."""
    if low > 0:
        return "better off"
    if high < 0:
        return "worse off"
    return "same" if low > -same and high < same else "undecided"


def verdicts(
    differences: PairedDifferences, n_train: Array, same: Array, level: float, *, pooled: bool
) -> list[Verdict]:
    """The verdict on every client, from three repeats or more.

    Args:
        differences: What the test examples of all repeats say.
        n_train: How many examples each client trains on.
        same: δ of each client.
        level: The intervals' confidence.
        pooled: Whether clients were tested on all clients' examples; each knows enough by itself.
    """
    found = moderated(differences.benefit, differences.noise, differences.overlap)
    estimate, (low, high), sd = found.mean, found.interval(level), np.sqrt(found.variance)
    tested = np.isfinite(found.mean)
    if not pooled and tested.sum() >= FEWEST:
        estimate, low, high, sd = (x.copy() for x in (estimate, low, high, sd))
        repeats = differences.benefit.shape[0]
        in_common = found.shared / repeats
        least = np.nanmin(differences.noise[:, tested], 0) * differences.overlap[tested]
        own = np.maximum(found.variance[tested] - in_common, least)
        drawn = partial_pooling(
            found.mean[tested], own, n_train[tested], level, in_common, repeats - 1
        )
        estimate[tested], sd[tested] = drawn.estimate, drawn.sd
        low[tested], high[tested] = drawn.estimate - drawn.half, drawn.estimate + drawn.half
    return [
        _one(differences, found, k, *(float(x[k]) for x in (estimate, low, high, sd, same)))
        for k in range(len(estimate))
    ]


Ends = tuple[float, float]
"""Of an interval."""


def exact_ends(tests: Sequence[Repeat], level: float) -> Ends:
    """The ends of the exact paired test on one client's test examples."""
    exact = compare_repeats(tests, level)
    return exact.low, exact.high


def of_these_models(
    differences: PairedDifferences,
    exact: Sequence[Ends] | None,
    same: Array,
) -> list[Verdict]:
    """The verdict on every client's trained models, from one repeat or two.

    ``exact[k]``, of accuracies, are the ends of the exact paired test, by which clients are called
    better or worse off. The interval is the normal one of the test examples; where the two disagree
    on zero, it ends at zero or where the test puts its end.
    """
    found = []
    for k in range(differences.benefit.shape[1]):
        there = np.isfinite(differences.benefit[:, k])
        if not there.any():
            found.append(_NOTHING)
            continue
        benefit = float(differences.benefit[there, k].mean())
        noise = float(differences.noise[there, k].mean())
        sd = math.sqrt(noise * differences.overlap[k])
        low, high = benefit - Z * sd, benefit + Z * sd
        if exact is not None:
            exact_low, exact_high = exact[k]
            low = max(low, exact_low) if exact_low > 0 else min(low, 0.0)
            high = min(high, exact_high) if exact_high < 0 else max(high, 0.0)
        said, needs = word(low, high, float(same[k])), None
        if said == "undecided":
            n = float(differences.effective[there, k].mean())
            needs = what_decides(benefit, noise, noise, n, int(there.sum()))
        found.append(Verdict(benefit, benefit, low, high, said, below_zero(benefit, sd), needs))
    return found


def _one(
    differences: PairedDifferences,
    found: Moderated,
    k: int,
    estimate: float,
    low: float,
    high: float,
    sd: float,
    same: float,
) -> Verdict:
    if math.isnan(estimate):
        return _NOTHING
    said = word(low, high, same)
    p_worse = below_zero(estimate, sd)
    needs = None
    if said == "undecided":
        noise = float(np.nanmean(differences.noise[:, k]))
        n = float(np.nanmean(differences.effective[:, k]))
        needs = what_decides(estimate, float(found.once[k]), noise, n, len(differences.benefit))
    return Verdict(float(found.mean[k]), estimate, low, high, said, p_worse, needs)


def below_zero(estimate: float, sd: float) -> float:
    """How probable a normal variable is to be below zero."""
    if sd <= 0:
        return float(estimate < 0) if estimate else 0.5
    return 0.5 * math.erfc(estimate / sd / math.sqrt(2))


def what_decides(
    benefit: float, once: float, noise: float, n: float, repeats: int
) -> dict[str, int] | None:
    """Test examples in each repeat, or else repeats, at which such a benefit would be shown.

    Args:
        benefit: How large it is.
        once: The variance of one repeat's benefit, of training and of ``n`` test examples.
        noise: That of the test examples.
        n: How many these are.
        repeats: How many there were.
    """
    wanted = (benefit / POWER) ** 2
    of_training = max(once - noise, 0.0) / repeats
    if wanted > of_training:
        examples = math.ceil(n * noise / repeats / (wanted - of_training))
        if n < examples <= MOST_EXAMPLES:
            return {"examples": examples}
    if wanted > 0 and (more := math.ceil(once / wanted)) > repeats and more <= MOST_REPEATS:
        return {"repeats": more}
    return None
