"""Adversaries: steps against an independent loop, λ = 0, own and shared ones, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import glocal
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.data.federation import Federation, federation
from glocal.engines import Engine, Sequential, Vectorised
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.adversary import guesses
from glocal.slots.method import as_plan
from glocal.slots.pretraining import pretrain
from glocal.testing import SIZES, check_method
from glocal.training.loop import Training
from glocal.training.sampling import Fixed

RATE, CLIENTS = 0.2, len(SIZES)
both_engines = pytest.mark.parametrize("engine", [Sequential(), Vectorised()], ids=lambda e: e.name)


def protected() -> Federation:
    """Clients of different sizes, three classes, an attribute of two values and one of three."""
    owner = [k for k, size in enumerate(SIZES) for _ in range(size)]
    key = rng.key(7)
    x = rng.normal(rng.fold(key, 0), (len(owner), 6))
    y = (x @ rng.normal(rng.fold(key, 1), (6, 3))).argmax(1)
    apart = {"sex": (x[:, 0] > 0).long().tolist(), "origin": (x[:, 1:4].argmax(1)).tolist()}
    return federation(x, y, clients=owner, protected=apart)


def training(spec: str, engine: Engine, rounds: int = 1, model: str = "mlp(5, 4)") -> Training:
    task = Task(models.build(model, input_shape=(6,), classes=3))
    return Training(as_plan(resolve(spec)), task, protected(), engine, Fixed(CLIENTS), rounds, 0)


def model_of(w: Params, x: Tensor) -> tuple[Tensor, Tensor]:
    h = x
    for i in range(2):
        h = functional.relu(functional.linear(h, w[f"layers.{i}.weight"], w[f"layers.{i}.bias"]))
    return h, functional.linear(h, w["layers.2.weight"], w["layers.2.bias"])


def adversary_loss(a: Params, h: Tensor, codes: Tensor) -> Tensor:
    """One hidden layer, a head for each attribute, the mean of their cross-entropies."""
    inner = functional.linear(h, a["auxiliary.trunk.0.weight"], a["auxiliary.trunk.0.bias"])
    losses = []
    for place in (0, 1):
        name = f"auxiliary.of-{place}.0"
        logits = functional.linear(inner.relu(), a[f"{name}.weight"], a[f"{name}.bias"])
        losses.append(functional.cross_entropy(logits, codes[:, place]))
    return (losses[0] + losses[1]) / 2


def moved(params: Params, loss: Tensor, rate: float) -> Params:
    grads = torch.autograd.grad(loss, list(params.values()), retain_graph=True)
    return {n: p.detach() - rate * g for (n, p), g in zip(params.items(), grads, strict=True)}


def leaf(params: Params) -> Params:
    return {n: p.detach().clone().requires_grad_() for n, p in params.items()}


def expected(
    t: Training, batches: Tensor, a: Params, lam: float, how: str, steps: int
) -> tuple[Params, Params]:
    """A client's steps on the rows of its mini-batches, written out."""
    assert t.fed.attributes is not None
    w = t.task.params
    for rows in batches:
        x, y, codes = t.fed.x[rows], t.fed.y[rows], t.fed.attributes.codes[rows]
        for share in range(steps if how == "alternating" else 0):
            a = leaf(a)
            h = model_of(w, x[share::steps])[0]
            a = moved(a, adversary_loss(a, h, codes[share::steps]), 2 * RATE)
        w, a = leaf(w), leaf(a)
        h, logits = model_of(w, x)
        against = adversary_loss(a, h, codes)
        if how == "reversal":
            a = moved(a, against, 2 * RATE)
        w = moved(w, functional.cross_entropy(logits, y) - lam * against, RATE)
    return w, a


