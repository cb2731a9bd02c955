"""What comes behind a product of few rows is computed by the product's own program.

A dense layer is a product, a bias and a rectifier; its gradient is a product, and 0 where the
rectifier had returned 0::

    h = relu(a @ b + bias)          dy = where(h <= 0, 0, da @ b.mT)

TorchInductor makes a kernel of what is around the operator (:mod:`.thin_products`), which at a few
clients takes as long to launch as to run. Where nothing else reads the product, the operator does
it before it writes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from glocal.engines.compiled.thin_products import OPERATOR as PRODUCT

aten = torch.ops.aten
VIEWS = (aten.view.default, aten.reshape.default, aten.unsqueeze.default, aten.expand.default)
ZEROS = {aten.full.default: 1, aten.scalar_tensor.default: 0}
"""Constants, and which of their arguments has the value."""


def fuse_epilogues(lowered: GraphModule) -> int:
    """Rewrite a graph that is about to be compiled, where it can be; in how many places."""
    fused = 0
    for node in list(lowered.graph.nodes):
        if node.op != "call_function":
            continue
        found = _rectified(node) or _masked(node)
        if found is None:
            continue
        product, *epilogue = found
        if _layout(product) != _layout(node):
            continue
        with lowered.graph.inserting_before(node):
            args = (*product.args[:3], *epilogue)
            one = lowered.graph.call_function(PRODUCT, args)
        one.meta = {"val": product.meta["val"]}
        node.replace_all_uses_with(one)
        _erase(node)
        fused += 1
    if fused:
        lowered.recompile()
    return fused


def _rectified(node: Node) -> tuple[Any, ...] | None:
    """``relu(product)`` or ``relu(bias + product)``: the product, and its further arguments."""
    if node.target is not aten.relu.default:
        return None
    of: Any = node.args[0]
    if _is_read_by(node, of):
        return of, None, True, None
    if of.target is not aten.add.Tensor or len(of.users) != 1 or of.kwargs:
        return None
    for bias, product in (of.args, of.args[::-1]):
        if _is_read_by(of, product) and (added := _bias(bias, product)) is not None:
            return product, added, True, None
    return None


def _masked(node: Node) -> tuple[Any, ...] | None:
    """``where(h <= 0, 0, product)``: the product, and its further arguments."""
    if node.target is not aten.where.self:
        return None
    of: Any = node.args
    negative, zero, product = of
    if not (isinstance(negative, Node) and isinstance(zero, Node)):
        return None
    if not _is_read_by(node, product) or negative.target is not aten.le.Scalar:
        return None
    if zero.target not in ZEROS or zero.args[ZEROS[zero.target]] != 0 or negative.args[1] != 0:
        return None
    h: Any = negative.args[0]
    same = _layout(h) == _layout(product)
    return (product, None, False, h) if same else None


def _is_read_by(reader: Node, of: Any) -> bool:
    """Whether it is a product without an epilogue that nothing else reads."""
    if not isinstance(of, Node) or of.target is not PRODUCT or of.kwargs:
        return False
    return len(of.args) == 3 and list(of.users) == [reader]


def _bias(added: Any, product: Node) -> Node | None:
    """What is added to all rows of a product, [clients or 1, 1, columns]."""
    while isinstance(added, Node) and added.target is aten.expand.default:
        added = added.args[0]
    if not isinstance(added, Node):
        return None
    (clients, _, columns), dtype = product.meta["val"].shape, product.meta["val"].dtype
    val = added.meta["val"]
    if val.dtype != dtype or tuple(val.shape) not in ((clients, 1, columns), (1, 1, columns)):
        return None
    _without_factor(added)
    return added


def _without_factor(bias: Node) -> None:
    """``1 · bias``, as a decomposition has it, would be written to memory for the operator.

    Who else reads it may want what it was before the bias is written to.
    """
    of: Any = bias
    while of.target in VIEWS and len(of.users) == 1:
        of = of.args[0]
    scaled = of.target in (aten.mul.Scalar, aten.mul.Tensor) and len(of.users) == 1
    if scaled and of.args[1] == 1 and _layout(of) == _layout(of.args[0]):
        of.replace_all_uses_with(of.args[0])
        of.graph.erase_node(of)


def _layout(node: Node) -> tuple[Any, ...]:
    val = node.meta["val"]
    return val.shape, val.stride(), val.dtype


def _erase(node: Node) -> None:
    """An operation that nothing reads any more, and what was there for it alone."""
    inputs = node.all_input_nodes
    node.graph.erase_node(node)
    for of in inputs:
        if of.op == "call_function" and not of.users:
            _erase(of)
