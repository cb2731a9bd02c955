"""How often is a method called better or worse off than itself? Many federations, 5 repeats each.

    python benchmarks/placebo.py                           all cases, 50 federations each
    python benchmarks/placebo.py --federations 4 --only iid
    python benchmarks/placebo.py --keep                    the table in placebo.txt beside this

Every federation of 20 clients is drawn anew: digits cut iid, by dirichlet(0.3) and into two classes
a client, as real clients too (each tested on its own test split), and synthetic examples of ten
overlapping classes with 200, 2,000 and 20,000 test examples in the pool. In each the local baseline
and fedavg are trained twice with other seeds (``glocal study placebo``), and one is set against the
other. Nobody can be better or worse off, so the shares below are wrong calls; 10 % are allowed.

The table kept was measured on x86-64 servers.

Federations are shared out to processes of one thread. What is done is kept in a file (``--done``),
and a run that was cut off goes on there.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

CASES = {
    "digits iid": "iid",
    "digits dirichlet": "dirichlet(0.3)",
    "digits classes": "classes(2)",
    "digits own splits": "dirichlet(0.3)",
    "pool 200": "iid",
    "pool 2000": "dirichlet(1.0)",
    "pool 20000": "dirichlet(1.0)",
}
METHODS = ("local(lr=0.1, max_epochs=12)", "fedavg(lr=0.1)")
QUICK = ("local(lr=0.1, max_epochs=3, batch_size=50)", "fedavg(lr=0.1, batch_size=50, epochs=1)")


def federation(case: str, seed: int, digits: str | None) -> Any:
    """The clients of a case."""
    import torch

    import glocal
    from glocal.core import rng

    if case.startswith("digits"):
        fed = glocal.load(digits or "digits", clients=20, partition=CASES[case], seed=seed)
        return replace(fed, pooled=False) if "own" in case else fed
    n = 5 * int(case.split()[1])
    draw = torch.Generator().manual_seed(rng.seed_of(rng.fold(rng.key(seed), 7)))
    centres = torch.randn(10, 16, generator=draw)
    y = torch.randint(10, (n,), generator=draw)
    x = centres[y] + 1.5 * torch.randn(n, 16, generator=draw)
    return glocal.federation(x, y, clients=20, partition=CASES[case], seed=seed)


def one(case: str, seed: int, repeats: int, digits: str | None) -> dict[str, Any]:
    """The placebo of one federation."""
    import torch

    from glocal.experiment.config import Config
    from glocal.studies.placebo import placebo

    torch.set_num_threads(1)
    began = time.perf_counter()
    fed = federation(case, seed, digits)
    large = case == "pool 20000"
    model = "mlp(32)" if case.startswith("pool") else "mlp"
    config = Config(rounds=3 if large else 10, repeats=repeats, seed=seed, model=model)
    found = placebo(QUICK if large else METHODS, fed, config)
    shares = {
        name.split("(")[0]: [shares["better"], shares["worse"]]
        for name, shares in found["methods"].items()
    }
    seconds = time.perf_counter() - began
    return {"case": case, "seed": seed, "repeats": repeats, "seconds": seconds} | shares


def lines(done: list[dict[str, Any]], repeats: int) -> Iterator[str]:
    """The table."""
    yield f"{repeats} repeats, 20 clients; called % (better, worse)"
    yield f"{'case':18} federations  {'local against itself':26} fedavg against itself"
    for case in CASES:
        rows = [d for d in done if d["case"] == case and d["repeats"] == repeats]
        if not rows:
            continue
        cells = []
        for name in ("local", "fedavg"):
            better, worse = (100 * sum(r[name][i] for r in rows) / len(rows) for i in (0, 1))
            cells.append(f"{better + worse:4.1f}  ({better:.1f}, {worse:.1f})")
        yield f"{case:18} {len(rows):11}  {cells[0]:26} {cells[1]}"


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--federations", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--digits", help="a .npz file of the digits, where scikit-learn is not")
    parser.add_argument("--done", type=Path, default=Path("build/placebo.jsonl"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    given.done.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in given.done.open()] if given.done.exists() else []
    known = {(d["case"], d["seed"], d["repeats"]) for d in done}
    wanted = [
        (case, seed, given.repeats)
        for seed in range(given.federations)
        for case in CASES
        if given.only in case and (case, seed, given.repeats) not in known
    ]
    began = time.perf_counter()
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        running = [pool.submit(one, *task, given.digits) for task in wanted]
        for future in as_completed(running):
            if future.cancelled():
                continue
            done.append(future.result())
            with given.done.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
            if time.perf_counter() - began > given.seconds:
                for other in running:
                    other.cancel()
    table = "\n".join(lines(done, given.repeats))
    print(table)
    if given.keep:
        Path(__file__).with_suffix(".txt").write_text(table + "\n")


if __name__ == "__main__":
    main()
