"""What a client can fit alone to numbers: constants, ridge regression, SVR, kNN, boosted trees.

As in :mod:`glocal.experiment.classifiers`: a family's settings are cross-validated, the one that
does best on held-out examples by the metric that counts is fitted to all, and of families the best
is used, ties to the simpler. Labels are in standard deviations; counts are predicted from 0 on.

Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glocal.experiment.classifiers import (
    CONSTANT,
    FIT,
    HISTOGRAMS,
    RATE,
    Examples,
    Family,
    Fitted,
    Floats,
    Score,
    Sizes,
    scaler,
)

Settings = Sequence[Any]


def _constant(
    x: Floats, y: Floats, new: Floats, settings: Sequence[Any], seed: int
) -> list[Floats]:
    typical = {"median": np.median(y), "mean": y.mean()}
    return [np.full(len(new), typical[which]) for which in settings]


def _ridge(x: Floats, y: Floats, new: Floats, settings: Settings, seed: int) -> list[Floats]:
    from sklearn.linear_model import Ridge

    return [Ridge(alpha=alpha * len(x)).fit(x, y).predict(new) for alpha in settings]


def _svr(x: Floats, y: Floats, new: Floats, settings: Settings, seed: int) -> list[Floats]:
    from sklearn.svm import SVR

    return [
        SVR(C=c, gamma=gamma / x.shape[1], epsilon=0.1).fit(x, y).predict(new)
        for c, gamma in settings
    ]


def _knn(x: Floats, y: Floats, new: Floats, settings: Settings, seed: int) -> list[Floats]:
    from sklearn.neighbors import KNeighborsRegressor

    return [
        KNeighborsRegressor(min(k, len(x)), weights=weights, algorithm="brute")
        .fit(x, y)
        .predict(new)
        for k, weights in settings
    ]


def _boosting(
    x: Floats, y: Floats, new: Floats, settings: Sequence[Any], seed: int
) -> list[Floats]:
    from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

    if len(x) < HISTOGRAMS:
        model = GradientBoostingRegressor(
            n_estimators=max(settings), learning_rate=RATE, random_state=seed
        )
    else:
        model = HistGradientBoostingRegressor(
            max_iter=max(settings), learning_rate=RATE, early_stopping=False, random_state=seed
        )
    stages = dict(enumerate(model.fit(x, y).staged_predict(new), 1))
    return [stages[trees] for trees in settings]


def _fits(s: Sizes, settings: Sequence[Any]) -> int:
    return s.folds * len(settings) + 1


def _pairs(s: Sizes) -> float:
    return float(s.features) * s.n * (s.n * (s.folds + 1) + s.tested)


FAMILIES = (
    Family(CONSTANT, ("median", "mean"), "median", _constant, lambda s, settings: 0.0),
    Family(
        "ridge",
        (1.0, 0.1, 0.01, 0.001),
        0.01,
        _ridge,
        lambda s, settings: _fits(s, settings) * (FIT + 10.0 * s.n * s.features**2),
    ),
    Family(
        "svr",
        tuple((c, gamma) for c in (0.3, 3.0) for gamma in (0.1, 0.3, 1.0)),
        (1.0, 0.3),
        _svr,
        lambda s, settings: _fits(s, settings) * FIT + 10.0 * len(settings) * _pairs(s),
    ),
    Family(
        "knn",
        tuple((k, weights) for k in (30, 15, 7, 3) for weights in ("uniform", "distance")),
        (15, "uniform"),
        _knn,
        lambda s, settings: _fits(s, settings) * FIT + 2.0 * len(settings) * _pairs(s),
    ),
    Family(
        "boosting",
        (10, 25, 50),
        10,
        _boosting,
        lambda s, trees: _fits(s, [()]) * max(trees) * (FIT / 2 + 30.0 * s.n * s.features),
    ),
)
"""Simplest first: no feature, a hyperplane, some examples with a kernel, all examples, trees."""


@dataclass(frozen=True)
class _Tried:
    family: Family
    setting: Any
    score: float
    loss: float

    @property
    def key(self) -> float:
        return -self.loss if np.isnan(self.score) else self.score


def best_fit(given: Examples, tested: int) -> Fitted | tuple[str, ...]:
    """Choose a family and a setting by cross-validation, and fit them to all examples.

    ``given.measure`` takes predictions in standard deviations of the label. Where there is too
    little data to cross-validate, only the families that were left out are returned.
    """
    count, measure = int(given.fold.max(initial=0)) + 1, given.measure
    if measure is None:
        raise ValueError("numbers have no accuracy")
    sizes = Sizes(len(given.y), given.x.shape[1], 1, count, tested)
    families = [f for f in FAMILIES if given.table or f.name != "boosting"]
    settings = {f.name: f.affordable(sizes, given.limit) for f in families}
    left_out = tuple(name for name, some in settings.items() if not some)
    if count < 2:
        return left_out
    tried = [
        _cross_validated(f, settings[f.name], given, measure) for f in families if settings[f.name]
    ]
    best = max(tried, key=lambda each: each.key)  # of equals the first, which is the simplest
    scale = scaler(given.x, given.table)
    x = scale(given.x)

    def predict(new: Floats) -> Floats:
        (found,) = best.family.scores(x, given.y, scale(new), [best.setting], given.seed)
        return np.asarray(found)

    scores = {each.family.name: each.score for each in tried}
    about = (best.family.name, best.setting, best.score, best.loss)
    return Fitted(*about, scores, left_out, predict)


def _cross_validated(
    family: Family, settings: Sequence[Any], given: Examples, measure: Score
) -> _Tried:
    """The setting that does best on held-out examples."""
    held_out = np.empty((len(settings), len(given.y)))
    for f in range(int(given.fold.max()) + 1):
        learn, held = given.fold != f, given.fold == f
        scale = scaler(given.x[learn], given.table)
        held_out[:, held] = family.scores(
            scale(given.x[learn]), given.y[learn], scale(given.x[held]), settings, given.seed
        )
    tried = [
        _Tried(
            *(family, setting, measure(predicted, given.y)),
            loss=float(0.5 * np.square(predicted - given.y).mean()),
        )
        for setting, predicted in zip(settings, held_out, strict=True)
    ]
    return max(tried, key=lambda each: (each.key, -each.loss))
