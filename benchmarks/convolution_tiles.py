"""Which tiles suit the convolutions' programs on a GPU, by layer: the rule was read off this.

python benchmarks/convolution_tiles.py             all layers and precisions, 4 minutes on an H200
python benchmarks/convolution_tiles.py --only r1 r3 --precisions tf32

For each operator of a layer (output, gradient of images, of kernels), milliseconds of cuDNN's
grouped convolution in its own layout, of the best tile, and of the next three; how far the best is
from double precision, relative to the largest number; tiles are (places, filters, depth, warps,
stages), with the number of parts behind them where a sum is cut (glocal.nn.convolution_launch).
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional, grad

from glocal.nn import convolution_launch as launch
from glocal.nn.convolution_launch import Tile
from glocal.nn.precision import arithmetic

LAYERS = {
    "lenet1": (100, 50, 3, 6, 5, 1, 32),
    "lenet2": (100, 50, 6, 16, 5, 1, 14),
    "cnn1": (100, 10, 3, 32, 5, 1, 36),
    "cnn1-filled": (100, 10, 16, 32, 5, 1, 36),
    "cnn2": (100, 10, 32, 64, 5, 1, 20),
    "r0": (20, 20, 3, 64, 3, 1, 34),
    "r0-filled": (20, 20, 16, 64, 3, 1, 34),
    "r1": (20, 20, 64, 64, 3, 1, 34),
    "r2": (20, 20, 64, 128, 3, 2, 34),
    "r3": (20, 20, 128, 128, 3, 1, 18),
    "r5": (20, 20, 256, 256, 3, 1, 10),
    "r6": (20, 20, 512, 512, 3, 1, 6),
    "r7": (20, 20, 64, 128, 1, 2, 32),
}
"""Clients, examples, channels, filters, side of the kernel, stride, side of the padded image."""

OUTPUT_OF_MANY = (
    *((128, 64, 32, 4, 3), (256, 64, 32, 8, 3), (128, 128, 32, 8, 3), (128, 128, 32, 4, 3)),
    *((64, 64, 32, 4, 3), (64, 128, 32, 4, 3), (128, 32, 32, 4, 3), (256, 32, 32, 8, 3)),
    *((256, 128, 32, 8, 3), (64, 64, 64, 4, 3), (128, 64, 64, 4, 3), (64, 32, 32, 4, 3)),
    *((128, 32, 16, 4, 4), (256, 32, 16, 4, 3)),
)
KERNELS_OF_MANY = (
    *((32, 32, 64, 4, 3), (32, 32, 128, 4, 3), (64, 32, 128, 4, 3), (32, 32, 256, 8, 3)),
    *((64, 64, 64, 4, 3), (64, 64, 128, 4, 3), (64, 64, 32, 4, 3), (32, 64, 128, 8, 3)),
    *((64, 128, 64, 8, 2), (64, 128, 128, 8, 2)),
)
OUTPUT_OF_FEW = (
    *((512, 8, 1, 4), (256, 8, 1, 2), (256, 8, 1, 4), (128, 8, 1, 2), (512, 16, 1, 4)),
    *((256, 16, 1, 2), (256, 32, 1, 4), (128, 32, 1, 4)),
)
KERNELS_OF_FEW = (
    *((128, 8, 16, 4, 1), (64, 8, 16, 2, 1), (32, 8, 16, 1, 1), (128, 8, 8, 4, 1)),
    *((64, 8, 8, 2, 1), (32, 8, 8, 1, 1), (64, 8, 8, 2, 2), (128, 4, 16, 4, 1), (128, 16, 8, 4, 1)),
)
PARTS = (None, 1, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[*LAYERS], default=[*LAYERS])
    parser.add_argument("--precisions", nargs="+", default=["single", "tf32", "bf16"])
    parser.add_argument("--jobs", type=int, default=14, help="processes that compile beforehand")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    todo = [(layer, precision) for precision in options.precisions for layer in options.only]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
        list(pool.map(compiled, todo))
    for layer, precision in todo:
        with arithmetic(precision):
            for operator in operators(layer, precision):
                print(line(layer, precision, *operator), flush=True)


def compiled(job: tuple[str, str]) -> None:
    """Make all programs of a layer, which the next process finds in Triton's cache."""
    for operator in operators(*job, few_clients=True):
        list(tried(operator[1], operator[2], (1,)))


def tried(
    call: Callable[[Tile, Any], Tensor], tiles: tuple[Any, ...], parts: tuple[Any, ...]
) -> Iterator[tuple[tuple[int, ...], Any, Tensor]]:
    """What comes out with each tile; those that a card has no room for are passed over."""
    for tile in tiles:
        for part in parts:
            try:
                yield tile, part, call(Tile(*tile), part)
            except Exception as error:  # Triton's own, by version
                if "resource" not in str(error).lower():
                    raise


