"""Studies between all-local and all-global as tables and pictures.

Every ``show_…`` prints what a function of :mod:`glocal.studies` returned, and every ``draw_…``
makes a PNG file of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.report.canvas import COLOURS, label, level, line, new_figure, pair, save, study_note
from glocal.report.tables import paragraphs, percent, short, show_table, with_half

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Result = Mapping[str, Any]

PICKS = (
    "own pick: each client's, on its own validation data; one pick: the same for all, on the mean "
    "of their validation accuracies."
)

plain = partial(with_half, scale=1, digits=3)
"""``0.123 ± 0.010``."""


def spread(result: Result) -> str:
    """What the intervals are of, or how to get some."""
    if result["repeats"] == 1:
        return "One split and seed: --repeats 5 says how much of this is chance."
    return f"±: a 90 % t interval over {result['repeats']} splits and seeds."


def show_placebo(result: Result) -> None:
    """Print how many clients each method is called better or worse for than itself."""
    shown = ("called", "better", "worse", "same")
    rows = [
        [name, *(percent(found[k]) for k in shown)] for name, found in result["methods"].items()
    ]
    n = result["clients"] * result["times"]
    show_table(
        ["set against itself", "called %", "better off %", "worse off %", "same %"],
        rows,
        f"Each method trained twice on the same clients and splits with other seeds, "
        f"{result['repeats']} repeats each; {n} verdicts a row. Nobody can be better or worse off, "
        f"so who is called is called by chance: {percent(result['allowed'])} % are allowed. "
        f"Where many more are, do not believe the verdicts on this federation.",
    )


def show_placebo_beside(found: Result) -> None:
    """Print what a placebo on the same clients says of a comparison's verdicts."""
    each = ", ".join(f"{name} {percent(of['called'])}" for name, of in found["methods"].items())
    paragraphs(
        f"Placebo: where methods were set against themselves on these clients, "
        f"{percent(found['called'])} % of verdicts called somebody better or worse off ({each}); "
        f"{percent(found['allowed'])} % may be called by chance. Where many more are, do not "
        "believe the verdicts."
    )


def show_split(results: Sequence[Result]) -> None:
    """Print a row for each split."""
    rows = [
        [
            result["method"],
            split["shared"],
            f"{100 * split['local_share']:.0f}",
            with_half(split["mean"]),
            with_half(split["worst10"]),
            *(str(split[k]) for k in ("better_off", "worse_off", "same", "undecided")),
            short(split["params_up"]),
        ]
        for result in results
        for split in result["splits"]
    ]
    head = ["method", "shared", "local %", "mean %", "worst 10 %"]
    head += ["better off", "worse off", "same", "undecided", "sent up"]
    alone = f"Each client alone: {with_half(results[0]['alone'])} %."
    show_table(head, rows, alone, spread(results[0]), left=2)


def show_learned_split(results: Sequence[Result]) -> None:
    """Print the learnt split between its ends, and how often each layer's gate was open."""
    rows = [
        [
            result["method"],
            split["shared"],
            with_half(split["mean"]),
            with_half(split["worst10"]),
            *(str(split[k]) for k in ("better_off", "worse_off", "same", "undecided")),
            short(split["params_up"]),
        ]
        for result in results
        for split in result["splits"]
    ]
    head = ["method", "shared", "mean %", "worst 10 %"]
    head += ["better off", "worse off", "same", "undecided", "sent up"]
    alone = f"Each client alone: {with_half(results[0]['alone'])} %."
    show_table(head, rows, alone, spread(results[0]), left=2)
    for result in results:
        of = f" of {result['repeats']} repeats" if result["repeats"] > 1 else ""
        gates = ", ".join(f"{layer} {times}{of}" for layer, times in result["layers"].items())
        paragraphs(f"{result['method']}, layers shared by what was learnt: {gates}.")


