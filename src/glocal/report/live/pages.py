"""The pages besides the report: what there is, and what cannot be shown and why."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from glocal.report import run_listing
from glocal.report.live import deployments
from glocal.report.live.frame import document
from glocal.report.live.parts import link, progress, quoted, shown, texts
from glocal.report.live.watched import Group, Seen
from glocal.report.page.markup import Html, join, tag
from glocal.report.page.sections.common import section, table
from glocal.report.tables import plural, some
from glocal.runs import query
from glocal.runs.listing import Listed, printable

CHOOSE = "Choose two or more runs, and set them side by side."


def overview(seen: Seen, root: Path) -> str:
    """The list of comparisons and sweeps, runs, and deployments."""
    name = printable(Path(root.resolve().name)) or "/"
    return document(
        f"Runs in {name}",
        tag("p", seen.problem, class_="notice") if seen.problem else None,
        None if seen.runs or seen.deployments or seen.problem else _nothing(name),
        _search() if len(seen.runs) + len(seen.deployments) > 1 else None,
        _groups(seen),
        _runs(seen.runs),
        deployments.listed(seen.deployments),
    )


def without_report(paths: Sequence[str], problems: Sequence[str]) -> str:
    """The page of runs of which there is no report (yet), and why."""
    name = some([shown(path) for path in paths], 3)
    said = problems or ["There is nothing to show of it yet."]
    return document(name, *(tag("p", shown(each), class_="notice") for each in said))


def not_comparable(there: Sequence[str], missing: Sequence[str], most: int) -> str:
    """The page of a comparison that cannot be made."""
    gone = f"Not there (any more): {some([shown(path) for path in missing], 5)}. "
    count = f"{plural(len(there), 'run')} chosen: choose 2 to {most} in the list."
    said = (gone if missing else "") + (count if not 2 <= len(there) <= most else "")
    return document("Side by side", tag("p", said, class_="notice"))


def side_by_side(runs: Mapping[str, Listed]) -> Html:
    """The figures of chosen runs, which the report has one after the other."""
    labels = query.labels(len(runs))
    heads = [f"{label}: {shown(path)}" for label, path in zip(labels, runs, strict=True)]
    states = [progress(run.state, run.rounds_done, run.rounds_asked) for run in runs.values()]
    rows = [[Html("state"), *states]]
    for name, cells in run_listing.figures(list(runs.values())).items():
        rows.append([Html(name), *texts(cells)])
    return section("figures", "Figures", table("figures", "Figures of all", ["", *heads], rows))


def unfinished(runs: Mapping[str, Listed]) -> Html | None:
    """How far the runs of a report are, while they train."""
    if not any(run.state == "running" for run in runs.values()):
        return None
    rows = [
        join(
            tag("dt", tag("bdi", shown(run.method or path))),
            tag("dd", progress(run.state, run.rounds_done, run.rounds_asked)),
        )
        for path, run in runs.items()
    ]
    return tag("dl", *rows, id="progress", class_="progress")


def _nothing(name: str) -> Html:
    return tag(
        "p",
        f"There are no runs in {name} yet: start one with ",
        tag("code", "glocal compare"),
        ", and it appears here.",
        class_="notice",
    )


def _search() -> Html:
    return tag(
        "p",
        tag("label", "Show only rows with", for_="search"),
        " ",
        tag("input", type="search", id="search", autocomplete="off", spellcheck="false"),
        tag("output", id="search-count", for_="search"),
        class_="tools search",
    )


def _runs(runs: Mapping[str, Listed]) -> Html | None:
    """A table of all runs, newest first, from which some can be chosen."""
    if not runs:
        return None
    by_folder = {run.folder: path for path, run in runs.items()}
    ordered = query.ordered(runs.values(), "when")
    columns, cells, same = run_listing.table(ordered)
    rows = []
    for run, row in zip(ordered, cells, strict=True):
        name = _choice(by_folder[run.folder], several=len(runs) > 1)
        state = progress(run.state, run.rounds_done, run.rounds_asked, run.problem)
        rows.append([name, state, *texts(row[2:])])
    head = [column.name for column in columns]
    left = next(i for i, column in enumerate(columns) if not column.text)
    listed = table("runs", plural(len(runs), "run"), head, rows, left=left)
    legend = tag("p", (same + run_listing.legend(ordered)).strip(), class_="note")
    if len(runs) < 2:
        return section("runs", "Runs", listed, legend)
    compare = tag("p", tag("button", "Compare", type="submit"), " ", CHOOSE, class_="tools")
    form = tag("form", compare, listed, action="/compare", method="get")
    return section("runs", "Runs", form, legend)


def _choice(path: str, *, several: bool) -> Html:
    """The name of a run, which leads to its report, and a box to choose it."""
    name = link("report", path, "this run")
    if not several:
        return name
    words = f"Choose {shown(path)}"
    box = tag("input", type="checkbox", name="run", value=quoted(path), aria_label=words)
    return tag("span", box, " ", name, class_="choice")


def _groups(seen: Seen) -> Html | None:
    """A table of comparisons and sweeps, newest first."""
    if not seen.groups:
        return None
    rows = []
    for path, group in sorted(seen.groups.items(), key=lambda item: -_when(seen, item[1])):
        runs = [seen.runs[each] for each in group.runs]
        methods = dict.fromkeys(run.method for run in runs if run.method)
        states = {run.state for run in runs}
        state = next((s for s in ("running", "damaged", "stopped") if s in states), "finished")
        done, asked = sum(run.rounds_done for run in runs), sum(run.rounds_asked for run in runs)
        rows.append(
            [
                link("report", path, f"this {group.kind}"),
                progress(state, done, asked, seen.refused.get(path)),
                Html(group.kind),
                *texts([some(list(methods), 6)]),
                Html(time.strftime("%Y-%m-%d %H:%M", time.localtime(_when(seen, group)))),
            ]
        )
    head = ["folder", "state", "kind", "methods", "when"]
    kinds = Counter(group.kind for group in seen.groups.values())
    caption = " and ".join(plural(count, kind) for kind, count in sorted(kinds.items()))
    title = " and ".join(f"{kind}s" for kind in sorted(kinds)).capitalize()
    return section("groups", title, table("groups", caption, head, rows, left=5))


def _when(seen: Seen, group: Group) -> float:
    return max(seen.runs[path].when for path in group.runs)
