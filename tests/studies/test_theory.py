"""Drawn federations: least squares, training by the package's own methods, bias and variance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import glocal
from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.studies import linear_teacher as forms
from glocal.studies import teacher_draws, theory
from glocal.studies.linear_teacher import Teachers
from glocal.studies.teacher_draws import Draws, draw, least_squares, new_inputs
from glocal.studies.teacher_training import federation_of, train

SMALL = Teachers(0.3, sigma=0.8, features=3, clients=4, examples=50, tests=30)


@pytest.fixture(scope="module")
def drawn() -> Draws:
    return draw(SMALL, rng.fold(rng.key(5), torch.arange(2)))


def fits(drawn: Draws, t: Teachers = SMALL) -> tuple[torch.Tensor, torch.Tensor]:
    own, together = least_squares(drawn, t, drawn.noise_moments())
    return own[..., 0], together[:, 0, :, 0]


def solved(x: torch.Tensor, y: torch.Tensor) -> Any:
    return np.linalg.lstsq(x.double().numpy(), y.double().numpy(), rcond=None)[0]


def test_least_squares_is_numpys_on_the_rows_of_the_federation(drawn: Draws) -> None:
    own, together = fits(drawn)
    fed = federation_of(drawn, 1, SMALL)
    everyone = fed.train.rows
    assert together[1].numpy() == pytest.approx(solved(fed.x[everyone], fed.y[everyone]), 1e-5)
    errors = []
    for k in range(SMALL.clients):
        x, y = fed[k].train
        assert len(y) == SMALL.examples
        assert own[1, k].numpy() == pytest.approx(solved(x, y), rel=1e-5)
        x, y = fed[k].test
        errors.append(float((x.double() @ own[1, k] - y).square().mean()))
    off = own.unsqueeze(-1) - drawn.teachers(SMALL.rho)
    assert float(drawn.products(off, off)[1, 0]) == pytest.approx(np.mean(errors), rel=1e-4)


def test_what_is_drawn_does_not_depend_on_how_many_at_once(
    drawn: Draws, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = theory.alpha_mixture([SMALL], draws=3, trained=0, seed=2)
    monkeypatch.setattr(teacher_draws, "AT_ONCE", 1)
    by_itself = theory.alpha_mixture([SMALL], draws=3, trained=0, seed=2)
    (a,), (b,) = together["settings"], by_itself["settings"]
    assert [m["mean"] for m in a["measured"]] == pytest.approx([m["mean"] for m in b["measured"]])
    (other,) = theory.alpha_mixture([SMALL], draws=3, trained=0, seed=3)["settings"]
    assert other["measured"][0]["mean"] != pytest.approx(a["measured"][0]["mean"], rel=1e-3)


@pytest.fixture(scope="module")
def figure_4() -> dict[str, Any]:
    return theory.alpha_mixture(theory.with_rhos(Teachers(0.5), theory.RHOS), draws=5, trained=0)


def test_the_papers_setting_follows_the_closed_form(figure_4: dict[str, Any]) -> None:
    """With 5 draws the standard error of the bias is √(2 / 10,000) = 1.4 %."""
    for s in figure_4["settings"]:
        means = [m["mean"] for m in s["measured"]]
        assert means == pytest.approx(s["closed_form"], rel=0.05)
        star = s["best_alpha"]
        assert star["found"] == pytest.approx(star["predicted"], abs=0.02)
        assert 0 < star["se"] < 0.01
        if s["rho"] > 0.05:
            assert means[0] > 5 * s["printed"][0]
        assert s["least_error"]["measured"]["mean"] <= min(means)


def test_where_inputs_have_a_second_moment_of_one_over_d_the_printed_form_holds() -> None:
    t = Teachers(0.5, features=4, clients=20, examples=400, tests=50, width=(3 / 4) ** 0.5)
    (s,) = theory.alpha_mixture([t], draws=30, trained=0)["settings"]
    assert [m["mean"] for m in s["measured"]] == pytest.approx(s["printed"], rel=0.06)


def test_gradient_descent_by_glocal_ends_at_least_squares(drawn: Draws) -> None:
    own, together = fits(drawn)
    found = train(drawn, 1, SMALL, (own[1], together[1]), [0.0, 0.3, 1.0])
    assert found["weights_apart"] < 1e-5
    assert found["errors_apart"] < 1e-4
    assert float((own[1] - own[0]).abs().max()) > 0.01  # of the other draw: not what any data gives


def test_many_local_steps_in_one_round_average_the_own_models(drawn: Draws) -> None:
    """The proof's v̂, which is the mean of û_m and not quite the fit to all examples."""
    own, together = fits(drawn)
    run = glocal.fit(
        "fedavg(lr=1.5, epochs=60, batch_size=0)",
        federation_of(drawn, 0, SMALL),
        model=lambda: nn.Linear(3, 1, bias=False),
        rounds=1,
        baseline="none",
        validate_every=0,
        progress=False,
    )
    weight = run.model["weight"][0].double()
    assert float((weight - own[0].mean(0)).abs().max()) < 1e-5
    assert float((weight - together[0]).abs().max()) > 1e-3


