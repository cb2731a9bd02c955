"""What clients chose alone, trained again: on all they may learn from, and in cross-validation.

Which rate, weight decay and number of epochs a client uses is chosen before, on its validation
data (:mod:`glocal.experiment.baseline`). Refitting trains them from the same start on training and
validation data together. Cross-validation trains them on all folds but one, for each fold: all
folds of all clients are lanes of one program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.types import Params, Tree
from glocal.data.federation import Federation
from glocal.data.split import Split, from_counts
from glocal.engines.base import Engine, padded_rows
from glocal.evaluation.evaluate import score
from glocal.evaluation.measures import of_task
from glocal.evaluation.scores import Scores, measured
from glocal.experiment.folds import FOLDS, folds_of, learnable
from glocal.experiment.local_epochs import (
    Epochs,
    Keys,
    OnEpoch,
    SideClients,
    start,
    train_for,
)
from glocal.methods.local import LocalTraining
from glocal.nn.task import Task

if TYPE_CHECKING:
    from glocal.experiment.early_stopping import Selected


@dataclass(frozen=True)
class Chosen:
    """The settings of some clients, [clients] each."""

    ids: Tensor
    rate: Tensor
    decay: Tensor
    epoch: Tensor
    val_score: Tensor
    val_loss: Tensor


def chosen_by(known: Selected[Any], ids: Tensor) -> Chosen:
    """What these clients chose."""
    decay = torch.zeros_like(known.rate) if known.decay is None else known.decay
    figures = (known.epoch, known.val_score, known.val_loss)
    return Chosen(ids, known.rate, decay, *figures)


def refitted(
    task: Task,
    clients: SideClients,
    engine: Engine,
    local: LocalTraining,
    chosen: Chosen,
    models: Params,
    on_epoch: OnEpoch,
    resumed: Tree,
) -> Params:
    """The models after training on training and validation data together.

    A client whose weights do not stay finite keeps the one of ``models`` that it has.
    """
    fed = with_validation(clients.fed)
    epochs = Epochs.of(task, fed, engine, local, chosen.ids, clients.keys, clients.turns)
    state = start(task, clients, local, chosen.ids, chosen.rate, chosen.decay)
    new: Params = train_for(epochs, state, chosen.epoch, on_epoch, resumed)["w"]
    finite = torch.stack([leaf.flatten(1).isfinite().all(1) for leaf in tree.leaves(new)]).all(0)
    return tree.where(finite, new, models)


def scores(
    task: Task,
    clients: SideClients,
    engine: Engine,
    local: LocalTraining,
    chosen: Chosen,
    tune: bool,
    on_epoch: OnEpoch,
    resumed: Tree,
) -> Scores:
    """The cross-validated scores of what clients chose, [clients].

    ``tune`` says whether they learn from validation data too. Clients with too few examples to
    cross-validate have the score on validation data. What is no mean over examples, as an AUC, is
    taken of all that a client held out, in all folds together.
    """
    device, count = chosen.ids.device, len(clients.fed)
    fed = folded(clients, tune)
    held = fed.val.counts().to(device).view(-1, count)  # [folds, clients]
    fold, place = (held[:, chosen.ids] > 0).nonzero().unbind(1)
    known = Scores(chosen.val_score.double(), chosen.val_loss.double())
    if len(fold) == 0:
        return known
    runs = fold * count + chosen.ids[place]
    everyone = torch.arange(count, device=device)
    root, number = clients.keys.root.expand(count), clients.keys.number
    each = torch.arange(len(held), device=device).repeat_interleave(count)
    keys = Keys(
        rng.fold(root.repeat(len(held)), 0xF01D + each),
        (everyone if number is None else number).repeat(len(held)),
    )
    epochs = Epochs.of(task, fed, engine, local, runs, keys, clients.turns)
    begun = start(task, clients, local, chosen.ids, chosen.rate, chosen.decay)
    state = tree.row(begun, place)
    trained = train_for(epochs, state, chosen.epoch[place], on_epoch, resumed)
    if of_task(task).name != "accuracy":
        found, tested = _all_held_out(task, fed, engine, trained["w"], runs, place, len(chosen.ids))
    else:
        accuracy, loss = score(task, fed, engine, trained["w"], fed.val, runs)
        n = held[fold, chosen.ids[place]].double()
        zeros = torch.zeros(len(chosen.ids), dtype=torch.float64, device=device)
        tested = zeros.index_add(0, place, n)
        right, cost = (
            zeros.index_add(0, place, each.nan_to_num().double() * n) for each in (accuracy, loss)
        )
        found = Scores(right / tested.clamp(min=1), cost / tested.clamp(min=1))
    return Scores(
        torch.where(tested > 0, found.value.double(), known.value),
        torch.where(tested > 0, found.loss.double(), known.loss),
    )


def _all_held_out(
    task: Task, fed: Federation, engine: Engine, w: Params, runs: Tensor, place: Tensor, count: int
) -> tuple[Scores, Tensor]:
    """Each client's scores on what it held out, all folds together, and how much that is."""
    rows, real = padded_rows(fed.val, runs)
    of_runs = task.of_clients(runs)
    marks = engine.evaluate(of_runs.example_outputs, w, fed.x, fed.y, rows)
    value = torch.full((count,), torch.nan, dtype=torch.float64, device=runs.device)
    loss, tested = value.clone(), torch.zeros_like(value)
    for i in sorted(set(place.tolist())):
        mine = place == i
        of_client = {name: part[mine][real[mine]][None] for name, part in marks.items()}
        y = fed.y[rows[mine][real[mine]]][None]
        every = torch.ones_like(y[:, : y.shape[1]], dtype=torch.bool)
        every = every if every.dim() == 2 else every[..., 0]
        found = measured(task, fed, of_client, y, every, runs[mine][:1])
        value[i], loss[i], tested[i] = found.value[0], found.loss[0], every.sum()
    return Scores(value, loss), tested


def with_validation(fed: Federation) -> Federation:
    """The federation whose clients train on their validation data too."""
    count = len(fed)
    rows = [part for k in range(count) for part in (fed.train.of(k), fed.val.of(k))]
    return replace(fed, train=from_counts(torch.cat(rows), fed.train.counts() + fed.val.counts()))


def folded(clients: SideClients, tune: bool) -> Federation:
    """The folds side by side: client ``c`` trains on all but fold ``f`` as client ``f · C + c``.

    What it holds out is its validation data there, none where it has fewer folds. Labels are those
    that a client has.
    """
    side, device = clients.fed, clients.fed.x.device
    count = len(clients.federations[0])
    learn: list[list[Tensor]] = [[] for _ in range(FOLDS)]
    held: list[list[Tensor]] = [[] for _ in range(FOLDS)]
    for c in range(len(side)):
        r, k = divmod(c, count)
        rows = learnable(side, c, tune=tune)
        fold = folds_of(clients.federations[r], k, clients.seeds[r], tune=tune)
        number = torch.from_numpy(fold if fold.any() else np.full_like(fold, -1)).to(device)
        for f in range(FOLDS):
            learn[f].append(rows[number != f])
            held[f].append(rows[number == f])
    train, val = (_split([rows for of in parts for rows in of]) for parts in (learn, held))
    return replace(
        side,
        y=side.y_train,
        names=side.names * FOLDS,
        targets=side.targets * FOLDS,
        train=train,
        val=val,
        test=val,
        unsplit=None,
    )


def _split(rows: list[Tensor]) -> Split:
    counts = torch.tensor([len(r) for r in rows], device=rows[0].device)
    return from_counts(torch.cat(rows), counts)