@both_engines
@pytest.mark.parametrize(
    ("how", "steps"), [("reversal", 1), ("alternating", 1), ("alternating", 3)]
)
def test_steps_are_those_of_an_independent_loop(
    engine: Engine, how: str, steps: int, drawn: dict[int, Tensor]
) -> None:
    settings = f"lam=0.6,how={how},steps={steps},hidden=3,layers=1,rate=2"
    base = f"fedavg(shared=last(1),batch_size=0,epochs=2,lr={RATE})"
    t = training(f"{base}+adversary({settings})", engine)
    progress = t.begin(t.task.params)
    first = t.make(progress, t.halves[0])
    t.one_round(progress)
    for k in (0, 3):
        w, a = expected(t, drawn[k], first(k)["auxiliary"], 0.6, how, steps)
        kept = progress.clients.rows_of(torch.tensor([k]))
        for name, value in kept["inner"]["private"].items():
            assert torch.allclose(value[0], w[name], atol=1e-5), name
        for name, value in kept["auxiliary"].items():
            assert torch.allclose(value[0], a[name], atol=1e-5), name


def test_shares_without_an_example_are_the_same_for_both_engines() -> None:
    """More steps than a short mini-batch has examples: nothing is divided by nothing."""
    settings = "lam=0.5,how=alternating,steps=9,hidden=3,layers=1,optimiser=adam,rate=0.1"
    spec = f"lg-fedavg(warmup=0,shared=last(1),batch_size=4)+adversary({settings})"
    kept = []
    for engine in (Sequential(), Vectorised()):
        t = training(spec, engine, 2)
        kept.append(t.run(t.begin(t.task.params)).clients.rows_of(torch.arange(CLIENTS)))
    one, other = (tree.leaves(state) for state in kept)
    assert all(a.isfinite().all() for a in one)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(one, other, strict=True))


@both_engines
@pytest.mark.parametrize("shared", [False, True])
def test_an_optimiser_of_its_own(engine: Engine, shared: bool) -> None:
    """Adam's first step is the rate, whatever the gradient; the model's stays the client's."""
    more = ",shared=true,at='layers.2'" if shared else ""
    settings = f"lam=0,hidden=3,layers=1,rate=0.5,optimiser=adam{more}"
    base = f"fedavg(shared={'everything' if shared else 'last(1)'},batch_size=0,epochs=1,lr={RATE})"
    t = training(f"{base}+adversary({settings})", engine)
    progress = t.begin(t.task.params)
    if shared:
        one = replace(t, sampler=Fixed(1))
        before = dict(progress.server["params"])
        one.one_round(progress)
        after = progress.server["params"]
    else:
        before = t.make(progress, t.halves[0])(0)["auxiliary"]
        t.one_round(progress)
        after = {
            n: v[0] for n, v in progress.clients.rows_of(torch.tensor([0]))["auxiliary"].items()
        }
    name = "auxiliary.of-0.0.bias"
    assert torch.allclose((after[name] - before[name]).abs(), torch.tensor(0.5 * RATE), rtol=1e-3)


@both_engines
def test_a_shared_adversary_is_averaged_as_the_model_is(
    engine: Engine, drawn: dict[int, Tensor]
) -> None:
    settings = "lam=0.6,hidden=3,layers=1,rate=2,shared=true,at='layers.2'"
    t = training(f"fedavg(batch_size=0,epochs=2,lr={RATE})+adversary({settings})", engine)
    progress = t.begin(t.task.params)
    begun = {n: p for n, p in progress.server["params"].items() if n.startswith("auxiliary")}
    t.one_round(progress)
    n = t.fed.train.counts().float()
    ends = [expected(t, drawn[k], begun, 0.6, "reversal", 1) for k in range(CLIENTS)]
    for name, value in progress.server["params"].items():
        of_clients = torch.stack([{**w, **a}[name] for w, a in ends])
        mean = torch.einsum("k,k...->...", n / n.sum(), of_clients)
        assert torch.allclose(value, mean, atol=1e-5), name
    assert t.sizes[0][0].numbers == sum(p.numel() for p in progress.server["params"].values())


