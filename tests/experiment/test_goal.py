"""Rounds, parameters and gradients until a goal."""

from __future__ import annotations

from typing import Any

import pytest

from comparing import compared
from glocal.core.errors import GlocalError
from glocal.evaluation.communication import Traffic
from glocal.experiment.goal import reached
from glocal.testing import ragged

SMALL: dict[str, Any] = {"model": "mlp(3)", "baseline": "local(lr=0.1,max_epochs=1)"}


class Past:
    """A repeat's history of validation accuracies; a round sends 10 up, 20 down, by 5 gradients."""

    def __init__(self, *accuracies: float | None) -> None:
        self.history: list[dict[str, Any]] = []
        self.traffic = Traffic()
        for t, accuracy in enumerate(accuracies, 1):
            line = {} if accuracy is None else {"val_accuracy": accuracy}
            self.history.append({"round": t, "gradients": 5, **line})
            self.traffic.record({"shared": 15, "extra": 5}, {"shared": 10})


def goal_of(*repeats: Past) -> dict[str, Any]:
    return reached(repeats, 0.8)  # type: ignore[arg-type]


def test_by_hand() -> None:
    # The second round was not evaluated; the third is the first that is seen to have it.
    one = goal_of(Past(0.5, None, 0.8, 0.7, 0.9))
    assert one == {
        "accuracy": 0.8,
        "reached": 1,
        "rounds": 3,
        "params_up": 30,
        "params_down": 60,
        "bytes_up": 120,
        "bytes_down": 240,
        "gradient_evaluations": 15,
    }
    several = goal_of(Past(0.9), Past(0.1, 0.2, 0.85), Past(0.1, 0.79))
    assert (several["reached"], several["rounds"], several["params_up"]) == (2, 2, 20)
    never = goal_of(Past(0.1), Past())
    assert (never["reached"], never["rounds"], never["params_down"]) == (0, None, None)


def test_validation_is_recorded_after_every_round() -> None:
    fed = ragged()
    settings = {"rounds": 4, "seed": 1, **SMALL}
    runs = compared(["fedavg", "local(lr=0.1,max_epochs=1)"], fed, goal=0.2, **settings)
    run = runs["fedavg"]
    accuracies = [line["val_accuracy"] for line in run.history]
    first = next(t for t, accuracy in enumerate(accuracies, 1) if accuracy >= 0.2)
    goal = run.summary["goal"]
    assert goal["rounds"] == first
    assert goal["params_up"] == first * run.summary["params_up"] / 4
    assert goal["gradient_evaluations"] == first * run.summary["gradient_evaluations"] / 4
    assert "goal" not in runs["local(lr=0.1,max_epochs=1)"].summary
    every = compared(["fedavg"], fed, goal=0.2, validate_every=3, **settings)["fedavg"]
    assert ["val_accuracy" in line for line in every.history] == [False, False, True, True]
    assert every.summary["goal"]["rounds"] == 3


@pytest.mark.parametrize("goal", [0, 1.5, float("nan")])
def test_a_goal_is_an_accuracy(goal: float) -> None:
    with pytest.raises(GlocalError, match="goal"):
        compared(["fedavg"], ragged(), goal=goal, **SMALL)
