"""The paired test: is a client better off than with its local baseline?

A method's model and the client's local baseline predict the same test examples. Example ``j``
contributes ``a_j = weight_j · (correct_j − baseline_j)``, and the client's benefit is their sum
over ``Σ weight``. Most ``a_j`` are zero (both models are right, or both are wrong) and do not tell
which model is better. The others, the discordant examples, are votes.

**The interval.** Given the magnitudes of the discordant examples, their signs ``s_j`` are taken as
independent, each positive with probability ``p``. Then ``T = Σ |a_j| s_j`` grows stochastically
with ``p``, and inverting the one-sided tests of its value ``t`` bounds ``p`` from both sides::

    P_{p_low}(T ≥ t) = (1 − level)/2 = P_{p_high}(T ≤ t),    ends: (2p − 1) Σ |a_j|.

With equal magnitudes these are the limits of Clopper and Pearson (*The use of confidence or
fiducial limits illustrated in the case of the binomial*, Biometrika 1934) for the share of
discordant examples won, and they exclude zero exactly when McNemar's exact test rejects (McNemar,
*Note on the sampling error of the difference between correlated proportions or percentages*,
Psychometrika 1947). With unequal ones it is Fisher's sign-flip test (*The design of experiments*,
1935), inverted.

**Effects that cancel.** A client may gain on one class what it loses on another: the benefit is
zero, yet ``p = ½`` in no class. The test at ``p = ½`` assumes the variance ``Σ a_j²`` for ``T``,
which is ``Σ E[a_j²]`` on average, while the true variance is ``Σ (E[a_j²] − E[a_j]²)``, which is
smaller. So the test is conservative, as long as ``Σ a_j²`` is near its mean. With unequal weights
it need not be: a few heavy examples can dominate that mean, and if by chance none of them is
discordant, only light gains are observed. (With nine tenths of a client's labels in a class of 36
test examples that loses 2 %, and one tenth in a class that gains 18 %, the benefit is zero, and the
plain test says "better off" in 40 % of draws.) So where weights differ, :func:`compare` and
:func:`compare_repeats` count one more example, of the largest weight, against either end. With
that, every simulated null stays within its nominal rate. This rule was tested; it is no theorem.

**What is not covered.** The verdict is about these trained models on examples like these. Training
again gives other models, and that randomness, which all examples of a repeat share, is not in the
interval. Nor is the randomness in the number of discordant examples: the ends are built to decide
the sign, and far from zero they are narrower than an interval for the benefit on a new test set
(with a tenth of 100 examples discordant, all of them won, they hold the true benefit in half of all
cases).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from glocal.core.errors import GlocalError

_LATTICE = 4_000, 32_000  # just below powers of two, with room for what rounding adds

Numbers = ArrayLike | Tensor

Repeat = tuple[Numbers, Numbers, Numbers, Numbers | None]
"""One repeat's test of a client: row ids, correct, baseline, weight, one entry per example."""


@dataclass(frozen=True)
class Compared:
    """A client's benefit over its local baseline, and whether it differs from zero."""

    benefit: float
    """Accuracy minus that of the local baseline; NaN without test examples."""
    low: float
    high: float
    """The paired interval, in the unit of ``benefit``."""
    verdict: Literal["better off", "worse off", "undecided"]


def compare(
    correct: Numbers, baseline: Numbers, weight: Numbers | None = None, level: float = 0.90
) -> Compared:
    """Compare a method with the local baseline on one client's test examples.

    ``correct`` is whether the method's model got each example right, or a share of it in [0, 1] (a
    sequence's positions), ``baseline`` the same of the client's local baseline, and ``weight`` what
    each example counts for (:func:`pool_weights`); all the same by default.
    """
    return compare_repeats([(np.arange(len(_array(correct))), correct, baseline, weight)], level)


