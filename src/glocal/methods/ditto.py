"""Ditto: a personal model beside the global one, pulled towards it.

Li, Hu, Beirami, Smith: *Ditto: fair and robust federated learning through personalization*, ICML
2021. The global w is FedAvg's. Beside it client i keeps v_i, which minimises

    F_i(v) + (λ/2) ‖v − w‖²

with w as received. λ = 0 is local training; a large λ is the global model. Both train on the same
mini-batches; the personal model is what is evaluated.
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from glocal.core import tree
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree
from glocal.core.validation import not_negative
from glocal.methods.training_args import TrainingArgs, local_sgd
from glocal.nn.task import Task
from glocal.slots.method import Method


def ditto(*, lam: float = 0.1, **training: Unpack[TrainingArgs]) -> Method:
    """A personal model pulled towards the global one with strength ``lam``.

    Each client keeps a model of its own and pays for going far from the global one. It helps where
    clients differ somewhat and each has little data; there it made nobody worse off. It does not
    help where a client's own data is enough, or where all are alike. A step takes two gradients
    where FedAvg's takes one.

    Args:
        lam: strength of the pull of the personal model to the global one.
    """
    not_negative(lam=lam)
    base = local_sgd(**training)

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        return {"v": params}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        v = client["v"]
        return {"w": base.start(task, down, {}), "v": v, "v_opt": base.opt.init(v)}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        def personal(v: Params) -> Tensor:
            w = down["params"]
            return task.loss(v, batch, key) + lam / 2 * tree.sq_norm(tree.sub(v, w))

        grads, _ = task.grad(personal, carry["v"])
        v, v_opt = base.opt.update(grads, carry["v_opt"], carry["v"], down["lr"])
        return {"w": base.step(task, down, carry["w"], batch, key), "v": v, "v_opt": v_opt}

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        update, _, extra = base.finish(task, down, carry["w"])
        return update, {"v": carry["v"]}, extra

    def candidates(task: Task, down: Downlink, client: ClientState) -> dict[str, Params]:
        return {"personal": client["v"]}

    local = base.replace(
        init=init, start=start, step=step, gradients=2, finish=finish, candidates=candidates
    )
    return Method(local=local)