def test_training_says_when_it_would_take_too_long() -> None:
    tight = Teachers(0.1, features=6, clients=3, examples=8, tests=2)
    with pytest.raises(GlocalError, match="--trained 0"):
        theory.alpha_mixture([tight], draws=2)


def test_bias_and_variance_are_those_of_predictions(drawn: Draws) -> None:
    """By hand, from predictions on test inputs: of the first four noises, and of four others."""
    alpha, n = 0.3, 4
    terms = theory._terms(drawn, SMALL, drawn.noise_moments(2 * n))
    s = theory._decomposition(SMALL, terms, [alpha])
    x, teachers = new_inputs(SMALL, drawn.keys).double(), drawn.teachers(SMALL.rho)

    def predicted(weights: torch.Tensor) -> Any:
        return (x @ weights).movedim(-1, 0).numpy()

    own, together = least_squares(drawn, SMALL, drawn.noise_moments(2 * n))
    predictions = alpha * predicted(own) + (1 - alpha) * predicted(together)
    truth = predicted(teachers)[0]
    variance = np.var(predictions[:n], axis=0, ddof=1)
    bias = (np.mean(predictions[:n], axis=0) - truth) ** 2 - variance / n
    error = np.mean([(p - truth) ** 2 for p in predictions[n:]], axis=0)
    for name, by_hand in (("variance", variance), ("squared_bias", bias), ("error", error)):
        assert s[name][0]["mean"] == pytest.approx(by_hand.mean(), rel=1e-9), name
    assert s["left_over"][0]["mean"] == pytest.approx((error - bias - variance).mean(), rel=1e-9)


def test_bias_and_variance_add_up_to_the_error_and_follow_their_forms() -> None:
    t = Teachers(0.2, features=5, clients=10, examples=200, tests=100)
    found = theory.bias_variance([t], draws=40, noises=10)
    for each in found["variances"].values():
        assert abs(each["mean"] - each["closed_form"]) < 4 * each["se"]
        assert each["se"] < 0.1 * each["mean"]
    (s,) = found["settings"]
    for i, alpha in enumerate(found["grid"]):
        left, error = s["left_over"][i], s["error"][i]["mean"]
        assert abs(left["mean"]) < 4 * left["se"] < 0.1 * error
        bias, variance = forms.bias_and_variance(alpha, t)
        for form, measured in ((bias, s["squared_bias"][i]), (variance, s["variance"][i])):
            assert abs(measured["mean"] - form) < 4 * measured["se"]
    biases, variances = ([m["mean"] for m in s[k]] for k in ("squared_bias", "variance"))
    assert biases == sorted(biases, reverse=True)
    assert variances == sorted(variances)
