"""``load``: a federation from a data set's name or a file's path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError, shown
from glocal.core.validation import integer
from glocal.data.datasets import Source, files
from glocal.data.datasets.own import is_own_source, own_source
from glocal.data.datasets.registry import is_named, named
from glocal.data.federation import Federation, federation
from glocal.data.folders.recognised import recognised
from glocal.data.partition import column_of
from glocal.data.table import Table, listed, named_columns
from glocal.data.text.text_federation import text_federation
from glocal.data.transforms import Transform
from glocal.data.validation import as_array, missing

DEFAULT_PARTITION, DEFAULT_CLIENTS = "dirichlet(0.3)", 20


def load(
    name: str | Path,
    *,
    clients: int | None = None,
    partition: str | None = None,
    split: Sequence[float] = (0.7, 0.1, 0.2),
    seed: int = 0,
    transforms: Sequence[str | Transform] = (),
    label: str = "label",
    client: str = "client",
    group: str | None = None,
    pooled: bool | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] = (),
    preprocessing: str = "federated",
    task: str = "auto",
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    min_examples: int = 0,
    protected: Sequence[str] = (),
    chronological: bool | None = None,
    parts: str | None = None,
    test: str = "own",
) -> Federation:
    """A federation from a data set's name, or from a file of yours.

    Args:
        name: of a data set that ``glocal data`` lists, as in ``mnist(examples=6000)``; of a
            function of yours that returns arguments of :func:`glocal.federation` by name, as in
            ``own.py:visits(days=30)``; or a path. A table (``.csv``, ``.tsv``, ``.xlsx``,
            ``.parquet``, ``.feather``) has a header; an ``.npz`` has the arrays ``x`` and ``y``,
            and ``client`` if the data has clients of its own, and ``group`` if its rows have
            groups.
        clients: the number of clients of a partition, 20 by default. Data with clients of its own
            has as many as it has: another number is an error.
        partition: how rows are assigned to clients. By default these are the data's own clients, in
            any number, if it has some. A data set by name that has none is partitioned by
            ``dirichlet(0.3)``; a file of yours that has none needs a partition.
        split: the shares of training, validation and test, of every client.
        seed: of the partition, the splits and the transforms.
        transforms: of chosen clients, such as ``"rotate(90, clients=5)"``.
        label: the label column of a table.
        client: the client column of a table, which is never a feature.
        group: the column of a table that says which rows belong together, such as those of one
            patient (see :func:`glocal.federation`).
        pooled: True for real clients that differ in label shares only, False never to pool (see
            :func:`glocal.federation`).
        drop: columns of a table that are no features.
        features: the columns of a table that are; by default all that are nothing else.
        preprocessing: whose statistics a table is prepared with, ``"federated"`` or ``"client"``
            (see :func:`glocal.federation`).
        task: what labels are, ``"classification"``, ``"regression"`` or ``"counts"``; by default
            classes, unless they may be a quantity, which is an error.
        separator: between the cells of a ``.csv``, such as ``";"``; by default it is found.
        decimal: the decimal mark of a ``.csv``; by default it is found, column by column.
        encoding: of a ``.csv``; by default UTF-8 or, where it is none, Windows-1252.
        min_examples: clients of the data's own with fewer examples than this are left out, and a
            note names them.
        protected: columns of a table that are protected attributes and no features; data sets by
            name that have some bring them, and this then says which (see
            :func:`glocal.federation`).
        chronological: True for rows in the order of time: each client trains on its first, and is
            tested on its last (see :func:`glocal.federation`). Text always is.
        parts: the column of a table that says which rows are for training, validation and test
            (``train``, ``val``, ``test``). Data that brings such parts is split by them anyway.
        test: ``"own"``, or ``"official"``: each client is tested on its share of the official test
            set, which is cut by the clients' training labels (see :func:`glocal.federation`).
    """
    if clients is not None:
        integer(clients, "the number of clients", 1)
    of_text = {"separator": separator, "decimal": decimal, "encoding": encoding}
    source = _source(name, {"label": label, "client": client, "group": group}, of_text)
    tabular = isinstance(source.x, Table)
    if task == "auto" and source.task is not None:
        task = source.task
    of_table: dict[str, Any] = {"drop": drop, "features": features, "protected": protected}
    if parts is not None and not tabular:
        raise GlocalError(
            f"parts= names a column of a table, and {shown(str(name))} is none: leave it out."
        )
    for option, columns in of_table.items():
        if columns and not tabular:
            raise GlocalError(
                f"{option}= names columns of a table, and {shown(str(name))} is none: leave it out."
            )
    if source.protected:
        of_table |= _protected(source, drop, protected)
    if source.text is not None:
        given: dict[str, Any] = {
            "clients": clients,
            "partition": partition,
            "pooled": pooled or None,
        }
        given |= {"transforms": transforms or None, "task": None if task == "auto" else task}
        given["chronological"] = None if chronological else chronological
        given |= {"parts": parts, "test": None if test == "own" else test}
        given["preprocessing"] = None if preprocessing == "federated" else preprocessing
        _check_text(str(name), given)
        return text_federation(
            source.text, name=str(name), split=split, seed=seed, min_examples=min_examples
        )
    x, ids = source.x, source.clients
    if partition is None and ids is None and (source.own or files.is_file(Path(name))):
        raise _no_clients(Path(name), source)
    if clients is not None:
        _check_count(str(name), clients, x, ids if partition is None else column_of(partition))
    if partition is not None or ids is None:
        partition = DEFAULT_PARTITION if partition is None else partition
        if isinstance(ids, str) and column_of(partition) != ids:
            x = x.with_columns(c for c in x if c != ids)
        ids = DEFAULT_CLIENTS if clients is None else clients
    fed = federation(
        x,
        source.y,
        ids,
        split=split,
        seed=seed,
        partition=partition,
        classes=source.classes,
        name=str(name),
        transforms=transforms,
        central=source.central,
        group=source.group,
        pooled=pooled,
        preprocessing=preprocessing,
        task=task,
        min_examples=min_examples,
        chronological=bool(chronological),
        parts=source.parts if parts is None else parts,
        test=test,
        **of_table,
    )
    return _described(fed, source)


def _described(fed: Federation, source: Source) -> Federation:
    """The federation with what the source knows of its classes and tokens."""
    about: dict[str, Any] = {}
    if source.labels:
        about["labels"] = {name: code for code, name in enumerate(source.labels)}
    if source.vocabulary is not None:
        about["vocabulary"] = source.vocabulary
    if not about:
        return fed
    unsplit = fed.unsplit and replace(fed.unsplit, describe={**fed.unsplit.describe, **about})
    return replace(fed, describe={**fed.describe, **about}, unsplit=unsplit)


def _protected(source: Source, drop: Sequence[str], asked: Sequence[str]) -> dict[str, Any]:
    """What is protected of data that says what may be, by name; the rest is no feature either."""
    named = tuple(named_columns(asked, source.x, "protected")) or source.protected
    for name in named:
        if name not in source.protected:
            raise GlocalError(
                f"protected= names {shown(name)}, and the protected attributes of this data are "
                f"{listed(source.protected)}: choose among them."
            )
    others = [name for name in source.protected if name not in named]
    return {"protected": named, "drop": (*named_columns(drop, source.x, "drop"), *others)}


def _check_text(name: str, given: Mapping[str, Any]) -> None:
    """Refuse what text does not take: it has clients and an order of its own."""
    settings = name.partition("(")[0]
    for option, value in given.items():
        if value is not None:
            raise GlocalError(
                f"{settings} is text with clients of its own, in the order of time, and takes no "
                f"{option}=: leave it out ('glocal data {settings}' says what it takes)."
            )


def brings_clients(name: str | Path, partition: str | None) -> bool:
    """Whether the clients are those of a file, rather than simulated in a number to be said."""
    own = partition is None or column_of(partition) is not None
    return own and files.is_file(Path(name))


def _check_count(name: str, clients: int, x: Any, ids: Any) -> None:
    """Refuse a number of clients that is not that of the data's own, by column or by array."""
    if isinstance(ids, str):
        if not isinstance(x, Table) or ids not in x:
            return  # which is an error of its own
        whose = f"by column {shown(ids)}"
        ids = x.ids(ids, "clients")
    elif ids is None:
        return
    else:
        whose = "by the array client"
    given = as_array(ids, "clients").tolist()
    count = len({str(each) for each in given if not missing(each)})
    if count != clients:
        raise GlocalError(
            f"{Path(name).name} has {count} client{'s' * (count != 1)} of its own, {whose}, so "
            f"there cannot be {clients}: leave clients= out, or simulate others with partition=, "
            "such as 'dirichlet(0.3)'."
        )


