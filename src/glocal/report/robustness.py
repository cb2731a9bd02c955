"""What malicious clients do to the honest ones, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glocal.report.comparison import off_counts
from glocal.report.tables import (
    Cell,
    how_shown,
    percent,
    show_table,
    sign_colour,
    where_tested,
    with_half,
)
from glocal.studies.robustness import NO_ATTACK


def show(result: Mapping[str, Any]) -> None:
    """Print a row for each method and attack, and what it all means."""
    backdoors = any(row["backdoor"] is not None for row in result["rows"])
    head = ["method", "attack", "mean %", "change", "worst 10 %", "better off", "worse off"]
    head += ["backdoor %"] if backdoors else []
    rows = [_cells(row)[: len(head)] for row in result["rows"]]
    show_table(head, rows, *_legend(result, backdoors), *_ended(result), left=2)


def _cells(row: Mapping[str, Any]) -> list[Cell]:
    first, mean = row["attack"] == NO_ATTACK, row["mean"]
    change = with_half(mean, "difference", sign="+"), sign_colour(mean)
    return [
        (row["method"], "bold") if first else "",
        row["attack"],
        percent(mean["value"]),
        "" if first else change,
        percent(row["worst10"]["value"]),
        *off_counts(row),
        percent(row["backdoor"]),
    ]


def _ended(result: Mapping[str, Any]) -> list[str]:
    """Which attacks ended the training, and when."""
    return [
        f"{row['method']} under {row['attack']}: in {len(ended)} of {len(row['stopped'])} "
        f"repeats numbers were no longer finite, in round {min(ended)} at the earliest; "
        "evaluated as it stood before."
        for row in result["rows"]
        if (ended := [n for n in row["stopped"] if n is not None])
    ]


def _legend(result: Mapping[str, Any], backdoors: bool) -> list[str]:
    bad, repeats, clients = len(result["malicious"]), result["repeats"], result["clients"]
    by = result["rows"][-1]["mean"]["by"]
    interval = f", ± half of Student's 90 % interval, paired over {by}" if by else ""
    where = where_tested(result, "everybody's")
    over = f" of each of {repeats} repeats, averaged" if repeats > 1 else ""
    against_alone = any(row["better_off"] is not None for row in result["rows"])
    attacked = (
        f"{bad} of {clients} clients are malicious ({', '.join(result['malicious'])}); all "
        f"figures are of the other {clients - bad}."
    )
    if len({row["honest"] for row in result["rows"]}) > 1:
        attacked = (
            f"Attacks differ in how many of the {clients} clients are malicious; figures are of "
            f"the others, and without an attack of the {clients - bad} that --malicious leaves."
        )
    texts = [
        f"{attacked} Accuracy: each client's model on {where}. Chance, the best that one answer "
        f"for all would do: {percent(result['chance'])} %.",
        "Change: of the mean from the same method without an attack, on the same clients"
        f"{interval}. Worst 10 %: the mean of the worst tenth{over}."
        + (f" Better or worse off than alone: {how_shown(repeats)}." if against_alone else ""),
    ]
    if backdoors:
        texts.append(
            "Backdoor: the share of honest clients' test images of other classes that are taken "
            "for the target once they have the mark."
        )
    return texts
