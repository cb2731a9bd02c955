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
from glocal.engines.base import Engine
from glocal.evaluation.evaluate import score
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
    val_accuracy: Tensor


def chosen_by(known: Selected[Any], ids: Tensor) -> Chosen:
    """What these clients chose."""
    decay = torch.zeros_like(known.rate) if known.decay is None else known.decay
    return Chosen(ids, known.rate, decay, known.epoch, known.val_accuracy)


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
) -> Tensor:
    """The cross-validated accuracy of what clients chose, [clients].

    ``tune`` says whether they learn from validation data too. Clients with too few examples to
    cross-validate have the accuracy on validation data.
    """
    device, count = chosen.ids.device, len(clients.fed)
    fed = folded(clients, tune)
    held = fed.val.counts().to(device).view(-1, count)  # [folds, clients]
    fold, place = (held[:, chosen.ids] > 0).nonzero().unbind(1)
    if len(fold) == 0:
        return chosen.val_accuracy.double()
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
    accuracy, _ = score(task, fed, engine, trained["w"], fed.val, runs)
    n = held[fold, chosen.ids[place]].double()
    zeros = torch.zeros(len(chosen.ids), dtype=torch.float64, device=device)
    right = zeros.index_add(0, place, accuracy.nan_to_num().double() * n)
    tested = zeros.index_add(0, place, n)
    return torch.where(tested > 0, right / tested.clamp(min=1), chosen.val_accuracy.double())


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
    names = side.names * FOLDS
    return replace(side, y=side.y_train, names=names, train=train, val=val, test=val, unsplit=None)


def _split(rows: list[Tensor]) -> Split:
    counts = torch.tensor([len(r) for r in rows], device=rows[0].device)
    return from_counts(torch.cat(rows), counts)
