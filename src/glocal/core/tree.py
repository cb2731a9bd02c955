"""Functions over trees: nested dicts with tensors at the leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from glocal.core.types import Params, Tree


def map(f: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:  # noqa: A001
    """Apply ``f`` to the leaves of trees of the same structure."""
    return {
        k: map(f, v, *(r[k] for r in rest)) if isinstance(v, dict) else f(v, *(r[k] for r in rest))
        for k, v in tree.items()
    }


def leaves(tree: Tree) -> list[Tensor]:
    """The leaves, in the order of insertion."""
    return [leaf for _, leaf in flatten(tree)]


def flatten(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """``("a/b", leaf)`` for every leaf: names for files and messages."""
    for k, v in tree.items():
        if isinstance(v, dict):
            yield from flatten(v, f"{prefix}{k}/")
        else:
            yield f"{prefix}{k}", v


def unflatten(flat: dict[str, Tensor], like: Tree | None = None) -> Tree:
    """The inverse of :func:`flatten`; empty subtrees are kept where ``like`` has them."""
    tree: Tree = {} if like is None else _branches(like)
    for name, leaf in flat.items():
        *path, last = name.split("/")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = leaf
    return tree


def _branches(tree: Tree) -> Tree:
    """The tree without its leaves."""
    return {k: _branches(v) for k, v in tree.items() if isinstance(v, dict)}


def structure(tree: Tree) -> Any:
    """The names, shapes and dtypes of a tree: equal for trees that are interchangeable."""
    return {
        k: structure(v) if isinstance(v, dict) else (tuple(v.shape), v.dtype)
        for k, v in tree.items()
    }


def stack(trees: Sequence[Tree]) -> Tree:
    """Stack trees into one whose leaves have a new first dimension."""
    return map(lambda *xs: torch.stack(xs), trees[0], *trees[1:])


def row(tree: Tree, i: Any) -> Tree:
    """Entry, slice or selection ``i`` of the first dimension of every leaf."""
    return map(lambda x: x[i], tree)


def cat(trees: Sequence[Tree]) -> Tree:
    """Concatenate trees along the first dimension."""
    return map(lambda *xs: torch.cat(xs), trees[0], *trees[1:])


def to(tree: Tree, device: torch.device | str) -> Tree:
    """The tree on another device."""
    return map(lambda x: x.to(device), tree)


def where(condition: Tensor, yes: Tree, no: Tree) -> Tree:
    """Leaf by leaf ``torch.where``; ``condition`` has one entry for each of the first dimension."""

    def pick(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(condition.view(-1, *(1,) * (a.dim() - 1)), a, b)

    return map(pick, yes, no)


def add(a: Params, b: Params, scale: float | Tensor = 1.0) -> Params:
    """``a + scale · b``."""
    return map(lambda x, y: x + scale * y, a, b)


def sub(a: Params, b: Params) -> Params:
    """``a − b``."""
    return map(torch.sub, a, b)


def zeros(tree: Tree) -> Tree:
    """Zeros of the same structure."""
    return map(torch.zeros_like, tree)


def dot(a: Params, b: Params) -> Tensor:
    """``⟨a, b⟩`` over all leaves as one vector."""
    products = dict(flatten(map(lambda x, y: (x * y).sum(), a, b)))
    # In the order of names: a tree that was saved and loaded may have another order and rounding.
    terms = [products[name] for name in sorted(products)]
    return torch.stack(terms).sum() if terms else torch.zeros(())


def sq_norm(a: Params) -> Tensor:
    """``‖a‖²`` over all leaves as one vector."""
    return dot(a, a)


def row_sq_norms(
    stacked: Params,
    like: Tensor,
    centre: Params | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """``‖a_i − centre‖²`` of each entry of the first dimension, over all leaves as one vector.

    ``like`` has one number for each entry.
    """
    total = torch.zeros_like(like, dtype=dtype)
    # In the order of names, so that a tree that was saved and loaded adds up the same.
    for name, x in sorted(flatten(stacked)):
        apart = x.to(dtype) if centre is None else x.to(dtype) - centre[name]
        total = total + apart.reshape(len(x), -1).square().sum(1)
    return total


def norm(a: Params) -> Tensor:
    """``‖a‖`` over all leaves as one vector; it cannot be vmapped."""
    if not a:
        return torch.zeros(())
    named = dict(flatten(a))
    each = torch._foreach_norm([named[name] for name in sorted(named)])
    total: Tensor = torch.linalg.vector_norm(torch.stack(list(each)))
    return total


def count(tree: Tree) -> int:
    """The number of elements of all leaves."""
    return sum(x.numel() for x in leaves(tree))
