"""A participant's rows as the plan's schema says: its file, or a part of the data that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.data.datasets import Source, files
from glocal.data.federation import Federation, federation
from glocal.data.table import Table, listed
from glocal.deploy.plan import DeployPlan
from glocal.deploy.server_folder import check_name
from glocal.experiment.config import Config

FEWEST = 3
"""Examples of a client: one each for training, validation and test."""


def own_rows(plan: DeployPlan, file: Path, name: str) -> Federation:
    """The clients of a participant's file: those of its client column, or one of this ``name``.

    What is in the file is prepared as the plan says, with the plan's statistics and words, and
    split into training, validation and test by the plan's shares and seed.
    """
    config, schema = plan.config, plan.schema
    source = read(config, file)
    x, y = source.x, source.y
    if isinstance(x, Table):
        if schema.preprocessing is None:
            raise GlocalError(
                f"the plan is not for a table, and {file.name} is one: give an .npz file whose x "
                f"has rows of the shape {schema.shape}."
            )
        absent = [c.name for c in schema.preprocessing.columns if c.name not in x]
        if absent:
            raise GlocalError(
                f"{file.name} has no column {shown(absent[0])}, which the plan's schema has: its "
                f"columns are {listed(x)}; rename one."
            )
        y = _labels(plan, x, str(y), file)
        x = schema.preprocessing.apply(x)
    elif schema.preprocessing is not None:
        raise GlocalError(f"the plan is for a table, and {file.name} is none: give a .csv file.")
    classes = schema.classes if schema.target.classes else None
    fed = split_rows(config, source, file, name, x, y, classes, schema.target.task)
    return _as_planned(plan, fed)


def read(config: Config, file: Path) -> Source:
    """What is in a participant's file, with the columns that the plan names."""
    if not files.is_file(file):
        raise GlocalError(
            f"{shown(str(file))} is no kind of file that can be read: give one that ends in "
            f"{', '.join(files.ENDINGS)}."
        )
    of_text = {option: getattr(config, option) for option in ("separator", "decimal", "encoding")}
    columns = (config.label, config.client, config.group)
    return files.read(file, *columns, of_text, of_plan=True)


def split_rows(
    config: Config,
    source: Source,
    file: Path,
    name: str,
    x: Any,
    y: Any,
    classes: int | None,
    task: str,
) -> Federation:
    """Features and labels of a file as those of its clients, split as the plan says."""
    clients, group = source.clients, source.group
    if isinstance(source.x, Table):
        clients = None if clients is None else source.x.ids(str(clients), "clients")
        group = None if group is None else source.x.ids(str(group), "groups")
    names = [name] * len(x) if clients is None else [str(each) for each in clients.tolist()]
    _check_clients(names, file)
    return federation(
        x,
        y,
        np.array(names),
        split=config.split,
        seed=config.seed,
        classes=classes,
        name=file.name,
        group=group,
        task=task,
        chronological=bool(config.chronological),
    )


def part_of_plan(plan: DeployPlan, numbers: Sequence[int]) -> Federation:
    """Some clients of the data that the plan itself names, for a first look on one machine."""
    return plan.config.federation(announced=False).part(list(numbers))


def _labels(plan: DeployPlan, table: Table, label: str, file: Path) -> Any:
    """The label column as the plan's classes, or as numbers."""
    if not plan.schema.target.classes:
        from glocal.data import quantities

        return quantities.of_column(table, label, plan.schema.target.task)[0]
    words = plan.schema.label_words
    if words is None:
        words = {str(number): number for number in range(plan.schema.classes)}
    texts = label_texts(table, label)
    unknown = sorted({text for text in texts if text not in words})
    if unknown:
        raise GlocalError(
            f"the label column {shown(label)} of {file.name} has {shown(unknown[0])}, and the "
            f"plan's classes are {listed(list(words))}: name them as the plan does."
        )
    return torch.tensor([words[text] for text in texts])


def label_texts(table: Table, label: str) -> list[str]:
    """The labels of all rows as a plan names them."""
    return [_text(value) for value in table.ids(label, "labels").tolist()]


def _text(value: Any) -> str:
    """A label as the plan names it: 1.0 in a column of numbers is 1."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


def _check_clients(names: Sequence[str], file: Path) -> None:
    for name in sorted(set(names)):
        check_name(name)
        count = names.count(name)
        if count < FEWEST:
            raise GlocalError(
                f"client {shown(name)} has {count} example{'s' * (count != 1)} in {file.name}, and "
                f"needs {FEWEST} or more: one each for training, validation and test."
            )
    if not names:
        raise GlocalError(f"{file.name} has no rows: give one with rows.")


def _as_planned(plan: DeployPlan, fed: Federation) -> Federation:
    """The same federation with the plan's words, statistics and unit in place of its own."""
    schema, about = plan.schema, dict(fed.describe)
    if schema.label_words is not None:
        about["labels"] = dict(schema.label_words)
    unsplit = None if fed.unsplit is None else replace(fed.unsplit, describe=about)
    fed = replace(fed, describe=about, preprocessing=schema.preprocessing, unsplit=unsplit)
    if schema.target.classes:
        return fed

    def again(y: Tensor) -> Tensor:
        return schema.target.standardised(fed.target.labels(y))

    # Split again, it would be in a unit of its own: so it stays as it is split now.
    y, y_train = again(fed.y), again(fed.y_train)
    return replace(fed, y=y, y_train=y_train, targets=(schema.target,), unsplit=None)
