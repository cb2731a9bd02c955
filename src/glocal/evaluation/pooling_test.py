"""May a client be evaluated on the other clients' test examples?

Where clients differ in their label shares only, any model gets an example of class ``c`` right as
often at one client as at another. So every client's own baseline is tested on its own test examples
against the others' of the same class. Of client ``k`` in one repeat, with ``n_c`` own and ``N_c``
others' examples of class ``c``, ``right`` of the own ones right, and ``p_c`` right of all::

    T_k = Σ_c (right_c − n_c · accuracy of the others' in c)
    V_k = Σ_c p_c (1 − p_c)(n_c + n_c²/N_c)
    z   = Σ_k T_k / √Σ_k V_k

A model that knows its own client's kind of examples does better on these, and ``z`` is large: 14.6
on digits with five of twenty clients inverted. Beyond 2.3 either way (2 % of federations that do
differ in labels only) the examples are not pooled.

**One client that differs** is hidden in that sum. So each client is tested by itself, too, with the
same total chance of 2 % for all of them together (Bonferroni). A client has few test examples, of
which few are wrong, and a normal tail would call far too many. Given how many of all examples of a
class are right, each model's right ones among the own examples are hypergeometric under the null
hypothesis (Fisher's exact test in each class; Mantel and Haenszel, *Statistical aspects of the
analysis of data from retrospective studies of disease*, J. Natl. Cancer Inst. 1959, over classes);
``z_k`` is the normal score of their sum's exact tail.

**Repeats and groups.** Sums go over repeats. A row that comes back in a later repeat, and rows of
one group, are taken as wholly dependent. With ``a_j`` for an example's coefficient in ``T_k`` (1 of
an own one, ``−n_c/N_c`` of another's) and ``σ_j² = p_c (1 − p_c)``, over units ``u`` ::

    V_k = Σ_u (Σ_{j in u} |a_j| σ_j)²,

which is the above where each example is a unit. ``z_k`` is divided by the square root of what this
adds.

The test has little power where test examples are few, and it sees only differences that change
which examples a local model gets right. That it passes is no proof. So it says what it would have
found: with ``n`` own test examples compared, a model that is more often right on these by
``(2.3 + 1.28) √V/n`` of them, on average over clients, makes ``z`` exceed 2.3 nine times of ten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.core.errors import shown
from glocal.data.federation import Federation
from glocal.evaluation.distributions import Array
from glocal.evaluation.evaluate import Outcome

Ints = NDArray[np.int64]

LIMIT = 2.3
"""The largest |z| of a federation whose test examples are pooled."""

CHEAP = 200_000
"""As many predictions of test examples are made to tell real clients whether they could pool."""

SMALL = 1e-200
"""Probabilities below are left out of a distribution."""


@dataclass(frozen=True)
class Evaluated:
    """One repeat: every client's model on all clients' test examples."""

    correct: Array
    """[clients, examples]."""
    y: Ints
    """[examples]."""
    owner: Ints
    """[examples], the client whose test example it is."""
    unit: Ints
    """[examples], what belongs together, within a repeat and over repeats."""


@dataclass(frozen=True)
class Scores:
    """The test's figures."""

    z: float
    of_clients: tuple[float, ...]
    """``z_k``; 0 where no other client has a class of this one's."""
    detects: float = math.inf
    """The mean difference in accuracy that is found nine times of ten."""

    @property
    def limit(self) -> float:
        """How large ``|z_k|`` may be, for so many clients."""
        tail = (1 - NormalDist().cdf(LIMIT)) / max(len(self.of_clients), 1)
        return NormalDist().inv_cdf(1 - tail)

    @property
    def worst(self) -> int:
        """The client whose ``z_k`` is largest."""
        return max(range(len(self.of_clients)), key=lambda k: abs(self.of_clients[k]))

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against pooling."""
        return abs(self.z) <= LIMIT and abs(self.of_clients[self.worst]) <= self.limit


@dataclass(frozen=True)
class Pooling:
    """Whether verdicts use all clients' test examples, and why."""

    used: bool
    sentence: str
    scores: Scores | None = None
    client: str | None = None
    """The client that differs most from the others."""

    def as_json(self) -> dict[str, Any]:
        """The record: ``used`` and ``why``, and the figures where the test was made."""
        record: dict[str, Any] = {"used": self.used, "why": self.sentence}
        if self.scores is not None:
            worst = self.scores.of_clients[self.scores.worst]
            record |= {"z": self.scores.z, "limit": LIMIT, "worst": worst}
            record |= {"worst_limit": self.scores.limit, "client": self.client}
            record["detects"] = self.scores.detects if self.scores.detects < math.inf else None
        return record


