"""The server's half of a round, as two pure functions: what it sends, and what it learns.

The server's state is a tree: ``params`` (the shared ones, which change), ``start`` (the private
layers as the stage began, for clients that join later), and the state of each slot. It never holds
a client's state.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Downlink, Params, Tree, Uplink
from glocal.nn.task import Task
from glocal.slots.method import Method
from glocal.slots.sharing import split
from glocal.slots.weighting import Setting


def begin(
    method: Method, task: Task, params: Params, setting: Setting, key: Tensor | None = None
) -> Tree:
    """The server's state before the first round of a stage; ``key`` is for what it draws."""
    shared, private = split(params, method.shared_names(task))
    if key is None:
        key = rng.key(0, next(iter(params.values())).device)
    return {
        "params": shared,
        "start": private,
        "opt": method.server_opt.init(shared),
        "weighting": method.weights.init(setting),
        "memory": method.memory.init(shared, setting, key),
        "privacy": method.privacy.init(setting) if method.privacy else {},
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

    Where privacy protects what a memory moves by, those vectors take the updates' place.
    An empty cohort changes nothing, but where privacy adds noise, which must not tell that nobody
    was there.
    """
    if len(uplink.ids) == 0 and method.privacy is None:
        return server, torch.zeros(0)
    p, weighting = method.weights.weigh(server["weighting"], uplink)
    vector, memory_key = method.vector, rng.fold(key, 2)
    updates, privacy = uplink.update if vector is None else uplink.extra, server["privacy"]
    said: Tree = {}
    if method.privacy is not None and len(uplink.ids):
        keys = rng.fold(rng.fold(key, 0), uplink.ids)
        updates, said = torch.func.vmap(partial(method.privacy.client, privacy))(updates, keys)
    update = method.combine.combine(updates, p)
    if method.privacy is not None:
        said = tree.map(lambda x: x.sum(0), said)
        update, privacy = method.privacy.server(privacy, update, said, setting, rng.fold(key, 1))
    if vector is not None:
        memory = vector.move(server["memory"], update, setting, memory_key)
        return {**server, "weighting": weighting, "memory": memory, "privacy": privacy}, p
    # The optimiser descends, and an update points the way to go: its negative is the gradient.
    params, opt = method.server_opt.update(
        tree.map(torch.neg, update), server["opt"], server["params"], 1.0
    )
    return {
        "params": params,
        "start": server["start"],
        "opt": opt,
        "weighting": weighting,
        "memory": method.memory.update(server["memory"], uplink, setting, memory_key),
        "privacy": privacy,
    }, p


def nobody(method: Method, server: Tree, ids: Tensor) -> Uplink:
    """What an empty cohort sends."""

    def none(like: Params) -> Params:
        return {k: x.new_zeros(0, *x.shape) for k, x in like.items()}

    extra = method.vector.like(server["memory"]) if method.vector else {}
    return Uplink(ids=ids, n=ids, update=none(server["params"]), loss=None, extra=none(extra))


def check_privacy(method: Method, task: Task, setting: Setting) -> None:
    """Refuse, before anyone trains, a private method that sends more than its update."""
    if method.privacy is None:
        return
    method.privacy.check(setting)
    if method.vector is not None:
        return  # what clients send beside the update is what is protected
    local = method.client_half(task)
    down = broadcast(method, begin(method, task, task.params, setting), 0, setting)
    client = local.init(task, task.params, rng.key(0, next(iter(task.params.values())).device))
    _, _, extra = local.finish(task, down, local.start(task, down, client))
    if tree.leaves(extra):
        raise GlocalError(
            f"{method.privacy.name} protects the update alone, and this method's clients send "
            f"more than that ({', '.join(extra)}): use another base, such as fedavg or ditto."
        )
