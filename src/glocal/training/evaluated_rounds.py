"""The learning curve of a training: after which rounds it is looked at, and what is recorded then.

A round's line has, where it is evaluated, over the models that clients would use (of several
candidates, the one that is best on their validation data)::

    train_loss      mean over clients of the loss on some of their training examples
    val_loss        the same on their validation examples
    val_<metric>    the metric that counts: its mean over clients,
    val_worst10     the mean of the worst tenth of clients,
    val_gini        and Gini's coefficient over clients, times 100
    central_<metric>  of the server's model on the central test set, where there is one

Nothing of it is drawn, and nothing is kept: training comes to the same bits with it and without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from glocal.data.split import Split, from_counts
from glocal.evaluation.evaluate import validated
from glocal.evaluation.measures import of_task
from glocal.evaluation.scores import recorded
from glocal.slots.server_half import whole_model

if TYPE_CHECKING:
    from glocal.training.loop import Training
    from glocal.training.run_state import Progress

POINTS = 20
"""About so many rounds are evaluated by default."""

BACKWARD = 3
"""A gradient costs so many forward passes."""

SHARE = 10
"""By default a run is evaluated for at most one in so many of the passes that it trains for."""


def spacing(training: Training) -> int:
    """From how many rounds to how many a training is evaluated, where nobody said.

    It is about :data:`POINTS` times, and less often where clients are many and few of them train:
    then to evaluate all of them would take longer than to train.
    """
    every = -(-training.last // POINTS)
    evaluated = sum(_passes(training, stage) for stage in range(len(training.plan.stages)))
    share = training.setting.fraction
    trained = sum(share * float(each.sum()) for each in training.gradients)
    return max(every, min(training.last, round(SHARE * evaluated / (BACKWARD * trained + 1))))


def _passes(training: Training, stage: int) -> float:
    """The forward passes that it takes to evaluate all clients once in a stage."""
    half, fed = training.halves[stage], training.fed
    method, task = training.plan.stages[stage].method, training.task.largest()
    begun = method.begin(task, task.params, training.setting)
    down = method.broadcast(begun, 0, training.setting)
    params = whole_model(task, begun)
    with torch.no_grad():
        state = half.init(task, params, training.key(0, 0))
        candidates = len(half.candidates(task, down, state))
    own = float(fed.val.counts().sum()) * (candidates + 1 if candidates > 1 else 1)
    # Those who have not taken part yet may train then. Their share in a round, on average over all
    # rounds: (1 − s)^t is what is left after t.
    s, rounds = training.setting.fraction, training.last
    absent = (1 - s) * (1 - (1 - s) ** rounds) / (s * rounds)
    alone = float(training.gradients_alone[stage].sum())
    if half.solve_before_evaluation:
        alone += float(training.gradients[stage].sum())
    own += absent * BACKWARD * alone
    central = 0 if fed.central is None else len(fed.central[0])
    return own + float(training.training_rows.counts().sum()) + central


def some_rows(training: Split, validation: Split) -> Split:
    """Of each client's training rows as many as it has for validation, evenly spaced.

    So the two losses are about as exact as each other, and take as long.
    """
    all_rows, n = training.counts().cpu(), validation.counts().cpu()
    count = torch.minimum(all_rows, n)
    client = torch.repeat_interleave(torch.arange(len(count)), count)
    place = torch.arange(int(count.sum())) - (count.cumsum(0) - count)[client]
    spaced = place * all_rows[client] // count[client]
    rows = training.rows[(training.start.cpu()[client] + spaced).to(training.rows.device)]
    return from_counts(rows, count.to(training.start.device))


def curve_point(training: Training, progress: Progress) -> dict[str, Any]:
    """What data that is not trained on says, for the round's line; and the training loss."""
    t = training
    where = (t.task, t.fed, t.engine, t.models(progress))
    same = t.one_for_all(progress)
    how: dict[str, Any] = {"training": t.training_rows, "errors": t.by_client}
    found, picks = validated(*where, one_for_all=same, **how)
    return recorded(t.task, found, picks if t.by_client else None)


def central_value(training: Training, progress: Progress) -> dict[str, float]:
    """The metric of the server's model on the central test set; nothing where one of them lacks.

    A method that keeps some layers private has no such model, and where settings are chosen nobody
    looks at test data.
    """
    t, method = training, training.method(progress)
    whole = method.server_half.sends_update and len(method.shared_names(t.task)) == len(
        t.task.names
    )
    if t.fed.central is None or t.by_client or not whole:
        return {}
    x, y = t.fed.central
    model = {k: v.unsqueeze(0) for k, v in whole_model(t.task, progress.server).items()}
    rows = torch.arange(len(x), device=x.device).unsqueeze(0)
    output = t.engine.evaluate(t.task.example_logits, model, x, y, rows)["logits"][0].cpu()
    measure, target = of_task(t.task), t.fed.target
    value = measure.value(target.predictions(output), target.labels(y.cpu()))
    return {f"central_{measure.name}": value}
