"""A step in two halves: together they do what it does, and the second has no products."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from glocal.engines.compiled.updates_apart import compiled_apart, divided

aten = torch.ops.aten


def drawn() -> list[Tensor]:
    """Weights and momenta of three clients, examples, and what no step reads."""
    make = torch.Generator().manual_seed(0)
    shapes = [(3, 6, 5), (3, 6, 5), (3, 4, 5), (2,)]
    return [torch.randn(shape, generator=make) for shape in shapes]


def step(w: Tensor, m: Tensor, x: Tensor, unread: Tensor) -> tuple[()]:
    two = torch.full((), 2.0)
    half = w[:, :3]  # a view of what the second half writes to
    y = torch.bmm(x, half.mT).relu() * two
    dx = torch.bmm(y, w[:, 3:])
    gradient = (y.tile(1, 1, 2).unsqueeze(-1) * dx.unsqueeze(2)).sum(1)
    moved = 0.9 * m + gradient.sin() * two
    w_after = w - 0.1 * moved - 0.01 * w[:, 3:].tile(1, 2, 1) * half.tile(1, 2, 1)
    m.copy_(moved)
    w.copy_(w_after)
    return ()


def with_chunks(w: Tensor, m: Tensor, x: Tensor, unread: Tensor) -> tuple[()]:
    half, other = w.chunk(2, 1)
    y = torch.bmm(x, half.mT).relu()
    gradient = torch.bmm(y.mT, x)
    after = w - 0.1 * torch.cat([gradient, gradient], 1)
    moved = m + 0.5 * half.tile(1, 2, 1) + other.tile(1, 2, 1) * after.square().sum((1, 2), True)
    w.copy_(after)
    m.copy_(moved)
    return ()


def traced(function: Callable[..., Any]) -> GraphModule:
    return make_fx(function, tracing_mode="fake")(*drawn())


def targets(graph: GraphModule) -> set[Any]:
    return {node.target for node in graph.graph.nodes}


@pytest.mark.parametrize("step", [step, with_chunks])
def test_both_halves_do_what_the_step_does(step: Callable[..., Any]) -> None:
    halves = divided(traced(step))
    assert halves is not None
    first, second = halves
    assert aten.copy_.default not in targets(first)
    assert aten.bmm.default not in targets(second)
    whole, parts = drawn(), drawn()
    step(*whole)
    between = first(*parts)
    torch.testing.assert_close(parts, drawn(), rtol=0, atol=0)
    second(*parts, *between)
    torch.testing.assert_close(parts, whole)
    assert not torch.equal(parts[0], drawn()[0])


@pytest.mark.parametrize("step", [step, with_chunks])
def test_nothing_between_the_halves_lies_in_an_input(step: Callable[..., Any]) -> None:
    """TorchInductor takes each input for memory of its own, and may write to it at any time."""
    halves = divided(traced(step))
    assert halves is not None
    given = drawn()
    places = {t.untyped_storage().data_ptr() for t in given}
    between = halves[0](*given)
    assert not places & {t.untyped_storage().data_ptr() for t in between}
    assert all(t.dim() for t in between)  # constants are made where they are read
    output = list(halves[0].graph.nodes)[-1]
    assert output.meta["user_visible_output_idxs"] == list(range(len(between)))


def no_product(w: Tensor, m: Tensor, x: Tensor, unread: Tensor) -> tuple[()]:
    w.copy_(w + m)
    return ()


def written_before_a_product(w: Tensor, m: Tensor, x: Tensor, unread: Tensor) -> tuple[()]:
    w.copy_(w + m)
    m.copy_(torch.bmm(torch.bmm(w, x.mT), x))
    return ()


def with_a_result(w: Tensor, m: Tensor, x: Tensor, unread: Tensor) -> Tensor:
    m.copy_(torch.bmm(torch.bmm(w, x.mT), x) + 1)
    return m + 1


@pytest.mark.parametrize(
    "function",
    [no_product, with_a_result, written_before_a_product],
)
def test_what_cannot_be_divided(function: Callable[..., Any]) -> None:
    assert divided(traced(function)) is None


def test_what_is_no_tensor_stays_whole() -> None:
    graph = traced(step)
    for product in graph.graph.find_nodes(op="call_function", target=aten.bmm.default):
        product.meta["val"] = 1
    assert divided(graph) is None


def test_a_graph_that_holds_tensors_stays_whole() -> None:
    graph = traced(step)
    graph.register_buffer("held", torch.zeros(()))
    with graph.graph.inserting_before(next(iter(graph.graph.nodes))):
        graph.graph.get_attr("held")
    assert divided(graph) is None


def test_the_callers_list_stays_and_all_inputs_are_given() -> None:
    asked: list[tuple[int, dict[str, Any]]] = []

    def compile_one(graph: GraphModule, given: list[Tensor], **options: Any) -> Any:
        asked.append((len(given), options))
        assert len(given) == len(graph.graph.find_nodes(op="placeholder"))

        def call(inputs: list[Tensor]) -> Any:  # it empties the list, as TorchInductor's do
            tensors = list(inputs)
            inputs.clear()
            return graph(*tensors)

        return SimpleNamespace(current_callable=call)

    whole, parts = drawn(), drawn()
    program = compiled_apart(compile_one, traced(step), parts, is_inference=True)
    same = list(parts)
    for _ in range(2):
        assert program.current_callable(parts) == ()
        step(*whole)
    assert all(a is b for a, b in zip(parts, same, strict=True))
    torch.testing.assert_close(parts, whole)
    assert [options for _, options in asked] == [{"is_inference": True}] * 2
    assert compiled_apart(compile_one, traced(no_product), parts) is None
