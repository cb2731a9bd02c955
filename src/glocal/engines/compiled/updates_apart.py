"""On a GPU, what comes after the last product of a step is a program of its own.

Layers wait for each other, forward and backward; what becomes of weights, biases and momenta then
does not. TorchInductor launches operations that do not wait for each other as one, but only where
they stand at the same depth of a program: cut off behind the last product of matrices, all updates
stand at its beginning. Launches are what keeps steps of few clients from a card's speed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

aten = torch.ops.aten

VIEWS = {
    *(aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.expand.default),
    *(aten.permute.default, aten.transpose.int, aten.t.default, aten.squeeze.dim),
    *(aten.squeeze.dims, aten.unsqueeze.default),
}
"""Operations whose result is their input, looked at in another way."""

CONSTANTS = {aten.full.default, aten.scalar_tensor.default}
"""Operations without inputs, which are made where they are read."""


def compiled_apart(
    compile_one: Callable[..., Any], whole: GraphModule, given: Sequence[Any], **options: Any
) -> Any:
    """Both halves, each compiled like a whole, as one program; None: there is nothing to divide."""
    halves = divided(whole)
    if halves is None:
        return None
    first, second = halves
    between = [node.meta["val"] for node in second.graph.nodes if node.op == "placeholder"]
    between = between[len(given) :]
    products = compile_one(first, given, **options)
    _forget_output_strides()
    updates = compile_one(second, [*given, *between], **options)

    def in_turn(inputs: list[Tensor]) -> tuple[()]:
        # Each takes a list of its own, and empties it.
        updates.current_callable([*inputs, *products.current_callable([*inputs])])
        return ()

    program: Any = in_turn
    program.current_callable, program._boxed_call = in_turn, True
    return program


def _forget_output_strides() -> None:
    """A trace has one program, of whose output TorchInductor notes the strides, once."""
    from torch._guards import TracingContext

    noted = getattr(TracingContext.try_get(), "output_strides", None)
    if noted:
        noted.clear()


def divided(whole: GraphModule) -> tuple[GraphModule, GraphModule] | None:
    """All that products of matrices wait for, and the rest; None: there is nothing to divide.

    Both take all inputs. The first returns what the second takes beside these.
    """
    nodes = list(whole.graph.nodes)
    first = _waited_for([node for node in nodes if _is_product(node)])
    rest = [n for n in nodes if n.op == "call_function" and n not in first]
    if not first or any(n.target is aten.copy_.default for n in first):
        return None
    if any(n.op not in ("placeholder", "call_function", "output") for n in nodes):
        return None
    crossing: dict[Node, None] = {}
    second = Graph()
    seen: dict[Node, Node] = {}
    for node in nodes:
        if node.op == "placeholder":
            seen[node] = second.node_copy(node, lambda n: n)
    last = seen[[n for n in nodes if n.op == "placeholder"][-1]]

    def received(node: Node) -> Node:
        nonlocal last
        if node not in seen:
            if node in first and not _is_view(node) and node.target not in CONSTANTS:
                crossing[node] = None
                with second.inserting_after(last):
                    last = seen[node] = second.placeholder(f"crossing_{len(crossing)}")
                last.meta = dict(node.meta)
            else:
                seen[node] = second.node_copy(node, received)
        return seen[node]

    for node in rest:
        received(node)
    given = nodes[-1].args[0]
    if isinstance(given, (tuple, list)) and not given:
        second.output(())
    else:  # a step changes its inputs, and returns nothing
        return None
    if not all(isinstance(node.meta.get("val"), Tensor) for node in crossing):
        return None
    return _of_first(whole, first, list(crossing)), GraphModule(whole, second)


def _of_first(whole: GraphModule, first: set[Node], returned: list[Node]) -> GraphModule:
    graph = Graph()
    seen: dict[Node, Node] = {}
    for node in whole.graph.nodes:
        if node.op == "placeholder" or node in first:
            seen[node] = graph.node_copy(node, lambda n: seen[n])
    output = graph.output(tuple(seen[node] for node in returned))
    # The second is made for the strides that these have now.
    output.meta["user_visible_output_idxs"] = list(range(len(returned)))
    return GraphModule(whole, graph)


def _is_view(node: Any) -> bool:
    """Whether its result may lie where its input does, which the second half may write to."""
    if node.target is operator.getitem:  # one of several
        return _is_view(node.args[0])
    schema = getattr(node.target, "_schema", None)
    returned = schema.returns if schema is not None else ()
    return node.target in VIEWS or any(each.alias_info is not None for each in returned)


def _is_product(node: Node) -> bool:
    return node.op == "call_function" and (
        node.target in (aten.bmm.default, aten.mm.default, aten.baddbmm.default, aten.addmm.default)
        or "thin_product" in str(node.target)
    )


def _waited_for(nodes: list[Node]) -> set[Node]:
    """These and all operations that they come from."""
    found: set[Node] = set()
    left: list[Any] = list(nodes)
    while left:
        node = left.pop()
        if node not in found and node.op == "call_function":
            found.add(node)
            left += node.all_input_nodes
    return found
