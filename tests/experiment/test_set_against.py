"""What clients are set against: the same model alone, the best alone, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import glocal
from comparing import compared
from glocal.core.errors import GlocalError
from glocal.core.interrupts import Stopped
from glocal.experiment.best_alone import SAME, unavailable
from glocal.experiment.config import Config
from glocal.experiment.runner import LocalOnly, runner_of, set_against
from glocal.training.checkpoint import CheckpointPolicy

pytest.importorskip("sklearn")
GIVEN: dict[str, Any] = {"model": "logistic", "rounds": 2, "progress": False}
TUNED: dict[str, Any] = {**GIVEN, "baseline": "best", "tune": True, "repeats": 2}
SHORT = "local(lr=0.1, max_epochs=3)"


def fed() -> glocal.Federation:
    """Three clients; neighbours say all of what a linear model cannot."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(120, 1, 2, generator=draw)
    y = (x[:, 0, 0] * x[:, 0, 1] > 0).long()
    return glocal.federation(x, y, clients=torch.arange(120) % 3)


@pytest.fixture(scope="module")
def best() -> glocal.Run:
    return glocal.fit("fedavg", fed(), **TUNED)


def test_the_best_alone_is_in_every_trial(best: glocal.Run) -> None:
    assert len(best.best) == 2
    for outcome, same in zip(best.best, best.baseline, strict=True):
        assert set(outcome.chosen) <= {"svm", "knn"}
        ours = [float(own.mean()) for own in outcome.own]
        theirs = [float(own.mean()) for own in same.outcome.own]
        assert all(a > b for a, b in zip(ours, theirs, strict=True))
        assert same.cv_score is not None


def test_processes_change_nothing(best: glocal.Run) -> None:
    run = glocal.fit("fedavg", fed(), **TUNED, jobs=2)
    assert run.clients["benefit"] == best.clients["benefit"]
    assert run.best[1].chosen == best.best[1].chosen


def test_compared_methods_share_one_best_alone() -> None:
    runs = compared(["local", "fedavg"], fed(), **GIVEN, baseline="best")
    first, second = runs.values()
    assert first.best[0].chosen == second.best[0].chosen
    assert runs["local"].is_baseline
    assert not runs["fedavg"].is_baseline


def test_without_scikit_learn_it_is_the_same_model_and_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "sklearn" else find(name)
    )
    assert "scikit-learn" in str(unavailable(fed()))
    run = glocal.fit("fedavg", fed(), **GIVEN, baseline="best")
    assert set(run.best[0].chosen) == {SAME}
    assert "needs scikit-learn" in capsys.readouterr().err.replace("need scikit", "needs scikit")


def test_what_is_left_out_is_said_and_recorded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("glocal.experiment.families.CLIENT_OPERATIONS", 1e7)
    run = glocal.fit("fedavg", fed(), **GIVEN, baseline="best")
    assert run.summary["alone_left_out"] == {"logistic": 3, "svm": 3, "knn": 3}
    assert "logistic in 3 of 3 fits, svm in 3 of 3 fits, knn" in capsys.readouterr().err
    assert set(run.best[0].chosen) == {SAME}


def test_stopped_while_it_fits(tmp_path: Path) -> None:
    """It is asked after every client."""
    where: list[str] = []
    policy = CheckpointPolicy(tmp_path, stop=lambda: where[-1:] == ["best alone"])
    with pytest.raises(Stopped):
        glocal.fit(
            "fedavg",
            fed(),
            **{**GIVEN, "progress": lambda what, *_: where.append(what)},
            baseline="best",
            checkpoints=policy,
        )
    assert where[-1] == "best alone"


def test_none_trains_no_baseline_and_says_nothing_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalOnly, "run_side_by_side", lambda *_: pytest.fail("it was trained"))
    run = glocal.fit("fedavg", fed(), **GIVEN, baseline="none")
    assert run.clients["benefit"] == run.clients["verdict"] == [None] * 3
    assert run.clients["local_accuracy"] == [None] * 3
    assert all(a is not None for a in run.clients["accuracy"])
    for name in ("benefit", "better_off", "worse_off", "undecided", "local_mean"):
        assert run.summary[name] is None
    assert run.baseline == ()
    assert "alone" not in repr(run)
    assert "of 3 clients, which are set against no baseline>" in repr(run)
    with pytest.raises(GlocalError, match="--baseline same"):
        compared(["fedavg"], fed(), **GIVEN, baseline="none", choose=True)


def test_none_with_local_among_the_methods() -> None:
    runs = compared([SHORT, "fedavg"], fed(), **GIVEN, baseline="none")
    assert not runs[SHORT].is_baseline
    assert runs[SHORT].clients["benefit"] == [None] * 3
    assert runs[SHORT].client_model(1).module is not None


def test_only_the_method_that_others_are_set_against_is_the_baseline() -> None:
    names = ["local", SHORT, "fedavg"]
    runners = {name: runner_of(name, name) for name in names}
    against = set_against(Config(baseline=SHORT), runners)
    assert against[SHORT] is runners[SHORT]
    assert against["local"] is against["fedavg"]
    assert against["local"] is not runners["local"]
    assert set_against(Config(), {SHORT: runners[SHORT]})[SHORT] is runners[SHORT]
    runs = compared([SHORT, "local(lr=0.3, max_epochs=4)"], fed(), **GIVEN, baseline=SHORT)
    first, second = runs.values()
    assert first.is_baseline
    assert not second.is_baseline
    assert second.clients["local_accuracy"] == first.clients["accuracy"]
    assert second.client_model(0).module is not None


def test_what_is_no_baseline_is_refused() -> None:
    with pytest.raises(GlocalError, match="same, best, none, or local"):
        Config(baseline="fedavg")


def test_tuning_refits_and_is_told_apart() -> None:
    plain, tuned = (glocal.fit(SHORT, fed(), **GIVEN, tune=tune) for tune in (False, True))
    assert plain.states.keys() == tuned.states.keys()
    assert any(not torch.equal(plain.states[k], tuned.states[k]) for k in plain.states)


def test_verdicts_by_another_metric() -> None:
    """Below zero is better of an error: the benefit is what it falls by; own splits."""
    fed = glocal.load("digits", clients=6, partition="iid", seed=0)
    settings: dict[str, Any] = {"model": "mlp(8)", "rounds": 3, "repeats": 3, "progress": False}
    run = glocal.fit("fedavg", fed, baseline=SHORT, metric="cross_entropy", **settings)
    for row in run.clients:
        assert row["benefit"] == pytest.approx(row["local_cross_entropy"] - row["cross_entropy"])
    assert run.summary["metric"] == "cross_entropy"
    assert run.summary["estimate"] == "own"
    with pytest.raises(GlocalError, match="auc is no metric of 10 classes: use one of accuracy"):
        glocal.fit("fedavg", fed, baseline=SHORT, metric="auc", **settings)
    with pytest.raises(GlocalError, match="unknown metric 'acuracy'"):
        glocal.fit("fedavg", fed, baseline=SHORT, metric="acuracy", **settings)


def test_how_wide_the_same_is() -> None:
    fed = glocal.load("digits", clients=6, partition="iid", seed=0)
    settings: dict[str, Any] = {"model": "mlp(8)", "rounds": 3, "repeats": 3, "progress": False}
    wide = glocal.fit("fedavg", fed, baseline=SHORT, same=0.99, **settings)
    assert wide.summary["undecided"] == 0
