"""Convolutions with each client's own kernels: the same by both ways, and the rule between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

import glocal
from glocal.core.interrupts import Stopped
from glocal.nn import client_convolutions
from glocal.nn.client_convolutions import ClientConvolutions, Layer, way_of
from glocal.nn.convolution_operators import How, convolved
from glocal.training.checkpoint import CheckpointPolicy


@pytest.fixture(autouse=True, scope="module")
def also_on_a_cpu() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_convolutions, "DEVICES", frozenset({"cpu", "cuda"}))
        patch.setattr(client_convolutions, "KINDS", (*client_convolutions.KINDS, torch.float64))
        yield


@some.composite
def convolutions(draw: some.DrawFn) -> dict[str, Any]:
    """Shapes that a convolution can have, of a few clients."""

    def number(least: int, most: int) -> int:
        return draw(some.integers(least, most))

    groups = draw(some.sampled_from([1, 1, 1, 2, 3]))
    kernel = number(1, 4), number(1, 4)
    dilation = draw(some.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2), (2, 2)]))
    smallest = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    padding = draw(some.sampled_from(["same", "valid", (number(0, 3), number(0, 2))]))
    stride = (1, 1) if padding == "same" else (number(1, 4), number(1, 3))
    return {
        "clients": number(1, 3),
        "examples": number(1, 3),
        "channels": groups * number(1, 3),
        "filters": groups * number(1, 3),
        "image": (smallest[0] + number(0, 5), smallest[1] + number(0, 5)),
        "kernel": kernel,
        "bias": draw(some.booleans()),
        "how": {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups},
    }


def tensors(of: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Images and parameters of all clients, in double precision."""
    make = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(of["clients"], *shape, generator=make, dtype=torch.float64)

    channels, groups = of["channels"], of["how"]["groups"]
    made = {
        "x": normal(of["examples"], channels, *of["image"]),
        "weight": normal(of["filters"], channels // groups, *of["kernel"]),
    }
    return made | ({"bias": normal(of["filters"])} if of["bias"] else {})


def loss(at: dict[str, Tensor], how: dict[str, Any]) -> Tensor:
    y = functional.conv2d(at["x"], at["weight"], at.get("bias"), **how)
    return (y.tanh() * torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape).cos()).sum()


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@settings(max_examples=150, deadline=None)
@given(convolutions())
def test_values_and_gradients_of_any_shape(of: dict[str, Any]) -> None:
    at, how = tensors(of), of["how"]
    one_by_one = [{name: part[k] for name, part in at.items()} for k in range(of["clients"])]
    with ClientConvolutions("single") as found:
        y = vmap(lambda one: functional.conv2d(**one_of(one), **how))(at)
        gradients = vmap(grad(lambda one: loss(one, how)))(at)
    (way,) = found.ways.values()
    alone_pad = not isinstance(how["padding"], str) and max(how["padding"]) > 0
    assert way == ("tiled" if how["groups"] == 1 else "grouped") or alone_pad
    (layer,) = found.ways
    for k, one in enumerate(one_by_one):
        alone = functional.conv2d(**one_of(one), **how)
        assert layer.places == alone[0, 0].numel()
        torch.testing.assert_close(y[k], alone)
        for name, expected in grad(lambda one: loss(one, how))(one).items():
            torch.testing.assert_close(gradients[name][k], expected)


def one_of(at: dict[str, Tensor]) -> dict[str, Any]:
    return {"input": at["x"], "weight": at["weight"], "bias": at.get("bias")}


def test_padding_that_no_kernel_sees_is_left_to_torch() -> None:
    x, weight = torch.randn(2, 1, 1, 1, 1), torch.randn(2, 1, 1, 1, 1)
    with ClientConvolutions("single") as found:
        y = vmap(lambda x, w: functional.conv2d(x, w, padding=2, stride=5))(x, weight)
    assert list(found.ways.values()) == ["grouped"]
    assert y.shape == (2, 1, 1, 1, 1)


def test_numbers_that_the_programs_do_not_know_are_left_to_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_convolutions, "KINDS", (torch.float32, torch.bfloat16))
    x, weight = torch.randn(2, 1, 1, 4, 4).double(), torch.randn(2, 1, 1, 3, 3).double()
    with ClientConvolutions("single") as found:
        vmap(functional.conv2d)(x, weight)
    assert not found.ways


