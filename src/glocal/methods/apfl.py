"""APFL: a mixture of a personal and the global model, at a fixed or a learnt rate.

Deng, Kamani, Mahdavi: *Adaptive personalized federated learning*, 2020. Client i keeps v_i and
trains its own copy w_i of the global model as in FedAvg; on the same mini-batch

    v_i ← v_i − η ∇_v F_i(α_i v_i + (1 − α_i) w_i),
    α_i ← α_i − η ⟨v_i − w_i, ∇F_i(α_i v_i + (1 − α_i) w_i)⟩, kept in [0, 1]   (``adaptive``)

The client predicts with α_i v_i + (1 − α_i) w, w as received. α = 0 is the global model.
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree
from glocal.methods.training_args import TrainingArgs, local_sgd
from glocal.nn.task import Task
from glocal.slots.method import Method


def mix(a: Params, b: Params, share: Any) -> Params:
    """``share · a + (1 − share) · b``."""
    return tree.map(lambda x, y: share * x + (1 - share) * y, a, b)


def apfl(
    *, alpha: float = 0.25, adaptive: bool = False, **training: Unpack[TrainingArgs]
) -> Method:
    """A personal model mixed into the global one with share ``alpha``.

    Each client trains a model of its own beside its copy of the global one, and predicts with a
    mixture of both. It helps where clients differ and everybody's model still tells them something.
    It does not help where a client's own data is enough: with two digits a client it came to what
    clients have alone, and not above. A step takes two gradients where FedAvg's takes one.

    Args:
        alpha: share of the personal model in the mixture, from 0 to 1; the first one if adaptive.
        adaptive: whether each client learns its share.
    """
    if not 0 <= alpha <= 1:
        raise GlocalError(f"alpha must be between 0 and 1, not {alpha}.")
    base = local_sgd(**training)

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        first = next(iter(params.values()))
        return {"v": params, "alpha": torch.tensor(float(alpha), device=first.device)}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        w = base.start(task, down, {})
        return {"w": w, **client, "v_opt": base.opt.init(client["v"])}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        w, share = carry["w"]["w"], carry["alpha"]
        at, _ = task.grad(lambda m: task.loss(m, batch, key), mix(carry["v"], w, share))
        grads = tree.map(lambda g: share * g, at)  # ∇_v, by the chain rule
        v, v_opt = base.opt.update(grads, carry["v_opt"], carry["v"], down["lr"])
        if adaptive:
            slope = tree.dot(tree.sub(carry["v"], w), at)
            share = (share - base.opt.lr * down["lr"] * slope).clamp(0.0, 1.0)
        trained = base.step(task, down, carry["w"], batch, key)
        return {"w": trained, "v": v, "alpha": share, "v_opt": v_opt}

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        update, _, extra = base.finish(task, down, carry["w"])
        return update, {"v": carry["v"], "alpha": carry["alpha"]}, extra

    def candidates(task: Task, down: Downlink, client: ClientState) -> dict[str, Params]:
        return {"mixed": mix(client["v"], down["params"], client["alpha"])}

    local = base.replace(
        init=init, start=start, step=step, gradients=2, finish=finish, candidates=candidates
    )
    return Method(local=local)
