"""Comparing trees of tensors, with the name of the leaf where they differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.types import Tree


def clone(state: Tree) -> Tree:
    """A copy that shares no memory with the tree."""
    return tree.map(lambda x: x.detach().clone(), state)


def structure(state: Tree, skip: int = 1) -> dict[str, Any]:
    """Shape and type of every leaf, without the first ``skip`` dimensions."""
    return {k: (tuple(v.shape[skip:]), v.dtype) for k, v in tree.flatten(state)}


def assert_structure(rule: str, what: str, now: dict[str, Any], want: dict[str, Any]) -> None:
    """Refuse another structure: names first, then shapes and types."""
    for name in [*now, *want]:
        if name not in want:
            raise AssertionError(f"{rule}: {what} has {name!r}, which does not belong there.")
        if name not in now:
            raise AssertionError(f"{rule}: {what} lacks {name!r}.")
        if now[name] != want[name]:
            raise AssertionError(
                f"{rule}: {what}, {name!r}: {_in_words(now[name])} where it should be "
                f"{_in_words(want[name])}."
            )


def _in_words(form: tuple[tuple[int, ...], torch.dtype]) -> str:
    return f"{str(form[1]).removeprefix('torch.')}{list(form[0])}"


def assert_same(rule: str, what: str, a: Tree, b: Tree, tolerance: float = 0.0) -> None:
    """Refuse a difference, with the leaf where it is and how large it is."""
    assert_structure(rule, what, structure(a, 0), structure(b, 0))
    theirs = dict(tree.flatten(b))
    for name, x in tree.flatten(a):
        y = theirs[name]
        if torch.equal(x, y):
            continue
        gap = (x.double() - y.double()).abs().max().item()
        allowed = tolerance * max(1.0, y.double().abs().max().item())
        if not gap <= allowed:
            raise AssertionError(
                f"{rule}: {what}, {name!r} differs by {gap:.3g} (allowed: {allowed:.3g})."
            )


def same_bits(a: Tree, b: Tree) -> bool:
    """Whether two trees are equal to the last bit."""
    try:
        assert_same("", "", a, b)
    except AssertionError:
        return False
    return True


def nudged(stacked: Tensor, j: int) -> Tensor:
    """The same states, but client ``j``'s."""
    if not stacked.is_floating_point():
        return stacked
    moved = stacked.clone()
    moved[j] += 0.01
    return moved


def state_leaks(sent: Tree, kept: Tree) -> Iterator[tuple[str, str, int]]:
    """What was sent and is part of a client's state: its name, the state's name, whose state."""
    for name, a in tree.flatten(sent):
        flat = a.reshape(len(a), -1)
        # A single number or a constant (zeros, as many begin) can be equal by chance.
        telling = (flat != flat[:, :1]).any(1)
        for leaf, b in tree.flatten(kept):
            other = b.reshape(len(b), -1)
            if flat.shape[1] != other.shape[1]:
                continue
            equal = (flat.unsqueeze(1) == other.unsqueeze(0)).all(2) & telling.unsqueeze(1)
            for j in equal.any(0).nonzero().flatten().tolist():
                yield name, leaf, int(j)
