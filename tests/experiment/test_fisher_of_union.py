"""EWC's Fisher information: of all participants' data by default, of a client's own, or public."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import glocal
from comparing import compared
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.engines import Engine, Sequential, Vectorised
from glocal.experiment.adaptation import adapt, ewc, techniques
from glocal.experiment.adapted_clients import adapt_clients
from glocal.experiment.fisher import fisher, fisher_of_union
from glocal.nn.task import Task
from glocal.testing import ragged
from toys import seeded

ENGINES: list[Engine] = [Sequential(), Vectorised()]
FED = ragged()
K, N = len(FED), len(FED.train.rows)
TASK = Task(seeded(lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))))
QUICK: dict[str, Any] = {"lr": 0.3, "max_epochs": 2, "patience": 9}


def given(ids: Tensor) -> Params:
    """A model of its own for every client."""
    copies = tree.stack([TASK.params] * K)
    noise = tree.map(lambda x: 0.3 * rng.normal(rng.key(x.numel()), x.shape), copies)
    return tree.row(tree.add(copies, noise), ids)


def by_hand() -> Params:
    """Every training example of every client by itself, at its client's model, by autograd."""
    total = tree.zeros(TASK.params)
    for k in range(K):
        model = {
            n: w.clone().requires_grad_() for n, w in tree.row(given(torch.arange(K)), k).items()
        }
        for x, y in zip(*FED[k].train, strict=True):
            logits = torch.func.functional_call(TASK.module, model, (x.unsqueeze(0),))
            loss = cross_entropy(logits, y.unsqueeze(0))
            for name, g in zip(model, torch.autograd.grad(loss, list(model.values())), strict=True):
                total[name] = total[name] + g.square() / N
    return total


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_it_is_the_mean_over_everybodys_examples(engine: Engine) -> None:
    want = by_hand()
    whole = fisher_of_union(TASK, FED, engine, given)
    in_blocks = fisher_of_union(TASK, FED, engine, given, torch.arange(4), torch.arange(4, K))
    for name, f in want.items():
        assert torch.allclose(whole[name], f, atol=1e-6)
        assert torch.allclose(in_blocks[name], f, atol=1e-6)
    # Clients differ: it is nobody's own, and no plain mean of theirs.
    own = fisher(TASK, FED, engine, given(torch.arange(K)), torch.arange(K))
    assert not any(
        torch.allclose(own["0.weight"][k], want["0.weight"], rtol=0.05) for k in range(K)
    )
    assert not torch.allclose(own["0.weight"].mean(0), want["0.weight"], rtol=0.01)


def test_everybody_is_held_by_it_unless_asked_otherwise() -> None:
    where, everyone = (TASK, FED, ENGINES[1]), torch.arange(K)

    def kept(spec: str, **more: Any) -> Params:
        (technique,) = techniques(spec)
        held = adapt_clients(*where, [technique], given, 3, keep=True, **more).models
        assert held is not None
        return held

    models, union = given(everyone), by_hand()
    spec = "ewc(lam=5, lr=0.3, max_epochs=2, patience=9{})"
    handed = adapt(*where, ewc(5.0, **QUICK), models, 3, union=union).models
    own = adapt(*where, ewc(5.0, fisher="own", **QUICK), models, 3).models

    def same(a: Params, b: Params) -> bool:
        return all(torch.allclose(a[name], b[name], atol=1e-5) for name in a)

    assert not same(handed, own)
    for fisher_of, private, want in (
        ("", False, handed),
        (", fisher=union", False, handed),
        (", fisher=own", False, own),
        ("", True, own),
    ):
        assert same(kept(spec.format(fisher_of), private=private), want)


def test_what_it_takes_is_counted() -> None:
    """Two epochs of every technique at one rate; the Fisher information takes a pass more."""
    where, public = (TASK, FED, ENGINES[1]), FED[0].train

    def took(spec: str, **more: Any) -> tuple[int, int]:
        done = adapt_clients(*where, techniques(spec), given, 3, **more)
        return done.gradients, done.sent

    two = "lr=0.3, max_epochs=2, patience=9"
    assert took(f"fine-tune({two})+distill({two})") == (4 * N, 0)
    assert took(f"ewc({two})") == (3 * N, K * TASK.size)
    assert took(f"ewc({two})", private=True) == (3 * N, 0)
    assert took(f"ewc({two}, fisher=own)") == (3 * N, 0)
    many = 2 * N + K * len(public[0])
    assert took(f"ewc({two}, fisher=public)", public=public) == (many, 0)


def test_a_run_says_so() -> None:
    settings: dict[str, Any] = {"rounds": 2, "model": "mlp(3)", "baseline": "local(max_epochs=1)"}
    run = glocal.fit("fedavg", FED, adapt="ewc(lr=0.1, max_epochs=2)", **settings)
    adapted = run.summary["adapted"]
    assert adapted["gradient_evaluations"] == 3 * N
    assert adapted["params_up"] == adapted["params_down"] == K * run.summary["parameters"]
    chosen = compared(["fedavg"], FED, adapt="ewc(lr=0.1, max_epochs=2)", **settings)["choice"]
    alone = run.baseline[0].gradients
    assert alone > 0
    for count, beside in (("gradient_evaluations", alone), ("params_up", 0)):
        assert chosen.summary[count] == run.summary[count] + adapted[count] + beside


def test_privacy_sends_no_fisher_information() -> None:
    settings: dict[str, Any] = {"rounds": 1, "model": "mlp(3)", "baseline": "local(max_epochs=1)"}
    private = "fedavg+dp(clip=1, noise=1)"
    run = glocal.fit(private, FED, adapt="ewc(lr=0.1, max_epochs=1)", **settings)
    assert run.summary["adapted"]["params_up"] == 0
    with pytest.raises(GlocalError, match=r"use ewc\(fisher=own\)"):
        glocal.fit(private, FED, adapt="ewc(fisher=union)", **settings)
