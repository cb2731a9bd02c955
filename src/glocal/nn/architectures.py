"""Clients with different architectures in one federation, which share the layers that are alike.

Engines, stores and files stack clients' parameters, so those of all clients must have the same
names and shapes. Parameters that all architectures have alike keep their names. The others of an
architecture are *packed*: they are one vector, ``own layers``, with zeros at its end so that it is
as long as that of the largest architecture. The zeros have no gradient. Each architecture is a
:class:`Packed` task, which unpacks that vector where its module is called; :class:`Architectures`
is the task of the whole federation, and :class:`glocal.engines.grouped.Grouped` its engine.

Private layers never leave their client, not even as they begin: a client builds its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.nn.task import Task

OWN = "own layers"
"""The name of the vector; no parameter of a module can be called so."""


@dataclass(frozen=True)
class Layout:
    """Which parameters of one architecture keep their names, and how the others are packed."""

    alike: tuple[str, ...]
    """Those that all architectures have, of the same shape, in the order of this one."""
    packed: Mapping[str, tuple[int, ...]]
    """The shapes of the others."""
    length: int
    """Of the vector: that of the architecture that packs most."""

    def pack(self, params: Params) -> Params:
        """A module's parameters as the federation has them."""
        some = next(iter(params.values()))
        vector = torch.zeros(self.length, dtype=some.dtype, device=some.device)
        if self.packed:
            flat = torch.cat([params[name].flatten() for name in self.packed])
            vector[: len(flat)] = flat
        return {OWN: vector, **{name: params[name] for name in self.alike}}

    def unpack(self, params: Params) -> Params:
        """The module's parameters again, and what else there is."""
        shapes = [torch.Size(shape) for shape in self.packed.values()]
        sizes = [shape.numel() for shape in shapes]
        pieces = torch.split(params[OWN], [*sizes, self.length - sum(sizes)])
        own = {name: p.view(s) for name, p, s in zip(self.packed, pieces[:-1], shapes, strict=True)}
        return {**{name: leaf for name, leaf in params.items() if name != OWN}, **own}

    def to_json(self) -> dict[str, Any]:
        """As text can hold it."""
        packed = {name: list(shape) for name, shape in self.packed.items()}
        return {"alike": list(self.alike), "packed": packed, "length": self.length}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Layout:
        """The inverse of :meth:`to_json`."""
        packed = {str(name): tuple(map(int, shape)) for name, shape in facts["packed"].items()}
        return cls(tuple(map(str, facts["alike"])), packed, int(facts["length"]))


def layouts(shapes: Sequence[Mapping[str, tuple[int, ...]]]) -> list[Layout]:
    """How architectures with parameters of these shapes are packed."""
    first, *others = shapes
    alike = {name for name, shape in first.items() if all(o.get(name) == shape for o in others)}
    packed = [{name: s for name, s in each.items() if name not in alike} for each in shapes]
    length = max(sum(torch.Size(s).numel() for s in each.values()) for each in packed)
    return [
        Layout(tuple(name for name in each if name in alike), own, length)
        for each, own in zip(shapes, packed, strict=True)
    ]


class Packed(Task):
    """The task of the clients that have one architecture."""

    def __init__(self, name: str, number: int, module: nn.Module, layout: Layout, **how: Any):
        self.name, self.number, self.layout = name, number, layout
        super().__init__(module, **how)
        self.names = [OWN, *layout.alike]

    def _bind(self) -> None:
        super()._bind()
        calls, unpack = (self._train_call, self._eval_call), self.layout.unpack
        self._train_call, self._eval_call = (_Unpacking(call, unpack) for call in calls)

    def _read(self, module: nn.Module) -> Params:
        return self.layout.pack(super()._read(module))

    @property
    def size(self) -> int:
        """The numbers that a client's model takes here, with the zeros at the end."""
        return self.parameters - self.packed + self.layout.length

    @property
    def packed(self) -> int:
        """How many parameters are packed."""
        return sum(torch.Size(shape).numel() for shape in self.layout.packed.values())

    @property
    def parameters(self) -> int:
        """The module's own, without zeros."""
        return sum(p.numel() for p in self.module.parameters() if p.requires_grad)


