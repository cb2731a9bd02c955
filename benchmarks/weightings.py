"""Time and memory of one weighting step: K clients in all, up to 1,000 of them in the round.

Each case runs in a process of its own: the median of repeated steps, the bytes of the state that is
kept between rounds, and by how much the process grew at its peak. ``aaggff-s`` and ``afl`` take
everybody; ``aaggff-s`` keeps a K × K matrix and solves with it, so it stops at a thousand.

    python benchmarks/weightings.py
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import time

import torch

from glocal.core import rng, tree
from glocal.core.types import Uplink
from glocal.methods import resolve
from glocal.report.tables import table
from glocal.slots.method import Method, as_plan
from glocal.slots.weighting import Setting

CASES = [
    (spec, K)
    for spec in ("by-examples", "q-fedavg", "term", "propfair", "fedmgda", "aaggff-d")
    for K in (100, 10_000, 1_000_000)
] + [("afl", K) for K in (100, 10_000, 1_000_000)]
CASES += [("aaggff-s", K) for K in (10, 100, 1_000)]
PARAMETERS = 1_000


def step(spec: str, K: int, repeats: int) -> tuple[str, int, int, float, float, float]:
    """Milliseconds, state bytes and growth of the process for one weighting."""
    torch.set_num_threads(1)
    everybody = spec in ("afl", "aaggff-s")
    m = K if everybody else min(K, 1_000)
    method = as_plan(resolve(spec)).stages[0].method
    assert isinstance(method, Method)
    # An update takes memory of its own, which is not the weighting's: only fedmgda looks at it.
    width = PARAMETERS if spec == "fedmgda" else 1
    update = {"w": rng.normal(rng.key(0), (m, width))}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = method.weights.init(Setting(K, m / K, 1_000))
    times = []
    for t in range(repeats):
        ids = torch.arange(m) if m == K else rng.randint(rng.fold(rng.key(1), t), K, (m,)).unique()
        loss = rng.uniform(rng.fold(rng.key(2), t), (len(ids),))
        sent = {k: v[: len(ids)] for k, v in update.items()}
        uplink = Uplink(ids, torch.full((len(ids),), 20), sent, loss, {})
        began = time.perf_counter()
        p, state = method.weights.weigh(state, uplink)
        times.append(time.perf_counter() - began)
        assert bool(p.isfinite().all())
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    kept = sum(x.numel() * x.element_size() for x in tree.leaves(state)) / 2**20
    return spec, K, m, 1e3 * statistics.median(times), kept, grown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    asked = parser.parse_args()
    rows = []
    for spec, K in CASES:
        with multiprocessing.get_context("spawn").Pool(1) as alone:
            _, _, m, ms, kept, grown = alone.apply(step, (spec, K, asked.repeats))
        rows.append([spec, f"{K:,}", f"{m:,}", f"{ms:.2f}", f"{kept:.1f}", f"{grown:.0f}"])
    print(f"One weighting step, median of {asked.repeats}; one thread; double precision.\n")
    table(["weighting", "clients", "in the round", "ms", "state MiB", "peak MiB"], rows)


if __name__ == "__main__":
    main()