def compare_repeats(repeats: Sequence[Repeat], level: float = 0.90) -> Compared:
    """Compare over repeats: the benefit is the mean of the repeats' benefits.

    An example that was tested in several repeats is one unit, and its differences are added, so
    testing it again adds no evidence. Signs are taken as independent between distinct examples.
    Repeats without test examples are left out.

    The result holds for the models that were trained. Several repeats average over the randomness
    of training, but the interval does not measure it.
    """
    if not 0 < level < 1:
        raise GlocalError(f"the level is {level}: give a number between 0 and 1, such as 0.9.")
    parts = [part for part in map(_differences, repeats) if part is not None]
    if not parts:
        return Compared(math.nan, math.nan, math.nan, "undecided")
    rows, unit = np.unique(np.concatenate([ids for ids, _, _ in parts]), return_inverse=True)
    a, weight = (
        np.bincount(unit, np.concatenate(column), len(rows)) / len(parts)
        for column in ([x for _, x, _ in parts], [w for _, _, w in parts])
    )
    # Differences that cancel between repeats leave a rounding error, which is no vote.
    a = np.where(np.abs(a) > 1e-6 * weight, a, 0.0)
    # Examples that were tested twice count for more, but no label of theirs does.
    unequal = any(w.max() > w[w > 0].min() * (1 + 1e-6) for _, _, w in parts)
    low, high = _ends(a, weight, level) if unequal else paired_interval(a, level)
    benefit = float(a.sum())
    if low > 0:
        return Compared(benefit, low, high, "better off")
    return Compared(benefit, low, high, "worse off" if high < 0 else "undecided")


def pool_weights(y_pool: Tensor, shares: Tensor) -> Tensor:
    """Weights that make the pooled test set look like a client's own: ``share_c / N_c``.

    Their weighted accuracy is ``Σ_c share_c · (accuracy on class c)``, as in Yu, Bagdasaryan and
    Shmatikov, *Salvaging federated learning by local adaptation*, 2020. Valid where clients differ
    in their labels only.

    A class that the pool lacks cannot be tested: its share is left out and the others are scaled to
    sum to one, so the result is about the rest of the client's labels. ``shares`` may be counts.
    """
    if len(y_pool) and int(y_pool.max()) >= len(shares):
        raise GlocalError(
            f"the pool has label {int(y_pool.max())} but the client's shares are of "
            f"{len(shares)} classes: give a share, if only 0, for every class."
        )
    n = torch.bincount(y_pool, minlength=len(shares)).to(torch.float64)
    held = torch.where(n > 0, shares.to(n), 0.0)
    if not held.sum() > 0:
        raise GlocalError(
            "the pooled test set has none of this client's classes: evaluate the client on its own "
            "test split instead."
        )
    return (held / held.sum() / n.clamp(min=1.0))[y_pool]


def paired_interval(a: ArrayLike, level: float = 0.90) -> tuple[float, float]:
    """An exact interval for a sum of paired differences, given their magnitudes.

    The module's docstring has the definition. The statistic is the sum of the magnitudes rounded
    to integers (equal ones to 1 each), and its distribution is that of the same integers, so the
    rounding costs no exactness. The interval is widened, where need be, to hold the
    observed sum. Without a discordant example there is no evidence: the interval is (0, 0), and
    nothing follows from it. Tails come from a Fourier transform with errors around 1e-14.
    """
    d = np.asarray(a, dtype=np.float64)
    return _low_end(d, level), 0.0 - _low_end(-d, level)


def _low_end(a: NDArray[np.float64], level: float) -> float:
    """The lower end of :func:`paired_interval`; the upper one is its mirror image."""
    a = a[a != 0]
    if not a.size:
        return 0.0
    v = _lattice(np.abs(a))
    values, counts = np.unique(v, return_counts=True)
    groups = tuple(zip(values.tolist(), counts.tolist(), strict=True))
    p_low = _least(groups, int(v[a > 0].sum()), (1.0 - level) / 2.0)
    return min((2.0 * p_low - 1.0) * float(np.abs(a).sum()), float(a.sum()))


def _ends(a: NDArray[np.float64], weight: NDArray[np.float64], level: float) -> tuple[float, float]:
    """The interval of the sum of ``a``, with an example counted against it if weights differ."""
    seen = a != 0
    if not seen.any():
        return paired_interval(a, level)
    # For shares of a sequence one full example would be too much: as large a difference as any.
    x = weight.max() * (np.abs(a[seen]) / weight[seen]).max()
    against = np.append(a, -x), np.append(-a, -x)
    low, high = _low_end(against[0], level), -_low_end(against[1], level)
    return max(low, -1.0), min(high, 1.0)


def _differences(
    repeat: Repeat,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]] | None:
    """Row ids, weighted differences and weights (of sum 1); nothing if nothing was tested."""
    ids, correct, baseline = (_array(x) for x in repeat[:3])
    weight = np.ones(len(correct)) if repeat[3] is None else _array(repeat[3])
    if not ids.shape == correct.shape == baseline.shape == weight.shape == (len(ids),):
        raise GlocalError(
            "row ids, correct, baseline and weight must be one number for each test example, but "
            f"their shapes are {ids.shape}, {correct.shape}, {baseline.shape} and {weight.shape}."
        )
    if not weight.sum() > 0:
        return None
    weight = weight / weight.sum()
    return ids.astype(np.int64), weight * (correct - baseline), weight


