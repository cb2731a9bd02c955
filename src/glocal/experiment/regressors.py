"""What a client can fit alone to numbers: constants, ridge regression, SVR, kNN, boosted trees.

Labels are in standard deviations; counts are predicted from 0 on. How a client chooses is in
:mod:`glocal.experiment.families`. Nothing here needs torch.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from glocal.experiment import families
from glocal.experiment.families import FIT, CrossValidated, Examples, Family, Floats, Settings


def _constant(x: Floats, y: Floats, new: Floats, settings: Settings, seed: int) -> list[Floats]:
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


def _boosting(x: Floats, y: Floats, new: Floats, settings: Settings, seed: int) -> list[Floats]:
    model = families.boosted(x, y, settings, seed, "Regressor")
    stages = dict(enumerate(model.staged_predict(new), 1))
    return [stages[trees] for trees in settings]


FAMILIES = (
    Family(families.CONSTANT, ("median", "mean"), "median", _constant, lambda s, settings: 0.0),
    Family(
        "ridge",
        (1.0, 0.1, 0.01, 0.001),
        0.01,
        _ridge,
        lambda s, settings: s.fits(len(settings)) * (FIT + 10.0 * s.n * s.features**2),
    ),
    Family(
        "svr",
        tuple(product((0.3, 3.0), (0.1, 0.3, 1.0))),
        (1.0, 0.3),
        _svr,
        families.by_pairs(10.0),
    ),
    Family(
        "knn",
        tuple(product((30, 15, 7, 3), ("uniform", "distance"))),
        (15, "uniform"),
        _knn,
        families.by_pairs(2.0),
    ),
    Family(
        "boosting",
        (10, 25, 50),
        10,
        _boosting,
        lambda s, trees: s.fits(1) * max(trees) * (FIT / 2 + 30.0 * s.n * s.features),
    ),
)
"""Simplest first: no feature, a hyperplane, some examples with a kernel, all examples, trees."""


def best_fit(given: Examples, tested: int) -> families.Fitted | tuple[str, ...]:
    """Choose a family and a setting by cross-validation, and fit them to all examples.

    ``given.measure`` takes predictions in standard deviations of the label. Where there is too
    little data to cross-validate, only the families that were left out are returned.
    """
    return families.choose_family(
        FAMILIES, given, 1, tested, _cross_validated, lambda predicted, _: predicted
    )


def _cross_validated(family: Family, settings: Settings, given: Examples) -> CrossValidated:
    """The setting that does best on held-out examples."""
    if given.measure is None:
        raise ValueError("numbers have no accuracy")
    held_out = np.empty((len(settings), len(given.y)))
    for learn, held, x, new in given.by_fold():
        held_out[:, held] = family.scores(x, given.y[learn], new, settings, given.seed)
    return families.best_setting(
        [
            CrossValidated(
                *(family, setting, given.measure(predicted, given.y)),
                loss=float(0.5 * np.square(predicted - given.y).mean()),
            )
            for setting, predicted in zip(settings, held_out, strict=True)
        ]
    )
