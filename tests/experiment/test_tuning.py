"""Rates and rounds chosen on validation data, and trained again on that too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import glocal
import toys
from glocal.core.errors import ClientError, GlocalError
from glocal.data.federation import Federation
from glocal.evaluation.communication import Traffic
from glocal.evaluation.evaluate import pick, validation
from glocal.experiment import setup as setups
from glocal.experiment import tuning
from glocal.experiment.config import Config
from glocal.experiment.runner import Federated, run_seeds, runner_of
from glocal.methods.specs import leaves_rate_open
from glocal.testing import ragged
from glocal.testing.trees import assert_same
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.client_state.store import ClientStore
from glocal.training.loop import Training
from glocal.training.resumed import RoundsEnd
from glocal.training.run_state import Progress

GIVEN: dict[str, Any] = {
    "model": "mlp(7)",
    "rounds": 6,
    "repeats": 2,
    "baseline": "local(lr=0.1,max_epochs=2)",
    "fraction": 0.5,
    "tune": True,
    "engine": "vectorised",
    "seed": 1,
}


FACTORS = (10.0, 30.0)
"""Some of them too high, so that the best round is not the last."""


@pytest.fixture(scope="module")
def fed() -> Federation:
    return ragged()


def chosen_by_loop(method: str, fed: Federation, r: int) -> tuple[float, int, Any, Any]:
    """One repeat: every rate by itself, validated after every round; then trained again."""
    runner, config = runner_of(method, method), Config(**GIVEN)
    setup = setups.make(config, fed, r)
    training = runner.check(setup)
    assert training is not None
    best: tuple[Any, ...] | None = None
    for factor in FACTORS:
        now = replace(training, rate=factor)
        progress = now.begin(now.task.params)
        for t in range(1, 7):
            now.one_round(progress)
            accuracy, loss = validation(now.task, now.fed, now.engine, now.models(progress))
            score = (float(accuracy.mean()), -float(loss.mean()))
            if best is None or score > best[0]:
                best = (score, factor, t, accuracy)
    assert best is not None
    _, factor, t, accuracy = best
    both = [torch.cat([setup.fed.train.of(k), setup.fed.val.of(k)]) for k in range(len(fed))]
    start = torch.tensor([0, *(len(rows) for rows in both)]).cumsum(0)
    joined = replace(setup.fed, train=replace(setup.fed.train, rows=torch.cat(both), start=start))
    again = replace(training, fed=joined, rate=factor)
    progress = again.begin(again.task.params)
    for _ in range(t):
        again.one_round(progress)
    return factor, t, accuracy, progress


@pytest.mark.parametrize("method", ["ditto", "fedavg(schedule=cosine(6))"])
def test_as_a_plain_loop_does(
    method: str, fed: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "RATES", FACTORS)
    run = glocal.fit(method, fed, **GIVEN)
    assert run.trained is not None
    for r, repeat in enumerate(run.repeats):
        factor, t, accuracy, progress = chosen_by_loop(method, fed, r)
        assert repeat.chosen == {"rate": pytest.approx(0.1 * factor), "round": t}
        assert torch.allclose(repeat.val_score, accuracy)
        assert len(repeat.history) == t == len(repeat.traffic.up)
        if r == 0:
            end = run.trained.progress
            assert_same("tuned", "server", end.server, progress.server, 1e-5)
            _, states = end.clients.saved()
            assert_same("tuned", "clients", states, progress.clients.saved()[1], 1e-5)
    assert run.summary["chosen"] == [repeat.chosen for repeat in run.repeats]
    assert any(chosen["round"] < 6 for chosen in run.summary["chosen"])


def test_what_is_recorded_of_validation_is_from_before(fed: Federation) -> None:
    """Also, gradients count what all rates took."""
    lines: list[dict[str, Any]] = []
    run = glocal.fit("fedavg", fed, **GIVEN, on_line=lines.append)
    for r, repeat in enumerate(run.repeats):
        last = repeat.history[-1]
        assert last["val_accuracy"] == pytest.approx(float(repeat.val_score.mean()))
        assert [line for line in lines if line["repeat"] == r + 1] == [
            {**line, "repeat": r + 1} for line in repeat.history
        ]
        assert "clients" not in last
        final = sum(line["gradients"] for line in repeat.history)
        n = [int(s.counts().sum()) for s in (fed.fold(r).train, fed.fold(r).val)]
        assert final < repeat.gradients
        assert final > 0.3 * len(repeat.history) * 2 * sum(n)  # half of the clients, two epochs


def ends(*lanes: list[tuple[float, float]], error: ClientError | None = None) -> list[RoundsEnd]:
    """Where trainings ended, whose validation accuracies and losses by round are these."""
    found = []
    for lane in lanes:
        history = [
            {
                "round": t,
                "val_accuracy": a,
                "val_loss": b,
                "gradients": 5,
                "clients": [[a], ["g"], [b], None],
            }
            for t, (a, b) in enumerate(lane, 1)
        ]
        progress = Progress({}, ClientStore(1), Traffic(), round=len(lane), history=history)
        found.append(RoundsEnd(progress, error=error, seconds=1.0))
    return found


def test_the_highest_accuracy_then_the_lower_loss_then_the_earlier_round() -> None:
    nan = float("nan")
    lanes = ends(
        [(0.5, 1.0), (0.6, 1.0), (0.7, 0.9), (0.7, 0.8)],
        [(0.7, 0.7), (0.7, 0.7), (0.6, 0.1)],
        [(0.9, nan), (0.9, float("inf"))],
        [],
    )
    choice = tuning.choose((0.1, 1.0, 3.0, 9.0), lanes)
    assert (choice.factor, choice.round) == (1.0, 1)
    assert choice.scores.value.tolist() == pytest.approx([0.7])
    assert choice.validation == {1: {"val_accuracy": 0.7, "val_loss": 0.7}}
    assert (choice.gradients, choice.seconds) == (45, 4.0)
    diverged = ends([(0.9, nan)], [], error=ClientError("it diverged"))
    with pytest.raises(ClientError, match="it diverged"):
        tuning.choose((1.0, 3.0), diverged)


def test_a_rate_that_diverges_is_not_chosen_and_ends_nothing(
    fed: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "RATES", (1.0, 1e30))
    run = glocal.fit("fedavg", fed, **GIVEN)
    assert [repeat.chosen["rate"] for repeat in run.repeats if repeat.chosen] == [0.1, 0.1]
    monkeypatch.setattr(tuning, "RATES", (1e25, 1e30))
    with pytest.raises(GlocalError, match="not finite"):
        glocal.fit("fedavg", fed, **GIVEN)


@pytest.mark.parametrize(
    ("spec", "rate_open"),
    [
        ("fedavg", True),
        ("fedavg(epochs=3)+uniform", True),
        ("fedavg(lr=0.1)", False),
        ("adam(lr=0.1)", True),  # the server's
        ("adam", True),
        ("ditto(lam=0.1)+median", True),
        ("fedrep(lr=0.1)", False),
        ("superfed-mm", True),
    ],
)
def test_whose_rate_is_open(spec: str, rate_open: bool) -> None:
    assert leaves_rate_open(spec) == rate_open
    assert (len(tuning.rates_of(spec)) > 1) == rate_open


def test_what_cannot_be_chosen_and_why(fed: Federation) -> None:
    given = runner_of("x", "fedavg(lr=0.1)")
    assert isinstance(given, Federated)
    assert given.tries(Config(tune=True)) == (1.0,)
    assert given.tries(Config()) == ()
    run = glocal.fit("fedavg(lr=0.1)", fed, **{**GIVEN, "repeats": 1})
    assert run.summary["chosen"][0]["why_not"] == "the rate was given"
    assert run.summary["chosen"][0]["round"] <= 6
    private = {**GIVEN, "repeats": 1, "rounds": 3, "public_noise": True}
    spec = "fedavg+dp(clip=1.0,noise=1.0)"
    tuned, plain = (
        glocal.fit(spec, fed, **private),
        glocal.fit(spec, fed, **{**private, "tune": False}),
    )
    assert "privacy budget" in tuned.summary["chosen"][0]["why_not"]
    assert all(torch.equal(tuned.model[k], plain.model[k]) for k in plain.model)
    adapted = glocal.fit("fedavg", fed, **{**GIVEN, "adapt": "fine-tune(max_epochs=1)"})
    assert adapted.trained is not None
    train = adapted.trained.training.fed.train
    assert torch.equal(train.rows, fed.train.rows)
    assert "adapting" in adapted.summary["chosen"][0]["why_not"]


def test_candidates_are_those_picked_before_validation_data_was_trained_on(
    fed: Federation,
) -> None:
    config = Config(**{**GIVEN, "repeats": 1, "fraction": 1.0})
    runner, setup = runner_of("two", toys.two_candidates()), setups.make(config, fed, 0)
    (repeat,) = run_seeds(runner, [setup])
    assert repeat.trained is not None
    assert repeat.chosen is not None
    training = runner.check(setup)
    assert isinstance(training, Training)
    before = replace(training, stop=repeat.chosen["round"])
    done = before.run(before.begin(before.task.params))
    everyone = torch.arange(len(fed))
    where = (before.task, fed, before.engine)
    _, picks = pick(*where, before.models(done)(everyone), everyone)
    assert repeat.outcome.chosen == picks == list(repeat.trained.picks or ())
    assert len(set(picks)) > 1
    t = repeat.trained
    candidates = t.training.models(t.progress)(everyone)
    models = t.models()
    for k, name in enumerate(picks):
        assert all(torch.equal(models[p][k], candidates[name][p][k]) for p in models)
    few = t.models(torch.tensor([4, 1]))
    assert all(torch.equal(few[p][0], models[p][4]) for p in models)


def test_one_training_at_a_time_comes_to_the_same(fed: Federation) -> None:
    """As where there is no memory for more."""
    config = Config(**GIVEN)
    several = [setups.make(config, fed, r) for r in range(2)]
    runner = runner_of("ditto", "ditto")
    for lanes in (1, 4):
        one, all_ = run_seeds(runner, several, lanes=lanes), run_seeds(runner, several, lanes=6)
        for a, b in zip(one, all_, strict=True):
            assert a.chosen == b.chosen
            assert a.outcome.metrics["accuracy"] == pytest.approx(b.outcome.metrics["accuracy"])


@pytest.mark.parametrize("moment", ["choosing", "again"])
def test_resumed(tmp_path: Path, fed: Federation, moment: str) -> None:
    whole = glocal.fit("ditto", fed, **GIVEN)
    calls: list[str] = []

    def report(what: str, done: int, total: int) -> None:
        calls.append(what)
        if ("choosing" in what) == (moment == "choosing") and "alone" not in what and done == 3:
            raise KeyboardInterrupt

    kept = CheckpointPolicy(tmp_path, every=1, stop=lambda: False)
    with pytest.raises(KeyboardInterrupt):
        glocal.fit("ditto", fed, **GIVEN, checkpoints=kept, progress=report)
    folders = {path.name for path in tmp_path.glob("[rt]*")}
    assert folders == ({"rates-1-6"} if moment == "choosing" else {"rates-1-6", "repeats-1-2"})
    again = glocal.fit("ditto", fed, **GIVEN, checkpoints=tmp_path)
    assert again.summary == whole.summary
    assert again.history == whole.history
    assert all(torch.equal(again.model[k], whole.model[k]) for k in whole.model)
