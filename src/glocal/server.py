"""The server's half of a round, as two pure functions: what it sends, and what it learns.

The server's state is a tree: ``params`` (the shared ones, which change), ``start`` (the private
layers as the stage began, for clients that join later), and the state of each slot. It never holds
a client's state.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glocal import rng, tree
from glocal.method import Method
from glocal.sharing import split
from glocal.task import Task
from glocal.types import Downlink, Params, Tree, Uplink
from glocal.weighting import Setting


def begin(method: Method, task: Task, params: Params, setting: Setting) -> Tree:
    """The server's state before the first round of a stage."""
    shared, private = split(params, method.shared_names(task))
    return {
        "params": shared,
        "start": private,
        "opt": method.server_opt.init(shared),
        "weighting": method.weights.init(setting),
        "memory": method.memory.init(shared, setting),
    }


def broadcast(method: Method, server: Tree, round: int, setting: Setting) -> Downlink:
    """What every client of a round receives; scalars are tensors, so nothing is traced twice."""
    first = next(iter([*server["params"].values(), *server["start"].values()]))

    def scalar(value: float) -> Tensor:
        return torch.tensor(value, device=first.device)

    return {
        "params": server["params"],
        "round": scalar(float(round)),
        "rounds": scalar(float(setting.rounds)),
        "lr": scalar(method.local.schedule(round)),
        **method.memory.broadcast(server["memory"]),
    }


def first_parameters(task: Task, server: Tree) -> Params:
    """The whole model at a client's first round: shared as they are, private as they began."""
    both = {**server["start"], **server["params"]}
    return {k: both[k] for k in task.names}


def reduce(
    method: Method, server: Tree, uplink: Uplink, setting: Setting, key: Tensor
) -> tuple[Tree, Tensor]:
    """Weigh, protect, combine and apply a cohort's updates; returns the new state and the weights.

    An empty cohort changes nothing.
    """
    if len(uplink.ids) == 0:
        return server, torch.zeros(0)
    p, weighting = method.weights.weigh(server["weighting"], uplink)
    updates = uplink.update
    if method.privacy is not None:
        keys = rng.fold(rng.fold(key, 0), uplink.ids)
        updates = torch.func.vmap(method.privacy.client)(updates, keys)
    update = method.combine.combine(updates, p)
    if method.privacy is not None:
        update = method.privacy.server(update, len(uplink.ids), setting, rng.fold(key, 1))
    # The optimiser descends, and an update points the way to go: its negative is the gradient.
    params, opt = method.server_opt.update(
        tree.map(torch.neg, update), server["opt"], server["params"], 1.0
    )
    return {
        "params": params,
        "start": server["start"],
        "opt": opt,
        "weighting": weighting,
        "memory": method.memory.update(server["memory"], uplink, setting),
    }, p