def line(
    layer: str,
    precision: str,
    name: str,
    call: Callable[[Tile, Any], Tensor],
    tiles: tuple[Any, ...],
    exact: Tensor,
    grouped: Callable[[], Any],
) -> str:
    """An operator's row."""
    found = []
    parts = PARTS if name == "kernels" else (None,)
    for tile, part, made in tried(call, tiles, parts):
        apart = float((made[0].double() - exact).abs().max() / exact.abs().max())
        took = timed(lambda tile=tile, part=part: call(Tile(*tile), part))
        found.append((took, tile, part, apart))
    found.sort(key=lambda one: one[0])
    best = found[0]
    others = ", ".join(f"{ms:.3f} {tile} {part or ''}".strip() for ms, tile, part, _ in found[1:4])
    return (
        f"{precision:6} {layer:11} {name:7} grouped {timed(grouped):7.3f}, best {best[0]:7.3f} "
        f"{best[1]} {best[2] or ''} ({best[3]:.0e} apart); {others}"
    )


def operators(layer: str, precision: str, *, few_clients: bool = False) -> Iterator[Any]:
    """Name, call, tiles, the first client's exact result, and the grouped convolution."""
    clients, examples, channels, filters, k, stride, side = LAYERS[layer]
    if few_clients:
        clients, examples = 2, 2
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    make = torch.Generator("cuda").manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(clients, *shape, generator=make, device="cuda").to(kind)

    out = (side - k) // stride + 1
    x, weight = normal(examples, channels, side, side), normal(filters, channels, k, k)
    dy = normal(examples, filters, out, out)
    how, one = ((stride, stride), (1, 1)), (1, 1)
    exact_x, exact_w, exact_dy = (t[0].double() for t in (x, weight, dy))
    flat = [t.transpose(0, 1).flatten(1, 2).contiguous() for t in (x, dy)]
    # The gradient with zeros between its pixels, and around it.
    apart = dy.new_zeros(*dy.shape[:3], (out - 1) * stride + 1, (out - 1) * stride + 1)
    apart[..., ::stride, ::stride] = dy
    behind = side - apart.shape[-1]
    around = functional.pad(apart, (k - 1, behind, k - 1, behind))
    turned = weight.transpose(1, 2).flip(-2, -1)

    def backward(which: int) -> Callable[[], Any]:
        mask = [which == 0, which == 1, False]
        return lambda: torch.ops.aten.convolution_backward(
            *(flat[1], flat[0], weight.flatten(0, 1), None, how[0], [0, 0], one),
            *(False, [0, 0], clients, mask),
        )

    def forward() -> Tensor:
        return functional.conv2d(flat[0], weight.flatten(0, 1), stride=stride, groups=clients)

    exact = (
        functional.conv2d(exact_x, exact_w, stride=stride),
        grad.conv2d_input(exact_x.shape, exact_w, exact_dy, stride=stride),
        grad.conv2d_weight(exact_x, exact_w.shape, exact_dy, stride=stride),
    )
    first = layer in ("lenet1", "cnn1", "r0") or layer.endswith("filled")
    if min(channels, filters) >= 16:
        turn = [t.movedim(2, -1).contiguous() for t in (x, weight, around, turned, dy)]

        def output(t: Tile, _: Any) -> Tensor:
            return launch.output_of_many(turn[0], turn[1], None, *how, precision, t).movedim(-1, 2)

        def images(t: Tile, _: Any) -> Tensor:
            return launch.output_of_many(turn[2], turn[3], None, one, one, precision, t).movedim(
                -1, 2
            )

        def kernels(t: Tile, parts: Any) -> Tensor:
            made = launch.kernels_of_many(turn[0], turn[4], *how, precision, (k, k), t, parts)
            return made.movedim(-1, 2)

        tiles: Any = (OUTPUT_OF_MANY, OUTPUT_OF_MANY, KERNELS_OF_MANY)
    else:
        room = [
            functional.pad(w.movedim(1, -1), (0, -w.shape[1] % 8)).contiguous()
            for w in (weight, turned)
        ]

        def output(t: Tile, _: Any) -> Tensor:
            return launch.output_of_few(x, room[0], None, filters, *how, t)

        def images(t: Tile, _: Any) -> Tensor:
            return launch.output_of_few(around, room[1], None, channels, one, one, t)

        def kernels(t: Tile, parts: Any) -> Tensor:
            return launch.kernels_of_few(x, dy, *how, (k, k), t, parts)

        fits = [tuple(t for t in OUTPUT_OF_FEW if w.shape[-1] % t[1] == 0) for w in room]
        tiles = (fits[0], fits[1], KERNELS_OF_FEW)
    yield "output", output, tiles[0], exact[0], forward
    if not first:
        yield "images", images, tiles[1], exact[1], backward(0)
    yield "kernels", kernels, tiles[2], exact[2], backward(1)


def timed(one: Callable[[], object]) -> float:
    """Milliseconds on the card, the median of five after one that does not count."""
    one()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(5):
        begin.record()
        one()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


if __name__ == "__main__":
    main()
