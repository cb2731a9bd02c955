"""Every client's best alone: outcomes of all repeats, from any number of processes."""

from __future__ import annotations

import importlib.util
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from glocal.data.federation import Federation, federation
from glocal.evaluation.evaluate import Outcome
from glocal.experiment import client_fits
from glocal.experiment.best_alone import SAME, Alone, best_of, fit_all, unavailable
from glocal.experiment.folds import folds_of, learnable

pytest.importorskip("sklearn")


def fed(**settings: object) -> Federation:
    """Four clients whose classes are half-spaces; the last has one class. They are no table."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(200, 5, generator=draw)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5)
    owner = torch.arange(200) % 4
    y[owner == 3] = 1
    return federation(x.view(200, 1, 5), y, clients=owner, classes=3, **settings)  # type: ignore[arg-type]


def folds(count: int) -> list[Federation]:
    first = fed()
    return [first.fold(r) for r in range(count)]


def same(a: Outcome, b: Outcome) -> bool:
    own = all(torch.equal(x, y) for x, y in zip(a.own, b.own, strict=True))
    return own and a.chosen == b.chosen and str(a.metrics) == str(b.metrics)


def test_outcomes_of_all_repeats_do_not_depend_on_each_other_or_on_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks: list[tuple[int, int]] = []
    both = fit_all(folds(2), [5, 6], tune=True, tick=lambda *t: ticks.append(t))
    assert ticks == [(i, 8) for i in range(1, 9)]
    monkeypatch.setattr(client_fits, "WORTH_PROCESSES", 0)
    pooled = fit_all(folds(2), [5, 6], tune=True, processes=2)
    alone = fit_all(folds(2)[1:], [6], tune=True)
    assert same(both[0].outcome, pooled[0].outcome)
    assert same(both[1].outcome, pooled[1].outcome)
    assert same(both[1].outcome, alone[0].outcome)
    assert torch.equal(both[1].score, alone[0].score)


def test_outcomes_are_those_of_the_clients_own_test_rows_and_of_the_pool() -> None:
    data = replace(fed(), label_shift_only=True)
    (result,) = fit_all([data], [0], tune=True)
    outcome = result.outcome
    assert outcome.chosen[3] == "constant"
    assert outcome.pool is not None
    assert outcome.pool.shape == (4, len(data.test.rows))
    for k in range(4):
        part = slice(int(data.test.start[k]), int(data.test.start[k + 1]))
        assert torch.equal(outcome.pool[k, part].double(), outcome.own[k])
        assert outcome.metrics["accuracy"][k] == pytest.approx(float(outcome.own[k].mean()))
    everywhere = data.y[data.test.rows] == 1
    assert torch.equal(outcome.pool[3].bool(), everywhere)
    assert set(outcome.metrics) == {"accuracy", "cross_entropy", "ece", "mce"}
    assert all(np.isfinite(outcome.metrics["cross_entropy"]))


def test_validation_data_is_learned_from_only_where_both_sides_are_refitted() -> None:
    """Validation labels turned round: without tuning they have no say."""
    data = fed(split=(0.4, 0.4, 0.2))
    turned = data.y_train.clone()
    turned[data.val.rows] = 2 - turned[data.val.rows]
    other = replace(data, y_train=turned)
    plain, changed = (fit_all([f], [0], tune=False)[0] for f in (data, other))
    assert same(plain.outcome, changed.outcome)
    plain, changed = (fit_all([f], [0], tune=True)[0] for f in (data, other))
    assert not same(plain.outcome, changed.outcome)


def test_test_data_has_no_say() -> None:
    data = fed()
    x = data.x.clone()
    x[data.test.rows] = 1e3
    other = replace(data, x=x)
    a, b = (fit_all([f], [0], tune=True)[0] for f in (data, other))
    assert torch.equal(a.score, b.score)
    assert a.outcome.chosen == b.outcome.chosen


def test_groups_are_kept_together() -> None:
    data = fed(group=torch.arange(200) // 20 * 4 + torch.arange(200) % 4)
    for k in range(3):
        rows = learnable(data, k, tune=True)
        fold = folds_of(data, k, 0, tune=True)
        assert data.unit is not None
        unit = data.unit[rows].numpy()
        assert len(set(fold)) > 1
        assert all(len(set(fold[unit == u])) == 1 for u in np.unique(unit))


def alone(scores: list[float], names: list[str], right: float) -> Alone:
    own = [torch.full((2,), right, dtype=torch.float64) for _ in names]
    outcome = Outcome({"accuracy": [right] * len(names)}, own, None, names)
    return Alone(outcome, torch.tensor(scores, dtype=torch.float64), Counter())


def test_each_client_takes_the_better_and_of_equals_the_simpler() -> None:
    nan = float("nan")
    model = alone([0.9, 0.8, 0.7, 0.7, 0.6, 0.5], [SAME] * 6, 0.0)
    others = alone(
        [0.8, 0.9, 0.7, 0.7, nan, 0.5],
        ["svm", "svm", "logistic", "boosting", "", "constant"],
        1.0,
    )
    best = best_of(model, others)
    assert best.outcome.chosen == [SAME, "svm", "logistic", SAME, SAME, "constant"]
    assert best.outcome.metrics["accuracy"] == [0, 1, 1, 0, 0, 1]
    assert [float(own.mean()) for own in best.outcome.own] == [0, 1, 1, 0, 0, 1]
    assert best.score.tolist() == [0.9, 0.9, 0.7, 0.7, 0.6, 0.5]


def test_why_nothing_else_can_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unavailable(fed()) is None
    tokens = federation(torch.randint(5, (40, 3)), torch.arange(40) % 2, clients=[0, 1] * 20)
    assert "sequences" in str(unavailable(tokens))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install scikit-learn" in str(unavailable(fed()))
