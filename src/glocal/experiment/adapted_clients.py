"""All clients adapt, by one technique after another: each gets its best, by its own data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.progress import NO_TICK, Tick
from glocal.core.types import Params, Tree
from glocal.data.federation import Federation
from glocal.engines.base import Engine
from glocal.engines.gradients import gradients
from glocal.evaluation import evaluate
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.scores import comparable
from glocal.evaluation.trials import pool_is_valid
from glocal.experiment.adaptation import Technique, adapt, at_once
from glocal.experiment.adaptation_progress import Standing, packed, unpacked
from glocal.experiment.early_stopping import Selected
from glocal.experiment.fisher import Public, fisher_of_union
from glocal.experiment.local_epochs import OnEpoch
from glocal.nn.task import Task
from glocal.training.checkpoint import CheckpointWriter


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
    writer: CheckpointWriter | None = None,
) -> Adapted:
    """Adapt by every technique that is wanted, and pick each client's best on validation data.

    ``given`` has the models of some clients, stacked: a block of them is adapted and evaluated
    before the next one is asked for, and what was adapted is forgotten, unless it is to be kept.
    ``private``: the method that made them has privacy. With a writer of checkpoints, it goes on
    from the last one.
    """
    wanted = [technique.decided(private) for technique in wanted]
    sends = any(technique.of_union for technique in wanted)
    standing, in_block = _resumed(writer, fed)
    if sends and standing.union is None:
        standing.union = fisher_of_union(task, fed, engine, given)
        standing.gradients += fed.train.counts().cpu()
    clients = _Clients(task, fed, engine, wanted, given, seed, public, keep, standing)
    blocks = [(n, ids) for n in range(len(wanted)) for ids in clients.blocks(n)]
    total, done = sum(wanted[n].max_epochs for n, _ in blocks), 0

    def finished(number: int, left: Tree) -> None:
        """So many epochs of all blocks are done, and the last one has left this."""
        tick(number, total)
        if writer is not None:
            writer.after(number, lambda: packed(standing, left), number == total)

    for at, (n, ids) in enumerate(blocks):
        before, done = done, done + wanted[n].max_epochs
        if at < standing.blocks:
            continue

        def on_epoch(epoch: int, left: Tree, before: int = before, end: int = done) -> None:
            if before + epoch < end:
                finished(before + epoch, left)

        clients.adapt(n, ids, on_epoch, in_block)
        in_block = {}
        finished(done, {})
    return clients.adapted(sent=len(fed) * task.size if sends else 0)


def _resumed(writer: CheckpointWriter | None, fed: Federation) -> tuple[Standing, Tree]:
    """Where they stood, and what the block that adapted had; at first, where nothing is known."""
    saved = writer.last() if writer else None
    if saved is None:
        return Standing.at_first(len(fed), fed.x.device), {}
    return unpacked(saved, fed.x.device)


@dataclass(frozen=True)
class _Clients:
    """All clients, and where they stand."""

    task: Task
    fed: Federation
    engine: Engine
    wanted: Sequence[Technique]
    given: Callable[[Tensor], Params]
    seed: int
    public: Public | None
    keep: bool
    standing: Standing

    def blocks(self, n: int) -> tuple[Tensor, ...]:
        """Those who adapt together by the n-th technique."""
        everyone = torch.arange(len(self.fed), device=self.fed.x.device)
        evaluated = evaluate.at_once(self.task, self.fed)
        return torch.split(everyone, min(at_once(self.task, self.wanted[n]), evaluated))

    def adapt(self, n: int, ids: Tensor, on_epoch: OnEpoch, resumed: Tree) -> None:
        """A block of clients adapts by the n-th technique, and is evaluated."""
        where, standing = (self.task, self.fed, self.engine), self.standing
        new = adapt(
            *where,
            self.wanted[n],
            self.given(ids),
            self.seed,
            ids,
            public=self.public,
            union=standing.union,
            on_epoch=on_epoch,
            resumed=resumed,
        )
        self._count_gradients(n, ids.cpu(), new.trained.cpu())
        self._offer(n, ids, new)
        models, pool = {"adapted": new.models}, pool_is_valid(self.fed)
        part = evaluate.block_outcome(*where, lambda _: models, ids, pool=pool)
        standing.parts.setdefault(self.wanted[n].name, []).append(part)

    def _count_gradients(self, n: int, ids: Tensor, epochs: Tensor) -> None:
        technique, n_train = self.wanted[n], self.fed.train.counts().cpu()[ids]
        self.standing.gradients[ids] += epochs * gradients(technique, n_train, {})
        if technique.lam is not None and not technique.of_union:
            of_public = self.public if technique.public else None
            self.standing.gradients[ids] += len(of_public[0]) if of_public else n_train

    def _offer(self, n: int, ids: Tensor, new: Selected[Params]) -> None:
        """Note whose model is better than those of the techniques before."""
        standing, host = self.standing, ids.cpu()
        now, cost = new.val_score.cpu(), new.val_loss.cpu()
        before, old_cost = standing.val_score[host], standing.val_loss[host]
        had, new_key = comparable(before, old_cost), comparable(now, cost)
        better = (new_key > had) | ((new_key == had) & (cost < old_cost))
        won = host[better]
        standing.val_score[won], standing.val_loss[won] = now[better], cost[better]
        standing.best[won], standing.moved[won] = n, new.epoch.cpu()[better] > 0
        if self.keep and len(won):
            rows = better.to(ids.device)
            standing.models.scatter(ids[rows], tree.row(new.models, rows))

    def adapted(self, *, sent: int) -> Adapted:
        """What came of it, once all have adapted."""
        standing = self.standing
        by_technique = {name: evaluate.together(of) for name, of in standing.parts.items()}
        names, best = list(by_technique), standing.best.tolist()
        return Adapted(
            by_technique,
            compose([by_technique[names[i]] for i in best]),
            [names[i] if m else "none" for i, m in zip(best, standing.moved.tolist(), strict=True)],
            standing.val_score,
            standing.models.rows,
            int(standing.gradients.sum()),
            sent,
            standing.val_loss,
        )


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
