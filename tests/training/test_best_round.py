"""Early stopping of federated methods: against a search of the recorded curve; lanes; resuming."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import glocal
from conftest import Command
from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.experiment.config import Config
from glocal.experiment.repeat import evaluate_trained
from glocal.experiment.run import Run
from glocal.runs.restore import restore
from glocal.testing import ragged
from glocal.testing.trees import assert_same
from glocal.training import evaluated_rounds
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.loop import Training
from glocal.training.run_state import Progress

GIVEN: dict[str, Any] = {
    "model": "mlp(7)",
    "rounds": 12,
    "baseline": "none",
    "fraction": 0.5,
    "engine": "vectorised",
    "validate_every": 1,
    "seed": 1,
}
METHOD = "ditto"
SCRIPT = (
    [(0.3, 1.0), (0.5, 0.9), (0.5, 0.8), (0.5, 0.8), (0.4, 0.1), (0.9, 0.1), *[(0.1, 1.0)] * 6],
    [(0.4, 1.0), (0.3, 1.0), (0.6, 1.0), (0.5, 1.0), (0.7, 2.0), (0.7, 2.1), *[(0.7, 2.0)] * 6],
)
"""What validation data says after each round of each repeat, as (accuracy, loss), whatever the
models are: what is found does not depend on a CPU's arithmetic."""


@pytest.fixture(autouse=True, scope="module")
def scripted() -> Iterator[None]:
    real = evaluated_rounds.curve_point

    def point(training: Training, progress: Progress) -> dict[str, Any]:
        line = real(training, progress)
        accuracy, loss = SCRIPT[training.seed != 1][progress.round - 1]
        return {**line, "val_accuracy": accuracy, "val_loss": loss}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluated_rounds, "curve_point", point)
        yield


def brute_force(curve: list[tuple[float, float]], patience: int) -> dict[str, int]:
    """The round that is kept and the last that is trained, from the curve of all rounds."""
    for t in range(1, len(curve) + 1):
        so_far = [(accuracy, -loss) for accuracy, loss in curve[:t]]
        best = so_far.index(max(so_far)) + 1
        if t - best >= patience:
            break
    return {"round": best, "trained": t}


@pytest.fixture(scope="module")
def fed() -> Federation:
    return ragged()


@pytest.fixture(scope="module")
def stopped(fed: Federation) -> Run:
    return glocal.fit(METHOD, fed, **GIVEN, repeats=2, patience=2)


def test_as_a_search_of_the_curve_finds_in_each_repeat(stopped: Run) -> None:
    found = [brute_force(curve, 2) for curve in SCRIPT]
    assert found == [{"round": 3, "trained": 5}, {"round": 5, "trained": 7}]  # as by hand
    assert stopped.summary["early_stopping"] == found == [r.kept for r in stopped.repeats]
    for repeat, each in zip(stopped.repeats, found, strict=True):
        assert [line["round"] for line in repeat.history] == [*range(1, each["trained"] + 1)]


def test_one_that_gets_better_to_the_end_is_trained_to_the_end(fed: Federation) -> None:
    run = glocal.fit(METHOD, fed, **GIVEN, patience=3)
    assert run.summary["early_stopping"] == [brute_force(SCRIPT[0], 3)]
    assert run.summary["early_stopping"] == [{"round": 6, "trained": 9}]
    few = glocal.fit(METHOD, fed, **{**GIVEN, "rounds": 6}, patience=3)
    plain = glocal.fit(METHOD, fed, **{**GIVEN, "rounds": 6})
    assert few.summary["early_stopping"] == [{"round": 6, "trained": 6}]
    assert_same("patience", "model", few.model, plain.model)
    assert few.history == plain.history


def test_what_is_kept_is_that_round(fed: Federation, stopped: Run) -> None:
    """Models, states, evaluation: as of a training that ends there; but all that was spent."""
    alone, kept = glocal.fit(METHOD, fed, **GIVEN, patience=2), 3
    assert alone.repeats[0].kept == stopped.repeats[0].kept == {"round": kept, "trained": 5}
    until = glocal.fit(METHOD, fed, **{**GIVEN, "rounds": kept})
    assert_same("kept", "model", alone.model, until.model)
    assert_same("kept", "states", alone.states, until.states)
    assert alone.clients == until.clients
    assert alone.trained is not None
    assert alone.trained.progress.round == kept
    rounds = [line["cohort"] for line in alone.history]
    size = alone.summary["parameters"]
    assert alone.summary["params_up"] == size * sum(rounds) > until.summary["params_up"]
    spent = sum(line["gradients"] for line in alone.history)
    assert alone.summary["gradient_evaluations"] == spent
    assert torch.equal(alone.repeats[0].val_score, until.repeats[0].val_score)


