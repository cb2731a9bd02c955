"""Runs in a table, or some of them side by side: settings that differ, and their figures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from glocal.report.tables import (
    Cell,
    Column,
    lay_out,
    plural,
    short,
    side_by_side,
    some,
    width,
)
from glocal.report.units import unit_of
from glocal.runs.listing import Listed, printable

VERDICTS = ("better_off", "worse_off", "same", "undecided")

COLOURS = {"running": "green", "stopped": "yellow", "damaged": "red"}


def listed(
    shown: Sequence[Listed],
    wanted: int,
    there: int,
    without_run: Sequence[Path],
    places: Sequence[Path],
) -> list[str]:
    """The table's lines, what is the same in all of it, and what is wrong with which run."""
    lines: list[str] = []
    if shown:
        columns, rows, same = table(shown)
        lines += ["", *lay_out(columns, rows, width()), "", *_wrapped(same + legend(shown))]
    elif there:
        lines += _wrapped(f"None of {plural(there, 'run')} is like that: ask for less.")
    else:
        where = ", ".join(map(printable, places))
        lines += _wrapped(
            f"There are no runs in {where}: 'glocal run' and 'glocal compare' leave their folders "
            "in runs/, or where --out says."
        )
    if len(shown) < wanted:
        lines.append(f"{len(shown)} of {plural(wanted, 'run')} shown.")
    lines += _problems(shown)
    if without_run:
        few = some([printable(path) for path in without_run], 5)
        lines += _wrapped(f"Without a run in it: {few}.")
    return lines


def table(shown: Sequence[Listed]) -> tuple[list[Column], list[list[Cell]], str]:
    """Columns, rows, and a sentence for what all runs have in common, which needs no column."""
    private = any(run.figure("epsilon") is not None for run in shown)
    heading = _heading(shown)
    mixed = heading == "mean"
    about: list[tuple[Column, Sequence[Cell]]] = [
        (Column("folder", text=True), [(run.name, "bold") for run in shown]),
        (Column("state", text=True), [state(run) for run in shown]),
        (Column("method", text=True, line=1), [run.method or "–" for run in shown]),
        (Column("data", text=True, line=1), [_data(run) for run in shown]),
        (Column("clients", line=1), [_plain(run.value("clients")) for run in shown]),
        (Column("rounds", line=1), [_rounds(run) for run in shown]),
        (Column("seed", line=1), [_plain(run.value("seed")) for run in shown]),
        (Column(heading, line=1), [_figure(run, "mean", mixed=mixed) for run in shown]),
        (Column("b/w/s/u", line=1), [_verdicts(run) for run in shown]),
        *([(Column("ε", line=1), [_epsilon(run) for run in shown])] if private else []),
        (Column("when"), [_when(run) for run in shown]),
    ]
    same, kept = [], []
    for column, cells in about:
        values = {c for c in cells if c != "–"}
        if len(shown) > 1 and column.name in ("data", "clients", "rounds", "seed"):
            if len(values) == 1:
                (value,) = values
                worded = {"data": f"{value}", "seed": f"seed {value}"}
                same.append(worded.get(column.name, f"{value} {column.name}"))
            if len(values) < 2:
                continue
        kept.append((column, cells))
    rows: list[list[Cell]] = [list(row) for row in zip(*(c for _, c in kept), strict=True)]
    return [c for c, _ in kept], rows, f"In all of them: {', '.join(same)}. " if same else ""


def _heading(shown: Sequence[Listed]) -> str:
    """What the means are of, if that is the same in all runs."""
    names = {unit_of(run.summary).heading for run in shown if run.summary}
    return f"mean {names.pop() if len(names) == 1 else '%' if not names else ''}".strip()


def _figure(run: Listed, name: str, *, mixed: bool = False) -> str:
    """A figure of the metric that counts; its name follows where that is ``mixed``."""
    unit = unit_of(run.summary or {})
    value = unit.value(run.figure(name))
    return f"{value} {unit.heading}" if mixed and run.summary else value


