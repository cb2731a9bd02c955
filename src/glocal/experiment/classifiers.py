"""What a client can fit alone with scikit-learn: logistic regression, SVM, kNN, boosted trees.

A family is fitted with each of a few settings on all folds but one, for each fold; the setting that
does best on held-out examples, by the metric that counts (by rule, how many are right), is fitted
to all examples (Stone, *Cross-validatory choice and
assessment of statistical predictions*, Journal of the Royal Statistical Society B, 1974). Of a
family's settings, ties go to the lower loss on held-out examples, and then to the simpler; of
families, to the simpler one. Both are listed simplest first.

Features are centred and scaled inside each fold: a table's columns each by its own standard
deviation, images by one for all pixels, which have a unit in common. Scores become probabilities
by one temperature, fitted on the held-out examples (Guo et al., *On calibration of modern neural
networks*, ICML 2017). Classes that a client has never seen get the probability ``UNSEEN``.

Nothing here needs torch, so processes that fit start quickly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
Integers = NDArray[np.int64]

Score = Callable[[Floats, Any], float]
"""Log-probabilities of all classes (or predicted numbers) and labels to a score: higher is better,
NaN where there is none, and then the loss chooses."""

UNSEEN = 1e-6
"""The least probability of a class, and that of classes which a client has never seen."""

TEMPERATURES = tuple(2.0 ** (i / 2) for i in range(-8, 9))

ITERATIONS = 200
TREES = 50
RATE = 0.2
FIT = 5e6
"""Operations that any fit takes beside those that are counted, and a tree of its own."""

HISTOGRAMS = 2000
"""Examples from which on boosted trees are grown on histograms."""

CLIENT_OPERATIONS = 5e10
"""About what one client may spend on one family (some ten seconds): fewer settings, or none."""

FEDERATION_OPERATIONS = 2e12
"""What all clients of all repeats may spend on one family together."""


@dataclass(frozen=True)
class Sizes:
    """What the work of fitting depends on."""

    n: int
    features: int
    classes: int
    folds: int
    tested: int


@dataclass(frozen=True)
class Family:
    """One kind of model, its settings (simplest first), and what they cost."""

    name: str
    settings: tuple[Any, ...]
    plain: Any
    """The setting that is used by itself where there is too much data for all."""
    scores: Callable[[Floats, Integers, Floats, Sequence[Any], int], list[Floats]]
    """Fit each setting to examples and labels, and score other examples: [tested, classes] each.

    The last argument is a seed. The labels are 0, 1, … and all of them occur.
    """
    operations: Callable[[Sizes, Sequence[Any]], float]
    """About how many it takes to try these settings."""

    def affordable(self, sizes: Sizes, limit: float) -> tuple[Any, ...]:
        """The settings that a client of this size can try."""
        for settings in (self.settings, (self.plain,)):
            if self.operations(sizes, settings) <= limit:
                return settings
        return ()


def _logistic(
    x: Floats, y: Integers, new: Floats, settings: Sequence[Any], seed: int
) -> list[Floats]:
    from sklearn.linear_model import LogisticRegression

    models = [LogisticRegression(C=c, max_iter=ITERATIONS, tol=1e-3) for c in settings]
    with warnings.catch_warnings():
        # One that has not converged after so many iterations is evaluated as it is.
        warnings.simplefilter("ignore")
        return [model.fit(x, y).predict_log_proba(new) for model in models]


def _svm(x: Floats, y: Integers, new: Floats, settings: Sequence[Any], seed: int) -> list[Floats]:
    from sklearn.svm import SVC

    scores = []
    for c, gamma in settings:
        decision = SVC(C=c, gamma=gamma / x.shape[1]).fit(x, y).decision_function(new)
        scores.append(np.stack([-decision, decision], 1) if decision.ndim == 1 else decision)
    return scores


def _knn(x: Floats, y: Integers, new: Floats, settings: Sequence[Any], seed: int) -> list[Floats]:
    from sklearn.neighbors import NearestNeighbors

    most = min(len(x), max(k for k, _ in settings))
    near = NearestNeighbors(n_neighbors=most, algorithm="brute").fit(x)
    distance, index = near.kneighbors(new)
    classes = int(y.max()) + 1
    scores = []
    for k, weights in settings:
        votes = np.eye(classes)[y[index[:, :k]]]
        by = np.ones_like(distance[:, :k])
        if weights == "distance":
            by = 1 / np.maximum(distance[:, :k], 1e-12)
            by *= by.shape[1] / by.sum(1, keepdims=True)
        # One more vote, shared by all classes: none is impossible for want of a neighbour.
        share = ((votes * by[:, :, None]).sum(1) + 1 / classes) / (by.shape[1] + 1)
        scores.append(np.log(share))
    return scores


def _boosting(
    x: Floats, y: Integers, new: Floats, settings: Sequence[Any], seed: int
) -> list[Floats]:
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier

    if len(x) < HISTOGRAMS:
        model = GradientBoostingClassifier(
            n_estimators=max(settings), learning_rate=RATE, random_state=seed
        )
    else:
        model = HistGradientBoostingClassifier(
            max_iter=max(settings), learning_rate=RATE, early_stopping=False, random_state=seed
        )
    model.fit(x, y)
    # As many trees as each setting says: those of the fewest are the first of the most.
    stages = dict(enumerate(model.staged_decision_function(new), 1))
    scores = []
    for trees in settings:
        raw = stages[trees].reshape(len(new), -1)
        scores.append(np.concatenate([-raw / 2, raw / 2], 1) if raw.shape[1] == 1 else raw)
    return scores


def _pairs(s: Sizes) -> float:
    """Products of all pairs: within the folds, and with what is tested."""
    return float(s.features) * s.n * (s.n * (s.folds + 1) + s.tested)


def _fits(s: Sizes, settings: Sequence[Any]) -> int:
    """One in every fold for each setting, and the last."""
    return s.folds * len(settings) + 1


FAMILIES = (
    Family(
        "logistic",
        (0.1, 1.0, 10.0),
        1.0,
        _logistic,
        lambda s, settings: _fits(s, settings) * (FIT + 120.0 * s.n * s.features * s.classes),
    ),
    Family(
        "svm",
        tuple((c, gamma) for c in (1.0, 10.0) for gamma in (0.1, 0.3, 1.0, 3.0)),
        (10.0, 0.3),
        _svm,
        lambda s, settings: _fits(s, settings) * FIT + 3.0 * len(settings) * _pairs(s),
    ),
    Family(
        "knn",
        tuple((k, weights) for k in (9, 5, 3, 1) for weights in ("uniform", "distance")),
        (5, "distance"),
        _knn,
        lambda s, settings: _fits(s, [()]) * FIT + 2.0 * _pairs(s),
    ),
    Family(
        "boosting",
        (10, 25, TREES),
        10,
        _boosting,
        lambda s, trees: (
            _fits(s, [()]) * max(trees) * s.classes * (FIT / 2 + 30.0 * s.n * s.features)
        ),
    ),
)
"""Simplest first: a hyperplane, some examples with a kernel, all examples, many trees."""

CONSTANT = "constant"
"""What is fitted to a client whose examples are all of one class."""


@dataclass(frozen=True)
class Examples:
    """One client's examples to learn from, and how they are to be used."""

    x: Floats
    """[n, features]"""
    y: Integers
    fold: Integers
    """The fold of each; all 0: there are too few to cross-validate."""
    table: bool
    """Whether features are columns of a table, each with a unit of its own."""
    seed: int
    limit: float = CLIENT_OPERATIONS
    """Operations that may go into one family."""
    measure: Score | None = None
    """What is chosen by, where it is another than accuracy."""


