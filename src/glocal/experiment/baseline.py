"""The local baseline: what each client could do alone.

Every client trains the same model family on its own data, once for each learning rate of a small
grid, and stops early, both by the metric that counts on its own validation data. A few validation
examples cannot tell one epoch from the next, and stopping at their luckiest one makes a weak
baseline; so of each rate the *last* epoch within one standard error of its best is kept (the rule
of Breiman, Friedman, Olshen and Stone, *Classification and regression trees*, 1984, towards the
longer training). A rate is given up after ``patience`` epochs outside. Of the rates, the one whose
kept weights do best is used, ties to the lower loss.

Where both sides are tuned, what was chosen is trained again, from the same start, on training and
validation data together. Where the best alone is asked for, the chosen rate is tried with weight
decay too, by the same rules, and what was chosen is cross-validated
(:mod:`glocal.experiment.chosen`).

Clients train in blocks, each with all of its rates as one program where the engine can, and clients
of several repeats side by side; finished models go to a store that may be on disk, so that only a
block of them is ever in memory.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.progress import NO_TICK, Tick
from glocal.core.types import Params, Tree
from glocal.data.federation import Federation
from glocal.engines.base import Engine
from glocal.engines.gradients import gradients
from glocal.evaluation.scores import comparable
from glocal.experiment.chosen import chosen_by, refitted, scores
from glocal.experiment.early_stopping import FIGURES, Selected, train
from glocal.experiment.folds import FOLDS
from glocal.experiment.local_epochs import OnEpoch, SideClients, start
from glocal.methods.local import GRID, LocalTraining
from glocal.nn.task import Task
from glocal.training.client_state.placement import Storage
from glocal.training.client_state.store import ClientStore

if TYPE_CHECKING:
    from glocal.training.checkpoint import CheckpointWriter

DECAYS = (0.01,)
"""The weight decays that clients may pick instead of none, where the best alone is asked for."""

BLOCK_BYTES = 1 << 30
"""Bytes of models, of all rates, that train at once."""


def rates_of(local: LocalTraining) -> tuple[float, ...]:
    """The learning rates that a client may pick from."""
    return local.rates or GRID


def lanes_of(local: LocalTraining, *, scored: bool) -> int:
    """Lanes that a client may have at once: a rate, a weight decay or a fold each."""
    return max(len(rates_of(local)), len(local.decays), FOLDS if scored else 1)


def known_by(local: LocalTraining) -> str:
    """A text that is equal for equal settings: a local baseline is measured once for each."""
    decays = f" {local.decays}" if local.decays else ""
    return f"{local.settings} {rates_of(local)} {local.max_epochs} {local.patience}{decays}"


def train_baselines(
    task: Task,
    federations: Sequence[Federation],
    engine: Engine,
    local: LocalTraining,
    seeds: Sequence[int],
    tick: Tick = NO_TICK,
    writer: CheckpointWriter | None = None,
    storage: Storage | None = None,
    *,
    refit: bool = False,
    scored: bool = False,
) -> list[Selected[ClientStore]]:
    """The local baselines of one repeat or several, whose clients train side by side.

    Each is what it would be by itself, to the tolerance that engines agree to. The models of a
    single one may be anywhere (``storage``); those of several are in memory. With ``refit`` what
    was chosen is trained again on training and validation data together; with ``scored`` it is also
    cross-validated. With a writer of checkpoints, training goes on from the last one.
    """
    clients, device = SideClients.of(federations, seeds), federations[0].x.device
    storage = storage if len(federations) == 1 else Storage("device")
    found = _train(task, clients, engine, local, tick, writer, storage, refit, scored)
    if len(federations) == 1:
        return [found]
    count = len(federations[0])
    everyone = torch.arange(count, device=device)
    each = []
    for r in range(len(federations)):
        rows = everyone + r * count
        store = ClientStore(count, device).filled(everyone, found.models.rows_of(rows))
        figures: dict[str, Any] = {name: getattr(found, name) for name in FIGURES}
        part: dict[str, Any] = {k: None if v is None else v[rows] for k, v in figures.items()}
        each.append(Selected(store, **part, seconds=found.seconds / len(federations)))
    return each


def _train(
    task: Task,
    clients: SideClients,
    engine: Engine,
    local: LocalTraining,
    tick: Tick,
    writer: CheckpointWriter | None,
    storage: Storage | None,
    refit: bool,
    scored: bool,
) -> Selected[ClientStore]:
    began, storage, fed = time.monotonic(), storage or Storage(), clients.fed
    count, device, epochs = len(fed), fed.x.device, local.max_epochs
    size = 4 * task.size
    # A block of clients goes through these, each of ``epochs`` epochs at most.
    runs = {
        "search": len(rates_of(local)),
        "decay": len(local.decays),
        "refit": int(refit),
        "score": FOLDS if scored else 0,
    }
    stages = [name for name, of_client in runs.items() if of_client]
    found = [name for name in stages if name != "score"][-1]  # models are found with that one
    block_size = max(1, BLOCK_BYTES // (3 * size * lanes_of(local, scored=scored)))
    blocks = torch.split(torch.arange(count, device=device), block_size)
    at_once = min(count, block_size)
    clients = replace(clients, turns=tuple(at_once * runs[name] for name in stages))
    saved = writer.last() if writer else None

    def no_models() -> ClientStore:
        return storage.store(count, size, device, rows=count)

    if saved is None:
        done, models = 0, no_models()
        in_stage: Tree = {}
        figures = {k: torch.zeros(count, dtype=d, device=device) for k, d in FIGURES.items()}
    else:
        done, stored = saved.number // epochs, saved.trees["clients"]
        models = storage.restored(no_models, count, stored, device, 0, saved.number)
        in_stage, figures = (tree.to(saved.trees[k], device) for k in ("block", "figures"))
    total = len(blocks) * len(stages) * epochs

    def finished(number: int, state: Tree) -> None:
        """So many epochs of all stages are done, and the state is that of the present one."""
        tick(number, total)

        def contents() -> tuple[dict[str, Any], Tree]:
            return {}, {"clients": models.packed(number), "figures": figures, "block": state}

        if writer is not None:
            writer.after(number, contents, number == total)

    for at in range(done, len(blocks) * len(stages)):
        ids, stage = blocks[at // len(stages)], stages[at % len(stages)]
        kept = in_stage.pop("kept", {})  # the models that the stage before has found

        def on_epoch(epoch: int, state: Tree, before: int = at * epochs, kept: Tree = kept) -> None:
            if epoch < epochs:
                finished(before + epoch, {**state, "kept": kept} if kept else state)

        where = (task, clients, engine, local)
        of_block: dict[str, Any] = {name: values[ids] for name, values in figures.items()}
        known = Selected(kept, **of_block)
        if stage == "search":
            known = _search(*where, ids, on_epoch, in_stage)
        elif stage == "decay":
            known = _with_decay(*where, known, ids, on_epoch, in_stage)
        elif stage == "refit":
            kept = refitted(*where, chosen_by(known, ids), kept, on_epoch, in_stage)
            known = replace(known, models=kept, trained=known.trained + known.epoch)
        else:
            found_scores = scores(*where, chosen_by(known, ids), refit, on_epoch, in_stage)
            known = replace(known, cv_score=found_scores.value, cv_loss=found_scores.loss)
        kept = known.models
        for name, values in figures.items():
            if (new := getattr(known, name)) is not None:
                values[ids] = new
        in_stage = {}
        if stage == found:
            models.scatter(ids, kept)
        elif stage != "score":
            in_stage = {"kept": kept}
        finished((at + 1) * epochs, in_stage)
    result = Selected(models, **figures, seconds=time.monotonic() - began)
    return result if scored else replace(result, cv_score=None, cv_loss=None)


def _search(
    task: Task,
    clients: SideClients,
    engine: Engine,
    local: LocalTraining,
    ids: Tensor,
    on_epoch: OnEpoch,
    resumed: Tree,
) -> Selected[Params]:
    """Each client's rate and epoch, and the model that they gave."""
    rates = torch.tensor(rates_of(local), device=ids.device)
    runs = ids.repeat_interleave(len(rates))  # a run is one client at one rate
    lr = rates.repeat(len(ids))
    state = resumed.get("state") or start(task, clients, local, runs, lr, 0 * lr)
    where = (task, clients.fed, engine, local, state, runs, clients.keys)
    best = train(*where, on_epoch, resumed=resumed, turns=clients.turns)
    return best.by_client(ids, rates, clients.fed)


