"""Auxiliary models on the representation that a client's own layers make of its data.

Liang et al.: *Think locally, act globally: federated learning with local and global
representations*, 2020, sections 3.1 and B.1, and the version of 2019, algorithm 1. A client's
private layers ℓ_i turn an example x into h, from which the rest of the model g predicts the label;
an auxiliary model a_i : h → z, which is the client's own, too, says what else h should be good for
(or should not). On each mini-batch, with F the loss of the method and A that of the auxiliary::

    (ℓ, g) ← (ℓ, g) − η ∇(F + w · A)        a ← a − η' ∇_a A

in one step. The weight w is by how much A's gradient counts where it reaches h: at 0 the model is
trained as if there were no auxiliary, to the bit, and a is a probe; below 0 h is trained against it
(gradient reversal). With ``own_steps``, a takes so many steps first, each on its own share of the
mini-batch, and the model's step follows on all of it with a as it then is: alternating descent.

The auxiliary's parameters are made from the client's key, kept in its state and never sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree
from glocal.data.schema import Schema
from glocal.nn.optim import Optimizer, Scale
from glocal.nn.representation import check_cut, cut, layer_inputs, representation
from glocal.nn.task import Task
from glocal.slots.client import Local, Phase, Step, beside

DRAWS = -7
"""The child of a client's first key, and of a step's, that the auxiliary draws from."""


@dataclass(frozen=True)
class Dimensions:
    """What an auxiliary is told of the model and of the data, of one example each."""

    h: tuple[int, ...]
    """The shape of the representation."""
    outputs: tuple[int, ...]
    """The shape of the model's output."""
    schema: Schema
    """What an example looks like."""
    vocabulary: int = 0
    """Tokens that the model knows, where it reads tokens."""


@dataclass(frozen=True, kw_only=True)
class Auxiliary:
    """What is trained on h beside the model, and how its loss acts on the model."""

    name: str
    init: Callable[[Tensor, Dimensions], Params]
    """``init(key, dimensions)``: its parameters. It is vmapped, so it draws with ``rng``."""
    loss: Callable[[Task, Params, Tensor, Batch, Tensor], Tensor]
    """``loss(task, a, h, batch, key)``: the mean over the examples of a batch, where padding has
    weight 0. The inputs are those that h was made of, as training sees them. What a federation has
    beside inputs and labels is in the batch under its own name."""
    weight: float
    """By how much its gradient counts in that of the model; below 0: against it."""
    view: Callable[[Batch, Tensor, Dimensions], Batch] | None = None
    """``view(batch, key, dimensions)``: the batch with other inputs, made for the auxiliary, and
    what there is to predict of them; h is then theirs. None: h is that of the model's own pass."""
    check: Callable[[Dimensions], None] = lambda dimensions: None
    """Raises if it does not fit the model or the data."""
    at: str | None = None
    """The layer that reads h; None: the one that follows the client's first private layers."""
    rate: float = 1.0
    """Its learning rate, times the client's."""
    own_steps: int = 0
    """Steps that it takes by itself before each of the model's, each on its own share of the
    mini-batch: every so many-th example; 0: both step at once."""
    optimiser: Callable[[float], Optimizer] | None = None
    """Its own, made with the client's learning rate; None: the client's."""
    shared: bool = False
    """Whether all clients have one, which is sent and averaged with the model
    (:mod:`glocal.slots.shared_auxiliary`); if not, each has its own, which is never sent."""
    alone: bool = False
    """Whether its loss is the only one, as in pre-training without labels."""


def dimensions(task: Task, schema: Schema, at: str) -> Dimensions:
    """What an auxiliary is told, found by a pass of two examples of zeros."""
    device = next(iter(task.params.values())).device
    kind = torch.int64 if schema.tokens else torch.float32
    x = torch.zeros((2, *schema.shape), dtype=kind, device=device)
    with torch.no_grad():
        logits, h = check_cut(task, x, rng.key(0, device), at)
    embeddings = (m for m in task.module.modules() if isinstance(m, torch.nn.Embedding))
    words = next((m.num_embeddings for m in embeddings), 0) if schema.tokens else 0
    return Dimensions(tuple(h.shape[1:]), tuple(logits.shape[1:]), schema, words)


def with_auxiliary(
    inner: Local, auxiliary: Auxiliary, task: Task, schema: Schema, private: set[str]
) -> Local:
    """``inner``, whose steps train the auxiliary as well; its parameters are the client's own."""
    layer, told = fitted(auxiliary, task, schema, private)

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        made = auxiliary.init(rng.fold(key, DRAWS), told)
        return {"inner": inner.init(task, params, key), "auxiliary": made}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        opt = optimiser_of(auxiliary, inner).init(client["auxiliary"])
        return {**client, "inner": inner.start(task, down, client["inner"]), "opt": opt}

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        update, state, extra = inner.finish(task, down, carry["inner"])
        return update, {"inner": state, "auxiliary": carry["auxiliary"]}, extra

    phases = assisted(inner, auxiliary, layer, told)
    return beside(inner, init=init, start=start, phases=phases, finish=finish)


def fitted(
    auxiliary: Auxiliary, task: Task, schema: Schema, private: set[str]
) -> tuple[str, Dimensions]:
    """The layer that reads h, and what the auxiliary is told; an error if it does not fit."""
    layer = cut(task, private, auxiliary.at)
    told = dimensions(task, schema, layer)
    auxiliary.check(told)
    return layer, told


def optimiser_of(auxiliary: Auxiliary, inner: Local) -> Optimizer:
    """What the auxiliary's parameters are trained with."""
    return auxiliary.optimiser(inner.opt.lr) if auxiliary.optimiser else inner.opt


