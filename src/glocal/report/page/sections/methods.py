"""Methods side by side: how well, how fairly, and who is better off."""

from __future__ import annotations

from glocal.report.page.markup import Html, Place, join, tag
from glocal.report.page.sections.common import (
    finished,
    panels,
    paragraphs,
    prefix,
    section,
    set_against_alone,
    span,
    table,
    unit,
)
from glocal.report.page.sections.forest import Line, forest
from glocal.report.tables import number
from glocal.report.units import Unit

VERDICT_COUNTS = ("better_off", "worse_off", "same", "undecided")
MEAN = ("benefit", "benefit_low", "benefit_high")


def methods(group: Place) -> Html | None:
    """The table of methods, their mean benefit with its interval, and what the figures mean."""
    there = finished(group)
    if not there:
        return None
    name, how, words = prefix(group), unit(group), group / "words"
    best = any("same_model_benefit" in m.value["summary"] for _, m in there)
    base = next((b for _, m in there for b in m.value["summary"].get("against") or ()), None)
    head = ["method", f"mean {how.heading}", "worst 10 %", "best 10 %", "Gini"]
    head += ["vs same model", "vs best alone"] if best else ["vs alone"]
    head += ["better off", "worse off", "same", "undecided", *([f"vs {base}"] if base else [])]
    rows = [_row(n, m, how, best=best, base=base) for n, m in there]
    return section(
        f"{name}-methods",
        "Methods",
        panels(_gains(group, how)),
        table(f"{name}-methods-table", "Methods, their means over participants", head, rows),
        *paragraphs(words.get("shown")),
        *paragraphs(words.get("worse")),
        *paragraphs(words.get("choice")),
        *paragraphs(words.get("diverged")),
        tag("h3", "What the figures mean"),
        *paragraphs(words.get("legend")),
    )


def _row(name: str, method: Place, how: Unit, *, best: bool, base: str | None) -> list[Html]:
    s = method / "summary"
    alone = method.value["baseline"] or s.value["benefit"] is None
    benefit = [Html("–")] * (2 if best else 1)
    counts = [Html("–")] * 4
    if not alone:
        benefit = [s.get("same_model_benefit").number(how.difference)] if best else []
        benefit.append(join(s.get("benefit").number(how.difference), " (", _ends(s, how), ")"))
        counts = [s.get(word).number() for word in VERDICT_COUNTS]
    elif method.value["baseline"]:
        benefit[0] = Html("baseline")
    over: list[Html] = []
    if base is not None:
        against = s.get("against").get(base)
        over = [Html("–") if against.value is None else _difference(against, how)]
    return [
        tag("bdi", name),
        *(s.get(k).number(how.value) for k in ("mean", "worst10", "best10")),
        s.get("gini").number(number),
        *benefit,
        *counts,
        *over,
    ]


def _ends(summary: Place, how: Unit) -> Html:
    return span(summary, how, MEAN[1:])


def _difference(against: Place, how: Unit) -> Html:
    ends = span(against, how)
    middle = (against / "difference").number(how.difference)
    return middle if ends == "–" else join(middle, " (", ends, ")")


def _gains(group: Place, how: Unit) -> Html | None:
    """What each method gains on average over participants, with its interval."""
    lines = []
    for name, method in set_against_alone(group):
        summary = method / "summary"
        middle, low, high = (summary.value[k] for k in MEAN)
        if middle is None or low is None:
            continue
        verdict = "better off" if low > 0 else "worse off" if high < 0 else "undecided"
        tip = f"{name}: {how.difference(middle)} ({how.span(low, high)}) on average"
        lines.append(Line(name, middle, low, high, verdict, tip, summary.pointer))
    if not lines:
        return None
    return forest(
        f"{prefix(group)}-gains",
        "Mean benefit of each method",
        lines,
        how,
        about="; ".join(each.tip for each in lines),
        note="Over what participants have alone, with a 90 % interval.",
    )
