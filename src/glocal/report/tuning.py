"""What a search tried and what it chose, as a table for each method."""

from __future__ import annotations

from collections.abc import Mapping

from glocal.evaluation.measures import SHARES
from glocal.experiment.search import Tuned
from glocal.report.tables import Cell, plural, short, show_table
from glocal.report.units import unit_of

MOST = 12
"""Rows of a table."""


def show(done: Mapping[str, Tuned]) -> None:
    """Print what each method tried, best first, and the comparison to go on with."""
    for name, tuned in done.items():
        names = list(tuned.settings)
        unit = unit_of(
            {
                "metric": tuned.metric,
                "task": None if tuned.metric in SHARES else "numbers",
                "mean": tuned.trials[0].validation,
            }
        )
        rows: list[list[Cell]] = [
            [
                *(str(trial.settings[setting]) for setting in names),
                str(trial.rounds),
                unit.value(trial.validation),
            ]
            for trial in tuned.trials[:MOST]
        ]
        others = len(tuned.trials) - len(rows)
        more = f" {others} more were tried." if others else ""
        show_table(
            [*names, "rounds", f"validation {unit.heading}"],
            rows,
            f"{name}: of {plural(len(tuned.trials), 'candidate')} "
            f"({plural(tuned.rounds, 'round')} in all, {short(tuned.gradients)} gradients) "
            f"validation data chooses {tuned.spec}.{more}",
            left=len(names),
        )
    print(
        "\nValidation: clients' mean on validation data after so many rounds; a third of "
        "the\ncandidates goes on after each step. On test data:"
    )
    print("  glocal compare " + " ".join(f"'{tuned.spec}'" for tuned in done.values()))
