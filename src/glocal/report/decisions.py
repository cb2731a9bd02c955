"""Fair decisions as tables and pictures: what weights cost, and who counts how much over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from glocal.report.canvas import every, label, line, new_figure, save, study_note, style
from glocal.report.studies import Result, plain, spread
from glocal.report.tables import number, show_table, with_half
from glocal.studies.repeats import interval


def show_decisions(results: Sequence[Result]) -> None:
    """Print a row for each method: what its weights cost, and what the best would have."""
    rows = [
        [
            # The spec, its transform left out where that is all the brackets say.
            _named(result, ""),
            result["transform"],
            *(with_half(result[k], scale=1, digits=2) for k in ("objective", "decision_loss")),
            f"{result['best_fixed']['mean']:.2f}",  # the interval that matters is the regret's
            plain(result["regret"]),
            number(result["bound"], digits=2),
            with_half(result["heaviest"]),
        ]
        for result in results
    ]
    head = ["method", "transform", "objective Σ", "decision loss Σ", "best fixed", "regret"]
    K = results[0]["clients"]
    show_table(
        [*head, "bound", "heaviest %"],
        rows,
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
        "sampling: in the mean over draws). Others have none, and are evaluated by --response. "
        "Decision losses and regrets compare within one transform and one range of responses "
        "alone: 0 to 1/K with aaggff-s, 0 to C, the share of clients in a round, with aaggff-d; "
        "others have the one that fits (1/K with everybody, C with sampling).",
        spread(results[0]),
        left=2,
    )


def draw_decisions(results: Sequence[Result], path: Path) -> None:
    """Draw the objective so far, from the first method's, and the regret so far."""
    figure = new_figure(11.5, 4.6)
    left, right = figure.subplots(1, 2)
    first, T = results[0], results[0]["rounds"]
    rounds, several = range(1, T + 1), len(results) > 1
    for i, result in enumerate(results):
        how = {**style(i), "markevery": every(i, T, 6)}
        objective = _from_first(result, first) if several else result["curves"]["objective"]
        left.plot(rounds, np.mean(objective, axis=0), label=_named(result), **how)
        right.plot(rounds, np.mean(result["curves"]["regret"], axis=0), **how)
        if i and first["repeats"] > 1:
            # Beyond the last round and side by side, so that bars do not hide each other.
            look = {"color": how["color"], "fmt": how["marker"]}
            line(left, [T * (1.02 + 0.02 * i)], [_last(result, first)], 1, **look)
    less = f", minus that of {_named(first)}\n(the curves themselves nearly coincide)"
    label(left, "round", "objective so far" + (less if several else ""))
    ranges = sorted({result["high"] for result in results})
    apart = f"\n(they reach {', '.join(f'{h:.2g}' for h in ranges)}: not to be compared)"
    label(right, "round", "regret so far, to own responses" + (apart if ranges[1:] else ""))
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside right center", fontsize=8, frameon=False)
    more = ["differences at the end are paired"] if several and first["repeats"] > 1 else []
    save(figure, path, _cheapest(results), study_note(first, *more))


def _named(result: Result, transform: str = ", {}") -> str:
    """``aaggff-s, weibull`` for a spec whose brackets say nothing but its transform."""
    name = result["transform"]
    return str(result["method"]).replace(f"(transform={name})", transform.format(name))


def _from_first(result: Result, first: Result) -> Any:
    """[repeats, rounds]: how much more its objective came to; the curves themselves coincide."""
    return np.subtract(result["curves"]["objective"], first["curves"]["objective"])


def _last(result: Result, first: Result) -> dict[str, Any]:
    """The difference after the last round, with its interval over repeats."""
    return interval(_from_first(result, first)[:, -1].tolist())


