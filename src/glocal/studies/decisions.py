"""Who counted how much, round by round, and what those decisions cost.

Hahn's dissertation, ch. III, figure 3.1: the cumulative objective of AAggFF by response transform.
Each method trains as it would. Before every round the loss F of the model that goes out is taken at
*all* clients, also at those not sampled: a simulation can look, the method cannot. With p the
weights that stood before the round the study adds up

- the *objective* ``Σ_t Σ_{i∈S(t)} p_i F_i`` over the clients S(t) that took part, as the figure has
  it where clients are sampled, and ``objective_of_all``, where the sum is over all of them;
- the *decision loss* ``−log(1 + ⟨p, r⟩)``, with r the losses as responses
  (:mod:`glocal.methods.support.loss_responses`), and the *regret* against the best p in hindsight.

What stood before a round: AAggFF's and AFL's p. Other weightings decide anew in each round, and
what stands is what they gave the round before; where clients were absent, what everybody would have
got for the losses there, and before the first round for equal ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.progress import NO_TICK, Report, Tick, silent
from glocal.core.types import Params, Uplink
from glocal.data.federation import Federation
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import LocalOnly, runner_of
from glocal.experiment.setup import Setup
from glocal.methods.aaggff_d import lipschitz
from glocal.methods.specs import calls
from glocal.methods.support.loss_responses import TRANSFORMS, responses, transform_of
from glocal.methods.support.simplex import lowest
from glocal.slots.weighting import losses
from glocal.studies.repeats import about, all_ids, interval, unique_specs
from glocal.training.loop import Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fraction


@dataclass(frozen=True)
class Game:
    """How a method's losses become responses, and what a theorem says of its regret."""

    transform: str
    high: float
    """Responses are up to this."""
    bound: float | None
    low: float = 0.0
    """And from this on."""
    alpha: float | None = None
    beta: float | None = None
    """Parameters of the transform, where they are not its own."""


@dataclass(frozen=True)
class Seen:
    """A training as it was observed: T rounds of K clients."""

    p: Tensor
    """[T + 1, K]: the weights that stood before each round, and after the last."""
    F: Tensor
    """[T, K]: the loss, at everybody, of the model that went out."""
    there: Tensor
    """[T, K]: whether the client took part."""
    mean: Tensor
    """[T]: of the losses the mean over the clients that took part."""


def decisions(
    fed: Federation,
    method: str,
    *,
    response: str = "normal",
    report: Report = silent,
    **settings: Any,
) -> dict[str, Any]:
    """Train ``method``, a spec that follows losses or any other, and add up what it decides.

    ``response`` is the transform by which methods without one of their own are evaluated.
    """
    config = Config(**settings)
    seen = []
    for r in range(config.repeats):
        setup = setups.make(config, fed, r)
        training = _training(method, setup)
        game = game_of(method, response, training)
        with setup.threads():
            tick = partial(report, setup.title(method))
            seen.append(watch(training, training.begin(setup.task.params), tick))
    costs = [_costs(training, game) for training in seen]
    # Who counted how much in the first repeat, and for what loss.
    weights, loss = seen[0].p[1:], seen[0].F.mean(0).tolist()
    return {
        "study": "decisions",
        **about(fed, settings),
        "method": method,
        **asdict(game),
        **{k: interval([float(cost[k].flatten()[-1]) for cost in costs]) for k in costs[0]},
        "curves": {k: [cost[k].tolist() for cost in costs] for k in ("objective", "regret")},
        "names": list(fed.names),
        "weights": weights.tolist(),
        "client_loss": loss,
        "rank_correlation": rank_correlation(loss, weights.mean(0).tolist()),
    }


def decisions_of(
    methods: Sequence[str] | None,
    fed: Federation,
    default: Callable[[bool], list[str]],
    *,
    report: Report = silent,
    response: str = "normal",
    **settings: Any,
) -> list[dict[str, Any]]:
    """The decisions of each method; all methods are checked before one trains.

    ``default`` gives the methods where none are named, for all clients in every round or not.
    """
    fraction, sampled = settings.get("fraction", 1.0), settings.get("sampled")
    specs = unique_specs(methods or default(everybody(len(fed), fraction, sampled)))
    for spec in specs:
        check(fed, spec, response=response, **settings)
    return [decisions(fed, m, response=response, report=report, **settings) for m in specs]


