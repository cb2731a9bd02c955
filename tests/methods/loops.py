"""What the tests of methods share: small federations, plain training loops, bowls to work out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from glocal import federation
from glocal.core import rng
from glocal.core.types import Tree, Uplink
from glocal.data.federation import Federation
from glocal.engines import CohortRound, Engine, Sequential, Vectorised
from glocal.engines.batching import plan
from glocal.methods import resolve
from glocal.nn.task import Task
from glocal.slots.method import Method, Plan, as_plan
from glocal.testing import ragged
from glocal.training.loop import COHORT, WORK, Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fixed, Sampler
from toys import seeded

Model = dict[str, Tensor]
ENGINES: list[Engine] = [Sequential(), Vectorised()]
EVERYBODY, HALF = Fixed(6), Fixed(3)


def net() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3)))


def deep() -> nn.Module:
    return seeded(
        lambda: nn.Sequential(
            nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)
        )
    )


NET = net()
BODY, HEAD = ("0.weight", "0.bias"), ("2.weight", "2.bias")


def first() -> Model:
    """Where the server starts."""
    return {k: v.detach().clone() for k, v in NET.named_parameters()}


def made(
    method: str | Method | Plan,
    engine: Engine,
    *,
    rounds: int = 3,
    sampler: Sampler = HALF,
    task: Task | None = None,
    fed: Federation | None = None,
    seed: int = 3,
) -> Training:
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    task, fed = task or Task(net()), fed or ragged()
    return Training(plan, task, fed, engine, sampler, rounds, seed, public_noise=True)


def trained(
    method: str | Method | Plan, engine: Engine, **settings: Any
) -> tuple[Training, Progress]:
    training = made(method, engine, **settings)
    return training, training.run(training.begin(training.task.params))


def cohorts(training: Training) -> list[list[int]]:
    n = len(training.fed)
    return [
        training.sampler.cohort(n, training.key(COHORT, r)).tolist() for r in range(training.rounds)
    ]


def examples(training: Training, cohort: Sequence[int]) -> list[float]:
    return [float(len(training.fed[k].train[0])) for k in cohort]


def batches(
    training: Training, r: int, client: int, epochs: int, phase: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """The mini-batches of a client's round: ten examples at a time."""
    mine = rng.fold(rng.fold(training.key(WORK, r), client), phase)
    cut = plan(training.fed.train, torch.tensor([client]), mine.view(1), epochs, 10)
    for rows, weight in zip(cut.rows[0], cut.weight[0], strict=True):
        rows = rows[weight > 0]
        yield training.fed.x[rows], training.fed.y_train[rows]


def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(functional_call(NET, model, (x,)), y)


def slope(f: Callable[..., Tensor], at: Model, *rest: Any) -> Model:
    """The gradient of ``f(·, *rest)``."""
    leaf = {k: v.detach().clone().requires_grad_() for k, v in at.items()}
    found = torch.autograd.grad(f(leaf, *rest), list(leaf.values()))
    return dict(zip(leaf, found, strict=True))


def square(a: Model, b: Model) -> Tensor:
    """``‖a − b‖²``."""
    return torch.cat([(a[k] - b[k]).flatten() for k in a]).square().sum()


@dataclass
class SGD:
    """Gradient descent on a model, written out."""

    model: Model
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    m: Model = field(default_factory=dict)

    def step(self, grads: Model) -> None:
        for k, g in grads.items():
            g = g + self.weight_decay * self.model[k]
            self.m[k] = self.momentum * self.m[k] + g if k in self.m else g
            self.model = {**self.model, k: self.model[k] - self.lr * self.m[k]}


def mean(models: Sequence[Model], weights: Sequence[float]) -> Model:
    total = sum(weights)
    return {
        k: torch.stack([w / total * m[k] for m, w in zip(models, weights, strict=True)]).sum(0)
        for k in models[0]
    }


def state(done: Progress, client: int) -> Tree:
    ids, states = done.clients.saved()

    def row(node: Tree) -> Tree:
        at = ids.tolist().index(client)
        return {k: row(v) if isinstance(v, dict) else v[at] for k, v in node.items()}

    return row(states)


def same(a: Model, b: Model, tolerance: float = 1e-5) -> None:
    assert set(a) == set(b)
    for k in a:
        torch.testing.assert_close(a[k], b[k], rtol=0, atol=tolerance)


def gap(a: Model, b: Model) -> float:
    return max(float((a[k] - b[k]).abs().max()) for k in a)


@dataclass
class Spy:
    """An engine that keeps what was sent."""

    engine: Engine
    sent: list[Uplink] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.engine.name

    def round(self, work: CohortRound) -> tuple[Uplink, Tree]:
        uplink, states = self.engine.round(work)
        self.sent.append(uplink)
        return uplink, states

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


class Bowl(nn.Module):
    """One weight w, and for an example (a, b) the loss ``a/2 · (w − b)²``."""

    def __init__(self, w: float = 1.0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([w]))

    def reset_parameters(self) -> None:
        nn.init.normal_(self.w)

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x[:, :1] * (self.w - x[:, 1:]) ** 2


def bowl(w: float = 1.0) -> Task:
    return Task(Bowl(w), losses=lambda logits, y: logits[:, 0])


def bowls(*clients: tuple[float, float], sizes: Sequence[int] | None = None) -> Federation:
    """A client for each (a, b), all of whose examples are that: any mini-batch has its loss."""
    sizes = sizes or [8] * len(clients)
    owner = [k for k, n in enumerate(sizes) for _ in range(n)]
    x = [list(clients[k]) for k in owner]
    return federation(x, [0, 1] * (len(x) // 2), clients=owner, split=(0.5, 0.25, 0.25))
