"""Clients' states on disk: many more than fit memory, and what that costs where they would fit.

python benchmarks/disk.py                           both parts
python benchmarks/disk.py --large                   10,000 clients, 25 GB of states, on disk alone
python benchmarks/disk.py --both                    2,000 clients, disk against memory

Every client keeps a personal model (ditto) of 633 thousand parameters, 784-512-256-256-128-10, and
has 20 examples: 14 to train on, in one epoch of mini-batches of 10, for each of its two models.
That is two steps a round: with more, moving states would show less. Fifty clients a round, which is
timed whole. In the second part, a training with states in
memory and one with states on disk take turns, three rounds each, and must end with the same models
to the bit.

Of memory there are two figures. *Resident* is the process's own, at its peak. *Cached* is what the
system keeps of files, which it drops when anybody needs the memory. The disk is that of TMPDIR.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import torch

import glocal
from glocal.core import rng, tree
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import runner_of
from glocal.training.loop import Training
from glocal.training.run_state import Progress

MODEL, METHOD = "mlp(512, 256, 256, 128)", "ditto(lr=0.05, epochs=1)"
EXAMPLES, FEATURES, CLASSES = 20, 784, 10
TURN = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--both", action="store_true")
    parser.add_argument("--clients", type=int, nargs=2, default=(10_000, 2_000))
    parser.add_argument("--sampled", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=10, help="after everybody has a state")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--engine", default="auto")
    chosen = parser.parse_args()
    many, some = chosen.clients
    if chosen.both or not chosen.large:
        both(some, chosen.sampled, chosen.turns, chosen.engine)
    if chosen.large or not chosen.both:
        large(many, chosen.sampled, chosen.rounds, chosen.engine)


def large(clients: int, sampled: int, rounds: int, engine: str) -> None:
    """Everybody gets a state, and then some rounds."""
    training, progress = begun(clients, sampled, "disk", engine)
    one = tree.count(training.task.params) * 4
    print(
        f"\n{clients:,} clients, {sampled} a round, {training.engine.name}: {one / 1e6:.2f} MB of "
        f"state each, {clients * one / 1e9:.1f} GB in all; the machine has "
        f"{machine('MemTotal') / 1e9:.1f} GB of memory."
    )
    began = time.perf_counter()
    fill(training, progress, sampled)
    took = time.perf_counter() - began
    print(f"everybody has a state after {took:.0f} s; {used()}", flush=True)
    times = timed(training, progress, rounds)
    print(
        f"{rounds} rounds: median {statistics.median(times):.2f} s, from {min(times):.2f} to "
        f"{max(times):.2f}; {used()}",
        flush=True,
    )


def both(clients: int, sampled: int, turns: int, engine: str) -> None:
    """Memory and disk, in turns."""
    runs = {place: begun(clients, sampled, place, engine) for place in ("device", "disk")}
    for training, progress in runs.values():
        fill(training, progress, sampled)
    found: dict[str, list[float]] = {place: [] for place in runs}
    for training, progress in runs.values():
        timed(training, progress, 2)
    for turn in range(turns):
        for place in list(runs) if turn % 2 else reversed(runs):
            found[place] += timed(*runs[place], TURN)
    medians = {place: statistics.median(times) for place, times in found.items()}
    print(
        f"\n{clients:,} clients, {sampled} a round, {runs['disk'][0].engine.name}, "
        f"{turns} turns of {TURN} rounds each, load average {os.getloadavg()[0]:.1f}:"
    )
    for place, times in found.items():
        name = "memory" if place == "device" else place
        print(f"  {name}: median {medians[place]:.3f} s, {min(times):.3f} to {max(times):.3f}")
    print(f"  disk / memory: {medians['disk'] / medians['device']:.2f}")
    everyone = torch.arange(clients)
    for ids in torch.split(everyone, 200):
        near, far = (
            progress.clients.gather(
                ids, training.make(progress, training.method(progress).client_half(training.task))
            )
            for training, progress in runs.values()
        )
        for (name, a), (_, b) in zip(tree.flatten(near), tree.flatten(far), strict=True):
            assert torch.equal(a, b), name
    print(f"  all states are the same to the bit; {used()}", flush=True)


def begun(clients: int, sampled: int, states: str, engine: str) -> tuple[Training, Progress]:
    order = Config(model=MODEL, rounds=10**6, sampled=sampled, states=states, engine=engine)
    here = setups.make(order, data(clients), 0)
    training = runner_of("method", METHOD).check(here)
    return training, training.begin(here.task.params)


def fill(training: Training, progress: Progress, sampled: int) -> None:
    """Every client gets a state of its own, without training: as many at a time as in a round."""
    local = training.method(progress).client_half(training.task)
    make = training.make(progress, local)
    for ids in torch.split(torch.arange(len(training.fed)), sampled):
        states = progress.clients.gather(ids, make)
        noise = rng.normal(rng.fold(rng.key(1), ids), (1,)).squeeze(-1)
        scale = 1 + 1e-3 * noise
        progress.clients.scatter(
            ids,
            tree.map(lambda x: x * scale.view(-1, *(1,) * (x.dim() - 1)), states),  # noqa: B023
        )


def timed(training: Training, progress: Progress, rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        training.one_round(progress)
        times.append(time.perf_counter() - began)
    return times


def data(clients: int, examples: int = EXAMPLES) -> glocal.Federation:
    n = clients * examples
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(n, FEATURES, generator=draw)
    y = torch.randint(CLASSES, (n,), generator=draw)
    return glocal.federation(x, y, clients=torch.arange(n) // examples, classes=CLASSES)


def used() -> str:
    peak = _line(Path("/proc/self/status"), "VmHWM")
    return f"resident at most {peak / 1e9:.1f} GB, cached {machine('Cached') / 1e9:.1f} GB"


def machine(what: str) -> int:
    return _line(Path("/proc/meminfo"), what)


def _line(file: Path, what: str) -> int:
    """A line of a file of the system, in bytes."""
    for line in file.read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"{what} is not known here: this needs Linux.")


if __name__ == "__main__":
    main()
