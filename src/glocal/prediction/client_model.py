"""The model that one client predicts with, in use: raw rows in, labels and probabilities out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from glocal.core.errors import GlocalError
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.data.validation import Array
from glocal.prediction import model_folder
from glocal.prediction.description import Description
from glocal.prediction.rows import as_inputs, opened

if TYPE_CHECKING:
    from glocal.prediction.estimator import ClientClassifier, ClientRegressor

AT_ONCE = 4096
"""Rows that the model is given together."""


@dataclass(frozen=True, eq=False)
class ClientModel:
    """The model of one client.

    Rows are given as they are in the table it was trained on: a DataFrame, a dict of columns, a
    dict of one row, a list of dicts, or the path of a file. Of a model that was not trained on a
    table, rows are an array or tensor of inputs. A tensor is always taken for inputs as in
    training.
    """

    name: str
    """Whose model it is."""
    module: nn.Module
    description: Description = field(repr=False)
    preprocessing: Preprocessing | None = field(default=None, repr=False)
    """How rows become inputs; none: it was not trained on a table."""

    @property
    def classes(self) -> list[str | int]:
        """The labels, as they were given, in the order of :meth:`predict_proba`'s columns."""
        return list(self.description.classes)

    def logits(self, rows: Any) -> Tensor:
        """What the model says of each row, before any choice."""
        about = self.description
        inputs = as_inputs(opened(rows), self.preprocessing, about.input_shape, about.tokens)
        self.module.eval()
        try:
            with torch.no_grad():
                parts = [self.module(part) for part in torch.split(inputs, AT_ONCE)]
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            raise GlocalError(
                f"the model of client {self.name} cannot take inputs of shape "
                f"{list(inputs.shape)}: give some as it was trained on, one after the other "
                f"({type(error).__name__}: {error})."
            ) from error
        out = torch.cat(parts)
        bad = ~torch.isfinite(out.flatten(1)).all(1)
        if bad.any():
            raise GlocalError(
                f"the model of client {self.name} gives no finite number for row "
                f"{int(bad.nonzero()[0])}: its training diverged, or its file is damaged."
            )
        return out

    def predict_proba(self, rows: Any) -> Array:
        """The probability of each class [n, classes], in the order of :attr:`classes`."""
        if not self.description.has_classes:
            raise GlocalError(
                f"a model of {self.description.task} has no probabilities of classes: use predict."
            )
        return _array(torch.softmax(self.logits(rows).double(), -1))

    def predict(self, rows: Any) -> Array:
        """The most likely label of each row, as it was given in training; or its number."""
        out = self.logits(rows)
        if not self.description.has_classes:
            return _array(self.description.numbers(out.double()))
        return self.labels(_array(out.argmax(-1)))

    def labels(self, codes: Array) -> Array:
        """The labels of class numbers."""
        return np.array(self.description.classes)[codes]

    def unknown_words(self, rows: Any) -> dict[str, list[str]]:
        """The words of each column of the rows that no training row had.

        Of a column whose rare words are grouped, those that count as "(other)".
        """
        if self.preprocessing is None or isinstance(rows, Tensor):
            return {}
        return self.preprocessing.unknown_words(opened(rows))

    def save(self, folder: str | Path, extra: Mapping[str, bytes] | None = None) -> None:
        """Write the model to a new folder: weights, description and preprocessing, no code.

        ``extra`` has more files by their names, for other programs.
        """
        parts = (self.module, self.description, self.preprocessing)
        model_folder.save(*parts, Path(folder), extra or {})

    def estimator(self) -> ClientClassifier | ClientRegressor:
        """The model as an estimator of scikit-learn."""
        from glocal.prediction.estimator import ClientClassifier, ClientRegressor

        return (ClientClassifier if self.description.has_classes else ClientRegressor)(self)


def load_model(
    folder: str | Path, module: nn.Module | Callable[[], nn.Module] | None = None
) -> ClientModel:
    """A model that :meth:`ClientModel.save` or ``glocal export`` has written.

    Args:
        folder: that of the model.
        module: the architecture of an own model, or a function that returns it. Its weights are
            replaced by those in the folder. Models by name need none.
    """
    built, about, preprocessing = model_folder.load(Path(folder), module)
    return ClientModel(about.client, built, about, preprocessing)


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.cpu().numpy()
    return array
