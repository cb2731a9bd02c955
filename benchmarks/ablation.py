"""What each trick of the engines earns: the same round with it and without it, in turns.

python benchmarks/ablation.py --cases mlp small              two cores are enough
python benchmarks/ablation.py --device cuda --json out.json  on a GPU
python benchmarks/ablation.py --report a.json b.json         the table of what was measured

``ablation-cpu.json`` and ``ablation-gpu.json`` are what was measured, ``ablation.txt`` the table;
``ablation-convolutions.txt`` is that of ``--cases lenet resnet``, ``ablation-large-products.txt``
that of large products on a CPU, measured later.

A trick is switched off by replacing what implements it (``TRICKS``), so the engines need no
switches. All variants of a case take turns in one process; ``off / on`` is the median over the
turns of the time without the trick divided by the time with it in the same turn, in brackets the
quarter and three-quarter points. ``nothing`` is the engine against itself: the noise. Every variant
must end at the same model as the engine with all tricks (to 1e-3).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from glocal.core import rng, tree
from glocal.data.split import from_counts
from glocal.engines import Sequential, Vectorised, evaluation, sequential, vectorised
from glocal.engines.base import CohortRound, padded_rows
from glocal.engines.compiled import (
    Programs,
    blocks,
    cuda_graphs,
    decompositions,
    inductor,
    large_products,
    program,
)
from glocal.methods.fedavg import fedavg
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.method import as_plan
from glocal.studies import bench
from glocal.studies.bench import Case
from glocal.training.loop import Training
from glocal.training.sampling import Fixed
from quiet import quiet

TOLERANCE = 1e-3

OF = 3
"""So many times as many clients as train in a round."""

SECONDS = 60
"""After which a case has no more turns, once it has had five."""

CPU = (
    Case("mlp", "mlp(200, 200)", (784,), 10, 600, 10),
    Case("small", "mlp(32)", (64,), 100, 20, 5),
    Case("lenet", "lenet", (3, 32, 32), 10, 500, 50),
    Case("momentum", "mlp(200, 200)", (784,), 10, 600, 10, momentum=0.9),
    Case("large", "mlp(400)", (3072,), 10, 320, 64),
    Case("large-momentum", "mlp(400)", (3072,), 10, 320, 64, momentum=0.9),
    Case("lenet-10", "lenet", (3, 32, 32), 10, 200, 10),
    Case("resnet", "resnet10(width=8)", (3, 32, 32), 10, 40, 10),
    Case("cnn", "cnn", (3, 32, 32), 4, 40, 10),
    Case("ragged", "mlp(200, 200)", (784,), 20, 600, 10),
    Case("ragged-small", "mlp(32)", (64,), 100, 60, 5),
)
CONVOLUTIONS = ("lenet", "lenet-10", "resnet", "cnn")
GPU = (
    Case("mlp", "mlp(200, 200)", (784,), 10, 600, 10),
    Case("small", "mlp(32)", (64,), 100, 20, 5),
    Case("lenet", "lenet", (3, 32, 32), 10, 500, 50),
    Case("momentum", "mlp(512, 256, 256, 128)", (784,), 100, 600, 10, momentum=0.9),
    Case("cnn", "cnn", (3, 32, 32), 10, 400, 10),
    Case("ragged", "mlp(200, 200)", (784,), 100, 600, 10),
    Case("few", "mlp(512, 256, 256, 128)", (784,), 10, 600, 10, momentum=0.9),
)


@dataclass(frozen=True)
class Trick:
    """How a trick is switched off: other attributes of objects, or another engine."""

    replaced: tuple[tuple[Any, str, Any], ...] = ()
    engine: Callable[[], Any] | None = None
    evaluation: bool = False
    """Whether it is evaluation that is timed, not a round."""

    @contextmanager
    def off(self) -> Iterator[None]:
        """Within it, the trick is not used."""
        with ExitStack() as stack:
            for where, name, value in self.replaced:
                stack.enter_context(patch.object(where, name, value, create=True))
            yield


def without(*names: str) -> Callable[..., dict[str, Any]]:
    """TorchInductor's settings, but for some."""
    settings = inductor._settings

    def fewer(*args: Any) -> dict[str, Any]:
        return {k: v for k, v in settings(*args).items() if k not in names}

    return fewer


def all_threads_a_client(cohort: Any) -> list[Any]:
    with torch.no_grad():
        states = (tree.row(cohort.states, i) for i in range(len(cohort.ids)))
        return [sequential.one_client(cohort, i, state) for i, state in enumerate(states)]


@cache
def with_all_threads(number: int) -> ThreadPoolExecutor:
    """Workers that compute with as many threads as there are workers."""

    def start() -> None:
        torch.set_num_threads(number)
        torch.set_grad_enabled(False)

    return ThreadPoolExecutor(number, initializer=start)


