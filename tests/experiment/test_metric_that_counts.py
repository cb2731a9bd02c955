"""The metric that counts chooses everywhere, and clients without a value of it are named."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import glocal
from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.measures import named
from glocal.evaluation.scores import Scores
from glocal.experiment import classifiers, setup, tuning
from glocal.experiment.adapted_clients import Adapted
from glocal.experiment.best_alone import Alone, best_of, fit_all
from glocal.experiment.choice import choose
from glocal.experiment.classifiers import best_fit
from glocal.experiment.config_reading import from_arguments
from glocal.experiment.early_stopping import Best
from glocal.experiment.families import Examples, Family, Fitted
from glocal.report.comparison import show_clients, show_comparison
from glocal.training.checkpoint import CheckpointPolicy

skm = pytest.importorskip("sklearn.metrics")

GIVEN: dict[str, Any] = {"rounds": 2, "model": "logistic", "baseline": "local(max_epochs=3)"}


@pytest.fixture(scope="module")
def fed() -> Federation:
    """Three hospitals with a tenth of positives, and one without any."""
    r = np.random.default_rng(0)
    n = 400
    x = r.normal(size=(n, 3)).astype("float32")
    clients = np.arange(n) % 4
    y = (x[:, 0] + 0.5 * r.normal(size=n) > 1.4).astype(int)
    y[clients == 3] = 0
    return glocal.federation(x, y, clients)


@pytest.fixture(scope="module")
def run(fed: Federation) -> glocal.Run:
    return glocal.fit("fedavg", fed, **GIVEN, metric="auc", progress=False, validate_every=1)


def test_values_are_the_auc_of_the_models_scores(run: glocal.Run, fed: Federation) -> None:
    module = run.module().eval()
    for k in range(3):
        x, y = fed[k].test
        with torch.no_grad():
            score = module(x).softmax(-1)[:, 1]
        row = run.clients[k]
        assert row["value"] == pytest.approx(skm.roc_auc_score(y.numpy(), score.numpy()))
        assert row["benefit"] == pytest.approx(row["value"] - row["local_value"])
        assert row["constant_value"] == 0.5
        assert 0 <= row["accuracy"] <= 1
    assert run.summary["metric"] == "auc"
    assert run.summary["mean"] == pytest.approx(np.mean(run.clients["value"][:3]))
    assert {"val_auc", "val_accuracy", "val_loss"} <= run.history[-1].keys()


def test_a_client_with_one_class_is_named(run: glocal.Run, capsys: Any) -> None:
    row = run.clients[3]
    assert math.isnan(row["value"])
    assert row["verdict"] == "undecided"
    show_comparison({"fedavg": run})
    out = " ".join(capsys.readouterr().out.split())
    assert "No AUC for 1 client, since their test examples are of one class: 3." in out
    assert "mean AUC ×100" in out
    show_clients(run)
    assert "AUC ×100" in capsys.readouterr().out


def test_a_constant_that_beats_both_models_is_said(fed: Federation, capsys: Any) -> None:
    """By accuracy always "no" is right in nine of ten, and untrained models are not."""
    given = {**GIVEN, "rounds": 1, "baseline": "local(max_epochs=1, lr=1e-9)"}
    poor = glocal.fit("fedavg(lr=1e-9)", fed, **given, progress=False)
    assert poor.clients["constant_value"] == pytest.approx(
        [float((fed[k].test[1] == 0).double().mean()) for k in range(4)]
    )
    show_comparison({"fedavg": poor})
    out = " ".join(capsys.readouterr().out.split())
    assert "Constant: always the most frequent class" in out
    assert "Warning: with fedavg a constant does better than every model at " in out
    assert "(--metric auc may tell more)" in out


def test_baselines_and_checkpoints_of_two_metrics_are_two(fed: Federation, tmp_path: Any) -> None:
    client = setup.baseline("local")
    chosen = (None, "accuracy", "auc", lambda y, p: 0.0, lambda y, p: 1.0)
    made = [
        setup.make(from_arguments({"model": "logistic", "metric": metric}), fed, 0)
        for metric in chosen
    ]
    texts = [each.key(client) for each in made]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 4
    policy = CheckpointPolicy(tmp_path / "c", every=1, stop=lambda: False, note=lambda text: None)
    given = {**GIVEN, "tune": True, "checkpoints": policy, "progress": False}
    glocal.fit("fedavg", fed, **given, metric="auc")
    setup._BASELINES.clear()
    with pytest.raises(GlocalError, match="are of another training"):
        glocal.fit("fedavg", fed, **given, metric="brier")


def test_the_best_alone_goes_by_the_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    """Always "no" has the accuracy .9, and the other one finds all positives."""

    def says(of_x: int) -> Any:
        def scores(x: Any, y: Any, new: Any, settings: Any, seed: int) -> list[Any]:
            return [np.stack([np.zeros(len(new)), new[:, of_x]], 1) for _ in settings]

        return scores

    families = tuple(
        Family(name, (0,), 0, says(i), lambda s, settings: 0.0)
        for i, name in enumerate(["always no", "finds all"])
    )
    monkeypatch.setattr(classifiers, "FAMILIES", families)
    monkeypatch.setattr("glocal.experiment.families.scaler", lambda x, table: lambda new: new)
    y = np.array([1] * 2 + [0] * 18)
    x = np.stack([np.full(20, -3.0), np.where((y == 1) | (np.arange(20) < 6), 3.0, -3.0)], 1)
    fold = np.arange(20) % 2

    def chosen(metric: str) -> str:
        by = named(metric)

        def measure(log_p: Any, labels: Any) -> float:
            return by.sign * by.value(torch.from_numpy(log_p), torch.from_numpy(labels))

        score = None if metric == "accuracy" else measure
        found = best_fit(Examples(x, y, fold, True, 0, measure=score), 2, 1)
        assert isinstance(found, Fitted)
        assert found.score == pytest.approx(max(found.scores.values()))
        return found.name

    assert chosen("accuracy") == "always no"
    assert chosen("balanced_accuracy") == chosen("auc") == "finds all"


def test_clients_without_a_score_go_by_their_loss(fed: Federation) -> None:
    """The client of one class has a constant of the loss 0, and no AUC."""
    (alone,) = fit_all([fed], [0], tune=False, metric="auc")
    assert alone.outcome.chosen[3] == "constant"
    assert math.isnan(float(alone.score[3]))
    assert alone.score[:3].isfinite().all()
    assert alone.loss is not None
    same = Alone(alone.outcome, alone.score, {}, alone.loss + 1)
    assert best_of(same, alone).outcome.chosen[3] == "constant"


def offer(value: list[float], loss: list[float], error: float) -> Any:
    own = [torch.zeros(2)] * len(value)
    outcome = Outcome({}, own, None, ["x"] * len(value), "mae", own, lower=True)
    found = Adapted({}, outcome, [], torch.tensor(value), val_loss=torch.tensor(loss))
    object.__setattr__(found, "val_error", torch.full((len(value),), error))
    return found


def test_choosing_by_an_error() -> None:
    """Scores are negative errors: a client leaves for an error that is lower by more than ±1."""
    nan = math.nan
    alone = offer([-5.0, -5.0, -5.0, nan], [1, 1, 1, 1.0], 1.0)
    others = {"a": offer([-4.5, -3.9, -6.0, nan], [0, 0, 0, 3.0], 1.0)}
    others["b"] = offer([-5.0, -3.8, -5.0, nan], [0, 0, 0, -1.0], 1.0)
    n = torch.full((4,), 9)
    _, picks = choose(alone.outcome, alone.val_score, others, n, loss=alone.val_loss)
    assert picks == ["local", "b", "local", "b"]


def test_the_last_epoch_within_an_error_of_the_best_is_kept() -> None:
    best = Best({"w": torch.zeros(1, 1)}, torch.tensor([0]), torch.tensor([5]), by_accuracy=False)
    rows = torch.tensor([0])
    for epoch, (value, error) in enumerate([(-9, 1), (-5, 1), (-5.9, 9), (-6.1, 9)], 1):
        found = Scores(torch.tensor([float(value)]), torch.ones(1), torch.tensor([float(error)]))
        best.offer(rows, {"w": torch.full((1, 1), float(epoch))}, found, epoch)
    assert best.state["epoch"].tolist() == [3]  # −6.1 is more than the 1 of the best below it
    assert best.state["w"]["w"].item() == 3
    diverged = Scores(torch.tensor([math.nan]), torch.tensor([math.inf]), torch.tensor([1.0]))
    best.offer(rows, {"w": torch.zeros(1, 1)}, diverged, 5)
    assert best.state["epoch"].tolist() == [3]


def test_the_rate_of_the_lowest_error_is_chosen() -> None:
    from glocal.evaluation.communication import Traffic
    from glocal.training.client_state.store import ClientStore
    from glocal.training.resumed import RoundsEnd
    from glocal.training.run_state import Progress

    def end(*errors: float) -> RoundsEnd:
        lines = [
            {"round": t, "val_mae": e, "val_loss": 1.0, "clients": [[-e], ["g"], [1.0], [0.1]]}
            for t, e in enumerate(errors, 1)
        ]
        return RoundsEnd(Progress({}, ClientStore(1), Traffic(), history=lines), seconds=1.0)

    choice = tuning.choose((0.3, 1.0), [end(7.0, 5.0, 6.0), end(9.0, 4.0)], named("mae"))
    assert (choice.factor, choice.round) == (1.0, 2)
    assert choice.scores.value.tolist() == [-4.0]
    assert choice.validation == {
        t: {"val_mae": e, "val_loss": 1.0} for t, e in ((1, 9.0), (2, 4.0))
    }


def test_a_metric_that_nobody_has_is_complained_about(
    fed: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(y: Any, prediction: Any) -> float:
        return math.nan

    given: dict[str, Any] = {"rounds": 1, "model": "logistic", "metric": nothing}
    said = "the metric nothing has no value (NaN) on any client's"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both = glocal.compare(
            ["fedavg", "ditto"], fed, **given, baseline="local(max_epochs=1)", repeats=1
        )
    assert capsys.readouterr().err.count(f"{said} test examples") == 1
    assert "advice" not in both["fedavg"].summary
    show_comparison(both)
    assert "nan" not in capsys.readouterr().out
    with pytest.raises(GlocalError, match=re.escape(f"{said} validation examples")):
        glocal.tune("fedavg", {"lr": [0.1]}, fed, **given)
