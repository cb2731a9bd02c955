"""The label column of a table: classes, and warnings where labels may be something else."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.data import validation as check
from glocal.data.preprocessing.cells import TRUTH
from glocal.data.preprocessing.doubts import case_warnings, zero_warnings
from glocal.data.preprocessing.kinds import CATEGORY, NUMBER, recognised
from glocal.data.preprocessing.report import ColumnReport
from glocal.data.quantities import AUTO, MANY, refuse_doubtful
from glocal.data.table import Table, as_numbers, is_gap
from glocal.data.validation import Array

FEW = 20
"""In fewer rows than this, nothing is said about rare classes."""

FEWEST = 2
"""A class with so few rows, or a thousandth of them, may be a slip."""

MOST = 0.5
"""If more than this share of the rows had a class of its own, they would be none."""


def of_table(
    table: Table, name: str, classes: int | None, task: str = AUTO
) -> tuple[Tensor, int, dict[str, int] | None, ColumnReport]:
    """Labels as int64, the number of classes, the code of each label, and what became of them.

    Integers that are not 0, 1, … are numbered in order, as words are. Numbers that may be a
    quantity are an error, unless the ``task`` is said.
    """
    values = table.ids(name, "labels")
    if table.text and values.dtype.kind == "U":
        values = as_numbers(values)
    values = _truth_alike(values)
    undecided = task == AUTO and classes is None
    if undecided:
        refuse_doubtful(_numbers_of(table, name, values), f"the label column {shown(name)}")
    if values.dtype.kind in "UM" or isinstance(values[0], str | datetime.date):
        _refuse_no_classes(table, name, undecided)
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
        if undecided and len(known) > 2:
            warnings = [
                f"the label column {shown(name)} holds integers, {known[0]} … {known[-1]}, which "
                f"were read as {len(known)} classes: say task='regression' or task='counts' if "
                "they are amounts, and task='classification' if not."
            ]
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
    codes = words if codes is None else codes
    if words is not None:
        warnings += [*case_warnings(name, words), *zero_warnings(name, words)]
    named = {code: word for word, code in (codes or {}).items()}
    warnings += _slips(name, labels, named, table.where)
    report = ColumnReport(name, was, f"the label, {count} classes", warnings=tuple(warnings))
    return labels, count, codes, report


def _truth_alike(values: Array) -> Array:
    """Labels that are true or false, in lower case if not all are written in the same one."""
    if values.dtype.kind not in "OU":
        return values
    listed = [str(v) if isinstance(v, bool) else v for v in values.tolist()]
    words = {v for v in listed if isinstance(v, str) and not is_gap(v)}
    styles = (str.lower, str.title, str.upper)
    if any(all(word == style(word) for word in words) for style in styles):
        return values
    if not all(word.lower() in TRUTH for word in words):
        return values
    alike = [v.lower() if isinstance(v, str) and v in words else v for v in listed]
    return np.array([*alike, None], dtype=object)[:-1]


def _refuse_no_classes(table: Table, name: str, undecided: bool) -> None:
    """Raise where labels are dates, or where almost every row has another word."""
    found = recognised(table, name)
    known = found.values[~np.isnan(found.values)]
    distinct = len(np.unique(known))
    if (undecided and found.dates and distinct > MANY) or (
        table.rows >= FEW and distinct > MOST * table.rows
    ):
        first = int((~np.isnan(found.values)).nonzero()[0][0])
        what = "dates" if found.dates else "words" if found.kind == CATEGORY else "values"
        raise GlocalError(
            f"the label column {shown(name)} has {distinct} different {what} in {table.rows} rows, "
            f"such as {shown(str(table[name][first]))} in {table.where(first)}, which are no "
            "classes: name the column of classes with label=."
        )


def _slips(
    name: str, labels: Tensor, named: Mapping[int, str], where: Callable[[int], str]
) -> list[str]:
    """Sentences about classes that may be slips: marks of missing labels, and very rare ones."""
    counts = torch.bincount(labels).tolist()
    at = {code: where(int((labels == code).nonzero()[0])) for code, n in enumerate(counts) if n}
    gaps = [code for code, word in named.items() if is_gap(word)]
    few = max(FEWEST, len(labels) // 1000)
    rare = [code for code in at if counts[code] <= few and code not in gaps]
    sentences = [
        f"the label column {shown(name)} has {shown(named[code])} in "
        f"{_rows(counts[code], at[code])}, which was read as a class: leave such rows out if it "
        "means that the label is missing."
        for code in gaps
    ]
    if rare and len(labels) >= FEW:
        more = len(rare) - 1
        others = f" (and {more} more such class{'es' * (more > 1)})" if more else ""
        sentences.append(
            f"class {shown(named.get(rare[0], str(rare[0])))}{others} of the label column "
            f"{shown(name)} has {_rows(counts[rare[0]], at[rare[0]])} of {len(labels)}: correct it "
            "if it is a slip, or leave such rows out."
        )
    return sentences


def _rows(count: int, first: str) -> str:
    return f"1 row ({first})" if count == 1 else f"{count} rows ({first} and others)"


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
