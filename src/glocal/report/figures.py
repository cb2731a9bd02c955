"""Pictures of studies: PNG files from the plain data that :mod:`glocal.studies` returns.

matplotlib is an extra, and is imported only by the functions that draw. Colours are those of Okabe
and Ito, *Color universal design*, 2008, which colour-blind readers can tell apart; what colour
says, markers or line styles say too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from glocal.core.errors import GlocalError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#666666"
DPI = 150


def ready(path: Path | None) -> None:
    """Refuse, before anything is trained, a picture that could not be drawn or written."""
    if path is None:
        return
    if path.suffix.lower() != ".png":
        raise GlocalError(f"--picture {path} must be the name of a .png file.")
    if not path.absolute().parent.is_dir():
        raise GlocalError(f"there is no folder {path.parent} for --picture: make it first.")
    _figure(1, 1)


def _figure(width: float, height: float) -> Figure:
    """A figure of its own, without pyplot's global state or a display."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise GlocalError("pictures need matplotlib: pip install 'glocal[plot]'.") from error
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: Path, title: str, note: str) -> None:
    from PIL import Image  # comes with matplotlib

    from glocal.core.files import write

    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    figure.supxlabel(note, x=0.01, ha="left", fontsize=7.5, color=GREY)
    drawn, small = BytesIO(), BytesIO()
    figure.savefig(drawn, dpi=DPI, format="png")
    # 256 colours are as many as these pictures need, at a third of the size.
    few = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(small, format="png", optimize=True, dpi=(DPI, DPI))
    write(path, small.getvalue())


def _note(found: Mapping[str, Any], *more: str) -> str:
    """Where the numbers come from."""
    data = found["data"]
    n = found["repeats"]
    spread = "; bars: 90 % t interval over them" if n > 1 else ""
    dealt = ", ".join([str(data.get("partition")), *data.get("transforms", [])])
    parts = [
        f"{data.get('data')}, {dealt}, {found['clients']} clients",
        f"{found['model']}, {found['rounds']} rounds",
        f"{n} split{'s' if n > 1 else ''} and seed{'s' if n > 1 else ''}{spread}",
        *more,
    ]
    return " · ".join(parts)