def test_where_programs_cannot_be_launched_a_note_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client_convolutions.works_on(torch.device("cpu"))

    def fails(*_: Any) -> Any:
        raise RuntimeError("Failed to find C compiler.")

    monkeypatch.setattr(How, "output", fails)
    client_convolutions.works_on.cache_clear()
    assert not client_convolutions.works_on(torch.device("cpu"))
    client_convolutions.works_on.cache_clear()
    assert "Failed to find C compiler" in capsys.readouterr().err


def test_second_derivatives() -> None:
    x = torch.randn(2, 2, 6, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 2, 3, 2, dtype=torch.float64, requires_grad=True)
    how = How((2, 1), (0, 1), (1, 1), "single")
    assert torch.autograd.gradgradcheck(
        lambda x, w: convolved(x, w, None, how, (2, 6)), (x, weight)
    )


def test_a_model_is_left_as_it_is_where_clients_share_their_kernels() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3, padding=1))
    params = {name: p.detach() for name, p in model.named_parameters()}
    x = torch.randn(4, 5, 1, 8, 8)
    with ClientConvolutions("single") as found:
        vmap(lambda x: functional_call(model, params, x))(x)
        assert not found.ways
        stacked = {name: p.expand(4, *p.shape) for name, p in params.items()}
        vmap(lambda p, x: functional_call(model, p, x))(stacked, x)
    assert [layer[1:4] for layer in found.ways] == [(1, 2, (3, 3)), (2, 2, (3, 3))]
    assert set(found.ways.values()) == {"tiled"}


def test_gradients_of_single_examples_stay_as_they_are() -> None:
    weight, x = torch.randn(3, 2, 1, 3, 3), torch.randn(3, 4, 1, 6, 6)

    def of_example(w: Tensor, x: Tensor) -> Tensor:
        return functional.conv2d(x.unsqueeze(0), w).square().sum()

    per_example = vmap(vmap(grad(of_example), (None, 0)))
    with ClientConvolutions("single") as found:
        made = per_example(weight, x)
    assert not found.ways
    torch.testing.assert_close(made, per_example(weight, x))


@pytest.mark.parametrize(
    ("layer", "way"),
    [
        (Layer(50, 3, 6, (5, 5), 784, 1024), "tiled"),
        (Layer(20, 512, 512, (3, 3), 16, 36, (2, 2)), "tiled"),
        (Layer(20, 64, 64, (3, 3), 64, 100, groups=64), "grouped"),
        (Layer(20, 64, 64, (3, 3), 64, 100, groups=2), "grouped"),
        (Layer(400, 64, 64, (3, 3), 50_000, 50_176), "grouped"),  # its places are not counted
        (Layer(20, 3, 8, (13, 13), 16, 784), "grouped"),
    ],
)
def test_the_rule(layer: Layer, way: str) -> None:
    assert way_of(layer) == way


@pytest.mark.parametrize("precision", ["single", "bf16"])
def test_runs_say_so_and_come_out_as_one_client_at_a_time(precision: str) -> None:
    fed = glocal.load("digits", clients=4, seed=0)
    common = {"rounds": 2, "baseline": "none", "precision": precision, "progress": False}
    runs = {
        engine: glocal.fit("fedavg(lr=0.01)", fed, model=net(), engine=engine, **common)
        for engine in ("sequential", "vectorised")
    }
    assert runs["sequential"].settings["engine"] == "sequential"
    said = runs["vectorised"].settings["engine"]
    assert said == "vectorised, 2 of 2 convolutions tiled"
    apart = {"single": 1e-5, "bf16": 2e-2}[precision]
    for name, value in runs["sequential"].model.items():
        torch.testing.assert_close(runs["vectorised"].model[name], value, rtol=0, atol=apart)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def test_a_run_that_was_stopped_comes_to_the_same_bits(tmp_path: Path) -> None:
    fed = glocal.load("digits", clients=4, seed=0)
    common: dict[str, Any] = {"model": net(), "engine": "vectorised", "baseline": "none"}
    common |= {"rounds": 3, "progress": False}
    whole = glocal.fit("fedavg", fed, **common)
    asked = iter([False, True])
    stopping = CheckpointPolicy(tmp_path, stop=lambda: next(asked))
    with pytest.raises(Stopped):
        glocal.fit("fedavg", fed, checkpoints=stopping, **common)
    resumed = glocal.fit("fedavg", fed, checkpoints=CheckpointPolicy(tmp_path), **common)
    assert resumed.settings["engine"] == whole.settings["engine"]
    for name, value in whole.model.items():
        assert torch.equal(resumed.model[name], value)
