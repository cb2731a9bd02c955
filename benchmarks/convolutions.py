"""One convolution with kernels of each client's own: grouped against our programs, by layer.

python benchmarks/convolutions.py                    on a GPU, all layers in three precisions
python benchmarks/convolutions.py --device cpu --clients 2 --repeats 1      to try the script out

*Forward* is the output, *backward* both gradients as well, of all clients, captured in a CUDA graph
on a GPU. Milliseconds are medians; in brackets, TFLOP/s of forward and backward together. The last
column says how far output and gradients of each way are from those in double precision, relative to
the largest number.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vjp, vmap
from torch.nn import functional

from glocal.engines.compiled.cuda_graphs import record
from glocal.nn import client_convolutions
from glocal.nn.client_convolutions import ClientConvolutions
from glocal.nn.precision import PRECISIONS, arithmetic


class Case(NamedTuple):
    """A layer of some clients, with padding that keeps images of an odd kernel as large."""

    channels: int
    filters: int
    kernel: int
    pixels: int
    clients: int
    batch: int
    stride: int = 1

    def __str__(self) -> str:
        apart = f", stride {self.stride}" if self.stride > 1 else ""
        return (
            f"{self.channels}→{self.filters}, k{self.kernel}{apart}, {self.pixels} px, "
            f"{self.clients} × {self.batch}"
        )

    @property
    def operations(self) -> int:
        """Of the output and both gradients, two for each multiplication."""
        places = self.clients * self.batch * (self.pixels // self.stride) ** 2
        return 6 * places * self.channels * self.filters * self.kernel**2


CASES = (
    Case(3, 6, 5, 32, 100, 50),
    Case(6, 16, 5, 14, 100, 50),
    Case(3, 32, 5, 32, 100, 10),
    Case(32, 64, 5, 16, 100, 10),
    Case(64, 64, 3, 32, 50, 20),
    Case(64, 128, 3, 32, 50, 20, 2),
    Case(256, 256, 3, 8, 50, 20),
    Case(512, 512, 3, 4, 50, 20),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--clients", type=int, help="instead of the cases' own")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    device = torch.device(options.device)
    cuda = device.type == "cuda"
    print(f"{torch.cuda.get_device_name(device) if cuda else 'cpu'}, torch {torch.__version__}")
    print("| layer, clients × batch | precision | way | forward | backward too | apart |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        case = case._replace(clients=options.clients or case.clients)
        for precision in PRECISIONS:
            for way in ("grouped", "tiled"):
                print(line(case, precision, way, device, options.repeats), flush=True)


def line(case: Case, precision: str, way: str, device: torch.device, repeats: int) -> str:
    """A row of the table."""
    devices = client_convolutions.DEVICES
    client_convolutions.DEVICES = frozenset({device.type} if way == "tiled" else ())
    chosen = ClientConvolutions(precision)
    try:
        with torch.no_grad(), arithmetic(precision), chosen:
            forward, both = functions(case, precision, device)
            apart = distances(case, both(), device)
            times = [timed(one, device, repeats) for one in (forward, both)]
    finally:
        client_convolutions.DEVICES = devices
    assert set(chosen.ways.values()) == ({"tiled"} if way == "tiled" else set())
    rate = case.operations / times[1] / 1e12
    far = " ".join(f"{one:.0e}" for one in apart)
    milliseconds = f"{1e3 * times[0]:.2f} | {1e3 * times[1]:.2f} ({rate:.0f})"
    return f"| {case} | {precision} | {way} | {milliseconds} | {far} |"


def tensors(case: Case, device: torch.device) -> list[Tensor]:
    """Images, kernels, and the gradient of the output, of all clients."""
    make = torch.Generator(device).manual_seed(0)
    side, out, k = case.pixels, case.pixels // case.stride, case.kernel
    shapes = (
        (case.batch, case.channels, side, side),
        (case.filters, case.channels, k, k),
        (case.batch, case.filters, out, out),
    )
    return [torch.randn(case.clients, *s, generator=make, device=device) for s in shapes]


def functions(
    case: Case, precision: str, device: torch.device
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The output of all clients; and output and both gradients."""
    x, weight, dy = tensors(case, device)
    kind = PRECISIONS[precision]

    def output(x: Tensor, weight: Tensor) -> Tensor:
        with torch.autocast(device.type, kind or torch.bfloat16, enabled=kind is not None):
            return functional.conv2d(x, weight, None, case.stride, case.kernel // 2)

    def of_client(x: Tensor, weight: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
        pulled: Any = vjp(output, x, weight)
        y, pull = pulled
        return (y, *pull(dy.to(y.dtype)))

    return lambda: vmap(output)(x, weight), lambda: vmap(of_client)(x, weight, dy)


def distances(case: Case, found: Any, device: torch.device) -> list[float]:
    """Of the first client's output and gradients from those in double precision."""
    x, weight, dy = (t[0].double() for t in tensors(case, device))

    def output(x: Tensor, weight: Tensor) -> Tensor:
        return functional.conv2d(x, weight, None, case.stride, case.kernel // 2)

    pulled: Any = vjp(output, x, weight)
    y, pull = pulled
    pairs = zip(found, (y, *pull(dy)), strict=True)
    return [float((a[0].double() - b).abs().max() / b.abs().max()) for a, b in pairs]


def timed(one: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The median of some calls, each until the device is done, after one that does not count."""
    one()
    if device.type == "cuda" and (captured := record(one)) is not None:
        one = captured[0].replay
    seconds = []
    for _ in range(repeats + 1):
        synchronise(device)
        began = time.perf_counter()
        one()
        synchronise(device)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
