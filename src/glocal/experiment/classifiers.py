"""What a client can fit alone to classes: logistic regression, SVM, kNN, boosted trees.

How a client chooses is in :mod:`glocal.experiment.families`. Scores become probabilities by one
temperature, fitted on the held-out examples (Guo et al., *On calibration of modern neural
networks*, ICML 2017). Classes that a client has never seen get the probability ``UNSEEN``.

Nothing here needs torch, so processes that fit start quickly.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import product

import numpy as np

from glocal.experiment import families
from glocal.experiment.families import FIT, CrossValidated, Examples, Family, Floats, Settings

UNSEEN = 1e-6
"""The least probability of a class, and that of classes which a client has never seen."""

TEMPERATURES = tuple(2.0 ** (i / 2) for i in range(-8, 9))

ITERATIONS = 200
TREES = 50


def _logistic(
    x: Floats, y: families.Integers, new: Floats, settings: Settings, seed: int
) -> list[Floats]:
    from sklearn.linear_model import LogisticRegression

    models = [LogisticRegression(C=c, max_iter=ITERATIONS, tol=1e-3) for c in settings]
    with warnings.catch_warnings():
        # One that has not converged after so many iterations is evaluated as it is.
        warnings.simplefilter("ignore")
        return [model.fit(x, y).predict_log_proba(new) for model in models]


def _svm(
    x: Floats, y: families.Integers, new: Floats, settings: Settings, seed: int
) -> list[Floats]:
    from sklearn.svm import SVC

    scores = []
    for c, gamma in settings:
        decision = SVC(C=c, gamma=gamma / x.shape[1]).fit(x, y).decision_function(new)
        scores.append(np.stack([-decision, decision], 1) if decision.ndim == 1 else decision)
    return scores


def _knn(
    x: Floats, y: families.Integers, new: Floats, settings: Settings, seed: int
) -> list[Floats]:
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
    x: Floats, y: families.Integers, new: Floats, settings: Settings, seed: int
) -> list[Floats]:
    model = families.boosted(x, y, settings, seed, "Classifier")
    stages = dict(enumerate(model.staged_decision_function(new), 1))
    scores = []
    for trees in settings:
        raw = stages[trees].reshape(len(new), -1)
        scores.append(np.concatenate([-raw / 2, raw / 2], 1) if raw.shape[1] == 1 else raw)
    return scores


FAMILIES = (
    Family(
        "logistic",
        (0.1, 1.0, 10.0),
        1.0,
        _logistic,
        lambda s, settings: s.fits(len(settings)) * (FIT + 120.0 * s.n * s.features * s.classes),
    ),
    Family(
        "svm",
        tuple(product((1.0, 10.0), (0.1, 0.3, 1.0, 3.0))),
        (10.0, 0.3),
        _svm,
        families.by_pairs(3.0),
    ),
    Family(
        "knn",
        tuple(product((9, 5, 3, 1), ("uniform", "distance"))),
        (5, "distance"),
        _knn,
        lambda s, settings: s.fits(1) * FIT + 2.0 * s.pairs,
    ),
    Family(
        "boosting",
        (10, 25, TREES),
        10,
        _boosting,
        lambda s, trees: s.fits(1) * max(trees) * s.classes * (FIT / 2 + 30.0 * s.n * s.features),
    ),
)
"""Simplest first: a hyperplane, some examples with a kernel, all examples, many trees."""


def best_fit(given: Examples, classes: int, tested: int) -> families.Fitted | tuple[str, ...]:
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

        def certain(x: Floats) -> Floats:
            return spread(np.zeros((len(x), 1)))

        score = 1.0 if given.measure is None else given.measure(certain(given.x), given.y)
        return families.Fitted(families.CONSTANT, None, score, 0.0, {}, (), certain)
    measure = given.measure
    of_all = None if measure is None else lambda log_p, _: measure(spread(log_p), given.y)
    return families.choose_family(
        FAMILIES,
        replace(given, y=y, measure=of_all),
        len(present),
        tested,
        cross_validated,
        lambda raw, best: spread(log_softmax(raw / best.temperature)),
    )


def cross_validated(family: Family, settings: Settings, given: Examples) -> CrossValidated:
    """The setting that does best on held-out examples, and the temperature of its scores."""
    y, measure = given.y, given.measure
    raw = np.full((len(settings), len(y), int(y.max()) + 1), -np.inf)
    for learn, held, x, new in given.by_fold():
        seen, labels = np.unique(y[learn], return_inverse=True)
        if len(seen) == 1:
            raw[:, held, seen[0]] = 0.0
            continue
        scores = family.scores(x, labels, new, settings, given.seed)
        raw[np.ix_(np.arange(len(settings)), held.nonzero()[0], seen)] = scores
    if measure is not None:
        return families.best_setting(
            [_measured(family, settings[i], raw[i], y, measure) for i in range(len(settings))]
        )
    score = (raw.argmax(2) == y).mean(1)
    tied = [i for i in range(len(settings)) if score[i] == score.max()]
    losses = {(i, t): -_of_label(raw[i] / t, y).mean() for i in tied for t in TEMPERATURES}
    best, temperature = min(losses, key=lambda each: losses[each])
    loss = float(losses[best, temperature])
    return CrossValidated(family, settings[best], float(score[best]), loss, temperature)


def _measured(
    family: Family, setting: object, raw: Floats, y: families.Integers, measure: families.Score
) -> CrossValidated:
    """A setting by another metric than accuracy, with the temperature of the lowest loss."""
    losses = {t: float(-_of_label(raw / t, y).mean()) for t in TEMPERATURES}
    temperature = min(losses, key=lambda each: losses[each])
    score = measure(log_softmax(raw / temperature), y)
    return CrossValidated(family, setting, score, losses[temperature], temperature)


def log_softmax(raw: Floats) -> Floats:
    """Log-probabilities from scores, [examples, classes]."""
    shifted = raw - raw.max(1, keepdims=True)
    log_p: Floats = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return log_p


def _of_label(raw: Floats, y: families.Integers) -> Floats:
    of_label: Floats = np.maximum(log_softmax(raw)[np.arange(len(y)), y], np.log(UNSEEN))
    return of_label
