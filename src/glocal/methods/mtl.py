"""Mean-regularised multi-task learning: every client's model is pulled to the mean of all.

Evgeniou, Pontil: *Regularized multi-task learning*, KDD 2004; federated as a baseline of Liang et
al. (2020) after Smith, Chiang, Sanjabi, Talwalkar: *Federated multi-task learning*, NeurIPS 2017.
With W = [w_1 … w_K] and Ω = (I − 11ᵀ/K)² the objective is

    Σ_i F_i(w_i) + λ1 tr(W Ω Wᵀ) + λ2 ‖W‖²_F,    tr(W Ω Wᵀ) = Σ_i ‖w_i − w̄‖².

Each client keeps its own w_i and sends it; the server holds w̄.

Departures: no λ1, λ2 were published with the federated results, so search them on validation data.
With partial participation w̄ is the mean over the sampled clients, not over all.
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
from glocal.slots.weighting import uniform


def mtl(*, lam1: float = 0.1, lam2: float = 1e-4, **training: Unpack[TrainingArgs]) -> Method:
    """A model for every client, pulled to the mean of all with strength ``lam1``.

    Each client trains a model of its own, and all are pulled to their mean. It helps where clients
    are variations of one thing and take part often. It does not help where strengths are not tuned,
    or where few of many clients are sampled; with two digits a client it made 4 of 20 worse off
    than alone.

    Args:
        lam1: strength of the pull to the mean of all models.
        lam2: weight decay: strength of the pull to 0.
    """
    not_negative(lam1=lam1, lam2=lam2)
    base = local_sgd(**training)

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        return {"w": params}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        return {"w": client["w"], "opt": base.opt.init(client["w"])}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        def objective(w: Params) -> Tensor:
            to_mean = tree.sq_norm(tree.sub(w, down["params"]))
            return task.loss(w, batch, key) + lam1 * to_mean + lam2 * tree.sq_norm(w)

        grads, _ = task.grad(objective, carry["w"])
        w, opt = base.opt.update(grads, carry["opt"], carry["w"], down["lr"])
        return {"w": w, "opt": opt}

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        # The mean of these differences, added to w̄ as it was, gives the mean of the w_i.
        return tree.sub(carry["w"], down["params"]), {"w": carry["w"]}, {}

    def candidates(task: Task, down: Downlink, client: ClientState) -> dict[str, Params]:
        return {"own": client["w"]}

    local = base.replace(init=init, start=start, step=step, finish=finish, candidates=candidates)
    return Method(local=local.replace(resends=True), weighting=uniform())
