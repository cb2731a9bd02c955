"""Pre-training: the private layers alone, once, and as if it had been for those not there yet."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from glocal.core import tree
from glocal.engines import Engine, Sequential, Vectorised
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.method import as_plan
from glocal.testing import check_method, ragged
from glocal.training import first_rounds
from glocal.training.loop import Training
from glocal.training.sampling import Fixed

both_engines = pytest.mark.parametrize("engine", [Sequential(), Vectorised()], ids=lambda e: e.name)
BASE = "fedavg(shared=last(1),batch_size=0,epochs=1,lr=0.2)"


def training(spec: str, engine: Engine) -> Training:
    task = Task(models.build("mlp(5)", input_shape=(6,), classes=3))
    return Training(as_plan(resolve(spec)), task, ragged(), engine, Fixed(3), 2, 0)


@both_engines
@pytest.mark.parametrize("labels", [True, False])
def test_it_is_an_independent_loop_over_the_private_layers(engine: Engine, labels: bool) -> None:
    """By all examples at once; without labels, on the autoencoder's loss alone."""
    more = "" if labels else "+autoencoder(0.5,hidden=0)"
    t = training(f"{BASE}{more}+pretrain(3,labels={str(labels).lower()})", engine)
    progress = t.begin(t.task.params)
    ids = torch.tensor([1, 4])
    states = t.round_of(progress, ids, t.key(0, 0)).states
    first = t.make(progress, t.halves[0])
    kept = states if labels else states["inner"]
    for place, k in enumerate(ids.tolist()):
        rows = t.fed.train.of(k)
        x, y = t.fed.x[rows], t.fed.y[rows]
        shared = {n: p for n, p in t.task.params.items() if n.startswith("layers.1")}
        w = {n: p for n, p in t.task.params.items() if n.startswith("layers.0")}
        if not labels:
            w |= first(k)["auxiliary"]
        for _ in range(3):
            w = {n: p.detach().requires_grad_() for n, p in w.items()}
            h = functional.relu(functional.linear(x, w["layers.0.weight"], w["layers.0.bias"]))
            if labels:
                logits = functional.linear(h, shared["layers.1.weight"], shared["layers.1.bias"])
                loss = functional.cross_entropy(logits, y)
                scale = dict.fromkeys(w, 1.0)
            else:
                made = functional.linear(h, w["auxiliary.0.weight"], w["auxiliary.0.bias"])
                loss = (made - x).square().mean()
                scale = {n: 0.5 if n.startswith("layers") else 1.0 for n in w}
            grads = dict(zip(w, torch.autograd.grad(loss, list(w.values())), strict=True))
            w = {n: p.detach() - 0.2 * scale[n] * grads[n] for n, p in w.items()}
        for name, value in kept["private"].items():
            assert torch.allclose(value[place], w[name], atol=1e-5), name
        if not labels:
            for name, value in states["auxiliary"].items():
                assert torch.allclose(value[place], w[name], atol=1e-5), name


def test_it_happens_once_and_nothing_is_sent() -> None:
    t = training(f"{BASE}+pretrain(2)", Sequential())
    plain = training(BASE, Sequential())
    progress = t.begin(t.task.params)
    before = {n: p.clone() for n, p in progress.server["params"].items()}
    ids = torch.arange(6)
    first_rounds.states(t, progress, t.broadcast(progress))(ids)
    assert all(torch.equal(progress.server["params"][n], p) for n, p in before.items())
    t.one_round(progress)
    other = plain.begin(plain.task.params)
    plain.one_round(other)
    assert progress.traffic.up == other.traffic.up
    assert progress.traffic.down == other.traffic.down
    seen = progress.clients.seen.nonzero().flatten()
    again = t.round_of(progress, seen, t.key(0, 0)).states
    assert torch.equal(
        again["private"]["layers.0.weight"],
        progress.clients.rows_of(seen)["private"]["layers.0.weight"],
    )


@both_engines
def test_who_has_not_come_yet_is_evaluated_as_if_it_had_pre_trained(engine: Engine) -> None:
    t = training(f"{BASE}+pretrain(2)", engine)
    progress = t.begin(t.task.params)
    t.one_round(progress)
    never = (~progress.clients.seen).nonzero().flatten()
    evaluated = t.models(progress)(never)["assembled"]
    pretrained = t.round_of(progress, never, t.key(0, 1)).states["private"]
    for name, value in pretrained.items():
        assert torch.equal(evaluated[name], value)
        assert not torch.equal(value[0], progress.server["start"][name])
    assert not progress.clients.seen[never].any()
    assert tree.leaves(progress.clients.rows_of(progress.clients.seen.nonzero().flatten()))


def test_contract_with_a_weight_of_its_own_and_memory_of_what_was_not_sent() -> None:
    spec = "fedavg(shared=last(1),momentum=0.5)+aux-head+pretrain(1,weight=0)+top-k(0.5)"
    check_method(spec, model="mlp(5, 4, dropout=0.2)", rounds=2)
