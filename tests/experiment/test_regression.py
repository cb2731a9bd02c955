"""Regression and counts from data to verdicts, in the label's own unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import glocal
from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.evaluation.measures import named
from glocal.experiment import setup
from glocal.experiment.best_alone import fit_all
from glocal.experiment.config_reading import from_arguments
from glocal.experiment.setup import Setup
from glocal.prediction.exporting import Outputs

SHORT = "local(max_epochs=3)"
GIVEN_TO_MAKE: dict[str, Any] = {"rounds": 2, "model": "mlp(8)", "baseline": SHORT}
GIVEN: dict[str, Any] = {**GIVEN_TO_MAKE, "progress": False}


def data(task: str, n: int = 160, factor: float = 1.0) -> Federation:
    r = np.random.default_rng(0)
    x = r.normal(size=(n, 3)).astype("float32")
    y = 50 + 10 * x[:, 0] + r.normal(size=n)
    if task == "counts":
        y = r.poisson(np.exp(0.5 + 0.5 * x[:, 0]))
    return glocal.federation(x, factor * y, np.arange(n) % 4, task=task)


@pytest.fixture(scope="module")
def numbers() -> Federation:
    return data("regression")


@pytest.fixture(scope="module")
def run(numbers: Federation) -> glocal.Run:
    return glocal.fit("ditto", numbers, **GIVEN, validate_every=1)


def test_a_saved_model_predicts_in_the_labels_unit(numbers: Federation, tmp_path: Any) -> None:
    for fed in (numbers, data("counts")):
        run = glocal.fit("fedavg", fed, **{**GIVEN, "baseline": "none"})
        task, x = fed.target.task, fed[0].test[0]
        run.client_model(0).save(tmp_path / task)
        model = glocal.load_model(tmp_path / task)
        assert model.classes == []
        assert model.predict(x) == pytest.approx(predictions(run, fed, 0)[0], rel=1e-6)
        assert Outputs(model.module, model.description)(x).tolist() == pytest.approx(
            model.predict(x).tolist(), rel=1e-5
        )


def predictions(run: glocal.Run, fed: Federation, k: int) -> tuple[Any, Any]:
    """Client k's predictions and labels on its test data, by hand."""
    assert run.trained is not None
    params = run.trained.models(torch.tensor([k]))
    module = run._filled(run.template, {name: value[0] for name, value in params.items()}).eval()
    x, y = fed[k].test
    with torch.no_grad():
        output = module(x)[:, 0].double()
    location, scale = fed.target.location, fed.target.scale
    if fed.target.task == "counts":
        return (scale * output.exp()).numpy(), (scale * y.double()).numpy()
    return (location + scale * output).numpy(), (location + scale * y.double()).numpy()


def test_values_are_errors_in_the_labels_unit(run: glocal.Run, numbers: Federation) -> None:
    for k, row in enumerate(run.clients):
        prediction, y = predictions(run, numbers, k)
        assert row["value"] == pytest.approx(np.abs(prediction - y).mean(), rel=1e-5)
        assert row["rmse"] == pytest.approx(np.sqrt(((prediction - y) ** 2).mean()), rel=1e-5)
        assert row["benefit"] == pytest.approx(row["local_value"] - row["value"])
        train = numbers.target.labels(numbers[k].train[1])
        constant = np.abs(y - float(train.median())).mean()
        assert row["constant_value"] == pytest.approx(constant, rel=1e-5)
        assert "accuracy" not in row
        said = run.client_model(k).predict(numbers[k].test[0])
        assert said == pytest.approx(prediction, rel=1e-6)
    s = run.summary
    assert (s["metric"], s["lower_is_better"], s["task"]) == ("mae", True, "regression")
    assert s["mean"] == pytest.approx(np.mean(run.clients["value"]))
    assert s["worst10"] == pytest.approx(max(run.clients["value"]))


def test_lines_have_the_metric_on_validation_data(run: glocal.Run) -> None:
    last = run.history[-1]
    assert "val_accuracy" not in last
    assert last["val_mae"] == pytest.approx(-float(run.repeats[0].val_score.mean()), rel=1e-5)


def test_the_unit_of_the_label_changes_nothing_but_the_unit(run: glocal.Run) -> None:
    """A learning rate means the same for metres and kilometres."""
    other = glocal.fit("ditto", data("regression", factor=1000.0), **GIVEN)
    ratio = np.array(other.clients["value"]) / np.array(run.clients["value"])
    assert ratio == pytest.approx(np.full(4, 1000.0), rel=1e-3)
    assert other.clients["verdict"] == run.clients["verdict"]


