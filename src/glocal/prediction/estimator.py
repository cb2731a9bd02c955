"""A client's model as an estimator of scikit-learn, for its tools that take a fitted one.

For example ``sklearn.inspection.permutation_importance(model.estimator(), frame, y)``. This module
needs scikit-learn; nothing else of the package imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from glocal.core.errors import GlocalError
from glocal.data.validation import Array
from glocal.prediction.client_model import ClientModel, load_model


class ClientEstimator(BaseEstimator):  # type: ignore[misc]
    """One client's model, trained already: ``fit`` changes nothing.

    Args:
        model: a :class:`~glocal.prediction.client_model.ClientModel`, or the folder of a saved one.
    """

    def __init__(self, model: ClientModel | str | Path) -> None:
        self.model = model

    @property
    def client_model(self) -> ClientModel:
        """The model; a folder is read when it is first needed."""
        if isinstance(self.model, ClientModel):
            return self.model
        if not hasattr(self, "_loaded"):
            self._loaded = load_model(self.model)
        return self._loaded

    @property
    def feature_names_in_(self) -> Array:
        """The columns that rows must have, of a model of a table."""
        preprocessing = self.client_model.preprocessing
        if preprocessing is None:
            raise AttributeError("feature_names_in_")
        return np.array([column.name for column in preprocessing.columns], dtype=object)

    @property
    def n_features_in_(self) -> int:
        """How many columns rows must have."""
        if self.client_model.preprocessing is None:
            return int(np.prod(self.client_model.description.input_shape))
        return len(self.feature_names_in_)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_clone__(self) -> Self:
        """Nothing is fitted, so a clone may be the same."""
        return self

    def fit(self, X: Any, y: Any = None) -> Self:
        """Change nothing: the model stays as the federation trained it."""
        return self

    def predict(self, X: Any) -> Array:
        """The most likely label of each row, or its number."""
        return self.client_model.predict(X)


class ClientClassifier(ClassifierMixin, ClientEstimator):  # type: ignore[misc]
    """One client's model of classes."""

    @property
    def classes_(self) -> Array:
        """The labels, in the order of the columns of ``predict_proba``."""
        if not self.client_model.description.has_classes:
            raise GlocalError("this is no model of classes: use ClientRegressor.")
        return np.array(self.client_model.classes)

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class."""
        return self.client_model.predict_proba(X)


class ClientRegressor(RegressorMixin, ClientEstimator):  # type: ignore[misc]
    """One client's model of a number or a count."""
