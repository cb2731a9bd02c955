"""*New client*: one that was not there in training joins. What does it get, what do others lose?

Liang et al., *Think locally, act globally: federated learning with local and global
representations*, 2020, section 5.4, train on 100 devices and let one with rotated images join. A
method is trained by the old clients alone. Then the newcomer is judged on its own test split, and
every old client on its test data, at four stages:

1. *at once*: what the server sends, private layers as they began;
2. *own training*: after ``own_epochs`` passes over its own data, of which nothing is sent. Private
   layers train under the shared ones, which are held; a global model trains whole;
3. *joined*: after ``join_rounds`` rounds with a ``fraction`` of the old clients. At ``fraction`` 0
   the newcomer alone moves what is shared, and the old clients use it with what they keep;
4. *alone*: its yardstick, what it could do without any of them.

Both the newcomer's benefit and each old client's change are paired on the same test examples.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.progress import Report, reporter
from glocal.core.validation import positive_integers
from glocal.data.federation import Federation
from glocal.evaluation.evaluate import Models, Outcome, outcomes
from glocal.evaluation.summary import pool_is_valid
from glocal.experiment import parts
from glocal.experiment import setup as setups
from glocal.experiment.config import Config, check_known
from glocal.experiment.repeat import Trained
from glocal.methods import resolve
from glocal.methods.local import LocalTraining
from glocal.slots.method import Method, Plan, as_plan
from glocal.studies.newcomer import arrival
from glocal.studies.newcomer.result import Joined, Seen, collect
from glocal.training.loop import Training
from glocal.training.sampling import Fraction

SETTINGS = (
    "rounds",
    "seed",
    "model",
    "engine",
    "device",
    "init",
    "losses",
    "augment",
    "baseline",
    "precision",
)
"""Those of :func:`glocal.fit` that mean the same here."""


def join(
    method: str | Method | Plan,
    fed: Federation,
    *,
    client: str | int = -1,
    own_epochs: int = 20,
    join_rounds: int = 10,
    fraction: float = 0.0,
    train_fraction: float = 1.0,
    seeds: int = 1,
    progress: bool | Report | None = None,
    name: str | None = None,
    **settings: Any,
) -> Joined:
    """Train without ``client``, let it join, and evaluate it and all others.

    Args:
        method: a spec such as ``"lg-fedavg"``, a Method, or a Plan of stages.
        fed: all clients' data, the newcomer's too.
        client: who joins, by name or index; the last by default.
        own_epochs: the newcomer's passes over its own data before it sends anything.
        join_rounds: rounds in which it takes part.
        fraction: share of old clients in those; 0 is none of them.
        train_fraction: share of old clients in a round before.
        seeds: how often to repeat on another split and seed of the same clients.
        progress: show bars: on a terminal by default; or a function (what, done, total).
        name: what to call the run; the spec as typed by default.
        settings: as :func:`glocal.fit` takes them: rounds, seed, model, engine, device, init,
            losses, augment, baseline.
    """
    check_known(settings, SETTINGS)
    config = Config(**settings)
    rounds = config.rounds
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    name = name or (method if isinstance(method, str) else "method")
    if any(isinstance(stage.method.local, LocalTraining) for stage in plan.stages):
        raise GlocalError(
            f"with {name} there is nothing to join: leave it out, every newcomer is set against "
            "what it could do alone."
        )
    if any(stage.method.privacy for stage in plan.stages):
        raise GlocalError(
            f"what joining costs in privacy is not accounted for, so {name} would promise too "
            "much: leave the privacy out."
        )
    positive_integers(join_rounds=join_rounds, seeds=seeds)
    if own_epochs != 0:
        positive_integers(own_epochs=own_epochs)
    if not 0 <= fraction <= 1:
        raise GlocalError(f"the fraction of old clients must be from 0 to 1, not {fraction}.")
    who = fed.names[arrival.place(fed, client)]
    sampler = Fraction(train_fraction)
    alone = parts.baseline(config.baseline)
    found: list[Seen] = []
    with reporter(progress) as report:
        for r in range(seeds):
            suffix = f" ({r + 1} of {seeds})" if seeds > 1 else ""
            here = setups.make(config, fed, r)
            for stage in plan.stages:
                stage.method.shared_names(here.task)  # refuses what does not fit the model
            p = arrival.parts(here.fed, who)
            mine = replace(here, fed=p.new, digest=f"{here.digest} {who}")
            _, judged = setups.measured(mine, alone, partial(report, f"alone{suffix}"))
            training = Training(plan, here.task, p.old, here.engine, sampler, rounds, here.seed)
            tick = partial(report, f"{name}{suffix}")
            found.append(_one_seed(training, p, judged, own_epochs, join_rounds, fraction, tick))
    about = {
        "method": name,
        "model": here.model_name,
        "client": who,
        "rounds": rounds,
        "own_epochs": own_epochs,
        "join_rounds": join_rounds,
        "fraction": fraction,
        "train_fraction": train_fraction,
        "seeds": seeds,
        "seed": config.seed,
        "engine": here.engine.name,
        "device": config.device,
    }
    return collect(found, method=name, client=who, settings=about, data=fed.describe)


def _one_seed(
    training: Training,
    p: arrival.Parts,
    alone: Outcome,
    own_epochs: int,
    join_rounds: int,
    fraction: float,
    tick: partial[None],
) -> Seen:
    """Train the old clients, let the newcomer join, look at everybody on the way."""
    total = training.rounds + join_rounds
    done = training.run(
        training.begin(training.task.params), lambda progress: tick(progress.round, total)
    )
    task, engine = training.task, training.engine

    def of_newcomer(models: Models) -> Outcome:
        return outcomes(task, p.new, engine, lambda ids: models(ids + p.place), pool=False)

    pool, same = pool_is_valid(p.old), training.one_for_all(done)

    def of_old(models: Models) -> Outcome:
        return outcomes(task, p.old, engine, models, pool=pool, one_for_all=same)

    before = of_old(training.models(done))
    joint = arrival.joint(training, done, p.both, fraction)
    progress = arrival.welcome(done, joint)
    newcomer = {"at once": of_newcomer(joint.models(progress))}
    newcomer["own training"] = of_newcomer(arrival.own_training(joint, progress, own_epochs))
    for i in range(join_rounds):
        joint.one_round(progress)
        tick(training.rounds + i + 1, total)
    newcomer["joined"] = of_newcomer(joint.models(progress))
    old = {"before": before, "after": of_old(joint.models(progress))}
    return Seen(
        p,
        newcomer,
        alone,
        old,
        progress.traffic,
        Trained(training, done),
        Trained(joint, progress),
    )
