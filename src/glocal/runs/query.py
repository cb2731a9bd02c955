"""Choosing among listed runs, and setting some side by side.

A condition is a name, a sign and a value: ``rounds=50``, ``partition=dirichlet*``, ``mean>0.9``.
The name is that of a setting or of a figure.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError, unknown
from glocal.experiment.config import Config
from glocal.experiment.result_files import SCHEMA
from glocal.runs.listing import FIGURES, STATES, Listed

Condition = Callable[[Listed], bool]

MOST_FIRST = ("when", "mean", "worst10", "best10", "local_mean", "benefit", "better_off")
"""Sorted from the most to the least: the newest and the best come first."""

COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def names(runs: Iterable[Listed]) -> set[str]:
    """What can be asked by: every setting there is or was, and every figure."""
    settings = {f.name for f in dataclasses.fields(Config)}
    return settings.union({"method", *FIGURES}, *(run.settings for run in runs))


def select(
    runs: Sequence[Listed],
    *,
    method: str | None = None,
    data: str | None = None,
    state: str | None = None,
    where: Iterable[str] = (),
) -> list[Listed]:
    """The runs for which everything holds that is asked for."""
    conditions = [condition(text, names(runs)) for text in where]
    if state is not None and state not in STATES:
        raise unknown("state", state, STATES)
    # A method may be asked for by any part of its spec.
    wanted = method if method is None or set("*?") & set(method) else f"*{method}*"
    return [
        run
        for run in runs
        if (wanted is None or _like(run.method, wanted))
        and (data is None or _on_data(run, data))
        and (state is None or run.state == state)
        and all(holds(run) for holds in conditions)
    ]


def _on_data(run: Listed, name: str) -> bool:
    """Whether it is on a data set or file of that name (a pattern, or without its folders)."""
    data = str(run.settings.get("data", ""))
    return bool(data) and (_like(data, name) or _like(Path(data).name, name))


def condition(text: str, known: set[str]) -> Condition:
    """A condition as typed, such as ``rounds=50``."""
    parts = re.fullmatch(r"\s*([\w-]+)\s*(<=|>=|!=|==?|<|>)\s*(.*?)\s*", text, re.DOTALL)
    if parts is None:
        raise GlocalError(
            f"--where {text!r} is no condition: write a name, a sign and a value, as in "
            "'rounds=50' or 'mean>0.9'."
        )
    typed, sign, value = parts.groups()
    name = setting(typed, known)
    if sign in ("=", "==", "!="):
        equal = sign != "!="
        return lambda run: run.state != "damaged" and _equals(run.value(name), value) is equal
    limit = _number(value)
    if limit is None:
        raise GlocalError(f"--where {text!r} compares with no number: write one after the {sign}.")
    holds = COMPARISONS[sign]
    return lambda run: (x := _number(run.value(name))) is not None and holds(x, limit)


def setting(typed: str, known: set[str]) -> str:
    """A name as options and files write it."""
    name = typed.replace("-", "_")
    name = "transforms" if name == "transform" else name
    if name not in known:
        raise unknown("setting", typed, known)
    return name


def ordered(runs: Iterable[Listed], key: str, *, reverse: bool = False) -> list[Listed]:
    """Sorted by a setting, a figure, or when, folder, state; what has none comes last."""
    runs = list(runs)
    name = setting(key, names(runs) | {"when", "folder", "state"})
    last = [run for run in runs if run.value(name) in (None, "")]
    first = [run for run in runs if run.value(name) not in (None, "")]

    def place(run: Listed) -> tuple[int, float, str]:
        number = _number(run.value(name))
        return (0, number, "") if number is not None else (1, 0.0, _text(run.value(name)).lower())

    first.sort(key=place, reverse=(name in MOST_FIRST) != reverse)
    return first + last


def listed(runs: Sequence[Listed]) -> dict[str, Any]:
    """The runs as plain data."""
    return {"schema": SCHEMA, "runs": [run.as_json() for run in runs]}


def compared(runs: Sequence[Listed]) -> dict[str, Any]:
    """The runs, each with a letter or number, in what they differ, and what forbids comparing."""
    if len(runs) < 2:
        raise GlocalError(
            f"there {'is one run' if runs else 'are no runs'} to compare here: give the folders "
            "of two or more."
        )
    names = labels(len(runs))
    found = [{**run.as_json(), "label": label} for run, label in zip(runs, names, strict=True)]
    return {
        **listed(runs),
        "runs": found,
        "differing": differing(runs),
        "incomparable": incomparable(runs, names),
    }


def labels(count: int) -> list[str]:
    """A letter for each of some runs, or a number where there are more of them than letters."""
    return [chr(65 + i) if count <= 26 else str(i + 1) for i in range(count)]


def differing(runs: Sequence[Listed]) -> dict[str, list[str]]:
    """The settings, and what was chosen and installed, in which runs are not the same."""
    tables: list[dict[str, str]] = []
    for run in runs:
        own = {"method": run.method} | {k: _text(run.value(k)) for k in run.settings}
        for name in ("chosen", "versions"):
            own |= {f"{name}.{k}": _text(v) for k, v in run.facts.get(name, {}).items()}
        tables.append(own)
    every = dict.fromkeys(name for table in tables for name in table)
    rows = {name: [table.get(name, "–") for table in tables] for name in every}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def incomparable(runs: Sequence[Listed], labels: Sequence[str]) -> list[str]:
    """Why the figures of these runs do not say which method is better, a sentence each."""
    said = []
    prints = [run.fingerprint for run in runs]
    if len(set(prints)) > 1:
        groups: dict[str | None, list[str]] = {}
        for label, mark in zip(labels, prints, strict=True):
            groups.setdefault(mark, []).append(label)
        shown = "; ".join(
            f"{', '.join(who)}: {mark[:12] if mark else 'unknown'}" for mark, who in groups.items()
        )
        said.append(
            "The figures are not comparable: the runs differ in data, partition or split "
            f"(fingerprints {shown})."
        )
    elif prints[0] is None:
        said.append(
            "The figures may not be comparable: the folders do not say which data was used."
        )
    counted = {(run.summary or {}).get("metric") or "accuracy" for run in runs if run.summary}
    if len(counted) > 1:
        said.append(f"What counts is not the same in all of them: {', '.join(sorted(counted))}.")
    own = ("model", "baseline", "init", "augment")
    other = [name for name in own if len({_text(run.value(name)) for run in runs}) > 1]
    if other:
        said.append(
            f"They differ in {' and '.join(other)}, so better and worse off are against other "
            "models alone."
        )
    repeats = {_text(run.value("repeats")) for run in runs if run.settings}
    if len(repeats) > 1:
        said.append("They differ in repeats: with more of them, fewer clients stay undecided.")
    return said


def _like(text: str, pattern: str) -> bool:
    """As in a shell, in any case; brackets are brackets, as specs have them."""
    return fnmatchcase(text.lower(), pattern.lower().replace("[", "[[]"))


def _equals(value: Any, typed: str) -> bool:
    number = _number(typed)
    if isinstance(value, list | tuple):
        return _text(value) == typed.strip("[]() ") or any(_equals(v, typed) for v in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number is not None and value == number
    return _like(_text(value), typed)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _text(value: Any) -> str:
    """As a settings file has it; none is ``none``."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value)
