"""Candidates are chosen on validation data; shortcuts and general paths see the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import toys
from glocal.core import tree
from glocal.data.federation import Federation
from glocal.data.split import from_counts
from glocal.engines import Engine, Sequential, Vectorised
from glocal.evaluation import evaluate
from glocal.evaluation.evaluate import metric_names, outcomes, pick, validation
from glocal.methods import resolve
from glocal.nn.task import Task
from glocal.slots.method import as_plan
from glocal.testing import ragged
from glocal.training.loop import Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fraction

ENGINES: list[Engine] = [Sequential(), Vectorised()]
pytestmark = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)

EYE = torch.eye(2)


def hand_made() -> Federation:
    """Two clients with one training, two validation and three test examples each.

    Inputs are unit vectors. Client a's validation labels are the input's place, its test labels the
    other place; client b's are the other way round.
    """
    x = EYE[[0, 1] * 6]
    place = x.argmax(1)
    turned = 1 - place
    y = torch.cat([place[:3], turned[3:6], turned[6:9], place[9:]])
    starts = [torch.tensor([0, 6]), torch.tensor([1, 2, 7, 8]), torch.tensor([3, 4, 5, 9, 10, 11])]
    train, val, test = (from_counts(r, torch.full((2,), len(r) // 2)) for r in starts)
    return Federation(
        x=x,
        y=y,
        y_train=y,
        classes=2,
        names=("a", "b"),
        train=train,
        val=val,
        test=test,
        label_shift_only=True,
        describe={},
    )


def linear() -> Task:
    return Task(nn.Linear(2, 2, bias=False))


def stacked(*weights: Tensor) -> dict[str, Tensor]:
    return {"weight": torch.stack(weights)}


def test_each_client_gets_what_does_best_on_its_validation_data(engine: Engine) -> None:
    fed, task = hand_made(), linear()
    both = {"as it is": stacked(EYE, EYE), "turned": stacked(-EYE, -EYE)}
    model, names = pick(task, fed, engine, both, torch.arange(2))
    assert names == ["as it is", "turned"]
    assert torch.equal(model["weight"], torch.stack([EYE, -EYE]))
    seen = outcomes(task, fed, engine, lambda ids: tree.row(both, ids), pool=True)
    assert seen.chosen == names
    assert seen.metrics["accuracy"] == [0.0, 0.0]  # on test data the other would have been right
    assert [o.tolist() for o in seen.own] == [[0.0] * 3] * 2
    assert seen.pool is not None
    assert seen.pool.tolist() == [[0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]]


def test_test_data_has_no_say_in_the_choice(engine: Engine) -> None:
    task = linear()
    both = {"as it is": stacked(EYE, EYE), "turned": stacked(-EYE, -EYE)}
    fed = hand_made()
    fed.x[fed.test.rows] = torch.nan
    fed.y[fed.test.rows] = 0
    assert pick(task, fed, engine, both, torch.arange(2))[1] == ["as it is", "turned"]
    accuracy, _ = validation(task, fed, engine, lambda ids: tree.row(both, ids))
    assert accuracy.tolist() == [1.0, 1.0]


def test_ties_go_to_the_lower_loss_and_then_to_the_first(engine: Engine) -> None:
    fed, task = hand_made(), linear()
    surer = {"sure": stacked(EYE, EYE), "surer": stacked(3 * EYE, 3 * EYE)}
    assert pick(task, fed, engine, surer, torch.arange(2))[1] == ["surer", "sure"]
    same = {"one": stacked(EYE, EYE), "two": stacked(EYE, EYE)}
    assert pick(task, fed, engine, same, torch.arange(2))[1] == ["one", "one"]


def test_a_loss_that_is_lower_does_not_beat_a_higher_accuracy(engine: Engine) -> None:
    """Right by a hair on both beats being sure of one and wrong by a hair on the other."""
    fed, task = hand_made(), linear()
    hair = 0.01 * EYE
    sure_of_one = torch.tensor([[4.0, 0.010], [-4.0, 0.009]])  # columns are the inputs
    both = {"sure": stacked(sure_of_one, EYE), "hair": stacked(hair, -EYE)}
    assert pick(task, fed, engine, both, torch.arange(2))[1][0] == "hair"


def trained(method: Any, engine: Engine) -> tuple[Training, Progress]:
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    training = Training(plan, Task(toys.dropout_net()), ragged(), engine, Fraction(0.5), 2, 0)
    return training, training.run(training.begin(training.task.params))


def test_one_for_all_is_the_general_path(engine: Engine) -> None:
    training, done = trained("fedavg", engine)
    task, fed, models = training.task, training.fed, training.models(done)
    assert training.one_for_all(done)
    once = outcomes(task, fed, engine, models, pool=True, one_for_all=True)
    each = outcomes(task, fed, engine, models, pool=True)
    assert once.chosen == each.chosen == ["global"] * len(fed)
    assert once.metrics["accuracy"] == each.metrics["accuracy"]
    for name in once.metrics:
        assert once.metrics[name] == pytest.approx(each.metrics[name], abs=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(once.own, each.own, strict=True))
    assert once.pool is not None
    assert each.pool is not None
    assert torch.equal(once.pool, each.pool)
    for a, b in zip(
        validation(task, fed, engine, models, one_for_all=True),
        validation(task, fed, engine, models),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_of_several_candidates_each_client_picks_though_nobody_keeps_anything(
    engine: Engine,
) -> None:
    def candidates(task: Any, down: Any, client: Any) -> Any:
        return {"global": down["params"], "turned": tree.map(torch.neg, down["params"])}

    training, done = trained(toys.wrapped(candidates=candidates), engine)
    task, fed, models = training.task, training.fed, training.models(done)
    assert training.one_for_all(done)
    seen = outcomes(task, fed, engine, models, pool=False, one_for_all=True)
    assert seen.chosen == pick(task, fed, engine, models(torch.arange(6)), torch.arange(6))[1]
    assert len(set(seen.chosen)) == 2
    assert torch.equal(
        validation(task, fed, engine, models, one_for_all=True)[0],
        validation(task, fed, engine, models)[0],
    )


def test_against_plain_predictions(engine: Engine) -> None:
    training, done = trained(toys.own_model(), engine)
    task, fed, models = training.task, training.fed, training.models(done)
    seen = outcomes(task, fed, engine, models, pool=True)
    ids, states = done.clients.saved()
    module = toys.dropout_net().eval()
    for k, client in enumerate(fed):
        mine = tree.row(states, ids.tolist().index(k))["v"] if k in ids.tolist() else None
        module.load_state_dict(mine or {n: done.server["params"][n] for n in task.names})
        x, y = client.test
        right = (module(x).argmax(1) == y).float()
        assert torch.equal(seen.own[k], right)
        assert seen.metrics["accuracy"][k] == pytest.approx(float(right.mean()))
        pooled = (module(fed.x[fed.test.rows]).argmax(1) == fed.y[fed.test.rows]).float()
        assert seen.pool is not None
        assert torch.equal(seen.pool[k], pooled)


def test_chunks_of_clients_change_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    training, done = trained(toys.two_candidates(), engine)
    args = training.task, training.fed, engine, training.models(done)
    whole, scores = outcomes(*args, pool=True), validation(*args)
    monkeypatch.setattr(evaluate, "CHUNK_BYTES", 1)
    parts, scores_too = outcomes(*args, pool=True), validation(*args)
    assert parts.chosen == whole.chosen
    assert parts.metrics["accuracy"] == whole.metrics["accuracy"]
    assert torch.equal(scores[0], scores_too[0])


def test_metrics_by_number_of_classes(engine: Engine) -> None:
    common = ["accuracy", "cross_entropy", "ece", "mce"]
    assert metric_names(2) == [*common, "auc"]
    assert metric_names(3) == common
    assert metric_names(10) == [*common, "top5"]
    assert list(
        outcomes(
            linear(), hand_made(), engine, lambda ids: {"one": stacked(EYE, EYE)}, pool=False
        ).metrics
    ) == [*common, "auc"]
