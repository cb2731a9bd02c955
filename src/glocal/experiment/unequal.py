"""Clients with different models: which there are, and who has which.

``model="small=mlp(32) | large=mlp(128, 64)"`` names two models, as ``model={"small": …, "large":
…}`` does in Python, where each may also be a module or a function that returns one. ``assign`` says
who has which (:func:`assigned`).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.own_code import is_own
from glocal.core.spec import split_at
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.experiment.adaptation import Technique
from glocal.experiment.modules import Built
from glocal.nn import models
from glocal.nn.architectures import Architectures, Packed, packed
from glocal.nn.task import Task
from glocal.prediction.description import Description
from glocal.slots.method import Plan

if TYPE_CHECKING:
    from glocal.experiment.repeat import Trained

_NAMED = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)\s*=\s*(.+)", re.DOTALL)

ADAPTATIONS = ("fine-tune", "distill")
"""The techniques that do not need the same layers of all clients."""


def models_of(given: object) -> dict[str, Any]:
    """The models by name; one that is given without a name is called by what it is."""
    if isinstance(given, Mapping):
        if not given or not all(isinstance(name, str) and name for name in given):
            raise GlocalError(
                "model must have a name for each model, as in model={'small': 'mlp(32)', "
                "'large': 'mlp(128)'}."
            )
        return dict(given)
    if not isinstance(given, str) or "|" not in given:
        return {str(given): given}
    found: dict[str, Any] = {}
    for part in split_at(given, "|"):
        named = _NAMED.fullmatch(part)
        name, spec = (named[1], named[2]) if named else (part, part)
        if name in found:
            raise GlocalError(
                f"two models are called {shown(name)}: give them names, as in 'a=mlp(32) | "
                "b=mlp(32)'."
            )
        found[name] = spec
    return found


def written(given: object, built: Mapping[str, Built]) -> str:
    """The models as a run's record has them."""
    if isinstance(given, str):
        return given
    if len(built) == 1:
        return next(iter(built.values())).name
    return " | ".join(f"{name}={each.name}" for name, each in built.items())


def check_init(built: Mapping[str, Built]) -> None:
    """Refuse weights to start from where there are several models."""
    if len(built) > 1:
        raise GlocalError(
            "init= has the weights of one model, and clients have different ones: leave it out."
        )


def task(
    built: Mapping[str, Built], assign: object, fed: Federation, how: Mapping[str, Any]
) -> Architectures:
    """The task of clients that have these models."""
    of_client = torch.tensor(assigned(assign, list(built), fed))
    modules = {name: each.module for name, each in built.items()}
    return packed(modules, of_client, how, {name: each.fresh for name, each in built.items()})


def assigned(assign: object, names: Sequence[str], fed: Federation) -> list[int]:
    """The number of each client's model.

    ``turns``: the first client has the first model, the next one the second, and so on, again and
    again. ``size``: clients in the order of their examples, cut into equal parts, so that those
    with fewest have the first model. Else, who has which: ``"ward*=small, north=large"``, or a
    mapping of the same; the first name or pattern that fits counts.
    """
    clients, count = len(fed), len(names)
    if assign == "turns":
        return [i % count for i in range(clients)]
    if assign == "size":
        splits = (fed.train, fed.val, fed.test)
        examples = sum(split.counts().cpu() for split in splits)  # in all folds the same
        place = torch.argsort(torch.argsort(torch.as_tensor(examples), stable=True))
        return [int(p) * count // clients for p in place]
    rules = _rules(assign)
    for model in rules.values():
        if model not in names:
            raise unknown("model", str(model), names)
    numbers = []
    for client in fed.names:
        fitting = [m for rule, m in rules.items() if fnmatch.fnmatchcase(str(client), rule)]
        if not fitting:
            raise GlocalError(
                f"assign says of no model that client {client} has it: add it, as in '{client}="
                f"{names[0]}', or '*={names[0]}' for all others."
            )
        numbers.append(names.index(fitting[0]))
    return numbers


def _rules(assign: object) -> dict[str, str]:
    if isinstance(assign, Mapping):
        return {str(rule): model for rule, model in assign.items()}
    rules: dict[str, str] = {}
    for part in str(assign).split(","):
        rule, equals, model = (piece.strip() for piece in part.partition("="))
        if not (rule and equals and model):
            raise GlocalError(
                f"assign={shown(assign)} does not say who has which model: write turns, size, or "
                "'ward*=small, *=large'."
            )
        rules[rule] = model
    return rules


@dataclass(frozen=True)
class ClientArchitectures:
    """Who has which architecture, and what it is: for models in use and in files."""

    task: Architectures
    given: Mapping[str, Any]
    """What was given for each model: its name and settings, or an object."""

    @classmethod
    def of(cls, task: Task, model: object, fed: Federation) -> ClientArchitectures | None:
        """None where all clients have the same."""
        if not isinstance(task, Architectures):
            return None
        given = {
            name: models.completed(each, fed.vocabulary)
            if isinstance(each, str) and not is_own(each)
            else each
            for name, each in models_of(model).items()
        }
        return cls(task, given)

    def part(self, client: int) -> Packed:
        """The task of a client, by its number."""
        return self.task.parts[int(self.task.of_client[client])]

    def weights(self, params: Params, client: int) -> Params:
        """The parameters of a client's module."""
        return self.part(client).layout.unpack(params)

    def described(self, about: Description, client: int) -> Description:
        """What a client's model is."""
        part = self.part(client)
        return replace(about, **self._about(part))

    def _about(self, part: Packed) -> dict[str, Any]:
        given = self.given[part.name]
        own = is_own(given) or not isinstance(given, str)
        text = given if isinstance(given, str) else f"{part.name}, given in Python"
        return {"architecture": text, "own": own}

    def to_json(self) -> dict[str, Any]:
        """Who has which, and how its parameters are packed."""
        each = [
            {"name": part.name, **self._about(part), **part.layout.to_json()}
            for part in self.task.parts
        ]
        return {"models": each, "of_client": self.task.of_client.tolist()}

    def figures(self, trained: Trained | None) -> dict[str, Any]:
        """Of each model: its clients, its parameters, and how many are shared in the end."""
        shared: frozenset[str] = frozenset()  # clients alone share nothing
        if trained is not None:
            shared = trained.training.method(trained.progress).shared_names(self.task)
        count = self.task.of_client.bincount(minlength=len(self.task.parts)).tolist()
        ours = sum(self.task.params[name].numel() for name in shared)
        each = [
            {"model": p.name, "clients": n, "parameters": p.parameters, "shared": ours}
            for p, n in zip(self.task.parts, count, strict=True)
        ]
        return {"models": each, "parameters": max(m["parameters"] for m in each)}


def check(task: Task, plan: Plan, wanted: Sequence[Technique]) -> None:
    """Refuse what needs the same layers of all clients, where these have different models."""
    if not isinstance(task, Architectures):
        return
    why = "needs the same layers of all clients, and they have different models"
    for technique in wanted:
        if technique.name not in ADAPTATIONS:
            raise GlocalError(f"{technique.name} {why}: use {' or '.join(ADAPTATIONS)}.")
    for method in (stage.method for stage in plan.stages):
        if method.auxiliary is not None:
            raise GlocalError(f"{method.auxiliary.name} {why}: leave it out.")
        if method.server is not None:
            raise GlocalError(
                f"{method.server.name} evaluates with one model what its server makes, and clients "
                "have different ones: give all clients one."
            )
