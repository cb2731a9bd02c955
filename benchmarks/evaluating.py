"""Models with convolutions evaluated on a CPU: all clients' at once, and one by one.

python benchmarks/evaluating.py                 milliseconds by model and examples of a client

A hundred models of one network with weights of their own, as engines evaluate them. One thread; the
best of three times.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from glocal.core import tree
from glocal.engines import Sequential
from glocal.engines.evaluation import BatchedEvaluation
from glocal.engines.vectorised import MIN_ROWS
from glocal.nn import models
from glocal.nn.task import Task

CASES = (("lenet", (3, 32, 32)), ("lenet", (1, 28, 28)), ("resnet10(width=8)", (3, 32, 32)))
EXAMPLES = (2, 5, 10, 20, 60)
CLIENTS = 100


def main() -> None:
    torch.set_num_threads(1)
    print(__doc__)
    print(f"{'model':32}{'examples':>10}{'at once':>10}{'one by one':>12}")
    for name, shape in CASES:
        torch.manual_seed(0)
        task = Task(models.build(name, input_shape=shape, classes=10, seed=0))
        stacked = tree.map(lambda p: p + 0.01 * torch.randn(CLIENTS, *p.shape), task.params)
        x, y = torch.rand(max(EXAMPLES), *shape), torch.randint(10, (max(EXAMPLES),))
        for n in EXAMPLES:
            rows = torch.arange(n).expand(CLIENTS, -1)
            given = (task.example_metrics, stacked, x, y, rows)
            each = [best(engine, given) for engine in (BatchedEvaluation(), Sequential())]
            size = "×".join(map(str, shape))
            print(f"{name + ' on ' + size:32}{n:>10}{each[0]:>10.0f}{each[1]:>12.0f}", flush=True)
    print(f"\nThe rule takes them one by one from {MIN_ROWS} examples on.")


def best(engine: BatchedEvaluation | Sequential, given: Any) -> float:
    """Milliseconds."""
    took = []
    with torch.no_grad():
        for _ in range(4):
            began = time.perf_counter()
            engine.evaluate(*given)
            took.append(time.perf_counter() - began)
    return 1e3 * min(took[1:])


if __name__ == "__main__":
    main()
