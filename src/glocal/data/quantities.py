"""Labels that are numbers: the quantities of a regression, and counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.target import TASKS
from glocal.data.preprocessing.kinds import NUMBER, finite, recognised
from glocal.data.preprocessing.report import ColumnReport
from glocal.data.table import Table
from glocal.data.table import column as named_column
from glocal.data.validation import Array, as_array, as_floats, row_index

AUTO = "auto"
"""Labels are classes, unless they may be a quantity: then the user has to say what they are."""

MANY = 10
"""More numbers than this may be a quantity, such as a length of stay."""


def check_task(task: str) -> None:
    """Raise if there is no such task."""
    if task not in (AUTO, *TASKS):
        raise unknown("task", task, [AUTO, *TASKS])


def refuse_doubtful(values: Array, what: str) -> None:
    """Raise where labels are numbers that are as likely a quantity as classes.

    ``what`` names the labels, as in "the label column 'stay'". Integers are doubtful where there
    are many, floats also where they have fractions.
    """
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        return
    known = np.unique(values)
    fractions = known[known != np.floor(known)]
    if len(known) > MANY or len(fractions):
        example = fractions[0] if len(fractions) else known[0]
        raise GlocalError(
            f"{what} holds {len(known)} different numbers, such as {example:g}, which may be a "
            "quantity or classes: say task='regression' (or 'counts') if it is a quantity, or "
            "task='classification' if each of them is a class."
        )


def of_column(table: Table, name: str, task: str) -> tuple[Tensor, ColumnReport]:
    """The label column of a table as numbers, and what became of it."""
    named_column(table, name, "labels")
    found = recognised(table, name)
    if found.kind != NUMBER:
        if found.meant is not None:
            raise GlocalError(
                f"{task} needs numbers as labels, and {found.meant.problem}: {found.meant.remedy}."
            )
        example = found.words[0] if found.words else "dates"
        raise GlocalError(
            f"the label column {shown(name)} holds {found.was}, such as {shown(example)}, and "
            f"{task} needs numbers: give numbers, or say task='classification'."
        )
    inside = f" in column {shown(name)}"
    became = f"the label, a {'count' if task == 'counts' else 'number'}"
    labels = _checked(found.values, task, table.where, inside)
    return labels, ColumnReport(name, found.was, became, notes=found.notes, warnings=found.warnings)


def of_array(y: Any, task: str, where: Callable[[int], str] = row_index) -> Tensor:
    """Numbers, one for each row."""
    array = as_array(y, "y")
    if array.shape[1:] == (1,):
        array = array[:, 0]
    if array.dtype.kind == "O":
        try:
            array = as_floats(array)
        except (TypeError, ValueError):
            array = array.astype(str)
    if array.ndim != 1 or len(array) == 0 or array.dtype.kind not in "biuf":
        raise GlocalError(f"{task} needs y to be one number for each row.")
    return _checked(finite(array.astype(np.float64), "y", where), task, where, "")


def _checked(values: Array, task: str, where: Callable[[int], str], inside: str) -> Tensor:
    """Numbers as float64, none of them missing, and not all of them the same."""
    if np.isnan(values).any():
        row = where(int(np.isnan(values).nonzero()[0][0]))
        raise GlocalError(f"{row} has no label{inside}: fill it in or leave the row out.")
    if task == "counts":
        wrong = (values < 0) | (values != np.floor(values))
        if wrong.any():
            first = int(wrong.nonzero()[0][0])
            raise GlocalError(
                f"{where(first)} has {values[first]:g}{inside}, which is no count: counts are "
                "integers from 0 on; say task='regression' for other numbers."
            )
    if values.min() == values.max():
        raise GlocalError(f"all labels are the same{inside}: check the label column.")
    return torch.from_numpy(values.astype(np.float64))