COMMON = {
    "nothing": Trick(),
    "compiled steps": Trick(engine=Vectorised),
    "blocks by number of steps": Trick(((program, "width", lambda *a: a[3].cohort),)),
    "traced or captured start and finish": Trick(
        ((cuda_graphs, "trace", lambda *_: None), (cuda_graphs, "replayed", lambda *_: None))
    ),
}
ON_CPU = {
    "one client at a time instead": Trick(engine=Sequential),
    "blocks that fit a core's cache": Trick(((blocks, "CACHE", 1 << 60),)),
    "a block per thread": Trick(((program, "workers", lambda n: SimpleNamespace(map=map)),)),
    "fused in-place SGD": Trick(((inductor, "fuse_updates", lambda *_: None),)),
    "C++ wrapper": Trick(((inductor, "_settings", without("cpp_wrapper", "size_asserts")),)),
    "small products as loops": Trick(((decompositions, "SMALL_PRODUCT", 0),)),
    "large products by oneDNN": Trick(((large_products, "pays", lambda: False),)),
    "keys by numpy": Trick(((rng, "_plain", lambda x: False),)),
}
ON_GPU = {
    "captured steps": Trick(((program, "record", lambda *_: None),)),
    "blocks side by side": Trick(((program, "new_stream", torch.cuda.current_stream),)),
    "thin products written out": Trick(
        (
            (decompositions, "THIN", 0),
            (inductor, "_settings", without("unroll_reductions_threshold")),
        )
    ),
    "updates launched together": Trick(((inductor, "compiled_apart", lambda *_, **__: None),)),
    "bias and rectifier in the product": Trick(((inductor, "fuse_epilogues", lambda _: 0),)),
    "both of these": Trick(
        (
            (inductor, "compiled_apart", lambda *_, **__: None),
            (inductor, "fuse_epilogues", lambda _: 0),
        )
    ),
    "programs of fixed shapes": Trick(
        ((Programs, "round", lambda *_, **__: None),), engine=Vectorised
    ),
    "captured evaluation": Trick(((evaluation, "MAX_CAPTURED", 0),), evaluation=True),
}
UNCOMPILED = {
    "nothing": Trick(),
    "finished clients set aside": Trick(((vectorised, "WASTE", 1e9),)),
    "keys by numpy": Trick(((rng, "_plain", lambda x: False),)),
    "one client at a time instead": Trick(engine=Sequential),
}
ONE_BY_ONE = {
    "nothing": Trick(),
    "a client per thread": Trick(((sequential, "_all_clients", all_threads_a_client),)),
    "plain autograd": Trick(((Task, "plain", lambda self: self),)),
    "vectorised instead": Trick(engine=Vectorised),
}
OF_CONVOLUTIONS = {
    "nothing": Trick(),
    "compiled steps": Trick(engine=Sequential),
    "a client a block": Trick(((CohortRound, "convolutional", False),)),
    "images as they are": Trick(((inductor, "_settings", without("layout_optimization")),)),
    "a worker has one thread": Trick(((program, "workers", with_all_threads),)),
    "both, and their threads": Trick(
        (
            (CohortRound, "convolutional", False),
            (inductor, "_settings", without("layout_optimization")),
            (program, "workers", with_all_threads),
        )
    ),
}


def settings(case: Case, device: str) -> list[tuple[str, Callable[[], Any], dict[str, Trick]]]:
    """The engines that train such a case, and their tricks."""
    if device == "cuda":
        return [("compiled", partial(Vectorised, compiled=True), {**COMMON, **ON_GPU})]
    if case.name in CONVOLUTIONS:
        return [
            ("compiled", partial(Vectorised, compiled=True), OF_CONVOLUTIONS),
            ("sequential", Sequential, ONE_BY_ONE),
        ]
    return [
        ("compiled", partial(Vectorised, compiled=True), {**COMMON, **ON_CPU}),
        ("vectorised", Vectorised, UNCOMPILED),
    ]


def measure(
    case: Case,
    device: torch.device,
    turns: int,
    only: list[str] | None = None,
    beside: Path | None = None,
) -> Iterator[dict[str, Any]]:
    module = models.build(case.model, input_shape=case.input_shape, classes=case.classes)
    task = Task(module.to(device))
    fed = bench.data(replace(case, clients=case.clients * OF))
    if case.name.startswith("ragged"):
        sizes = (
            (case.examples * torch.linspace(1, 0.05, case.clients * OF) ** 2).long().clamp(min=3)
        )
        order = rng.permutation(rng.key(0), case.clients * OF)
        fed = replace(fed, train=from_counts(torch.arange(int(sizes.sum())), sizes[order]))
    fed = fed.to(device)
    method = fedavg(lr=bench.RATE, batch_size=case.batch_size, momentum=case.momentum)
    plan = as_plan(method)
    for engine, build, tricks in settings(case, device.type):
        rounds: dict[str, Callable[[], Any]] = {}
        evaluations: dict[str, Callable[[], Any]] = {}
        end, first = None, {}
        chosen = {k: v for k, v in tricks.items() if not only or k in only}
        for name, trick in {"on": Trick(), **chosen}.items():
            made = (trick.engine or build)()
            training = Training(plan, task, fed, made, Fixed(case.clients), 10**6, 1)
            progress = training.begin(task.params)
            whole = partial(training.one_round, progress)
            if trick.evaluation:
                evaluations[name] = evaluating(case, task, fed, made)
                continue
            rounds[name] = whole
            with trick.off():
                began = time.perf_counter()
                whole()
                synchronise(device)
                first[name] = time.perf_counter() - began
                mine = progress.server["params"]
            end = end or mine
            apart = max(float((mine[k] - end[k]).abs().max()) for k in end)
            if not apart <= TOLERANCE:
                print(f"{case.name}: without {name} the model ends {apart:.1e} from the others")
        evaluations["on"] = evaluating(case, task, fed, build())
        for what, measured in ((engine, rounds), ("evaluation", evaluations)):
            if len(measured) > 1:
                with quiet(beside):
                    yield from compare(case, what, measured, tricks, turns, device, first)


