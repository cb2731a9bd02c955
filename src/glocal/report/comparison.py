"""A comparison as people read it: a row for each method or client, and what the figures mean."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from glocal.evaluation.summary import against
from glocal.experiment.run import Run
from glocal.report.adapted_rows import show_adaptation
from glocal.report.legend import any_compressed, constant_row, legend
from glocal.report.recorded import Result
from glocal.report.tables import (
    Cell,
    count,
    html,
    number,
    paragraphs,
    percent,
    short,
    show_table,
    some,
    table,
    verdict,
)
from glocal.report.units import unit_of
from glocal.slots import example_privacy
from glocal.slots.privacy import in_words


def show_comparison(runs: Mapping[str, Run], base: str | None = None) -> None:
    """Print a row for each method: how well, how fairly, who is better off, at what traffic."""
    base_summary = runs[base].summary if base else None
    show_table(*_table(runs, base), *legend(runs))
    if base_summary is not None:
        pairs = against(base_summary, base_summary)["by"]
        over = f", with a paired 90 % interval over {pairs}" if pairs else ""
        unit = unit_of(base_summary)
        how = f"{unit.of_differences}, better" if unit.scale == 1 else "points above it"
        print(f"vs {base}: {how} on average{over}.")
    for name, run in runs.items():
        if not run.is_baseline and "at_least" in run.summary:
            paragraphs(shown_in_words(name, run.summary))
    paragraphs(*advice_in_words(runs))
    if any("adapted" in run.summary for run in runs.values()):
        show_adaptation(runs)
    chosen = runs.get("choice")
    if chosen is not None and "choice" in chosen.summary:
        paragraphs(choice_in_words(chosen.summary))
    show_privacy(runs)
    paragraphs(*diverged_in_words(runs))
    for name, run in runs.items():
        if "synthetic" in run.summary:
            paragraphs(made_in_words(name, run.summary))
    for sentence in worse_in_words(runs):
        print(sentence)


def worse_in_words(runs: Mapping[str, Result]) -> list[str]:
    """Who is worse off than alone, a sentence for each method that has any."""
    said = []
    for name, run in runs.items():
        worse = [r["client"] for r in run.clients if r["verdict"] == "worse off"]
        if worse:
            alone = "the best alone" if "best_alone" in run.summary else "alone"
            said.append(f"Worse off than {alone} with {name}: {some(worse)}.")
    return said


def html_of_comparison(runs: Mapping[str, Run]) -> str:
    """The same table as HTML, for a notebook."""
    base = next((name for run in runs.values() for name in run.summary.get("against", ())), None)
    return html(*_table(runs, base), *legend(runs)) if runs else "<p>No methods.</p>"


def _table(runs: Mapping[str, Run], base: str | None) -> tuple[list[str], list[list[Cell]]]:
    """The head, and a row for each method."""
    new_test = any("new_test" in run.summary for run in runs.values())
    best = any("same_model_benefit" in run.summary for run in runs.values())
    first = next(iter(runs.values()))
    head = ["method", f"mean {unit_of(first.summary).heading}", "worst 10 %", "best 10 %", "Gini"]
    head += ["vs same model", "vs best alone"] if best else ["vs alone"]
    head += ["better off", "worse off", "same", "undecided", "sent up", "sent down"]
    head += ["bytes up"] if (in_bytes := any_compressed(runs)) else []
    head += ["gradients", *(["seconds"] if sys.stdout.isatty() else [])]
    early = any("early_stopping" in run.summary for run in runs.values())
    head += ["kept round"] if early else []
    head += (goal := _goal_head(runs))
    head += [*(["new test %"] if new_test else []), *([f"vs {base}"] if base else [])]
    base_summary = runs[base].summary if base else None
    rows = [
        _row(name, run, base_summary, new_test, bool(goal), best, early, in_bytes)
        for name, run in runs.items()
    ]
    return head, [*rows, *constant_row(runs, len(head))]


def shown_in_words(name: str, summary: Mapping[str, Any]) -> str:
    """For how many clients it is shown that they are better off, and how many are, named or not."""
    shown, clients, at_least = (summary[k] for k in ("better_off", "clients", "at_least"))
    text = f"{name}: better off than alone is shown for {shown} of {clients} clients"
    if shown:
        chance = summary["by_chance"]
        text += f" (of these calls {'fewer than one' if chance < 1 else f'about {chance:.0f}'} "
        text += "may be chance)"
    if at_least:
        are = "is" if at_least == 1 else "are"
        text += f"; that at least {at_least} {are}, whoever they be, is shown for the federation"
    return text + "."


def advice_in_words(runs: Mapping[str, Result]) -> list[str]:
    """What validation data advises the clients and the federation, and what that is worth."""
    advised = {n: run.summary for n, run in runs.items() if "advised" in run.summary}
    if not advised:
        return []
    first = next(iter(advised.values()))
    parts = [
        f"{'join and personalise' if s['personal'] else 'join'} with {name} {s['advised']}"
        for name, s in advised.items()
        if s["advised"]
    ]
    parts += [f"stay alone {first['advice']['stay']}"]
    best = next((name for name, s in advised.items() if s["recommended"]), None)
    for_all = f"For all: {best}." if best else "For all: stay alone."
    unit = unit_of(first)
    counted = unit.of_differences if unit.scale == 100 else f"of {unit.name}"
    known, clients = first["advice"].get("of_clients"), first["clients"]
    of = f" of the {known} clients for whom it has a value" if known not in (None, clients) else ""
    return [
        f"Advice, chosen on validation data: {', '.join(parts)}; on test data that gains "
        f"{unit.difference(first['advice']['benefit'])} {counted} on average{of}. {for_all}"
    ]


def _row(
    name: str,
    run: Run,
    base: Mapping[str, Any] | None,
    new_test: bool,
    goal: bool,
    best: bool,
    early: bool = False,
    in_bytes: bool = False,
) -> list[Cell]:
    s, unit = run.summary, unit_of(run.summary if base is None else base)
    verdicts: list[Cell] = ["baseline", *(["–"] if best else []), *["–"] * 4]
    if not run.is_baseline:
        over = {"difference": s["benefit"], "low": s["benefit_low"], "high": s["benefit_high"]}
        verdicts = [
            *([unit.difference(s.get("same_model_benefit"))] if best else []),
            unit.interval(over),
            *off_counts(s),
            str(s["same"]),
            str(s["undecided"]),
        ]
    if s["benefit"] is None:  # nobody is set against anything
        verdicts = ["–"] * len(verdicts)
    return [
        (name, "bold"),
        *(unit.value(s[k]) for k in ("mean", "worst10", "best10")),
        number(s["gini"]),
        *verdicts,
        short(s["params_up"]),
        short(s["params_down"]),
        *([short(s.get("bytes_up"))] if in_bytes else []),
        short(s.get("gradient_evaluations")),
        *_seconds(run),
        *([_kept(s)] if early else []),
        *(_goal_cells(s) if goal else []),
        *([percent(s.get("new_test", {}).get("logits"))] if new_test else []),
        *([] if base is None else ["–" if s is base else unit.interval(against(s, dict(base)))]),
    ]


def _kept(summary: Mapping[str, Any]) -> str:
    """The round that was kept, of how many; with repeats, their means."""
    each = summary.get("early_stopping") or []
    means = [sum(e[k] for e in each) / len(each) for k in ("round", "trained") if each]
    return " of ".join(f"{mean:.1f}".removesuffix(".0") for mean in means) or "–"


def _goal_head(runs: Mapping[str, Run]) -> list[str]:
    """The columns of a goal, where one was set."""
    goals = [run.summary["goal"]["accuracy"] for run in runs.values() if "goal" in run.summary]
    return [f"rounds to {100 * goals[0]:g} %", f"sent to {100 * goals[0]:g} %"] if goals else []


def _goal_cells(summary: Mapping[str, Any]) -> list[Cell]:
    goal = summary.get("goal", {"rounds": None})
    if goal["rounds"] is None:
        return ["–", "–"]
    part, repeats = goal["reached"], summary["repeats"]
    of = "" if part == repeats else f" ({part} of {repeats})"
    rounds = f"{goal['rounds']:.1f}".removesuffix(".0")
    return [rounds + of, short(goal["params_up"] + goal["params_down"])]


def _seconds(run: Run) -> list[Cell]:
    """How long a repeat trained, on a terminal alone: in a pipe, the same seed is the same text."""
    return [number(run.seconds or None)] if sys.stdout.isatty() else []


def off_counts(summary: Mapping[str, Any]) -> list[Cell]:
    """How many clients are better off than alone, and how many worse."""
    return [count(summary[f"{word}_off"], word) for word in ("better", "worse")]


def diverged_in_words(runs: Mapping[str, Result]) -> list[str]:
    """A sentence for each method in which some client's training was not finite."""
    said = []
    for name, run in runs.items():
        if lost := run.summary.get("diverged"):
            clients = [
                f"{client} (round{'s' if len(rounds) > 1 else ''} {spans(rounds)})"
                for client, rounds in lost.items()
            ]
            done = "clipped" if any("clipped" in line for line in run.history) else "left out"
            said.append(f"Not finite with {name}, and {done}: {some(clients)}.")
    return said


