"""Methods that only tests use, each hard for the contract in its own way; and some that break it.

They are short sketches of published ones, not those: what matters is the shape of their state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from glocal.core import rng, tree
from glocal.core.padding import IGNORED, PAD
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree, Uplink
from glocal.data.federation import Federation, federation
from glocal.methods.fedavg import fedavg
from glocal.nn.layers import LSTM, Dropout, group_norm
from glocal.nn.optim import sgd
from glocal.nn.task import Task
from glocal.slots.client import Local, Phase, minibatch_training
from glocal.slots.method import Method, Plan, Stage
from glocal.slots.server_half import Memory
from glocal.slots.sharing import all_but_last, last, layers
from glocal.slots.weighting import Setting, Weighting


def two_phases() -> Method:
    """As FedRep: the head alone for some epochs, then the body alone for one."""
    base = minibatch_training(sgd(0.1, momentum=0.5))

    def only(head: bool) -> Callable[..., Carry]:
        def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
            *_, names = layers(task.names).values()
            moved = base.step(task, down, carry, batch, key)
            w = {k: v if (k in names) == head else carry["w"][k] for k, v in moved["w"].items()}
            return {**moved, "w": w}

        return step

    phases = (Phase("head", 2, only(True)), Phase("body", 1, only(False)))
    return Method(local=base.replace(phases=phases), shared=all_but_last())


def two_stages() -> Plan:
    """As LG-FedAvg: two rounds of FedAvg, then the last layer alone is shared."""
    return Plan((Stage(fedavg(), rounds=2), Stage(fedavg().replace(shared=last(1)), name="lg")))


def inner_solve(k: int = 3, lam: float = 2.0) -> Method:
    """As pFedMe: θ by k steps on ``f(θ) + λ/2 ‖θ − w‖²``, then ``w ← w − ηλ(w − θ)``; θ is kept."""

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        return {"theta": params}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        return {"w": down["params"], "theta": client["theta"]}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        w, theta = carry["w"], carry["theta"]

        def objective(theta: Params) -> Tensor:
            near = 0.5 * lam * tree.sq_norm(tree.sub(theta, w))
            return task.loss(theta, batch, key) + near

        for _ in range(k):
            grads, _ = task.grad(objective, theta)
            theta = tree.add(theta, grads, -0.1)
        return {"w": tree.add(w, tree.sub(w, theta), -0.1 * lam), "theta": theta}

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        return tree.sub(carry["w"], down["params"]), {"theta": carry["theta"]}, {}

    def candidates(task: Task, down: Downlink, client: ClientState) -> dict[str, Params]:
        return {"own": client["theta"]}

    return wrapped(init=init, start=start, step=step, finish=finish, candidates=candidates)


def control_variates(lr: float = 0.1) -> Method:
    """As SCAFFOLD: ``w ← w − η(g − c_i + c)``, ``c_i ← c_i − c + (x − w)/(τη)``, Δc_i is sent."""

    def keep(task: Task, params: Params, key: Tensor) -> ClientState:
        return {"c_i": tree.zeros(params)}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        device = next(iter(down["params"].values())).device
        return {"w": down["params"], "c_i": client["c_i"], "tau": torch.zeros((), device=device)}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        g, _ = task.grad(lambda w: task.loss(w, batch, key), carry["w"])
        g = tree.add(tree.sub(g, carry["c_i"]), down["c"])
        return {**carry, "w": tree.add(carry["w"], g, -lr), "tau": carry["tau"] + 1}

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        update = tree.sub(carry["w"], down["params"])
        change = tree.map(
            lambda c, d: -c - d / (carry["tau"] * lr), down["c"], update
        )  # c_i⁺ − c_i
        extra = {"change": change, "tau": carry["tau"]}  # a single number, too
        return update, {"c_i": tree.add(carry["c_i"], change)}, extra

    def init(params: Params, setting: Setting, key: Tensor) -> Tree:
        return {"c": tree.zeros(params)}

    def update(state: Tree, uplink: Uplink, setting: Setting, key: Tensor) -> Tree:
        share = len(uplink.ids) / setting.clients
        change = tree.map(lambda x: share * x.mean(0), uplink.extra["change"])
        return {"c": tree.add(state["c"], change)}

    memory = Memory("control-variates", init, lambda state: {"c": state["c"]}, update)
    return wrapped(init=keep, start=start, step=step, finish=finish).replace(memory=memory)


def own_client(lam: float = 0.5) -> Local:
    """As Ditto: beside w, each client trains v on ``f(v) + λ/2 ‖v − w‖²``, and keeps it."""
    base = minibatch_training()

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        return {"v": params}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        return {"global": base.start(task, down, {}), "v": client["v"]}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        def objective(v: Params) -> Tensor:
            pull = 0.5 * lam * tree.sq_norm(tree.sub(v, down["params"]))
            return task.loss(v, batch, key) + pull

        grads, _ = task.grad(objective, carry["v"])
        moved = base.step(task, down, carry["global"], batch, key)
        return {"global": moved, "v": tree.add(carry["v"], grads, -0.1 * down["lr"])}

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        update, _, extra = base.finish(task, down, carry["global"])
        return update, {"v": carry["v"]}, extra

    def candidates(task: Task, down: Downlink, client: ClientState) -> dict[str, Params]:
        return {"own": client["v"]}

    return base.replace(init=init, start=start, step=step, finish=finish, candidates=candidates)


def own_model() -> Method:
    return Method(local=own_client())


def two_candidates() -> Method:
    """The received model or the client's own: whichever does better on validation data."""

    def candidates(task: Task, down: Downlink, client: ClientState) -> dict[str, Params]:
        return {"global": down["params"], "own": client["v"]}

    return wrapped(own_client(), candidates=candidates)


