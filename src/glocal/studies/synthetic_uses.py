"""What synthetic data is good for: a warm start, a public set, a filling for poor clients.

Every use is set against the same training without the examples, with the same seed, on the same
clients and test data: federated rounds from a warm start (:func:`warm_start`), the examples as a
public set (:func:`with_public_fisher`, :func:`distilled`), or as clients' data (:func:`fill_up`).

The examples come from training data alone, so validation and test data of the split that the run
had are as good as new. In other folds they are not: what was trained on is tested there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError, unknown
from glocal.core.progress import NO_TICK, Tick
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.data.schema import Schema, numeric_schema
from glocal.data.split import from_counts
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.summary import client_table
from glocal.evaluation.synthetic_data import train_classifier
from glocal.evaluation.trials import Trial
from glocal.experiment.adaptation import Technique, distill, ewc
from glocal.experiment.adapted_clients import adapt_clients, compose
from glocal.experiment.repeat import Trained, evaluate_trained
from glocal.experiment.setup import Setup, measured
from glocal.methods.local import LocalTraining
from glocal.studies.retraining import changed
from glocal.training.loop import Training
from glocal.training.run_state import Progress

START = -4
"""Child of the seed's key for the model that a warm start begins at."""

USES = ("warm-start", "public", "fill-up")

FILL = ("own", "all")
"""Of which classes a client is given examples: of those it trains on, or of all."""


@dataclass(frozen=True)
class Use:
    """What was done with the examples, set against the same without."""

    without: Outcome
    with_it: Outcome
    clients: tuple[int, ...]
    """The clients that it is about."""


@dataclass(frozen=True)
class Warm:
    """The same rounds from two starts."""

    cold: Trained
    after: dict[int, Use]
    """By round: the first and the last."""
    longer: Use | None
    """The last, against the usual start and as many rounds more as the examples took."""


def start(training: Training, x: Tensor, y: Tensor) -> Params:
    """The model, newly drawn and trained on the examples alone, as they are evaluated."""
    return train_classifier(training.task, x, y, training.key(START, 0)).w


def warm_start(training: Training, begin: Params, more: int = 0, tick: Tick = NO_TICK) -> Warm:
    """All rounds of a training from its usual start, and again from ``begin``.

    And with ``more``, the rounds that the examples took, so many longer from the usual start: what
    the federation could have had for them.
    """
    rounds, usual = training.rounds, training.task.params
    total = 2 * rounds + (rounds + more if more else 0)
    cold, was = _rounds(training, usual, lambda r: tick(r, total))
    _, now = _rounds(training, begin, lambda r: tick(rounds + r, total))
    everyone, longer = tuple(range(len(training.fed))), None
    if more:
        long = replace(training, rounds=rounds + more)
        _, then = _rounds(long, usual, lambda r: tick(2 * rounds + r, total))
        longer = Use(then[long.last], now[training.last], everyone)
    return Warm(cold, {r: Use(was[r], now[r], everyone) for r in now}, longer)


def _rounds(
    training: Training, begin: Params, tick: Callable[[int], None]
) -> tuple[Trained, dict[int, Outcome]]:
    """The training that is over, and what it came to after its first and last round."""
    outcomes: dict[int, Outcome] = {}

    def look(done: Progress) -> None:
        tick(done.round)
        if done.round in (1, training.last):
            outcomes[done.round] = evaluate_trained(Trained(training, done), training.fed)[0]

    progress = training.run(training.begin(begin), look)
    return Trained(training, progress), outcomes


def with_public_fisher(setup: Setup, given: Params, x: Tensor, y: Tensor, **settings: Any) -> Use:
    """Clients adapt ``given`` (stacked) by ewc: Fisher information of the examples, or of own data.

    ``settings`` are as :func:`glocal.experiment.adaptation.ewc` takes them.
    """
    own, public = (ewc(fisher=of, **settings) for of in ("own", "public"))
    return Use(
        _adapted(setup, setup.fed, own, given),
        _adapted(setup, setup.fed, public, given, (x, y)),
        tuple(range(len(setup.fed))),
    )


def distilled(setup: Setup, given: Params, x: Tensor, y: Tensor, **settings: Any) -> Use:
    """Clients adapt ``given`` by distillation: on own data and the examples, or on own data.

    The teacher is the model that was given, and the student starts there; on every example of
    either kind it learns the label, and what the teacher says with a weight of ``alpha``.
    ``settings`` are as :func:`glocal.experiment.adaptation.distill` takes them.
    """
    everyone, technique = tuple(range(len(setup.fed))), distill(**settings)
    more = filled(setup.fed, x, y, everyone, "all")
    return Use(
        _adapted(setup, setup.fed, technique, given),
        _adapted(setup, more, technique, given),
        everyone,
    )


