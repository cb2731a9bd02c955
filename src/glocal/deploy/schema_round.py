"""The server's side of a schema by sums and counts: ask, check, merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeVar

from glocal.core.errors import GlocalError, shown
from glocal.core.target import Target
from glocal.data.preprocessing.columns import Column
from glocal.data.preprocessing.counts import (
    ColumnCounts,
    Moments,
    WordCounts,
    column_of,
    is_count,
    is_text,
    moments,
    word_counts,
)
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.deploy.asking import ask_clients, clients_of
from glocal.deploy.patience import NoQuorumError, Patience
from glocal.deploy.plan import DataSchema
from glocal.deploy.remote import MOST_EXAMPLES
from glocal.deploy.replies import COUNTED
from glocal.deploy.schema_plan import SchemaPlan
from glocal.deploy.transport import Transport

MOST_COLUMNS = 10_000

Sent = TypeVar("Sent")


@dataclass(frozen=True)
class Counted:
    """A schema, and what did not go into it."""

    schema: DataSchema
    refused: dict[str, str] = field(default_factory=dict)
    """Of clients whose node's sums cannot be: why."""
    columns: dict[str, str] = field(default_factory=dict)
    """What became of each column."""

    def to_json(self) -> dict[str, Any]:
        """All of it, for a file."""
        return {**vars(self), "schema": self.schema.to_json()}


def counted(
    plan: SchemaPlan,
    transport: Transport,
    admitted: Mapping[str, bytes],
    patience: Patience | None = None,
) -> Counted:
    """The schema that follows from the sums and counts of all participants.

    A participant whose counts cannot be is left out of it; one that sends none in time is an error.
    """
    asking = _Asking(plan, transport, admitted, patience or Patience())
    words = _classes(asking.all_of(None, _labels_of), plan.least) if plan.of_classes else None
    parts = asking.all_of(words, _columns_of)
    numbers = [part.numbers for part in parts.values() if part.numbers is not None]
    target = _target(plan.config.task, numbers)
    columns, became = _columns(plan, {who: part.columns for who, part in parts.items()})
    width = sum(column.width for column in columns)
    counted_of = [name for name in admitted if name not in asking.refused]
    about = {"clients": counted_of, "least": plan.least, "missing_numbers": "the mean"}
    schema = DataSchema(
        shape=(width,),
        classes=1 if words is None else len(words),
        target=target,
        label_words=_numbered(words),
        preprocessing=Preprocessing(tuple(columns)),
        counted=about,
    )
    return Counted(schema, asking.refused, became)


@dataclass
class _Asking:
    """Questions to all nodes but those whose answers were refused."""

    plan: SchemaPlan
    transport: Transport
    keys: Mapping[str, bytes]
    patience: Patience
    refused: dict[str, str] = field(default_factory=dict)

    def all_of(self, words: list[str] | None, read: Callable[[Any, int], Sent]) -> dict[str, Sent]:
        """What each node says, by its clients; those with an answer that cannot be are left out."""
        wants: dict[str, dict[str, Any]] = {n: {} for n in self.keys if n not in self.refused}
        about = {"plan": self.plan.digest, "labels": words}
        where = (self.transport, self.keys, self.patience, self.patience.joining)
        answers = ask_clients(*where, "count", wants, about)
        missing = [name for name in wants if self.keys[name] not in answers]
        if missing:
            raise NoQuorumError(
                f"{', '.join(missing)} sent no counts in time: start the server again when they "
                "can, or remove them."
            )
        found: dict[str, Sent] = {}
        for key in dict.fromkeys(self.keys.values()):  # in order, since sums are rounded
            if key not in answers:
                continue
            answer, own = answers[key], clients_of(self.keys, key)
            if answer == COUNTED:
                raise GlocalError(
                    f"{', '.join(own)} counted its rows already, when others were admitted or had "
                    "other labels, and sums of other rows would show single ones: it has to remove "
                    "node/counted.json from its folder if it agrees to be counted again."
                )
            if isinstance(answer, str):
                self.refused |= dict.fromkeys(own, answer)
                continue
            try:
                found[", ".join(own)] = read(answer.facts, self.plan.least)
            except ValueError as error:
                self.refused |= dict.fromkeys(own, f"{error} cannot be")
        if len(self.keys) - len(self.refused) < 2:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.refused.items())
            raise GlocalError(f"fewer than two clients have counts for a schema ({reasons}).")
        return found


@dataclass(frozen=True)
class _Columns:
    columns: dict[str, ColumnCounts]
    numbers: Moments | None
    """Of the labels, where they are numbers."""


def _rows(facts: Any) -> int:
    rows = facts.get("rows") if isinstance(facts, dict) else None
    if not is_count(rows, MOST_EXAMPLES) or not rows:
        raise ValueError("the number of rows")
    return rows


def _labels_of(facts: Any, least: int) -> WordCounts:
    return word_counts(facts.get("labels"), _rows(facts), least)


def _columns_of(facts: Any, least: int) -> _Columns:
    rows, sent = _rows(facts), facts.get("columns")
    if not isinstance(sent, dict) or not 0 < len(sent) <= MOST_COLUMNS:
        raise ValueError("the number of columns")
    if not all(is_text(name) for name in sent):
        raise ValueError("the name of a column")
    read = {name: ColumnCounts.from_json(each, rows, least) for name, each in sent.items()}
    labels = facts.get("labels")
    return _Columns(read, None if labels is None else moments(labels, rows, least))


def _classes(parts: Mapping[str, WordCounts], least: int) -> list[str]:
    """The classes of all nodes, in order: as numbers where all of them are."""
    total = reduce(WordCounts.merged, parts.values())
    if len(total.words) < 2:
        raise GlocalError(
            f"fewer than two classes have {least} rows or more at a participant: name another "
            "label, or take a lower --min-count."
        )
    if all(_is_integer(word) for word in total.words):
        return sorted(total.words, key=int)
    return sorted(total.words)


def _is_integer(word: str) -> bool:
    return word.removeprefix("-").isascii() and word.removeprefix("-").isdigit()


def _numbered(words: list[str] | None) -> dict[str, int] | None:
    """The number of each class; none where they are 0, 1, … already, or labels are numbers."""
    if words is None or words == [str(number) for number in range(len(words))]:
        return None
    return {word: number for number, word in enumerate(words)}


def _target(task: str, parts: list[Moments]) -> Target:
    if task not in ("regression", "counts"):
        return Target()
    total = reduce(Moments.merged, parts, Moments())
    if not total.count:
        raise GlocalError("nobody has enough labels for their sums: take a lower --min-count.")
    if task == "counts":
        return Target(task, 0.0, total.mean if total.mean > 0 else 1.0)
    return Target(task, total.mean, total.std)


def _columns(
    plan: SchemaPlan, parts: Mapping[str, Mapping[str, ColumnCounts]]
) -> tuple[list[Column], dict[str, str]]:
    """The columns that everybody has, in the order of their names, and what became of each."""
    columns, became = [], {}
    for name in sorted({name for part in parts.values() for name in part}):
        lacking = [who for who, part in parts.items() if name not in part]
        if lacking:
            became[name] = f"left out: {lacking[0]} does not have it"
            continue
        by_sender = {who: part[name] for who, part in parts.items()}
        column, became[name] = column_of(name, by_sender, forced=name in plan.config.features)
        if column is not None:
            columns.append(column)
    if not columns:
        why = ", ".join(f"{shown(name)} ({what})" for name, what in list(became.items())[:5])
        raise GlocalError(f"no column is left as a feature: {why}.")
    return columns, became
