"""The way from the global model to each client's own: its ends, its picks, its two kinds."""

from __future__ import annotations

import pytest
import torch
from studied import ALONE, QUICK, digits

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.experiment.fit import fit
from glocal.studies.curves import along, interpolate, interpolated
from glocal.studies.repeats import client_models, finished
from glocal.studies.scoring import Examples, best, own


def test_the_ends_are_the_two_models() -> None:
    found = interpolate(digits(), local=ALONE, grid=[1.0, 0.0, 0.5], **QUICK)
    assert found["grid"] == [0.0, 0.5, 1.0]
    alone = fit(ALONE, digits(), **QUICK).clients["accuracy"]
    together = fit("fedavg", digits(), baseline=ALONE, **QUICK).clients["accuracy"]
    for kind in ("weights", "predictions"):
        (curve,) = found[kind]["by_repeat"]
        assert curve["client_test"][0] == pytest.approx(together, abs=1e-12)
        assert curve["client_test"][-1] == pytest.approx(alone, abs=1e-12)
    a, b = (found[k]["by_repeat"][0]["client_test"][1] for k in ("weights", "predictions"))
    assert a != b  # in between the two kinds differ


def test_two_equal_models_give_a_flat_curve() -> None:
    run = fit("fedavg", digits(), baseline=ALONE, **QUICK)
    same = tree.map(lambda x: x.expand(5, *x.shape), run.model)
    for curve in interpolated(finished(run).training, same, run.model, [0.0, 0.3, 1.0]).values():
        for where in ("validation", "test"):
            for values in curve[where].values():
                assert values == pytest.approx([values[0]] * 3, abs=1e-6)


def test_clients_pick_on_validation_and_test_data_is_only_looked_at_there() -> None:
    run = fit("fedavg", digits(), baseline=ALONE, **QUICK)
    alone = client_models(fit(ALONE, digits(), **QUICK))
    grid = [0.0, 0.5, 1.0]
    curve = interpolated(finished(run).training, alone, run.model, grid)["predictions"]
    for k, pick in enumerate(curve["picks"]):
        on_validation = [row[k] for row in curve["client_validation"]]
        assert on_validation[grid.index(pick)] == max(on_validation)
    at = [curve["client_test"][grid.index(p)][k] for k, p in enumerate(curve["picks"])]
    assert curve["picked"]["accuracy"] == pytest.approx(sum(at) / 5)
    assert curve["test_picked"] >= curve["picked"]["accuracy"]
    common = grid.index(curve["common"])
    assert curve["validation"]["accuracy"][common] == max(curve["validation"]["accuracy"])
    assert curve["commonly_picked"]["accuracy"] == curve["test"]["accuracy"][common]


def test_what_is_best_on_test_data_is_not_picked() -> None:
    """A model that is always right on validation and never on test, and one the other way round."""
    fed = digits()
    validation = own(fed, fed.val).rows

    def logits(point: float, examples: Examples) -> torch.Tensor:
        y = fed.y[examples.rows]
        on_validation = torch.equal(examples.rows, validation)
        right = (point == 0) == on_validation
        return 5.0 * torch.nn.functional.one_hot(y if right else (y + 1) % 10, 10)

    curve = along(logits, fed, [0.0, 1.0])
    assert curve["picks"] == [0.0] * 5
    assert curve["common"] == 0.0
    assert curve["picked"]["accuracy"] == curve["commonly_picked"]["accuracy"] == 0.0
    assert curve["test_picked"] == pytest.approx(1.0)


def test_ties_go_to_the_lower_loss() -> None:
    offered = [
        {"accuracy": [0.5, 0.9], "loss": [2.0, 1.0]},
        {"accuracy": [0.5, 0.8], "loss": [1.0, 0.1]},
    ]
    assert best(offered) == [1, 0]


def test_predictions_of_one_half_are_the_mean_of_probabilities() -> None:
    """Two clients' answers worked out with the model itself."""
    run = fit("fedavg", digits(), baseline=ALONE, **QUICK)
    alone = client_models(fit(ALONE, digits(), **QUICK))
    t = finished(run).training
    curve = interpolated(t, alone, run.model, [0.5])["predictions"]
    for k in range(2):
        x, y = digits()[k].val
        p = t.task.predict(tree.row(alone, k), x).softmax(-1)
        q = t.task.predict(run.model, x).softmax(-1)
        right = ((p + q).argmax(-1) == y).float().mean()
        assert curve["client_validation"][0][k] == pytest.approx(float(right))
    assert torch.isfinite(torch.tensor(curve["test"]["loss"])).all()


def test_bad_input() -> None:
    with pytest.raises(GlocalError, match=r"alpha must be from 0 to 1, not 1\.5"):
        interpolate(digits(), grid=[1.5], **QUICK)
    with pytest.raises(GlocalError, match="at least one alpha"):
        interpolate(digits(), grid=[], **QUICK)
    with pytest.raises(GlocalError, match="a model for each client"):
        interpolate(digits(), local=ALONE, together="ditto", **QUICK)
    with pytest.raises(GlocalError, match="no server"):
        interpolate(digits(), local=ALONE, together="local(lr=0.1, max_epochs=1)", **QUICK)
