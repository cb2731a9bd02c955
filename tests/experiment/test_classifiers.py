"""What clients fit with scikit-learn: choices checked by hand, and scores by a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from glocal.core import rng
from glocal.experiment import classifiers
from glocal.experiment.classifiers import FAMILIES, UNSEEN, best_fit, cross_validated
from glocal.experiment.families import Examples, Fitted, Sizes, scaler
from glocal.experiment.folds import folds

pytest.importorskip("sklearn")
BY_NAME = {family.name: family for family in FAMILIES}


def examples(x: np.ndarray, y: np.ndarray, *, table: bool = True, **more: float) -> Examples:
    return Examples(x, y, folds(y, None, rng.key(0)), table, 0, **more)


def chosen(given: Examples, classes: int = 2) -> Fitted:
    best = best_fit(given, classes, 10)
    assert isinstance(best, Fitted)
    return best


def noise(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d))


def test_logistic_regression_wins_where_neighbours_are_on_the_other_side() -> None:
    """Pairs to the left and right of a plane; an SVM may do as well, and is less simple."""
    x, y = np.repeat(noise(40, 10), 2, 0), np.arange(80) % 2
    best = chosen(examples(np.column_stack([x, y]), y))
    assert best.name == "logistic"
    assert best.score > best.scores["knn"]


def test_knn_wins_where_every_example_has_a_twin() -> None:
    """Pairs of near points with labels at random: one neighbour says all, a smooth rule nothing."""
    centres = 100 * noise(40, 2)
    x = np.repeat(centres, 3, 0) + 1e-3 * noise(120, 2)
    y = np.repeat(np.random.default_rng(1).integers(0, 2, 40), 3)
    best = chosen(examples(x, y, table=False))
    assert best.name == "knn"
    assert best.setting[0] == 1 or best.setting[1] == "distance"  # the nearest has all the say
    assert best.score > 0.9


def test_boosted_trees_win_where_one_column_is_cut_twice_and_are_for_tables() -> None:
    x = noise(150, 20)
    y = ((x[:, 0] > -0.5) & (x[:, 0] < 0.5)).astype(int)
    assert chosen(examples(x, y)).name == "boosting"
    assert "boosting" not in chosen(examples(x, y, table=False)).scores


@pytest.mark.parametrize("name", ["logistic", "svm", "knn"])
def test_the_score_is_that_of_a_plain_loop(name: str) -> None:
    """Scikit-learn's own pipelines, fold by fold and setting by setting."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    x = noise(45, 4) * (1, 5, 0.1, 2)
    y = (x[:, 0] + noise(45, 4)[:, 3] > 0).astype(int) + (x[:, 1] > 4)
    fold = folds(y, None, rng.key(0))
    build = {
        "logistic": lambda c: LogisticRegression(C=c, max_iter=1000, tol=1e-3),
        "svm": lambda s: SVC(C=s[0], gamma=s[1] / 4, break_ties=True),
        "knn": lambda s: KNeighborsClassifier(s[0], weights=s[1]),
    }[name]
    family = BY_NAME[name]
    scores = []
    for setting in family.settings:
        right = 0
        for f in range(5):
            model = make_pipeline(StandardScaler(), build(setting))
            model.fit(x[fold != f], y[fold != f])
            right += (model.predict(x[fold == f]) == y[fold == f]).sum()
        scores.append(right / len(y))
    best = cross_validated(family, family.settings, Examples(x, y, fold, True, 0))
    assert best.score == pytest.approx(max(scores))
    assert scores[family.settings.index(best.setting)] == pytest.approx(max(scores))
    assert min(scores) < max(scores)


def test_the_chosen_is_fitted_to_all_examples() -> None:
    """The only example of a class is in one fold; the model that is used knows it."""
    x = np.concatenate([noise(30, 2), noise(30, 2) + 8, [[30.0, -30.0]]])
    y = np.repeat([0, 1, 2], [30, 30, 1])
    best = chosen(examples(x, y), 3)
    assert best.predict(np.array([[30.0, -30.0]])).argmax() == 2
    assert best.score == pytest.approx(60 / 61)


def test_one_class_is_a_constant() -> None:
    best = chosen(examples(noise(9, 2), np.full(9, 2)), 4)
    assert (best.name, best.score) == ("constant", 1.0)
    assert (best.predict(noise(3, 2)).argmax(1) == 2).all()


@pytest.mark.parametrize("y", [[0, 1], [0, 1, 2], [1], [0, 0, 1], [0, 1, 1, 0]])
def test_tiny_clients(y: list[int]) -> None:
    best = best_fit(examples(noise(len(y), 3), np.array(y)), 3, 5)
    if len(set(y)) > 1 and max(map(y.count, y)) == 1:
        assert best == ()  # nothing can be held out
    else:
        assert isinstance(best, Fitted)
        assert np.isfinite(best.predict(noise(4, 3))).all()


def test_log_probabilities_are_calibrated_and_unseen_classes_have_almost_none() -> None:
    x = noise(200, 2)
    y = np.where(x[:, 0] + noise(200, 3)[:, 2] > 0, 1, 3)
    for name, family in BY_NAME.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(classifiers, "FAMILIES", (family,))
            log_p = chosen(examples(x, y), 5).predict(noise(50, 2))
        assert log_p.shape == (50, 5), name
        p = np.exp(log_p)
        assert np.allclose(p[:, [0, 2, 4]], UNSEEN)
        assert np.allclose(p[:, [1, 3]].sum(1), 1, atol=1e-4)
        assert 0.6 < p.max(1).mean() < 0.95  # a fifth of the labels cannot be known


def test_equal_scores_go_to_the_simpler() -> None:
    x = np.concatenate([noise(30, 2), noise(30, 2) + 50])
    best = chosen(examples(x, np.repeat([0, 1], 30)))
    assert set(best.scores.values()) == {1.0}
    assert best.name == "logistic"


def test_what_is_too_large_is_left_out_by_its_size() -> None:
    x, y = noise(60, 5), np.arange(60) % 2
    everything = chosen(examples(x, y))
    assert everything.left_out == ()
    sizes = Sizes(60, 5, 2, 5, 10)
    cost = {name: family.operations(sizes, [family.plain]) for name, family in BY_NAME.items()}
    limit = sorted(cost.values())[1]  # two families can afford one setting or more
    some = chosen(examples(x, y, limit=limit))
    assert set(some.left_out) == {name for name, c in cost.items() if c > limit}
    assert set(some.scores) == set(BY_NAME) - set(some.left_out)
    assert best_fit(examples(x, y, limit=0.0), 2, 10) == tuple(BY_NAME)


def test_scaling_is_by_column_for_tables_and_alike_for_pixels() -> None:
    x = noise(50, 3) * (1, 10, 0) + 5
    table, pixels = scaler(x, True)(x), scaler(x, False)(x)
    assert np.allclose(table.std(0), (1, 1, 0))
    assert np.allclose(table.mean(0), 0)
    assert np.allclose((pixels**2).mean(), 1)
    assert pixels[:, 1].std() / pixels[:, 0].std() == pytest.approx(x[:, 1].std() / x[:, 0].std())


def test_the_same_seed_gives_the_same_result() -> None:
    x = noise(60, 3)
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    a, b = (chosen(examples(x, y)) for _ in range(2))
    assert (a.scores, a.setting) == (b.scores, b.setting)
    assert np.array_equal(a.predict(x), b.predict(x))