def _tidy(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _line(
    axes: Axes, x: Sequence[float], y: Sequence[Mapping[str, Any]], scale: float = 100, **style: Any
) -> None:
    """Means over repeats, with a bar for the interval where there is one."""
    means = [scale * v["mean"] for v in y]
    half = [scale * (v["high"] - v["mean"]) if v["high"] is not None else 0.0 for v in y]
    bars = half if any(half) else None
    axes.errorbar(x, means, yerr=bars, capsize=2, elinewidth=0.8, markersize=5, **style)


def split_sweep(found: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Accuracy, and who is better or worse off, against the share of the model that is local."""
    figure = _figure(9.5, 4.2)
    left, right = figure.subplots(1, 2)
    for i, one in enumerate(found):
        x = [100 * s["local_share"] for s in one["splits"]]
        style: dict[str, Any] = {"color": COLOURS[i], "marker": MARKERS[i]}
        _line(left, x, [s["mean"] for s in one["splits"]], label=one["method"], **style)
        right.plot(
            x,
            [s["better_off"] for s in one["splits"]],
            label=f"better off, {one['method']}",
            **style,
        )
        right.plot(
            x,
            [s["worse_off"] for s in one["splits"]],
            label=f"worse off, {one['method']}",
            linestyle="--",
            markerfacecolor="white",
            **style,
        )
    alone = 100 * found[0]["alone"]["mean"]
    left.axhline(alone, color=GREY, linestyle=":")
    left.annotate(
        f"each client alone {alone:.1f}",
        (0.02, alone),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        color=GREY,
        fontsize=8,
    )
    clients = found[0]["clients"]
    _tidy(left, "parameters that are local (%)", "mean accuracy over clients (%)")
    _tidy(right, "parameters that are local (%)", f"clients, of {clients}")
    right.yaxis.get_major_locator().set_params(integer=True)
    right.set_ylim(-0.03 * clients, 1.03 * clients)
    left.legend(fontsize=8, frameon=False)
    right.legend(fontsize=8, frameon=False)
    one, best = max(
        ((one, s) for one in found for s in one["splits"]),
        key=lambda p: float(p[1]["mean"]["mean"]),
    )
    title = (
        f"Highest mean accuracy, {100 * best['mean']['mean']:.1f} %: {one['method']} with "
        f"{100 * best['local_share']:.0f} % of the parameters local "
        f"(none local: {100 * one['splits'][0]['mean']['mean']:.1f} %)"
    )
    _save(figure, path, title, _note(found[0], f"local part grows from the {found[0]['side']}"))


def interpolation(found: Mapping[str, Any], path: Path) -> None:
    """Accuracy along α, mixing weights and mixing predictions."""
    figure = _figure(9.5, 4.2)
    left, right = figure.subplots(1, 2, sharey=True)
    grid = found["grid"]
    for axes, where in ((left, "validation"), (right, "test")):
        for i, kind in enumerate(("weights", "predictions")):
            style: dict[str, Any] = {"color": COLOURS[i], "marker": MARKERS[i]}
            label = f"{kind} mixed" if axes is left else None
            _line(axes, grid, found[kind][where]["accuracy"], label=label, **style)
            if axes is right:
                picked = 100 * found[kind]["picked"]["accuracy"]["mean"]
                label = f"{kind}, α picked by each client: {picked:.1f}"
                axes.axhline(picked, color=COLOURS[i], linestyle="--", linewidth=1, label=label)
        _tidy(axes, "α  (0: global model, 1: the client's own)", "")
        axes.set_title(f"{where} data", fontsize=9)
        axes.legend(fontsize=8, frameon=False, loc="lower left")
    low, high = left.get_ylim()
    left.set_ylim(low - 0.12 * (high - low), high)  # room for the legends
    left.set_ylabel("mean accuracy over clients (%)")
    w, p = (
        100 * found[k]["commonly_picked"]["accuracy"]["mean"] for k in ("weights", "predictions")
    )
    ends = [100 * found["weights"]["test"]["accuracy"][i]["mean"] for i in (0, -1)]
    title = (
        f"One α for all, picked on validation: {p:.1f} % mixing predictions, {w:.1f} % mixing "
        "weights"
    )
    if (grid[0], grid[-1]) == (0, 1):
        title += f"\n(global model {ends[0]:.1f} %, each client's own {ends[1]:.1f} %)"
    _save(figure, path, title, _note(found, f"{found['local']} and {found['global']}"))


def mixture_curve(found: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Accuracy, loss and ECE along λ, a column for each method; the picks as grey bars."""
    figure = _figure(3.4 * len(found) + 0.6, 6.6)
    panels = figure.subplots(3, len(found), sharex=True, sharey="row", squeeze=False)
    kinds = (("accuracy", "accuracy (%)", 100.0), ("loss", "loss", 1.0), ("ece", "ECE", 1.0))
    for j, one in enumerate(found):
        for i, (metric, label, scale) in enumerate(kinds):
            axes = panels[i, j]
            for c, where in enumerate(("test", "validation")):
                _line(
                    axes,
                    one["grid"],
                    one[where][metric],
                    scale,
                    color=COLOURS[c],
                    marker=MARKERS[c],
                    linestyle=("-", ":")[c],
                    label=where,
                )
            picked = scale * one["picked"][metric]["mean"]
            axes.axhline(
                picked, color=COLOURS[2], linestyle="--", label="test, λ picked on validation"
            )
            _tidy(axes, "λ  (0: received, 1: own)" if i == 2 else "", "" if j else label)
        panels[0, j].set_title(one["method"], fontsize=10)
        _picks(panels[0, j], one)
    panels[2, 0].legend(fontsize=7.5, frameon=False)
    swing = {
        one["method"]: max(v["mean"] for v in one["test"]["accuracy"])
        - min(v["mean"] for v in one["test"]["accuracy"])
        for one in found
    }
    title = "Accuracy varies along λ by " + ", ".join(
        f"{100 * s:.1f} points ({m})" for m, s in swing.items()
    )
    _save(figure, path, title, _note(found[0], "grey: how many clients picked each λ"))


def _picks(axes: Axes, one: Mapping[str, Any]) -> None:
    """How many clients picked each λ, in the lower third of the panel."""
    counts = axes.twinx()
    counts.bar(one["grid"], one["picks"], width=0.06, color="#cccccc", zorder=0)
    counts.set_ylim(0, 3 * max(1, *one["picks"]))
    counts.set_axis_off()
    axes.set_zorder(counts.get_zorder() + 1)
    axes.patch.set_visible(False)


def landscape(found: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Contours of the loss in the plane of three models, a panel for each method."""
    import numpy as np
    from matplotlib.colors import LogNorm

    figure = _figure(3.9 * len(found) + 1.2, 4.6)
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    losses = [np.asarray(one["loss"]) for one in found]
    low = max(1e-4, min(float(z.min()) for z in losses))
    # Far from the models the loss grows without bound; what lies above is one colour.
    high = max(low * 10, float(np.quantile(np.concatenate([z.ravel() for z in losses]), 0.9)))
    levels = np.geomspace(low, high, 15)
    for axes, one, z in zip(panels, found, losses, strict=True):
        drawn = axes.contourf(
            one["x"],
            one["y"],
            z,
            levels=levels,
            norm=LogNorm(low, high),
            cmap="viridis",
            extend="both",
        )
        for i, point in enumerate(one["points"]):
            axes.plot(
                point["x"],
                point["y"],
                marker="*" if i == 0 else "o",
                markersize=13 - 5 * (i > 0),
                color=COLOURS[1] if i == 0 else "white",
                markeredgecolor="black",
                linestyle="",
            )
            axes.annotate(
                f"{point['name']}\n{point['loss']:.2f}",
                (point["x"], point["y"]),
                xytext=(7, 5),
                textcoords="offset points",
                fontsize=8,
                color="white",
                bbox={"boxstyle": "round,pad=0.15", "facecolor": "#000000aa", "linewidth": 0},
            )
        axes.set_aspect("equal")
        far = max(e["distance"] for e in one["edges"])
        axes.set_title(f"{one['method']}: models up to {far:.1f} apart", fontsize=10)
        axes.set_xlabel("distance along u")
    panels[0].set_ylabel("distance along v")
    bar = figure.colorbar(drawn, ax=list(panels), shrink=0.9, format="%.2g")
    bar.set_label("loss on pooled validation data")
    worst = [max(one["edges"][:2], key=lambda e: float(e["barrier"])) for one in found]
    barriers = ", ".join(
        f"{one['method']} {e['barrier']:.2f} over {e['distance']:.1f}"
        for one, e in zip(found, worst, strict=True)
    )
    title = f"Highest loss barrier between the starred model and another: {barriers}"
    _save(figure, path, title, _note(found[0]))


def noise(found: Mapping[str, Any], path: Path) -> None:
    """Accuracy, ECE and MCE under each noise, a line of markers for each method."""
    figure = _figure(10.5, 4.2)
    panels = figure.subplots(1, 3)
    kinds = (("accuracy", "mean accuracy (%)", 100.0), ("ece", "ECE", 1.0), ("mce", "MCE", 1.0))
    noises, methods = found["noises"], found["methods"]
    for axes, (metric, label, scale) in zip(panels, kinds, strict=True):
        for i, (name, cells) in enumerate(methods.items()):
            # Side by side within a noise setting, so that bars do not hide each other.
            shift = (i - (len(methods) - 1) / 2) * 0.14
            _line(
                axes,
                [k + shift for k in range(len(noises))],
                [cells[n][metric] for n in noises],
                scale,
                color=COLOURS[i % 7],
                marker=MARKERS[i % 7],
                linestyle="",
                label=name,
            )
        _tidy(axes, "", label)
        axes.set_xticks(
            range(len(noises)),
            [n.replace("symmetric", "symm.").replace(" ", "\n") for n in noises],
            fontsize=8,
        )
    panels[0].legend(fontsize=8, frameon=False, loc="lower left")
    hardest = noises[-1]
    under = {m: cells[hardest] for m, cells in methods.items()}
    accurate = max(under, key=lambda m: float(under[m]["accuracy"]["mean"]))
    calibrated = min(under, key=lambda m: float(under[m]["ece"]["mean"]))
    title = (
        f"Under {hardest} noise {accurate} is the most accurate and {calibrated} the "
        "best calibrated"
    )
    _save(figure, path, title, _note(found))


def decisions(found: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The objective so far, from the first method's, and the regret so far: a line a method."""
    figure = _figure(11.5, 4.6)
    left, right = figure.subplots(1, 2)
    first, T = found[0], found[0]["rounds"]
    rounds, several = range(1, T + 1), len(found) > 1
    for i, one in enumerate(found):
        style = {**_style(i), "markevery": _every(i, T, 6)}
        objective = _from_first(one, first) if several else one["curves"]["objective"]
        left.plot(rounds, _mean(objective), label=_named(one), **style)
        right.plot(rounds, _mean(one["curves"]["regret"]), **style)
        if i and first["repeats"] > 1:
            # Beyond the last round and side by side, so that bars do not hide each other.
            colour, marker = style["color"], style["marker"]
            _line(left, [T * (1.02 + 0.02 * i)], [_last(one, first)], 1, color=colour, fmt=marker)
    less = f", minus that of {_named(first)}\n(the curves themselves nearly coincide)"
    _tidy(left, "round", "objective so far" + (less if several else ""))
    ranges = sorted({one["high"] for one in found})
    apart = f"\n(they reach {', '.join(f'{h:.2g}' for h in ranges)}: not to be compared)"
    _tidy(right, "round", "regret so far, to own responses" + (apart if ranges[1:] else ""))
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside right center", fontsize=8, frameon=False)
    more = ["differences at the end are paired"] if several and first["repeats"] > 1 else []
    _save(figure, path, _cheapest(found), _note(first, *more))


def _named(one: Mapping[str, Any]) -> str:
    """``aaggff-s, weibull`` for short."""
    return str(one["method"]).replace(f"(transform={one['transform']})", f", {one['transform']}")


def _from_first(one: Mapping[str, Any], first: Mapping[str, Any]) -> Any:
    """[repeats, rounds]: how much more its objective came to; the curves themselves coincide."""
    import numpy as np

    return np.asarray(one["curves"]["objective"]) - np.asarray(first["curves"]["objective"])


def _mean(curves: Any) -> Any:
    """Over repeats."""
    import numpy as np

    return np.mean(curves, axis=0)


def _last(one: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
    """The difference after the last round, with its interval over repeats."""
    from glocal.studies.repeats import interval

    return interval(_from_first(one, first)[:, -1].tolist())


def _cheapest(found: Sequence[Mapping[str, Any]]) -> str:
    """Whose decisions cost least, by how much, and how far regrets are from their bounds."""
    first = found[0]
    best = min(found, key=lambda one: float(one["objective"]["mean"]))
    title = f"Smallest objective: {best['objective']['mean']:.2f} with {_named(best)}"
    if best is not first:
        d = _last(best, first)
        half = "" if d["high"] is None else f" ± {d['high'] - d['mean']:.2f}"
        title += f" ({d['mean']:+.2f}{half} from {_named(first)})"
    used = [one["regret"]["mean"] / one["bound"] for one in found if one["bound"]]
    if used:
        title += f"\nRegret reaches at most {100 * max(used):.0f} % of its bound"
    return title


def weights(found: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Every client's weight in every round: a panel a method, the hardest on top."""
    import numpy as np
    from matplotlib.colors import Normalize

    many = len(found)
    down = -(-many // 5)
    across = -(-many // down)
    figure = _figure(max(7.0, 2.5 * across + 1.6), 4.4 * down)
    panels = figure.subplots(down, across, sharey=True, squeeze=False)
    loss = np.mean([one["client_loss"] for one in found], axis=0)
    order = np.argsort(-loss, kind="stable")
    names = [found[0]["names"][i] for i in order]
    K = len(names)
    # A weight may be zero: what is below the scale has its lowest colour.
    shares = [np.log2(np.maximum(K * np.transpose(one["weights"]), 1e-9)) for one in found]
    most = max(0.1, *(float(s.max()) for s in shares))
    if most > 1:
        most = float(np.ceil(most))
    for axes, one, share in zip(panels.flat, found, shares, strict=False):
        drawn = axes.imshow(
            share[order],
            aspect="auto",
            interpolation="nearest",
            cmap="RdBu_r",
            norm=Normalize(-most, most),
            extent=(0.5, one["rounds"] + 0.5, K - 0.5, -0.5),
        )
        axes.set_title(_named(one), fontsize=9)
        axes.set_xlabel("round")
        if K <= 40:
            axes.set_yticks(range(K), names, fontsize=7)
        else:
            axes.set_yticks([])
    for axes in panels.flat[many:]:
        axes.set_axis_off()
    for axes in panels[:, 0]:
        axes.set_ylabel("client, by mean loss (hardest on top)")
    below = min(float(s.min()) for s in shares) < -most
    bar = figure.colorbar(drawn, ax=panels, shrink=0.9, extend="min" if below else "neither")
    ticks = np.linspace(-most, most, 2 * int(most) + 1 if most > 1 else 5).tolist()
    bar.set_ticks(ticks, labels=[f"{2**t:.3g}×" for t in ticks])
    bar.set_label("weight, as a multiple of an even share")
    # As many letters to a line as the figure is wide.
    title = fill(
        _hardest(found, int(order[0])), int(10.5 * figure.get_figwidth()), break_on_hyphens=False
    )
    _save(figure, path, title, _note(found[0]))


def _hardest(found: Sequence[Mapping[str, Any]], client: int) -> str:
    """What the client of the largest loss counts for at the end."""
    K = found[0]["clients"]
    ends = [f"{K * one['weights'][-1][client]:.1f}" for one in found]
    ends[0] += " even shares"
    # With a space at which lines do not break.
    shares = ", ".join(f"{e}\u00a0({_named(one)})" for e, one in zip(ends, found, strict=True))
    return f"Client {found[0]['names'][client]}, of the largest loss, ends with {shares}"


def fairness(found: Mapping[str, Any], path: Path) -> None:
    """Lorenz curves, and clients' values in order: a line for each method in both."""
    from glocal.evaluation.metrics import METRICS, PERCENT

    metric = found["metric"]
    scale, unit = (100, " (%)") if metric in PERCENT else (1, "")
    figure = _figure(10.5, 4.8)
    left, right = figure.subplots(1, 2)
    left.plot([0, 100], [0, 100], color=GREY, linestyle=":", label="all clients alike")
    for i, (name, one) in enumerate(found["methods"].items()):
        held, ordered = _curves(one["summary"]["values"][metric])
        style = _style(i)
        gini = found["fairness"][name]["gini"]["value"]
        label = name if gini is None else f"{name}: Gini {gini:.1f}"
        clients = [100 * j / len(ordered) for j in range(len(held))]
        # Each method's markers elsewhere, so that lines which coincide can be told apart.
        left.plot(clients, 100 * held, label=label, markevery=_every(i, len(held), 5), **style)
        every = _every(i, len(ordered), 20)
        right.plot(range(1, len(held)), scale * ordered, markevery=every, **style)
    _tidy(left, "clients, from the lowest (%)", f"their share of the total {metric} (%)")
    _tidy(right, "client, from the lowest", f"{metric}{unit}")
    right.xaxis.get_major_locator().set_params(integer=True)
    worst = -(-len(ordered) // 10)
    first = len(ordered) - worst if METRICS[metric].lower_is_better else 0
    right.axvspan(first + 0.5, first + worst + 0.5, color="#eeeeee", label="worst 10 %", zorder=0)
    left.legend(fontsize=8, frameon=False)
    right.legend(fontsize=8, frameon=False)
    about, made = found["data"], found["settings"]
    dealt = ", ".join([str(about.get("partition")), *about.get("transforms", [])])
    n = made["repeats"]
    note = (
        f"{about.get('data')}, {dealt}, {len(ordered)} clients · {made['model']}, "
        f"{made['rounds']} rounds · "
        + (f"curves of each of {n} splits and seeds, averaged" if n > 1 else "1 split and seed")
    )
    _save(figure, path, _worst_tenth(found, scale), note)


ADAPTED = ("fine-tune", "freeze-base", "ewc", "distill", "none")
"""Techniques in the order of their colours and markers."""


def adaptation(found: Mapping[str, Any], path: Path) -> None:
    """Who gains over being alone, after adapting, and by which technique: a row a method."""
    runs = {name: one for name, one in found["methods"].items() if "adapted" in one["summary"]}
    figure = _figure(15, 3.7 * len(runs) + 0.4)
    panels = figure.subplots(len(runs), 4, sharey=False, squeeze=False)
    used = {r["adapted_by"] for one in runs.values() for r in one["clients"]}
    used |= {name for one in runs.values() for name in one["summary"]["adapted"]["techniques"]}
    for row, (name, one) in zip(panels, runs.items(), strict=True):
        _dots(row[:3], one["clients"], used)
        _cumulative(row[3], one)
        row[0].set_title(name, fontsize=10, fontweight="bold", loc="left")
    last = panels[-1]
    for axes, label in zip(
        last,
        (
            "accuracy of the model alone (%)",
            "training examples",
            "label entropy of the client's data (bits)",
            "clients, by accuracy alone (lowest first)",
        ),
        strict=True,
    ):
        axes.set_xlabel(label)
    _one_legend(figure, used)
    about, made = found["data"], found["settings"]
    dealt = ", ".join([str(about.get("partition")), *about.get("transforms", [])])
    note = (
        f"{about.get('data')}, {dealt}, {len(one['clients'])} clients · {made['model']}, "
        f"{made['rounds']} rounds · 1 split and seed · a dot is a client, its colour the technique "
        "chosen on its validation data · shaded: less than alone"
    )
    _save(figure, path, _before_and_after(runs), note)


def _dots(panels: Any, clients: Sequence[Mapping[str, Any]], used: set[str]) -> None:
    """A dot a client: what the adapted model is above the model alone, against three features."""
    gains = [100 * r["adapted_benefit"] for r in clients]
    margin = 0.08 * max(1.0, max(gains) - min(gains))
    low, high = min([*gains, -2 * margin]) - margin, max([*gains, 2 * margin]) + margin
    features = (
        [100 * r["local_accuracy"] for r in clients],
        [r["n_train"] for r in clients],
        [r["complexity"] for r in clients],
    )
    for i, (axes, x) in enumerate(zip(panels, features, strict=True)):
        axes.axhspan(low, 0, color="#f3e3dd", zorder=0, linewidth=0)
        axes.axhline(0, color=GREY, linewidth=1)
        for name in (t for t in ADAPTED if t in used):
            mine = [k for k, r in enumerate(clients) if r["adapted_by"] == name]
            style = _technique(name)
            axes.plot(
                [x[k] for k in mine],
                [gains[k] for k in mine],
                linestyle="",
                marker=style["marker"],
                color=style["color"],
                markersize=7 if style["marker"] == "^" else 6,  # a triangle looks smaller
                markeredgecolor="white",
                markeredgewidth=0.6,
            )
        _how_many(axes, [(x[k], gains[k]) for k in range(len(clients))])
        _tidy(axes, "", "adapted − alone (points)" if i == 0 else "")
        axes.set_ylim(low, high)
        if i:
            axes.tick_params(labelleft=False)
    if max(features[2]) - min(features[2]) < 0.1:
        middle = sum(features[2]) / len(clients)
        panels[2].set_xlim(middle - 0.3, middle + 0.3)  # a tick for each digit would look like news


def _how_many(axes: Axes, dots: Sequence[tuple[float, float]]) -> None:
    """Beside dots that lie on each other: of how many clients they are."""
    counts: dict[tuple[float, float], int] = {}
    for x, y in dots:
        place = round(x, 1), round(y, 1)
        counts[place] = counts.get(place, 0) + 1
    for place, n in counts.items():
        if n > 1:
            style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": GREY}
            axes.annotate(f"×{n}", place, xytext=(0, 6), ha="center", **style)


def _cumulative(axes: Axes, one: Mapping[str, Any]) -> None:
    """Points gained over the federated model, client after client, by each technique for all."""
    import numpy as np

    summary = one["summary"]
    order = np.argsort([r["local_accuracy"] for r in one["clients"]], kind="stable")
    before = np.mean(summary["accuracies"], axis=0)
    axes.axhline(0, color=GREY, linewidth=1)
    curves = {
        name: np.mean(t["accuracies"], axis=0)
        for name, t in summary["adapted"]["techniques"].items()
    }
    for i, (name, after) in enumerate(curves.items()):
        total = np.concatenate([[0.0], np.cumsum(100 * (after - before)[order])])
        every = _every(2 * i, len(total), 5)
        axes.plot(range(len(total)), total, markevery=every, **_technique(name))
    if len(curves) > 1:
        best = np.mean(summary["adapted"]["accuracies"], axis=0)
        total = np.concatenate([[0.0], np.cumsum(100 * (best - before)[order])])
        axes.plot(range(len(total)), total, color="#000000", linestyle=":", linewidth=1.6)
    _tidy(axes, "", "adapted − before, summed (points)")
    axes.locator_params(axis="x", integer=True)


def _technique(name: str) -> dict[str, Any]:
    """How a technique is drawn, in all panels the same."""
    if name == "none":
        return {"color": GREY, "marker": "X", "linewidth": 1.2, "markersize": 5}
    i = ADAPTED.index(name)
    return {"color": COLOURS[i], "marker": MARKERS[i], "linewidth": 1.2, "markersize": 5}


def _one_legend(figure: Figure, used: set[str]) -> None:
    """For all panels."""
    from matplotlib.lines import Line2D

    words = {"none": "none: stays\nwith what it got"}
    shown = [
        Line2D([], [], linestyle="" if t == "none" else "-", label=words.get(t, t), **_technique(t))
        for t in ADAPTED
        if t in used
    ]
    if len(used - {"none"}) > 1:
        best = Line2D([], [], color="#000000", linestyle=":", linewidth=1.6)
        best.set_label("each client's best")
        shown.append(best)
    figure.legend(handles=shown, loc="outside right center", fontsize=8, frameon=False)


def _before_and_after(runs: Mapping[str, Any]) -> str:
    """How many are better and worse off than alone, before and after."""
    counts = [
        ", ".join(
            f"{one['summary'][f'{off}_off']} → {one['summary'][f'adapted_{off}_off']} ({name})"
            for name, one in runs.items()
        )
        for off in ("better", "worse")
    ]
    return f"Better off than alone, before → after: {counts[0]}; worse off: {counts[1]}"


def _style(i: int) -> dict[str, Any]:
    """How the ``i``-th of many lines is drawn."""
    return {
        "color": COLOURS[i % 7],
        "marker": MARKERS[(i + i // 7) % 7],
        "linestyle": ("-", "--", ":")[i // 7 % 3],
        "linewidth": 1.2,
        "markersize": 4,
    }


def _every(i: int, points: int, markers: int) -> tuple[int, int]:
    """Where the ``i``-th line has its markers: about so many, whatever the number of points."""
    step = max(1, points // markers)
    return i % step, step


def _curves(values: Sequence[Sequence[float | None]]) -> tuple[Any, Any]:
    """The Lorenz curve and the sorted values, each averaged over repeats point by point.

    So the area under the one tells the mean Gini coefficient, and the end of the other the mean of
    the worst tenth. Repeats in which some clients have no value are stretched to all clients.
    """
    import numpy as np

    from glocal.evaluation.metrics import lorenz

    k = len(values[0])
    held, ordered = [np.full(k + 1, np.nan)], [np.full(k, np.nan)]
    for row in values:
        live = np.sort([v for v in row if v is not None])
        if len(live):
            x, y = np.transpose(lorenz(live.tolist()))
            held.append(np.interp(np.arange(k + 1) / k, x, y))
            middle = (np.arange(len(live)) + 0.5) / len(live)
            ordered.append(np.interp((np.arange(k) + 0.5) / k, middle, live))
    # Without the first, which is there for metrics that no client has a value of.
    return np.mean(held[1:] or held, axis=0), np.mean(ordered[1:] or ordered, axis=0)


def _worst_tenth(found: Mapping[str, Any], scale: float) -> str:
    """Who does best by the worst tenth of clients."""
    from glocal.evaluation.metrics import METRICS

    base, lower = found["against"], METRICS[found["metric"]].lower_is_better
    worst = {name: one["worst10"]["value"] for name, one in found["fairness"].items()}
    if None in worst.values():
        return f"Clients by {found['metric']}"
    digits = 1 if scale == 100 else 3
    shown = {n: f"{scale * w:.{digits}f}{' %' if scale == 100 else ''}" for n, w in worst.items()}
    best = (min if lower else max)(worst, key=lambda n: float(worst[n]))
    title = f"Worst tenth of clients: {found['metric']} {shown[best]} with {best}"
    if best == base:
        return f"{title}, the least bad"
    d = found["fairness"][best]["worst10"]
    # Whoever comes first among many does so partly by luck: say how much of it may be chance.
    half = "" if d["low"] is None else f" ± {scale * (d['high'] - d['low']) / 2:.{digits}f}"
    return f"{title}, {shown[base]} with {base} ({scale * d['difference']:+.{digits}f}{half})"
