"""How a round's time and memory grow: with clients a round, with the model, with local steps.

python benchmarks/growth.py --json out.json --picture docs/pictures/growth.png
python benchmarks/growth.py --device cuda --json out.json       needs torch and numpy alone
python benchmarks/growth.py --json out.json --picture growth.png  goes on where it was cut off

glocal (engine auto) against the plain loop on the same batches, each in a process of its own, in
turns; medians. On a CPU the loop has the better of one thread and all. Memory is what the process
(on a GPU: PyTorch there) grew by at its peak beyond the data.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from glocal.studies.bench import TOLERANCE, plain_loop
from peers import nets, ours
from peers.cases import Case, drawn
from peers.harness import machine
from peers.work import Arrays, Work

SMALL = Case("clients", "MLP 64-32-10", "mlp(32)", (64,), 10, 10, 20, 5)
LARGE = Case("steps", "MLP 784-200-200-10", "mlp(200, 200)", (784,), 10, 10, 100, 10)
AXES: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "clients": ("clients a round", "MLP 64-32-10, 20 examples each, batch 5",
                (10, 30, 100, 300, 1000)),
    "size": ("parameters", "MLPs on 784 inputs, 10 clients × 4 steps of 10",
             (16, 64, 200, 512, 1024)),
    "steps": ("local steps", "MLP 784-200-200-10, 10 clients, batch 10",
              (1, 4, 16, 64, 256)),
}  # fmt: skip
"""What grows: its name, what stays as it is, and the values (of ``size``: two layers' width)."""


def case(axis: str, value: int) -> Case:
    """A point of a curve."""
    if axis == "clients":
        return replace(SMALL, sampled=value, clients=value)
    if axis == "size":
        return replace(LARGE, model=f"mlp({value}, {value})", examples=40)
    return replace(LARGE, examples=value * LARGE.batch_size)


def worker(who: str, point: Case, rounds: int, device: str, pipe: Connection) -> None:
    """Train a round whenever told to; in the end, how much memory that took."""
    if who == "loop, 1 thread":
        torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        work = drawn(point, Path(folder), rounds)
    loaded_once()
    one_round, params, note = (glocal_round if who == "glocal" else loop_round)(work, device)
    before = start_counting(device)
    pipe.send({"note": note, "parameters": sum(p.size for p in work.initial)})
    for r in iter(pipe.recv, None):
        began = time.perf_counter()
        one_round(r)
        if device == "cuda":
            torch.cuda.synchronize()
        pipe.send((time.perf_counter() - began, params() if r == 0 else None))
    pipe.send(peak(device) - before)


def loaded_once() -> None:
    """What PyTorch loads at its first optimiser and step is no part of what a round takes."""
    p = torch.zeros(1, requires_grad=True)
    p.square().sum().backward()
    torch.optim.SGD([p], lr=0.1).step()


Prepared = tuple[Callable[[int], None], Callable[[], Arrays], str]
"""A round, the model as it stands, and what to say of it."""


def loop_round(work: Work, device: str) -> Prepared:
    """The plain loop, all data on the device."""
    module = nets.build(work).to(device)
    fed = ours.federation(work).to(torch.device(device))
    rows = torch.from_numpy(work.cohorts[:, :, None] * work.y.shape[1] + work.orders).to(device)

    def one_round(r: int) -> None:
        averaged = plain_loop(module, fed.x, fed.y, list(rows[r]), work.batch_size)
        module.load_state_dict(averaged)

    return one_round, lambda: nets.exported(module), ""


def glocal_round(work: Work, device: str) -> Prepared:
    """As ``glocal.fit`` runs it."""
    here, training = ours.begun(work, "auto", device)
    progress = training.begin(here.task.params)
    if here.small:
        torch.set_num_threads(1)

    def params() -> Arrays:
        return [p.detach().cpu().numpy() for p in progress.server["params"].values()]

    return lambda r: training.one_round(progress), params, training.engine.name


def start_counting(device: str) -> float:
    """What is there before the first round, in MB; the peak counts from here."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 1e6
    with contextlib.suppress(OSError):  # where the system does not let the peak be set back
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak(device: str) -> float:
    """The most there was since, in MB."""
    return torch.cuda.max_memory_allocated() / 1e6 if device == "cuda" else _status("VmHWM")


def _status(what: str) -> float:
    file = Path("/proc/self/status")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((int(x.split()[1]) / 1000 for x in lines if x.startswith(what + ":")), 0.0)


def measured(axis: str, value: int, repeats: int, device: str) -> dict[str, Any]:
    """One point: both in turns; refuses times of different work."""
    point, rounds = case(axis, value), repeats + 2
    context = multiprocessing.get_context("spawn")
    loops = ("loop, 1 thread", "loop") if device == "cpu" else ("loop",)
    pipes, about, times, ends = {}, {}, {}, {}
    for who in ("glocal", *loops):
        pipes[who], theirs = context.Pipe()
        given = (who, point, rounds, device, theirs)
        context.Process(target=worker, args=given, daemon=True).start()
        theirs.close()  # so that a worker that dies is noticed
        about[who], times[who] = pipes[who].recv(), []
    for r in range(rounds):
        for who, pipe in pipes.items():
            pipe.send(r)
            seconds, params = pipe.recv()
            times[who].append(seconds)
            ends.setdefault(who, params)
    gap = max(
        float(abs(a - b).max())
        for who in loops
        for a, b in zip(ends["glocal"], ends[who], strict=True)
    )
    if not gap <= TOLERANCE:
        raise SystemExit(f"{axis} {value}: parameters end {gap:.1e} apart: not the same work.")
    memory = {}
    for who, pipe in pipes.items():
        pipe.send(None)
        memory[who] = pipe.recv()
    ms = {who: 1e3 * statistics.median(t[2:]) for who, t in times.items()}
    loop = min(loops, key=lambda who: ms[who])
    return {
        "axis": axis,
        "given": value,
        "value": about["glocal"]["parameters"] if axis == "size" else value,
        "engine": about["glocal"]["note"],
        "loop_ms": ms[loop],
        "glocal_ms": ms["glocal"],
        "loop_mb": memory[loop],
        "glocal_mb": memory["glocal"],
        "first_s": times["glocal"][0],
    }


HEADER = ("what grows", "value", "loop ms", "glocal ms", "loop / glocal", "loop MB", "glocal MB",
          "engine")  # fmt: skip


def row(p: dict[str, Any]) -> tuple[str, ...]:
    """A point as text, under :data:`HEADER`."""
    ratio = p["loop_ms"] / p["glocal_ms"]
    numbers = (p["loop_ms"], p["glocal_ms"], ratio)
    memory = (f"{p[k]:.0f}" for k in ("loop_mb", "glocal_mb"))
    return (AXES[p["axis"]][0], f"{p['value']:,}", *map(short, numbers), *memory, p["engine"])


def short(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def draw(found: dict[str, Any], file: Path) -> None:
    """Time above, memory below; one column for each thing that grows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    axes = [name for name in AXES if any(p["axis"] == name for p in found["points"])]
    figure, grid = plt.subplots(2, len(axes), figsize=(3.6 * len(axes), 6), squeeze=False)
    for column, name in enumerate(axes):
        points = [p for p in found["points"] if p["axis"] == name]
        title, fixed, _ = AXES[name]
        for r, (what, unit) in enumerate((("ms", "ms a round"), ("mb", "MB at the peak"))):
            ax = grid[r][column]
            for who, label in (("loop", "plain loop"), ("glocal", "glocal")):
                values = [max(p[f"{who}_{what}"], 0.1) for p in points]
                ax.plot([p["value"] for p in points], values, marker="o", label=label)
            ax.set(xscale="log", yscale="log", xlabel=title)
            ax.grid(alpha=0.3)
            if column == 0:
                ax.set_ylabel(unit)
        grid[0][column].set_title(fixed.replace(", ", ",\n", 1), fontsize=9)
    grid[0][0].legend()
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=AXES, help="what grows")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path, help="write the points to this file, or go on with it")
    parser.add_argument("--picture", type=Path, help="draw the curves (needs matplotlib)")
    asked = parser.parse_args()
    if asked.json and asked.json.exists():
        found = json.loads(asked.json.read_text(encoding="utf-8"))
    else:
        found = {"machine": machine(), "device": asked.device, "points": []}
        if asked.device == "cuda":
            found["machine"]["gpu"] = torch.cuda.get_device_name()
    print(", ".join(f"{k} {v}" for k, v in found["machine"].items()))
    print("| " + " | ".join(HEADER) + " |", "| --- " * len(HEADER) + "|", sep="\n")
    there = {(p["axis"], p["given"]): p for p in found["points"]}
    for axis in asked.only or AXES:
        for value in AXES[axis][2]:
            point = there.get((axis, value))
            if point is None:
                point = measured(axis, value, asked.repeats, found["device"])
                found["points"].append(point)
                if asked.json:
                    asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print("| " + " | ".join(row(point)) + " |", flush=True)
    if asked.picture:
        draw(found, asked.picture)


if __name__ == "__main__":
    main()
