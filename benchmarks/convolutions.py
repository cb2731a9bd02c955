"""One convolution with kernels of each client's own: grouped against unfolded, by layer.

python benchmarks/convolutions.py                    on a GPU, all layers in three precisions
python benchmarks/convolutions.py --device cpu --clients 2 --repeats 2      to try the script out

A step is the output, and the gradients of kernels and of images, of all clients: as it is called,
captured in a CUDA graph (on a GPU), and compiled. Milliseconds are medians; in brackets, TFLOP/s.
The last columns say which way the rule takes (glocal.nn.client_convolutions), and how far the
gradients of each way are from those in double precision, relative to the largest.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from glocal.engines.compiled.cuda_graphs import record
from glocal.engines.compiled.inductor import compile_step
from glocal.nn import client_convolutions
from glocal.nn.client_convolutions import ClientConvolutions, Layer, way_of
from glocal.nn.precision import PRECISIONS, arithmetic


class Case(NamedTuple):
    """A layer of some clients, with padding that keeps images of an odd kernel as large."""

    channels: int
    filters: int
    kernel: int
    pixels: int
    clients: int
    batch: int

    def __str__(self) -> str:
        return (
            f"{self.channels}→{self.filters}, k{self.kernel}, {self.pixels} px, "
            f"{self.clients} × {self.batch}"
        )

    @property
    def operations(self) -> int:
        """Of the output and both gradients, two for each multiplication."""
        places = self.clients * self.batch * self.pixels**2
        return 6 * places * self.channels * self.filters * self.kernel**2

    @property
    def layer(self) -> Layer:
        """As the rule sees it."""
        kernel, places = (self.kernel, self.kernel), self.pixels**2
        return Layer(self.batch, self.channels, self.filters, kernel, places)


CASES = (
    Case(3, 6, 5, 32, 100, 50),
    Case(6, 16, 5, 14, 100, 50),
    Case(3, 32, 5, 32, 100, 10),
    Case(32, 64, 5, 16, 100, 10),
    Case(64, 64, 3, 32, 50, 20),
    Case(256, 256, 3, 8, 50, 20),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--clients", type=int, help="instead of the cases' own")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    device = torch.device(options.device)
    client_convolutions.DEVICES |= {device.type}
    cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if cuda else "cpu"
    memory = torch.cuda.get_device_properties(device).total_memory if cuda else 8 << 30
    print(f"{name}, torch {torch.__version__}")
    print(
        "| layer, clients × batch | precision | way | called | captured | compiled | rule | apart |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        case = case._replace(clients=options.clients or case.clients)
        for precision in PRECISIONS:
            rule = way_of(case.layer, precision, case.clients, memory)
            for way in ("grouped", "unfolded"):
                times, apart = measured(case, precision, way, device, options.repeats)
                cells = " | ".join(figure(case, seconds) for seconds in times)
                mark = "chosen" if rule == way else ""
                print(
                    f"| {case} | {precision} | {way} | {cells} | {mark} | {apart:.0e} |", flush=True
                )


def figure(case: Case, seconds: float | None) -> str:
    """Milliseconds, and the rate."""
    if seconds is None:
        return "–"
    return f"{1e3 * seconds:.2f} ({case.operations / seconds / 1e12:.1f})"


def measured(
    case: Case, precision: str, way: str, device: torch.device, repeats: int
) -> tuple[list[float | None], float]:
    """Seconds of a step as it is called, captured and compiled; and how far it is from exact."""
    make = torch.Generator(device).manual_seed(0)
    c, k = case, case.kernel
    x = torch.randn(
        c.clients, c.batch, c.channels, c.pixels, c.pixels, generator=make, device=device
    )
    weight = torch.randn(c.clients, c.filters, c.channels, k, k, generator=make, device=device)
    into = [torch.zeros_like(weight), torch.zeros_like(x)]
    kind = PRECISIONS[precision]

    def loss(weight: Tensor, x: Tensor) -> Tensor:
        with torch.autocast(device.type, kind or torch.bfloat16, enabled=kind is not None):
            y = functional.conv2d(x, weight, padding=k // 2)
        return y.float().square().sum()

    def step(*tensors: Tensor) -> None:
        of_weight, of_x, weight, x = tensors
        made = vmap(grad(loss, argnums=(0, 1)))(weight, x)
        of_weight.add_(made[0])
        of_x.add_(made[1])

    chosen = ClientConvolutions(precision, c.clients, float("inf"))
    found: list[float | None] = []
    before = client_convolutions.way_of
    client_convolutions.way_of = lambda *_: way
    try:
        with torch.no_grad(), arithmetic(precision), chosen:
            step(*into, weight, x)
            apart = max(distances(into, weight, x, k))
            found.append(timed(lambda: step(*into, weight, x), device, repeats))
            captured = record(lambda: step(*into, weight, x)) if device.type == "cuda" else None
            found.append(captured and timed(captured[0].replay, device, repeats))
            half = precision != "single"
            program = compile_step(step, [*into, weight, x], 2, half_precision=half)
            found.append(program and timed(lambda: program[0](*into, weight, x), device, repeats))
    finally:
        client_convolutions.way_of = before
    assert set(chosen.ways.values()) == {way}
    return found, apart


def distances(found: list[Tensor], weight: Tensor, x: Tensor, kernel: int) -> list[float]:
    """Of the first client's gradients from those in double precision, relative to the largest."""

    def loss(weight: Tensor, x: Tensor) -> Tensor:
        return functional.conv2d(x, weight, padding=kernel // 2).square().sum()

    exact = grad(loss, argnums=(0, 1))(weight[0].double(), x[0].double())
    pairs = zip(found, exact, strict=True)
    return [float((a[0] - b).abs().max() / b.abs().max()) for a, b in pairs]


def timed(one: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The median of some calls, each until the device is done, after two that do not count."""
    seconds = []
    for _ in range(repeats + 2):
        synchronise(device)
        began = time.perf_counter()
        one()
        synchronise(device)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[2:])


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
