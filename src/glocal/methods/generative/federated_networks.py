"""Generative networks that are shared and averaged, while every client's classifier is private.

What FedCGAN and FedCVAE have in common: the server broadcasts its networks, clients train them on
their data, and the changes are averaged by numbers of examples; at the end the server draws
synthetic data. Beside that, each client trains a classifier on its own data: the method does
nothing for it, so it is evaluated for what it is, a local model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree, Uplink
from glocal.core.validation import positive_integers
from glocal.data.federation import Federation
from glocal.data.schema import Schema, numeric_schema
from glocal.methods.generative import langevin
from glocal.methods.generative.input_range import check
from glocal.methods.generative.networks import Nets, shades
from glocal.methods.generative.server_examples import balanced, own_classifier
from glocal.nn.models.shapes import Shape
from glocal.nn.optim import Optimizer
from glocal.nn.task import Task
from glocal.slots.aggregation import weighted_sum
from glocal.slots.client import Local
from glocal.slots.method import Method
from glocal.slots.server_half import Memory, ServerHalf
from glocal.slots.sharing import nothing
from glocal.slots.weighting import Setting

Turn = Callable[[Nets, Tree, Batch, Tensor], Callable[[Tree], Tensor]]
"""From the networks as they are, a mini-batch and a key to an objective of those in training."""


def averaged_networks(
    name: str,
    turns: Sequence[tuple[Turn, Sequence[str]]],
    base: Local,
    opt: Optimizer,
    *,
    gradients: int,
    spc: int,
    code: int,
    width: int,
    dense: bool,
    steps: int | None,
) -> Method:
    """A method whose clients train networks by ``turns``, each an objective of those it names.

    ``opt`` trains the networks, ``base`` is how a client trains its classifier; ``steps``
    mini-batches a round, or as many as in the epochs of ``base``. The turns take ``gradients`` of
    each example together.
    """
    positive_integers(code=code, width=width, spc=spc, steps=1 if steps is None else steps)
    nets_for = partial(Nets, code=code, width=width, dense=dense)

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        return {"w": params, "opt": base.opt.init(params)}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        nets = down["networks"]
        return {**client, "networks": nets, "moments": {k: opt.init(nets[k]) for k in nets}}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        nets, moments = carry["networks"], carry["moments"]
        functions = nets_for(tuple(batch["x"].shape[1:]), classes_of(nets, code))
        for i, (turn, names) in enumerate(turns):
            # The children of a step's key from 0 up belong to the task.
            objective = turn(functions, nets, batch, rng.fold(key, -2 - i))
            grads, _ = task.grad(objective, {k: nets[k] for k in names})
            for k in names:
                w, state = opt.update(grads[k], moments[k], nets[k], down["lr"])
                nets, moments = {**nets, k: w}, {**moments, k: state}
        grads, _ = task.grad(lambda w: task.loss(w, batch, key), carry["w"])
        w, state = base.opt.update(grads, carry["opt"], carry["w"], down["lr"])
        return {"w": w, "opt": state, "networks": nets, "moments": moments}

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        change = tree.sub(carry["networks"], down["networks"])
        return {}, {"w": carry["w"], "opt": carry["opt"]}, flat(change)

    kinds = [kind for _, trained in turns for kind in trained]
    return Method(
        local=own_classifier(
            base,
            steps,
            step=step,
            gradients=gradients + 1,  # and one for the classifier
            init=init,
            start=start,
            finish=finish,
            networks=lambda down: down["networks"],
        ),
        server=averaged(name, kinds, nets_for, spc),
        shared=nothing(),
    )


def averaged(
    name: str, kinds: Sequence[str], nets_for: Callable[[Shape, int], Nets], per_class: int
) -> ServerHalf:
    """The server's networks: drawn at the start, moved by the mean change, a source of examples.

    Under privacy a client's change of all networks is one vector, and all clients count alike.
    """

    def init(params: Params, setting: Setting, key: Tensor) -> Tree:
        inputs = numeric_schema(setting.schema, name)
        nets = nets_for(inputs.shape, inputs.classes)
        return {"networks": {k: nets.init(k, rng.fold(key, i)) for i, k in enumerate(kinds)}}

    def apply(state: Tree, mean: Params, uplink: Uplink, setting: Setting, key: Tensor) -> Tree:
        return {"memory": tree.add(state["memory"], tree.unflatten(mean))}

    def draw(state: Tree, setting: Setting, key: Tensor) -> tuple[Tensor, Tensor]:
        inputs = numeric_schema(setting.schema, name)
        nets = nets_for(inputs.shape, inputs.classes)
        y = balanced(inputs.classes, per_class, key.device)
        z = rng.normal(key, (len(y), nets.code))
        w = state["memory"]["networks"]["generator"]
        with torch.no_grad():
            x = shades(nets.generator(w, z, y))
        return langevin.room(inputs, None, None).decided(x), y

    def check_data(fed: Federation, setting: Setting) -> None:
        inputs = numeric_schema(Schema.of(fed), name)
        check(fed, inputs, langevin.room(inputs, None, None), name, bounds=False)

    return ServerHalf(
        name=name,
        memory=Memory(name, init, broadcast=lambda state: state),
        combine=lambda uplink, p: tree.map(lambda x: weighted_sum(x, p), uplink.extra),
        apply=apply,
        check=check_data,
        draw=draw,
        message=lambda uplink: uplink.extra,
        like=lambda state: flat(state["memory"]["networks"]),
    )


def flat(nets: Tree) -> Params:
    """All networks as the named parts of one vector."""
    return dict(tree.flatten({"networks": nets}))


def classes_of(nets: Tree, code: int) -> int:
    """How many classes the networks know: the generator's first layer reads a code and a label."""
    w = nets["generator"]
    first: Tensor = w["first.weight"] if "first.weight" in w else w["layers.0.weight"]
    return int(first.shape[-1]) - code
