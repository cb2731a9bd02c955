"""Networks that travel and are averaged, while every client's classifier stays at home.

What FedCGAN and FedCVAE have in common: the server's networks go down, clients train them on
their data, the changes come back and are averaged by numbers of examples; at the end the server
draws labelled examples. Beside that, each client trains a classifier of its own on its data: the
method does nothing for it, so it is judged for what it is, a model made alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree, Uplink
from glocal.core.validation import positive_integers
from glocal.data.federation import Federation
from glocal.data.schema import Schema, numeric_schema
from glocal.methods.generative import langevin, networks
from glocal.methods.generative.input_range import check
from glocal.methods.generative.server_examples import balanced
from glocal.nn.optim import Optimizer
from glocal.nn.task import Task
from glocal.slots.aggregation import weighted_sum
from glocal.slots.client import Local, Phase
from glocal.slots.method import Method
from glocal.slots.server_half import ServerHalf
from glocal.slots.server_memory import Memory
from glocal.slots.sharing import nothing
from glocal.slots.weighting import Setting


@dataclass(frozen=True)
class Nets:
    """The networks of a method, as pure functions of their parameters."""

    shape: tuple[int, ...]
    classes: int
    code: int
    width: int
    dense: bool = False
    """Whether images go through dense layers, as tables do."""

    @property
    def inner(self) -> tuple[int, ...]:
        """An example as the networks see it."""
        return (math.prod(self.shape),) if self.dense else self.shape

    def generator(self, w: Params, z: Tensor, y: Tensor) -> Tensor:
        """Examples of classes ``y``; of images, the logits of their pixels."""
        out = self._call("generator", w, z, networks.one_hot(y, self.classes))
        return out.reshape(len(z), *self.shape)

    def critic(self, w: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        """The logit of being real, and those of the classes."""
        out = self._call("critic", w, x.reshape(len(x), *self.inner))
        return out[:, 0], out[:, 1:]

    def encoder(self, w: Params, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of each example's code."""
        x = x.reshape(len(x), *self.inner)
        out = self._call("encoder", w, x, networks.one_hot(y, self.classes))
        return out[:, : self.code], out[:, self.code :]

    def _call(self, kind: str, w: Params, *given: Tensor) -> Tensor:
        return networks.call(kind, w, self.inner, self.classes, self.code, self.width, *given)


Turn = Callable[[Task, Nets, Tree, Batch, Tensor], Callable[[Tree], Tensor]]
"""From the networks as they are, a mini-batch and a key to an objective of those in training."""


@dataclass(frozen=True)
class Design:
    """Which networks there are, how large, and how many examples they are to make of a class."""

    kinds: tuple[str, ...]
    code: int
    width: int
    per_class: int
    dense: bool = False

    def nets(self, shape: tuple[int, ...], classes: int) -> Nets:
        """For examples of that shape."""
        return Nets(shape, classes, self.code, self.width, self.dense)

    def __post_init__(self) -> None:
        positive_integers(code=self.code, width=self.width, spc=self.per_class)


def travelling(
    name: str,
    design: Design,
    base: Local,
    opt: Optimizer,
    turns: tuple[Turn, ...],
    trains: tuple[tuple[str, ...], ...],
    steps: int | None,
) -> Method:
    """A method whose networks take ``turns``: each an objective of the networks it ``trains``."""

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        return {"w": params, "opt": base.opt.init(params)}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        nets = down["networks"]
        return {**client, "networks": nets, "moments": {k: opt.init(nets[k]) for k in nets}}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        nets, moments = carry["networks"], carry["moments"]
        made = design.nets(tuple(batch["x"].shape[1:]), classes_of(nets, design.code))
        for i, (turn, names) in enumerate(zip(turns, trains, strict=True)):
            # The children of a step's key from 0 up belong to the task.
            objective = turn(task, made, nets, batch, rng.fold(key, -2 - i))
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

    local = base.replace(
        init=init,
        start=start,
        phases=(Phase("train", base.epochs, step, steps),),
        finish=finish,
        received=lambda task, down, client: client["w"],
        candidates=lambda task, down, client: {"own": client["w"]},
        solve_before_evaluation=True,  # who never took part can train all the same
        keeps_whole_model=True,
    )
    return Method(local=local, server=averaged(name, design), shared=nothing())


def averaged(name: str, design: Design) -> ServerHalf:
    """The server's networks: drawn at the start, moved by the mean change, a source of examples.

    Under privacy a client's change of all networks is one vector, and all clients count alike.
    """

    def init(params: Params, setting: Setting, key: Tensor) -> Tree:
        inputs = numeric_schema(setting.schema, name)
        inner = design.nets(inputs.shape, inputs.classes).inner
        size = (inner, inputs.classes, design.code, design.width)
        drawn = {
            kind: networks.draw(kind, *size, rng.fold(key, i))
            for i, kind in enumerate(design.kinds)
        }
        return {"networks": drawn}

    def apply(state: Tree, mean: Params, uplink: Uplink, setting: Setting, key: Tensor) -> Tree:
        return {"memory": tree.add(state["memory"], tree.unflatten(mean))}

    def draw(state: Tree, setting: Setting, key: Tensor) -> tuple[Tensor, Tensor]:
        inputs = numeric_schema(setting.schema, name)
        y = balanced(inputs.classes, design.per_class, key.device)
        z = rng.normal(key, (len(y), design.code))
        nets = design.nets(inputs.shape, inputs.classes)
        w = state["memory"]["networks"]["generator"]
        with torch.no_grad():
            x = networks.shades(nets.generator(w, z, y))
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
