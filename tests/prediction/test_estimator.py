"""A client's model in the tools of scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hospital_rows import columns, trained
from sklearn.base import clone, is_classifier
from sklearn.inspection import permutation_importance
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.utils.validation import check_is_fitted

import glocal
from glocal.prediction.estimator import ClientClassifier


@pytest.fixture(scope="module")
def run() -> glocal.Run:
    return trained()[1]


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(columns())


def test_tools_take_a_clients_model(run: glocal.Run, frame: pd.DataFrame) -> None:
    model = run.client_model("Wien")
    estimator = model.estimator()
    check_is_fitted(estimator)
    assert is_classifier(estimator)
    X, y = frame.drop(columns=["outcome", "site"]), frame["outcome"]
    right = accuracy_score(y, model.predict(frame))
    assert estimator.score(X, y) == pytest.approx(right)
    assert estimator.classes_.tolist() == ["no", "yes"]
    assert set(estimator.feature_names_in_) == set(X)
    assert estimator.n_features_in_ == 4
    found = permutation_importance(estimator, X, y, n_repeats=2, random_state=0)
    by_hand = [X.assign(**{c: X[c].iloc[::-1].to_numpy()}) for c in X]
    assert found.importances_mean.shape == (4,)
    assert any(estimator.score(each, y) != right for each in by_hand)
    # Nothing is fitted: every part is evaluated with the same model.
    parts = cross_val_score(estimator, X, y, cv=3)
    assert parts.mean() == pytest.approx(right, abs=0.02)
    shares = estimator.predict_proba(X)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert cross_val_score(estimator, X, y, cv=2, scoring="roc_auc").shape == (2,)
    assert 0 <= roc_auc_score(y, shares[:, 1]) <= 1


def test_an_estimator_of_a_folder(run: glocal.Run, frame: pd.DataFrame, tmp_path: Path) -> None:
    run.client_model("Wien").save(tmp_path / "m")
    estimator = clone(ClientClassifier(tmp_path / "m")).fit(frame)
    assert estimator.get_params() == {"model": tmp_path / "m"}
    assert estimator.predict(frame).tolist() == run.client_model("Wien").predict(frame).tolist()
