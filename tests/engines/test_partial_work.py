"""Clients that do part of their mini-batches: the same on all engines, and as a plain loop does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import compiles
from glocal.core import rng, tree
from glocal.engines import CohortRound, Engine, Sequential, Vectorised
from glocal.engines.base import Workload
from glocal.engines.batching import plan, steps_done
from glocal.engines.compiled.blocks import Layout
from glocal.engines.lanes import SideBySide
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.client import Phase, minibatch_training
from glocal.slots.method import as_plan
from glocal.testing import ragged
from glocal.testing.watched import uplink_tree
from glocal.training.loop import Training
from glocal.training.sampling import Fraction
from specs import SMALL

PART = torch.tensor([0.01, 0.4, 1.0, 0.75, 0.3, 0.5], dtype=torch.float64)
METHODS = ["fedavg(epochs=2)", "fedrep", "ditto", "scaffold", "apfl", "pfedme", "superfed-mm"]
METHODS += ["fedevg(spc=2,steps=3,batch_size=4)", "fedcvae", "fedprox(mu=1,momentum=0.9)", "mtl"]


def work_of(spec: str, part: Tensor | None = PART) -> CohortRound:
    """A round of everybody, in which each does another part of its work."""
    fed = ragged()
    model = models.build("mlp(3)", input_shape=tuple(fed.x.shape[1:]), classes=fed.classes)
    method = as_plan(resolve(SMALL.get(spec, spec)))
    training = Training(method, Task(model), fed, Sequential(), Fraction(), 2, 5)
    progress = training.begin(training.task.params)
    training.one_round(progress)
    work = training.round_of(progress, torch.arange(len(fed)), rng.key(8))
    return replace(work, part=part)


def assert_close(engine: Engine, work: CohortRound) -> None:
    sent, states = Sequential().round(work)
    other, kept = engine.round(work)
    torch.testing.assert_close(uplink_tree(other), uplink_tree(sent), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(kept, states, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spec", METHODS)
def test_engines_agree(spec: str) -> None:
    work = work_of(spec)
    assert_close(Vectorised(), work)
    assert_close(Vectorised(chunk=4), work)
    assert_close(Vectorised(in_blocks=True), replace(work, workload=Workload(0, 4)))
    whole = Sequential().round(replace(work, part=None))[0]
    assert all(bool(leaf.isfinite().all()) for leaf in tree.leaves(whole.update))


@compiles
@pytest.mark.parametrize("spec", ["scaffold(epochs=2)", "fedrep"])
def test_compiled_steps_agree(spec: str) -> None:
    assert_close(Vectorised(compiled=True), replace(work_of(spec), workload=Workload(0, 4)))


def test_trainings_side_by_side_have_parts_of_their_own() -> None:
    works = [work_of("scaffold"), work_of("scaffold", PART.flip(0))]
    several = [replace(work, task=work.task.for_several()) for work in works]
    results = SideBySide.of([works[0].fed, works[1].fed]).rounds(Vectorised(), several)
    for work, result in zip(works, results, strict=True):
        assert result is not None
        alone = Sequential().round(work)[0]
        torch.testing.assert_close(uplink_tree(result[0]), uplink_tree(alone), rtol=1e-4, atol=1e-4)


def test_a_plain_loop() -> None:
    """SGD over the first batches of the client's own order, until a part of them is done."""
    work = work_of("fedavg(epochs=2,batch_size=4,lr=0.2)")
    uplink, _ = Vectorised().round(work)
    fed, params = work.fed, work.down["params"]
    for i in range(len(fed)):
        rows = fed.train.of(i)
        order = []
        for epoch in range(2):
            key = rng.fold(rng.fold(rng.fold(work.key, i), 0), epoch)
            order.append(rows[rng.permutation(key, len(rows))])
        batches = [batch for epoch in order for batch in epoch.split(4)]
        done = max(1, int(-(-float(PART[i]) * len(batches) // 1)))
        w = {k: v.clone().requires_grad_() for k, v in params.items()}
        for batch in batches[:done]:
            logits = torch.func.functional_call(work.task.module, w, (fed.x[batch],))
            loss = torch.nn.functional.cross_entropy(logits, fed.y[batch])
            moved = torch.autograd.grad(loss, list(w.values()))
            w = {
                k: (v - 0.2 * g).detach().requires_grad_()
                for (k, v), g in zip(w.items(), moved, strict=True)
            }
        for name, sent in tree.row(uplink.update, i).items():
            torch.testing.assert_close(sent, (w[name] - params[name]).detach())
    assert steps_done(torch.tensor([7]), PART[:1]).tolist() == [1]


def test_scaffold_divides_by_the_steps_that_were_taken() -> None:
    """c_i⁺ − c_i = −c + (w − w_i) / (steps · η), with the steps of a client that is slow."""
    work = work_of("scaffold(lr=0.1,epochs=2,batch_size=4)")
    uplink, states = Vectorised().round(work)
    n = work.fed.train.counts()
    steps = steps_done(-(-n // 4) * 2, PART)
    assert steps[0] == 1
    assert (steps[3:] > 1).all()
    for name, sent in uplink.update.items():
        each = steps.view(-1, *(1,) * (sent.dim() - 1)) * 0.1
        change = -work.down["c"][name] - sent / each
        torch.testing.assert_close(uplink.extra["c"][name], change, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(states["c"][name], work.states["c"][name] + change)


def test_all_of_the_work_is_the_work() -> None:
    for engine in (Sequential(), Vectorised(), Vectorised(in_blocks=True)):
        work = work_of("fedrep", None)
        part = torch.ones(len(work.ids), dtype=torch.float64)
        whole, some = engine.round(work), engine.round(replace(work, part=part))
        for a, b in ((uplink_tree(whole[0]), uplink_tree(some[0])), (whole[1], some[1])):
            assert all(map(torch.equal, tree.leaves(a), tree.leaves(b)))


def test_the_first_batches_are_those_of_the_whole_plan() -> None:
    fed, ids = ragged(), torch.arange(6)
    keys = rng.fold(rng.key(3), ids)
    whole = plan(fed.train, ids, keys, 2, 4)
    part = whole.first(PART)
    for i, count in enumerate(part.steps.tolist()):
        assert count == max(1, int(-(-float(PART[i]) * int(whole.steps[i]) // 1)))
        assert torch.equal(part.rows[i, :count], whole.rows[i, :count])
        assert torch.equal(part.weight[i, :count], whole.weight[i, :count])
        assert not part.weight[i, count:].any()


def test_blocks_run_as_long_as_their_longest_client() -> None:
    """Four clients of 10, 20, 30 and 40 examples, by how much each does of it."""
    part: Any = torch.tensor([1.0, 0.1, 1.0, 0.5], dtype=torch.float64)
    laid = Layout.of(torch.tensor([10, 20, 30, 40]), 2, torch.device("cpu"), part)
    assert laid.order.tolist() == [2, 3, 0, 1]
    phase = Phase("train", 2, minibatch_training().step)
    assert laid.steps(phase, 5) == [12, 4]  # of 12 and 8 steps, of 4 and 1
    # Nine tenths of 11 are fewer than 10 and take more batches: no block ends before a later one.
    part = torch.tensor([1.0, 0.9], dtype=torch.float64)
    late = Layout.of(torch.tensor([10, 11]), 1, torch.device("cpu"), part)
    assert late.steps(phase._replace(epochs=1), 10) == [2, 2]
