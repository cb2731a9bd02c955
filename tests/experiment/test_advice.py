"""Advice goes by validation data, less costs; test data says what it is worth."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import glocal
from comparing import compared
from glocal.evaluation.summary import Table
from glocal.experiment.advice import add_advice, expected_gain
from glocal.experiment.run import Run


def made_up(val: list[float], alone: list[float], *, personal: bool, benefit: float) -> Run:
    """Three repeats of clients with plenty of validation data, all alike."""
    rows = Table(
        {"client": str(k), "n_train": 100, "n_val": 4000, "benefit": benefit, "p_worse": 0.25}
        for k in range(len(val))
    )
    repeats = tuple(SimpleNamespace(val_score=torch.tensor(val), val_error=None) for _ in range(3))
    run = Run("m", {}, rows, {"personal": personal}, [], {}, {}, {})
    return replace(
        run,
        trained=cast(Any, SimpleNamespace()),
        repeats=cast(Any, repeats),
        alone_scores=(torch.tensor(alone),) * 3,
    )


ALONE = [0.80, 0.80, 0.80, 0.80, 0.80, 0.80]
JOINED = [0.90, 0.90, 0.90, 0.70, 0.70, 0.70]
OWN = [0.88, 0.88, 0.95, 0.95, 0.70, 0.70]


def both() -> dict[str, Run]:
    return {
        "fedavg": made_up(JOINED, ALONE, personal=False, benefit=0.05),
        "ditto": made_up(OWN, ALONE, personal=True, benefit=0.03),
    }


def test_each_client_is_advised_what_validation_data_favours() -> None:
    runs = both()
    add_advice(runs, 0.0, 0.0)
    for run in runs.values():  # the same in every run's table
        assert run.clients["advice"] == [
            "join",
            "join",
            "join and personalise",
            "join and personalise",
            "stay",
            "stay",
        ]
        assert run.clients["advised"] == ["fedavg", "fedavg", "ditto", "ditto", "alone", "alone"]
        assert run.clients["advised_p_worse"] == [0.25] * 4 + [0.0] * 2
    s = runs["fedavg"].summary
    assert (s["advised"], s["recommended"]) == (2, False)
    gain = pytest.approx((2 * 0.05 + 2 * 0.03) / 6)
    assert s["advice"] == {"stay": 2, "benefit": gain, "of_clients": 6}
    assert runs["ditto"].summary["recommended"]


def test_costs_are_taken_off() -> None:
    runs = both()
    add_advice(runs, 0.0, 9.0)  # points: a model of one's own gains too little then
    assert runs["fedavg"].clients["advised"][:3] == ["fedavg"] * 3
    runs = both()
    add_advice(runs, 20.0, 0.0)
    assert set(runs["fedavg"].clients["advice"]) == {"stay"}
    assert not any(run.summary["recommended"] for run in runs.values())


def test_few_validation_examples_are_drawn_to_the_others() -> None:
    run = made_up([0.9] * 7 + [0.3], [0.8] * 8, personal=False, benefit=0.0)
    for row in run.clients:
        row["n_val"] = 4
    gain = expected_gain(run)
    assert gain[7] > 0.3 - 0.8 + 0.2


def test_a_comparison_has_advice() -> None:
    fed = glocal.load("digits", clients=6, partition="classes(2)", seed=0)
    done = compared(
        ["local(lr=0.1, max_epochs=3)", "fedavg", "ditto"],
        fed,
        rounds=2,
        repeats=1,
        model="mlp(8)",
        baseline="local(lr=0.1, max_epochs=3)",
        tune=False,
        progress=False,
    )
    advice = done["ditto"].clients["advice"]
    assert set(advice) <= {"stay", "join", "join and personalise"}
    assert done["fedavg"].clients["advice"] == advice
    assert (done["ditto"].summary["personal"], done["fedavg"].summary["personal"]) == (True, False)