def draw_split(results: Sequence[Result], path: Path) -> None:
    """Draw accuracy, and who is better or worse off, against the share that is local."""
    figure = new_figure(9.5, 4.2)
    left, right = figure.subplots(1, 2)
    for i, result in enumerate(results):
        splits, method = result["splits"], result["method"]
        x = [100 * s["local_share"] for s in splits]
        line(left, x, [s["mean"] for s in splits], label=method, **pair(i))
        better, worse = ([s[k] for s in splits] for k in ("better_off", "worse_off"))
        dashed: dict[str, Any] = {"linestyle": "--", "markerfacecolor": "white"}
        right.plot(x, better, label=f"better off, {method}", **pair(i))
        right.plot(x, worse, label=f"worse off, {method}", **dashed, **pair(i))
    alone = 100 * results[0]["alone"]["mean"]
    level(left, alone, f"each client alone {alone:.1f}")
    clients = results[0]["clients"]
    x_name = "parameters that are local (%)"
    label(left, x_name, "mean accuracy over clients (%)", legend=True)
    label(right, x_name, f"clients, of {clients}", legend=True)
    right.yaxis.get_major_locator().set_params(integer=True)
    right.set_ylim(-0.03 * clients, 1.03 * clients)
    result, best = max(
        ((result, s) for result in results for s in result["splits"]),
        key=lambda pair: float(pair[1]["mean"]["mean"]),
    )
    title = (
        f"Highest mean accuracy, {percent(best['mean']['mean'])} %: {result['method']} with "
        f"{100 * best['local_share']:.0f} % of the parameters local "
        f"(none local: {percent(result['splits'][0]['mean']['mean'])} %)"
    )
    side = f"local part grows from the {results[0]['side']}"
    save(figure, path, title, study_note(results[0], side))


def show_interpolation(result: Result) -> None:
    """Print a row for each α."""
    kinds, places = ("weights", "predictions"), ("validation", "test")
    rows = [
        [
            f"{alpha:g}",
            *(with_half(result[kind][on]["accuracy"][i]) for kind in kinds for on in places),
        ]
        for i, alpha in enumerate(result["grid"])
    ]
    for name, key in (("own pick", "picked"), ("one pick", "commonly_picked")):
        weights, predictions = (with_half(result[kind][key]["accuracy"]) for kind in kinds)
        rows.append([name, "", weights, "", predictions])
    head = ["alpha", *(f"{kind}, {on} %" for kind in kinds for on in ("val", "test"))]
    ends = f"alpha 0: the global model; 1: each client's own. {PICKS}"
    show_table(head, rows, ends, spread(result))


def draw_interpolation(result: Result, path: Path) -> None:
    """Draw accuracy along α, mixing weights and mixing predictions."""
    figure = new_figure(9.5, 4.2)
    left, right = figure.subplots(1, 2, sharey=True)
    grid = result["grid"]
    for axes, on in ((left, "validation"), (right, "test")):
        for i, kind in enumerate(("weights", "predictions")):
            name = f"{kind} mixed" if axes is left else None
            line(axes, grid, result[kind][on]["accuracy"], label=name, **pair(i))
            if axes is right:
                picked = 100 * result[kind]["picked"]["accuracy"]["mean"]
                name = f"{kind}, α picked by each client: {picked:.1f}"
                axes.axhline(picked, color=COLOURS[i], linestyle="--", linewidth=1, label=name)
        label(axes, "α  (0: global model, 1: the client's own)", "")
        axes.set_title(f"{on} data", fontsize=9)
        axes.legend(fontsize=8, frameon=False, loc="lower left")
    low, high = left.get_ylim()
    left.set_ylim(low - 0.12 * (high - low), high)  # room for the legends
    left.set_ylabel("mean accuracy over clients (%)")
    weights, predictions = (
        percent(result[k]["commonly_picked"]["accuracy"]["mean"])
        for k in ("weights", "predictions")
    )
    title = (
        f"One α for all, picked on validation: {predictions} % mixing predictions, {weights} % "
        "mixing weights"
    )
    if (grid[0], grid[-1]) == (0, 1):
        ends = [percent(result["weights"]["test"]["accuracy"][i]["mean"]) for i in (0, -1)]
        title += f"\n(global model {ends[0]} %, each client's own {ends[1]} %)"
    save(figure, path, title, study_note(result, f"{result['local']} and {result['global']}"))


