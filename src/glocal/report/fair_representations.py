"""What hiding protected attributes costs and brings: tables, and the trade-off over λ drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glocal.report.canvas import GREY, label, level, new_figure, pair, save, study_note
from glocal.report.studies import Result, spread
from glocal.report.tables import paragraphs, percent, show_table, with_half

CHANCE = 50


def show(result: Result) -> None:
    """Print a row for each method and λ, one for each attribute, and what validation chose."""
    head = ["method", "λ", "class accuracy %", "class AUC %", "adversary AUC %"]
    head += ["fresh linear AUC %", "fresh MLP AUC %"]
    rows = [[row["method"], f"{row['lam']:g}", *_cells(row)] for row in result["rows"]]
    show_table(
        head,
        rows,
        f"{spread(result)} AUCs of adversaries are means over {_attributes(result)} and over "
        "clients; 50 is chance, and less than 50 is chance, too.",
        "adversary: the one that was trained with the model. fresh: trained afterwards, on frozen "
        "training representations, and tested on test representations; that is what counts.",
        left=2,
    )
    show_table(
        ["method", "λ", "attribute", *head[4:], "parity gap", "odds gap"],
        [
            [row["method"], f"{row['lam']:g}", name, *_attribute_cells(of)]
            for row in result["rows"]
            for name, of in row["attributes"].items()
        ],
        "parity gap: how much more often a class is predicted for one group than for another, in "
        "points; odds gap: the same among people with the same label. Of all clients' test rows.",
        left=3,
    )
    show_table(
        ["method", "λ chosen", *head[2:]],
        [
            [row["method"], ", ".join(f"{lam:g}" for lam in row["lams"]), *_cells(row)]
            for row in result["chosen"]
        ],
        "Chosen in each repeat on validation data: of the λ with a validation accuracy of at least "
        f"{percent(result['least'])} % (or, where none has that, of the most accurate), the one "
        "from which fresh adversaries recover least.",
        left=2,
    )
    rates = ", ".join(f"{name} {percent(share)} %" for name, share in _rates(result).items())
    paragraphs(f"Right by a constant guess: {rates}.")


def _cells(row: Result) -> list[str]:
    keys = ("accuracy", "auc", "adversary", "linear", "mlp")
    return ["" if row[k] is None else with_half(row[k]) for k in keys]


def _attribute_cells(of: Result) -> list[str]:
    keys = ("adversary", "linear", "mlp", "demographic_parity", "equalised_odds")
    return ["" if of[k] is None else with_half(of[k]) for k in keys]


def _attributes(result: Result) -> str:
    return " and ".join(result["rows"][0]["attributes"])


def _rates(result: Result) -> dict[str, float]:
    return dict(result["base_rates"])


def draw(result: Result, path: Path) -> None:
    """Draw the accuracy of the task against what adversaries recover, a line for each method."""
    figure = new_figure(10, 4.4)
    left, right = figure.subplots(1, 2)
    methods = list(dict.fromkeys(row["method"] for row in result["rows"]))
    lams = sorted({row["lam"] for row in result["rows"]})
    for i, (method, name) in enumerate(zip(methods, short_names(methods), strict=True)):
        rows = [row for row in result["rows"] if row["method"] == method]
        _trade_off(left, rows, name, i)
        _by_lam(right, rows, lams, name, i)
    left.axvline(CHANCE, color=GREY, linestyle=":")
    constant = 100 * _rates(result)["label"]
    level(left, constant, f"constant guess {constant:.1f}", at_right=True, style="--")
    right.axhline(CHANCE, color=GREY, linestyle=":")
    right.set_ylim(bottom=40)  # below chance there is room for the legend
    right.set_xticks(range(len(lams)), [f"{lam:g}" for lam in lams])
    label(left, "AUC of the better fresh adversary, %", "class accuracy, %", legend=True)
    label(right, "λ", f"AUC of adversaries against {_attributes(result)}, %", legend=True)
    note = study_note(result, "numbers: λ; dotted: chance")
    save(figure, path, "What hiding protected attributes costs, and what stays", note)


def _trade_off(axes: Any, rows: list[Result], name: str, i: int) -> None:
    x = [100 * row["post_fit"]["mean"] for row in rows]
    y = [100 * row["accuracy"]["mean"] for row in rows]
    x_bars, y_bars = ([_half(row[k]) for row in rows] for k in ("post_fit", "accuracy"))
    axes.errorbar(
        x,
        y,
        xerr=x_bars,
        yerr=y_bars,
        label=name,
        capsize=2,
        elinewidth=0.8,
        markersize=5,
        **pair(i),
    )
    for row, at in zip(rows, zip(x, y, strict=True), strict=True):
        place = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": 7.5}
        axes.annotate(f"{row['lam']:g}", at, color=pair(i)["color"], **place)


def _by_lam(axes: Any, rows: list[Result], lams: list[float], name: str, i: int) -> None:
    """Trained and fresh adversaries by λ, at equal distances: λ = 0 has no place on a log axis."""
    places = [lams.index(row["lam"]) for row in rows]
    for key, style in (("post_fit", "-"), ("adversary", "--")):
        means = [100 * row[key]["mean"] for row in rows]
        bars = [_half(row[key]) for row in rows]
        kind = "fresh" if key == "post_fit" else "trained with it"
        axes.errorbar(
            places,
            means,
            yerr=bars,
            label=f"{name}, {kind}",
            linestyle=style,
            capsize=2,
            elinewidth=0.8,
            markersize=5,
            markerfacecolor=pair(i)["color"] if key == "post_fit" else "white",
            **pair(i),
        )


def _half(value: Result) -> float:
    return 0.0 if value["high"] is None else 100 * (value["high"] - value["mean"])


def short_names(methods: list[str]) -> list[str]:
    """Methods without their settings, for a legend, but for those in which namesakes differ."""
    names = [method.partition("(")[0].partition("+")[0] for method in methods]
    settings = [set(method.partition("(")[2].removesuffix(")").split(", ")) for method in methods]
    found = []
    for name, own in zip(names, settings, strict=True):
        others = [given for n, given in zip(names, settings, strict=True) if n == name]
        differ = sorted(s for s in own if s and not all(s in other for other in others))
        found.append(" ".join([name, *differ]))
    return found
