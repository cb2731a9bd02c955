"""Biases and rectifiers in a product's own program: the same numbers, and only where all fits."""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from glocal.engines.compiled import decompositions, inductor, thin_products
from glocal.engines.compiled.epilogues import PRODUCT, fuse_epilogues
from glocal.engines.compiled.thin_products import thin_product
from glocal.engines.compiled.updates_apart import compiled_apart

CLIENTS, ROWS, COLUMNS = 3, 4, 6
Function = Callable[[Tensor, Tensor, Tensor, Tensor], Any]


def drawn() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What comes in, weights (square), a bias, and another layer's output; a NaN in three."""
    make = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=make)

    a, w = normal(CLIENTS, ROWS, COLUMNS), normal(CLIENTS, COLUMNS, COLUMNS)
    bias, h = normal(CLIENTS, COLUMNS), normal(CLIENTS, ROWS, COLUMNS).relu()
    a[0, 1, 2] = bias[1, 2] = h[2, 1, 1] = torch.nan
    return a, w, bias, h


def zero() -> Tensor:
    return torch.full((), 0.0)


def layer(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return ((1 * bias).view(CLIENTS, 1, COLUMNS) + thin_product(a, w, True)).relu()


def shared(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return (thin_product(a, w, False) + bias[1].view(1, 1, COLUMNS)).relu()


def expanded(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return (bias.unsqueeze(1).expand(CLIENTS, ROWS, COLUMNS) + thin_product(a, w, False)).relu()


def without_bias(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return thin_product(a, w, False).relu()


def backward(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return torch.where(h <= 0, zero(), thin_product(a, w, False))


def both(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = layer(a, w, bias, h)
    again = layer(y, w, bias, h)
    return torch.where(y <= 0, zero(), thin_product(h, w, False)), y, again


def another_bias(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return (bias.unsqueeze(1) + layer(a, w, bias, h)).relu()


def products(graph: GraphModule) -> list[int]:
    """How many arguments each product has."""
    return [len(node.args) for node in graph.graph.nodes if node.target is PRODUCT]


@pytest.mark.parametrize(
    ("function", "places"),
    [(layer, 1), (shared, 1), (expanded, 1), (without_bias, 1), (backward, 1), (both, 3)],
)
def test_the_same_numbers_in_fewer_operations(function: Function, places: int) -> None:
    graph = make_fx(function, tracing_mode="fake")(*drawn())
    assert fuse_epilogues(graph) == places
    assert products(graph) == [6] * places
    left = {str(node.target) for node in graph.graph.nodes}
    assert not left & {f"aten.{op}" for op in ("relu.default", "add.Tensor", "where.self")}
    assert not left & {"aten.mul.Tensor", "aten.le.Scalar", "aten.full.default"}
    graph.graph.lint()
    found, exact = graph(*drawn()), function(*drawn())
    torch.testing.assert_close(found, exact, equal_nan=True)


def test_what_has_an_epilogue_gets_no_second() -> None:
    graph = make_fx(another_bias, tracing_mode="fake")(*drawn())
    assert [fuse_epilogues(graph) for _ in range(2)] == [1, 0]
    torch.testing.assert_close(graph(*drawn()), another_bias(*drawn()), equal_nan=True)


def read_twice(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    y = thin_product(a, w, True)
    return (bias.unsqueeze(1) + y).relu(), y


def sum_read_twice(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    y = bias.unsqueeze(1) + thin_product(a, w, True)
    return y.relu(), y.tanh()


def gradient_read_twice(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    y = thin_product(a, w, True)
    return torch.where(h <= 0, zero(), y), y


def of_each_row(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return (h + thin_product(a, w, True)).relu()


def of_a_number(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return (bias[:, :1].unsqueeze(1) + thin_product(a, w, True)).relu()


def scaled(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return torch.add(bias.unsqueeze(1), thin_product(a, w, True), alpha=2).relu()


def twice(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    y = thin_product(a, w, True)
    return (y + y).relu()


def not_zero(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return torch.where(h <= 0, torch.full((), 1.0), thin_product(a, w, True))


def other_threshold(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return torch.where(h <= 1, zero(), thin_product(a, w, True))


def other_comparison(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return torch.where(h < 0, zero(), thin_product(a, w, True))


def turned(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return torch.where(h <= 0, thin_product(a, w, True), zero())


def mask_of_a_row(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return torch.where(h[:, :1] <= 0, zero(), thin_product(a, w, True))


def in_half(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return (bias.bfloat16().unsqueeze(1) + thin_product(a, w, True)).relu()


def mask_turned(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return torch.where(h.mT.contiguous().mT <= 0, zero(), thin_product(a, w, True))


@pytest.mark.parametrize(
    "function",
    [
        *(in_half, mask_turned),
        *(read_twice, sum_read_twice, gradient_read_twice, of_each_row, of_a_number, scaled),
        *(twice, not_zero, other_threshold, other_comparison, turned, mask_of_a_row),
    ],
)
def test_what_does_not_fit_stays(function: Function) -> None:
    graph = make_fx(function, tracing_mode="fake")(*drawn())
    assert fuse_epilogues(graph) == 0
    assert products(graph) == [3]
    torch.testing.assert_close(graph(*drawn()), function(*drawn()), equal_nan=True)


def test_a_result_that_lies_otherwise_stays() -> None:
    graph = make_fx(without_bias, tracing_mode="fake")(*drawn())
    rectifier = next(n for n in graph.graph.nodes if n.target is torch.ops.aten.relu.default)
    val = rectifier.meta["val"]
    rectifier.meta["val"] = val.new_empty_strided(val.shape, val.mT.contiguous().mT.stride())
    assert fuse_epilogues(graph) == 0


def test_a_bias_is_what_it_was_for_whoever_reads_it_too() -> None:
    def step(a: Tensor, w: Tensor, bias: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        scaled = 1 * bias
        y = (scaled.unsqueeze(1) + thin_product(a, w, True)).relu()
        bias.copy_(bias + 1)
        return y, scaled + 0

    graph = make_fx(step, tracing_mode="fake")(*drawn())
    assert fuse_epilogues(graph) == 1
    torch.testing.assert_close(graph(*drawn()), step(*drawn()), equal_nan=True)


def loss(params: tuple[Tensor, ...], x: Tensor, y: Tensor) -> Tensor:
    w1, b1, w2, b2, w3 = params
    h = functional.linear(functional.linear(x, w1, b1).relu(), w2, b2).relu()
    return functional.cross_entropy(functional.linear(h, w3), y)


def step(*tensors: Tensor) -> None:
    params, (x, y) = tensors[:5], tensors[5:]
    gradients = vmap(grad(loss))(params, x, y)
    for w, dw in zip(params, gradients, strict=True):
        w.copy_(w - 0.1 * dw)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    "tricks",
    [
        inductor.Tricks(apart=True, epilogue=True),
        inductor.Tricks(apart=True),
        inductor.Tricks(epilogue=True),
    ],
)
def test_steps_compiled_as_for_a_gpu(
    tricks: inductor.Tricks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make = torch.Generator().manual_seed(0)
    shapes = [(24, 20), (24,), (24, 24), (24,), (5, 24)]
    params = [torch.randn(CLIENTS, *shape, generator=make) / 4 for shape in shapes]
    x = torch.randn(CLIENTS, 10, 20, generator=make)
    y = torch.randint(5, (CLIENTS, 10), generator=make)
    seen: dict[str, Any] = {"apart": [], "epilogue": []}

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            seen[name].append(function(*args, **options))
            return seen[name][-1]

        return call

    rules = decompositions.rules
    gpu = torch.device("cuda")
    monkeypatch.setattr(decompositions, "rules", lambda _, **which: rules(gpu, **which))
    monkeypatch.setattr(thin_products, "is_thin", lambda a, b: True)
    monkeypatch.setattr(inductor, "_MADE", OrderedDict())  # what another test had made
    monkeypatch.setattr(inductor, "tricks_of", lambda device: [tricks])
    monkeypatch.setattr(inductor, "compiled_apart", watched("apart", compiled_apart))
    monkeypatch.setattr(inductor, "fuse_epilogues", watched("epilogue", fuse_epilogues))
    made = inductor.compile_step(step, [*params, x, y], 5)
    assert made is not None, capsys.readouterr().err
    assert seen["epilogue"] == ([3] if tricks.epilogue else [])  # two layers, and one's gradient
    assert [program is not None for program in seen["apart"]] == ([True] if tricks.apart else [])
    ours, plain = [p.clone() for p in params], [p.clone() for p in params]
    for _ in range(3):
        made[0](*ours, x, y)
        step(*plain, x, y)
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
