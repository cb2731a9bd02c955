"""Gradients that are products of matrices, added to the weights in place.

A step of gradient descent on the weights of a layer is ``w + rate * (a @ b)``. A compiler makes the
product, puts it into memory, and goes over weights and product once more. The library that
multiplies can add as it goes: on a CPU, where a client's weights fill a core's cache, the second
pass is a third of a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

aten = torch.ops.aten

VIEWS = (aten.view.default, aten._unsafe_view.default, aten.expand.default)
"""Operations that leave a tensor as it is, where its shape stays."""


def fuse_updates(
    graph: Graph, min_size: int, faster: Callable[[Tensor, Tensor], bool] | None = None
) -> None:
    """Rewrite each ``w.copy_(where(live, w + rate * (a @ b), w))`` of a traced step.

    That is done only where nothing else reads the product, and where it takes more than
    ``min_size`` multiplications for a client: smaller ones are better off inside other kernels.
    Products of which ``faster`` is true are left to another library, which does not add.
    """
    for copy in graph.find_nodes(op="call_function", target=aten.copy_.default):
        update = _Update.matched(copy)
        if update is None or update.size <= min_size:
            continue
        if faster is None or not faster(update.a.meta["val"], update.b.meta["val"]):
            update.fuse(graph, copy)
            graph.erase_node(copy)
    graph.eliminate_dead_code()


@dataclass(frozen=True)
class _Update:
    chosen: Node
    """The ``where``: the sum, or the weights as they were."""
    weights: Node
    live: Node
    """Which clients still train."""
    rate: Node | float
    a: Node
    b: Node
    transposed: bool
    """Whether it is the product's transpose that is added."""

    @classmethod
    def matched(cls, copy: Any) -> _Update | None:
        """The update that a ``copy_`` writes, where it is such a step."""
        weights, chosen = copy.args
        if not _read_once(chosen, aten.where.self) or chosen.args[2] is not weights:
            return None
        live, moved, _ = chosen.args
        rate: Any
        if _read_once(moved, aten.addcmul.default) and not moved.kwargs:
            start, product, rate = moved.args
            if _shape(rate):
                return None
        elif _read_once(moved, aten.add.Tensor):
            (start, product), rate = moved.args, moved.kwargs.get("alpha", 1)
        else:
            return None
        if start is not weights or _shape(live)[1:] != (1, 1) or _shape(product) != _shape(weights):
            return None
        factors = _factors(product)
        return cls(chosen, weights, live, rate, *factors) if factors else None

    @property
    def size(self) -> int:
        """Multiplications for a client."""
        return math.prod(_shape(self.a)[1:]) * _shape(self.b)[2]

    def fuse(self, graph: Graph, copy: Node) -> None:
        """Add the product to the weights where the ``copy_`` was."""

        def call(operation: Any, *args: Any) -> Node:
            return graph.call_function(operation, args)

        # Where the sum was, not where it is written: a factor may be a view of other weights, which
        # are written before these.
        with graph.inserting_before(self.chosen):
            # A finished client adds nothing: zero times zero, whatever its batch was.
            scaled = call(aten.mul.Tensor, self.a, self.rate)
            a = call(aten.where.ScalarOther, self.live, scaled, 0.0)
            b = call(aten.where.ScalarOther, self.live, self.b, 0.0)
            if self.transposed:
                a, b = (call(aten.transpose.int, factor, 1, 2) for factor in (b, a))
        with graph.inserting_before(copy):
            call(_operation(), self.weights, a, b)


def _factors(product: Any) -> tuple[Node, Node, bool] | None:
    """``a`` and ``b``, where this is a view of ``a @ b``, and whether it is transposed."""
    transposed = False
    while _read_once(product):
        if product.target is aten.bmm.default:
            return (*product.args, transposed)
        inner, *rest = product.args
        if product.target is aten.transpose.int and {d % 3 for d in rest} == {1, 2}:
            transposed = not transposed
        elif product.target not in VIEWS or _shape(inner) != _shape(product):
            return None
        product = inner
    return None


def _read_once(node: Any, target: Any = None) -> bool:
    """Whether it is (such) an operation that one other reads."""
    operation = isinstance(node, Node) and node.op == "call_function" and len(node.users) == 1
    return operation and target in (None, node.target)


def _shape(node: Node | float) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape) if isinstance(node, Node) else ()


@cache
def _operation() -> Any:
    """``w += a @ b`` for each client, as an operation that the compiler knows to change ``w``."""

    @torch.library.custom_op("glocal::add_product", mutates_args=("weights",))
    def add_product(weights: Tensor, a: Tensor, b: Tensor) -> None:
        weights.baddbmm_(a, b)

    @add_product.register_fake
    def _(weights: Tensor, a: Tensor, b: Tensor) -> None:
        return None

    operation = torch.ops.glocal.add_product.default
    _teach(operation)
    return operation


def _teach(operation: Any) -> None:
    """How TorchInductor calls it: the library at once, not through Python."""
    from torch._inductor import ir
    from torch._inductor.lowering import register_lowering
    from torch._inductor.virtualized import V

    class AddProduct(ir.ExternKernel):
        def __init__(self, *inputs: Any) -> None:
            parts = self.unwrap_storage([self.realize_input(x) for x in inputs])
            super().__init__(None, ir.NoneLayout(device=inputs[0].get_device()), parts)
            V.graph.mark_buffer_mutated(self.input_name(0))
            self.name = V.graph.register_buffer(self)
            V.graph.register_operation(self)

        def codegen(self, wrapper: Any) -> None:
            inputs: Any = self.inputs
            w, a, b = (x.codegen_reference() for x in inputs)
            if V.graph.cpp_wrapper:
                wrapper.add_device_include("cpu")
                call = f"aoti_torch_cpu_baddbmm_out({w}, {w}, {a}, {b}, 1.0, 1.0)"
                wrapper.writeline(f"AOTI_TORCH_ERROR_CODE_CHECK({call});")
            else:
                wrapper.writeline(f"{w}.baddbmm_({a}, {b})")

        def should_allocate(self) -> bool:
            return False

        def get_mutation_names(self) -> list[str]:
            return [self.input_name(0)]

        def get_unbacked_symbol_defs(self) -> Any:
            return type(super().get_unbacked_symbol_defs())()

    @register_lowering(operation, type_promotion_kind=None)
    def _(weights: Any, a: Any, b: Any) -> None:
        AddProduct(weights, a, b)
