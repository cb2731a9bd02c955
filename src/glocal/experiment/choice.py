"""The choice each client has in the end, among several methods and being alone.

Of what it has alone, what each method gives it, and those adapted, a client takes the one that does
best on its own validation data by the metric that counts, but stays alone where that is no more
than one standard error above what it has alone. That is what the verdict is set against: the best
alone, which goes by its cross-validated score (as in :mod:`glocal.experiment.advice`), or else the
same model. Nobody is knowingly handed a worse model; the test data, which neither has seen, then
says what the choice was worth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.intervals import nan_mean
from glocal.evaluation.summary import client_table, summarise
from glocal.evaluation.trials import Trial
from glocal.experiment.adapted_clients import Adapted, compose
from glocal.experiment.best_runner import TITLE
from glocal.experiment.config import Config
from glocal.experiment.early_stopping import standard_error
from glocal.experiment.repeat import Repeat
from glocal.experiment.run import Run
from glocal.experiment.runner import runner_of, set_against
from glocal.slots.method import Method, Plan

Offer = Repeat | Adapted
"""What a client may choose: a model's outcome, and its accuracy on validation data."""

CHOICE = "choice"
"""What the row of a comparison is called in which each client chooses."""

NOTHING = "there is nothing to choose from but being alone: add a method."

LOCAL = "local"
"""What staying with the same model alone is called."""

STAY = "alone"
"""The same, where a method is called so."""


def check_choice(
    methods: Mapping[str, str | Method | Plan], config: Config, *, choose: bool
) -> None:
    """Refuse, before anyone trains, a choice between fewer than two things.

    Clients also choose where they adapt, if there is a baseline.
    """
    if choose and config.baseline == "none":
        raise GlocalError("clients choose between methods and being alone: use --baseline same.")
    if choose or config.adapt is not None:
        runners = {name: runner_of(name, method) for name, method in methods.items()}
        if set_against(config, runners) == runners:
            raise GlocalError(NOTHING)


def choice(done: Mapping[str, Run], fed: Federation, config: Config) -> Run:
    """What becomes of clients that choose, among all these runs, on their own validation data.

    Everything chosen from must have been trained, being alone too, so that all of it counts.

    Args:
        done: The runs, all set against the same baseline.
        fed: The data as their first repeat has it.
        config: Their settings, which say how verdicts are reached.
    """
    offers = {name: run for name, run in done.items() if not run.is_baseline}
    if not offers:
        raise GlocalError(NOTHING)
    first = next(iter(offers.values()))
    trials, picks = [], []
    for r, alone in enumerate(first.baseline):
        fold = fed.fold(r) if r else fed
        others: dict[str, Offer] = {}
        for name, run in offers.items():
            others[name] = repeat = run.repeats[r]
            if repeat.adapted is not None:
                others[f"{name}, adapted"] = repeat.adapted
        best = first.best[r] if first.best else None
        stay = (alone.outcome if best is None else best, first.alone_scores[r])
        losses = first.alone_losses[r] if first.alone_losses else None
        title = (STAY if LOCAL in offers else LOCAL) if best is None else TITLE
        outcome, chosen = choose(*stay, others, fold.val.counts(), title, losses)
        shares = config.label_share_uncertainty
        trials.append(Trial(fold, outcome, alone.outcome, best=best, uncertain_shares=shares))
        picks.append(chosen)
    rows = client_table(trials, config.same)
    for row, name in zip(rows, picks[0], strict=True):
        row["model"] = name
    summary = summarise(rows, trials)
    summary["rounds"], summary["parameters"] = first.summary["rounds"], first.summary["parameters"]
    sent = ("params_up", "params_down", "bytes_up", "bytes_down", "params_published")
    for count in (*sent, "gradient_evaluations"):
        took = [(run.summary, run.summary.get("adapted", {})) for run in offers.values()]
        summary[count] = sum(s[count] + adapted.get(count, 0) for s, adapted in took)
    summary["gradient_evaluations"] += round(nan_mean(r.gradients for r in first.baseline))
    summary["choice"] = dict(Counter(name for chosen in picks for name in chosen))
    settings = {**first.settings, "method": CHOICE}
    return Run(CHOICE, {}, rows, summary, [], dict(fed.describe), {}, settings)


def choose(
    alone: Outcome,
    score: Tensor,
    others: Mapping[str, Offer],
    n: Tensor,
    stays: str = LOCAL,
    loss: Tensor | None = None,
) -> tuple[Outcome, list[str]]:
    """Each client's choice on its ``n`` validation examples, leaning to what it has alone.

    Args:
        alone: What it has alone came to.
        score: [clients] the score it may expect of that, by the data it learns from.
        others: What it may choose instead, by name.
        n: [clients] how many validation examples it has.
        stays: What staying alone is called.
        loss: [clients] what it may expect of that; clients without a score go by it.
    """
    names = list(others)
    offered = torch.stack([others[name].val_score.cpu().double() for name in names])
    own, errors = (
        score.cpu().double(),
        [getattr(each, "val_error", None) for each in others.values()],
    )
    if alone.metric == "accuracy":
        error = standard_error(own, n.cpu())
    else:
        # Of those methods for which it was measured: validation examples are the same for all.
        known = [each.cpu().double() for each in errors if each is not None]
        error = torch.stack(known).mean(0) if known else torch.zeros_like(own)
        offered, own = by_loss_where_needed(offered, own, others, loss)
    leave = (offered.amax(0) > own + error).tolist()
    top = offered.argmax(0).tolist()
    picks = [names[i] if leaves else stays for i, leaves in zip(top, leave, strict=True)]
    taken = zip(top, leave, strict=True)
    return compose([others[names[i]].outcome if leaves else alone for i, leaves in taken]), picks


def by_loss_where_needed(
    offered: Tensor, own: Tensor, others: Mapping[str, Offer], loss: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Scores, or negative losses of the clients for which a score is missing on either side."""
    missing = offered.isnan().any(0) | own.isnan()
    losses = [each.val_loss for each in others.values()]
    if loss is None or any(each is None for each in losses):
        return offered.nan_to_num(-torch.inf), own
    of_others = torch.stack([-each.cpu().double() for each in losses if each is not None])
    return torch.where(missing, of_others, offered), torch.where(missing, -loss.cpu(), own)