def _no_clients(path: Path, source: Source) -> GlocalError:
    """The error for a file of which nothing says whose each row is."""
    simulated = "if there are none, simulate some with partition=, such as 'dirichlet(0.3)'"
    if source.own:
        return GlocalError(
            f"{path.name} has folders for classes and none for clients, so nothing says whose each "
            f"file is: put them into client/class/file; {simulated}."
        )
    if not isinstance(source.x, Table):
        return GlocalError(
            f"{path.name} has no array client, so nothing says whose each row is: add it; "
            f"{simulated}."
        )
    others = [name for name in source.x if name not in (source.y, source.group)]
    return GlocalError(
        f"{path.name} has no column 'client', so nothing says whose each row is: name the column "
        f"that does with client= (there are {listed(others)}); {simulated}."
    )


def _source(
    name: str | Path, columns: Mapping[str, str | None], of_text: Mapping[str, str | None]
) -> Source:
    if not isinstance(name, str | Path):
        raise GlocalError(
            f"{shown(name)} is no data set: give the name of one, such as 'digits', or the path of "
            "a .csv or .npz file."
        )
    path = Path(name)
    if files.is_file(path):
        label, client = columns["label"] or "", columns["client"] or ""
        return files.read(path, label, client, columns["group"], of_text)
    own = is_own_source(str(name))
    if not own and not is_named(str(name)):
        if os.path.isdir(path):  # Path.is_dir raises where a name is too long
            return recognised(path)
        if os.path.exists(path):
            raise GlocalError(
                f"{shown(str(name))} is not a kind of file that can be read: give a file that "
                f"ends in {', '.join(files.ENDINGS)}; other tables can be saved as .csv."
            )
        return named(str(name))  # which says that there is no such
    defaults = {"label": "label", "client": "client"}
    for option, column in {**columns, **of_text}.items():
        if column != defaults.get(option):
            also = "; the number of clients is clients=" if option == "client" else ""
            what = "says how" if option in of_text else "names a column of"
            form = " is written" if option in of_text else ""
            raise GlocalError(
                f"{option}= {what} a .csv file{form}, and {shown(str(name))} is none: leave it "
                f"out{also}."
            )
    return own_source(str(name)) if own else named(str(name))
