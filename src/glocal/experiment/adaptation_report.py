"""What adaptation changed, client by client: each gets its best technique, by its own data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.padding import IGNORED
from glocal.core.progress import NO_TICK, Tick
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.engines.base import Engine
from glocal.engines.gradients import gradients
from glocal.evaluation.communication import BYTES
from glocal.evaluation.evaluate import Outcome, outcomes
from glocal.evaluation.intervals import nan_mean, paired
from glocal.evaluation.scores import comparable
from glocal.evaluation.summary import Table, against, client_table, summarise
from glocal.evaluation.trials import Trial, pool_is_valid
from glocal.experiment.adaptation import Public, Technique, adapt, at_once, fisher_of_union
from glocal.nn.task import Task
from glocal.training.client_state.store import ClientStore

COUNTS = ("better_off", "worse_off", "same", "undecided")


@dataclass(frozen=True)
class Adapted:
    """One repeat, after adaptation."""

    techniques: dict[str, Outcome]
    """Each technique by itself, at every client."""
    outcome: Outcome
    """Each client's best."""
    by: list[str]
    """Which that is; ``none`` where the client stays with the model it was given."""
    val_score: Tensor
    """[clients] the score on validation data."""
    models: Params | None = field(default=None, repr=False)
    """Those of ``outcome``, stacked, where they were to be kept."""
    gradients: int = 0
    """Those that all clients computed, by all techniques."""
    sent: int = 0
    """Parameters that clients sent for it, and as many that they received."""
    val_loss: Tensor | None = None


