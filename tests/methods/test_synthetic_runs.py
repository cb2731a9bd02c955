"""Runs of methods that make synthetic data: what they report, evaluate and keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import glocal
from glocal import federation
from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.interrupts import Stopped
from glocal.data.federation import Federation
from glocal.evaluation import synthetic_data
from glocal.experiment import synthetic
from glocal.experiment.synthetic import figures
from glocal.nn.task import Task
from glocal.training.checkpoint import CheckpointPolicy
from toys import images, seeded


def pictures() -> Federation:
    """As ``images``, with pixels from 0 to 1."""
    fed = images()
    return replace(fed, x=torch.sigmoid(fed.x), unsplit=None)


def far_apart() -> Federation:
    """Class 0 on the left, class 1 on the right, each two Gaussians; clients lack some."""
    key, centres = rng.key(0), torch.tensor([[-2.0, -2], [-2, 2], [2, -2], [2, 2]])
    which = torch.arange(240) % 4
    x = centres[which] + 0.3 * rng.normal(key, (240, 2))
    owner = (torch.arange(240) // 4) % 2 + 2 * (which % 2)
    return federation(x, which // 2, clients=owner)


def test_a_run_says_what_was_made_and_keeps_it(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from glocal.report.comparison import made_in_words

    fed = pictures()
    plain = glocal.fit("fedavg", fed, model="mlp(4)", rounds=1, progress=False)
    run = glocal.fit("fedevg(spc=2,steps=2)", fed, model="mlp(4)", rounds=2, progress=False)
    found = run.summary["synthetic"]
    assert run.summary["synthetic_accuracy"] == found["accuracy"]
    assert found["examples"] == 6
    assert {"frechet", "features", "nearness", "membership"} <= set(found)
    said = made_in_words("fedevg", run.summary)
    assert "made 6 labelled examples: a classifier" in said
    for part in ("Fréchet distance from all clients' test data", "Nearest neighbours:", "AUC of"):
        assert part in said
    assert found["features"] in said
    assert run.made is not None
    assert run.made.y.tolist() == [0, 0, 1, 1, 2, 2]
    assert plain.made is None
    assert found["classifier"].keys() == {"steps", "loss", "converged"}
    run.save(tmp_path / "run")
    kept = load_file(tmp_path / "run" / "synthetic.safetensors")
    assert kept["x"].shape == (6, 1, 6, 6)
    assert kept["y"].tolist() == [0, 0, 1, 1, 2, 2]
    assert (tmp_path / "run" / "synthetic.png").read_bytes()[1:4] == b"PNG"
    assert len(run.clients) == len(fed)
    assert "synthetic" not in plain.summary


def test_evaluating_what_was_made_has_a_bar_and_can_be_stopped(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []

    def evaluating() -> bool:
        return bool(told) and "evaluating" in told[-1][0]

    def fit(stop: Callable[[], bool], folder: Path) -> glocal.Run:
        keeping = CheckpointPolicy(folder, stop=stop, note=lambda _: None)
        settings: dict[str, Any] = {"model": "mlp(4)", "rounds": 2, "baseline": "none"}
        progress = lambda *line: told.append(line)  # noqa: E731
        method = "fedevg(spc=2,steps=2)"
        return glocal.fit(method, pictures(), checkpoints=keeping, progress=progress, **settings)

    with pytest.raises(Stopped):
        fit(evaluating, tmp_path / "stopped")
    assert told[-1][0] == "fedevg(spc=2,steps=2), evaluating its synthetic data"
    at, total = told[-1][1:]
    assert (at, total) == (1, synthetic_data.STEPS + synthetic.STEPS)
    told.clear()
    again = fit(lambda: False, tmp_path / "stopped")
    assert [n for what, n, _ in told if "evaluating" not in what] == [2]  # all rounds were there
    done = [n for what, n, _ in told if "evaluating" in what]
    assert done == sorted(done)
    assert done[-1] == total
    whole = fit(lambda: False, tmp_path / "whole")
    assert again.summary["synthetic"] == whole.summary["synthetic"]


def test_words_of_repeats_do_not_mix_the_first_with_a_mean() -> None:
    from glocal.report.comparison import made_in_words

    figures = {
        "examples": 4,
        "accuracy": 0.9,
        "central_accuracy": 0.8,
        "classifier": {"steps": 3000, "loss": 0.5, "converged": False},
        "frechet": None,
        "frechet_missing": "this model has none.",
        "frechet_from": "the central test set",
        "features": "none",
        "nearness": {"nearer_to_trained": 0.5, "copies": 2, "copies_of_held_out": 1},
        "membership": {"auc": 0.61, "advantage": 0.2, "tpr_at_1": 0.034},
    }
    one = {"synthetic_accuracy": 0.9, "synthetic": figures, "repeats": 1}
    said = made_in_words("fedevg", one)
    for part in (
        "has 90.0 % on the clients' test data and 80.0 % on the central test set (not converged: "
        "after 3000 steps its training loss was 0.50).",
        "No Fréchet distance: this model has none.",
        "copies of training examples: 2, of held-out ones: 1.",
        "AUC of 0.61",
        "a gap of 0.20",
        "3.4 % of the members",
    ):
        assert part in said
    assert "repeat" not in said
    said = made_in_words("fedevg", {**one, "synthetic_accuracy": 0.7, "repeats": 3})
    assert (
        "examples in the first of 3 repeats: a classifier trained on them alone has 90.0 %" in said
    )
    assert said.endswith("Mean accuracy over all repeats, on the clients' test data: 70.0 %.")


def test_a_set_is_evaluated_on_the_central_test_data_where_there_is_some() -> None:
    class WithCentral:
        def __init__(self, fed: Federation) -> None:
            self.fed, self.central = fed, (fed.x[:5], fed.y[:5])

        def __getattr__(self, name: str) -> Any:
            return getattr(self.fed, name)

        def __getitem__(self, k: int) -> Any:
            return self.fed[k]

        def __len__(self) -> int:
            return len(self.fed)

    fed = far_apart()
    task = Task(glocal.nn.models.build("mlp(16)", input_shape=(2,), classes=2))
    x, y = fed.x[fed.train.rows][:40], fed.y[fed.train.rows][:40]
    found = figures(task, WithCentral(fed), x, y, rng.key(0))  # type: ignore[arg-type]
    assert found["central_accuracy"] == 1.0
    assert found["accuracy"] == 1.0
    assert found["frechet_from"] == "the central test set"
    assert found["nearness"]["copies"] == 40
    assert figures(task, fed, x, y, rng.key(0))["frechet_from"] == "all clients' test data"


def test_a_model_without_a_linear_layer_keeps_its_examples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learn = synthetic_data.train_classifier
    monkeypatch.setattr(
        synthetic_data, "train_classifier", lambda *a, **k: learn(*a, **{**k, "steps": 5})
    )

    class Convolved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(1, 3, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).flatten(1)

    fed = pictures()
    found = figures(Task(seeded(Convolved)), fed, fed.x[:6], fed.y[:6], rng.key(0))
    assert found["frechet"] is None
    assert "no linear layer" in found["frechet_missing"]
    assert found["membership"]["auc"] > 0


def test_the_model_of_real_data_learns_the_labels_that_training_sees() -> None:
    """All of class 0 are told to be of class 1 and the other way round."""
    fed = far_apart()
    wrong = replace(fed, y_train=1 - fed.y)
    task = Task(glocal.nn.models.build("mlp(16)", input_shape=(2,), classes=2))
    told = figures(task, wrong, fed.x[:20], fed.y[:20], rng.key(0))["features"]
    assert "test data: 0.000)" in told


def test_an_attack_that_would_change_nothing_is_refused() -> None:
    with pytest.raises(GlocalError, match="would change nothing: attack its data"):
        glocal.fit("fedevg", images(), model="mlp(4)", rounds=1, attack="sign-flip(share=0.5)")