class _Unpacking:
    """A module as a function of packed parameters, and of the keys of its layers."""

    def __init__(self, call: Callable[..., Tensor], unpack: Callable[[Params], Params]) -> None:
        self.call, self.unpack = call, unpack

    def __call__(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        return self.call(self.unpack(tensors), x)


class Architectures(Task):
    """The task of clients with different architectures.

    It holds what the server has, which is no whole model, so nothing can be predicted with it:
    engines take the task of a client's architecture, :meth:`of_clients`.
    """

    def __init__(self, parts: Sequence[Packed], of_client: Tensor) -> None:
        first = parts[0]
        self.parts, self.of_client = tuple(parts), of_client.cpu()
        self.ids: Tensor | None = None
        super().__init__(
            first.module, losses=first.losses, target=first.target, metric=first.metric
        )
        self.augment, self.precision = first.augment, first.precision
        self.names = list(first.names)

    def _bind(self) -> None:
        self._train_call = self._eval_call = _no_model

    def _read(self, module: nn.Module) -> Params:
        read = self.parts[0]._read(module)
        return {**read, OWN: read[OWN][:0]}

    @property
    def size(self) -> int:
        """The numbers that a client's model takes, whichever it is."""
        return self.parts[0].size

    def init(self, key: Tensor) -> Params:
        """Nobody's initialisation: it is another for each architecture."""
        raise GlocalError("clients have different models here: initialise one of a client.")

    def plain(self) -> Architectures:
        """The same for one client at a time."""
        return self._of(super().plain(), Task.plain)

    def for_several(self) -> Architectures:
        """The same for several trainings at once."""
        return self._of(super().for_several(), Task.for_several)

    def to(self, device: torch.device | str | None) -> Architectures:
        """The same on another device."""
        return self._of(super().to(device), lambda part: part.to(device))

    def _of(self, other: Task, change: Callable[[Task], Task]) -> Architectures:
        changed: Any = other
        changed.parts = tuple(change(part) for part in self.parts)
        return cast(Architectures, changed)

    def numbers(self, ids: Tensor) -> Tensor:
        """[clients] the number of each one's architecture; repeats side by side have the same."""
        return self.of_client[ids.cpu() % len(self.of_client)]

    def of_clients(self, ids: Tensor) -> Task:
        """The task of these clients: that of their architecture, if they have the same."""
        numbers = self.numbers(ids)
        if bool((numbers == numbers[0]).all()):
            return self.parts[int(numbers[0])]
        other = copy.copy(self)
        other.ids = ids
        return other

    def largest(self) -> Task:
        """The task of the architecture with most parameters."""
        return max(self.parts, key=lambda part: part.parameters)

    def picked(self, pick: Callable[[list[str]], set[str]]) -> frozenset[str]:
        """The names that a rule picks in every architecture, which must be alike in all."""
        chosen: dict[str, set[str]] = {}
        for part in self.parts:
            try:
                chosen[part.name] = pick(part._trained)
            except GlocalError as error:
                raise GlocalError(f"of the model {part.name}: {error}") from error
        alike = set(self.names)
        for name in sorted(set().union(*chosen.values())):
            having = {part.name: self._shape(part, name) for part in self.parts}
            if name not in alike or not all(name in names for names in chosen.values()):
                raise GlocalError(_not_alike(name, having, chosen))
        return frozenset(next(iter(chosen.values())))

    def sent(self, names: set[str]) -> int:
        """The parameters of these names that all clients have together, without zeros."""
        others = [leaf.numel() for name, leaf in self.params.items() if name not in names]
        each = torch.tensor([part.parameters for part in self.parts])[self.of_client] - sum(others)
        packed = torch.tensor([part.packed for part in self.parts])[self.of_client]
        return int((each if OWN in names else each - packed).sum())

    @staticmethod
    def _shape(part: Packed, name: str) -> str:
        named = dict(part.module.named_parameters())
        return "×".join(map(str, named[name].shape)) if name in named else "not there"


def sent_by(task: Task, clients: int, names: set[str]) -> int:
    """The parameters of these names that so many clients (all that there are) have together."""
    if isinstance(task, Architectures):
        return task.sent(names)
    return clients * sum(leaf.numel() for name, leaf in task.params.items() if name in names)


def parts(task: Task) -> Sequence[Task]:
    """The task of each architecture; of one for all clients, that one."""
    return task.parts if isinstance(task, Architectures) else (task,)


def _not_alike(name: str, having: Mapping[str, str], chosen: Mapping[str, set[str]]) -> str:
    """Why a parameter cannot be shared, and what to do."""
    if len(set(having.values())) > 1:
        why = "is " + " and ".join(f"{shape} in {model}" for model, shape in having.items())
    else:
        others = [model for model, names in chosen.items() if name not in names]
        why = f"would be shared by clients with one model, and not by those with {others[0]}"
    return (
        f"{name} {why}: clients with different models share only layers that are alike in all of "
        "them, from the first round on; name these, as in lg-fedavg(shared=head, warmup=0)."
    )


def _no_model(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
    raise GlocalError(
        "clients have different models here, and this needs the same model of all: leave it out, "
        "or give all clients one model."
    )


def packed(
    modules: Mapping[str, nn.Module],
    of_client: Tensor,
    how: Mapping[str, Any],
    fresh: Mapping[str, Callable[[], nn.Module] | None],
) -> Architectures:
    """The task of clients of which each has the module of its number."""
    shapes = [
        {n: tuple(p.shape) for n, p in module.named_parameters() if p.requires_grad}
        for module in modules.values()
    ]
    parts = [
        Packed(name, number, module, layout, fresh=fresh[name], **how)
        for number, ((name, module), layout) in enumerate(
            zip(modules.items(), layouts(shapes), strict=True)
        )
    ]
    return Architectures(parts, of_client)
