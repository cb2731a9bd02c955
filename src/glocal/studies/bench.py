"""How long one round of local training takes: a plain PyTorch loop against the engines.

Every contestant trains the same cohort from the same model on the same mini-batches (one local
epoch of plain SGD) and averages the result. They take turns in one process, so that whatever else
the machine does falls on all alike, and they must end at the same model, or nothing is reported.
"""

from __future__ import annotations

import copy
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal import engines
from glocal.core import rng
from glocal.core.progress import Report, silent
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.data.split import from_counts
from glocal.engines.base import CohortRound, Engine
from glocal.engines.batching import plan
from glocal.methods.fedavg import fedavg
from glocal.nn import models
from glocal.nn.losses import cross_entropy
from glocal.nn.task import Task
from glocal.slots.weighting import Setting

RATE = 0.01
"""The learning rate: low enough that rounding differences between contestants stay small."""

TOLERANCE = 1e-4
"""How far apart two contestants' losses, and any of their parameters, may end."""


@dataclass(frozen=True)
class Case:
    """A model and a cohort: ``clients`` of ``examples`` random examples each."""

    name: str
    model: str
    input_shape: tuple[int, ...]
    clients: int
    examples: int
    batch_size: int
    classes: int = 10
    momentum: float = 0.0

    def __str__(self) -> str:
        shape = "×".join(map(str, self.input_shape))
        return (
            f"{self.model} on {shape}, {self.clients} clients × {self.examples}, "
            f"batch {self.batch_size}"
        )


CASES = (
    Case("mlp-small", "mlp(32)", (64,), clients=100, examples=20, batch_size=5),
    Case("mlp", "mlp(200, 200)", (784,), clients=10, examples=600, batch_size=10),
    Case("lenet", "lenet", (3, 32, 32), clients=10, examples=500, batch_size=50),
    Case("cnn", "cnn", (3, 32, 32), clients=4, examples=40, batch_size=10),
)

CONTESTANTS = ("loop", "sequential", "vectorised", "auto")


def run_bench(
    *,
    repeats: int = 7,
    progress: Report = silent,
    cases: Sequence[Case] | None = None,
    compiled: bool = False,
) -> dict[str, Any]:
    """Time every contestant on every case: the median of ``repeats`` rounds after a warm-up.

    Returns:
        ``{"machine": {…}, "repeats": …, "cases": [{"name", "case", "parameters", "loop_ms",
        "sequential_ms", "vectorised_ms", "auto_ms", "auto", "loss_loop", …, "difference"}]}``,
        where ``auto`` is the engine the rule chose, ``loss_…`` the loss each contestant ends at,
        and ``difference`` the largest between the loop's parameters and anybody's. With
        ``compiled`` also ``compiled_ms`` and ``compiled_first_s``, its first round, in which it is
        compiled.
    """
    chosen = CASES if cases is None else cases
    total = len(chosen) * (repeats + 1)
    results = []
    for c, case in enumerate(chosen):

        def tick(done: int, c: int = c) -> None:
            progress("bench", c * (repeats + 1) + done, total)

        results.append(_measure(case, repeats, tick, compiled))
    machine = {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }
    return {"machine": machine, "repeats": repeats, "cases": results}


HEADER = (
    "case", "loop ms", "sequential ms", "vectorised ms", "auto ms", "auto is",
    "loop / sequential", "loop / vectorised", "best / auto", "loss",
)  # fmt: skip


