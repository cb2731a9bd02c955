"""*New client*: one that was not there in training joins. What does it get, what do others lose?

Liang et al., *Think locally, act globally: federated learning with local and global
representations*, 2020, section 5.4, train on 100 devices and let one with rotated images join. A
method is trained by the old clients alone. Then the newcomer is evaluated on its own test split,
and every old client on its test data, at four stages:

1. *at once*: what the server sends, private layers as they began;
2. *own training*: after ``own_epochs`` passes over its own data, of which nothing is sent. Private
   layers train under the shared ones, which are held; a global model trains whole;
3. *joined*: after ``join_rounds`` rounds with a ``fraction`` of the old clients. At ``fraction`` 0
   the newcomer alone moves what is shared, and the old clients use it with what they keep;
4. *alone*: its local baseline, what it could do without any of them.

Both the newcomer's benefit and each old client's change are paired on the same test examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.core.files import plain
from glocal.core.progress import Report, reporter
from glocal.core.validation import positive_integers
from glocal.data.federation import Federation
from glocal.data.partition import column_of
from glocal.data.schema import needs_classes
from glocal.evaluation import paired_test
from glocal.evaluation.evaluate import Models, Outcome, outcomes
from glocal.evaluation.intervals import student
from glocal.evaluation.summary import Table, accuracies, client_table, verdict_counts
from glocal.evaluation.trials import Trial, pool_is_valid
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.federated_runner import Federated
from glocal.experiment.repeat import Trained
from glocal.experiment.result_files import SCHEMA
from glocal.experiment.runner import LocalOnly, baseline_of, runner_of
from glocal.slots.method import Method, Plan
from glocal.studies.newcomer import arrival
from glocal.studies.repeats import unique_specs
from glocal.training.loop import Training
from glocal.training.run_state import Progress

STAGES = ("at once", "own training", "joined")


@dataclass(frozen=True)
class Joined:
    """What the newcomer got and what the old clients lost."""

    rows: Table
    """One row a stage: the newcomer's accuracy and verdict against alone, the old clients' mean."""
    clients: Table
    """One row an old client: ``before``, ``after``, ``change`` with its paired interval."""
    summary: dict[str, Any]
    settings: dict[str, Any]
    before: Trained = field(repr=False)
    """The old clients' training as it ended, of the first seed."""
    after: Trained = field(repr=False)
    """The same after the newcomer joined; the newcomer is the last client."""


@dataclass(frozen=True)
class Seen:
    """What was seen of one seed: every outcome, by stage."""

    parts: arrival.Parts
    newcomer: dict[str, Outcome]
    alone: Outcome
    old: dict[str, Outcome]
    before: Trained
    after: Trained

    def old_mean(self, when: str) -> float:
        """The old clients' mean accuracy, before the newcomer joined or after."""
        return fmean(accuracies([Trial(self.parts.old, self.old[when], self.alone)])[0])


def join_each(
    methods: Sequence[str],
    config: Config,
    client: str | None = None,
    rotate: float = 0.0,
    *,
    report: Report | None = None,
    **joining: Any,
) -> tuple[dict[str, Joined], dict[str, Any]]:
    """Let a client join each of the methods, its images turned by ``rotate`` degrees.

    ``joining`` is what :func:`join` takes. Returns what came of it, by method, and as plain data.
    """
    specs = unique_specs(methods)
    fed, name = _with_newcomer(config, client, rotate)
    given = config.arguments()
    joining["train_fraction"] = given.pop("fraction")
    joining |= {k: v for k, v in given.items() if k not in ("repeats", "sampled")}
    joined = {spec: join(spec, fed, client=name, progress=report, **joining) for spec in specs}
    by_method = {
        spec: {
            "summary": j.summary,
            "settings": j.settings,
            "newcomer": j.rows,
            "clients": j.clients,
        }
        for spec, j in joined.items()
    }
    return joined, plain({"schema": SCHEMA, "data": fed.describe, "methods": by_method})


