"""Salvaging, sections 7.3 and 7.4: average what clients adapted; train without those who lose.

*Again*: every client fine-tunes the federated model for so many epochs, and the plain mean of what
comes out is evaluated on the official test set. That is a round of federated averaging in which
everybody takes part, with a learning rate of its own, so it is trained as one.

*Without*: the training is begun anew among the clients to whom the federated model was worth no
less than the one they train alone. Who that is, is found on validation data
(:mod:`glocal.studies.retraining`), where the paper looks at test data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import glocal
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.evaluation import synthetic_data
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.federated_runner import Federated
from glocal.experiment.repeat import Trained, evaluate_trained
from glocal.experiment.runner import runner_of
from glocal.experiment.setup import Setup
from glocal.slots.server_half import whole_model
from glocal.studies import retraining
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.resumed import run_rounds
from glocal.training.run_state import Progress
from glocal.training.side_by_side import LaneGroup
from papers.tables import Cell


def again(cell: Cell, config: Config, fed: Federation, policy: CheckpointPolicy) -> dict[str, Any]:
    """Official test accuracy of the federated model, and of the means of what it was adapted to."""
    setup = setups.make(config, fed, 0)
    with setup.threads():
        ended = trained(setup, cell.method, policy, "before")
        given = whole_model(setup.task, ended.server)
        found = {"before": official(setup, given)}
        everybody = replace(config, rounds=1, sampled=None, fraction=1.0)
        for epochs in cell.measure["epochs"]:
            adapting = cell.measure["adapting"].format(epochs=epochs)
            once = trained(
                replace(setup, config=everybody), adapting, policy, f"again-{epochs}", given
            )
            found[f"again_{epochs}"] = official(setup, whole_model(setup.task, once.server))
    return {**found, "parameters": setup.task.size, "engine": setup.engine.executed}


def trained(
    setup: Setup, method: str, policy: CheckpointPolicy, what: str, begun: Params | None = None
) -> Progress:
    """All rounds of a method, from its own start or from a model that is given."""
    runner = runner_of(method, method)
    assert isinstance(runner, Federated)
    training = runner.check(setup)
    keeper = policy.rounds(0, f"{what} {runner.known_by(setup)}", what=what)
    starts = None if begun is None else [training.begin(begun)]
    (end,) = run_rounds(LaneGroup.of([training]), keeper=keeper, begun=starts)
    return end.progress


def official(setup: Setup, w: Params) -> float:
    """A model's accuracy on the official test set, or else on all clients' test examples."""
    fed = setup.fed
    x, y = fed.central or (fed.x[fed.test.rows], fed.y[fed.test.rows])
    return synthetic_data.accuracy(setup.task, w, x.to(fed.x.device), y.to(fed.x.device))


def without(
    cell: Cell, run: glocal.Run, fed: Federation, policy: CheckpointPolicy
) -> dict[str, Any]:
    """What the others, and those who were left out, have of a model that was trained without."""
    (repeat,), (alone,), first = run.repeats, run.baseline, run.trained
    assert first is not None
    removed = retraining.gain_nothing(repeat.val_score, alone.val_score)
    found: dict[str, Any] = {"removed": len(removed), "removed_share": len(removed) / len(fed)}
    kept = [k for k in range(len(fed)) if k not in set(removed)]
    if not removed or not kept:
        return found
    training = retraining.among(first.training, removed)
    keeper = policy.rounds(0, f"without {removed}", what="without")
    (end,) = run_rounds(LaneGroup.of([training]), keeper=keeper)
    outcome, _ = evaluate_trained(Trained(training, end.progress), fed)
    for name, clients in (("kept", kept), ("removed", list(removed))):
        change = retraining.changed(fed, repeat.outcome, outcome, clients)
        found |= {f"{name}_{when}": change[when] for when in ("before", "after")}
        found[f"{name}_lower"] = change["lower"] / len(clients)
        found[f"{name}_shown_worse"] = change["worse"]
    return found
