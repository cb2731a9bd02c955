"""Tables and summaries worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from glocal.core.files import plain
from glocal.data.federation import Federation
from glocal.data.split import from_counts
from glocal.evaluation.communication import Traffic
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.summary import Table, against, client_table, summarise
from glocal.evaluation.trials import Trial, pool_is_valid


def fed(shift_only: bool = True) -> Federation:
    """Two clients. Training labels 0, 0, 0, 1 and 1, 1; tests 0, 0 and 1."""
    y = torch.tensor([0, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1])
    return Federation(
        x=torch.zeros(11, 1),
        y=y,
        y_train=y,
        classes=2,
        names=("a", "b"),
        train=from_counts(torch.arange(6), torch.tensor([4, 2])),
        val=from_counts(torch.tensor([6, 7]), torch.tensor([1, 1])),
        test=from_counts(torch.tensor([8, 9, 10]), torch.tensor([2, 1])),
        label_shift_only=shift_only,
        describe={},
    )


def outcome(own: list[list[float]], pool: list[list[float]] | None) -> Outcome:
    return Outcome(
        metrics={
            "accuracy": [sum(o) / len(o) for o in own],
            "cross_entropy": [0.5, 1.5],
            "auc": [math.nan, 0.75],
        },
        own=[torch.tensor(o, dtype=torch.float32) for o in own],
        pool=None if pool is None else torch.tensor(pool, dtype=torch.float32),
        chosen=["global", "own"],
    )


METHOD = outcome([[1, 0], [1]], [[1, 0, 1], [1, 1, 1]])
ALONE = outcome([[0, 0], [1]], [[0, 0, 1], [0, 0, 1]])
TRAFFIC = Traffic([{"shared": 10}], [{"shared": 6}])


def trial(**changes: Any) -> Trial:
    return replace(Trial(fed(), METHOD, ALONE, TRAFFIC), **changes)


def test_pooled_by_hand() -> None:
    """Client a: three quarters of its labels are 0 (one of two right), one quarter 1 (right)."""
    a, b = client_table([trial()])
    assert a["accuracy"] == pytest.approx(3 / 4 * 1 / 2 + 1 / 4)
    assert a["local_accuracy"] == pytest.approx(1 / 4)
    assert a["benefit"] == pytest.approx(3 / 8)
    assert (a["own_accuracy"], a["own_local_accuracy"]) == (0.5, 0.0)
    assert a["own_benefit"] == pytest.approx(0.5)
    assert b["accuracy"] == b["local_accuracy"] == 1.0  # all of its labels are 1
    assert b["benefit"] == 0.0
    assert {a["verdict"], b["verdict"], a["own_verdict"]} == {"undecided"}
    assert [a[k] for k in ("client", "n_train", "n_val", "n_test", "model")] == [
        "a",
        4,
        1,
        2,
        "global",
    ]
    assert (b["cross_entropy"], b["auc"]) == (1.5, 0.75)
    assert math.isnan(a["auc"])


def test_on_own_data_where_more_than_labels_differ() -> None:
    rows = client_table([trial(fed=fed(shift_only=False))])
    assert rows["accuracy"] == [0.5, 1.0]
    assert rows["local_accuracy"] == [0.0, 1.0]
    assert rows["benefit"] == pytest.approx([0.5, 0.0])
    assert "own_accuracy" not in rows[0]
    assert summarise(rows, [trial(fed=fed(shift_only=False))])["estimate"] == "own"


def test_sequences_are_evaluated_on_their_own() -> None:
    assert pool_is_valid(fed())
    assert not pool_is_valid(replace(fed(), y=torch.zeros(11, 4, dtype=torch.int64)))


def test_a_client_whose_training_labels_nobody_tests_is_evaluated_by_all_its_labels() -> None:
    """Client b trains on class 2 alone, and the pool has 0, 0, 1: its own test example is the 1."""
    y = torch.tensor([0, 0, 0, 1, 2, 2, 0, 1, 0, 0, 1])
    odd = replace(fed(), y=y, y_train=y, classes=3)
    pool = outcome([[1, 0], [1]], [[1, 0, 1], [0, 0, 1]])
    rows = client_table([trial(fed=odd, outcome=pool)])
    assert rows["accuracy"] == pytest.approx([0.625, 1.0])


def test_a_pool_that_was_not_looked_at_is_a_defect() -> None:
    with pytest.raises(RuntimeError, match="pooled test set was not evaluated"):
        client_table([trial(outcome=outcome([[1, 0], [1]], None))])


def test_the_summary_by_hand() -> None:
    rows = client_table([trial()])
    s = summarise(rows, [trial()])
    assert s["mean"] == pytest.approx((0.625 + 1) / 2)
    assert s["local_mean"] == pytest.approx((0.25 + 1) / 2)
    assert s["benefit"] == pytest.approx(0.375 / 2)
    assert (s["worst10"], s["best10"]) == pytest.approx((0.625, 1.0))
    assert s["mean_examples"] == pytest.approx((2 * 0.625 + 1) / 3)
    assert [s[k] for k in ("better_off", "worse_off", "undecided")] == [0, 0, 2]
    assert [s[k] for k in ("above", "below", "ties")] == [1, 0, 1]
    assert [s[k] for k in ("clients", "repeats", "estimate", "epsilon")] == [2, 1, "pooled", None]
    assert (s["params_up"], s["params_down"]) == (6, 10)
    assert (s["bytes_up"], s["bytes_down"]) == (24, 40)
    in_bytes = {"bytes_up": {"shared": 24}, "bytes_down": {"shared": 40}}
    assert s["traffic"] == {"up": {"shared": 6}, "down": {"shared": 10}, **in_bytes}
    assert s["own"]["mean"] == pytest.approx(0.75)
    assert s["metrics"]["cross_entropy"]["mean"] == 1.0
    assert s["metrics"]["cross_entropy"]["worst10"] == 1.5
    assert "accuracy" not in s["metrics"]


def test_verdicts_are_counted() -> None:
    rows = Table(
        {**row, "verdict": v, "own_verdict": "worse off", "benefit": b}
        for row, v, b in zip(
            client_table([trial()]), ("better off", "worse off"), (0.1, -0.1), strict=True
        )
    )
    s = summarise(rows, [trial()])
    assert [s[k] for k in ("better_off", "worse_off", "undecided")] == [1, 1, 0]
    assert [s[k] for k in ("above", "below", "ties")] == [1, 1, 0]
    assert s["own"]["worse_off"] == 2


def test_clear_cases_are_decided() -> None:
    """Forty examples, all won by the one and all lost by the other."""
    y = torch.tensor([0, 1] * 22)
    clear = replace(
        fed(),
        x=torch.zeros(44, 1),
        y=y,
        y_train=y,
        train=from_counts(torch.arange(2), torch.tensor([1, 1])),
        val=from_counts(torch.tensor([2, 3]), torch.tensor([1, 1])),
        test=from_counts(torch.arange(4, 44), torch.tensor([20, 20])),
    )
    good, bad = [1.0] * 20, [0.0] * 20
    rows = client_table(
        [
            trial(
                fed=clear,
                outcome=outcome([good, bad], [good * 2, bad * 2]),
                baseline=outcome([bad, good], [bad * 2, good * 2]),
            )
        ]
    )
    assert rows["verdict"] == rows["own_verdict"] == ["better off", "worse off"]
    assert rows["benefit"] == pytest.approx([1.0, -1.0])


def test_repeats_pool() -> None:
    """The mean over repeats of accuracies and figures; traffic rounded to integers."""
    worse = trial(
        outcome=outcome([[0, 0], [0]], [[0, 0, 0], [0, 0, 0]]),
        traffic=Traffic([{"shared": 11}], [{"shared": 7}]),
    )
    trials = [trial(), worse]
    rows = client_table(trials)
    assert rows["accuracy"] == pytest.approx([0.625 / 2, 0.5])
    assert rows["own_accuracy"] == pytest.approx([0.25, 0.5])
    assert rows[0]["benefit"] == pytest.approx((0.375 - 0.25) / 2)
    assert math.isnan(rows[0]["auc"])
    s = summarise(rows, trials)
    assert s["repeats"] == 2
    assert (s["params_up"], s["params_down"]) == (6, 10)  # of 6.5 and 10.5, to even


def test_every_metric_of_every_client_in_every_repeat() -> None:
    """Accuracies by the estimate in force; what a client has no value of is null in JSON."""
    worse = trial(outcome=outcome([[0, 0], [0]], [[0, 0, 0], [0, 0, 0]]))
    trials = [trial(), worse]
    s = summarise(client_table(trials), trials)
    assert s["accuracies"] == [pytest.approx([0.625, 1.0]), [0.0, 0.0]]
    assert set(s["values"]) == {"accuracy", "cross_entropy", "auc"}
    assert s["values"]["accuracy"] == s["accuracies"]
    assert s["values"]["cross_entropy"] == [[0.5, 1.5]] * 2
    assert plain(s["values"]["auc"]) == [[None, 0.75]] * 2


def test_tables_by_row_and_column() -> None:
    table = Table([{"client": "a", "accuracy": 0.123456}, {"client": "b", "accuracy": 1.0}])
    assert table[1]["client"] == "b"
    assert table["accuracy"] == [0.123456, 1.0]
    assert table[-1:] == [{"client": "b", "accuracy": 1.0}]
    assert repr(table) == "client  accuracy\n     a    0.1235\n     b         1"
    assert repr(Table()) == "(no rows)"
    with pytest.raises(KeyError, match="verdict"):
        table["verdict"]


def test_against_by_hand() -> None:
    # Differences of the means over three repeats are 1, 2 and 3 points: t(.95, 2) is 2.91999.
    run = {"accuracies": [[0.51, 0.51], [0.53, 0.51], [0.53, 0.53]]}
    base = {"accuracies": [[0.5, 0.5]] * 3}
    found = against(run, base)
    half = 2.91999 * 0.01 / 3**0.5
    assert found["by"] == "repeats"
    assert found["difference"] == pytest.approx(0.02, abs=1e-6)
    assert found["low"] == pytest.approx(0.02 - half, abs=1e-6)
    assert found["high"] == pytest.approx(0.02 + half, abs=1e-6)


def test_against_has_no_interval_where_there_are_too_few_repeats() -> None:
    run, base = {"accuracies": [[0.9, 0.8, 0.7]]}, {"accuracies": [[0.8, 0.7, 0.6]]}
    found = against(run, base)
    assert found["difference"] == pytest.approx(0.1, abs=1e-6)
    assert found["by"] is found["low"] is found["high"] is None
