"""Adaptation: limits that are other techniques, the Fisher information, and choosing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loops_of_adaptation import plain_fine_tune
from torch import Tensor, nn

import glocal
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.engines import Engine, Sequential, Vectorised
from glocal.evaluation.evaluate import score
from glocal.experiment.adaptation import (
    Technique,
    adapt,
    distill,
    ewc,
    fine_tune,
    freeze_base,
    techniques,
)
from glocal.experiment.choice import choice
from glocal.experiment.config import Config
from glocal.experiment.fisher import fisher
from glocal.nn.optim import sgd
from glocal.nn.task import Task
from glocal.testing import ragged
from toys import dropout_net, seeded

pytestmark = pytest.mark.usefixtures("few_digits")

ENGINES: list[Engine] = [Sequential(), Vectorised()]
FED = ragged()
ALL = torch.arange(len(FED))


def net() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3)))


TASK = Task(net())


def given(spread: float = 0.0) -> Params:
    """A model for each client, the same or nearly so."""
    copies = tree.stack([TASK.params] * len(FED))
    return tree.map(lambda x: x + spread * rng.normal(rng.key(x.numel()), x.shape), copies)


def walked(technique: Technique, engine: Engine = ENGINES[1]) -> Params:
    """The models after exactly the epochs asked for, whatever validation data says."""
    start = given(0.1)
    state: dict[str, Any] = {
        "w": start,
        "g": start,
        "opt": {},
        "lr": torch.full((len(FED),), technique.rates[0]),
    }
    if technique.lam is not None:
        state["f"] = fisher(TASK, FED, engine, start, ALL)
    from glocal.engines import CohortRound

    for epoch in range(technique.max_epochs):
        down = {"params": {}, "lr": torch.tensor(1.0)}
        work = CohortRound(TASK, technique, FED, down, ALL, state, rng.fold(rng.key(5), epoch))
        _, state = engine.round(work)
    models: Params = state["w"]
    return models


def same(a: Params, b: Params, tolerance: float = 1e-6) -> bool:
    return all(torch.allclose(a[k], b[k], atol=tolerance) for k in a)


SHORT = {"lr": 0.1, "max_epochs": 3}


def test_ewc_without_pull_is_fine_tuning() -> None:
    assert same(walked(ewc(lam=0.0, **SHORT)), walked(fine_tune(**SHORT)), 0)


def test_ewc_with_an_endless_pull_does_not_move() -> None:
    moved = walked(ewc(lam=1e30, **SHORT))
    F = fisher(TASK, FED, ENGINES[1], given(0.1), ALL)
    for name, start in given(0.1).items():
        held = F[name] > 0
        assert torch.equal(moved[name][held], start[held])
        assert bool(held.any())


def test_ewc_between() -> None:
    start = given(0.1)
    far, near = (
        float(tree.sq_norm(tree.sub(walked(ewc(lam=lam, **SHORT)), start))) for lam in (1.0, 100.0)
    )
    free = float(tree.sq_norm(tree.sub(walked(fine_tune(**SHORT)), start)))
    assert near < far < free


def test_ewc_step_is_the_gradient_step_for_small_rates() -> None:
    """One full batch at a small rate: ``A − η (∇CE + λF(A − G))``, from an A that is not G."""
    technique = ewc(lam=50.0, lr=1e-4, max_epochs=1, batch_size=0)
    start = given(0.1)
    F = fisher(TASK, FED, ENGINES[0], start, ALL)
    x, y = FED[2].train
    batch = {"x": x, "y": y, "weight": torch.ones(len(y))}
    g, f = tree.row(start, 2), tree.row(F, 2)
    a = tree.map(lambda p: p + 0.3, g)
    carry = {"w": a, "g": g, "f": f, "opt": {}, "lr": torch.tensor(1e-4)}
    got = technique.step(TASK, {"lr": torch.tensor(1.0)}, carry, batch, rng.key(0))["w"]
    grads, _ = TASK.grad(lambda w: TASK.loss(w, batch, rng.key(0)), a)
    for name, new in got.items():
        want = a[name] - 1e-4 * (grads[name] + 50.0 * f[name] * (a[name] - g[name]))
        assert torch.allclose(new, want, atol=2e-6)


def test_distillation_without_a_teacher_is_fine_tuning() -> None:
    assert same(walked(distill(alpha=0.0, **SHORT)), walked(fine_tune(**SHORT)))
    T = 2.0
    paper = walked(distill(alpha=1.0, temperature=T, form="paper", lr=0.1, max_epochs=3))
    assert same(paper, walked(fine_tune(lr=0.1 * T**2, max_epochs=3)), 1e-5)


@pytest.mark.parametrize("form", ["usual", "paper"])
def test_a_step_of_distillation_by_hand(form: str) -> None:
    alpha, T, lr = 0.7, 3.0, 0.1
    x, y = FED[4].train
    batch = {"x": x, "y": y, "weight": torch.ones(len(y))}
    g, w = tree.row(given(0.1), 0), tree.row(given(0.5), 0)
    teacher = (TASK.predict(g, x) / T).softmax(-1)

    def loss(w: Params) -> Tensor:
        student = torch.func.functional_call(TASK.module, w, (x,))
        kl = torch.nn.functional.kl_div(
            (student / T).log_softmax(-1), teacher, reduction="batchmean"
        )
        ce = torch.nn.functional.cross_entropy(student, y)
        usual = (1 - alpha) * ce + alpha * T**2 * kl
        return usual if form == "usual" else alpha * T**2 * ce + (1 - alpha) * kl

    want = tree.add(w, torch.func.grad(loss)(w), -lr)
    carry = {"w": w, "g": g, "opt": sgd(1.0).init(w), "lr": torch.tensor(lr)}
    technique = distill(alpha, T, form=form)
    moved = technique.step(TASK, {"lr": torch.tensor(1.0)}, carry, batch, rng.key(0))["w"]
    assert same(moved, want, 1e-6)
    assert not same(want, w, 1e-3)


def test_freeze_base_changes_only_the_named_layers() -> None:
    start = given(0.1)
    for train, names in ((None, {"2.weight", "2.bias"}), ("first(1)", {"0.weight", "0.bias"})):
        spec = "freeze-base" if train is None else f"freeze-base(train={train},lr=0.1)"
        technique = techniques(spec)[0]
        moved = walked(freeze_base(**SHORT) if train is None else technique)
        changed = {k for k in start if not torch.equal(moved[k], start[k])}
        assert changed == names


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_fine_tuning_against_a_plain_loop(engine: Engine) -> None:
    models = walked(fine_tune(**SHORT), engine)
    for k in (0, 4):
        mine = plain_fine_tune(net(), tree.row(given(0.1), k), FED, k, epochs=3, lr=0.1)
        assert all(torch.allclose(models[n][k], mine[n], atol=1e-5) for n in mine)


@pytest.mark.parametrize(
    "spec",
    [
        "fine-tune",
        "freeze-base(max_epochs=8)",
        "ewc(lam=100,max_epochs=8)",
        "distill(max_epochs=8)",
        "fine-tune(momentum=0.9,max_epochs=4)",
    ],
)
def test_engines_agree(spec: str) -> None:
    technique = techniques(spec)[0]
    found = [adapt(TASK, FED, e, technique, given(0.1), 3) for e in ENGINES]
    assert same(found[0].models, found[1].models, 1e-4)
    assert torch.equal(found[0].epoch, found[1].epoch)
    again = adapt(TASK, FED, ENGINES[1], technique, given(0.1), 3)
    assert same(again.models, found[1].models, 0)


def by_hand(params: Params, x: Tensor, y: Tensor) -> Params:
    """One example after the other, in plain autograd."""
    total = tree.zeros(params)
    for i in range(len(y)):
        leaf = {k: v.clone().requires_grad_() for k, v in params.items()}
        loss = torch.nn.functional.cross_entropy(TASK.predict(leaf, x[i : i + 1]), y[i : i + 1])
        loss.backward()
        total = {k: total[k] + leaf[k].grad.square() / len(y) for k in total}  # type: ignore[union-attr]
    return total


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_fisher_is_of_each_example_by_itself(engine: Engine) -> None:
    start = given(0.1)
    F = fisher(TASK, FED, engine, start, ALL)
    for k in (0, 3):
        want = by_hand(tree.row(start, k), *FED[k].train)
        assert same(tree.row(F, k), want, 1e-6)
    public = FED[5].train
    F = fisher(TASK, FED, engine, start, ALL, public)
    assert same(tree.row(F, 1), by_hand(tree.row(start, 1), *public), 1e-6)


def test_staying_is_among_the_choices() -> None:
    """A rate that only does harm leaves clients with what they were given."""
    fed = glocal.load("digits", clients=3, partition="iid", seed=0)
    alone = "local(lr=0.1,max_epochs=1)"
    run = glocal.fit("fedavg", fed, rounds=8, baseline=alone, progress=False)
    assert run.trained is not None
    here, start = run.trained.training, run.trained.models()
    found = adapt(here.task, fed, here.engine, fine_tune(lr=1e6, max_epochs=2), start, 0)
    assert found.epoch.tolist() == [0, 0, 0]
    assert same(found.models, start, 0)


def test_dropout_and_validation_are_for_those_who_adapt() -> None:
    task = Task(dropout_net())
    start = tree.stack([task.params] * len(FED))
    found = [adapt(task, FED, e, techniques("distill(max_epochs=2)")[0], start, 1) for e in ENGINES]
    assert same(found[0].models, found[1].models, 1e-4)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("finetune", "unknown adaptation 'finetune'.*fine-tune"),
        ("ewc(lam=-1)", "lam must be 0 or more"),
        ("ewc(fisher=mine)", "unknown fisher 'mine'"),
        ("distill(alpha=2)", "alpha must be from 0 to 1"),
        ("distill(form=mine)", "unknown form"),
        ("distill(temperature=0)", "temperature must be above 0"),
        ("fine-tune(rate=1)", "unknown setting of fine-tune 'rate'"),
        ("fine-tune(lr=0)", "lr must be above 0"),
        ("fine-tune(max_epochs=0)", "epochs must be"),
        ("best+ewc", "ewc is there twice"),
        ("best(3)", "by name"),
        ("fine-tune(1)", "by name"),
    ],
)
def test_refusals(spec: str, said: str) -> None:
    with pytest.raises(GlocalError, match=said):
        techniques(spec)


def test_public_data_must_be_given() -> None:
    with pytest.raises(GlocalError, match="needs public data"):
        adapt(TASK, FED, ENGINES[1], ewc(fisher="public"), given(), 0)
    adapt(
        TASK, FED, ENGINES[1], ewc(fisher="public", max_epochs=1), given(), 0, public=FED[0].train
    )


def test_fit_reports_adaptation() -> None:
    fed = glocal.load("digits", clients=6, partition="classes(2)", seed=0)
    run = glocal.fit(
        "fedavg",
        fed,
        rounds=3,
        repeats=3,
        adapt="fine-tune(max_epochs=4)+freeze-base(max_epochs=2)",
        baseline="local(max_epochs=5)",
        progress=False,
    )
    s = run.summary
    assert s["adapted_mean"] > s["mean"]
    words = ("better_off", "worse_off", "same", "undecided")
    assert sum(s[f"adapted_{word}"] for word in words) == 6
    assert sum(s["adapted"]["by"].values()) == 18
    assert set(s["adapted"]["techniques"]) == {"fine-tune", "freeze-base"}
    assert s["adapted"]["gain"]["low"] > 0
    assert len(s["adapted"]["worse_off_in_each"]["before"]) == 3
    assert {r["adapted_by"] for r in run.clients} <= {"fine-tune", "freeze-base", "none"}
    assert run.settings["adapt"].startswith("fine-tune")
    mean = sum(r["adapted_accuracy"] for r in run.clients) / 6
    assert mean == pytest.approx(s["adapted_mean"])
    chosen = choice({"fedavg": run}, fed, Config())
    assert sum(chosen.summary["choice"].values()) == 18
    assert chosen.summary["params_up"] == s["params_up"]


def test_nobody_moves_to_a_model_that_does_worse_on_validation_data() -> None:
    fed = glocal.load("digits", clients=12, partition="iid", seed=0)
    run = glocal.fit("fedavg", fed, rounds=20, baseline="local(max_epochs=1)", progress=False)
    assert run.trained is not None
    here, start = run.trained.training, run.trained.models()
    everyone = torch.arange(len(fed))
    before, loss = score(here.task, fed, here.engine, start, fed.val, everyone)
    found = adapt(here.task, fed, here.engine, fine_tune(lr=0.1, max_epochs=10), start, 0)
    after, now = score(here.task, fed, here.engine, found.models, fed.val, everyone)
    assert bool((after >= before).all())
    assert bool((now <= loss)[after == before].all())
    stayed = found.epoch == 0
    assert bool(stayed.any())
    assert not bool(stayed.all())
    assert all(torch.equal(found.models[k][stayed], start[k][stayed]) for k in start)


def test_what_cannot_be_adapted_is_refused_before_anyone_trains() -> None:
    fed = glocal.load("digits", clients=3, partition="iid", seed=0)
    for spec, said in (
        ("ewc(fisher=public)", "public data"),
        ("freeze-base(train=nosuch)", "nosuch"),
    ):
        lines: list[Any] = []
        with pytest.raises(GlocalError, match=said):
            glocal.fit("fedavg", fed, rounds=2, adapt=spec, progress=False, on_line=lines.append)
        assert not lines


def test_a_technique_that_is_there_twice_is_refused() -> None:
    for twice in ("ewc+fine-tune+ewc(lam=3)", [fine_tune(lr=0.1), fine_tune(lr=0.2)]):
        with pytest.raises(GlocalError, match=r"is there twice in .+: keep one of them"):
            techniques(twice)
