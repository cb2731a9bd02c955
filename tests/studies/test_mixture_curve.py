"""The λ curve: λ = 0 is the received model, λ = 1 the client's own."""

from __future__ import annotations

import pytest
import torch
from studied import QUICK, digits

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.evaluation.metrics import accuracy, cross_entropy, ece
from glocal.experiment.fit import fit
from glocal.studies.curves import ends, mixture_curve
from glocal.studies.repeats import UNUSED, finished

METHODS = ["apfl", "superfed-lm", "superfed-mm"]


@pytest.mark.parametrize("method", METHODS)
def test_the_ends_are_the_received_and_the_own_model(method: str) -> None:
    run = fit(method, digits(), baseline=UNUSED, **QUICK)
    received, own = ends(run)
    done = finished(run)
    for name, leaf in run.model.items():
        torch.testing.assert_close(received[name], leaf)
        torch.testing.assert_close(own[name], run.states["v" if method == "apfl" else "l"][name])
    curve = mixture_curve(digits(), method, grid=[0, 0.5, 1], **QUICK)
    (clients,) = curve["by_repeat"]
    task = done.training.task
    found: dict[str, list[float]] = {"accuracy": [], "loss": [], "ece": []}
    for k in range(5):
        x, y = digits()[k].val
        first, last = task.predict(received, x), task.predict(tree.row(own, k), x)
        assert clients["client_validation"][0][k] == pytest.approx(accuracy(first, y))
        assert clients["client_validation"][-1][k] == pytest.approx(accuracy(last, y))
        for name, metric in (("accuracy", accuracy), ("loss", cross_entropy), ("ece", ece)):
            found[name].append(metric(last, y))
    for name, values in found.items():
        at_one = curve["validation"][name][-1]["mean"]
        assert at_one == pytest.approx(sum(values) / 5, rel=1e-5)


def test_the_picks_are_those_of_a_fit_and_test_picking_has_its_own_name() -> None:
    run = fit("superfed-mm", digits(), baseline=UNUSED, **QUICK)
    curve = mixture_curve(digits(), "superfed-mm", **QUICK)
    assert curve["picked"]["accuracy"]["mean"] == pytest.approx(run.summary["mean"], abs=1e-6)
    (clients,) = curve["by_repeat"]
    assert [f"λ={p:g}" for p in clients["picks"]] == run.clients["model"]
    assert sum(curve["picks"]) == 5
    assert curve["test_picked"]["mean"] >= curve["picked"]["accuracy"]["mean"]


def test_a_client_that_never_took_part_has_its_initial_model() -> None:
    curve = mixture_curve(digits(), "apfl", grid=[0, 1], **QUICK, fraction=0.2)
    assert len(curve["by_repeat"][0]["picks"]) == 5


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("fedavg", "does not mix two models"),
        ("superfed", "choose one of apfl, superfed-lm, superfed-mm"),
        ("apfl(shared=last(1))", "leave shared out"),
    ],
)
def test_other_methods_are_refused(method: str, says: str) -> None:
    with pytest.raises(GlocalError, match=says):
        mixture_curve(digits(), method, **QUICK)


def test_lambda_out_of_range() -> None:
    with pytest.raises(GlocalError, match=r"lam must be from 0 to 1, not -0\.1"):
        mixture_curve(digits(), "apfl", grid=[-0.1], **QUICK)