def _with_decay(
    task: Task,
    clients: SideClients,
    engine: Engine,
    local: LocalTraining,
    before: Selected[Params],
    ids: Tensor,
    on_epoch: OnEpoch,
    resumed: Tree,
) -> Selected[Params]:
    """The same with weight decay at the chosen rate, where that does better than without."""
    count = len(local.decays)
    decays = torch.tensor(local.decays, device=ids.device)
    runs = ids.repeat_interleave(count)
    settings = (before.rate.repeat_interleave(count), decays.repeat(len(ids)))
    state = resumed.get("state") or start(task, clients, local, runs, *settings)
    where = (task, clients.fed, engine, local, state, runs, clients.keys)
    best = train(*where, on_epoch, resumed=resumed, turns=clients.turns)
    # One that did not stay finite loses to the one before.
    now = best.by_client(ids, decays, clients.fed, all_diverged=True)
    new, old = (comparable(each.val_score, each.val_loss) for each in (now, before))
    better = (new > old) | ((new == old) & (now.val_loss < before.val_loss))

    def of(name: str) -> Tensor:
        return torch.where(better, getattr(now, name), getattr(before, name))

    return Selected(
        tree.where(better, now.models, before.models),
        before.rate,
        of("epoch"),
        of("val_score"),
        of("val_loss"),
        before.trained + now.trained,
        torch.where(better, now.rate, 0.0),
    )


def gradients_of(
    local: LocalTraining, found: Selected[Any], fed: Federation, *, refit: bool = False
) -> int:
    """The gradients that all clients computed to find their models, without cross-validation.

    At all rates and weight decays; with ``refit`` the last epochs were on validation data too.
    """
    n, more = fed.train.counts().cpu(), fed.val.counts().cpu()
    last = found.epoch.cpu() if refit else torch.zeros_like(n)
    searched = gradients(local, n, {}) * (found.trained.cpu() - last)
    return int((searched + gradients(local, n + more, {}) * last).sum())
