"""Who counted how much, round by round, and what those decisions cost.

Each method trains as it would. Before every round the received model's loss is taken at *all*
clients, also those that are not sampled: a simulation can look, the method cannot. With p the
weights that stood before the round and F those losses, the study adds up

- the *objective* ``Σ_t Σ_i p_i F_i``: smaller is better;
- the *decision loss* ``−log(1 + ⟨p, r⟩)``, with responses r of AAggFF's transform, and the *regret*
  against the best p in hindsight, with its bound where a theorem gives one.

What stood before a round: AAggFF's and AFL's p; of a weighting that decides anew in each round,
what it gave the round before, or the shares of examples where not everybody took part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from glocal import rng, server
from glocal.data.federation import Federation
from glocal.decisions import best_fixed, decision_loss, regret
from glocal.engines.base import Work
from glocal.errors import GlocalError, unknown
from glocal.fitting import Order, itself
from glocal.local import Local
from glocal.method import Method, Plan, Stage, as_plan
from glocal.methods import resolve
from glocal.methods.aaggff_d import lipschitz
from glocal.progress import Report, silent
from glocal.responses import TRANSFORMS, responses
from glocal.spec import parse_call, split_plus
from glocal.studies.repeats import about, interval
from glocal.train import Progress, Training

LOOK = 0x100C
"""The key of looking, of which nothing is drawn."""


@dataclass(frozen=True)
class Kind:
    """How a method's losses become responses, and what a theorem says of its regret."""

    transform: str
    high: float
    bound: float | None


def decisions(
    fed: Federation,
    method: str,
    *,
    response: str = "normal",
    report: Report = silent,
    **arguments: Any,
) -> dict[str, Any]:
    """Train ``method`` and add up what its decisions cost.

    Args:
        fed: the clients' data.
        method: a spec; one that follows losses, or any other to compare with.
        response: the transform by which methods without one of their own are judged.
        report: called with progress.
        **arguments: as :func:`glocal.fit` takes them.
    """
    order = Order(**arguments)
    plan = _asking(method)
    kind = kind_of(method, response, order, len(fed))
    seen: list[dict[str, Tensor]] = []
    for r in range(order.repeats):
        here = order.place(fed, r)
        training = order.training(plan, here)
        seen.append(
            _watched(training, lambda t, r=r: report(order.title(method, r), t, order.rounds))
        )
    return {
        "method": method,
        "transform": kind.transform,
        "bound": kind.bound,
        **about(fed, order.repeats, arguments),
        **_sums(seen, kind),
        "names": list(fed.names),
        "weights": seen[0]["p"].tolist(),
        "client_loss": seen[0]["F"].mean(0).tolist(),
    }


def _sums(seen: list[dict[str, Tensor]], kind: Kind) -> dict[str, Any]:
    """Over rounds, of each repeat; curves are means over repeats."""
    objective, suffered, best, regrets = [], [], [], []
    for one in seen:
        p, F = one["p"], one["F"]
        r = torch.stack(
            [
                responses(row, kind.transform, kind.high, m)
                for row, m in zip(F, one["mean"], strict=True)
            ]
        )
        objective.append((p * F).sum(1).cumsum(0))
        suffered.append(decision_loss(p, r).cumsum(0))
        best.append(float(decision_loss(best_fixed(r), r).sum()))
        regrets.append(regret(p, r))

    def curve(rows: list[Tensor]) -> list[float]:
        return [float(x) for x in torch.stack(rows).mean(0)]

    return {
        "objective": interval([float(x[-1]) for x in objective]),
        "decision_loss": interval([float(x[-1]) for x in suffered]),
        "best_fixed": interval(best),
        "regret": interval([float(x[-1]) for x in regrets]),
        "curves": {"objective": curve(objective), "regret": curve(regrets)},
    }


def kind_of(method: str, response: str, order: Order, clients: int) -> Kind:
    """AAggFF's own transform and range; the given one, over [0, 1/K], for everybody else."""
    if response not in TRANSFORMS:
        raise unknown("transform", response, TRANSFORMS)
    share = order.sampled / clients if order.sampled else order.fraction
    K, T = clients, order.rounds
    for part in split_plus(method):
        name, args, kwargs = parse_call(part)
        transform = str(kwargs.get("transform", args[0] if args else "normal"))
        if name == "aaggff-s":
            return Kind(transform, 1 / K, 2 * (1 + math.log(1 + T / (16 * K))))
        if name == "aaggff-d":
            constant = 1.0 if share == 1 else lipschitz(share)
            return Kind(transform, share, 2 * constant * math.sqrt(T * math.log(K)))
    return Kind(response, 1 / K, None)


def _asking(spec: str) -> Plan:
    """The method, its clients asked for their losses whether it needs them or not."""
    plan = as_plan(resolve(spec))
    if itself(plan) is not None:
        raise GlocalError("local has no server and decides nothing: leave it out.")

    def asked(method: Method) -> Method:
        return method.replace(weighting=replace(method.weights, needs_loss=True))

    return Plan(tuple(Stage(asked(s.method), s.rounds, s.goal, s.name) for s in plan.stages))


@dataclass(frozen=True)
class _Looking:
    """A client that receives, looks, and does not train."""

    local: Local

    phases = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.local, name)


def _watched(training: Training, tick: Any) -> dict[str, Tensor]:
    """All rounds: p as it stood, everybody's loss, and the mean loss of those who took part."""
    progress = training.begin(training.task.params)
    everyone = torch.arange(len(training.fed), device=training.fed.x.device)
    n = training.fed.train.counts().to(torch.float64)
    static = last = n / n.sum()
    rows: list[tuple[Tensor, Tensor, Tensor]] = []
    while progress.round < training.rounds:
        weights = training.method(progress).weights
        standing = weights.standing
        p = standing(progress.server["weighting"], everyone) if standing else last
        F = _losses(training, progress, everyone)
        training.one_round(progress)
        tick(progress.round)
        if progress.decision is None:  # nobody came
            continue
        ids, given = progress.decision.ids.cpu(), progress.decision.weights.cpu()
        last = static
        if len(ids) == len(everyone):
            last = torch.zeros_like(static).index_copy(0, ids, (given / given.sum()).to(static))
        rows.append((p.cpu(), F, F[ids].mean()))
    p, F, mean = (torch.stack(column) for column in zip(*rows, strict=True))
    return {"p": p, "F": F, "mean": mean}


def _losses(training: Training, progress: Progress, everyone: Tensor) -> Tensor:
    """The loss, at every client, of the model it would now receive."""
    method = training.method(progress)
    local = method.client_half(training.task)
    make = training.make(progress, local)
    ids, kept = progress.clients.saved()
    store = type(progress.clients).restored(len(everyone), ids, kept, training.fed.x.device)
    work = Work(
        task=training.task,
        local=_Looking(local),
        fed=training.fed,
        down=server.broadcast(method, progress.server, progress.round, training.setting),
        ids=everyone,
        states=store.gather(everyone, make),
        key=rng.key(LOOK, training.fed.x.device),
        needs_loss=True,
    )
    loss = training.engine.round(work)[0].loss
    if loss is None:
        raise RuntimeError("an engine that was asked for losses gave none")
    return loss.cpu().to(torch.float64)