@both_engines
@pytest.mark.parametrize("how", ["reversal", "alternating"])
@pytest.mark.parametrize("shared", [False, True])
def test_at_zero_nothing_changes_in_the_model_to_the_bit(
    engine: Engine, how: str, shared: bool
) -> None:
    base = "fedavg(momentum=0.5)" if shared else "lg-fedavg(warmup=0,shared=last(1),momentum=0.5)"
    more = ",shared=true,at='layers.2'" if shared else ""
    runs = [
        training(f"{base}{adversary}", engine, 2, "mlp(5, 4, dropout=0.3)")
        for adversary in ("", *(f"+adversary(lam={lam},how={how}{more})" for lam in (0, 1)))
    ]
    ends = [t.models(t.run(t.begin(t.task.params)))(torch.arange(CLIENTS)) for t in runs]
    plain, idle, real = (next(iter(models.values())) for models in ends)
    assert all(torch.equal(plain[name], idle[name]) for name in plain)
    assert not all(torch.equal(plain[name], real[name]) for name in plain)


def test_own_adversaries_never_leave_the_client() -> None:
    """Under the whole contract: what is sent has nothing of them."""
    own = "lg-fedavg(warmup=0,shared=last(1))+adversary(lam=0.5,hidden=3,layers=1)"
    check_method(own, fed=protected(), rounds=2)


def test_a_shared_adversary_goes_through_the_contract() -> None:
    one = "fedavg+adversary(lam=0.5,hidden=3,layers=1,how=alternating,shared=true,at='layers.1')"
    check_method(one, fed=protected(), rounds=2, model="mlp(4)")


def test_pretraining_keeps_the_direction_of_an_adversary() -> None:
    method = (
        as_plan(resolve("lg-fedavg(warmup=0,shared=last(1))+adversary(lam=2)")).stages[0].method
    )
    for weight, expected_weight in ((None, -2.0), (0.5, -0.5), (0.0, 0.0)):
        meanwhile = pretrain(2, weight=weight).auxiliary(method.auxiliary)
        assert meanwhile is not None
        assert meanwhile.weight == expected_weight


def test_one_attribute_and_a_linear_adversary() -> None:
    t = training(
        "lg-fedavg(warmup=0,shared=last(1))+adversary(attributes=origin,layers=0)", Sequential()
    )
    a = t.make(t.begin(t.task.params), t.halves[0])(0)["auxiliary"]
    assert {n: tuple(p.shape) for n, p in a.items()} == {
        "auxiliary.of-1.0.weight": (3, 4),
        "auxiliary.of-1.0.bias": (3,),
    }
    assert list(guesses(a, torch.randn(5, 4))) == [1]


@pytest.mark.parametrize(
    ("spec", "given", "problem"),
    [
        ("lg-fedavg+adversary(how=both)", {}, "way to train an adversary"),
        ("lg-fedavg+adversary(lam=-1)", {}, "lam must be"),
        ("lg-fedavg+adversary(optimiser=lbfgs)", {}, "optimiser"),
        ("lg-fedavg+adversary(steps=3)", {}, "steps= goes with how=alternating"),
        ("fedavg+adversary", {}, "keeps no layer private"),
        ("fedavg+adversary(shared=true)", {}, "name the layer that reads one with at="),
        ("lg-fedavg(warmup=0,shared=last(1))+adversary(attributes=age)", {}, "protected attribute"),
        (
            "fedavg+adversary(shared=true,at='layers.1')+top-k(0.5)",
            {},
            "top-k is made for the model",
        ),
        ("scaffold+adversary(shared=true,at='layers.1')", {}, "scaffold is made for the model"),
        (
            "lg-fedavg(warmup=0,shared=last(1))+adversary",
            {"fed": "digits"},
            "and this data has none: name columns",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(spec: str, given: dict[str, Any], problem: str) -> None:
    fed: Any = protected()
    if given:
        fed = federation(fed.x, fed.y, clients=[k for k, n in enumerate(SIZES) for _ in range(n)])
    with pytest.raises(GlocalError, match=problem) as raised:
        glocal.fit(spec, fed, rounds=1, model="mlp(4)", baseline="none")
    assert "\n" not in str(raised.value)