def _adapted(
    setup: Setup,
    fed: Federation,
    technique: Technique,
    given: Params,
    public: tuple[Tensor, Tensor] | None = None,
) -> Outcome:
    where, models = (setup.task, fed, setup.engine), partial(tree.row, given)
    return adapt_clients(*where, [technique], models, setup.seed, public=public).outcome


def poor(fed: Federation) -> tuple[int, ...]:
    """Clients with fewer training examples than the median has."""
    n = fed.train.counts().cpu().double()
    return tuple((n < n.quantile(0.5)).nonzero().flatten().tolist())


def filled(
    fed: Federation, x: Tensor, y: Tensor, clients: Sequence[int], classes: str = "own"
) -> Federation:
    """The federation with the examples among the training data of ``clients``.

    Each gets those of the classes that it trains on; with ``classes="all"``, every one. Nothing
    else changes: validation and test data are the same rows. Evaluate by the federation as
    it was: label shares, which weigh pooled test data, are counted in training data.
    """
    if classes not in FILL:
        raise unknown("choice of classes", classes, FILL)
    numeric_schema(Schema.of(fed), "filling up")
    if strangers := [k for k in clients if not 0 <= k < len(fed)]:
        raise GlocalError(f"there is no client {strangers[0]} among {len(fed)} to fill up.")
    x, y = x.to(fed.x), y.to(fed.y)
    chosen, rows = set(clients), []
    for k in range(len(fed)):
        rows.append(fed.train.of(k))
        if k in chosen:
            given = torch.arange(len(y), device=y.device)
            if classes == "own":
                given = given[torch.isin(y, fed.y_train[rows[k]])]
            rows[k] = torch.cat([rows[k], len(fed.x) + given])
    counts = torch.tensor([len(part) for part in rows], device=fed.train.start.device)
    unit = fed.unit
    if unit is not None:  # a synthetic example belongs to no group
        unit = torch.cat([unit, int(unit.max()) + 1 + torch.arange(len(y), device=unit.device)])
    return replace(
        fed,
        unit=unit,
        x=torch.cat([fed.x, x]),
        y=torch.cat([fed.y, y]),
        y_train=torch.cat([fed.y_train, y]),
        train=from_counts(torch.cat(rows), counts),
        describe={**fed.describe, "filled_up": [fed.names[k] for k in sorted(chosen)]},
        unsplit=None,  # cut anew, the examples would be gone
        attributes=None,  # synthetic examples have none
    )


def fill_up(
    setup: Setup,
    alone: LocalTraining,
    x: Tensor,
    y: Tensor,
    *,
    classes: str = "own",
    tick: Tick = NO_TICK,
) -> Use:
    """The :func:`poor` clients train alone with the examples among their data.

    Both models are chosen on the client's own validation data, by the rules of the local baseline.
    """
    chosen = poor(setup.fed)
    _, without = measured(setup, alone, tick)
    if not chosen:
        return Use(without, without, ())
    more = filled(setup.fed, x, y, chosen, classes)
    place = replace(setup, fed=more, digest=f"{setup.digest} filled up {more.fingerprint}")
    _, filled_up = measured(place, alone, tick)
    # Who was given nothing trains as before, but with others' padding rounds otherwise.
    whose = [filled_up if k in set(chosen) else without for k in range(len(setup.fed))]
    return Use(without, compose(whose), chosen)


def figures(fed: Federation, use: Use, alone: Outcome) -> dict[str, Any]:
    """A use in numbers: its clients' mean accuracy without and with, and who is better off.

    ``change`` has Student's paired interval over clients. ``better`` and ``worse`` are clients for
    whom an exact paired test at 90 % says so, against the same without the examples;
    ``better_off`` and ``worse_off`` against being alone, [without, with].
    """
    if not use.clients:
        return {"clients": []}
    compared = changed(fed, use.without, use.with_it, use.clients)
    off = [changed(fed, alone, outcome, use.clients) for outcome in (use.without, use.with_it)]
    names = {"local_accuracy": "without", "accuracy": "with", "benefit": "difference"}
    shown = ("client", "n_train", *names, "low", "high")
    rows = client_table([Trial(fed, use.with_it, use.without)])
    return {
        **compared,
        "verdict": verdict(compared["change"]),
        "better_off": [each["better"] for each in off],
        "worse_off": [each["worse"] for each in off],
        "each": [
            {names.get(key, key): row[key] for key in shown}
            | {"verdict": row["verdict"].removesuffix(" off")}
            for row in (rows[k] for k in use.clients)
        ],
    }


def verdict(change: dict[str, Any]) -> str:
    """Whether an interval of a difference leaves zero out, in a word."""
    low, high = change["low"], change["high"]
    if low is None or low <= 0 <= high:
        return "not shown"
    return "better" if low > 0 else "worse"