def adapt_clients(
    task: Task,
    fed: Federation,
    engine: Engine,
    wanted: Sequence[Technique],
    given: Callable[[Tensor], Params],
    seed: int,
    *,
    public: Public | None = None,
    private: bool = False,
    keep: bool = False,
    tick: Tick = NO_TICK,
) -> Adapted:
    """Adapt by every technique that is wanted, and pick each client's best on validation data.

    ``given`` has the models of some clients, stacked: a block of them is adapted and evaluated
    before the next one is asked for, and what was adapted is forgotten, unless it is to be kept.
    ``private``: the method that made them has privacy.
    """
    clients, total = len(fed), sum(t.max_epochs for t in wanted)
    by_technique: dict[str, Outcome] = {}
    kept = ClientStore(clients, fed.x.device)
    accuracy, loss = torch.full((clients,), -torch.inf), torch.full((clients,), torch.inf)
    best = torch.zeros(clients, dtype=torch.int64)
    moved = torch.zeros(clients, dtype=torch.bool)
    n_train = fed.train.counts().cpu()
    computed = torch.zeros(clients, dtype=torch.int64)
    union, sent = None, 0
    wanted = [technique.decided(private) for technique in wanted]
    if any(technique.of_union for technique in wanted):
        union, sent = fisher_of_union(task, fed, engine, given), clients * task.size
        computed += n_train

    def adapted(n: int, ids: Tensor) -> dict[str, Params]:
        technique, before = wanted[n], sum(t.max_epochs for t in wanted[:n])

        def one_tick(epoch: int) -> None:
            done = int(ids[0]) * technique.max_epochs + len(ids) * epoch
            tick(before + done // clients, total)

        where = (task, fed, engine, technique)
        new = adapt(*where, given(ids), seed, ids, public=public, union=union, tick=one_tick)
        count_gradients(technique, ids.cpu(), new.trained.cpu())
        host, now, cost = ids.cpu(), new.val_score.cpu(), new.val_loss.cpu()
        had, new_key = comparable(accuracy[host], loss[host]), comparable(now, cost)
        better = (new_key > had) | ((new_key == had) & (cost < loss[host]))
        won = host[better]
        accuracy[won], loss[won], best[won] = now[better], cost[better], n
        moved[won] = new.epoch.cpu()[better] > 0
        if keep and len(won):
            rows = better.to(ids.device)
            kept.scatter(ids[rows], tree.row(new.models, rows))
        return {"adapted": new.models}

    def count_gradients(technique: Technique, ids: Tensor, epochs: Tensor) -> None:
        computed[ids] += epochs * gradients(technique, n_train[ids], {})
        if technique.lam is not None and not technique.of_union:
            computed[ids] += len(public[0]) if technique.public and public else n_train[ids]

    pool = pool_is_valid(fed)
    for n, technique in enumerate(wanted):
        models, most = partial(adapted, n), at_once(task, technique)
        by_technique[technique.name] = outcomes(task, fed, engine, models, pool=pool, at_most=most)
    names = list(by_technique)
    picked = compose([by_technique[names[i]] for i in best.tolist()])
    by = [names[i] if m else "none" for i, m in zip(best.tolist(), moved.tolist(), strict=True)]
    cost = {"gradients": int(computed.sum()), "sent": sent}
    return Adapted(by_technique, picked, by, accuracy, kept.rows, **cost, val_loss=loss)


def compose(chosen: Sequence[Outcome]) -> Outcome:
    """Client k's part of the k-th outcome, for all clients, as one outcome."""
    pools = [o.pool[k] for k, o in enumerate(chosen) if o.pool is not None]
    return Outcome(
        {name: [o.metrics[name][k] for k, o in enumerate(chosen)] for name in chosen[0].metrics},
        [o.own[k] for k, o in enumerate(chosen)],
        torch.stack(pools) if len(pools) == len(chosen) else None,
        [o.chosen[k] for k, o in enumerate(chosen)],
        chosen[0].metric,
        [o.of_examples()[k] for k, o in enumerate(chosen)] if chosen[0].values else None,
        chosen[0].lower,
        chosen[0].constant,
    )


def add_adapted(
    rows: Table,
    summary: dict[str, Any],
    trials: Sequence[Trial],
    repeats: Sequence[Adapted],
    same: float | None = None,
) -> None:
    """What adaptation changed, beside what there was: ``adapted_…`` in rows and summary.

    ``same`` is the difference up to which a client counts as neither better nor worse off.
    """
    changed = [replace(t, outcome=a.outcome) for t, a in zip(trials, repeats, strict=True)]
    new = client_table(changed, same)
    figures = summarise(new, changed)
    for k, (row, now) in enumerate(zip(rows, new, strict=True)):
        changes = ("accuracy", "value", "benefit", "estimate", "low", "high", "verdict")
        row |= {f"adapted_{name}": now[name] for name in changes if name in now}
        row["adapted_by"] = repeats[0].by[k]
        row["complexity"] = complexity(trials[0].fed, k)
    spread = ("mean", "worst10", "best10", "gini", "gap", "benefit")
    summary |= {f"adapted_{name}": figures[name] for name in (*spread, *COUNTS)}
    summary["adapted"] = {
        "gain": against(figures, summary),
        "by": dict(Counter(name for a in repeats for name in a.by)),
        **{name: figures[name] for name in ("accuracies", "values") if name in figures},
        "techniques": _by_technique(trials, repeats, same),
        "gradient_evaluations": round(nan_mean(a.gradients for a in repeats)),
        "params_up": repeats[0].sent,
        "params_down": repeats[0].sent,
        "bytes_up": BYTES * repeats[0].sent,
        "bytes_down": BYTES * repeats[0].sent,
        "worse_off_in_each": _counted(worse_off_in_each(trials), worse_off_in_each(changed)),
    }


def complexity(fed: Federation, k: int) -> float:
    """How varied a client's data is: the entropy of its training labels' shares, in bits.

    Of numbers, their standard deviation in training data over that of all clients.
    """
    if not fed.target.classes:
        return float(fed.y[fed.train.of(k)].std(unbiased=False))
    labels = fed.y[fed.train.of(k)].flatten()
    shares = torch.bincount(labels[labels != IGNORED], minlength=fed.classes).double()
    return float(torch.special.entr(shares / shares.sum()).sum() / math.log(2))


def _by_technique(
    trials: Sequence[Trial], repeats: Sequence[Adapted], same: float | None
) -> dict[str, Any]:
    """Each technique for everybody: every client's accuracy in every repeat, and the mean."""
    figures_of = {}
    for name in repeats[0].techniques:
        by_it = [
            replace(t, outcome=a.techniques[name]) for t, a in zip(trials, repeats, strict=True)
        ]
        figures = summarise(client_table(by_it, same), by_it)
        kept = ("mean", *COUNTS, "accuracies")
        figures_of[name] = {key: figures[key] for key in kept if key in figures}
    return figures_of


def _counted(before: list[int], after: list[int]) -> dict[str, Any]:
    """Counts of each repeat, and Student's interval of their change where there are three."""
    pairs = torch.tensor(after, dtype=torch.float64) - torch.tensor(before)
    by = "repeats" if len(pairs) > 2 else None
    return {"before": before, "after": after, "change": paired(pairs, by)}


def worse_off_in_each(trials: Sequence[Trial]) -> list[int]:
    """How many clients are worse off than alone, by the verdicts of each repeat by itself."""
    return [client_table([t])["verdict"].count("worse off") for t in trials]
