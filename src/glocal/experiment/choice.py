"""The choice each client has in the end, among several methods and being alone.

Of the model it trains alone, what each method gives it, and those adapted, a client takes the one
with the highest accuracy on its own validation data, but stays alone where that is no more than one
standard error above what it has alone. Nobody is knowingly handed a worse model; the test data,
which neither has seen, then says what the choice was worth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.summary import client_table, summarise
from glocal.evaluation.trials import Trial
from glocal.experiment.adaptation_report import Adapted, compose
from glocal.experiment.early_stopping import standard_error
from glocal.experiment.repeat import Repeat
from glocal.experiment.run import Run

Offer = Repeat | Adapted
"""What a client may choose: a model's outcome, and its accuracy on validation data."""

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
    if not first.baseline:
        raise GlocalError("clients choose between methods and being alone: use --baseline same.")
    for r, alone in enumerate(first.baseline):
        fold = fed.fold(r) if r else fed
        others: dict[str, Offer] = {}
        for name, run in offers.items():
            others[name] = repeat = run.repeats[r]
            if repeat.adapted is not None:
                others[f"{name}, adapted"] = repeat.adapted
        outcome, chosen = choose(alone, others, fold.val.counts())
        best = first.best[r] if first.best else None
        trials.append(Trial(fold, outcome, alone.outcome, best=best))
        picks.append(chosen)
    rows = client_table(trials)
    for row, name in zip(rows, picks[0], strict=True):
        row["model"] = name
    summary = summarise(rows, trials)
    summary["rounds"], summary["parameters"] = first.summary["rounds"], first.summary["parameters"]
    for count in ("params_up", "params_down", "params_published", "gradient_evaluations"):
        took = [(run.summary, run.summary.get("adapted", {})) for run in offers.values()]
        summary[count] = sum(s[count] + adapted.get(count, 0) for s, adapted in took)
    summary["choice"] = dict(Counter(name for chosen in picks for name in chosen))
    settings = {**first.settings, "method": CHOICE}
    return Run(CHOICE, {}, rows, summary, [], dict(fed.describe), {}, settings)


def choose(alone: Offer, others: Mapping[str, Offer], n: Tensor) -> tuple[Outcome, list[str]]:
    """Each client's choice on its ``n`` validation examples, leaning to what it has alone."""
    names = list(others)
    offered = torch.stack([others[name].val_accuracy.cpu() for name in names])
    own = alone.val_accuracy.cpu()
    leave = offered.amax(0) > own + standard_error(own, n.cpu())
    best = offered.argmax(0)
    picks = [names[int(b)] if go else "local" for b, go in zip(best, leave, strict=True)]
    return compose([alone.outcome if p == "local" else others[p].outcome for p in picks]), picks
