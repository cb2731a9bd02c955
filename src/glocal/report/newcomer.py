"""A client that joined, as a table: what it got, and what the others lost."""

from __future__ import annotations

from collections.abc import Mapping

from glocal.report.tables import Cell, count, how_shown, percent, points, show_table, span, verdict
from glocal.studies.newcomer.join import Joined


def show(joined: Mapping[str, Joined]) -> None:
    """Print a row for each method: the newcomer stage by stage, and the old clients' change."""
    rows: list[list[Cell]] = []
    for name, j in joined.items():
        s = j.summary
        over_seeds = {"low": s["old_low"], "high": s["old_high"]}
        ends = s["old_paired"] if s["old_low"] is None else over_seeds
        rows.append(
            [
                (name, "bold"),
                *(percent(s[k]) for k in ("at_once", "alone", "own_training", "joined")),
                verdict(s["verdict"]),
                *(percent(s[k]) for k in ("old_before", "old_after")),
                points(s["old_change"]),
                span(ends["low"], ends["high"]),
                count(s["old_worse_off"], "worse off"),
            ]
        )
    head = ["method", "at once %", "alone %", "own training %", "joined %", "vs alone"]
    head += ["old before %", "old after %", "change", "90 % range", "worse off"]
    show_table(head, rows, _legend(next(iter(joined.values()))))


def _legend(joined: Joined) -> str:
    s, t = joined.summary, joined.settings
    with_old = f"with {t['fraction']:g} of the old clients" if t["fraction"] else "alone"
    pooled = "all old clients' test examples, by label shares"
    where = pooled if s["estimate"] == "pooled" else "their own test splits"
    spread = (
        f"90 % range: of the mean change over {s['seeds']} seeds (Student's t)"
        if s["old_low"] is not None
        else "90 % range: paired, on their test examples (more --seeds: over seeds)"
    )
    return (
        f"{s['old_clients']} old clients train for {t['rounds']} rounds; client {t['client']} "
        f"then trains {t['own_epochs']} epochs by itself and {t['join_rounds']} rounds {with_old}. "
        f"The newcomer is evaluated on its own test split, against the model it could train alone; "
        f"old clients on {where}. {spread}. Worse off: old clients, {how_shown(s['seeds'])}."
    )
