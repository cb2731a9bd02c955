"""SCAFFOLD: control variates against the clients' drift.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: *SCAFFOLD: stochastic controlled averaging for
federated learning*, ICML 2020 (option II). Every step of client i is corrected,

    w_i ← w_i − η (g_i(w_i) − c_i + c),

afterwards c_i⁺ = c_i − c + (w − w_i) / (steps · η), and the server moves c by |S|/K times the mean
of c_i⁺ − c_i. That formula for c_i⁺ holds for plain SGD alone, so momentum, weight decay and other
optimisers are refused, and so is clipping.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree, Uplink
from glocal.methods.training_args import TrainingArgs, local_sgd
from glocal.nn.task import Task
from glocal.slots.aggregation import weighted_sum
from glocal.slots.method import Method
from glocal.slots.server_half import Memory
from glocal.slots.weighting import Setting, uniform


def scaffold(**training: Unpack[TrainingArgs]) -> Method:
    """FedAvg whose clients' steps are corrected for how they differ from the rest.

    Clients correct each step by how their own data leads away from everybody's. It helps where
    clients differ and train for long between rounds, so that FedAvg's clients drift apart: with two
    digits a client it was 5 points above FedAvg. It does not give a client a model of its own
    (there 19 of 20 were worse off than alone), and it sends twice as much.
    """
    if training.get("optimiser", "sgd") != "sgd":
        raise GlocalError("scaffold needs optimiser=sgd: its correction is derived for that alone.")
    for name in ("momentum", "weight_decay", "nesterov", "grad_clip"):
        if training.get(name):
            raise GlocalError(
                f"scaffold cannot take {name}: its correction is for plain SGD; leave it out."
            )
    base = local_sgd(**training)

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        return {"c": tree.zeros(params)}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        w = down["params"]
        return {"w": w, "c": client["c"], "steps": torch.zeros_like(down["lr"])}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        g, _ = task.grad(lambda w: task.loss(w, batch, key), carry["w"])
        corrected = tree.map(lambda g, c_i, c: g - c_i + c, g, carry["c"], down["c"])
        w, _ = base.opt.update(corrected, {}, carry["w"], down["lr"])
        return {**carry, "w": w, "steps": carry["steps"] + 1}

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        update = tree.sub(carry["w"], down["params"])
        scale = 1.0 / (carry["steps"] * base.opt.lr * down["lr"])
        change = tree.map(lambda d, c: -c - scale * d, update, down["c"])
        return update, {"c": tree.add(carry["c"], change)}, {"c": change}

    return Method(
        local=base.replace(init=init, start=start, step=step, finish=finish),
        weighting=uniform(),
        memory=Memory(
            "scaffold",
            init=lambda params, setting, key: {"c": tree.zeros(params)},
            broadcast=lambda state: {"c": state["c"]},
            update=_move_c,
        ),
    )


def _move_c(state: Tree, uplink: Uplink, setting: Setting, key: Tensor) -> Tree:
    """``c ← c + |S|/K · mean (c_i⁺ − c_i)``."""
    share = torch.full_like(uplink.n, 1.0 / setting.clients, dtype=torch.float32)
    moved = tree.map(lambda x: weighted_sum(x, share), uplink.extra["c"])
    return {"c": tree.add(state["c"], moved)}