def render(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row of text for each case, under :data:`HEADER`."""
    rows = []
    for case in result["cases"]:
        loop, sequential, vectorised, auto = times = [case[f"{c}_ms"] for c in CONTESTANTS]
        best = min(loop, sequential, vectorised)
        ratios = (loop / sequential, loop / vectorised, best / auto)
        shown = [f"{ms:.1f}" for ms in times], [f"{ratio:.2f}" for ratio in ratios]
        loss = f"{case['loss_loop']:.4f}"
        rows.append((case["name"], *shown[0], case["auto"], *shown[1], loss))
    return rows


Round = Callable[[], Params]
"""One round of the whole cohort: the averaged model."""


def _measure(
    case: Case, repeats: int, tick: Callable[[int], None], compiled: bool
) -> dict[str, Any]:
    module = models.build(case.model, input_shape=case.input_shape, classes=case.classes)
    task, fed, key = Task(module), data(case), rng.key(1)
    auto = engines.resolve("auto", task, fed.x.device)
    raced: dict[str, Engine] = {
        "sequential": engines.Sequential(),
        "vectorised": engines.Vectorised(),
        "auto": auto,
        **({"compiled": engines.Vectorised(compiled=True)} if compiled else {}),
    }
    rounds = {"loop": loop_round(case, module, fed, key)}
    rounds |= {name: engine_round(case, task, fed, key, engine) for name, engine in raced.items()}
    ends, first = {}, {}
    for contestant, one_round in rounds.items():  # the warm-up
        began = time.perf_counter()
        ends[contestant] = one_round()
        first[contestant] = time.perf_counter() - began
    losses, difference = same_work(case, task, fed, ends)
    tick(1)
    times: dict[str, list[float]] = {contestant: [] for contestant in rounds}
    for r in range(repeats):
        for contestant, one_round in rounds.items():
            began = time.perf_counter()
            one_round()
            times[contestant].append(time.perf_counter() - began)
        tick(r + 2)
    return {
        "name": case.name,
        "case": str(case),
        "parameters": sum(p.numel() for p in module.parameters()),
        **{f"{contestant}_ms": 1e3 * statistics.median(times[contestant]) for contestant in rounds},
        **({"compiled_first_s": first["compiled"]} if compiled else {}),
        "auto": auto.name,
        **{f"loss_{contestant}": loss for contestant, loss in losses.items()},
        "difference": difference,
    }


def data(case: Case) -> Federation:
    """Random inputs and labels; integers for a language model, whose classes are tokens."""
    draw = torch.Generator().manual_seed(0)
    n = case.clients * case.examples
    tokens = case.model.startswith(("char", "word"))
    x = (
        torch.randint(case.classes, (n, *case.input_shape), generator=draw)
        if tokens
        else torch.randn((n, *case.input_shape), generator=draw)
    )
    y = torch.randint(case.classes, (n,), generator=draw)
    counts = torch.full((case.clients,), case.examples)
    nothing = from_counts(torch.arange(0), torch.zeros_like(counts))
    return Federation(
        x=x,
        y=y,
        y_train=y,
        classes=case.classes,
        names=tuple(map(str, range(case.clients))),
        train=from_counts(torch.arange(n), counts),
        val=nothing,
        test=nothing,
        label_shift_only=False,
        describe={"data": case.name},
    )


def loop_round(case: Case, module: nn.Module, fed: Federation, key: Tensor) -> Round:
    """The loop as people write it, with nothing of glocal's in what is timed.

    It is given the order of the examples that the engines will draw, so that the batches are the
    same; drawing it is left out of its time, which is in its favour.
    """
    ids = torch.arange(case.clients, device=key.device)
    keys = rng.fold(rng.fold(key, ids), 0)  # a client's key, then its first phase's
    batches = plan(fed.train, ids, keys, 1, case.batch_size)
    orders = [batches.rows[i][batches.weight[i] > 0] for i in range(case.clients)]
    return lambda: plain_loop(module, fed.x, fed.y_train, orders, case.batch_size, case.momentum)


def plain_loop(
    initial: nn.Module,
    x: Tensor,
    y: Tensor,
    orders: Sequence[Tensor],
    batch_size: int,
    momentum: float = 0.0,
) -> Params:
    """Train a copy of the model on each client's shuffled rows in turn; average by examples."""
    model = copy.deepcopy(initial)
    model.train()
    start = initial.state_dict()
    collected = []
    for order in orders:
        model.load_state_dict(start)
        optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum)
        own_x, own_y = x[order], y[order]
        for a in range(0, len(order), batch_size):
            optimiser.zero_grad()
            loss = functional.cross_entropy(
                model(own_x[a : a + batch_size]), own_y[a : a + batch_size]
            )
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        collected.append({k: v.clone() for k, v in model.state_dict().items()})
    n = sum(len(order) for order in orders)
    shares = [len(order) / n for order in orders]
    return {
        k: sum(share * state[k] for share, state in zip(shares, collected, strict=True))
        for k in start
    }


def engine_round(case: Case, task: Task, fed: Federation, key: Tensor, engine: Engine) -> Round:
    """The round as :mod:`glocal.training.loop` runs it: broadcast, train the cohort, reduce."""
    method = fedavg(lr=RATE, batch_size=case.batch_size, epochs=1, momentum=case.momentum)
    setting = Setting(case.clients, 1.0, 1)
    ids = torch.arange(case.clients, device=key.device)
    state, local = method.begin(task, task.params, setting), method.client_half(task)

    def one_round() -> Params:
        down = method.broadcast(state, 0, setting)
        work = CohortRound(task, local, fed, down, ids, {}, key)
        uplink, _ = engine.round(work)
        after, _ = method.server_half.reduce(state, uplink, setting, key, None)
        params: Params = after["params"]
        return params

    return one_round


def same_work(
    case: Case, task: Task, fed: Federation, ends: dict[str, Params], tolerance: float = TOLERANCE
) -> tuple[dict[str, float], float]:
    """Everybody's loss on all data after the round, and the largest difference of a parameter."""
    with torch.no_grad():
        losses = {
            contestant: float(cross_entropy(task.predict(params, fed.x), fed.y).mean())
            for contestant, params in ends.items()
        }
    widest = 0.0
    for contestant, params in ends.items():
        gaps = [float((params[k] - v).abs().max()) for k, v in ends["loop"].items()]
        # Written so that a loss or a parameter that is not a number fails too.
        if not (max(gaps) <= tolerance and abs(losses[contestant] - losses["loop"]) <= TOLERANCE):
            raise RuntimeError(
                f"{case.name}: {contestant} ends at loss {losses[contestant]:.6f} and the loop at "
                f"{losses['loop']:.6f}, parameters up to {max(gaps):.1e} apart: they did not do "
                "the same work, so their times say nothing."
            )
        widest = max(widest, *gaps)
    return losses, widest