def legend(shown: Sequence[Listed]) -> str:
    """What the heads and cells of the table mean, as far as they need words."""
    said = ""
    if any(run.summary for run in shown):
        said = "b/w/s/u: clients better off than alone, worse off, the same, undecided. "
    if any("×" in _rounds(run) for run in shown):
        said += "Rounds × repeats. "
    return said


def compared(shown: Sequence[Listed], result: Mapping[str, Any]) -> list[str]:
    """Which run is which, what differs, the figures, and whether they can be compared."""
    wide, labels = width(), [run["label"] for run in result["runs"]]
    columns = [Column(""), Column("folder", text=True), Column("state", text=True)]
    rows: list[list[Cell]] = [
        [label, (run.name, "bold"), state(run)] for label, run in zip(labels, shown, strict=True)
    ]
    lines = ["", *lay_out(columns, rows, wide), ""]
    if result["differing"]:
        lines += side_by_side("setting", labels, result["differing"], wide, text=True)
    else:
        lines.append("They have the same settings.")
    side = figures(shown)
    if side:
        lines += ["", *side_by_side("figure", labels, side, wide, text=False)]
    lines.append("")
    for sentence in result["incomparable"]:
        lines += _wrapped(sentence)
    open_ended = [label for label, run in zip(labels, shown, strict=True) if not run.summary]
    if open_ended:
        lines += _wrapped(f"Without figures, as not finished or damaged: {', '.join(open_ended)}.")
    lines += _problems(shown)
    return lines[:-1] if lines[-1] == "" else lines


def figures(shown: Sequence[Listed]) -> dict[str, Sequence[str]]:
    """The figures of runs by name, one for each run; without those that none of them has."""
    rows: dict[str, Sequence[str]] = {
        _heading(shown): [_figure(run, "mean") for run in shown],
        "worst 10 %": [_figure(run, "worst10") for run in shown],
        **{name.replace("_", " "): [_number(run, name) for run in shown] for name in VERDICTS},
        "sent up": [short(run.figure("params_up")) for run in shown],
        "sent down": [short(run.figure("params_down")) for run in shown],
        "bytes up": [short(run.figure("bytes_up")) for run in shown],
        "bytes down": [short(run.figure("bytes_down")) for run in shown],
        "ε": [_epsilon(run) for run in shown],
    }
    return {name: row for name, row in rows.items() if set(row) != {"–"}}


def _problems(shown: Sequence[Listed]) -> list[str]:
    said = (f"{run.name}: {run.problem}." for run in shown if run.problem is not None)
    return [line for text in said for line in _wrapped(text)]


def state(run: Listed) -> Cell:
    """Whether a run is finished, and if not, at which round it is or was."""
    text = run.state
    if run.state in ("running", "stopped") and run.rounds_asked:
        of = f"round {run.rounds_done} of {run.rounds_asked}"
        text = f"running, {of}" if run.state == "running" else f"stopped at {of}"
    return (text, COLOURS[run.state]) if run.state in COLOURS else text


def _data(run: Listed) -> str:
    data = Path(str(run.settings.get("data") or "")).name  # of a file, without its folders
    return " ".join(str(x) for x in (data, run.value("partition")) if x) or "–"


def _rounds(run: Listed) -> str:
    rounds, repeats = run.settings.get("rounds"), run.settings.get("repeats", 1)
    return _plain(rounds) if repeats == 1 or rounds is None else f"{rounds}×{repeats}"


def _verdicts(run: Listed) -> str:
    if run.alone or not run.summary:
        return "–"
    return "/".join(_number(run, k) for k in VERDICTS)


def _number(run: Listed, name: str) -> str:
    return "–" if run.alone else _plain(run.figure(name))


def _epsilon(run: Listed) -> str:
    epsilon = run.figure("epsilon")
    return "–" if epsilon is None else f"{epsilon:.3g}"


def _plain(value: Any) -> str:
    return "–" if value is None or value == "" else str(value)


def _when(run: Listed) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.when)) if run.when else "–"


def _wrapped(text: str) -> list[str]:
    return wrap(text.strip(), min(100, width() or 100), break_on_hyphens=False)
