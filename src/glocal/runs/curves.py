"""Learning curves from run folders: of runs that are finished, that go on, or that were killed."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.progress import print_note
from glocal.experiment.learning_curves import LearningCurves
from glocal.runs.folder import COMPARISON
from glocal.runs.listing import Listed, find, printable

FILE = "metrics.jsonl"


def read_curves(
    places: Sequence[Path], note: Callable[[str], None] = print_note
) -> list[LearningCurves]:
    """The curves of all runs in these folders, or in those of comparisons and sweeps.

    ``note`` is told in a sentence what is left out and why.
    """
    found: list[tuple[Listed, LearningCurves]] = []
    for place in places:
        runs, _ = find([place])
        if not runs:
            raise GlocalError(
                f"there is no run in {printable(place)}: give a folder that 'glocal run' or "
                "'glocal compare' has made."
            )
        known = {run.folder.resolve() for run, _ in found}
        for run in in_order(place, runs):
            if run.folder.resolve() not in known:
                found.append((run, of_folder(run, note)))
    there = [(run, curves) for run, curves in found if curves.metrics]
    if not there:
        run = found[0][0]
        raise GlocalError(f"there is nothing to draw yet: {_why_not(run)}.")
    for run, curves in found:
        if not curves.metrics:
            note(f"left out: {_why_not(run)}.")
    names = Counter(run.method for run, _ in there)
    return [_named(run, curves, names[run.method] > 1) for run, curves in there]


def in_order(place: Path, runs: Sequence[Listed]) -> list[Listed]:
    """Those of a comparison in the order in which its methods were given."""
    try:
        about = tomllib.loads((place / COMPARISON).read_text(encoding="utf-8"))
        order = [str(name) for name in about["folders"]]
    except (OSError, ValueError, KeyError, TypeError):
        return list(runs)
    last = len(order)
    return sorted(runs, key=lambda run: order.index(n) if (n := run.folder.name) in order else last)


def _named(run: Listed, curves: LearningCurves, twice: bool) -> LearningCurves:
    """By the method, and where several runs have the same, by the folder, too."""
    name = run.method or run.folder.resolve().name
    if twice:
        name += f" ({printable(Path(run.folder.resolve().name))})"
    return LearningCurves(name, curves.lines, curves.kept, curves.about)


def _why_not(run: Listed) -> str:
    if run.alone:
        return f"the run in {run.name} is of {run.method}, whose clients train alone, not in rounds"
    if run.problem:
        return f"the run in {run.name} cannot be read ({run.problem})"
    return f"{run.name}/{FILE} has no round that was evaluated"


def of_folder(run: Listed, note: Callable[[str], None]) -> LearningCurves:
    """The curves of one run; without any lines where there is no file of them yet."""
    file = run.folder / FILE
    lines = _lines(file, note) if file.is_file() else []
    early = run.summary.get("early_stopping") or ()
    kept = tuple(int(each["round"]) for each in early if isinstance(each, dict))
    about = {
        "data": run.value("data"),
        "partition": run.value("partition"),
        "clients": run.value("clients"),
        "tune": run.settings.get("tune"),
    }
    return LearningCurves(run.method, tuple(lines), kept, about)


def _lines(file: Path, note: Callable[[str], None]) -> list[dict[str, Any]]:
    """The lines that can be read; of the others it is said how many they are."""
    try:
        *whole, rest = file.read_bytes().split(b"\n")
    except OSError as error:
        raise GlocalError(f"{file} cannot be read: {error.strerror}.") from error
    if rest:
        note(f"the last line of {printable(file)} is half-written and left out.")
    lines, strange = [], []
    for number, text in enumerate(whole, 1):
        try:
            line = json.loads(text)
            line["round"] = int(line["round"])
            lines.append(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            strange.append(number)
    if strange:
        more = f" and {len(strange) - 1} more" if strange[1:] else ""
        note(f"line {strange[0]}{more} of {printable(file)} cannot be read and is left out.")
    return lines
