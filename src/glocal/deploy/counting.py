"""A participant's table by sums and counts: all that leaves it before there is a schema.

The server asks twice. First for the labels: which classes there are, by how many rows have each (of
all rows). Then, with the classes of everybody, for the columns of the training rows, which depend
on the classes since splits keep their shares. Clients of one participant are counted together.

The second question is answered for one numbering of the clients and one list of classes: which rows
are training rows depends on both, and the sums of other rows would show single ones by difference.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glocal.core import files
from glocal.core.errors import GlocalError
from glocal.core.progress import note
from glocal.data import labels, own_table, quantities
from glocal.data.datasets import Source
from glocal.data.federation import Federation
from glocal.data.preprocessing.counts import (
    ColumnCounts,
    Moments,
    WordCounts,
    is_text,
)
from glocal.data.preprocessing.kinds import RawColumn
from glocal.data.table import Table
from glocal.deploy import node_data, wire
from glocal.deploy.replies import COUNTED, OTHER_LABEL, STRANGER, RefusalError, reply
from glocal.deploy.schema_plan import SchemaPlan

FILE = "counted.json"
"""What was asked and what was sent of the table, for the participant to read; while it is there,
nothing else is counted by the same plan."""


@dataclass(frozen=True, eq=False)
class OwnTable:
    """A participant's table, read as the plan says, before anything is fitted."""

    plan: SchemaPlan
    source: Source
    file: Path
    name: str
    columns: tuple[RawColumn, ...]
    classes: tuple[str, ...] | None
    """The label of each row, where labels are classes."""
    amounts: torch.Tensor | None
    """Or as a number."""

    @classmethod
    def read(cls, plan: SchemaPlan, file: Path, name: str) -> OwnTable:
        """The table in a file; refuses what is none, or what cannot be trained with."""
        config = plan.config
        source = node_data.read(config, file)
        table, label = source.x, str(source.y)
        if not isinstance(table, Table):
            raise GlocalError(
                f"a schema by sums and counts is that of a table, and {file.name} is none: give a "
                ".csv file, or make the plan without --schema."
            )
        used = [c for c in (label, source.clients, source.group) if isinstance(c, str)]
        dropped = [column for column in config.drop if column in table]
        raw = own_table.raw_features(table, used, dropped, config.features)
        classes, amounts = None, None
        if not plan.of_classes:
            amounts, about = quantities.of_column(table, label, config.task)
        else:
            *_, about = labels.of_table(table, label, None, config.task)
            classes = tuple(node_data.label_texts(table, label))
        own = cls(plan, source, file, name, raw.columns, classes, amounts)
        _ = own.clients  # refuses a client with too few rows
        for warnings in (about.warnings, *(column.warnings for column in raw.columns)):
            for warning in warnings:
                note(warning)
        return own

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients."""
        return self.federation(sorted(set(self.classes or ()))).names

    def federation(self, words: list[str]) -> Federation:
        """The clients and their splits, with these classes; their features are of no use."""
        rows = len(self.classes or self.amounts)  # type: ignore[arg-type]
        x = torch.arange(rows, dtype=torch.float32)[:, None]
        config, where = self.plan.config, (self.source, self.file, self.name)
        if self.classes is None:
            return node_data.split_rows(config, *where, x, self.amounts, None, config.task)
        code = {word: number for number, word in enumerate(words)}
        y = torch.tensor([code[word] for word in self.classes])
        return node_data.split_rows(config, *where, x, y, max(2, len(words)), "classification")

    def of_labels(self) -> dict[str, Any]:
        """How many rows have each label."""
        assert self.classes is not None
        named = WordCounts.of(Counter(self.classes), self.plan.least)
        return {"rows": len(self.classes), "labels": asdict(named)}

    def of_columns(self, numbers: Mapping[str, int], words: list[str]) -> dict[str, Any]:
        """Sums and counts of the training rows of clients with these numbers."""
        fed = self.federation(words)
        if set(numbers) != set(fed.names):
            raise RefusalError(STRANGER)
        if self.classes is not None:  # numbers as labels are split before anyone has a number
            fed = fed.numbered([int(numbers[name]) for name in fed.names])
        rows, least = fed.train.rows.numpy(), self.plan.least
        columns = {
            raw.name: ColumnCounts.of(raw, rows, least).to_json()
            for raw in self.columns
            if is_text(raw.name)
        }
        sent: dict[str, Any] = {"rows": len(rows), "columns": columns, "labels": None}
        if self.amounts is not None and len(rows) >= least:
            known = self.amounts.double().numpy()[rows].astype(np.float64)
            sent["labels"] = asdict(Moments.of(known))
        return sent


class Counting:
    """Answers the server's questions about a table; the table stays here."""

    def __init__(self, table: OwnTable, folder: Path, note: Callable[[str], None]) -> None:
        self.table, self.folder, self.note = table, folder, note
        self._lock = threading.Lock()

    def answer(self, request: bytes) -> bytes:
        """Sums and counts, or a code; what is sent can be read in the folder."""
        with self._lock:
            digest = self.table.plan.digest
            return wire.encode(reply(request, digest, {"count": self._counted}, self.note))

    def _counted(self, message: wire.Message) -> wire.Message:
        numbers, words = message.facts["numbers"], message.facts["labels"]
        if words is None and self.table.classes is not None:
            return wire.Message("counted", self.table.of_labels())
        if not set(self.table.classes or ()) <= set(words or ()):
            raise RefusalError(OTHER_LABEL)
        sent = self.table.of_columns(numbers, list(words or ()))
        asked = {"plan": self.table.plan.digest, "numbers": numbers, "labels": words}
        file = files.make_folder(self.folder) / FILE
        before = json.loads(file.read_bytes())["asked"] if file.is_file() else asked
        if before != asked and before["plan"] == asked["plan"]:
            raise RefusalError(COUNTED)
        files.write(file, files.dump({"asked": asked, "sent": sent}))
        return wire.Message("counted", sent)
