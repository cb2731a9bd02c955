"""*New test*: all clients' models together on data of unknown origin.

Whose data it is decides which model to use, and here nobody knows. Liang et al., *Think locally,
act globally: federated learning with local and global representations*, 2020, send every client's
model to the server once and average the logits. So with f_i client i's model (the one chosen on its
validation data) and w_i its weights, the answer to x is the largest entry of

    Σ_i f_i(x)                  ``logits``,
    f(x; Σ_i w_i / K)           ``weights``,
    Σ_i one-hot(argmax f_i(x))  ``vote``; of classes with equally many, the one of larger logits.

Every client counts once, and so does every example. With one global model all three are that model.
Weights of different architectures have no mean: then there are the other two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.engines.base import Engine
from glocal.evaluation import metrics, paired_test
from glocal.evaluation.evaluate import CHUNK_BYTES
from glocal.nn.architectures import Architectures, sent_by
from glocal.nn.task import Task
from glocal.training.loop import Training
from glocal.training.run_state import Progress

if TYPE_CHECKING:
    from glocal.experiment.repeat import Trained

KINDS = ("logits", "weights", "vote")

Chosen = Callable[[Tensor], Params]
"""Client ids to the models they predict with, stacked."""


def new_test(
    trained: Trained,
    x: Tensor | None = None,
    y: Tensor | None = None,
    *,
    against: Trained | None = None,
) -> dict[str, Any]:
    """Accuracy of the ensembles of a training's models, and what sending them once costs.

    Args:
        trained: ``run.trained`` of :func:`glocal.fit`.
        x: inputs of unknown origin; all clients' test examples by default.
        y: their labels.
        against: another training, to be compared on the same examples.

    Returns:
        ``logits``, ``weights`` and ``vote``; ``params_up``, the numbers that clients send up once,
        on top of the training's traffic; with ``against``, the paired comparison of each.
    """
    t = trained.training
    x, y = _examples(t, x, y)
    marks = _marks(trained, x, y)
    found: dict[str, Any] = {kind: float(each.mean()) for kind, each in marks.items()}
    found["params_up"] = sent_by(t.task, len(t.fed), own_names(t, trained.progress))
    if against is not None:
        theirs = _marks(against, x, y)
        verdicts = {kind: paired_test.compare(marks[kind], theirs[kind]) for kind in marks}
        found["against"] = {
            kind: {"difference": v.benefit, "low": v.low, "high": v.high, "verdict": v.verdict}
            for kind, v in verdicts.items()
        }
    return found


def own_models(task: Task, fed: Federation, engine: Engine, models: Chosen) -> dict[str, Any]:
    """The same of models each of which is its client's own throughout."""
    x, y = fed.x[fed.test.rows], fed.y[fed.test.rows]
    marks = ensemble(task, engine, models, len(fed), x, y)
    figures = {kind: float(each.mean()) for kind, each in marks.items()}
    return {**figures, "params_up": sent_by(task, len(fed), set(task.names))}


def mean(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over repeats."""
    kinds = [kind for kind in KINDS if kind in found[0]]
    figures = {kind: sum(f[kind] for f in found) / len(found) for kind in kinds}
    return {**figures, "params_up": round(sum(f["params_up"] for f in found) / len(found))}


def own_names(training: Training, progress: Progress) -> set[str]:
    """The parameters of a client's model that depend on what it keeps: the server lacks those.

    Private layers, a whole personal model, or nothing, where all clients have the same model; a
    state that no model is made of (SCAFFOLD's control variates) is none of these.
    """
    method = training.method(progress)
    local = method.client_half(training.task, training.setting.schema)
    down = method.broadcast(progress.server, progress.round, training.setting)
    state = training.make(progress, local)(0)
    moved = tree.map(lambda v: v + 1 if v.is_floating_point() else v, state)
    with torch.no_grad():
        plain = local.candidates(training.task, down, state)
        other = local.candidates(training.task, down, moved)
    return {
        name
        for candidate, model in plain.items()
        for name, leaf in model.items()
        if not torch.equal(leaf, other[candidate][name])
    }


def ensemble(
    task: Task,
    engine: Engine,
    chosen: Chosen,
    clients: int,
    x: Tensor,
    y: Tensor,
    chunk: int | None = None,
) -> dict[str, Tensor]:
    """How right each example is under each kind of ensemble.

    Clients and examples go through in pieces, so that memory does not grow with their product.
    """
    size, largest, unequal = task.size, task.largest(), isinstance(task, Architectures)
    shape = largest.predict(largest.params, x[:1]).shape[1:]
    width = shape.numel()
    piece = max(1, min(len(x), CHUNK_BYTES // (8 * width)))
    chunk = chunk or max(1, CHUNK_BYTES // (8 * (size + piece * width)))
    everything = torch.arange(len(x), device=x.device)
    weights: Params = {}
    # In double precision, so that how clients are cut into pieces does not show.
    logits = torch.zeros(len(x), *shape, dtype=torch.float64, device=x.device)
    votes = torch.zeros_like(logits, dtype=torch.int64)
    for ids in torch.split(torch.arange(clients, device=x.device), chunk):
        models = chosen(ids)
        if not unequal:
            total = tree.map(lambda w: w.double().sum(0), models)
            weights = tree.add(weights, total) if weights else total
        for rows in torch.split(everything, piece):
            several = rows.expand(len(ids), -1)
            predict = task.of_clients(ids).example_logits
            each = engine.evaluate(predict, models, x, y, several)["logits"]
            logits[rows] += each.double().sum(0)
            votes[rows] += torch.nn.functional.one_hot(each.argmax(-1), shape[-1]).sum(0)
    first = votes == votes.amax(-1, keepdim=True)
    by_vote = torch.where(first, logits, -torch.inf)
    found = {"logits": metrics.correct(logits, y), "vote": metrics.correct(by_vote, y)}
    if unequal:
        return found
    average = {k: (v / clients).to(task.params[k].dtype).unsqueeze(0) for k, v in weights.items()}
    every = everything.unsqueeze(0)
    merged = engine.evaluate(task.example_logits, average, x, y, every)["logits"][0]
    return {**found, "weights": metrics.correct(merged, y)}


def _marks(trained: Trained, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    t = trained.training
    # Where everybody's model is the same, one of them answers for all.
    first = torch.arange(1, device=t.fed.x.device)
    same = t.one_for_all(trained.progress) and len(t.models(trained.progress)(first)) == 1
    return ensemble(t.task, t.engine, trained.models, 1 if same else len(t.fed), x, y)


def _examples(t: Training, x: Tensor | None, y: Tensor | None) -> tuple[Tensor, Tensor]:
    if (x is None) != (y is None):
        raise GlocalError("the new test needs inputs and their labels: give x and y, or neither.")
    if x is None or y is None:
        return t.fed.x[t.fed.test.rows], t.fed.y[t.fed.test.rows]
    if len(x) != len(y) or not len(x):
        raise GlocalError(
            f"x has {len(x)} examples and y has {len(y)} labels: give one for each, and some."
        )
    return x.to(t.fed.x), y.to(t.fed.y)
