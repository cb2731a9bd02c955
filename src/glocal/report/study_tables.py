"""Studies as tables for people: a head, rows of text, how many columns are text, and a legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from glocal.report.tables import short


class TextTable(NamedTuple):
    """What :func:`glocal.report.tables.table` prints, and the lines under it."""

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


def without_transform(one: Found) -> str:
    """The method's spec, its transform left out where that is all the brackets say."""
    return str(one["method"]).replace(f"(transform={one['transform']})", "")


def decisions(found: Sequence[Found]) -> TextTable:
    """A row for each method: what its weights cost, and what the best would have."""
    rows = [
        [
            without_transform(one),
            one["transform"],
            *(_with_half(one[k], 1, 2) for k in ("objective", "decision_loss")),
            f"{one['best_fixed']['mean']:.2f}",  # the interval that matters is the regret's
            plain(one["regret"]),
            "–" if one["bound"] is None else f"{one['bound']:.2f}",
            percent(one["heaviest"]),
        ]
        for one in found
    ]
    head = ["method", "transform", "objective Σ", "decision loss Σ", "best fixed", "regret"]
    K = found[0]["clients"]
    legend = [
        f"Before every round the loss F of the model that goes out is taken at all {K} clients: a "
        "simulation can look, a server cannot. The weights p are those that stood before the "
        "round, decided without these losses: AAggFF's and AFL's p; of other methods, what they "
        "gave the round before (with sampling: would have given everybody).",
        "Objective: Σ p F over clients and rounds. Decision loss: −log(1 + Σ p r) over rounds, "
        "with r the losses as responses of that transform. Less is better of both. Best fixed: the "
        "decision loss of the best p that never changes, known only afterwards. Regret: how much "
        "more p suffered. Heaviest: the largest share of a client at the end (all alike: "
        f"{100 / K:.1f} %).",
        "Bound: a theorem says that the regret of aaggff-s or aaggff-d stays below this (with "
        "sampling: in the mean over draws). Others have none, and are judged by --response. "
        "Decision losses and regrets compare within one transform and one range of responses "
        "alone: 0 to 1/K with aaggff-s, 0 to C, the share of clients in a round, with aaggff-d; "
        "others have the one that fits (1/K with everybody, C with sampling).",
        _spread(found[0]),
    ]
    return TextTable([*head, "bound", "heaviest %"], rows, 2, _wrapped(legend))


def weights(found: Sequence[Found]) -> TextTable:
    """A row for each method: who counts most and least at the end, and whether loss decides."""
    rows = []
    for one in found:
        r = one["rank_correlation"]
        ends = (cell for pick in (max, min) for cell in _ended(one, pick(one["weights"][-1])))
        rows.append([one["method"], *ends, "–" if r is None else f"{r:+.3f}"])
    head = ["method", "most weight", "× even", "mean loss", "least weight", "× even", "mean loss"]
    legend = [
        "Most, least weight: the client that counts most, or least, after the last round (n "
        "alike: so many clients do); × even: its share, as a multiple of an even one, "
        f"1/{found[0]['clients']}; mean loss: over rounds, of the model it received, on its "
        "training data. Of clients that were absent it is what stood for them.",
        "Rank correlation (Spearman's) of a client's mean loss and its mean weight: +1 if whoever "
        "has the larger loss counts more, – if all count alike.",
        "One split and seed: --seed takes another.",
    ]
    return TextTable([*head, "rank correlation"], rows, 2, _wrapped(legend))


def _ended(one: Found, weight: float) -> list[str]:
    """Who ended with this weight, how many times an even share that is, and their mean loss."""
    K = one["clients"]
    # Weights are computed in single precision here and there.
    alike = [i for i, w in enumerate(one["weights"][-1]) if abs(w - weight) * K < 1e-6]
    loss = sum(one["client_loss"][i] for i in alike) / len(alike)
    who = one["names"][alike[0]] if len(alike) == 1 else f"{len(alike)} alike"
    return [who, f"{K * weight:.2f}", f"{loss:.3f}"]


def _wrapped(texts: Sequence[str]) -> list[str]:
    return [line for text in texts for line in wrap(text, 100)]