@pytest.mark.parametrize(("loss", "metric"), [(None, "rmse"), ("absolute", "mae")])
def test_counts(loss: str | None, metric: str) -> None:
    fed = data("counts")
    run = glocal.fit("fedavg", fed, **GIVEN, losses=loss, metric=metric)
    by = named(metric)
    for k, row in enumerate(run.clients):
        prediction, y = map(torch.from_numpy, predictions(run, fed, k))
        assert float(prediction.min()) > 0
        assert row["value"] == pytest.approx(by.value(prediction, y), rel=1e-5)


def test_the_best_alone_of_numbers_is_nearly_a_line(numbers: Federation) -> None:
    """Ridge regression, by each client's own held-out examples; errors are in the label's unit."""
    for metric in ("mae", "r2"):
        (alone,) = fit_all([numbers], [0], tune=True, metric=metric)
        assert alone.outcome.chosen.count("ridge") >= 3  # of four clients whose data is on a line
        assert 0.5 < np.mean(alone.outcome.metrics["mae"]) < 1.3  # of noise with a deviation of 1
        expected = -0.8 if metric == "mae" else 0.99
        assert alone.score.tolist() == pytest.approx([expected] * 4, rel=0.5)


def test_the_same_model_is_cross_validated_in_the_labels_unit(numbers: Federation) -> None:
    few = "local(max_epochs=2, lr=0.1)"
    run = glocal.fit("local", numbers, **{**GIVEN, "baseline": few}, repeats=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Setup, "scored", True)
        setup._BASELINES.clear()
        again = glocal.fit("local(max_epochs=2, lr=0.1)", numbers, **GIVEN, repeats=2)
    setup._BASELINES.clear()
    for repeat in again.repeats:
        assert repeat.cv_score is not None
        ratio = repeat.cv_score / repeat.val_score
        assert 0.3 < float(ratio.median()) < 3
    assert run.clients["value"] is not None


def test_an_own_metric_decides(numbers: Federation, tmp_path: Any) -> None:
    own = tmp_path / "own.py"
    own.write_text("def cost(y, p): return abs(y - p).mean()\ncost.higher_is_better = False\n")
    by_name = glocal.fit("fedavg", numbers, **GIVEN)
    mine = glocal.fit("fedavg", numbers, **GIVEN, metric=f"{own}:cost")
    assert mine.summary["metric"] == "cost"
    for name in ("value", "local_value", "benefit", "low", "high"):
        assert mine.clients[name] == pytest.approx(by_name.clients[name], rel=1e-5)
    assert mine.clients["verdict"] == by_name.clients["verdict"]


def test_repeats_side_by_side_have_their_own_units(numbers: Federation) -> None:
    """Folds differ in mean and deviation, and train together: each as it would by itself."""
    several = glocal.fit("fedavg", numbers, **GIVEN, repeats=2)
    assert numbers.fold(1).target != numbers.target
    alone = several.baseline[1]
    seed = rng.seed_of(rng.fold(rng.key(0), 1))
    setups = [setup.make(from_arguments({**GIVEN_TO_MAKE, "seed": seed}), numbers.fold(1), 0)]
    (found,) = setup.measured_all(setups, setup.baseline(SHORT), lambda done, total: None)
    assert alone.val_score.tolist() == pytest.approx(found[0].val_score.tolist(), rel=1e-3)
    assert alone.outcome.metrics["mae"] == pytest.approx(found[1].metrics["mae"], rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "accuracy"}, "accuracy is no metric of regression: use one of mae, rmse, r2"),
        ({"losses": "poisson"}, "poisson is no loss of regression: use squared or absolute"),
        ({"losses": "hinge"}, "unknown loss 'hinge'"),
        ({"method": "lg-fedavg(goal=0.9)"}, "a stage's goal, an accuracy, is about classes"),
        ({"new_test": True}, "new_test is about classes"),
        ({"attack": "label-flip(share=0.5)"}, "attack is about classes"),
        ({"adapt": "distill"}, "distill is about classes"),
        ({"model": lambda: torch.nn.Linear(3, 2)}, "give its last layer one output"),
    ],
)
def test_what_does_not_fit_is_refused(
    numbers: Federation, settings: dict[str, Any], message: str
) -> None:
    settings = dict(settings)
    method = settings.pop("method", "fedavg")
    with pytest.raises(GlocalError, match=message):
        glocal.fit(method, numbers, **{**GIVEN, **settings})


@pytest.mark.parametrize("method", ["fedevg", "fedcgan", "fedcvae"])
def test_methods_that_generate_labelled_examples_need_classes(
    numbers: Federation, method: str
) -> None:
    with pytest.raises(GlocalError, match="of classes, and labels are numbers here"):
        glocal.fit(method, numbers, **GIVEN)


def test_engines_agree(numbers: Federation) -> None:
    given = {**GIVEN, "baseline": "none"}
    one, other = (
        glocal.fit("ditto", numbers, **given, engine=engine)
        for engine in ("sequential", "vectorised")
    )
    assert one.clients["value"] == pytest.approx(other.clients["value"], rel=1e-3)