@pytest.mark.parametrize("states", ["device", "disk"])
def test_resumed_to_the_bit(tmp_path: Path, fed: Federation, stopped: Run, states: str) -> None:
    how = {**GIVEN, "patience": 2, "repeats": 2, "states": states}
    whole = stopped if states == "device" else glocal.fit(METHOD, fed, **how)

    def report(what: str, done: int, total: int) -> None:
        if done == 6:  # one repeat has ended, and the other has its best behind it
            raise KeyboardInterrupt

    kept = CheckpointPolicy(tmp_path, every=1, stop=lambda: False)
    with pytest.raises(KeyboardInterrupt):
        glocal.fit(METHOD, fed, **how, checkpoints=kept, progress=report)
    again = glocal.fit(METHOD, fed, **how, checkpoints=kept)
    assert again.summary == whole.summary
    assert again.curves().equals(whole.curves())
    assert_same("resumed", "model", again.model, whole.model)
    assert again.clients == whole.clients
    with pytest.raises(GlocalError, match="another training"):
        glocal.fit(METHOD, fed, **{**how, "patience": 3}, checkpoints=kept)


def test_in_processes_it_is_the_same(fed: Federation, stopped: Run) -> None:
    """Whose results come without their training, which is made again from them."""
    from dataclasses import replace

    from glocal.experiment import setup as setups
    from glocal.experiment.runner import Federated, runner_of

    runner = runner_of(METHOD, METHOD)
    assert isinstance(runner, Federated)
    setup = setups.make(Config(**GIVEN, repeats=2, patience=2), fed, 0)
    assert stopped.trained is not None
    again = runner.restored(setup, replace(stopped.repeats[0], trained=None)).trained
    assert again is not None
    assert again.progress.round == stopped.trained.progress.round
    assert_same("again", "models", again.models(), stopped.trained.models())


def test_what_is_read_back_from_a_folder_is_that_round(command: Command) -> None:
    words = "--clients 4 --model mlp(3) --rounds 12 --seed 1 --validate-every 1 --patience 2"
    given = [*words.split(), "--fraction", "0.5", "--baseline", "none", "--jobs", "1"]
    code, out, _ = command("run", METHOD, *given, "--out", "a")
    assert code == 0
    assert "3 of 5" in out
    assert "Here: ditto 3 of 5." in out
    summary = json.loads(Path("a/result.json").read_text())["methods"][METHOD]["summary"]
    assert summary["early_stopping"] == [{"round": 3, "trained": 5}]
    (back,) = restore(Path("a"))
    assert back.trained.progress.round == 3
    outcome, _ = evaluate_trained(back.trained, back.fed)
    assert outcome.metrics["cross_entropy"] == summary["values"]["cross_entropy"][0]


def test_rates_are_tried_until_patience_runs_out(fed: Federation) -> None:
    how = {**GIVEN, "tune": True, "rounds": 8}
    tuned, all_rounds = (glocal.fit("fedavg", fed, **how, patience=p) for p in (2, None))
    (kept,) = tuned.summary["early_stopping"]
    assert kept["round"] == tuned.summary["chosen"][0]["round"] == len(tuned.history)
    assert kept["trained"] <= 8
    spent = [run.summary["gradient_evaluations"] for run in (tuned, all_rounds)]
    assert spent[0] <= spent[1]
    assert "val_worst10" in tuned.history[-1]
    assert "train_loss" in tuned.history[-1]


@pytest.mark.parametrize(
    ("method", "wrong", "said"),
    [
        ("fedavg", {"patience": 0}, "patience must be an integer of 1 or more"),
        ("fedavg", {"patience": 2, "validate_every": 0}, "patience counts evaluations"),
        ("fedavg+dp(clip=1.0,noise=1.0)", {"patience": 2}, "without noise"),
    ],
)
def test_what_is_refused(fed: Federation, method: str, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(GlocalError, match=said):
        glocal.fit(method, fed, **{**GIVEN, **wrong})
