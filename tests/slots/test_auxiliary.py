"""Auxiliary models: steps against an independent loop, no weight, nothing sent; what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import glocal
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.data.schema import Schema
from glocal.engines import Engine, Sequential, Vectorised
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.auxiliaries import aux_head
from glocal.slots.auxiliary import Auxiliary, weighted_gradient
from glocal.slots.method import Method, as_plan
from glocal.testing import check_method, ragged
from glocal.testing.auxiliary import check_auxiliary
from glocal.testing.contract import Contract
from glocal.training.loop import Training
from glocal.training.sampling import Fixed

RATE = 0.2
both_engines = pytest.mark.parametrize("engine", [Sequential(), Vectorised()], ids=lambda e: e.name)


def training(method: Any, engine: Engine, rounds: int = 1, model: str = "mlp(5, 4)") -> Training:
    fed = ragged()
    task = Task(models.build(model, input_shape=(6,), classes=3))
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    return Training(plan, task, fed, engine, Fixed(6), rounds, 0)


def method(auxiliary: Auxiliary | None = None) -> Method:
    """All examples at once, so that nothing is drawn."""
    base = resolve(f"fedavg(shared=last(1),batch_size=0,epochs=2,lr={RATE})")
    assert isinstance(base, Method)
    return base.replace(auxiliary=auxiliary)


def model_of(w: Params, x: Tensor) -> tuple[Tensor, Tensor]:
    h = x
    for i in range(2):
        h = functional.relu(functional.linear(h, w[f"layers.{i}.weight"], w[f"layers.{i}.bias"]))
    return h, functional.linear(h, w["layers.2.weight"], w["layers.2.bias"])


def second(a: Params, h: Tensor) -> Tensor:
    return functional.linear(h, a["auxiliary.0.weight"], a["auxiliary.0.bias"])


def leaf(params: Params) -> Params:
    return {n: p.detach().clone().requires_grad_() for n, p in params.items()}


def descend(params: Params, loss: Tensor, rate: float) -> Params:
    grads = torch.autograd.grad(loss, list(params.values()), retain_graph=True)
    return {n: p.detach() - rate * g for (n, p), g in zip(params.items(), grads, strict=True)}


@both_engines
@pytest.mark.parametrize(
    ("weight", "rate", "own_steps"), [(0.7, 1.0, 0), (-0.4, 2.0, 0), (-0.4, 0.5, 2), (0.0, 1.0, 0)]
)
def test_steps_are_those_of_an_independent_loop(
    engine: Engine, weight: float, rate: float, own_steps: int, drawn: dict[int, Tensor]
) -> None:
    """Together, against each other, one after the other, and as a probe."""
    auxiliary = replace(aux_head(), weight=weight, rate=rate, own_steps=own_steps)
    t = training(method(auxiliary), engine)
    progress = t.begin(t.task.params)
    first = t.make(progress, t.halves[0])
    t.one_round(progress)
    for k in range(3):
        w, a = t.task.params, first(k)["auxiliary"]
        for rows in drawn[k]:
            x, y = t.fed.x[rows], t.fed.y[rows]
            for share in range(own_steps):
                a = leaf(a)
                h, _ = model_of(w, x[share::own_steps])
                guessed = functional.cross_entropy(second(a, h), y[share::own_steps])
                a = descend(a, guessed, RATE * rate)
            w, a = leaf(w), leaf(a)
            h, logits = model_of(w, x)
            beside = functional.cross_entropy(second(a, h), y)
            a = a if own_steps else descend(a, beside, RATE * rate)
            w = descend(w, functional.cross_entropy(logits, y) + weight * beside, RATE)
        kept = progress.clients.rows_of(torch.tensor([k]))
        for name, value in kept["inner"]["private"].items():
            assert torch.allclose(value[0], w[name], atol=1e-5), name
        for name, value in kept["auxiliary"].items():
            assert torch.allclose(value[0], a[name], atol=1e-5), name


@both_engines
def test_without_weight_a_run_is_the_plain_methods_to_the_bit(engine: Engine) -> None:
    settings = "lg-fedavg(warmup=1,shared=last(1),momentum=0.5)"
    plain, idle, real = (
        training(settings + more, engine, 3, "mlp(5, 4, dropout=0.3)")
        for more in ("", "+aux-head(0)", "+aux-head(0.5)")
    )
    ends = [t.run(t.begin(t.task.params)) for t in (plain, idle, real)]
    params = [end.server["params"] for end in ends]
    assert all(torch.equal(params[0][name], params[1][name]) for name in params[0])
    assert not all(torch.equal(params[0][name], params[2][name]) for name in params[0])
    states = [end.clients.rows_of(torch.arange(6)) for end in ends]
    for name, private in states[0]["private"].items():
        assert torch.equal(private, states[1]["inner"]["private"][name])
        assert not torch.equal(private, states[2]["inner"]["private"][name])
    first = idle.make(ends[1], idle.halves[1])(0)["auxiliary"]["auxiliary.0.weight"]
    assert not torch.equal(states[1]["auxiliary"]["auxiliary.0.weight"][0], first)  # a probe


def test_auxiliaries_differ_from_client_to_client_and_are_drawn_from_the_seed() -> None:
    t = training("lg-fedavg(warmup=0,shared=last(1))+aux-head(hidden=4)", Sequential())
    first = t.make(t.begin(t.task.params), t.halves[0])
    a, b = first(0)["auxiliary"], first(1)["auxiliary"]
    assert not torch.equal(a["auxiliary.0.weight"], b["auxiliary.0.weight"])
    assert a["auxiliary.0.weight"].abs().max() <= 4**-0.5
    other = replace(t, seed=1)
    again = other.make(other.begin(t.task.params), other.halves[0])(0)["auxiliary"]
    assert not torch.equal(a["auxiliary.0.weight"], again["auxiliary.0.weight"])


def test_nothing_of_it_is_counted_as_sent() -> None:
    given: dict[str, Any] = {"rounds": 3, "model": "mlp(3)", "sampled": 3, "baseline": "none"}
    plain, other = (
        glocal.fit(f"fedavg(shared=last(1)){more}", ragged(), **given).summary
        for more in ("", "+autoencoder(hidden=9)")
    )
    for name in ("params_up", "params_down", "bytes_up", "bytes_down"):
        assert plain[name] == other[name], name


def test_weighted_gradients() -> None:
    h = torch.tensor([1.5, -2.0], requires_grad=True)
    for weight in (0.3, -2.0, 1.0):
        (grad,) = torch.autograd.grad(weighted_gradient(h, weight).square().sum(), h)
        assert torch.allclose(grad, weight * 2 * h)
        assert torch.equal(weighted_gradient(h, weight), h)
    assert not weighted_gradient(h, 0.0).requires_grad


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fedavg+aux-head", "aux-head trains what a client's own layers make.*use lg-fedavg"),
        ("ditto+autoencoder", "keeps no layer private"),
        ("fedavg+pretrain", "pretrain trains what a client's own layers make"),
        ("fedevg+aux-head", "train in a way of their own"),
        ("lg-fedavg+aux-head+autoencoder", "fill the same slot"),
        ("lg-fedavg+aux-head(-1)", "weight must be 0 or more"),
        ("lg-fedavg+aux-head(hidden=-1)", "hidden"),
        ("lg-fedavg+pretrain(0)", "epochs"),
        ("lg-fedavg+pretrain(weight=0)", "are about an auxiliary model"),
        ("lg-fedavg+pretrain(labels=false)", "are about an auxiliary model"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(spec: str, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        resolve(spec)


def test_a_stage_that_shares_all_goes_without() -> None:
    warm, rest = as_plan(resolve("lg-fedavg+aux-head+pretrain")).stages
    assert warm.method.auxiliary is warm.method.pretraining is None
    assert rest.method.auxiliary is not None
    assert rest.method.pretraining is not None
    alone = as_plan(resolve("aux-head(0.3, warmup=0)"))
    assert len(alone.stages) == 1
    assert alone.stages[0].method.auxiliary is not None


def test_the_kit_bites_where_an_auxiliary_is_sent() -> None:
    """A method whose update says how large its clients' auxiliaries are."""
    honest = method(aux_head())
    schema = Schema.of(ragged())

    class Leaky(Method):
        def client_half(self, task: Task, schema: Schema | None = schema) -> Any:
            half = super().client_half(task, schema)

            def finish(task: Task, down: Any, carry: Any) -> Any:
                update, state, extra = half.finish(task, down, carry)
                if self.auxiliary is None:
                    return update, state, extra
                size = carry["auxiliary"]["auxiliary.0.weight"].sum()
                return {n: v + size for n, v in update.items()}, state, extra

            return half.replace(finish=finish)

    t = training(
        Leaky(**{n: getattr(honest, n) for n in vars(honest) if n != "server_half"}),
        Sequential(),
        2,
    )
    kit = Contract(t, 1e-4)
    with pytest.raises(AssertionError, match="an auxiliary without weight changes nothing"):
        check_auxiliary(t.plan.stages[0].method, t, kit.everybody, kit.engines)


def test_an_adversary_of_a_method_with_two_phases_keeps_the_contract() -> None:
    against = replace(aux_head(at="layers.1"), weight=-0.5, own_steps=1)
    base = resolve("fedrep(head_epochs=1)+quantised")
    assert isinstance(base, Method)
    check_method(base.replace(auxiliary=against), rounds=2)


def test_the_client_half_needs_the_schema() -> None:
    task = Task(models.build("mlp(5, 4)", input_shape=(6,), classes=3))
    with pytest.raises(GlocalError, match="aux-head needs to know the data"):
        method(aux_head()).client_half(task)
