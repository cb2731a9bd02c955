"""Which named parameters are shared, and how the rest is kept private.

A selector picks names from a model's parameters. :func:`keep_private` wraps any ``Local`` so that
what is not selected lives in the client's state: the wrapped ``Local`` still sees whole models.
Liang et al., *Think locally, act globally: federated learning with local and global
representations*, 2020, and FedPer (Arivazhagan et al., 2019) are this with different selectors.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree
from glocal.nn.task import Task
from glocal.slots.client import Local, Step


@dataclass(frozen=True)
class Selector:
    """``pick(names)`` gives the names that are shared."""

    name: str
    pick: Callable[[Sequence[str]], set[str]]


def layers(names: Sequence[str]) -> dict[str, list[str]]:
    """Parameter names by layer (the module they belong to), in the model's order."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return groups


def everything() -> Selector:
    """All parameters are shared: one global model."""
    return Selector("everything", lambda names: set(names))


def nothing() -> Selector:
    """No parameter is shared."""
    return Selector("nothing", lambda names: set())


def last(n: int) -> Selector:
    """The last ``n`` layers that have parameters."""
    return _some(f"last({n})", n, lambda groups: groups[-n:])


def first(n: int) -> Selector:
    """The first ``n`` layers that have parameters."""
    return _some(f"first({n})", n, lambda groups: groups[:n])


def all_but_last(n: int = 1) -> Selector:
    """All but the last ``n`` layers: FedPer's and FedRep's body."""
    return _some(f"all-but-last({n})", n, lambda groups: groups[:-n], left=1)


def _some(
    name: str, n: int, cut: Callable[[list[list[str]]], list[list[str]]], left: int = 0
) -> Selector:
    """``n`` layers, from 1 to all but those that must be ``left``."""
    if isinstance(n, bool) or not isinstance(n, int):
        raise GlocalError(f"shared={name} must have an integer number of layers, as in last(2).")

    def pick(names: Sequence[str]) -> set[str]:
        groups = list(layers(names).values())
        most = len(groups) - left
        if not 1 <= n <= most:
            known = f"{len(groups)} layer{'' if len(groups) == 1 else 's'}"
            remedy = f"choose a number between 1 and {most}"
            if most < 2:
                one = f"{name.partition('(')[0]}(1)"
                remedy = f"write shared={one if most else 'everything'}, or take a larger model"
            raise GlocalError(
                f"shared={name} does not fit a model with {known} ({', '.join(layers(names))}): "
                f"{remedy}."
            )
        return {n for group in cut(groups) for n in group}

    return Selector(name, pick)


def matching(*patterns: str) -> Selector:
    """Names or shell patterns: ``layers.2*``; a layer's name stands for all its parameters."""

    def pick(names: Sequence[str]) -> set[str]:
        chosen: set[str] = set()
        for pattern in patterns:
            hits = {
                n for n in names if fnmatch.fnmatchcase(n, pattern) or n.startswith(pattern + ".")
            }
            if not hits:
                raise GlocalError(
                    f"shared={pattern} matches none of the model's parameters: "
                    f"its layers are {', '.join(layers(names))}."
                )
            chosen |= hits
        return chosen

    return Selector("|".join(patterns), pick)


def keep_private(inner: Local, shared: frozenset[str]) -> Local:
    """``inner``, but only the ``shared`` names are communicated: the rest is in the client's state.

    The functions of ``inner`` still see whole models.
    """

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        return {"private": split(params, shared)[1], "inner": inner.init(task, params, key)}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        whole = assemble(task, down, client["private"])
        return {"private": client["private"], "inner": inner.start(task, whole, client["inner"])}

    def on_whole_models(step: Step) -> Step:
        def whole_step(
            task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor
        ) -> Carry:
            whole = assemble(task, down, carry["private"])
            return {**carry, "inner": step(task, whole, carry["inner"], batch, key)}

        return whole_step

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        whole = assemble(task, down, carry["private"])
        update, state, extra = inner.finish(task, whole, carry["inner"])
        private = {k: v + update[k] for k, v in carry["private"].items()}
        return split(update, shared)[0], {"private": private, "inner": state}, extra

    def received(task: Task, down: Downlink, client: ClientState) -> Params:
        whole = assemble(task, down, client["private"])
        return inner.received(task, whole, client["inner"])

    def candidates(task: Task, down: Downlink, client: ClientState) -> dict[str, Params]:
        whole = assemble(task, down, client["private"])
        models = inner.candidates(task, whole, client["inner"])
        # What is global to the wrapped client is a client's own model here.
        return {"assembled" if name == "global" else name: w for name, w in models.items()}

    return inner.replace(
        init=init,
        start=start,
        phases=tuple(p._replace(step=on_whole_models(p.step)) for p in inner.phases),
        finish=finish,
        received=received,
        candidates=candidates,
    )


def assemble(task: Task, down: Downlink, private: Params) -> Downlink:
    """The downlink with whole models in it, in the model's own order of names."""
    both = {**down["params"], **private}
    return {**down, "params": {k: both[k] for k in task.names}}


def split(params: Params, shared: frozenset[str] | set[str]) -> tuple[Params, Params]:
    """The shared and the private part of a model."""
    return (
        {k: v for k, v in params.items() if k in shared},
        {k: v for k, v in params.items() if k not in shared},
    )


def size_by_part(params: Params, shared: frozenset[str] | set[str]) -> tuple[int, int]:
    """How many parameters are shared, and how many private."""
    ours, theirs = split(params, shared)
    return tree.count(ours), tree.count(theirs)
