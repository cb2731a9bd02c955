"""The loss landscape around a global model: the plane through it and two other models.

As in Garipov, Izmailov, Podoprikhin, Vetrov, Wilson: *Loss surfaces, mode connectivity, and fast
ensembling of DNNs*, NeurIPS 2018, which the SuPerFed dissertation follows (figure 2.4). With the
models w₁, w₂, w₃ as vectors, Gram and Schmidt give an orthonormal basis of the plane,

    u = (w₂ − w₁) / ‖w₂ − w₁‖,    v = (w₃ − w₁) − ⟨w₃ − w₁, u⟩ u, scaled to length one,

and the model at (x, y) is w₁ + x u + y v. The loss there is that on all clients' validation data
together. The barrier between two models is the most by which the loss on the straight line between
them exceeds the line between their losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.progress import Report, silent
from glocal.core.types import Params
from glocal.core.validation import positive_integers
from glocal.data.federation import Federation
from glocal.experiment.repeat import Trained
from glocal.experiment.run import Run
from glocal.methods.specs import calls
from glocal.studies.curves import OWN, ends
from glocal.studies.repeats import about, finished, repeats_of, seed_of
from glocal.training.loop import WORK, Training

CHUNK_BYTES = 1 << 28
"""Bytes of stacked models and their inputs that are held at once."""

EDGE = 11
"""Points on the straight line between two models, ends included."""

POINTS = ("clients", "seeds")

MARGIN = 0.35
"""How far the grid reaches beyond the models, as a share of their extent."""


@dataclass(frozen=True)
class Plane:
    """An origin, two orthonormal directions, and where the three models lie."""

    origin: Params
    u: Params
    v: Params
    points: list[tuple[float, float]]

    def at(self, xy: Tensor) -> Params:
        """The models at points [n, 2], stacked."""

        def model(w: Tensor, u: Tensor, v: Tensor) -> Tensor:
            x, y = (xy[:, i].to(w).view(-1, *(1,) * w.dim()) for i in (0, 1))
            return w + x * u + y * v

        return tree.map(model, self.origin, self.u, self.v)


def plane(first: Params, second: Params, third: Params) -> Plane:
    """The plane through three models."""
    a, b, c = (tree.map(lambda x: x.double(), w) for w in (first, second, third))
    d, e = tree.sub(b, a), tree.sub(c, a)
    x2 = float(tree.sq_norm(d).sqrt())
    u = tree.map(lambda x: x / max(x2, 1e-300), d)
    x3 = float(tree.dot(e, u))
    rest = tree.add(e, u, -x3)
    y3 = float(tree.sq_norm(rest).sqrt())
    if min(x2, y3) <= 1e-6 * max(x2, abs(x3), y3, 1e-300):
        raise GlocalError(
            "the three models lie on a line, so there is no plane through them: choose others."
        )
    u = tree.map(lambda x, like: x.to(like), u, first)
    v = tree.map(lambda x, like: (x / y3).to(like), rest, first)
    return Plane(first, u, v, [(0.0, 0.0), (x2, 0.0), (x3, y3)])


def measured(training: Training, flat: Plane, xy: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and accuracy on pooled validation data at points [n, 2] of the plane."""
    fed, task = training.fed, training.task
    rows = fed.val.rows
    weight = fed.label_counts[rows].double() / fed.label_counts[rows].double().sum()
    size = 4 * (tree.count(task.params) + len(rows) * fed.x[0].numel())
    loss, accuracy = [], []
    for some in torch.split(xy, max(1, CHUNK_BYTES // size)):
        models = flat.at(some.to(fed.x.device))
        look = training.engine.evaluate(
            task.example_metrics, models, fed.x, fed.y, rows.expand(len(some), -1)
        )
        loss.append((look["loss"].double() @ weight).cpu())
        accuracy.append((look["correct"].double() @ weight).cpu())
    return torch.cat(loss), torch.cat(accuracy)


def landscape(
    fed: Federation,
    method: str = "superfed-mm",
    *,
    points: str = "clients",
    size: int = 25,
    report: Report = silent,
    **settings: Any,
) -> dict[str, Any]:
    """Losses and accuracies on a square grid around three models, and the barriers between them.

    With ``points="clients"`` they are the server's model and two clients' own (of a method without
    any: what the two would send next), with ``"seeds"`` the server's model from three seeds. The
    grid has ``size`` points on a side, and reaches beyond the models by a share of their extent.
    """
    positive_integers(size=size)
    if points not in POINTS:
        raise GlocalError(f"points must be clients or seeds, not {points!r}.")
    ((_, train),) = repeats_of(fed, {**settings, "repeats": 1}, report)
    run = train(method)
    training = finished(run).training
    if points == "clients":
        models, names = _clients(run)
    else:
        seeds = (seed_of(settings.get("seed", 0), r) for r in (1, 2))
        models = [run.model, *(train(method, seed=seed).model for seed in seeds)]
        names = ["seed 1", "seed 2", "seed 3"]
    flat = plane(*models)
    xs, ys = _square(flat.points, size)
    grid = torch.cartesian_prod(ys, xs).flip(1)
    loss, accuracy = measured(training, flat, grid)
    at_models = measured(training, flat, torch.tensor(flat.points, dtype=torch.float64))
    return {
        "study": "landscape",
        **about(fed, {**settings, "repeats": 1}),
        "method": method,
        "points": [
            {"name": n, "x": x, "y": y, "loss": float(a), "accuracy": float(b)}
            for n, (x, y), a, b in zip(names, flat.points, *at_models, strict=True)
        ],
        "edges": _edges(training, flat, names),
        "x": xs.tolist(),
        "y": ys.tolist(),
        "loss": loss.view(size, size).tolist(),
        "accuracy": accuracy.view(size, size).tolist(),
    }


def _square(points: Sequence[tuple[float, float]], size: int) -> list[Tensor]:
    """Equal axes, so that a distance looks the same in all directions."""
    ends = [(min(along), max(along)) for along in zip(*points, strict=True)]
    half = max(high - low for low, high in ends) * (0.5 + MARGIN)
    middles = [(low + high) / 2 for low, high in ends]
    return [torch.linspace(m - half, m + half, size, dtype=torch.float64) for m in middles]


def _edges(training: Training, flat: Plane, names: Sequence[str]) -> list[dict[str, Any]]:
    t = torch.linspace(0, 1, EDGE, dtype=torch.float64).unsqueeze(-1)
    edges = []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        a, b = (torch.tensor(flat.points[k], dtype=torch.float64) for k in (i, j))
        loss, accuracy = measured(training, flat, (1 - t) * a + t * b)
        chord = (1 - t[:, 0]) * loss[0] + t[:, 0] * loss[-1]
        edges.append(
            {
                "between": [names[i], names[j]],
                "distance": float((a - b).norm()),
                "barrier": float((loss - chord).max()),
                "loss": loss.tolist(),
                "accuracy": accuracy.tolist(),
            }
        )
    return edges


def _clients(run: Run) -> tuple[list[Params], list[str]]:
    """The server's model and those of the two clients with the most training data."""
    done = finished(run)
    fed = done.training.fed
    if len(fed) < 2:
        raise GlocalError("a plane needs two clients: choose points=seeds.")
    ids = torch.argsort(fed.train.counts(), descending=True, stable=True)[:2]
    base = calls(run.method)[0]
    if base.name in OWN and "shared" not in base.kwargs:
        theirs = tree.row(ends(run)[1], ids)
    elif done.training.one_for_all(done.progress):
        theirs = _sent_next(done, ids)
    else:
        theirs = tree.row(done.models(), ids)
    names = ["server", *(f"client {fed.names[int(i)]}" for i in ids)]
    return [run.model, tree.row(theirs, 0), tree.row(theirs, 1)], names


def _sent_next(done: Trained, ids: Tensor) -> Params:
    """What clients would send in a round that was not run."""
    t, progress = done.training, done.progress
    work = t.round_of(progress, ids, t.key(WORK, progress.round))
    uplink, _ = t.engine.round(work)
    return tree.map(lambda w, step: w + step, work.down["params"], uplink.update)
