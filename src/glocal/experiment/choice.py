"""Clients that choose, among several methods and being alone, on their own validation data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.evaluation.communication import Traffic
from glocal.evaluation.summary import Trial, client_table, summarise
from glocal.experiment.adaptation_report import Offer, choose
from glocal.experiment.run import Run

CHOICE = "choice"
"""What the row of a comparison is called in which each client chooses."""


def choice(done: Mapping[str, Run], fed: Federation) -> Run:
    """What becomes of clients that choose, among all these runs, on their own validation data.

    Everything chosen from must have been trained, so all of its traffic counts.
    """
    offers = {name: run for name, run in done.items() if not run.is_baseline}
    if not offers:
        raise GlocalError("there is nothing to choose from but being alone: add a method.")
    first = next(iter(offers.values()))
    trials, picks = [], []
    for r, alone in enumerate(first.baseline):
        fold = fed.fold(r) if r else fed
        others = {}
        for name, run in offers.items():
            one = run.repeats[r]
            others[name] = Offer(one.outcome, one.val_accuracy)
            if one.adapted is not None:
                others[f"{name}, adapted"] = Offer(one.adapted.outcome, one.adapted.val_accuracy)
        own = Offer(alone.outcome, alone.val_accuracy)
        outcome, chosen = choose(own, others, fold.val.counts())
        trials.append(Trial(fold, outcome, alone.outcome, Traffic()))
        picks.append(chosen)
    rows = client_table(trials)
    for row, name in zip(rows, picks[0], strict=True):
        row["model"] = name
    summary = summarise(rows, trials)
    summary["rounds"], summary["parameters"] = first.summary["rounds"], first.summary["parameters"]
    for count in ("params_up", "params_down", "params_published"):
        summary[count] = sum(run.summary[count] for run in offers.values())
    summary["choice"] = dict(Counter(name for chosen in picks for name in chosen))
    settings = {**first.settings, "method": CHOICE}
    return Run(CHOICE, {}, rows, summary, [], dict(fed.describe), {}, settings)