def claimed(fed: Federation) -> bool:
    """Whether the clients are said to differ in their label shares only: by the data or the user.

    ``pooled=`` of the user goes first; sequences of labels have no label shares.
    """
    said = fed.label_shift_only if fed.pooled is None else fed.pooled
    return said and fed.y.dim() == 1


def worth_evaluating(fed: Federation) -> bool:
    """Whether the local baseline is evaluated on all clients' test examples.

    It is where that is claimed; and where it costs little, so that real clients can be told.
    """
    cheap = len(fed) > 1 and len(fed) * len(fed.test.rows) <= CHEAP
    one_class = fed.target.classes and fed.y.dim() == 1
    return claimed(fed) or (fed.pooled is None and one_class and cheap)


def pooling(repeats: Sequence[tuple[Federation, Outcome]]) -> Pooling:
    """Whether to pool: if it is claimed and the test passes, in all repeats together.

    Each repeat has its federation and the outcome of its local baseline.
    """
    fed = repeats[0][0]
    evaluated = [evaluated_on(f, outcome) for f, outcome in repeats if outcome.pool is not None]
    tested = len(evaluated) == len(repeats) and len(fed) > 1 and fed.y.dim() == 1
    scores = scores_of(evaluated) if tested else None
    client = None if scores is None else fed.names[scores.worst]
    sentence = _why(fed, scores, client)
    used = claimed(fed) and (scores is None or scores.passed)
    return Pooling(used, sentence, scores, client)


def _why(fed: Federation, scores: Scores | None, client: str | None) -> str:
    """What decided, in a sentence."""
    if fed.y.dim() > 1:
        return "Own test splits, since sequences have no label shares to weight by."
    if fed.pooled is False:
        return "Own test splits, as asked for with pooled=False."
    found = "" if scores is None else _found(scores, client)
    if claimed(fed):
        if scores is not None and not scores.passed:
            return f"Own test splits: {found}, so clients differ in more than label shares."
        return f"Pooled test examples: {found or 'clients differ in label shares only'}."
    if scores is not None and scores.passed:
        return f"Own test splits; pooled=True would be allowed: {found}."
    return f"Own test splits: {found or 'clients may differ in more than label shares'}."


def _found(scores: Scores, client: str | None) -> str:
    """What the test says."""
    worst = scores.of_clients[scores.worst]
    others = "own test examples than on others' of the same label"
    if scores.passed:
        alike = others.replace("than", "as")
        found = f"clients' models do as well on their {alike} (z = {scores.z:.1f}, at most {LIMIT}"
        finds = f"a mean difference of {100 * scores.detects:.0f} points would have shown"
        return f"{found}; {finds})" if scores.detects < 1 else f"{found})"
    if abs(scores.z) > LIMIT:
        better, figures = _better(scores.z), f"z = {scores.z:.1f}, more than {LIMIT}"
        return f"clients' models do {better} on their {others} ({figures})"
    figures = f"z = {worst:.1f}, more than {scores.limit:.1f}"
    return f"the model of client {shown(client)} does {_better(worst)} on its {others} ({figures})"


def _better(z: float) -> str:
    return "better" if z > 0 else "worse"


def evaluated_on(fed: Federation, outcome: Outcome) -> Evaluated:
    """What the test needs of one repeat."""
    if outcome.pool is None:
        raise RuntimeError("the pooled test set was not evaluated")
    rows = fed.test.rows.cpu()
    return Evaluated(
        correct=outcome.pool.double().cpu().numpy(),
        y=fed.y.cpu()[rows].numpy(),
        owner=np.repeat(np.arange(len(fed)), fed.test.counts().cpu().numpy()),
        unit=fed.units_of(rows).numpy(),
    )