def _with_newcomer(config: Config, client: str | None, rotate: float) -> tuple[Federation, str]:
    """The data with the newcomer among the clients, turned if asked for; and its name."""
    fed = config.federation()
    needs_classes(fed, "a newcomer's study")
    partition = fed.describe["partition"]
    if client is None:
        if partition == "own ids" or column_of(partition) is not None:
            raise GlocalError("the data has clients of its own: say who joins with --client-name.")
        client = fed.names[-1]
    k = arrival.index_of(fed, client)
    if rotate % 360:
        # By index: a name may be anything, and a spec may not hold it.
        turn = f"rotate({rotate:g}, clients=only({k}))"
        fed = replace(config, transforms=(*config.transforms, turn)).federation()
    return fed, client


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
    **settings: Any,
) -> Joined:
    """Train without ``client``, let it join, and evaluate it and all others.

    Args:
        method: A spec such as ``"lg-fedavg"``, a Method, or a Plan of stages.
        fed: All clients' data, the newcomer's too.
        client: Who joins, by name or index; the last by default.
        own_epochs: The newcomer's passes over its own data before it sends anything.
        join_rounds: Rounds in which it takes part.
        fraction: Share of old clients in those; 0 is none of them.
        train_fraction: Share of old clients in a round before.
        seeds: How often to repeat on another split and seed of the same clients.
        progress: Show bars: on a terminal by default; or a function (what, done, total).
        settings: Those of :func:`glocal.fit`, the ``rounds`` among the old clients among them.
    """
    runner = runner_to_join(method)
    name = runner.name
    positive_integers(join_rounds=join_rounds, seeds=seeds)
    if own_epochs != 0:
        positive_integers(own_epochs=own_epochs)
    if not 0 <= fraction <= 1:
        raise GlocalError(f"the fraction of old clients must be from 0 to 1, not {fraction}.")
    config = Config(**settings, fraction=train_fraction, repeats=seeds)
    arrival.check_settings(config)
    newcomer = fed.names[arrival.index_of(fed, client)]
    baseline = baseline_of(config).client
    seen: list[Seen] = []
    with reporter(progress) as report:
        for r in range(seeds):
            setup = setups.make(config, fed, r)
            parts = arrival.parts(setup.fed, newcomer)
            training = runner.check(replace(setup, fed=parts.old))
            by_itself = replace(setup, fed=parts.new, digest=f"{setup.digest} {newcomer}")
            tick = partial(report, setup.title("alone"))
            _, alone = setups.measured(by_itself, baseline, tick)
            tick = partial(report, setup.title(name))
            seen.append(_one_seed(training, parts, alone, own_epochs, join_rounds, fraction, tick))
    about = {
        "method": name,
        "model": setup.model_name,
        "client": newcomer,
        "rounds": config.rounds,
        "own_epochs": own_epochs,
        "join_rounds": join_rounds,
        "fraction": fraction,
        "train_fraction": train_fraction,
        "seeds": seeds,
        "seed": config.seed,
        "engine": setup.engine.executed,
        "device": config.device,
    }
    clients = _clients(seen)
    rows = _rows(seen, clients)
    summary = _summary(rows, clients, seen)
    return Joined(rows, clients, summary, about, seen[0].before, seen[0].after)


def runner_to_join(method: str | Method | Plan) -> Federated:
    """How a method is run that clients may join; raises where they cannot."""
    name = method if isinstance(method, str) else "method"
    runner = runner_of(name, method)
    if isinstance(runner, LocalOnly):
        raise GlocalError(
            f"with {name} there is nothing to join: leave it out, every newcomer is set against "
            "what it could do alone."
        )
    if runner.private:
        raise GlocalError(
            f"what joining costs in privacy is not accounted for, so {name} would promise too "
            "much: leave the privacy out."
        )
    return runner


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
    rounds = partial(_rounds_done, tick, training.rounds, total)
    return seen_joining(training, done, p, alone, own_epochs, join_rounds, fraction, rounds)


def _rounds_done(tick: partial[None], before: int, total: int, joined: int) -> None:
    tick(before + joined, total)