def assisted(inner: Local, auxiliary: Auxiliary, layer: str, told: Dimensions) -> tuple[Phase, ...]:
    """The phases of ``inner``, whose steps train the auxiliary as well, ``carry["auxiliary"]``."""
    passes = (1 if auxiliary.view is None else 2) * (2 if auxiliary.own_steps else 1)
    opt = optimiser_of(auxiliary, inner)

    def with_auxiliary_of(step: Step) -> Step:
        def assisted_step(
            task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor
        ) -> Carry:
            state = {"auxiliary": carry["auxiliary"], "opt": carry["opt"]}
            helped = AssistedTask(task, auxiliary, layer, told, state, opt, down["lr"])
            model = step(helped, down, carry["inner"], batch, key)
            return {"inner": model, **helped.state}

        return assisted_step

    return tuple(
        p._replace(step=with_auxiliary_of(p.step), gradients=passes * p.gradients)
        for p in inner.phases
    )


@dataclass(frozen=True)
class _Seen:
    """What the model's loss was computed of."""

    params: Params
    h: Tensor
    batch: Batch
    key: Tensor

    def part(self, share: int, of: int) -> _Seen:
        """Every ``of``-th example, from the one at place ``share``; padding is at the end."""
        batch = {name: values[share::of] for name, values in self.batch.items()}
        return _Seen(self.params, self.h.detach()[share::of], batch, rng.fold(self.key, share))


class AssistedTask(Task):
    """A client's task in one step: every gradient of the model's loss is joined by the auxiliary's.

    The method's own step runs as it is. Where it asks for a gradient, the losses of the model that
    it computes on the way are noted with their representations, and the auxiliary's are added.
    """

    def __init__(
        self,
        task: Task,
        auxiliary: Auxiliary,
        at: str,
        told: Dimensions,
        state: Tree,
        opt: Optimizer,
        scale: Scale,
    ) -> None:
        self.__dict__.update(task.__dict__)
        self.auxiliary, self.at, self.told = auxiliary, at, told
        self.state = state
        """The auxiliary's parameters, and its optimiser's state."""
        self._opt, self._scale = opt, scale * auxiliary.rate
        self._seen: list[_Seen] | None = None

    def loss(self, params: Params, batch: Batch, key: Tensor) -> Tensor:
        """The model's loss; what it read on the way is noted while a gradient is taken."""
        if self._seen is None:
            return super().loss(params, batch, key)
        with layer_inputs(self.module, self.at) as found:
            loss = super().loss(params, batch, key)
        inputs = {**batch, "x": self.inputs(batch, key)}
        self._seen.append(_Seen(params, found[-1].float(), inputs, rng.fold(key, DRAWS)))
        return loss

    def grad(self, objective: Callable[[Tree], Tensor], at: Tree) -> tuple[Tree, Tensor]:
        """Gradient and value with the auxiliary's loss added, whose own parameters step here."""
        noted: list[bool] = []

        def joint(model: Tree, a: Params) -> Tensor:
            value, seen = self._noting(objective, model)
            noted.append(bool(seen))
            if seen and self.auxiliary.alone:
                value = torch.zeros_like(value)
            for one in seen:
                value = value + self._auxiliary_loss(a, one)
            return value

        if self.auxiliary.own_steps:
            self._own_steps(self._noting(objective, at)[1])
            return super().grad(lambda model: joint(model, self.state["auxiliary"]), at)
        both, value = super().grad(
            lambda both: joint(both["model"], both["auxiliary"]),
            {"model": at, "auxiliary": self.state["auxiliary"]},
        )
        self._step(both["auxiliary"], noted)
        return both["model"], value

    def _noting(
        self, objective: Callable[[Tree], Tensor], model: Tree
    ) -> tuple[Tensor, list[_Seen]]:
        """The value of an objective, and what the model's losses in it were computed of."""
        seen: list[_Seen] = []
        self._seen = seen
        try:
            return objective(model), seen
        finally:
            self._seen = None

    def _own_steps(self, seen: list[_Seen]) -> None:
        """The auxiliary's steps against the model as it is, each on its share of the examples."""
        for share in range(self.auxiliary.own_steps if seen else 0):
            parts = [one.part(share, self.auxiliary.own_steps) for one in seen]

            def loss(a: Params, parts: list[_Seen] = parts) -> Tensor:
                losses = [self._auxiliary_loss(a, part) for part in parts]
                return sum(losses[1:], losses[0])

            grads, _ = super().grad(loss, self.state["auxiliary"])
            self._step(grads, [True])

    def _step(self, grads: Params, noted: list[bool]) -> None:
        if not noted[-1]:  # a gradient of something else than the model's loss
            return
        a, opt = self._opt.update(grads, self.state["opt"], self.state["auxiliary"], self._scale)
        self.state = {"auxiliary": a, "opt": opt}

    def _auxiliary_loss(self, a: Params, seen: _Seen) -> Tensor:
        h, batch, auxiliary = seen.h, seen.batch, self.auxiliary
        if auxiliary.view is not None:
            batch = auxiliary.view(batch, rng.fold(seen.key, 0), self.told)
            h = representation(self, seen.params, batch["x"], rng.fold(seen.key, 1), self.at)
        h = weighted_gradient(h, auxiliary.weight)
        return auxiliary.loss(self, a, h, batch, rng.fold(seen.key, 2))


def weighted_gradient(h: Tensor, weight: float) -> Tensor:
    """``h`` as it is, through which gradients go back times ``weight``."""
    if weight == 1.0:
        return h
    still = h.detach()
    return still if weight == 0.0 else still + weight * (h - still)


def needs_schema(schema: Schema | None, name: str) -> Schema:
    """The schema, which an auxiliary cannot be made without."""
    if schema is None:
        raise GlocalError(f"{name} needs to know the data: give the client half its schema.")
    return schema
