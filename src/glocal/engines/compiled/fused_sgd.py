"""Gradients that are products of matrices, added to the weights where they lie.

A step of gradient descent on the weights of a layer is ``w + rate * (a @ b)``. A compiler makes the
product, puts it into memory, and goes over weights and product once more. The library that
multiplies can add as it goes: on a CPU, where a client's weights fill a core's cache, the second
pass is a third of a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

aten = torch.ops.aten

SAME = (aten.view.default, aten._unsafe_view.default, aten.expand.default)
"""What leaves a tensor as it is, where its shape stays."""


def add_in_place(graph: Graph, least: int) -> None:
    """Rewrites each ``w.copy_(where(live, w + rate * (a @ b), w))`` of a traced step.

    Only where nothing else looks at the product, and where it takes more than ``least``
    multiplications for a client: smaller ones are better off inside of other kernels.
    """
    for end in graph.find_nodes(op="call_function", target=aten.copy_.default):
        found = _Found.at(end)
        if found is not None and found.size > least:
            found.add(graph, end)
            graph.erase_node(end)
    graph.eliminate_dead_code()


@dataclass(frozen=True)
class _Found:
    chosen: Node
    """The ``where``: the sum, or the weights as they were."""
    weights: Node
    live: Node
    """Who is still at work."""
    rate: Node | float
    a: Node
    b: Node
    turned: bool
    """Whether it is the product's transpose that is added."""

    @classmethod
    def at(cls, end: Any) -> _Found | None:
        """What a ``copy_`` is of, where it is such a step."""
        weights, chosen = end.args
        if not _alone(chosen, aten.where.self) or chosen.args[2] is not weights:
            return None
        live, moved, _ = chosen.args
        rate: Any
        if _alone(moved, aten.addcmul.default) and not moved.kwargs:
            start, product, rate = moved.args
            if _shape(rate):
                return None
        elif _alone(moved, aten.add.Tensor):
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

    def add(self, graph: Graph, end: Node) -> None:
        def call(operation: Any, *args: Any) -> Node:
            return graph.call_function(operation, args)

        # Where the sum was, not where it is written: a factor may be a view of other weights, which
        # are written before these.
        with graph.inserting_before(self.chosen):
            # Who is done adds nothing: zero times zero, whatever it saw.
            scaled = call(aten.mul.Tensor, self.a, self.rate)
            a = call(aten.where.ScalarOther, self.live, scaled, 0.0)
            b = call(aten.where.ScalarOther, self.live, self.b, 0.0)
            if self.turned:
                a, b = (call(aten.transpose.int, factor, 1, 2) for factor in (b, a))
        with graph.inserting_before(end):
            call(_operation(), self.weights, a, b)


def _factors(product: Any) -> tuple[Node, Node, bool] | None:
    """``a`` and ``b``, where this is ``a @ b`` however it is viewed, and whether it is turned."""
    turned = False
    while _alone(product):
        if product.target is aten.bmm.default:
            return (*product.args, turned)
        inner, *rest = product.args
        if product.target is aten.transpose.int and {d % 3 for d in rest} == {1, 2}:
            turned = not turned
        elif product.target not in SAME or _shape(inner) != _shape(product):
            return None
        product = inner
    return None


def _alone(node: Any, target: Any = None) -> bool:
    """Whether it is (such) an operation that one other looks at."""
    found = isinstance(node, Node) and node.op == "call_function" and len(node.users) == 1
    return found and target in (None, node.target)


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