def _array(x: Numbers) -> NDArray[np.float64]:
    return np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, dtype=np.float64)


def _lattice(magnitudes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the proportions of the magnitudes: exactly if small ones are, else nearly.

    Nearly means 64 units to an average magnitude; more if there are few magnitudes, and fewer, but
    at least 4, if there are many, so that the sum stays about within the lattice's bounds.
    """
    least, most = _LATTICE
    ratio = magnitudes / magnitudes.min()
    rounded: NDArray[np.float64] = np.rint(ratio)
    if rounded.sum() > most or np.any(np.abs(ratio - rounded) > 1e-6 * rounded):
        n = len(magnitudes)
        total = max(least, min(64 * n, most), 4 * n)
        # Halves round down, also those that a sum in another order makes a bit larger: the same
        # differences in another order or unit give the same interval.
        exact = magnitudes * (total / math.fsum(magnitudes))
        rounded = np.floor(exact * (1 - 1e-9) + 0.5)
    return rounded.astype(np.int64)


@lru_cache(maxsize=4096)
def _least(groups: tuple[tuple[int, int], ...], wins: int, tail: float) -> float:
    """The ``p`` at which ``P_p(W ≥ wins) = tail``, for ``W = Σ_g v_g B_g``, ``B_g ~ Bin(m_g, p)``.

    The secant method on log-odds, nearly a straight line in those of ``p``, within a bracket.
    """
    if wins == 0:
        return 0.0
    upper = _upper_tail(groups, wins)
    lo, hi = 0.0, 1.0
    x = _guess(groups, wins, tail)
    x_old = y_old = math.nan
    while True:
        p = 1.0 / (1.0 + math.exp(-x))
        y = _logit(upper(p)) - _logit(tail)
        lo, hi = (p, hi) if y < 0 else (lo, p)
        step = -y * (x - x_old) / (y - y_old) if y_old != y else math.nan
        x_old, y_old = x, y
        # The first step has no secant yet: the slope of log-odds in log-odds is at least about 1.
        x_new = x + (-y if math.isnan(step) else step)
        if not _logit(lo) < x_new < _logit(hi):
            x_new = _logit((lo + hi) / 2.0)
        if abs(x_new - x) < 1e-10 or hi - lo < 1e-12:
            return p
        x = x_new


def _upper_tail(groups: tuple[tuple[int, int], ...], wins: int) -> Callable[[float], float]:
    """``p ↦ P_p(W ≥ wins)``, from ``W``'s characteristic function on the lattice's frequencies."""
    total = sum(v * m for v, m in groups)
    n = 1 << total.bit_length()
    circle = np.exp(-2j * np.pi / n * np.arange(n))
    factors = [(circle[v * np.arange(n // 2 + 1) % n], m) for v, m in groups]

    def upper(p: float) -> float:
        transform = np.ones(n // 2 + 1, dtype=np.complex128)
        for turn, m in factors:
            transform *= _power(1.0 - p + p * turn, m)
        return float(np.fft.irfft(transform, n)[wins : total + 1].sum())

    return upper


def _power(z: NDArray[np.complex128], m: int) -> NDArray[np.complex128]:
    """``z**m`` by squaring: NumPy's is ten times slower from ``m = 100`` on."""
    if m == 1:
        return z
    half = _power(z, m // 2)
    return half * half * z if m % 2 else half * half


def _guess(groups: tuple[tuple[int, int], ...], wins: int, tail: float) -> float:
    """Log-odds of Wilson's lower limit, with the number of equal magnitudes of like variance."""
    total = sum(v * m for v, m in groups)
    n = total**2 / sum(v * v * m for v, m in groups)
    z = NormalDist().inv_cdf(1.0 - tail)
    p = wins / total
    spread = z * math.sqrt(p * (1.0 - p) / n + z * z / (4.0 * n * n))
    return _logit((p + z * z / (2.0 * n) - spread) / (1.0 + z * z / n))


def _logit(p: float) -> float:
    """Log-odds; the ends of [0, 1], and what round-off puts beyond them, stay finite."""
    p = min(max(p, 1e-15), 1.0 - 1e-15)
    return math.log(p / (1.0 - p))
