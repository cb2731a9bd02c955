"""Studies as tables for people: a head, rows of text, how many columns are text, and a legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from glocal.show import short


class TextTable(NamedTuple):
    """What :func:`glocal.show.table` prints, and the lines under it."""

    head: list[str]
    rows: list[list[str]]
    left: int
    legend: list[str]


Found = Mapping[str, Any]

PICKS = (
    "own pick: each client's, on its own validation data; one pick: the same for all, on the mean "
    "of their validation accuracies."
)


def percent(value: Found) -> str:
    """``93.1 ± 0.8``, in per cent."""
    return _with_half(value, 100, 1)


def plain(value: Found) -> str:
    """``0.123 ± 0.010``."""
    return _with_half(value, 1, 3)


def _with_half(value: Found, scale: float, digits: int) -> str:
    text = f"{scale * value['mean']:.{digits}f}"
    if value["high"] is None:
        return text
    return f"{text} ± {scale * (value['high'] - value['mean']):.{digits}f}"


def _spread(found: Found) -> str:
    if found["repeats"] == 1:
        return "One split and seed: --repeats 5 says how much of this is chance."
    return f"±: a 90 % t interval over {found['repeats']} splits and seeds."


def split_sweep(found: Sequence[Found]) -> TextTable:
    """A row for each split."""
    rows = [
        [
            one["method"],
            s["shared"],
            f"{100 * s['local_share']:.0f}",
            percent(s["mean"]),
            percent(s["worst10"]),
            *(str(s[k]) for k in ("better_off", "worse_off", "undecided")),
            short(s["params_up"]),
        ]
        for one in found
        for s in one["splits"]
    ]
    head = ["method", "shared", "local %", "mean %", "worst 10 %"]
    head += ["better off", "worse off", "undecided", "sent up"]
    alone = f"Each client alone: {percent(found[0]['alone'])} %."
    return TextTable(head, rows, 2, [alone, _spread(found[0])])


def interpolation(found: Found) -> TextTable:
    """A row for each α."""
    kinds = ("weights", "predictions")
    rows = [
        [
            f"{a:g}",
            *(
                percent(found[kind][where]["accuracy"][i])
                for kind in kinds
                for where in ("validation", "test")
            ),
        ]
        for i, a in enumerate(found["grid"])
    ]
    for label, key in (("own pick", "picked"), ("one pick", "commonly_picked")):
        weights, predictions = (percent(found[k][key]["accuracy"]) for k in kinds)
        rows.append([label, "", weights, "", predictions])
    head = ["alpha", "weights, val %", "weights, test %", "predictions, val %"]
    legend = [
        f"alpha 0: the global model; 1: each client's own. {PICKS}",
        _spread(found),
    ]
    return TextTable([*head, "predictions, test %"], rows, 1, legend)


def mixture_curve(found: Sequence[Found]) -> TextTable:
    """A row for each λ of each method."""
    rows = []
    for one in found:
        for i, lam in enumerate(one["grid"]):
            on = [one[w][m][i] for m in ("accuracy", "loss", "ece") for w in ("validation", "test")]
            cells = [*map(percent, on[:2]), *map(plain, on[2:])]
            rows.append([one["method"], f"{lam:g}", *cells, str(one["picks"][i])])
        for label, key in (("own pick", "picked"), ("one pick", "commonly_picked")):
            accuracy, loss, ece = (one[key][m] for m in ("accuracy", "loss", "ece"))
            cells = ["", percent(accuracy), "", plain(loss), "", plain(ece), ""]
            rows.append([one["method"], label, *cells])
        rows.append([one["method"], "test-picked", "", percent(one["test_picked"]), *[""] * 5])
    head = ["method", "lambda", "val %", "test %", "val loss", "test loss", "val ECE", "test ECE"]
    legend = [
        f"lambda 0: the received model; 1: the client's own. {PICKS} test-picked: on each "
        "client's test data, which nobody could do.",
        _spread(found[0]),
    ]
    return TextTable([*head, "picks"], rows, 2, legend)


def landscape(found: Sequence[Found]) -> TextTable:
    """A row for each pair of models."""
    rows = []
    for one in found:
        point = {p["name"]: p for p in one["points"]}
        for edge in one["edges"]:
            a, b = edge["between"]
            rows.append(
                [
                    one["method"],
                    f"{a} – {b}",
                    f"{edge['distance']:.2f}",
                    f"{point[a]['loss']:.3f}",
                    f"{point[b]['loss']:.3f}",
                    f"{edge['barrier']:.3f}",
                    f"{100 * min(edge['accuracy']):.1f}",
                ]
            )
    head = ["method", "between", "distance", "loss at one", "at the other", "barrier"]
    legend = [
        "On all clients' validation data together. barrier: the most by which the loss on the "
        "straight line between two models exceeds the line between their losses."
    ]
    return TextTable([*head, "least accuracy %"], rows, 2, legend)


def noise(found: Found) -> TextTable:
    """Three blocks, accuracy, ECE and MCE; a row for each method, a column for each noise."""
    kinds = (("accuracy %", "accuracy", percent), ("ECE", "ece", plain), ("MCE", "mce", plain))
    rows = [
        [label if i == 0 else "", name, *(shown(cells[n][metric]) for n in found["noises"])]
        for label, metric, shown in kinds
        for i, (name, cells) in enumerate(found["methods"].items())
    ]
    legend = [
        "Means over clients; training labels are noisy, validation and test labels clean.",
        _spread(found),
    ]
    return TextTable(["", "method", *found["noises"]], rows, 2, legend)