def loss_driven() -> Weighting:
    """``p_i ∝ exp(loss_i)``, and a memory of the mean loss."""

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        assert uplink.loss is not None
        return torch.softmax(uplink.loss, 0), {"mean": 0.5 * (state["mean"] + uplink.loss.mean())}

    return Weighting("loss-driven", weigh, lambda setting: {"mean": torch.zeros(())}, True)


def by_loss() -> Method:
    return fedavg().replace(weighting=loss_driven(), shared=all_but_last())


TOYS: dict[str, Callable[[], Method | Plan]] = {
    "by_loss": by_loss,
    "control_variates": control_variates,
    "inner_solve": inner_solve,
    "own_model": own_model,
    "two_candidates": two_candidates,
    "two_phases": two_phases,
    "two_stages": two_stages,
}


class Recurrent(nn.Module):
    """Token numbers through an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.lstm = LSTM(3, 4, 2, dropout=0.2)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.lstm(self.embedding(x))[0][:, -1])
        return logits


def seeded(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """The module, its weights drawn from a seed of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def dropout_net() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), Dropout(0.5), nn.Linear(8, 3)))


def group_norm_net() -> nn.Module:
    return seeded(
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            group_norm(4),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(4 * 6 * 6, 3),
        )
    )


def recurrent() -> nn.Module:
    return seeded(Recurrent)


def images() -> Federation:
    """Small pictures of clients of different sizes."""
    owner = [k for k, n in enumerate((5, 13, 8, 21)) for _ in range(n)]
    x = rng.normal(rng.key(1), (len(owner), 1, 6, 6))
    return federation(x, (x.sum((1, 2, 3)) > 0).long() + (x[:, 0, 0, 0] > 1).long(), clients=owner)


def texts() -> Federation:
    """Sequences of tokens; the next one repeats the first."""
    owner = [k for k, n in enumerate((5, 13, 8, 21)) for _ in range(n)]
    x = rng.randint(rng.key(2), 5, (len(owner), 4))
    return federation(x, x[:, 0], clients=owner, classes=5)


def next_words() -> Federation:
    """Sequences of two to six words, padded; the next word is the one before, plus one."""
    owner = [k for k, n in enumerate((5, 13, 8, 21)) for _ in range(n)]
    length = 2 + rng.randint(rng.key(3), 5, (len(owner), 1))
    real = torch.arange(6) < length
    first = rng.randint(rng.key(2), 5, (len(owner), 1))
    words = 1 + (first + torch.arange(7)) % 5
    x, y = torch.where(real, words[:, :6], PAD), torch.where(real, words[:, 1:], IGNORED)
    return federation(x, y, clients=owner, classes=6)


def wrapped(local: Local | None = None, **hooks: Any) -> Method:
    """FedAvg with some of its client's functions replaced: how the broken ones are made."""
    return Method(local=(local or minibatch_training()).replace(**hooks))
