"""From the columns of a table to a layout of features, and from training rows to statistics.

The layout says which columns are features, which words have one each and where a feature says that
a cell is missing. It is chosen once, from the training rows of fold 0, so that models of all folds
have the same inputs. Statistics (means, medians, the most frequent word) are fitted again in each
fold, from its training rows. A level without training rows in a fold is a word unknown there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.data.preprocessing import statistics
from glocal.data.preprocessing.columns import Column
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.data.preprocessing.kinds import CATEGORY, DATE, RawColumn
from glocal.data.preprocessing.report import ColumnReport
from glocal.data.split import Split
from glocal.data.suggested_groups import looks_like_an_id
from glocal.data.validation import Array

MOST_LEVELS = 30
"""A column with more words has a feature for each of so many, the most frequent, and one more."""

FREE_TEXT = 0.5
"""A column with more distinct words than this share of its cells is an id or free text."""

FEW = 20
"""In fewer rows than this, nothing is called an id or free text."""

MODES = ("federated", "client")
"""Whose statistics are fitted: those of all clients together, or each client's own."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Which columns of the raw data are features, and how; all but the statistics."""

    columns: tuple[Column, ...]
    sources: tuple[int, ...]
    """The column of the raw data that each comes from."""
    lookups: tuple[Array | None, ...]
    """Of words: the position of each among the levels, −1 for those without a feature."""
    scale: bool
    by_client: bool

    def fit(self, x: Tensor, train: Split, names: tuple[str, ...]) -> Preprocessing:
        """Fit all statistics on the training rows, of all clients or of each."""
        client = torch.repeat_interleave(torch.arange(len(train)), train.counts().cpu()).numpy()
        values = self._values(x[train.rows.to(x.device)])
        groups = [client == k for k in range(len(train))] if self.by_client else [slice(None)]
        fitted = []
        for column, each in zip(self.columns, values, strict=True):
            sets = [self._statistics(column, each[rows], client[rows]) for rows in groups]
            fill, mean, std = (tuple(part) for part in zip(*sets, strict=True))
            present = set(each[each >= 0].tolist()) if column.levels else set()
            absent = [w for i, w in enumerate(column.levels) if float(i) not in present]
            fitted.append(replace(column, fill=fill, mean=mean, std=std, unseen=tuple(absent)))
        return Preprocessing(tuple(fitted), names if self.by_client else None)

    def transform(self, x: Tensor, fitted: Preprocessing, rows: Split) -> Tensor:
        """The features of all rows; ``rows`` says whose each is."""
        client = np.zeros(len(x), np.int64)
        if self.by_client:
            owner = torch.repeat_interleave(torch.arange(len(rows)), rows.counts().cpu())
            client[rows.rows.cpu().numpy()] = owner.numpy()
        return fitted.encode(self._values(x), client)

    def _values(self, x: Tensor) -> list[Array]:
        """The columns of raw data as numbers, days, or positions among the levels."""
        columns = []
        for source, lookup in zip(self.sources, self.lookups, strict=True):
            values = x[:, source].cpu().numpy()
            if lookup is not None:
                missing = np.isnan(values)
                codes = np.where(missing, 0, values).astype(np.int64)
                values = np.where(missing, np.nan, lookup[codes])
            columns.append(values)
        return columns

    def _statistics(
        self, column: Column, values: Array, client: Array
    ) -> tuple[float, float, float]:
        """What missing cells are filled with, the mean and the standard deviation."""
        present = ~np.isnan(values)
        known = values[present]
        if column.kind == CATEGORY:
            return float(statistics.most_frequent(known, len(column.levels))), 0.0, 1.0
        fill = statistics.median(known)
        if not self.scale:
            return fill, 0.0, 1.0
        clients = int(client.max(initial=-1)) + 1
        return fill, *statistics.mean_and_std(known, client[present], clients)


def choose(
    raws: Sequence[RawColumn],
    x: Tensor,
    train: Tensor,
    *,
    wanted: Sequence[str],
    scale: bool,
    by_client: bool,
) -> tuple[Layout, list[ColumnReport]]:
    """The layout that the training rows ``train`` give, and what became of each column.

    ``x`` [n, columns] holds the values of the raw columns; ``wanted`` columns were asked for by
    name, so that a name like that of an id does not leave them out.
    """
    columns, sources, lookups, report = [], [], [], []
    for source, raw in enumerate(raws):
        values = x[train, source].numpy()
        column, became, warning = _placed(raw, values, forced=raw.name in wanted)
        warnings = [*raw.warnings, *([warning] if warning else [])]
        if column is not None:
            columns.append(column)
            sources.append(source)
            lookups.append(column.positions(raw.words) if raw.kind == CATEGORY else None)
        report.append(
            ColumnReport(raw.name, raw.was, became, raw.missing, raw.notes, tuple(warnings))
        )
    if not columns:
        why = ", ".join(f"{shown(row.column)} ({row.became})" for row in report[:5])
        raise GlocalError(
            "no columns are left as features: give some beside label and client"
            + (f"; {why}." if why else ".")
        )
    layout = Layout(tuple(columns), tuple(sources), tuple(lookups), scale, by_client)
    return layout, report


