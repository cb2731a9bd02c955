"""Optimisers against torch's over twenty steps; schedules by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.methods import resolve
from glocal.nn import optim

CASES: dict[str, tuple[Any, Any]] = {
    "sgd": (optim.sgd(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "momentum": (optim.sgd(0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "decay": (
        optim.sgd(0.1, weight_decay=0.05),
        lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.05),
    ),
    "nesterov": (
        optim.sgd(0.1, momentum=0.8, nesterov=True, weight_decay=0.05),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, nesterov=True, weight_decay=0.05),
    ),
    "adam": (optim.adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
    "adam, other betas": (
        optim.adam(0.01, beta1=0.5, beta2=0.9, eps=1e-3, weight_decay=0.05),
        lambda p: torch.optim.Adam(p, 0.01, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.05),
    ),
    "adamw": (
        optim.adamw(0.01, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
    ),
}


def start() -> dict[str, torch.Tensor]:
    return {"w": rng.normal(rng.key(0), (4, 3)), "b": rng.normal(rng.key(1), (3,))}


@pytest.mark.parametrize("name", CASES)
def test_equal_to_torch_over_twenty_steps(name: str) -> None:
    ours, torchs = CASES[name]
    w = start()
    state = ours.init(w)
    params = {k: nn.Parameter(v.clone()) for k, v in w.items()}
    theirs = torchs(params.values())
    for t in range(20):
        grads = {k: rng.normal(rng.fold(rng.key(2), t), tuple(v.shape)) for k, v in w.items()}
        old, before = w, tree.map(torch.clone, w)
        w, state = ours.update(grads, state, w, 1.0)
        assert all(torch.equal(old[k], before[k]) for k in old)
        for k, p in params.items():
            p.grad = grads[k]
        theirs.step()
        for k, p in params.items():
            torch.testing.assert_close(w[k], p.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_the_state_keeps_its_structure_and_can_be_mapped(name: str) -> None:
    ours, _ = CASES[name]
    w = start()
    state = ours.init(w)
    _, after = ours.update(w, state, w, torch.tensor(1.0))
    assert tree.structure(after) == tree.structure(state)
    two = tree.stack([w, w])
    mapped, _ = torch.func.vmap(lambda w: ours.update(w, ours.init(w), w, 1.0))(two)
    torch.testing.assert_close(mapped["w"][1], ours.update(w, state, w, 1.0)[0]["w"])


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_scale_is_a_factor_on_the_rate(name: str) -> None:
    w = start()
    half = optim.CLIENT_OPTIMISERS[name](0.05)
    whole = optim.CLIENT_OPTIMISERS[name](0.1)
    expected, _ = half.update(w, half.init(w), w, 1.0)
    scaled, _ = whole.update(w, whole.init(w), w, torch.tensor(0.5))
    torch.testing.assert_close(scaled["w"], expected["w"])


def test_of_no_parameters() -> None:
    for make in optim.CLIENT_OPTIMISERS.values():
        assert make(0.1).update({}, make(0.1).init({}), {}, 1.0)[0] == {}


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (optim.constant(), [1, 1, 1, 1]),
        (optim.step(0.5), [1, 0.5, 0.25, 0.125]),
        (optim.step(0.5, 2), [1, 1, 0.5, 0.5]),
        (optim.inverse(1.0), [1, 1 / 2, 1 / 3, 1 / 4]),
        (optim.cosine(2), [1, 0.5, 0, 0]),
        (optim.cosine(4, 0.5), [1, 0.5 + 0.25 * (1 + math.sqrt(0.5)), 0.75]),
    ],
)
def test_schedules_by_hand(schedule: optim.Schedule, factors: list[float]) -> None:
    assert [schedule(t) for t in range(len(factors))] == pytest.approx(factors)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fedavg(lr=0)", "lr must be above 0, not 0"),
        ("fedavg(lr=-1)", "lr must be above 0"),
        ("fedavg(momentum=-0.1)", "momentum must be 0 or more"),
        ("fedavg(weight_decay=-1)", "weight_decay must be 0 or more"),
        ("fedavg(nesterov=true)", "nesterov needs momentum"),
        ("fedavg(nesterov=1)", "nesterov must be true or false, not 1"),
        ("fedavg(lr=true)", "lr must be a number, not True"),
        ("fedavg(lr=word)", "lr must be a number, not 'word'"),
        ("fedavg(optimiser=rmsprop)", "unknown optimiser 'rmsprop'"),
        ("fedavg(optimiser=adam,momentum=0.9)", "momentum belongs to sgd; adam has its own"),
        ("fedavg(schedule=stepp(0.5))", "unknown schedule 'stepp': did you mean 'step'"),
        (
            "fedavg(schedule=step(0.5,1,2))",
            r"step takes settings by name \(2 at most without one\)",
        ),
        ("fedavg(schedule=step(0))", "factor must be above 0"),
        ("fedavg(schedule=cosine(0))", "rounds must be above 0"),
        ("fedavg(schedule=inverse(-1))", "decay must be 0 or more"),
    ],
)
def test_settings_that_make_no_sense(spec: str, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        resolve(spec)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beta1": 1.0}, "beta1 must be below 1, not 1.0"),
        ({"eps": 0.0}, "eps must be above 0"),
    ],
)
def test_settings_of_adam_that_make_no_sense(settings: dict[str, float], message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        optim.adam(0.1, **settings)


def test_numbers_of_numpy_and_torch_are_numbers_and_true_is_none() -> None:
    for number in (np.float32(0.5), np.int64(1), torch.tensor(0.5), 1):
        optim.positive(lr=number)
        optim.not_negative(mu=number)
    for wrong in (True, np.True_, "0.5", None, math.nan, math.inf, np.float32("nan")):
        for refuse in (optim.positive, optim.not_negative):
            with pytest.raises(GlocalError, match="mu must be a number, not"):
                refuse(mu=wrong)  # type: ignore[arg-type]


def test_a_gradient_longer_than_its_clip_is_shortened_to_it() -> None:
    """(3, 4) has length 5: clipped to 0.25, 0.1 times that is (0.015, 0.02)."""
    opt = optim.clipped(optim.sgd(0.1), 0.25)
    w = {"a": torch.tensor([1.0]), "b": torch.tensor([1.0])}
    moved, _ = opt.update({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}, {}, w, 1.0)
    assert moved["a"].item() == pytest.approx(0.985)
    assert moved["b"].item() == pytest.approx(0.98)


def test_a_gradient_within_its_clip_is_as_it_was_and_none_is_none() -> None:
    opt, w = optim.sgd(0.1, momentum=0.5, weight_decay=0.1), start()
    short = tree.map(lambda x: 0.01 * x, w)
    for grads in (short, tree.zeros(w)):
        plain, clipped = (o.update(grads, o.init(w), w, 1.0) for o in (opt, optim.clipped(opt, 9)))
        assert all(torch.equal(plain[0][k], clipped[0][k]) for k in w)


def test_clipping_is_torchs() -> None:
    ours, w = optim.clipped(optim.sgd(0.1, momentum=0.9, weight_decay=0.05), 1.0), start()
    params = {k: nn.Parameter(v.clone()) for k, v in w.items()}
    theirs = torch.optim.SGD(params.values(), 0.1, momentum=0.9, weight_decay=0.05)
    state = ours.init(w)
    for t in range(5):
        grads = {k: rng.normal(rng.fold(rng.key(2), t), tuple(v.shape)) for k, v in w.items()}
        w, state = ours.update(grads, state, w, 1.0)
        for k, p in params.items():
            p.grad = grads[k].clone()
        nn.utils.clip_grad_norm_(params.values(), 1.0)
        theirs.step()
    for k, p in params.items():
        torch.testing.assert_close(w[k], p.detach(), rtol=1e-5, atol=1e-6)


def test_a_plateau_lowers_the_rate_where_the_loss_stays() -> None:
    schedule = optim.plateau(0.5, patience=2, least=0.2)
    assert isinstance(schedule, optim.Plateau)
    losses = [3.0, 2.0, 2.0, 2.5, 1.9, 1.9, 2.0, 3.0, math.inf, 3.0, 3.0]
    factors = [schedule.factor_after(losses[:n]) for n in range(len(losses) + 1)]
    assert factors == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2]
    assert schedule(7) == 1.0


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("fedavg(grad_clip=0)", "grad_clip"),
        ("scaffold(grad_clip=1)", "plain SGD"),
        ("fedavg(schedule=plateau(1))", "between 0 and 1"),
        ("fedavg(schedule=plateau(0.5, 0))", "patience"),
        ("fedavg(schedule=plateau(least=2))", "least"),
        ("local(schedule=plateau())", "best epoch"),
    ],
)
def test_what_cannot_be_clipped_or_lowered_is_refused(spec: str, why: str) -> None:
    with pytest.raises(GlocalError, match=why):
        resolve(spec)