def check(fed: Federation, method: str, *, response: str = "normal", **settings: Any) -> None:
    """Raise, before anything is trained, if :func:`decisions` could not be taken."""
    config = Config(**settings)
    game_of(method, response, _training(method, setups.make(config, fed, 0)))


def by_transform(everybody: bool) -> list[str]:
    """AAggFF under its six transforms, its own default first."""
    name = "aaggff-s" if everybody else "aaggff-d"
    return [f"{name}(transform={t})" for t in sorted(TRANSFORMS, key=lambda t: t != "normal")]


def weighted(everybody: bool) -> list[str]:
    """A few ways to weigh, without those that need everybody where clients are sampled."""
    return ["fedavg", "term", *(["afl", "aaggff-s"] if everybody else []), "aaggff-d"]


def everybody(clients: int, fraction: float, sampled: int | None) -> bool:
    """Whether every client is in every round."""
    return sampled == clients if sampled else Fraction(fraction).share(clients) == 1


def game_of(method: str, response: str, training: Training) -> Game:
    """AAggFF's own transform and range; for everybody else ``response`` and what AAggFF has there.

    The theorems are about one sequence of decisions, and a plan's stages begin anew.
    """
    transform_of(response)
    K, C, T = (getattr(training.setting, k) for k in ("clients", "fraction", "rounds"))
    whole = len(training.plan.stages) == 1
    for part in calls(method):
        name, args = part.name, part.args
        kwargs: dict[str, Any] = dict(part.kwargs)  # what numbers they are, the method has checked
        transform = str(kwargs.get("transform", args[0] if args else "normal"))
        low, shape = float(kwargs.get("c1", 0)), (kwargs.get("alpha"), kwargs.get("beta"))
        if name == "aaggff-s":
            high = float(kwargs.get("c2", 1 / K))
            bound = 2 * high / (1 + low) * K * (1 + math.log(1 + T / (16 * K)))
            return Game(transform, high, bound if whole else None, low, *shape)
        if name == "aaggff-d":
            high = float(kwargs.get("c2", C))
            bound = 2 * lipschitz(C, low, high) * math.sqrt(T * math.log(K))
            return Game(transform, high, bound if whole else None, low, *shape)
    return Game(response, 1 / K if C == 1 else C, None)


def _training(method: str, setup: Setup) -> Training:
    """The training to observe; raises if it has no decisions, or some that nobody can know."""
    runner = runner_of(method, method)
    if isinstance(runner, LocalOnly):
        raise GlocalError("local has no server and decides nothing: leave it out.")
    training = runner.check(setup)
    for weights in (stage.method.weights for stage in runner.plan.stages):
        if weights.standing is None and training.setting.fraction < 1:
            weights.weigh(weights.init(training.setting), _uplink(training, None, _Unsent()))
    return training


class _Unsent(dict[str, Tensor]):
    """The updates of clients that did not train: asking for them raises."""

    def items(self) -> Any:
        raise GlocalError(
            "what the absent would count for cannot be known where weights follow the updates "
            "that clients send (grad-norm, fedmgda): study these with every client in every round."
        )


def watch(
    training: Training,
    progress: Progress,
    tick: Tick = NO_TICK,
) -> Seen:
    """Train all rounds that are left and observe them; they come out as they would have."""
    p, F, there, mean = [_standing(training, progress)], [], [], []
    while progress.round < training.rounds:
        F.append(_losses(training, progress))
        training.one_round(progress)
        p.append(_standing(training, progress, F[-1]))
        took_part = torch.zeros(len(training.fed), dtype=torch.bool)
        if progress.decision is not None:
            took_part[progress.decision.ids.cpu()] = True
        there.append(took_part)
        mean.append(F[-1][took_part if bool(took_part.any()) else ~took_part].mean())
        tick(progress.round, training.rounds)
    return Seen(torch.stack(p), torch.stack(F), torch.stack(there), torch.stack(mean))