def scores_of(repeats: Sequence[Evaluated]) -> Scores:
    """``z`` and every client's ``z_k``."""
    clients = len(repeats[0].correct)
    T, V, compared, of_clients = 0.0, 0.0, 0, []
    for k in range(clients):
        parts = [_of_client(repeat, k) for repeat in repeats]
        t = math.fsum(part.difference for part in parts)
        v, plain = _variance(parts)
        T, V = T + t, V + v
        strata = [stratum for part in parts for stratum in part.strata]
        compared += sum(own for own, *_ in strata)
        of_clients.append(_exact_score(strata) * math.sqrt(plain / v) if v else 0.0)
    detects = (
        (LIMIT + NormalDist().inv_cdf(0.9)) * math.sqrt(V) / compared if compared else math.inf
    )
    return Scores(T / math.sqrt(V) if V else 0.0, tuple(of_clients), detects)


@dataclass(frozen=True)
class _Part:
    """One client in one repeat."""

    difference: float
    """``T_k``."""
    spread: Array
    """``|a_j| σ_j`` of each example."""
    unit: Ints
    strata: list[tuple[int, int, int, int]]
    """Of each class: own examples, all examples, own ones right, all right."""


def _of_client(repeat: Evaluated, k: int) -> _Part:
    right, own = repeat.correct[k], repeat.owner == k
    classes = int(repeat.y.max()) + 1
    n, n_right = (np.bincount(repeat.y[own], w, classes) for w in (None, right[own]))
    N, N_right = (np.bincount(repeat.y[~own], w, classes) for w in (None, right[~own]))
    both = (n > 0) & (N > 0)
    ratio = np.where(both, n / np.maximum(N, 1), 0.0)
    difference = float(((n_right - ratio * N_right)[both]).sum())
    # One example right and one wrong beside those there are: no class is without any variance.
    p = (n_right + N_right + 1) / (n + N + 2)
    coefficient = np.where(own, both[repeat.y], ratio[repeat.y])
    counts = (n, n + N, n_right, n_right + N_right)
    strata = [tuple(round(float(x[c])) for x in counts) for c in both.nonzero()[0]]
    return _Part(
        difference=difference,
        spread=coefficient * np.sqrt(p * (1 - p))[repeat.y],
        unit=repeat.unit,
        strata=strata,  # type: ignore[arg-type]
    )


def _variance(parts: Sequence[_Part]) -> tuple[float, float]:
    """``V_k``, and what it would be if every example were a unit of its own."""
    spread = np.concatenate([part.spread for part in parts])
    _, unit = np.unique(np.concatenate([part.unit for part in parts]), return_inverse=True)
    return float((np.bincount(unit, spread) ** 2).sum()), float((spread**2).sum())


def _exact_score(strata: Sequence[tuple[int, int, int, int]]) -> float:
    """The normal score of how many own examples are right, given how many of all are.

    The smaller tail decides, with the value found in it; it is at most a half.
    """
    offset, pmf = 0, np.ones(1)
    for stratum in strata:
        first, factor = _hypergeometric(*stratum[:2], stratum[3])
        offset, pmf = offset + first, np.convolve(pmf, factor)
        kept = (pmf > SMALL).nonzero()[0]
        offset, pmf = offset + int(kept[0]), pmf[kept[0] : kept[-1] + 1]
    right = sum(stratum[2] for stratum in strata) - offset
    upper, lower = float(pmf[max(right, 0) :].sum()), float(pmf[: max(right + 1, 0)].sum())
    tail = min(max(min(upper, lower), SMALL), 0.5)
    return math.copysign(NormalDist().inv_cdf(tail), 1 if upper < lower else -1)


def _hypergeometric(own: int, every: int, right: int) -> tuple[int, Array]:
    """How many own examples are right if so many of all are: the lowest, and probabilities."""
    low, high = max(0, own + right - every), min(own, right)
    values = np.arange(low, high + 1)
    # From one value to the next, in logarithms: P(a + 1)/P(a) = (right − a)(own − a)/((a + 1)(…)).
    a = values[:-1].astype(np.float64)
    steps = np.log((right - a) * (own - a)) - np.log((a + 1) * (every - right - own + a + 1))
    log = np.concatenate([[0.0], steps.cumsum()])
    pmf = np.exp(log - log.max())
    return low, pmf / pmf.sum()
