"""The label column of a table: classes, and warnings where labels may be something else."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from glocal.core.errors import shown
from glocal.data import validation as check
from glocal.data.preprocessing.kinds import NUMBER, case_warnings, recognised
from glocal.data.preprocessing.report import ColumnReport
from glocal.data.quantities import AUTO, refuse_doubtful
from glocal.data.table import Table
from glocal.data.validation import Array


def of_table(
    table: Table, name: str, classes: int | None, task: str = AUTO
) -> tuple[Tensor, int, dict[str, int] | None, ColumnReport]:
    """Labels as int64, the number of classes, the code of each label, and what became of them.

    Integers that are not 0, 1, … are numbered in order, as words are. Numbers that may be a
    quantity are an error, unless the ``task`` is said.
    """
    values = table.ids(name, "labels")
    if task == AUTO and classes is None:
        refuse_doubtful(_numbers_of(table, name, values), f"the label column {shown(name)}")
    inside = f" in column {shown(name)}"
    warnings: list[str] = []
    codes: dict[str, int] | None = None
    if values.dtype.kind == "O" and not any(check.missing(v) for v in values.tolist()):
        values = _without_objects(values)
    is_float = values.dtype.kind == "f" and bool(np.isfinite(values).all())
    if is_float and (values == np.floor(values)).all() and (abs(values) < 2**53).all():
        warnings.append(
            f"the label column {shown(name)} holds floats, such as {values[0]}, which were read as "
            "classes: if it is a quantity, they are none."
        )
        values = values.astype(np.int64)
    if values.dtype.kind in "iu":
        known, position = np.unique(values, return_inverse=True)
        if classes is None and not np.array_equal(known, np.arange(len(known))):
            codes = {str(label): code for code, label in enumerate(known.tolist())}
            first = ", ".join(str(label) for label in known[:3].tolist())
            more = ", …" if len(known) > 3 else ""
            warnings.append(
                f"the labels of column {shown(name)} are {first}{more}, not 0, 1, …, so they were "
                "numbered from 0 in order."
            )
            values = position
    labels, count, words = check.labels(values, classes, table.where, inside)
    was = "words" if words is not None else "numbers"
    if words is not None:
        warnings += case_warnings(name, words)
    report = ColumnReport(name, was, f"the label, {count} classes", warnings=tuple(warnings))
    return labels, count, words if codes is None else codes, report


def _numbers_of(table: Table, name: str, values: Array) -> Array:
    """Labels as numbers, if they are any: with decimal commas, or objects of Python, too."""
    if values.dtype.kind == "O" and not any(check.missing(v) for v in values.tolist()):
        return _without_objects(values)
    if values.dtype.kind == "U" and table.text:
        found = recognised(table, name)
        return found.values if found.kind == NUMBER and not found.missing else values
    return values


def _without_objects(values: Array) -> Array:
    """An object array of integers or floats as an array of these."""
    listed = values.tolist()
    if all(isinstance(v, int) and abs(v) < 2**62 for v in listed):
        return np.array(listed, np.int64)
    return check.as_floats(values) if all(isinstance(v, int | float) for v in listed) else values