def show_mixture(results: Sequence[Result]) -> None:
    """Print a row for each λ of each method."""
    rows, measures = [], ("accuracy", "loss", "ece")
    for result in results:
        method = result["method"]
        for i, lam in enumerate(result["grid"]):
            on = [result[w][m][i] for m in measures for w in ("validation", "test")]
            cells = [*map(with_half, on[:2]), *map(plain, on[2:])]
            rows.append([method, f"{lam:g}", *cells, str(result["picks"][i])])
        for name, key in (("own pick", "picked"), ("one pick", "commonly_picked")):
            accuracy, loss, ece = (result[key][m] for m in measures)
            cells = ["", with_half(accuracy), "", plain(loss), "", plain(ece), ""]
            rows.append([method, name, *cells])
        rows.append([method, "test-picked", "", with_half(result["test_picked"]), *[""] * 5])
    head = ["method", "lambda", "val %", "test %", "val loss", "test loss", "val ECE", "test ECE"]
    ends = (
        f"lambda 0: the received model; 1: the client's own. {PICKS} test-picked: on each "
        "client's test data, which nobody could do."
    )
    show_table([*head, "picks"], rows, ends, spread(results[0]), left=2)


def draw_mixture(results: Sequence[Result], path: Path) -> None:
    """Draw accuracy, loss and ECE along λ, a column for each method; the picks as grey bars."""
    figure = new_figure(3.4 * len(results) + 0.6, 6.6)
    panels = figure.subplots(3, len(results), sharex=True, sharey="row", squeeze=False)
    kinds = (("accuracy", "accuracy (%)", 100.0), ("loss", "loss", 1.0), ("ece", "ECE", 1.0))
    for j, result in enumerate(results):
        for i, (metric, name, scale) in enumerate(kinds):
            axes = panels[i, j]
            for c, on in enumerate(("test", "validation")):
                how = {**pair(c), "linestyle": ("-", ":")[c], "label": on}
                line(axes, result["grid"], result[on][metric], scale, **how)
            picked = scale * result["picked"][metric]["mean"]
            how = {"linestyle": "--", "label": "test, λ picked on validation"}
            axes.axhline(picked, color=COLOURS[2], **how)
            label(axes, "λ  (0: received, 1: own)" if i == 2 else "", "" if j else name)
        panels[0, j].set_title(result["method"], fontsize=10)
        _picks(panels[0, j], result)
    panels[2, 0].legend(fontsize=7.5, frameon=False)
    swings = []
    for result in results:
        means = [v["mean"] for v in result["test"]["accuracy"]]
        swings.append(f"{percent(max(means) - min(means))} points ({result['method']})")
    note = study_note(results[0], "grey: how many clients picked each λ")
    save(figure, path, f"Accuracy varies along λ by {', '.join(swings)}", note)


def _picks(axes: Axes, result: Result) -> None:
    """Draw how many clients picked each λ, in the lower third of the panel."""
    counts = axes.twinx()
    counts.bar(result["grid"], result["picks"], width=0.06, color="#cccccc", zorder=0)
    counts.set_ylim(0, 3 * max(1, *result["picks"]))
    counts.set_axis_off()
    axes.set_zorder(counts.get_zorder() + 1)
    axes.patch.set_visible(False)


def show_noise(result: Result) -> None:
    """Print three blocks, accuracy, ECE and MCE: a row for each method, a column for each noise."""
    kinds = (("accuracy %", "accuracy", with_half), ("ECE", "ece", plain), ("MCE", "mce", plain))
    rows = [
        [name if i == 0 else "", method, *(shown(cells[n][metric]) for n in result["noises"])]
        for name, metric, shown in kinds
        for i, (method, cells) in enumerate(result["methods"].items())
    ]
    clean = "Means over clients; training labels are noisy, validation and test labels clean."
    show_table(["", "method", *result["noises"]], rows, clean, spread(result), left=2)


