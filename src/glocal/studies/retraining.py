"""Beyond adaptation: average what clients adapted, and train without those who gain nothing.

Yu, Bagdasaryan, Shmatikov: *Salvaging federated learning by local adaptation*, 2020, sections 7.3
and 7.4. With A_k what client k of K adapted, *again* evaluates one model

    1/K Σ_k A_k

at every client: the plain mean, by which that paper aggregates. *Without* trains anew, from the
same start and with the same seed, among the clients to whom the federated model is worth at least
as much as the one they train alone.

Departure: who gains nothing is found on validation data. The paper looks at the test data that it
evaluates with afterwards, and by such a choice those who stay look better than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.evaluation.evaluate import Outcome, outcomes
from glocal.evaluation.intervals import nan_mean, paired
from glocal.evaluation.summary import Table, client_table
from glocal.evaluation.trials import Trial, pool_is_valid
from glocal.experiment.repeat import Trained
from glocal.training.loop import Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Among, Fixed


def averaged(models: Params) -> Params:
    """``1/K Σ_k A_k`` of stacked models."""
    return tree.map(lambda x: x.mean(0), models)


def again(trained: Trained, models: Params, fed: Federation | None = None) -> Outcome:
    """The average of what clients adapted (``models``, stacked), evaluated at every client."""
    t = trained.training
    fed = t.fed if fed is None else fed
    average = averaged(models)

    def for_all(ids: Tensor) -> dict[str, Params]:
        return {"averaged": tree.map(lambda x: x.expand(len(ids), *x.shape), average)}

    return outcomes(t.task, fed, t.engine, for_all, pool=pool_is_valid(fed), one_for_all=True)


def gain_nothing(given: Tensor, alone: Tensor) -> tuple[int, ...]:
    """Who does worse with the model it was given than alone; both are validation accuracies."""
    return tuple((given.cpu() < alone.cpu()).nonzero().flatten().tolist())


def without(
    trained: Trained,
    removed: Sequence[int],
    on_round: Callable[[Progress], None] = lambda progress: None,
) -> Trained:
    """The same training from its start, among all but ``removed``."""
    training = among(trained.training, removed)
    return Trained(training, training.run(training.begin(training.task.params), on_round))


def among(training: Training, removed: Sequence[int]) -> Training:
    """The training in which nobody of ``removed`` is ever drawn; refuses what that cannot be."""
    kept = tuple(k for k in range(len(training.fed)) if k not in set(removed))
    if not kept:
        raise GlocalError("everybody is removed, so nobody is left to train: remove fewer.")
    method = training.plan.stages[0].method
    if (protection := method.privacy or method.example_privacy) is not None:
        raise GlocalError(
            f"who is removed would show what is in the validation data, and {protection.name} "
            "does not protect that: leave the privacy out, or train with everybody."
        )
    sampler = training.sampler
    if isinstance(sampler, Fixed):  # of fewer clients, as many as there are
        sampler = Fixed(min(sampler.number, len(kept)))
    fewer = replace(training, sampler=Among(kept, sampler))
    for stage in fewer.plan.stages:
        try:
            stage.method.weights.init(fewer.setting)
            stage.method.combine.check(fewer.setting)
        except GlocalError as error:
            raise GlocalError(f"training without some clients cannot be done: {error}") from error
    return fewer


def changed(fed: Federation, old: Outcome, new: Outcome, clients: Sequence[int]) -> dict[str, Any]:
    """What a new model is to the ``clients``, set against an old one.

    ``worse`` and ``better`` are verdicts of the exact paired test at 90 %, about these trained
    models; ``lower`` is how many have a lower accuracy at all, as papers count.
    """
    rows = client_table([Trial(fed, new, old)])
    theirs = Table(rows[k] for k in clients)
    return {
        "clients": theirs["client"],
        "before": nan_mean(theirs["local_accuracy"]),
        "after": nan_mean(theirs["accuracy"]),
        "change": paired(theirs["benefit"], "clients"),
        "better": theirs["verdict"].count("better off"),
        "worse": theirs["verdict"].count("worse off"),
        "lower": sum(benefit < -1e-12 for benefit in theirs["benefit"]),
    }
