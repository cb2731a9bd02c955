"""Gradients added where the weights lie: what is rewritten, and that it is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_program import close
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import toys
from conftest import compiles
from glocal.core import rng
from glocal.data.federation import federation
from glocal.engines import CohortRound, Sequential, Vectorised
from glocal.engines.compiled import blocks, fused_sgd, inductor
from glocal.nn.optim import sgd
from glocal.nn.task import Task
from glocal.slots.client import minibatch_training

CLIENTS, ROWS, TERMS, COLUMNS = 3, 7, 4, 5


def drawn() -> list[Tensor]:
    """Weights, the factors of their gradient, the rate, and who is at work."""
    torch.manual_seed(0)
    weights = torch.randn(CLIENTS, ROWS, COLUMNS)
    a, b = torch.randn(CLIENTS, TERMS, ROWS), torch.randn(CLIENTS, TERMS, COLUMNS)
    return [weights, a, b, torch.tensor(-0.1), torch.tensor([True, False, True])]


def of_rates(w: Tensor, a: Tensor, b: Tensor, rate: Tensor, live: Tensor) -> None:
    moved = torch.addcmul(w, torch.bmm(a.mT, b), rate)
    w.copy_(torch.where(live.view(-1, 1, 1), moved, w))


def of_a_number(w: Tensor, a: Tensor, b: Tensor, rate: Tensor, live: Tensor) -> None:
    moved = torch.add(w, torch.bmm(a.mT, b), alpha=-0.1)
    w.copy_(torch.where(live.view(-1, 1, 1), moved, w))


def turned(w: Tensor, a: Tensor, b: Tensor, rate: Tensor, live: Tensor) -> None:
    moved = torch.addcmul(w, torch.bmm(b.mT, a).view(CLIENTS, COLUMNS, ROWS).mT, rate)
    w.copy_(torch.where(live.view(-1, 1, 1), moved, w))


def looked_at(w: Tensor, a: Tensor, b: Tensor, rate: Tensor, live: Tensor) -> None:
    gradient = torch.bmm(a.mT, b)
    moved = torch.addcmul(w, gradient, rate)
    w.copy_(torch.where(live.view(-1, 1, 1), moved, w))
    b.mul_(gradient.norm())


def of_own_rates(w: Tensor, a: Tensor, b: Tensor, rate: Tensor, live: Tensor) -> None:
    rates = rate * torch.arange(CLIENTS).view(-1, 1, 1)
    moved = torch.addcmul(w, torch.bmm(a.mT, b), rates)
    w.copy_(torch.where(live.view(-1, 1, 1), moved, w))


def from_elsewhere(w: Tensor, a: Tensor, b: Tensor, rate: Tensor, live: Tensor) -> None:
    moved = torch.addcmul(0.9 * w, torch.bmm(a.mT, b), rate)
    w.copy_(torch.where(live.view(-1, 1, 1), moved, w))


def reshaped(w: Tensor, a: Tensor, b: Tensor, rate: Tensor, live: Tensor) -> None:
    gradient = torch.bmm(b.mT, a).reshape(CLIENTS, ROWS, COLUMNS)
    moved = torch.addcmul(w, gradient, rate)
    w.copy_(torch.where(live.view(-1, 1, 1), moved, w))


def masked(w: Tensor, a: Tensor, b: Tensor, rate: Tensor, live: Tensor) -> None:
    moved = torch.addcmul(w, torch.bmm(a.mT, b), rate)
    w.copy_(torch.where(w > 0, moved, w))


Step = Callable[..., None]


def traced(step: Step, least: int = 0) -> tuple[Any, int]:
    """The step as it is rewritten, and how many products are added in place."""
    graph = make_fx(step)(*drawn())
    fused_sgd.fuse_updates(graph.graph, least)
    graph.recompile()
    names = [str(node.target) for node in graph.graph.nodes]
    return graph, sum("add_product" in name for name in names)


@pytest.mark.parametrize("step", [of_rates, of_a_number, turned])
def test_products_that_another_library_does_faster_are_left(step: Step) -> None:
    for faster in (True, False):
        graph, asked = make_fx(step)(*drawn()), []
        fused_sgd.fuse_updates(
            graph.graph, 0, lambda a, b, s=asked, f=faster: s.append((a.shape, b.shape)) or f
        )
        added = sum("add_product" in str(node.target) for node in graph.graph.nodes)
        assert added == (not faster)
        ((a, b),) = asked
        assert {a[1], b[2]} == {ROWS, COLUMNS}


@pytest.mark.parametrize("step", [of_rates, of_a_number, turned])
def test_a_step_of_descent_is_added_in_place(step: Step) -> None:
    graph, times = traced(step)
    assert times == 1
    here, there = drawn(), drawn()
    graph(*here)
    step(*there)
    torch.testing.assert_close(here[0], there[0])
    assert torch.equal(here[0][1], drawn()[0][1])  # who is done


@pytest.mark.parametrize("step", [looked_at, of_own_rates, from_elsewhere, reshaped, masked])
def test_anything_else_stays_as_it_is(step: Step) -> None:
    graph, times = traced(step)
    assert times == 0
    here, there = drawn(), drawn()
    graph(*here)
    step(*there)
    for a, b in zip(here, there, strict=True):
        assert torch.equal(a, b)


def test_factors_are_taken_before_anything_is_written() -> None:
    """As in low-rank layers: what one is multiplied with is the other, and both are trained."""

    def low_rank(w: Tensor, a: Tensor, b: Tensor, rate: Tensor, live: Tensor) -> None:
        mask = live.view(-1, 1, 1)
        moved_b = torch.addcmul(b, torch.bmm(a, w), rate)
        moved = torch.addcmul(w, torch.bmm(a.mT, b), rate)
        new_b, new = torch.where(mask, moved_b, b), torch.where(mask, moved, w)
        b.copy_(new_b)
        w.copy_(new)

    graph, times = traced(low_rank)
    assert times == 2
    here, there = drawn(), drawn()
    graph(*here)
    low_rank(*there)
    for one, other in zip(here[:3], there[:3], strict=True):
        torch.testing.assert_close(one, other)


def test_small_products_are_left_to_the_compiler() -> None:
    size = ROWS * TERMS * COLUMNS
    assert traced(of_rates, size)[1] == 0
    assert traced(of_rates, size - 1)[1] == 1


def test_who_is_done_gains_nothing_whatever_it_sees() -> None:
    graph, _ = traced(of_rates)
    tensors = drawn()
    tensors[1][1], tensors[2][1] = torch.inf, torch.nan
    graph(*tensors)
    assert torch.equal(tensors[0][1], drawn()[0][1])
    assert tensors[0].isfinite().all()


def layers() -> nn.Module:
    return nn.Sequential(
        nn.Linear(60, 70), nn.ReLU(), nn.Linear(70, 50), nn.ReLU(), nn.Linear(50, 3)
    )


class LowRank(nn.Module):
    """``x (W + B A)ᵀ`` with ``B`` zero at first, as it is done."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(50, 60) / 8)
        self.a = nn.Parameter(torch.randn(16, 60) / 8)
        self.b = nn.Parameter(torch.zeros(50, 16))
        self.head = nn.Linear(50, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(x @ (self.w + self.b @ self.a).T))
        return out