def _standing(training: Training, progress: Progress, F: Tensor | None = None) -> Tensor:
    """``p`` of everybody as things stand; ``F`` are the losses of the round that was last."""
    weights, state = training.method(progress).weights, progress.server["weighting"]
    uplink = _uplink(training, F, {})
    if weights.standing is not None:
        return weights.standing(state, uplink.ids).cpu()
    last = progress.decision
    if last is not None and len(last.ids) == len(training.fed):
        p = last.weights
    else:
        p = weights.weigh(state, uplink)[0]
    # A weighting may have a step of its own length, none if nobody has moved.
    p = (p if float(p.sum()) > 0 else uplink.n).cpu().to(torch.float64)
    return p / p.sum()


def _uplink(training: Training, F: Tensor | None, update: Params) -> Uplink:
    """What everybody would have sent, as far as it is known."""
    n = training.fed.train.counts()
    loss = torch.zeros(len(n), dtype=torch.float64) if F is None else F
    return Uplink(all_ids(training.fed), n, update, loss, {})


def _losses(training: Training, progress: Progress) -> Tensor:
    """The loss, at every client, of the model it would now receive."""
    ids = all_ids(training.fed)
    work = training.round_of(progress, ids, key=rng.key(0, ids.device))  # nothing is drawn of it
    # Clients look at what they receive, and neither train nor send.
    looking = work.local.replace(
        phases=(),
        start=lambda task, down, client: {},
        finish=lambda task, down, carry: ({}, {}, {}),
    )
    return losses(training.engine.round(replace(work, local=looking, needs_loss=True))[0])


def _costs(seen: Seen, game: Game) -> dict[str, Tensor]:
    """What one repeat's decisions cost; of the objective and the regret, after each round."""
    p, rounds = seen.p[:-1], zip(seen.F, seen.mean, strict=True)
    cdf = transform_of(game.transform, game.alpha, game.beta)
    r = torch.stack([responses(F, cdf, game.high, mean, game.low) for F, mean in rounds])
    return {
        "objective": (p * seen.F * seen.there).sum(1).cumsum(0),
        "objective_of_all": (p * seen.F).sum(1).sum(),
        "decision_loss": decision_loss(p, r).sum(),
        "best_fixed": decision_loss(best_fixed(r), r).sum(),
        "regret": regret(p, r),
        "heaviest": seen.p[-1].max(),
    }


def decision_loss(p: Tensor, r: Tensor) -> Tensor:
    """``−log(1 + ⟨p, r⟩)``, a row of each to a number."""
    return -torch.log1p((p * r).sum(-1))


def best_fixed(r: Tensor) -> Tensor:
    """The p that suffers least from all responses ``r`` [T, K] together.

    Newton's method: each step is a quadratic on the simplex, shortened until the loss falls.
    """
    r = r.to(torch.float64)
    p = torch.full_like(r[0], 1 / r.shape[1])
    now = float(decision_loss(p, r).sum())
    for _ in range(100):
        scaled = r / (1 + r @ p).unsqueeze(1)
        slope, curve = -scaled.sum(0), scaled.T @ scaled
        way = lowest(curve, slope - curve @ p) - p
        falls = float(slope @ way)
        if falls > -1e-12:
            break
        length = 1.0
        while length > 1e-10:
            after = float(decision_loss(p + length * way, r).sum())
            if after <= now + 0.25 * length * falls:
                break
            length /= 2
        else:
            break
        p, now = p + length * way, after
    return p


def regret(p: Tensor, r: Tensor) -> Tensor:
    """[T] after each round: what decisions ``p`` [T, K] suffered more than the best fixed one.

    The best one is that of all T rounds, so only the last value is the regret of theorems; those
    before it show the way there, and may be below zero.
    """
    r = r.to(torch.float64)
    return (decision_loss(p, r) - decision_loss(best_fixed(r), r)).cumsum(0)


def rank_correlation(x: list[float], y: list[float]) -> float | None:
    """Spearman's: 1 if whoever has more of one has more of the other; none if all are alike."""
    import numpy as np
    from scipy.stats import rankdata

    # What differs by rounding alone is alike.
    ranks = [rankdata(np.round(np.asarray(v) / (max(v) or 1), 9)) for v in (x, y)]
    if any(np.ptp(r) == 0 for r in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])
