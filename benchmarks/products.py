"""Products of matrices in single precision on a CPU: torch's own, and by oneDNN's operator.

python benchmarks/products.py                 GFLOP/s of both, for layers and batches

Of a layer with weights [outputs, inputs] and a mini-batch of so many rows: its output, the gradient
of its inputs, and that of its weights. One thread; the best of five times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

LAYERS = (
    (64, 64),
    (400, 10),
    (200, 200),
    (256, 256),
    (512, 256),
    (784, 200),
    (784, 512),
    (3072, 400),
)
ROWS = (5, 10, 20, 60)


def main() -> None:
    torch.set_num_threads(1)
    print(__doc__)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}: torch, oneDNN\n")
    print(f"{'rows':>4}{'layer':>12}{'multiplications':>17}" + "".join(
        f"{name:>12}" for name in ("output", "inputs", "weights")
    ))  # fmt: skip
    for rows in ROWS:
        for inputs, outputs in LAYERS:
            torch.manual_seed(0)
            w, x, g = (
                torch.randn(*shape)
                for shape in ((outputs, inputs), (rows, inputs), (rows, outputs))
            )
            operations = 2 * rows * inputs * outputs
            told = [
                f"{operations / best(partial(torch.matmul, a, b)) / 1e9:.0f}, "
                f"{operations / best(partial(by_onednn, a, b)) / 1e9:.0f}"
                for a, b in ((x, w.T), (g, w), (g.T, x))
            ]
            layer = f"{inputs}×{outputs}"
            print(f"{rows:>4}{layer:>12}{operations // 2:>17,}" + "".join(f"{t:>12}" for t in told))


def by_onednn(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b``."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.T, None, "none", [], "")
    return found


def best(function: Callable[[], object], calls: int = 40, times: int = 5) -> float:
    """Seconds of a call."""
    for _ in range(5):
        function()
    least = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        for _ in range(calls):
            function()
        least = min(least, (time.perf_counter() - began) / calls)
    return least


if __name__ == "__main__":
    main()
