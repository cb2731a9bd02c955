"""The examples a server holds, and how clients' energies and gradients move them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError, unknown
from glocal.core.types import Carry, ClientState, Downlink, Params, Tree, Uplink
from glocal.core.validation import not_negative, positive_integers
from glocal.data.federation import Federation
from glocal.data.schema import Schema, numeric_schema
from glocal.methods.generative import langevin
from glocal.methods.generative.energy import mixture_gradient, weighted_gradient
from glocal.methods.generative.input_range import check
from glocal.nn.task import Task
from glocal.slots.client import Local, OtherGradients, Phase, Step
from glocal.slots.server_half import Memory, ServerHalf
from glocal.slots.weighting import Setting


@dataclass(frozen=True)
class Moves:
    """The server's Langevin step: how long, how noisy, how it is held in bounds."""

    per_class: int
    first: float
    last: float
    schedule: str
    noise: float
    clip: float | None
    boxed: bool
    low: float | None
    high: float | None

    def __post_init__(self) -> None:
        positive_integers(spc=self.per_class)
        not_negative(beta=self.first, beta_last=self.last, delta=self.noise)
        if self.schedule not in langevin.SCHEDULES:
            raise unknown("beta_schedule", self.schedule, langevin.SCHEDULES)
        for name, bound in (("low", self.low), ("high", self.high)):
            if bound is not None and math.isnan(bound):
                raise GlocalError(f"{name} must be a number, not {bound}.")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise GlocalError(f"low={self.low} must be below high={self.high}.")

    def room(self, inputs: Schema) -> langevin.Room:
        """Where examples may be; refuses one bound that is beyond the usual other one."""
        room = langevin.room(inputs, self.low, self.high)
        if not room.low < room.high:
            usual = "pixels" if inputs.images else "columns"
            raise GlocalError(
                f"examples cannot be from {room.low:g} to {room.high:g}, of which one is the usual "
                f"bound of {usual}: give both low and high."
            )
        return room

    def nearest(self, x: Tensor, inputs: Schema) -> Tensor:
        """On the server: the nearest point of the room, if there is one."""
        return self.room(inputs).nearest(x) if self.boxed else x

    def inside(self, x: Tensor, words: Tensor | None) -> Tensor:
        """On a client: numbers within bounds, shares of a category's ``words`` from 0 to 1."""
        if not self.boxed:
            return x
        room = self.room(Schema(tuple(x.shape[1:]), 0))
        kept = x.clamp(room.low, room.high)
        return kept if words is None else torch.where(words, x.clamp(0.0, 1.0), kept)


def examples(name: str, moves: Moves) -> ServerHalf:
    """A server's state of M = classes · ``per_class`` labelled examples, which begin as noise.

    Clients send ``extra["score"]`` [M], what stands for −E, ``extra["gradient"]`` [M, …] and, where
    they are weighted by class, ``extra["share"]`` [classes] of each class in their data.

    Under privacy (ours; the paper leaves it open) a client's message is one vector of M · D
    numbers, v_i = exp(s_i) ∇E_i (times the class's share), clipped as a whole; no score or share
    goes beside it. The server's g is
    (Σ v_i + noise) / m with m the expected size of the cohort: n_i is private, so all count alike,
    and the normaliser of (4.13), which nobody knows, is left out. So g is no mean of gradients but
    a sum of terms, each as long as its exp(s_i): ``beta`` must fit the clip.
    """

    def init(params: Params, setting: Setting, key: Tensor) -> Tree:
        inputs = numeric_schema(setting.schema, name)
        y = balanced(inputs.classes, moves.per_class, key.device)
        x = moves.nearest(rng.normal(key, (len(y), *inputs.shape)), inputs)
        state = {"x": x, "y": y, "round": torch.zeros((), device=key.device)}
        if inputs.categories:
            words = torch.zeros(inputs.shape, dtype=torch.bool, device=key.device)
            for begin, end in inputs.categories:
                words[begin:end] = True
            state["words"] = words
        return state

    def broadcast(state: Tree) -> Tree:
        return {"examples": {k: v for k, v in state.items() if k != "round"}}

    def combine(uplink: Uplink, p: Tensor) -> Params:
        n, share = uplink.n.unsqueeze(1), uplink.extra.get("share")
        if share is not None:
            n = n * share.repeat_interleave(moves.per_class, 1)
        g = mixture_gradient(uplink.extra["score"], uplink.extra["gradient"], n)
        return {"v": g}

    def apply(state: Tree, g: Params, uplink: Uplink, setting: Setting, key: Tensor) -> Tree:
        memory, inputs = state["memory"], numeric_schema(setting.schema, name)
        x, t = memory["x"], memory["round"]
        size = langevin.SCHEDULES[moves.schedule](moves.first, moves.last, t, setting.rounds)
        eps = rng.normal(key, x.shape)
        x = langevin.step(x, langevin.clipped(g["v"], moves.clip), size, moves.noise, eps)
        return {"memory": {**memory, "x": moves.nearest(x, inputs), "round": t + 1}}

    def private_client(local: Local) -> Local:
        def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
            update, client, sent = local.finish(task, down, carry)
            v = weighted_gradient(sent["score"], sent["gradient"])
            if "share" in sent:
                share = sent["share"].repeat_interleave(moves.per_class)
                v = v * share.reshape(-1, *(1,) * (v.dim() - 1))
            return update, client, {"v": v}

        return local.replace(finish=finish)

    def draw(state: Tree, setting: Setting, key: Tensor) -> tuple[Tensor, Tensor]:
        memory = state["memory"]
        return moves.room(numeric_schema(setting.schema, name)).decided(memory["x"]), memory["y"]

    def check_data(fed: Federation, setting: Setting) -> None:
        inputs = numeric_schema(Schema.of(fed), name)
        if moves.boxed:
            check(fed, inputs, moves.room(inputs), name, bounds=True)

    return ServerHalf(
        name=name,
        memory=Memory(name, init, broadcast),
        combine=combine,
        apply=apply,
        check=check_data,
        draw=draw,
        message=lambda uplink: uplink.extra,
        like=lambda state: {"v": state["memory"]["x"]},
        private_client=private_client,
    )


def own_classifier(
    base: Local, steps: int | None, *, step: Step, gradients: int = 1, **functions: Any
) -> Local:
    """A client that keeps its classifier whole, under ``w`` in its state, and shares none of it."""
    return base.replace(
        phases=(Phase("train", base.epochs, step, steps, gradients),),
        received=lambda task, down, client: client["w"],
        candidates=lambda task, down, client: {"own": client["w"]},
        solve_before_evaluation=True,  # a client that never took part can train all the same
        keeps_whole_model=True,
        **functions,
    )


def gradients_of_examples(each_step: int, at_once: int | None) -> OtherGradients:
    """Of the server's examples: ``at_once`` of them so often a step, then all as received."""

    def counted(down: Downlink, steps: Tensor) -> Tensor:
        M = len(down["examples"]["y"])
        return steps * each_step * min(at_once or M, M) + M

    return counted


def balanced(classes: int, per_class: int, device: torch.device) -> Tensor:
    """``per_class`` labels of each class, in order."""
    return torch.arange(classes, device=device).repeat_interleave(per_class)
