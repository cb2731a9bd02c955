"""Fisher information: which parameters of a model matter to what it knows.

``F_j`` is the mean over examples of the squared gradient of each example's log-likelihood; ``ewc``
holds a model near where it began, by that (:mod:`glocal.experiment.adaptation`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, vmap

from glocal.core import tree
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.engines.base import EVAL_BATCH, Engine, padded_rows
from glocal.experiment.baseline import BLOCK_BYTES
from glocal.nn.task import Task

Public = tuple[Tensor, Tensor]
"""Inputs and labels that are nobody's."""


def fisher(
    task: Task,
    fed: Federation,
    engine: Engine,
    models: Params,
    ids: Tensor,
    public: Public | None = None,
) -> Params:
    """``F_j``, the mean over examples of ``(∂ log p(y|x) / ∂θ_j)²``, of the models of ``ids``.

    On each client's own training data, or on public data. The gradient is squared for each example
    by itself: that of a batch's mean, squared, is another and smaller thing.
    """

    def squares(params: Params, x: Tensor, y: Tensor, real: Tensor) -> Params:
        def one(params: Params, x: Tensor, y: Tensor) -> Tensor:
            return task.losses(task.predict(params, x.unsqueeze(0)), y.unsqueeze(0)).sum()

        each = vmap(grad(one), in_dims=(None, 0, 0))(params, x, y)
        return tree.map(lambda g: torch.tensordot(real, g.square(), dims=1), each)

    clients = len(ids)
    if public is None:
        rows, real = padded_rows(fed.train, ids)
        x, y = fed.x, fed.y_train
    else:
        x, y = torch.as_tensor(public[0]).to(fed.x), torch.as_tensor(public[1]).to(fed.y)
        rows = torch.arange(len(x), device=x.device).expand(clients, -1)
        real = torch.ones_like(rows, dtype=torch.bool)
    weight = real.to(torch.float32)
    together = engine.name != "sequential"
    size = max(
        1, (EVAL_BATCH * 10_000) // (tree.count(models) if together else tree.count(task.params))
    )
    total = tree.zeros(models)
    for piece in torch.split(torch.arange(rows.shape[1]), min(size, EVAL_BATCH)):
        r, w = rows[:, piece], weight[:, piece]
        if together:
            found = vmap(squares)(models, x[r], y[r], w)
        else:
            found = tree.stack(
                [squares(tree.row(models, i), x[r[i]], y[r[i]], w[i]) for i in range(clients)]
            )
        total = tree.add(total, found)
    n = weight.sum(1)
    return tree.map(lambda t: t / n.view(-1, *(1,) * (t.dim() - 1)), total)


def fisher_of_union(
    task: Task,
    fed: Federation,
    engine: Engine,
    given: Callable[[Tensor], Params],
    *blocks: Tensor,
) -> Params:
    """``Σ_i n_i F_i / Σ_i n_i``: the mean over the training examples of all, each at its own G.

    ``given`` has the models of each block of clients, stacked; of everybody, without blocks.
    """
    if not blocks:
        size = max(1, BLOCK_BYTES // (4 * tree.count(task.params) * 5))
        blocks = torch.split(torch.arange(len(fed), device=fed.x.device), size)
    n = fed.train.counts().to(fed.x.device, torch.float32)
    total = sum(float(n[ids].sum()) for ids in blocks)
    parts = []
    for ids in blocks:
        own = fisher(task, fed, engine, given(ids), ids)
        p = n[ids] / total
        parts.append(tree.map(lambda f, p=p: torch.tensordot(p.to(f), f, dims=1), own))
    return tree.map(lambda f: f.sum(0), tree.stack(parts))