def seen_joining(
    training: Training,
    done: Progress,
    p: arrival.Parts,
    alone: Outcome,
    own_epochs: int,
    join_rounds: int,
    fraction: float,
    tick: Callable[[int], None] = lambda joined: None,
) -> Seen:
    """Let the newcomer join where a training ended, look at everybody before and after."""
    task, engine = training.task, training.engine

    def of_newcomer(models: Models) -> Outcome:
        return outcomes(task, p.new, engine, lambda ids: models(ids + len(p.old)), pool=False)

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
        tick(i + 1)
    newcomer["joined"] = of_newcomer(joint.models(progress))
    old = {"before": before, "after": of_old(joint.models(progress))}
    return Seen(p, newcomer, alone, old, Trained(training, done), Trained(joint, progress))


def _clients(seen: Sequence[Seen]) -> Table:
    """A row an old client: "alone" of the verdict's table is what it had before."""
    names = {"accuracy": "after", "local_accuracy": "before", "benefit": "change"}
    kept = ("client", "n_train", "n_test", "low", "high", "verdict")
    rows = Table()
    for row in client_table([Trial(s.parts.old, s.old["after"], s.old["before"]) for s in seen]):
        changed: dict[str, Any] = {k: row[k] for k in kept[:3]}
        for prefix in ("", "own_"):
            for key in ("local_accuracy", "accuracy", "benefit", *kept[3:]):
                if prefix + key in row:
                    changed[prefix + names.get(key, key)] = row[prefix + key]
        rows.append(changed)
    return rows


def _rows(seen: Sequence[Seen], clients: Table) -> Table:
    """A row a stage, and the newcomer alone."""
    pooled = "own_verdict" in clients[0]
    own = "own_" if pooled else ""
    rows = Table()
    for stage in STAGES:
        (row,) = client_table([Trial(s.parts.new, s.newcomer[stage], s.alone) for s in seen])
        when = "after" if stage == "joined" else "before"
        rows.append(
            {
                "stage": stage,
                **{k: row[k] for k in ("accuracy", "benefit", "low", "high", "verdict")},
                "old_own": fmean(clients[f"{own}{when}"]),
                "old_pooled": fmean(clients[when]) if pooled else None,
            }
        )
    alone = row["local_accuracy"]
    nothing = {"benefit": 0.0, "low": 0.0, "high": 0.0, "verdict": "baseline"}
    rows.append(
        {"stage": "alone", "accuracy": alone, **nothing, "old_own": None, "old_pooled": None}
    )
    return rows


def _summary(rows: Table, clients: Table, seen: Sequence[Seen]) -> dict[str, Any]:
    stages = {row["stage"]: row for row in rows}
    by_seed = [s.old_mean("after") - s.old_mean("before") for s in seen]
    _, low, high = student(by_seed)
    every = paired_test.compare_repeats([_everybody(s) for s in seen])
    traffic = [s.after.progress.traffic for s in seen]
    reached = ("at once", "alone", "own training", "joined")
    return {
        **{stage.replace(" ", "_"): stages[stage]["accuracy"] for stage in reached},
        **{k: stages["joined"][k] for k in ("benefit", "verdict")},
        **{f"old_{k}": fmean(clients[k]) for k in ("before", "after", "change")},
        "old_low": low,
        "old_high": high,
        "old_by_seed": by_seed,
        "old_paired": {"change": every.benefit, "low": every.low, "high": every.high},
        **{f"old_{name}": n for name, n in verdict_counts(clients["verdict"]).items()},
        "old_clients": len(clients),
        "estimate": "pooled" if "own_verdict" in clients[0] else "own",
        "params_down": round(fmean(t.params_down for t in traffic)),
        "params_up": round(fmean(t.params_up for t in traffic)),
        "bytes_down": round(fmean(t.total("bytes_down") for t in traffic)),
        "bytes_up": round(fmean(t.total("bytes_up") for t in traffic)),
        "seeds": len(seen),
    }


def _everybody(s: Seen) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All old clients' own test examples as one test, in which every client counts alike."""
    n = s.parts.old.test.counts().cpu()
    weight = torch.repeat_interleave(1.0 / n.double(), n)
    after, before = (torch.cat(s.old[when].own) for when in ("after", "before"))
    return s.parts.old.test.rows, after, before, weight