def evaluating(case: Case, task: Task, fed: Any, engine: Any) -> Callable[[], Any]:
    stacked = tree.map(lambda p: p.expand(case.clients, *p.shape).contiguous(), task.params)
    rows, _ = padded_rows(fed.train, torch.arange(case.clients, device=fed.x.device))
    return lambda: engine.evaluate(task.example_metrics, stacked, fed.x, fed.y, rows)


def compare(
    case: Case,
    engine: str,
    measured: dict[str, Callable[[], Any]],
    tricks: dict[str, Trick],
    turns: int,
    device: torch.device,
    first: dict[str, float],
) -> Iterator[dict[str, Any]]:
    times: dict[str, list[float]] = {name: [] for name in measured}
    in_a_row, start = 1, time.monotonic()
    for turn in range(-2, turns):
        if turn >= 5 and time.monotonic() - start > SECONDS:
            break
        for name, one in measured.items():
            with tricks[name].off() if name in tricks else nullcontext():
                one()  # the first after another variant finds nothing in the caches
                synchronise(device)
                began = time.perf_counter()
                for _ in range(in_a_row):
                    one()
                synchronise(device)
                times[name].append((time.perf_counter() - began) / in_a_row)
        if turn == -1:
            in_a_row = max(1, min(20, round(0.04 / times["on"][-1])))
            times = {name: [] for name in measured}
    for name in measured:
        if name == "on":
            continue
        ratios = sorted(off / on for off, on in zip(times[name], times["on"], strict=True))
        yield {
            "case": case.name, "device": device.type, "engine": engine, "trick": name,
            "on_ms": 1e3 * statistics.median(times["on"]),
            "off_ms": 1e3 * statistics.median(times[name]),
            "ratio": statistics.median(ratios),
            "quarter": ratios[len(ratios) // 4], "three_quarters": ratios[-1 - len(ratios) // 4],
            "first_s": first.get(name), "on_first_s": first.get("on"),
        }  # fmt: skip


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def report(rows: list[dict[str, Any]]) -> Iterator[str]:
    for device in ("cpu", "cuda"):
        own = [row for row in rows if row["device"] == device]
        for engine in dict.fromkeys(row["engine"] for row in own):
            its = [row for row in own if row["engine"] == engine]
            cases = list(dict.fromkeys(row["case"] for row in its))
            yield f"{device}, {engine}: off / on (quarters); with all tricks a round takes, in ms:"
            whole = {row["case"]: row["on_ms"] for row in its}
            yield f"{'':36}" + "".join(f"{case:>22}" for case in cases)
            yield f"{'all on, ms':36}" + "".join(f"{whole[case]:>22.2f}" for case in cases)
            for trick in dict.fromkeys(row["trick"] for row in its):
                found = {row["case"]: row for row in its if row["trick"] == trick}
                cells = [cell(found[case]) if case in found else "-" for case in cases]
                yield f"{trick:36}" + "".join(f"{text:>22}" for text in cells)
            yield ""


def cell(row: dict[str, Any]) -> str:
    return f"{row['ratio']:.2f} ({row['quarter']:.2f}-{row['three_quarters']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cases", nargs="+", help="names of the cases")
    parser.add_argument("--tricks", nargs="+", help="names of the tricks, of all there are")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--beside", type=Path, metavar="DIR", help="of process groups to stop meanwhile (quiet.py)"
    )
    parser.add_argument("--report", nargs="+", type=Path, help="print the table of these files")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if options.report:
        for path in options.report:
            rows += json.loads(path.read_text())["rows"]
    else:
        torch.set_num_threads(options.threads)
        inductor._known_by = lambda *_: None  # each variant is compiled by itself
        device = torch.device(options.device)
        for case in GPU if device.type == "cuda" else CPU:
            if not options.cases or case.name in options.cases:
                rows += measure(case, device, options.turns, options.tricks, options.beside)
                if options.json:
                    card = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
                    about = {"device": card, "torch": torch.__version__, "cores": os.cpu_count()}
                    options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    print("\n".join(report(rows)))


if __name__ == "__main__":
    main()
