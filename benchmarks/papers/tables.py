"""A paper's table as a file of settings: what was published, and the runs that stand beside it.

A file has ``columns``, ``rows`` (methods) and ``groups`` (data and settings); a cell is a row of a
group with one seed. Settings of a preset yield to the table's, these to the group's, these to the
row's. ``published`` has a list for each row, in the order of the columns: a figure, or a figure and
its spread; an empty list, where the paper has none.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glocal.methods import presets

HERE = Path(__file__).parent
FOLDER = HERE / "tables"
TRIALS = HERE / "trials"
"""Files of the same form by which settings were chosen, on validation data alone."""

FORMAT = 1
"""What is measured of a cell: cells of another number are run again."""


@dataclass(frozen=True)
class Column:
    """A figure that a table shows."""

    name: str
    label: str
    scale: float = 100.0
    digits: int = 2
    spread: str = "seeds"
    """What the published spread is over: seeds, or clients."""


@dataclass(frozen=True)
class Row:
    """A method."""

    name: str
    label: str
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    measure: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Data and settings that several methods have in common."""

    name: str
    label: str
    published: dict[str, list[Any]]
    seeds: tuple[int, ...]
    fill: dict[str, str] = field(default_factory=dict)
    """What stands for names in braces in the rows' methods, as in ``fedavg@superfed-{data}``."""
    settings: dict[str, Any] = field(default_factory=dict)
    measure: dict[str, Any] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    """Settings of ``--quick`` beside the table's."""
    remark: str = ""


@dataclass(frozen=True, eq=False)
class Cell:
    """One run: everything that its figures depend on but the machine."""

    table: str
    group: str
    row: str
    seed: int
    kind: str
    method: str
    settings: dict[str, Any]
    measure: dict[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def name(self) -> str:
        """What it is called, and its file."""
        return f"{self.table}.{self.group}.{self.row}.{self.seed}"

    @property
    def digest(self) -> str:
        """Of its settings, a preset's spelt out: whoever changes them runs it again."""
        calls = [
            [call.name, list(call.args), sorted(call.kwargs.items())]
            for call in presets.parsed(self.method)
        ]
        about = [FORMAT, self.kind, calls, self.settings, self.measure, self.seed]
        text = json.dumps(about, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Table:
    """What a file holds."""

    name: str
    title: str
    source: str
    kind: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    groups: tuple[Group, ...]
    remarks: tuple[str, ...] = ()
    """What the text leaves open, and where this departs from it."""
    differs: tuple[str, ...] = ()
    """Where what came out is not what was published, and why."""
    settings: dict[str, Any] = field(default_factory=dict)
    measure: dict[str, Any] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    """Settings of ``--quick``, which replace all others of their names."""

    def row(self, name: str) -> Row:
        """By its name."""
        return next(row for row in self.rows if row.name == name)

    def group(self, name: str) -> Group:
        """By its name."""
        return next(group for group in self.groups if group.name == name)

    def cells(self, *, quick: bool = False) -> list[Cell]:
        """All runs, group by group, and of a group one seed of all rows after another."""
        return [
            self.cell(group, self.row(name), seed, quick=quick)
            for group in self.groups
            for seed in group.seeds
            for name in group.published
        ]

    def cell(self, group: Group, row: Row, seed: int, *, quick: bool = False) -> Cell:
        """A row of a group with a seed."""
        method = row.method.format_map(group.fill)
        given = {**self.settings, **group.settings, **row.settings}
        given = {**presets.settings_of([method], given), **given}
        if quick:
            given |= {**self.quick, **group.quick}
        if "sampled" in given and "fraction" in given:
            del given["fraction"]
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
        measure = {**self.measure, **group.measure, **row.measure}
        if quick:
            measure["quick"] = True
        return Cell(self.name, group.name, row.name, seed, self.kind, method, given, measure)


def data_of(cell: Cell) -> str:
    """The data set that it is of, by its name alone."""
    return str(cell.settings.get("data", "digits")).partition("(")[0]


def names(folder: Path = FOLDER) -> list[str]:
    """All tables that there are."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def read(name: str, folder: Path | None = None) -> Table:
    """A table from its file; by default one of the papers', or of trials."""
    folder = folder or (FOLDER if (FOLDER / f"{name}.toml").is_file() else TRIALS)
    given = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    seeds = given.pop("seeds", [0])
    groups = [
        Group(**{"seeds": tuple(seeds), **each}) for each in _with_tuples(given.pop("groups"))
    ]
    table = Table(
        name,
        columns=tuple(Column(**each) for each in given.pop("columns")),
        rows=tuple(Row(**each) for each in given.pop("rows")),
        groups=tuple(groups),
        remarks=tuple(given.pop("remarks", ())),
        differs=tuple(given.pop("differs", ())),
        **given,
    )
    _check(table)
    return table


def _with_tuples(groups: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**each, **({"seeds": tuple(each["seeds"])} if "seeds" in each else {})} for each in groups
    ]


def _check(table: Table) -> None:
    """Refuse a file that says something of a row or a column that it does not have."""
    known = [row.name for row in table.rows]
    for group in table.groups:
        for name, figures in group.published.items():
            if name not in known:
                raise ValueError(f"{table.name}, {group.name}: there is no row {name!r}.")
            if len(figures) > len(table.columns):
                raise ValueError(f"{table.name}, {group.name}, {name}: more figures than columns.")


def published(
    table: Table, group: Group, row: str, column: int
) -> tuple[float, float | None] | None:
    """The figure of a paper and its spread; None, where it has none."""
    figures: Sequence[Any] = group.published[row]
    found = figures[column] if column < len(figures) else []
    if isinstance(found, int | float):
        return float(found), None
    if not found:
        return None
    return float(found[0]), float(found[1]) if len(found) > 1 else None
