"""One round of local training on a GPU: a plain PyTorch loop against glocal, and the floor.

python benchmarks/gpu.py --json out.json            all cases, medians of 5 interleaved rounds
python benchmarks/gpu.py --only mlp-10 --repeats 3
python benchmarks/gpu.py --only mlp-100 --profile   and where the compiled round's time goes
python benchmarks/gpu.py --side-by-side             compile all cases at once, and time one by one
python benchmarks/gpu.py --beside DIR               stop the programs entered there while timing

The *floor* is the time in which the card could move the bytes, or do the arithmetic, that the round
cannot do without, at the rates measured in the same run. Bytes: in every step each client's weights
are read forward and backward, its gradients written and read, its momentum and its weights read and
written: eight times the model. Arithmetic: what torch counts for forward and backward.

Everybody trains the same cohort on the same mini-batches with SGD and momentum, and must end at the
same loss (to 1e-4) and the same parameters (to 1e-3). All compute in full single precision, the
loop and the check too; the same compiled round in TF32 and in bfloat16 is timed beside them, and
the compiled round with all convolutions grouped, as vmap makes them (*grouped*). Where ends are
farther apart than that, the loop is run in double precision too: rounding takes everybody about as
far from there.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import torch
from torch.utils.flop_counter import FlopCounterMode

from glocal import engines
from glocal.core import rng, tree
from glocal.engines.base import convolutional, padded_rows
from glocal.nn import client_convolutions, models, precision
from glocal.nn.losses import cross_entropy
from glocal.nn.task import Task
from glocal.studies import bench
from glocal.studies.bench import Case
from quiet import enter, quiet, wake

Worker: TypeAlias = "subprocess.Popen[str]"

CASES = (
    Case("mlp-100", "mlp(512, 256, 256, 128)", (784,), 100, 600, 10, momentum=0.9),
    Case("mlp-10", "mlp(512, 256, 256, 128)", (784,), 10, 600, 10, momentum=0.9),
    Case("lenet-100", "lenet", (3, 32, 32), 100, 500, 50, momentum=0.9),
    Case("cnn-100", "cnn", (3, 32, 32), 100, 400, 10, momentum=0.9),
    Case("resnet18-20", "resnet18", (3, 32, 32), 20, 200, 20, momentum=0.9),
    Case("resnet10-20", "resnet10", (3, 32, 32), 20, 200, 20, momentum=0.9),
    Case("vgg-20", "vgg", (3, 32, 32), 20, 200, 20, momentum=0.9),
    Case("mobilenet-20", "mobilenet", (3, 32, 32), 20, 200, 20, momentum=0.9),
)
TOLERANCE = 1e-3
"""How far apart parameters may end: with momentum, rounding grows over tens of steps."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--loop-repeats", type=int, default=3, help="of the loop, which is slow")
    parser.add_argument("--only", nargs="+", help="names of the cases to run")
    parser.add_argument("--skip", nargs="+", default=[], help="ways not to time: grouped, bf16 …")
    parser.add_argument("--profile", action="store_true", help="print the longest kernels")
    parser.add_argument("--device", default="cuda", help="cpu: to try the script out")
    parser.add_argument(
        "--side-by-side", action="store_true", help="compile cases in processes, time them in turns"
    )
    parser.add_argument(
        "--beside", type=Path, metavar="DIR", help="of process groups to stop meanwhile (quiet.py)"
    )
    parser.add_argument("--wait", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    device = torch.device(options.device)
    cases = [case for case in CASES if not options.only or case.name in options.only]
    if options.wait:
        print(json.dumps(in_turn(cases[0], device, options)), flush=True)
        return
    if not cases:
        parser.error(f"no case has such a name: {', '.join(case.name for case in CASES)}")
    if options.side_by_side:
        with tempfile.TemporaryDirectory() as folder:
            options.beside = options.beside or Path(folder)
            several = [worker(case, options) for case in cases]
            try:
                in_order(cases, device, options, several)
            finally:
                for each in several:
                    with suppress(ProcessLookupError):
                        os.killpg(each.pid, signal.SIGKILL)
                wake(options.beside)  # whom one of them had stopped
        return
    in_order(cases, device, options, [])


def in_order(
    cases: Sequence[Case], device: torch.device, options: Any, workers: Sequence[Worker]
) -> None:
    """Measure one case after another, here or by its worker, and tell."""
    with quiet(options.beside):
        rates = {"bytes": bandwidth(device), "operations": arithmetic(device)}
    card = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(
        f"{card}, torch {torch.__version__}: {rates['bytes'] / 1e12:.2f} TB/s copied, "
        f"{rates['operations'] / 1e12:.1f} TFLOP/s in single precision",
        flush=True,
    )
    results = []
    for i, case in enumerate(cases):
        if workers:
            found = ended(workers[i], rates)
        else:
            prepared = Prepared.of(case, device, options.skip)
            with quiet(options.beside):
                found = prepared.measured(rates, options)
        if found is None:
            print(f"{case.name}: failed", flush=True)
            if workers:
                wake(options.beside)
            continue
        results.append(found)
        print(line(found), flush=True)
        if options.json:
            about = {"card": card, "torch": torch.__version__, "side_by_side": options.side_by_side}
            whole = {**about, **rates, "cases": results}
            options.json.write_text(json.dumps(whole, indent=2) + "\n")
        if "kernels" in found:
            print("\n".join(found["kernels"]), flush=True)


def worker(case: Case, options: Any) -> Worker:
    """A process that prepares a case, and waits; it stands still while others measure."""
    words = [sys.executable, __file__, "--wait", "--only", case.name, "--device", options.device]
    words += ["--repeats", str(options.repeats), "--loop-repeats", str(options.loop_repeats)]
    words += ["--beside", str(options.beside)]
    words += ["--skip", *options.skip] if options.skip else []
    words += ["--profile"] if options.profile else []
    few = {"TORCHINDUCTOR_COMPILE_THREADS": "4", **os.environ}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    begun = subprocess.Popen(words, text=True, env=few, start_new_session=True, **pipes)
    enter(options.beside, begun.pid)
    return begun


def in_turn(case: Case, device: torch.device, options: Any) -> dict[str, Any]:
    """A worker's half: prepare, wait for the card's rates, measure."""
    prepared = Prepared.of(case, device, options.skip)
    rates = json.loads(sys.stdin.readline())
    with quiet(options.beside):
        return prepared.measured(rates, options)


def ended(process: Worker, rates: dict[str, float]) -> dict[str, Any] | None:
    """What a worker measures once it is ready; None: it has failed."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(rates) + "\n")
        process.stdin.close()
    except BrokenPipeError:
        return None
    told = process.stdout.read().strip().splitlines()
    process.wait()
    return json.loads(told[-1]) if told and process.returncode == 0 else None


def line(found: dict[str, Any]) -> str:
    """A case's figures as text."""
    ways = ", ".join(
        f"{way} {found[f'{way}_ms']:.1f} ms ({found['loop_ms'] / found[f'{way}_ms']:.0f}x, "
        f"{100 * found['floor_ms'] / found[f'{way}_ms']:.0f} % of the floor's speed, "
        f"ready after {found[f'{way}_first_s']:.1f} s)"
        for way in ("vectorised", "compiled", "grouped", "tf32", "bf16")
        if f"{way}_ms" in found
    )
    same = found["not_same"] or f"parameters at most {found['difference']:.1e} apart"
    return (
        f"{found['name']}: loop {found['loop_ms']:.0f} ms, {ways}; floor {found['floor_ms']:.1f} "
        f"ms by {found['floor_by']}; {same}; evaluation on as many "
        f"examples {found['judging_called_ms']:.1f} ms, captured {found['judging_captured_ms']:.1f}"
    )


@dataclass
class Prepared:
    """A case whose contestants have run twice: their results are compared, and all is compiled."""

    case: Case
    task: Task
    fed: Any
    device: torch.device
    rounds: dict[str, bench.Round]
    found: dict[str, Any]

    @classmethod
    def of(cls, case: Case, device: torch.device, skipped: Sequence[str] = ()) -> Prepared:
        """Everybody's first rounds."""
        module = models.build(case.model, input_shape=case.input_shape, classes=case.classes)
        module = module.to(device)
        task, fed, key = Task(module), bench.data(case).to(device), rng.key(1, device)
        make = {
            "loop": lambda: bench.loop_round(case, module, fed, key),
            "vectorised": lambda: engine_round(case, task, fed, key, "vectorised"),
            "compiled": lambda: engine_round(case, task, fed, key, "compiled"),
        }
        if convolutional(task):
            make["grouped"] = lambda: grouped(engine_round(case, task, fed, key, "compiled"))
        make = {who: one for who, one in make.items() if who not in skipped}
        losses: dict[str, float] = {}
        difference, not_same = math.nan, ""
        with precision.arithmetic("single"):
            ends = {who: one()() for who, one in make.items()}
            try:
                losses, difference = bench.same_work(case, task, fed, ends, TOLERANCE)
            except RuntimeError as error:  # said beside the times
                not_same = f"{error} {from_double(case, module, fed, key, ends)}"
        for lower in ("tf32", "bf16"):
            if lower not in skipped:
                lowered = Task(module, precision=lower)
                make[lower] = partial(engine_round, case, lowered, fed, key, "compiled")
        rounds = {who: one() for who, one in make.items()}
        with precision.arithmetic("single"):  # of the loop: engines see to it themselves
            first = {who: timed(one, device) for who, one in rounds.items()}
        found = {
            "name": case.name,
            "case": str(case),
            "parameters": sum(p.numel() for p in module.parameters()),
            **{f"{who}_first_s": seconds for who, seconds in first.items()},
            **{f"loss_{who}": loss for who, loss in losses.items()},
            "difference": difference,
            "not_same": not_same,
        }
        return cls(case, task, fed, device, rounds, found)

    def measured(self, rates: dict[str, float], options: Any) -> dict[str, Any]:
        """What was found, and the medians of rounds that take turns."""
        repeats, loop_repeats = options.repeats, options.loop_repeats
        times: dict[str, list[float]] = {who: [] for who in self.rounds}
        with precision.arithmetic("single"):
            for r in range(max(repeats, loop_repeats)):
                for who, one in self.rounds.items():
                    if r < (loop_repeats if who == "loop" else repeats):
                        times[who].append(timed(one, self.device))
            compiled = self.rounds.get("compiled") if options.profile else None
            kernels = profile(compiled, self.device) if compiled else []
        cuda = self.device.type == "cuda"
        return {
            **self.found,
            **({"kernels": kernels} if kernels else {}),
            **{f"{who}_ms": 1e3 * statistics.median(each) for who, each in times.items()},
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0,
            **evaluation_times(self.case, self.task, self.fed, repeats),
            **floor(self.case, self.task, self.fed, rates),
        }


def from_double(case: Case, module: Any, fed: Any, key: Any, ends: dict[str, Any]) -> str:
    """How far everybody's parameters are from the loop's in double precision."""
    wide = replace(fed, x=fed.x.double())
    exact = bench.loop_round(case, copy.deepcopy(module).double(), wide, key)()
    apart = {
        who: max(float((params[k].double() - v).abs().max()) for k, v in exact.items())
        for who, params in ends.items()
    }
    told = ", ".join(f"{who} {gap:.1e}" for who, gap in apart.items())
    return f"Parameters' largest distance from the loop in double precision: {told}."


def grouped(one: bench.Round) -> bench.Round:
    """The same round with all convolutions of different clients' kernels as grouped ones."""

    def unchanged() -> Any:
        with patch.object(client_convolutions, "DEVICES", frozenset()):
            return one()

    return unchanged


def evaluation_times(case: Case, task: Task, fed: Any, repeats: int) -> dict[str, float]:
    """Milliseconds for a look at every client's model on all its examples."""
    device = fed.x.device
    stacked = tree.map(lambda p: p.expand(case.clients, *p.shape), task.params)
    rows, _ = padded_rows(fed.train, torch.arange(case.clients, device=device))

    def called() -> None:  # what an engine looks at for the first time is not captured
        engines.Vectorised().evaluate(task.example_metrics, stacked, fed.x, fed.y, rows)

    engine = engines.Vectorised()

    def captured() -> None:
        engine.evaluate(task.example_metrics, stacked, fed.x, fed.y, rows)

    found = {}
    for name, one in (("called", called), ("captured", captured)):
        for _ in range(2):
            one()
        each = [timed(one, device) for _ in range(repeats)]
        found[f"judging_{name}_ms"] = 1e3 * statistics.median(each)
    return found


def profile(one: bench.Round, device: torch.device) -> list[str]:
    """The kernels that a round spends its time in, in milliseconds."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watched

    kind = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    with watched(activities=[kind]) as seen:
        timed(one, device)
    longest = sorted(seen.key_averages(), key=lambda e: -e.self_device_time_total)[:15]
    return [
        f"  {e.self_device_time_total / 1e3:8.2f} ms {e.count:6d} × {e.key[:90]}" for e in longest
    ]


def engine_round(case: Case, task: Task, fed: Any, key: Any, name: str) -> bench.Round:
    """A round with an engine of its own, so that what it keeps is its own."""
    engine = engines.resolve(name, task, fed.x.device)
    return bench.engine_round(case, task, fed, key, engine)


def floor(case: Case, task: Task, fed: Any, rates: dict[str, float]) -> dict[str, Any]:
    """What bounds the round, and the time that takes."""
    steps = -(-case.examples // case.batch_size)
    params = {k: v.requires_grad_() for k, v in task.params.items()}
    x, y = fed.x[: case.batch_size], fed.y[: case.batch_size]
    with FlopCounterMode(display=False) as counter:
        cross_entropy(task.predict(params, x), y).mean().backward()
    operations = counter.get_total_flops() * steps * case.clients
    moved = 8 * 4 * sum(p.numel() for p in params.values()) * steps * case.clients
    seconds = {"bytes": moved / rates["bytes"], "operations": operations / rates["operations"]}
    by = max(seconds, key=lambda k: seconds[k])
    return {"floor_ms": 1e3 * seconds[by], "floor_by": by, "moved": moved, "flops": operations}


def timed(one: Callable[[], Any], device: torch.device) -> float:
    """Seconds, until the device is done."""
    synchronise(device)
    began = time.perf_counter()
    one()
    synchronise(device)
    return time.perf_counter() - began


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def bandwidth(device: torch.device) -> float:
    """Bytes a second in a large copy, read and written counted."""
    big = torch.zeros((1 << 30 if device.type == "cuda" else 1 << 24) // 4, device=device)
    other = torch.empty_like(big)
    times = [timed(lambda: other.copy_(big), device) for _ in range(20)]
    return 2 * big.nbytes / statistics.median(times)


def arithmetic(device: torch.device) -> float:
    """Operations a second in a large product of single precision."""
    n = 8192 if device.type == "cuda" else 512
    a = torch.randn(n, n, device=device)
    times = [timed(lambda: a @ a, device) for _ in range(10)]
    return 2 * n**3 / statistics.median(times)


if __name__ == "__main__":
    main()
