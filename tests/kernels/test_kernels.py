"""Programs for a GPU, computed by Triton's interpreter on a CPU, against double precision.

`make test-kernels` runs these: the interpreter has to be asked for before Triton is imported.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor
from torch.func import vjp
from torch.nn import functional

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),  # Triton's own
]
pytest.importorskip("triton", reason="a group of its own: make test-kernels")

from glocal.engines.compiled import thin_products  # noqa: E402
from glocal.nn import convolution_launch as launch  # noqa: E402
from glocal.nn.convolution_launch import Tile  # noqa: E402

EXAMPLES = settings(max_examples=25, deadline=None)
EXACT = "ieee"
"""The interpreter multiplies in single precision, whatever a card would do."""


@some.composite
def layers(draw: some.DrawFn, channels: list[int], filters: list[int]) -> dict[str, Any]:
    """Shapes of padded images and kernels of a few clients."""

    def number(least: int, most: int) -> int:
        return draw(some.integers(least, most))

    kernel = (number(1, 4), number(1, 4))
    dilation = draw(some.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2)]))
    least = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    return {
        "clients": number(1, 3),
        "examples": number(1, 4),
        "channels": draw(some.sampled_from(channels)),
        "filters": draw(some.sampled_from(filters)),
        "kernel": kernel,
        "image": (least[0] + number(0, 9), least[1] + number(0, 9)),
        "stride": (number(1, 3), number(1, 3)),
        "dilation": dilation,
        "bias": draw(some.booleans()),
        "parts": number(1, 4),
        "seed": number(0, 99),
    }


def tensors(of: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor]:
    """Images, kernels and biases; the output, its gradient, and that of the kernels, exactly."""
    make = torch.Generator().manual_seed(of["seed"])
    how = {"stride": of["stride"], "dilation": of["dilation"]}

    def normal(*shape: int) -> Tensor:
        return torch.randn(of["clients"], *shape, generator=make)

    x = normal(of["examples"], of["channels"], *of["image"])
    weight = normal(of["filters"], of["channels"], *of["kernel"])
    bias = normal(of["filters"]) if of["bias"] else None
    y, dy, dw = [], [], []
    for k in range(of["clients"]):
        b = None if bias is None else bias[k].double()
        x_k = x[k].double()
        y_k, pull = vjp(lambda w, x=x_k, b=b: functional.conv2d(x, w, b, **how), weight[k].double())
        dy.append(torch.randn(y_k.shape, generator=make))
        y.append(y_k)
        dw.append(pull(dy[-1].double())[0])
    return x, weight, bias, torch.stack(y), torch.stack(dy), torch.stack(dw)


def last(x: Tensor) -> Tensor:
    """Channels last."""
    return x.movedim(2, -1).contiguous()


def close(found: Tensor, exact: Tensor) -> None:
    """To single precision, of the largest number."""
    assert found.shape == exact.shape
    torch.testing.assert_close(
        found.double(), exact, rtol=0, atol=2e-6 * max(1.0, float(exact.abs().max()))
    )


@EXAMPLES
@given(layers([8, 16, 24], [8, 16, 40]))
def test_convolutions_of_many_channels(of: dict[str, Any]) -> None:
    x, weight, bias, y, dy, dw = tensors(of)
    how = (of["stride"], of["dilation"], EXACT)
    tile = Tile(32, 16, 16, 4)
    close(launch.output_of_many(last(x), last(weight), bias, *how, tile).movedim(-1, 2), y)
    tile = Tile(16, 16, 32, 4)
    found = launch.kernels_of_many(last(x), last(dy), *how, of["kernel"], tile, of["parts"])
    close(found.movedim(-1, 2), dw)


@EXAMPLES
@given(layers([1, 2, 3, 5], [1, 6, 11, 20]))
def test_convolutions_of_few_channels(of: dict[str, Any]) -> None:
    x, weight, bias, y, dy, dw = tensors(of)
    how = (of["stride"], of["dilation"])
    room = functional.pad(weight.movedim(1, -1), (0, -of["filters"] % 8))
    tile = Tile(32, 8, 1, 4)
    close(launch.output_of_few(x, room, bias, of["filters"], *how, tile), y)
    tile = Tile(16, 8, 8, 4, 1)
    close(launch.kernels_of_few(x, dy, *how, of["kernel"], tile, of["parts"]), dw)


@pytest.mark.parametrize("channels", [3, 16])
def test_tiles_of_the_rule(channels: int) -> None:
    of = {"clients": 2, "examples": 2, "channels": channels, "filters": 16, "kernel": (3, 3)}
    of |= {"image": (8, 7), "stride": (1, 1), "dilation": (1, 1), "bias": True, "seed": 0}
    x, weight, bias, y, dy, dw = tensors(of)
    how = ((1, 1), (1, 1))
    if channels < 16:
        room = weight.movedim(1, -1)
        close(launch.output_of_few(x, room, bias, 16, *how), y)
        close(launch.kernels_of_few(x, dy, *how, (3, 3)), dw)
        return
    found = launch.output_of_many(last(x), last(weight), bias, *how, "bf16")
    close(found.movedim(-1, 2), y)
    found = launch.kernels_of_many(last(x), last(dy), *how, "bf16", (3, 3))
    close(found.movedim(-1, 2), dw)


def test_a_tile_has_the_stages_that_a_card_has_room_for() -> None:
    tile, cpu = Tile(256, 32, 32, 8, 3), torch.device("cpu")
    stage = (256 + 32) * 32 * 4
    for room, stages in ((232_448, 3), (101_376, 2), (65_536, 1), (1_000, 1)):
        assert launch.fitted(tile, stage, cpu, room).stages == stages
    assert launch.fitted(tile, stage, cpu) == tile


def test_more_clients_than_a_launch_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    of = {"clients": 5, "examples": 4, "filters": 16, "kernel": (2, 2), "image": (5, 5)}
    of |= {"stride": (1, 1), "dilation": (1, 1), "bias": True, "seed": 0}
    monkeypatch.setattr(launch, "GRID", 2)
    how = ((1, 1), (1, 1))
    x, weight, bias, y, dy, dw = tensors({**of, "channels": 3})
    close(launch.output_of_few(x, weight.movedim(1, -1), bias, 16, *how), y)
    close(launch.kernels_of_few(x, dy, *how, (2, 2)), dw)
    close(launch.kernels_of_few(x, dy, *how, (2, 2), None, 2), dw)
    x, weight, bias, y, dy, dw = tensors({**of, "channels": 16})
    close(launch.output_of_many(last(x), last(weight), bias, *how, EXACT).movedim(-1, 2), y)
    for parts in (None, 2):
        tile = Tile(16, 16, 16, 4)
        made = launch.kernels_of_many(last(x), last(dy), *how, EXACT, (2, 2), tile, parts)
        close(made.movedim(-1, 2), dw)


@EXAMPLES
@given(
    rows=some.integers(1, 16),
    terms=some.sampled_from([16, 50, 64, 130]),
    columns=some.sampled_from([16, 33, 64]),
    transposed=some.booleans(),
)
def test_thin_products(rows: int, terms: int, columns: int, transposed: bool) -> None:
    make = torch.Generator().manual_seed(rows)
    a = torch.randn(2, rows, terms, generator=make)
    b = torch.randn(2, *((columns, terms) if transposed else (terms, columns)), generator=make)
    exact = a.double() @ (b.mT if transposed else b).double()
    tile = thin_products.Tile(32, 32, 1, 2)
    close(thin_products.launch(a, b, transposed, tile, EXACT), exact)


@EXAMPLES
@given(
    rows=some.integers(1, 16),
    columns=some.sampled_from([16, 33, 64]),
    biases=some.sampled_from([0, 1, 3]),
    rectified=some.booleans(),
    masked=some.booleans(),
)
def test_epilogues_of_thin_products(
    rows: int, columns: int, biases: int, rectified: bool, masked: bool
) -> None:
    make = torch.Generator().manual_seed(rows)
    a = torch.randn(3, rows, 20, generator=make)
    b = torch.randn(3, 20, columns, generator=make)
    a[1, 0, 0] = torch.nan
    bias = torch.randn(biases, 1, columns, generator=make) if biases else None
    mask_of = torch.randn(3, rows, columns, generator=make).relu() if masked else None
    if mask_of is not None:
        mask_of[2, 0, 0] = torch.nan
    exact = a.double() @ b.double()
    exact = exact if bias is None else exact + bias
    exact = exact.relu() if rectified else exact
    exact = exact if mask_of is None else exact.where(~(mask_of <= 0), 0)
    more: dict[str, Any] = {"bias": bias, "rectified": rectified, "mask_of": mask_of}
    tile = thin_products.Tile(32, 32, 1, 2)
    found = thin_products.launch(a, b, False, tile, EXACT, **more)
    assert torch.equal(found.isnan(), exact.isnan())
    close(found.nan_to_num(), exact.nan_to_num())
    plain = thin_products.thin_product(a, b, False, **more)
    assert torch.equal(plain.isnan(), exact.isnan())
    close(plain.nan_to_num(), exact.nan_to_num())