def _cheapest(results: Sequence[Result]) -> str:
    """Whose decisions cost least, by how much, and how far regrets are from their bounds."""
    first = results[0]
    best = min(results, key=lambda result: float(result["objective"]["mean"]))
    title = f"Smallest objective: {best['objective']['mean']:.2f} with {_named(best)}"
    if best is not first:
        less = with_half(_last(best, first), scale=1, digits=2, sign="+")
        title += f" ({less} from {_named(first)})"
    used = [result["regret"]["mean"] / result["bound"] for result in results if result["bound"]]
    if used:
        title += f"\nRegret reaches at most {100 * max(used):.0f} % of its bound"
    return title


def show_weights(results: Sequence[Result]) -> None:
    """Print a row for each method: who counts most and least at the end; does loss decide?"""
    rows = []
    for result in results:
        last = result["weights"][-1]
        ends = [cell for weight in (max(last), min(last)) for cell in _ended(result, weight)]
        rho = number(result["rank_correlation"], digits=3, sign="+")
        rows.append([result["method"], *ends, rho])
    head = ["method", "most weight", "× even", "mean loss", "least weight", "× even", "mean loss"]
    show_table(
        [*head, "rank correlation"],
        rows,
        "Most, least weight: the client that counts most, or least, after the last round (n "
        "alike: so many clients do); × even: its share, as a multiple of an even one, "
        f"1/{results[0]['clients']}; mean loss: over rounds, of the model it received, on its "
        "training data. Of clients that were absent it is what stood for them.",
        "Rank correlation (Spearman's) of a client's mean loss and its mean weight: +1 if whoever "
        "has the larger loss counts more, – if all count alike.",
        "One split and seed: --seed takes another.",
        left=2,
    )


def _ended(result: Result, weight: float) -> list[str]:
    """Who ended with this weight, how many times an even share that is, and their mean loss."""
    K = result["clients"]
    # Weights are computed in single precision here and there.
    alike = [i for i, w in enumerate(result["weights"][-1]) if abs(w - weight) * K < 1e-6]
    loss = sum(result["client_loss"][i] for i in alike) / len(alike)
    clients = result["names"][alike[0]] if len(alike) == 1 else f"{len(alike)} alike"
    return [clients, f"{K * weight:.2f}", f"{loss:.3f}"]


def draw_weights(results: Sequence[Result], path: Path) -> None:
    """Draw every client's weight in every round: a panel for each method, the hardest on top."""
    from matplotlib.colors import Normalize

    many = len(results)
    down = -(-many // 5)
    across = -(-many // down)
    figure = new_figure(max(7.0, 2.5 * across + 1.6), 4.4 * down)
    panels = figure.subplots(down, across, sharey=True, squeeze=False)
    loss = np.mean([result["client_loss"] for result in results], axis=0)
    order = np.argsort(-loss, kind="stable")
    names = [results[0]["names"][i] for i in order]
    K = len(names)
    # A weight may be zero: what is below the scale has its lowest colour.
    shares = [np.log2(np.maximum(K * np.transpose(r["weights"]), 1e-9)) for r in results]
    most = max(0.1, *(float(s.max()) for s in shares))
    if most > 1:
        most = float(np.ceil(most))
    for axes, result, share in zip(panels.flat, results, shares, strict=False):
        drawn = axes.imshow(
            share[order],
            aspect="auto",
            interpolation="nearest",
            cmap="RdBu_r",
            norm=Normalize(-most, most),
            extent=(0.5, result["rounds"] + 0.5, K - 0.5, -0.5),
        )
        axes.set_title(_named(result), fontsize=9)
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
    letters = int(10.5 * figure.get_figwidth())
    ends = [f"{K * result['weights'][-1][order[0]]:.1f}" for result in results]
    ends[0] += " even shares"
    # With a space at which lines do not break.
    worded = ", ".join(f"{e}\u00a0({_named(r)})" for e, r in zip(ends, results, strict=True))
    title = f"Client {names[0]}, of the largest loss, ends with {worded}"
    save(figure, path, fill(title, letters, break_on_hyphens=False), study_note(results[0]))