@dataclass(frozen=True)
class CrossValidated:
    """A family's best setting on held-out examples."""

    family: Family
    setting: Any
    score: float
    """The metric that counts on held-out examples, by rule the share of those that were right."""
    loss: float
    """The cross-entropy of held-out examples."""
    temperature: float

    @property
    def key(self) -> float:
        """What families are compared by."""
        return -self.loss if np.isnan(self.score) else self.score


@dataclass(frozen=True)
class Fitted:
    """The best that a client fitted."""

    name: str
    """The family's."""
    setting: Any
    score: float
    loss: float
    scores: dict[str, float]
    """The score of every family, with its best setting."""
    left_out: tuple[str, ...]
    """Families for which the client has too much data."""
    predict: Callable[[Floats], Floats]
    """Inputs to log-probabilities of all classes."""


def best_fit(given: Examples, classes: int, tested: int) -> Fitted | tuple[str, ...]:
    """Choose a family and a setting by cross-validation, and fit them to all examples.

    ``tested`` is how many examples are going to be predicted. Where nothing can be fitted, because
    there is too little or too much data, only the families that were left out are returned.
    """
    present, y = np.unique(given.y, return_inverse=True)

    def spread(log_p: Floats) -> Floats:
        """Over all classes, of which some were never seen."""
        full = np.full((len(log_p), classes), np.log(UNSEEN))
        full[:, present] = np.maximum(log_p, np.log(UNSEEN))
        return full

    if len(present) == 1:
        score = (
            1.0 if given.measure is None else given.measure(spread(np.zeros((len(y), 1))), given.y)
        )
        return Fitted(CONSTANT, None, score, 0.0, {}, (), lambda x: spread(np.zeros((len(x), 1))))
    count = int(given.fold.max(initial=0)) + 1
    sizes = Sizes(len(y), given.x.shape[1], len(present), count, tested)
    families = [f for f in FAMILIES if given.table or f.name != "boosting"]
    settings = {f.name: f.affordable(sizes, given.limit) for f in families}
    left_out = tuple(name for name, some in settings.items() if not some)
    if count < 2 or len(left_out) == len(families):
        return left_out
    measure = given.measure
    of_all = None if measure is None else lambda log_p, _: measure(spread(log_p), given.y)
    tried = [
        cross_validated(
            *(f, settings[f.name], given.x, y, given.fold, given.table, given.seed), of_all
        )
        for f in families
        if settings[f.name]
    ]
    best = max(tried, key=lambda each: each.key)  # of equals the first, which is the simplest
    scale = scaler(given.x, given.table)
    x = scale(given.x)

    def predict(new: Floats) -> Floats:
        (raw,) = best.family.scores(x, y, scale(new), [best.setting], given.seed)
        return spread(log_softmax(raw / best.temperature))

    scores = {each.family.name: each.score for each in tried}
    found = (best.family.name, best.setting, best.score, best.loss)
    return Fitted(*found, scores, left_out, predict)