def _placed(raw: RawColumn, values: Array, *, forced: bool) -> tuple[Column | None, str, str]:
    """The column without its statistics, what became of it, and a warning; None: left out."""
    missing = bool(np.isnan(values).any())
    distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if not len(distinct):
        return None, "left out: empty", ""
    if len(distinct) == 1 and not missing:
        return None, "left out: constant", ""
    indicated = " and if it is missing" if missing else ""
    if raw.kind == CATEGORY:
        return _category(raw, distinct, counts, indicated, forced=forced)
    column = Column(raw.name, raw.kind, raw.format, indicator=missing)
    if raw.kind == DATE:
        warning = (
            f"column {shown(raw.name)} holds dates, which became days since 1970-01-01: leave it "
            "out (drop=) unless later dates mean something."
        )
        return column, f"days since 1970-01-01{indicated}", warning
    whole = bool((distinct == np.floor(distinct)).all())
    all_differ = whole and len(distinct) >= FEW and bool((counts == 1).all())
    became = f"a number{indicated}"
    if not all_differ or forced:
        return column, became, ""
    if looks_like_an_id(raw.name):
        warning = (
            f"column {shown(raw.name)} has another number in every training row, like an id, "
            "and was left out: name it with features= if it is a feature."
        )
        return None, "left out: an id", warning
    if _counts_the_rows(raw.values):
        warning = (
            f"column {shown(raw.name)} counts the rows: leave it out (drop=) if it is their number."
        )
        return column, became, warning
    if raw.warnings:  # which say what it may be
        return column, became, ""
    warning = (
        f"column {shown(raw.name)} has another integer in every training row: leave it out (drop=) "
        "if it is an id."
    )
    return column, became, warning


def _counts_the_rows(values: Array) -> bool:
    """Whether integers are consecutive, each once; of all rows, as training rows have gaps."""
    known = values[~np.isnan(values)]
    return len(np.unique(known)) == len(known) == int(known.max() - known.min()) + 1


def _category(
    raw: RawColumn, distinct: Array, counts: Array, indicated: str, *, forced: bool
) -> tuple[Column | None, str, str]:
    cells, warning = int(counts.sum()), ""
    about = f"has {len(distinct)} different words in {cells} training rows"
    free_text = is_free_text(len(distinct), cells)
    if raw.meant is not None:
        if not forced and (free_text or len(distinct) > MOST_LEVELS):
            warning = f"{raw.meant.problem}; it {about} and was left out: {raw.meant.remedy}."
            return None, f"left out: {raw.meant.why_left_out}", warning
        warning = f"{raw.meant.problem}, so it was read as words: {raw.meant.remedy}."
    if free_text:
        if forced:
            raise GlocalError(
                f"column {shown(raw.name)} {about}, like an id or free text, which cannot be a "
                "feature: leave it out, or use fewer words."
            )
        left_out = (
            f"column {shown(raw.name)} {about}, like an id or free text, and was left out: name it "
            "with group= if it says which rows belong together."
        )
        return None, "left out: an id or free text", left_out
    words = [raw.words[int(position)] for position in distinct]
    kept = levels_of(dict(zip(words, counts.tolist(), strict=True)))
    note = f", {len(words) - len(kept)} rare words as one" if len(kept) < len(words) else ""
    column = Column(
        raw.name,
        raw.kind,
        raw.format,
        indicator=bool(indicated),
        levels=kept,
        other=len(kept) < len(words),
    )
    became = f"{len(kept) + column.other} one-hot features{note}{indicated}"
    return column, became, warning


def is_free_text(distinct: int, cells: int) -> bool:
    """Whether so many different words in so many cells are an id, or free text."""
    return cells >= FEW and distinct > FREE_TEXT * cells


def levels_of(counts: Mapping[str, int]) -> tuple[str, ...]:
    """The words that have a feature each, in order: all, or the most frequent of many."""
    by_count = sorted(counts, key=lambda word: (-counts[word], word))
    return tuple(sorted(by_count[:MOST_LEVELS]))