def spans(numbers: Sequence[int]) -> str:
    """``[1, 2, 3, 7]`` as ``1–3, 7``."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], n]
        else:
            parts.append([n])
    return ", ".join("–".join(map(str, part)) for part in parts)


def show_privacy(runs: Mapping[str, Result]) -> None:
    """Print a sentence for each private method: ε, and what it assumes."""
    paragraphs(*privacy_in_words(runs))


def privacy_in_words(runs: Mapping[str, Result]) -> list[str]:
    """A sentence for each private method: ε, and what it assumes."""
    said = []
    for name, run in runs.items():
        if "privacy" in run.summary:
            said.append(f"Privacy of {name}: {in_words(_with_infinite(run.summary['privacy']))}")
        if "example_privacy" in run.summary:
            spent = _with_infinite(run.summary["example_privacy"])
            told = example_privacy.in_words(spent)
            said.append(f"Privacy of examples with {name}: {told}")
    return said


def _with_infinite(spent: Mapping[str, Any]) -> dict[str, Any]:
    """What was spent, as it was: of no ε at all, which is infinite, JSON has null."""
    infinite = {k: math.inf for k in ("epsilon", "median") if k in spent and spent[k] is None}
    return {**spent, **infinite}


def made_in_words(name: str, summary: Mapping[str, Any]) -> str:
    """What the synthetic data is worth that a method made for the server, and whom it gives away.

    All of it is of the first repeat, as the data in the folder is; the mean says that it is.
    """
    figures, repeats = summary["synthetic"], summary["repeats"]
    near, member = figures["nearness"], figures["membership"]
    first = f" in the first of {repeats} repeats" if repeats > 1 else ""
    central, how = figures.get("central_accuracy"), figures["classifier"]
    so_far = f" (not converged: after {how['steps']} steps its training loss was {how['loss']:.2f})"
    said = [
        f"{name} made {figures['examples']} labelled examples{first}: a classifier trained on them "
        f"alone has {percent(figures['accuracy'])} % on the clients' test data"
        + (f" and {percent(central)} % on the central test set" if central is not None else "")
        + ("." if how["converged"] else f"{so_far}."),
        f"Fréchet distance from {figures['frechet_from']}: {figures['frechet']:.3g} on the "
        f"{figures['features']}."
        if figures["frechet"] is not None
        else f"No Fréchet distance: {figures['frechet_missing']}",
        f"Nearest neighbours: {100 * near['nearer_to_trained']:.0f} % of the examples are nearer "
        "to training data than to as much held-out data (50: nobody's copy); copies of training "
        f"examples: {near['copies']}, of held-out ones: {near['copies_of_held_out']}.",
        f"Membership: from them one tells who was trained on with an AUC of {member['auc']:.2f} "
        f"(0.5: not at all), with a gap of {member['advantage']:.2f} between true and false alarms "
        f"at most; at 1 % of false alarms {percent(member['tpr_at_1'])} % of the members are "
        "found.",
    ]
    if repeats > 1:
        mean = percent(summary["synthetic_accuracy"])
        said.append(f"Mean accuracy over all repeats, on the clients' test data: {mean} %.")
    return " ".join(said)


def choice_in_words(summary: Mapping[str, Any]) -> str:
    """Who chose what, and what that is not."""
    picks = sorted(summary["choice"].items(), key=lambda item: -item[1])
    return (
        "Choice: not a method. Each client takes what does best on its own validation data, and "
        "stays alone unless that is more than a standard error above what it has alone: "
        + "; ".join(f"{name} {times}" for name, times in picks)
        + ". Its traffic is that of everything it chose from."
    )


def show_clients(run: Run) -> None:
    """Print a row for each client."""
    print()
    table(*client_rows(run.clients, run.summary, is_baseline=run.is_baseline), left=2)


def html_of_clients(run: Run) -> str:
    """The same table as HTML, for a notebook."""
    shown = client_rows(run.clients, run.summary, is_baseline=run.is_baseline)
    return html(*shown, repr(run)[1:-1] + ".", left=2)


def client_rows(
    clients: Iterable[Mapping[str, Any]], summary: Mapping[str, Any], *, is_baseline: bool = False
) -> tuple[list[str], list[list[Cell]]]:
    """The head, and a row for each client."""
    unit = unit_of(summary)
    rows: list[list[Cell]] = [
        [
            str(r["client"]),
            "baseline" if is_baseline else verdict(r["verdict"]),
            str(r["n_train"]),
            str(r["n_test"]),
            unit.value(r["value"] if "value" in r else r["accuracy"]),
            unit.value(_alone(r)),
            unit.difference(r["benefit"]),
            unit.span(r["low"], r["high"]),
            _needs(r.get("needs")),
        ]
        for r in clients
    ]
    heading = "accuracy %" if unit.metric == "accuracy" else unit.heading
    alone = f"alone{' %' * (unit.metric == 'accuracy')}"
    head = ["client", "verdict", "train", "test", heading, alone, "benefit"]
    return [*head, "90 % interval", "would decide"], rows


def _alone(row: Mapping[str, Any]) -> float | None:
    """What a client has alone: the best, where that was asked for."""
    if row.get("best_local_value") is not None:
        return float(row["best_local_value"])
    found = row["local_value"] if "local_value" in row else row["local_accuracy"]
    return None if found is None else float(found)


def _needs(needs: Mapping[str, int] | None) -> str:
    """What would decide an undecided client."""
    if not needs:
        return ""
    ((what, n),) = needs.items()
    return f"{n:,} test examples" if what == "examples" else f"{n:,} repeats"
