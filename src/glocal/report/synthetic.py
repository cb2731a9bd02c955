"""What a run's synthetic data is good for, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glocal.report.tables import (
    Cell,
    how_shown,
    interval,
    paragraphs,
    percent,
    plural,
    points,
    show_table,
    some,
    verdict,
    where_tested,
)


def show(result: Mapping[str, Any]) -> None:
    """Print a row for each use, and what each of them is."""
    settings, made = result["settings"], result["made"]
    print()
    paragraphs(f"What the {made['examples']} examples of {settings['run']} are good for")
    head = ["use", "clients", "without %", "with %", "difference", "better off", "worse off", "so"]
    show_table(head, [_row(*use) for use in result["uses"].items()], *_legend(result))


def _row(name: str, use: Mapping[str, Any]) -> list[Cell]:
    if not use["clients"]:
        return [name, "0", *["–"] * 6]
    return [
        name,
        str(len(use["clients"])),
        *(percent(use[key]) for key in ("before", "after")),
        interval(use["change"]),
        *(" → ".join(map(str, use[key])) for key in ("better_off", "worse_off")),
        verdict(use["verdict"]),
    ]


def _legend(result: Mapping[str, Any]) -> list[str]:
    settings, made, uses = result["settings"], result["made"], result["uses"]
    base, kinds = settings["base"], {name.split(":")[0] for name in uses}
    said = [
        "Without, with: the same training without and with the examples, mean accuracy of the "
        f"clients in the row, each on {where_tested(result)}. Difference: points, with a paired "
        "90 % interval over clients. It is of one set of examples and one seed "
        f"({settings['seed']}): another may differ by more. Better and worse off than alone "
        f"({how_shown(1)}): without → with. So: what the interval says of the row; not "
        "shown: it holds zero."
    ]
    if "warm start" in kinds:
        said.append(
            f"Warm start: {base}, begun at a model trained on the examples alone or at its usual "
            f"start. The examples themselves took {plural(made['rounds'], 'round')} of "
            f"{settings['method']}: the last of these rows is against {base} that had those "
            "rounds too."
        )
    if "public set" in kinds:
        said.append(
            f"Public set: each client adapts what {base} gives it after "
            f"{plural(settings['rounds'], 'round')}. Fisher of ewc: of the examples, or of own "
            "data. Distillation: on own data and the examples, or on own data; the teacher is the "
            "model given, labels count too."
        )
    said += [_filled(use, settings["fill"]) for name, use in uses.items() if "fill up" in name]
    if made["repeats"] > 1:
        said.append(
            f"There were {made['repeats']} repeats, and a folder has the examples of the first: "
            "all of this is of the first."
        )
    if made["attack"]:
        said.append(f"The run was under attack ({made['attack']}); here everybody is honest.")
    return said


def _filled(use: Mapping[str, Any], fill: str) -> str:
    """Who was filled up, and what became of each."""
    if not use["clients"]:
        return "Fill up: no client has fewer training examples than the median, so nobody is."
    which = "those of classes they have" if fill == "own" else "all of them"
    each = [f"{r['client']} ({r['n_train']}) {points(r['difference'])}" for r in use["each"]]
    return (
        "Fill up: clients with fewer training examples than the median train alone on theirs and "
        f"the synthetic ones ({which}), against alone. Client (training examples), points: "
        f"{some(each)}. Shown to gain: {use['better']}, to lose: {use['worse']}; lower at all: "
        f"{use['lower']}."
    )