class Centred(nn.Module):
    """With a buffer, a layer that is not trained, and a tensor made on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((60,), 0.3))
        self.first = nn.Linear(60, 60).requires_grad_(False)
        self.rest = layers()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.rest(torch.relu(self.first(x - self.mean)))
        return out * torch.tensor([1.0, 2.0, 0.5])


def dense(build: Callable[[], nn.Module] = layers) -> CohortRound:
    """Layers of which some are large enough, clients of very different sizes."""
    model = toys.seeded(build)
    owner = [k for k, size in enumerate((5, 31, 12)) for _ in range(size)]
    x = rng.normal(rng.key(7), (len(owner), 60))
    fed = federation(x, x[:, :3].argmax(1), clients=owner)
    task = Task(model)
    return CohortRound(
        task=task,
        local=minibatch_training(sgd(0.1), epochs=2, batch_size=8),
        fed=fed,
        down={"params": task.params, "lr": torch.tensor(1.0), "round": torch.tensor(0.0)},
        ids=torch.arange(3),
        states={},
        key=rng.key(1),
    )


@compiles
@pytest.mark.parametrize("narrow", [True, False])
def test_a_compiled_step_adds_in_place(
    narrow: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[int] = []

    def counted(graph: torch.fx.Graph, *given: Any) -> None:
        fused_sgd.fuse_updates(graph, *given)
        seen.append(sum("add_product" in str(node.target) for node in graph.nodes))

    monkeypatch.setattr(inductor, "fuse_updates", counted)
    monkeypatch.setattr(blocks, "CACHE", 1 if narrow else 2**30)
    job = dense()
    close(Vectorised(compiled=True).round(job), Sequential().round(job))
    assert seen == [2]
    assert capsys.readouterr().err == ""


@compiles
@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("build", [LowRank, Centred])
def test_compiled_steps_of_unusual_models(
    build: Callable[[], nn.Module],
    narrow: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(blocks, "CACHE", 1 if narrow else 2**30)
    job = dense(build)
    engine = Vectorised(compiled=True)
    for _ in range(2):
        close(engine.round(job), Sequential().round(job))
    assert capsys.readouterr().err == ""


@compiles
def test_where_it_is_not_known_how_steps_are_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown() -> Any:
        raise AttributeError("no such kernel")

    monkeypatch.setattr(fused_sgd, "_operation", unknown)
    job, engine = dense(), Vectorised(compiled=True)
    close(engine.round(job), Sequential().round(job))
    assert capsys.readouterr().err == ""
