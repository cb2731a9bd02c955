"""What a shell completes after a Tab: names of methods, data and models, and folders of runs.

A shell waits for it, so nothing is imported that takes time: names are read from the source of the
tables that have them, as text. Where nothing fits, the shell completes files.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]

RUNS = Path("runs")
"""Where runs are unless told otherwise."""

Complete = Callable[[str], list[str]]

OF_SETTING: dict[str, tuple[str, ...]] = {
    "adapt": ("experiment/adaptation.py:TECHNIQUES", "best"),
    "augment": ("nn/augment.py:AUGMENTATIONS",),
    "availability": ("training/availability.py:ABSENCES",),
    "baseline": ("same", "best", "none"),
    "data": ("data/datasets/registry.py:SOURCES",),
    "device": ("cpu", "cuda"),
    "diverged": ("training/divergence.py:POLICIES",),
    "engine": ("engines/__init__.py:NAMES",),
    "losses": ("nn/losses.py:OF_NUMBERS", "cross_entropy"),
    "metric": ("evaluation/metrics.py:METRICS", "evaluation/measures.py:OF_NUMBERS"),
    "model": ("nn/models/__init__.py:REGISTRY",),
    "partition": ("data/partition.py:PARTITIONS", "by"),
    "precision": ("nn/precision.py:PRECISIONS",),
    "preprocessing": ("data/preprocessing/fitting.py:MODES",),
    "states": ("training/client_state/placement.py:PLACES",),
    "stragglers": ("training/stragglers.py:POLICIES",),
    "task": ("core/target.py:TASKS", "auto"),
    "track": ("runs/tracking.py:TRACKERS",),
    "transforms": ("data/transforms.py:TRANSFORMS",),
}
"""Where the names of a setting are: ``file:table``, or a name itself."""


def of_setting(name: str) -> Complete | None:
    """What completes a setting's value; none, if it has no names."""
    places = OF_SETTING.get(name)
    if places is None:
        return None

    def complete(incomplete: str) -> list[str]:
        return [each for each in names(places) if each.startswith(incomplete)]

    return complete


def methods(incomplete: str) -> list[str]:
    """Methods and components; after a ``+``, components alone."""
    before, plus, last = incomplete.rpartition("+")
    slots: dict[str, tuple[str, str]] = ast.literal_eval(_table("methods/registry.py", "BUILT_IN"))
    fit = [
        name
        for name, (slot, _) in slots.items()
        if name.startswith(last) and not (plus and slot == "method")
    ]
    return [before + plus + name for name in fit]


def data_sets(incomplete: str) -> list[str]:
    """Data sets by name."""
    return [each for each in names(OF_SETTING["data"]) if each.startswith(incomplete)]


def run_folders(incomplete: str) -> list[str]:
    """The folders of runs, newest first by their names, which begin with the date."""
    try:
        found = sorted((each for each in RUNS.iterdir() if each.is_dir()), reverse=True)
    except OSError:
        return []
    return [str(each) for each in found if str(each).startswith(incomplete)]


def names(places: tuple[str, ...]) -> list[str]:
    """All names of some places."""
    found: list[str] = []
    for place in places:
        file, colon, variable = place.partition(":")
        found += _keys(_table(file, variable)) if colon else [place]
    return list(dict.fromkeys(found))


@cache
def _table(file: str, variable: str) -> Any:
    """What a variable of a module is set to, as its source has it."""
    module = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    return next(value for name, value in _assigned(module) if name == variable)


def _assigned(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The names that a module sets, and to what."""
    for statement in module.body:
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield ast.unparse(statement.target), statement.value
        elif isinstance(statement, ast.Assign):
            yield ast.unparse(statement.targets[0]), statement.value


def _keys(table: Any) -> list[str]:
    """The keys of a dict, or the entries of a tuple."""
    entries = table.keys if isinstance(table, ast.Dict) else table.elts
    return [str(each.value) for each in entries if isinstance(each, ast.Constant)]
