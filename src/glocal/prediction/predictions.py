"""Predictions of rows as a table: ``prediction`` and, for classes, ``p_<class>``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.files import write
from glocal.prediction.client_model import ClientModel
from glocal.prediction.description import listed


def table(model: ClientModel, rows: Any) -> dict[str, list[Any]]:
    """The columns of the predictions, in the order of the rows."""
    if not model.description.has_classes:
        return {"prediction": model.predict(rows).tolist()}
    shares = model.predict_proba(rows)
    if shares.ndim != 2:
        raise GlocalError(
            "this model predicts a label at every position of a sequence, for which there is no "
            "column: use glocal.load_model(…).predict in Python."
        )
    columns: dict[str, list[Any]] = {"prediction": model.labels(shares.argmax(1)).tolist()}
    for label, column in zip(listed(model.description.classes), shares.T, strict=True):
        columns[f"p_{label}"] = column.tolist()
    return columns


def as_csv(columns: dict[str, list[Any]]) -> str:
    """The columns as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    rows: Iterable[Any] = zip(*columns.values(), strict=True)
    writer.writerows([_written(cell) for cell in row] for row in rows)
    return text.getvalue()


def write_csv(columns: dict[str, list[Any]], path: Path) -> None:
    """Write the columns to a CSV file."""
    write(path, as_csv(columns).encode())


def _written(cell: Any) -> Any:
    """A cell; floats with the nine digits that single precision has."""
    return f"{cell:.9g}" if isinstance(cell, float) else cell
