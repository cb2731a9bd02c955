"""The answer in one sentence, and the sentences below it, which are those of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from glocal.report.comparison import (
    advice_in_words,
    choice_in_words,
    diverged_in_words,
    made_in_words,
    privacy_in_words,
    shown_in_words,
    worse_in_words,
)
from glocal.report.legend import legend
from glocal.report.participants import CHOSEN, OVER_ALONE
from glocal.report.recorded import Result
from glocal.report.tables import plural
from glocal.report.units import unit_of


def answered(runs: Mapping[str, Result]) -> str | None:
    """The method that the answer is about: the one for all, if there is one, else the first."""
    joined = [
        name
        for name, run in runs.items()
        if not run.is_baseline
        and run.summary["benefit"] is not None
        and "choice" not in run.summary
    ]
    best = [name for name in joined if runs[name].summary.get("recommended")]
    offered = [name for name in joined if "recommended" in runs[name].summary]
    return next(iter([*best, *offered, *joined, *runs]), None)


def answer(runs: Mapping[str, Result]) -> str:
    """Who is better off than alone, in a sentence."""
    name = answered(runs)
    if name is None:
        return "Nothing is finished yet, so nothing can be said yet."
    run, summary = runs[name], runs[name].summary
    unit, people = unit_of(summary), plural(summary["clients"], "participant")
    if run.is_baseline or summary["benefit"] is None:
        sign = " %" if unit.heading.endswith("%") else ""
        mean = f"{unit.value(summary['mean'])}{sign}"
        why = (
            "this is what they have alone"
            if run.is_baseline
            else "nobody is set against being alone, so who is better off cannot be told"
        )
        return f"With {name}, the mean {unit.name} of {people} is {mean}; {why}."
    return told(name, summary)


def told(name: str, summary: Mapping[str, Any]) -> str:
    """For how many participants better and worse off than alone is shown with one method."""
    alone = "the best they can train alone" if "best_alone" in summary else "alone"
    people = plural(summary["clients"], "participant")
    parts = [
        f"better off than {alone} is shown for {_count(summary['better_off'])} of {people}",
        f"worse off for {_count(summary['worse_off'])}",
    ]
    if summary["same"]:
        parts.append(f"{summary['same']} {_are(summary['same'])} about the same")
    if summary["undecided"]:
        parts.append(f"{summary['undecided']} cannot be told")
    text = f"With {name}, {', '.join(parts)}"
    if least := summary.get("at_least"):
        gain = f"at least {least} {'gains' if least == 1 else 'gain'}"
        more = least > summary["better_off"]
        text += f"; {gain}, whoever they be" if more else f"; all calls taken together, {gain}"
    return text + "."


def caveats(runs: Mapping[str, Result]) -> list[str]:
    """What belongs beside the answer."""
    name = answered(runs)
    if name is None or runs[name].is_baseline or runs[name].summary["benefit"] is None:
        return []
    summary, said = runs[name].summary, []
    offered = [run.summary for run in runs.values() if "recommended" in run.summary]
    if offered and not any(s["recommended"] for s in offered):
        said.append(
            "No method is advised for all: by validation data the participants together do best "
            f"alone; {name} is the first of those compared."
        )
    if summary["covers"] == "tests":
        said.append(
            f"This is of these trained models, from {plural(summary['repeats'], 'repeat')}: models "
            "that are trained again may differ (--repeats 3)."
        )
    return said


def words(runs: Mapping[str, Result]) -> dict[str, list[str]]:
    """Everything the terminal says below its tables, by subject."""
    if not runs:
        return {}
    first = next(iter(runs.values()))
    advised = any("advised" in row for row in first.clients[:1])
    joined = {
        n: r for n, r in runs.items() if not r.is_baseline and r.summary["benefit"] is not None
    }
    return {
        "legend": legend(runs),
        "shown": _of_each(joined, "at_least", shown_in_words),
        "advice": advice_in_words(runs),
        "choice": [choice_in_words(r.summary) for r in runs.values() if "choice" in r.summary],
        "privacy": privacy_in_words(runs),
        "diverged": diverged_in_words(runs),
        "synthetic": _of_each(runs, "synthetic", made_in_words),
        "worse": worse_in_words(joined),
        "participants": [OVER_ALONE + (CHOSEN if advised else "")] if joined else [],
    }


def _of_each(runs: Mapping[str, Any], figure: str, said: Callable[..., str]) -> list[str]:
    """What is said of each run that has such a figure."""
    return [said(name, run.summary) for name, run in runs.items() if figure in run.summary]


def _count(n: int) -> str:
    return "none" if n == 0 else str(n)


def _are(n: int) -> str:
    return "is" if n == 1 else "are"