def cross_validated(
    family: Family,
    settings: Sequence[Any],
    x: Floats,
    y: Integers,
    fold: Integers,
    table: bool,
    seed: int,
    measure: Score | None = None,
) -> CrossValidated:
    """The setting that does best on held-out examples, and the temperature of its scores."""
    raw = np.full((len(settings), len(y), int(y.max()) + 1), -np.inf)
    for f in range(int(fold.max()) + 1):
        learn, held = fold != f, fold == f
        seen, labels = np.unique(y[learn], return_inverse=True)
        if len(seen) == 1:
            raw[:, held, seen[0]] = 0.0
            continue
        scale = scaler(x[learn], table)
        scores = family.scores(scale(x[learn]), labels, scale(x[held]), settings, seed)
        raw[np.ix_(np.arange(len(settings)), held.nonzero()[0], seen)] = scores
    if measure is not None:
        return max(
            (_measured(family, settings[i], raw[i], y, measure) for i in range(len(settings))),
            key=lambda each: (each.key, -each.loss),
        )
    score = (raw.argmax(2) == y).mean(1)
    tied = [i for i in range(len(settings)) if score[i] == score.max()]
    losses = {(i, t): -_of_label(raw[i] / t, y).mean() for i in tied for t in TEMPERATURES}
    best, temperature = min(losses, key=lambda each: losses[each])
    loss = float(losses[best, temperature])
    return CrossValidated(family, settings[best], float(score[best]), loss, temperature)


def _measured(
    family: Family, setting: Any, raw: Floats, y: Integers, measure: Score
) -> CrossValidated:
    """A setting by another metric than accuracy, with the temperature of the lowest loss."""
    losses = {t: float(-_of_label(raw / t, y).mean()) for t in TEMPERATURES}
    temperature = min(losses, key=lambda each: losses[each])
    score = measure(log_softmax(raw / temperature), y)
    return CrossValidated(family, setting, score, losses[temperature], temperature)


def scaler(x: Floats, table: bool) -> Callable[[Floats], Floats]:
    """Centre as these examples are, and scale to one: each column, or all of them alike."""
    mean, variance = x.mean(0, dtype=np.float64), x.var(0, dtype=np.float64)
    deviation = np.sqrt(variance if table else np.full_like(variance, variance.mean()))
    constant = deviation <= 1e-9 * np.maximum(np.abs(mean), 1.0)
    deviation = np.where(constant, 1.0, deviation)
    return lambda new: (new - mean) / deviation


def log_softmax(raw: Floats) -> Floats:
    """Log-probabilities from scores, [examples, classes]."""
    shifted = raw - raw.max(1, keepdims=True)
    log_p: Floats = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return log_p


def _of_label(raw: Floats, y: Integers) -> Floats:
    of_label: Floats = np.maximum(log_softmax(raw)[np.arange(len(y)), y], np.log(UNSEEN))
    return of_label


def one_thread() -> Any:
    """Fit on one thread: small products wait for each other longer than they compute.

    Used as a context, threads are as before when it ends.
    """
    import sklearn.ensemble
    import sklearn.linear_model
    import sklearn.neighbors
    import sklearn.svm  # noqa: F401  # libraries that are loaded later would not be limited
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    return threadpool_limits(1)
