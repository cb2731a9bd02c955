"""Training alone with early stopping: of each run, the last epoch within an error of its best.

The rule is explained in :mod:`glocal.experiment.baseline`; adaptation goes by it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import ClientError
from glocal.core.types import Params, Tree
from glocal.data.federation import Federation
from glocal.engines.base import Engine
from glocal.evaluation.evaluate import scored
from glocal.evaluation.measures import of_task
from glocal.evaluation.scores import Scores, comparable
from glocal.experiment.local_epochs import Epochs, Keys, OnEpoch, put
from glocal.methods.local import LocalTraining
from glocal.nn.task import Task
from glocal.training.client_state.store import ClientStore

Models = TypeVar("Models", Params, ClientStore)


@dataclass(frozen=True)
class Selected(Generic[Models]):
    """Clients' models, stacked or in a store that is read by rows, and how each was found."""

    models: Models
    rate: Tensor
    """[clients] the learning rate that did best on validation data."""
    epoch: Tensor
    """[clients] after how many epochs."""
    val_score: Tensor
    """[clients] the score that it reached there: the metric that counts, such that higher is better
    (:mod:`glocal.evaluation.scores`); by rule, accuracy."""
    val_loss: Tensor
    """[clients] and its loss there."""
    trained: Tensor
    """[clients] epochs at all rates together, also those after the one that was kept."""
    decay: Tensor | None = None
    """[clients] the weight decay that did best, of those there were to pick from."""
    cv_score: Tensor | None = None
    """[clients] the cross-validated score of what was chosen, where that was asked for."""
    cv_loss: Tensor | None = None
    """[clients] and its loss."""
    seconds: float = 0.0
    """What that took, since it was begun or resumed."""


FIGURES = {
    "rate": torch.float32,
    "epoch": torch.int64,
    "val_score": torch.float32,
    "val_loss": torch.float32,
    "trained": torch.int64,
    "decay": torch.float32,
    "cv_score": torch.float64,
    "cv_loss": torch.float64,
}
"""What is known of every client's model, whether it is in memory or not."""


def train(
    task: Task,
    fed: Federation,
    engine: Engine,
    local: LocalTraining,
    state: Tree,
    runs: Tensor,
    keys: Keys,
    on_epoch: OnEpoch = lambda epoch, state: None,
    best: Best | None = None,
    resumed: Tree | None = None,
    turns: tuple[int, ...] = (),
) -> Best:
    """Train all runs (``runs`` says whose data each has), each until it gains nothing more.

    ``on_epoch`` is called with the epochs done and all that they left, which ``resumed`` takes.
    """
    device = runs.device
    best = best or Best.of(task, state["w"], runs, fed)
    active = torch.arange(len(runs), device=device)
    began = 0
    if resumed:
        best.state = dict(resumed["best"])
        active, began = resumed["active"], int(resumed["epoch"])
    epochs = Epochs.of(task, fed, engine, local, runs, keys, turns)
    for epoch in range(began, local.max_epochs):
        if len(active) == 0:
            break
        new = epochs.one(epoch, state, active)
        found = scored(task, fed, engine, new["w"], fed.val, runs[active])
        best.offer(active, new["w"], found, epoch + 1)
        state = put(state, active, new)
        # A run whose loss is no longer finite has a rate too high for it: it will not come back.
        active = active[
            (epoch + 1 - best.state["epoch"][active] < local.patience) & found.loss.isfinite()
        ]
        left = {"state": state, "best": dict(best.state), "active": active}
        on_epoch(epoch + 1, {**left, "epoch": torch.tensor(epoch + 1)})
    return best


def standard_error(accuracy: Tensor, n: Tensor) -> Tensor:
    """Of an accuracy on ``n`` examples; one more right and one more wrong keep it above zero."""
    p = (accuracy.clamp(min=0.0) * n + 1) / (n + 2)
    return (p * (1 - p) / n).sqrt()


class Best:
    """The weights of every run's last epoch within a standard error of its best."""

    def __init__(self, w: Params, runs: Tensor, n: Tensor, *, by_accuracy: bool = True) -> None:
        self.lowest = -1.0 if by_accuracy else -torch.inf
        none = torch.full((len(runs),), self.lowest, device=runs.device)
        self.n = n
        self.state: Tree = {
            "w": w,
            "top": none,
            "score": none.clone(),
            "loss": torch.full_like(none, torch.inf),
            "epoch": torch.zeros_like(none, dtype=torch.int64),
            "trained": torch.zeros_like(none, dtype=torch.int64),
        }
        if not by_accuracy:
            self.state["error"] = torch.zeros_like(none)

    @classmethod
    def of(cls, task: Task, w: Params, runs: Tensor, fed: Federation) -> Best:
        """Nothing was offered yet."""
        n = fed.val.counts().to(runs.device)[runs]
        return cls(w, runs, n, by_accuracy=of_task(task).name == "accuracy")

    def offer(self, rows: Tensor, w: Params, found: Scores, epoch: int) -> None:
        """Keep what is within a standard error of the best so far."""
        state, finite, value = self.state, found.loss.isfinite(), found.key
        state["trained"][rows] = epoch
        before, now = state["top"][rows], torch.where(finite, value, self.lowest)
        top = torch.maximum(before, now)
        state["top"][rows] = top
        if found.error is None:
            error = standard_error(top, self.n[rows])
        else:
            error = torch.where(now > before, found.error, state["error"][rows])
            state["error"][rows] = error
        better = finite & (value >= top - error)
        won = rows[better]
        state["w"] = put(state["w"], won, tree.row(w, better))
        state["score"][won] = found.value[better]
        state["loss"][won] = found.loss[better]
        state["epoch"][won] = epoch

    def by_client(
        self, ids: Tensor, rates: Tensor, fed: Federation, *, all_diverged: bool = False
    ) -> Selected[Params]:
        """Of each client's runs that of the highest score, ties to the lower loss.

        A client whose runs ``all_diverged`` is an error, unless that may be.
        """
        score, loss = (self.state[k].view(len(ids), len(rates)) for k in ("score", "loss"))
        value = comparable(score, loss)
        top = value.amax(1, keepdim=True)
        diverged = top.flatten() == self.lowest
        if bool(diverged.any()) and not all_diverged:
            name = fed.names[int(ids[diverged.nonzero()[0, 0]])]
            tried = ", ".join(f"{r:g}" for r in rates.tolist())
            raise ClientError(
                f"client {name} cannot train alone: its loss is not finite at rates {tried}: "
                "give the local baseline lower ones, as in local(lr=0.001), or look at its data."
            )
        chosen = torch.where(value == top, loss, torch.inf).argmin(1)
        flat = torch.arange(len(ids), device=ids.device) * len(rates) + chosen
        best = tree.row(self.state, flat)
        trained = self.state["trained"].view(len(ids), len(rates)).sum(1)
        figures = (best["epoch"], best["score"], best["loss"], trained)
        return Selected(best["w"], rates[chosen], *figures)