def draw_noise(result: Result, path: Path) -> None:
    """Draw accuracy, ECE and MCE under each noise, a line of markers for each method."""
    figure = new_figure(10.5, 4.2)
    panels = figure.subplots(1, 3)
    kinds = (("accuracy", "mean accuracy (%)", 100.0), ("ece", "ECE", 1.0), ("mce", "MCE", 1.0))
    noises, methods = result["noises"], result["methods"]
    names = [n.replace("symmetric", "symm.").replace(" ", "\n") for n in noises]
    for axes, (metric, y_name, scale) in zip(panels, kinds, strict=True):
        for i, (name, cells) in enumerate(methods.items()):
            # Side by side within a noise setting, so that bars do not hide each other.
            shift = (i - (len(methods) - 1) / 2) * 0.14
            x = [k + shift for k in range(len(noises))]
            how = {**pair(i), "linestyle": "", "label": name}
            line(axes, x, [cells[n][metric] for n in noises], scale, **how)
        label(axes, "", y_name)
        axes.set_xticks(range(len(noises)), names, fontsize=8)
    panels[0].legend(fontsize=8, frameon=False, loc="lower left")
    hardest = noises[-1]
    under = {m: cells[hardest] for m, cells in methods.items()}
    accurate = max(under, key=lambda m: float(under[m]["accuracy"]["mean"]))
    calibrated = min(under, key=lambda m: float(under[m]["ece"]["mean"]))
    title = (
        f"Under {hardest} noise {accurate} is the most accurate and {calibrated} the "
        "best calibrated"
    )
    save(figure, path, title, study_note(result))


def show_landscape(results: Sequence[Result]) -> None:
    """Print a row for each pair of models."""
    rows = []
    for result in results:
        losses = {p["name"]: p["loss"] for p in result["points"]}
        for edge in result["edges"]:
            a, b = edge["between"]
            figures = (losses[a], losses[b], edge["barrier"])
            cells = [f"{edge['distance']:.2f}", *(f"{x:.3f}" for x in figures)]
            rows.append([result["method"], f"{a} – {b}", *cells, percent(min(edge["accuracy"]))])
    head = ["method", "between", "distance", "loss at one", "at the other", "barrier"]
    barrier = (
        "On all clients' validation data together. barrier: the most by which the loss on the "
        "straight line between two models exceeds the line between their losses."
    )
    show_table([*head, "least accuracy %"], rows, barrier, left=2)


def draw_landscape(results: Sequence[Result], path: Path) -> None:
    """Draw contours of the loss in the plane of three models, a panel for each method."""
    import numpy as np
    from matplotlib.colors import LogNorm

    figure = new_figure(3.9 * len(results) + 1.2, 4.6)
    panels = figure.subplots(1, len(results), squeeze=False)[0]
    losses = [np.asarray(result["loss"]) for result in results]
    low = max(1e-4, min(float(z.min()) for z in losses))
    # Far from the models the loss grows without bound; what lies above is one colour.
    high = max(low * 10, float(np.quantile(np.concatenate([z.ravel() for z in losses]), 0.9)))
    contours: dict[str, Any] = {"levels": np.geomspace(low, high, 15), "cmap": "viridis"}
    for axes, result, z in zip(panels, results, losses, strict=True):
        norm = LogNorm(low, high)
        drawn = axes.contourf(result["x"], result["y"], z, norm=norm, extend="both", **contours)
        for i, point in enumerate(result["points"]):
            _star(axes, point, first=i == 0)
        axes.set_aspect("equal")
        far = max(e["distance"] for e in result["edges"])
        axes.set_title(f"{result['method']}: models up to {far:.1f} apart", fontsize=10)
        axes.set_xlabel("distance along u")
    panels[0].set_ylabel("distance along v")
    bar = figure.colorbar(drawn, ax=list(panels), shrink=0.9, format="%.2g")
    bar.set_label("loss on pooled validation data")
    worst = [max(result["edges"][:2], key=lambda e: float(e["barrier"])) for result in results]
    barriers = ", ".join(
        f"{result['method']} {e['barrier']:.2f} over {e['distance']:.1f}"
        for result, e in zip(results, worst, strict=True)
    )
    title = f"Highest loss barrier between the starred model and another: {barriers}"
    save(figure, path, title, study_note(results[0]))


def _star(axes: Axes, point: Result, *, first: bool) -> None:
    """Mark a model in the plane, with its name and loss."""
    look: dict[str, Any] = {"marker": "*" if first else "o", "markersize": 13 if first else 8}
    look["color"] = COLOURS[1] if first else "white"
    axes.plot(point["x"], point["y"], markeredgecolor="black", linestyle="", **look)
    axes.annotate(
        f"{point['name']}\n{point['loss']:.2f}",
        (point["x"], point["y"]),
        xytext=(7, 5),
        textcoords="offset points",
        fontsize=8,
        color="white",
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "#000000aa", "linewidth": 0},
    )
