"""A comparison as its participants read it: clients × methods, and a sentence for each client."""

from __future__ import annotations

import math
from collections.abc import Mapping

from glocal.experiment.participants import figures, offers, sentences
from glocal.experiment.run import Run
from glocal.report.tables import WIDEST, Cell, show_table, verdict

OVER_ALONE = (
    "For each client, over what it has alone, on test data: the estimate, its 90 % interval "
    "and the verdict."
)

CHOSEN = (
    " Sentences: validation data chooses the method, or staying alone; the figures are of test "
    "data, which chooses nothing."
)


def show_participants(runs: Mapping[str, Run]) -> None:
    """Print what each client gains with each method, and a sentence for each client.

    Of more clients than :data:`WIDEST` nothing is printed: ``--csv`` and ``--json`` have them all.
    """
    joined, said = offers(runs), sentences(runs)
    if not said or len(said) > WIDEST:
        return
    first = next(iter(joined.values()))
    rows: list[list[Cell]] = [
        [
            str(row["client"]),
            *(str(row[k]) for k in ("n_train", "n_test")),
            *(_cell(run, k) for run in joined.values()),
        ]
        for k, row in enumerate(first.clients)
    ]
    show_table(
        ["client", "train", "test", *joined],
        rows,
        OVER_ALONE + (CHOSEN if "advised" in first.clients[0] else ""),
        *(each["sentence"] for each in said),
    )


def _cell(run: Run, k: int) -> Cell:
    row = run.clients[k]
    if row["benefit"] is None or math.isnan(row["benefit"]):
        return "–"
    return verdict(row["verdict"], f"{figures(row, run.summary)} {row['verdict']}")
