"""``glocal runs``: what has been run, what runs now, and how runs differ."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.options import Json
from glocal.core.errors import GlocalError

if TYPE_CHECKING:
    from glocal.report.layout import Cell, Column
    from glocal.runs.listing import Listed

PLACE = Path("runs")

COLOURS = {"running": "green", "stopped": "yellow", "damaged": "red"}


def runs(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...", help="Run folders, or folders with runs below. Default: runs/."
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Set the runs side by side: the settings in which they differ, and their figures.",
        ),
    ] = False,
    method: Annotated[
        str | None,
        typer.Option(
            help="Only methods with this text in them, or like this pattern: 'fedavg*'.",
            rich_help_panel="Which",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Only on this data.", rich_help_panel="Which")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            help="Only those: finished, running, stopped or damaged.", rich_help_panel="Which"
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Only with this setting or figure, as in 'rounds=50', 'partition=dirichlet*' or "
            "'mean>0.9'; may be given several times, and all must hold.",
            rich_help_panel="Which",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            help="By when (the default, newest first), folder, state, or any setting or figure: "
            "mean, worst10, better_off, epsilon, rounds, … (accuracies: best first).",
            rich_help_panel="Order",
        ),
    ] = None,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="The other way round.", rich_help_panel="Order")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(help="Only the first so many.", rich_help_panel="Order")
    ] = None,
    json: Json = None,
) -> None:
    """List runs and what came of them, newest first; or compare some.

    Reads run folders only: a run that goes on is not disturbed.

    Examples:
      glocal runs

      glocal runs --method ditto --where 'rounds>=50' --sort mean --limit 5

      glocal runs --compare runs/2026-01-31-120000-fedavg runs/2026-01-31-130000-ditto
    """
    from glocal.cli.app import check_json
    from glocal.core import files
    from glocal.experiment import result_files
    from glocal.runs import listing
    from glocal.runs import query as asking

    if limit is not None and limit < 1:
        raise GlocalError(f"--limit must be 1 or more, not {limit}.")
    check_json(json)
    if places is None and not PLACE.is_dir():
        raise GlocalError(
            "there is no folder runs/ here: give the folder to look in, or make a first run with "
            "'glocal compare'."
        )
    found, strange = listing.find(places or [PLACE])
    conditions = [asking.where(text, asking.names(found)) for text in where or ()]
    conditions += [asking.of_method(method)] if method is not None else []
    conditions += [asking.on_data(data)] if data is not None else []
    conditions += [asking.in_state(state)] if state is not None else []
    wanted = [run for run in found if all(holds(run) for holds in conditions)]
    if sort is not None or not compare:
        wanted = asking.ordered(wanted, sort or "when", reverse=reverse)
    shown = wanted[:limit]
    if compare and len(shown) < 2:
        raise GlocalError(
            f"there {'is one run' if shown else 'are no runs'} to compare here: give the folders "
            "of two or more."
        )
    result: dict[str, Any] = {
        "schema": result_files.SCHEMA,
        "runs": [run.as_json() for run in shown],
    }
    labels = _labels(len(shown))
    if compare:
        for one, label in zip(result["runs"], labels, strict=True):
            one["label"] = label
        result["differing"] = asking.differing(shown)
        result["incomparable"] = asking.incomparable(shown, labels)
    if json is not None:
        text = files.dump(files.plain(result))
        if str(json) == "-":
            sys.stdout.write(text.decode())
            return
        files.write(json, text)
    if compare:
        _print(_compared(shown, labels, result["differing"], result["incomparable"]))
    else:
        _print(_listed(shown, len(wanted), len(found), strange, places or [PLACE]))


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        print(line)


def _listed(
    shown: Sequence[Listed],
    wanted: int,
    found: int,
    strange: Sequence[Path],
    places: Sequence[Path],
) -> list[str]:
    """The table, what is the same in all of it, and what is wrong with whom."""
    from glocal.report.layout import lay_out, width
    from glocal.runs.listing import printable

    lines: list[str] = []
    if shown:
        columns, rows, same = _table(shown)
        lines += ["", *lay_out(columns, rows, width(), _paint), ""]
        lines += _wrapped(same + _legend(shown))
    elif found:
        lines += _wrapped(f"None of {_count(found)} is like that: ask for less.")
    else:
        where = ", ".join(map(printable, places))
        lines += _wrapped(
            f"There are no runs in {where}: 'glocal run' and 'glocal compare' leave their folders "
            "in runs/, or where --out says."
        )
    if len(shown) < wanted:
        lines.append(f"{len(shown)} of {_count(wanted)} shown.")
    for run in shown:
        if run.problem is not None:
            lines += _wrapped(f"{run.name}: {run.problem}.")
    if strange:
        few = ", ".join(printable(path) for path in strange[:5])
        more = f" and {len(strange) - 5} more" if strange[5:] else ""
        lines += _wrapped(f"Without a run in it: {few}{more}.")
    return lines


def _table(shown: Sequence[Listed]) -> tuple[list[Column], list[list[Cell]], str]:
    """Columns, rows, and a sentence for what all runs have in common, which needs no column."""
    from glocal.report.layout import Column

    private = any(run.figure("epsilon") is not None for run in shown)
    about: list[tuple[Column, Sequence[Cell]]] = [
        (Column("folder", text=True), [(run.name, "bold") for run in shown]),
        (Column("state", text=True), [_state(run) for run in shown]),
        (Column("method", text=True, line=1), [run.method or "–" for run in shown]),
        (Column("data", text=True, line=1), [_data(run) for run in shown]),
        (Column("clients", line=1), [_plain(run.value("clients")) for run in shown]),
        (Column("rounds", line=1), [_rounds(run) for run in shown]),
        (Column("seed", line=1), [_plain(run.value("seed")) for run in shown]),
        (Column("mean %", line=1), [_percent(run.figure("mean")) for run in shown]),
        (Column("b/w/u", line=1), [_verdicts(run) for run in shown]),
        *([(Column("ε", line=1), [_epsilon(run) for run in shown])] if private else []),
        (Column("when"), [_when(run.when) for run in shown]),
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


def _legend(shown: Sequence[Listed]) -> str:
    said = ""
    if any(run.summary for run in shown):
        said = "b/w/u: clients better off than alone, worse off, undecided. "
    if any("×" in _rounds(run) for run in shown):
        said += "Rounds × repeats. "
    return said


def _compared(
    shown: Sequence[Listed],
    labels: Sequence[str],
    differing: dict[str, list[str]],
    incomparable: Sequence[str],
) -> list[str]:
    """Who is who, what differs, the figures, and whether they can be compared."""
    from glocal.report.layout import Column, lay_out, side_by_side, width

    wide = width()
    columns = [Column(""), Column("folder", text=True), Column("state", text=True)]
    rows: list[list[Cell]] = [
        [label, (run.name, "bold"), _state(run)] for label, run in zip(labels, shown, strict=True)
    ]
    lines = ["", *lay_out(columns, rows, wide, _paint), ""]
    if differing:
        lines += side_by_side("setting", labels, dict(differing), wide, text=True)
    else:
        lines.append("They have the same settings.")
    figures = {
        "mean %": [_percent(run.figure("mean")) for run in shown],
        "worst 10 %": [_percent(run.figure("worst10")) for run in shown],
        "better off": [_number(run, "better_off") for run in shown],
        "worse off": [_number(run, "worse_off") for run in shown],
        "undecided": [_number(run, "undecided") for run in shown],
        "sent up": [_short(run.figure("params_up")) for run in shown],
        "sent down": [_short(run.figure("params_down")) for run in shown],
        "ε": [_epsilon(run) for run in shown],
    }
    figures = {k: v for k, v in figures.items() if set(v) != {"–"}}
    if figures:
        lines += ["", *side_by_side("figure", labels, dict(figures), wide, text=False)]
    lines.append("")
    for sentence in incomparable:
        lines += _wrapped(sentence)
    open_ended = [label for label, run in zip(labels, shown, strict=True) if not run.summary]
    if open_ended:
        lines += _wrapped(f"Without figures, as not finished or damaged: {', '.join(open_ended)}.")
    for run in shown:
        if run.problem is not None:
            lines += _wrapped(f"{run.name}: {run.problem}.")
    return lines[:-1] if lines[-1] == "" else lines


def _labels(count: int) -> list[str]:
    """A, B, …, Z, and then numbers."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [letters[i] if count <= len(letters) else str(i + 1) for i in range(count)]


def _state(run: Listed) -> Cell:
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
    return "/".join(_number(run, k) for k in ("better_off", "worse_off", "undecided"))


def _number(run: Listed, name: str) -> str:
    return "–" if run.alone else _plain(run.figure(name))


def _epsilon(run: Listed) -> str:
    epsilon = run.figure("epsilon")
    return "–" if epsilon is None else f"{epsilon:.3g}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _short(value: float | None) -> str:
    from glocal.report.tables import short

    return "–" if value is None else short(int(value))


def _plain(value: Any) -> str:
    return "–" if value is None or value == "" else str(value)


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else "–"


def _count(n: int) -> str:
    return f"{n} run{'' if n == 1 else 's'}"


def _wrapped(text: str) -> list[str]:
    from glocal.report.layout import width

    return wrap(text.strip(), min(100, width() or 100), break_on_hyphens=False)


def _paint(text: str, colour: str) -> str:
    """Colours on a terminal, unless it asks for none."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return typer.style(text, bold=True) if colour == "bold" else typer.style(text, fg=colour)
