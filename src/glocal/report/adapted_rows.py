"""Before and after adaptation, as a row for each method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glocal.experiment.run import Run
from glocal.report.tables import Cell, show_table
from glocal.report.units import unit_of


def show_adaptation(runs: Mapping[str, Run]) -> None:
    """Print a row for each method: before and after its clients adapted what they got."""
    rows: list[list[Cell]] = []
    for name, run in runs.items():
        s = run.summary
        if "adapted" not in s:
            continue
        adapted, unit = s["adapted"], unit_of(s)
        by = sorted(adapted["by"].items(), key=lambda item: -item[1])
        rows.append(
            [
                (name, "bold"),
                unit.value(s["mean"]),
                unit.value(s["adapted_mean"]),
                unit.interval(adapted["gain"]),
                *(_before_and_after(s, k) for k in ("better_off", "worse_off")),
                _worse_in_each(adapted["worse_off_in_each"]),
                ", ".join(f"{k} {v}" for k, v in by),
            ]
        )
        pairs = adapted["gain"]["by"]
        over = f", with a paired 90 % interval over {pairs}" if pairs else ""
    head = [
        "method",
        f"mean {unit.heading}",
        f"adapted {unit.heading}",
        "gain",
        "better off",
        "worse off",
        "in each repeat",
    ]
    show_table(
        [*head, "adapted by"],
        rows,
        "Adapted: each client goes on from what it got, on its own data; rate, epoch and technique "
        f"are chosen on its validation data. Gain: {unit.of_differences}{over}. Better and "
        "worse off than alone: before → after. In each repeat: how many are "
        "worse off by that repeat's test data alone, on average; with three repeats or more, the "
        "90 % interval of the change.",
    )


def _before_and_after(summary: Mapping[str, Any], count: str) -> str:
    before, after = summary[count], summary[f"adapted_{count}"]
    return "–" if before is None else f"{before} → {after}"


def _worse_in_each(counts: Mapping[str, Any] | None) -> str:
    if counts is None:  # nobody was set against being alone
        return "–"
    before, after = (sum(counts[k]) / len(counts[k]) for k in ("before", "after"))
    low, high = (counts["change"][k] for k in ("low", "high"))
    spread = "" if low is None else f" ({low:+.1f} … {high:+.1f})"
    return f"{before:.1f} → {after:.1f}{spread}"
