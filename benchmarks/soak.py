"""Train for many rounds with checkpoints, and print whether the process grows.

python benchmarks/soak.py                           500 rounds of each method
python benchmarks/soak.py --rounds 2000 ditto

Resident memory is read after a collection, every 50 rounds; what counts is the growth after the
first 100, when everything that is made once has been made. Each method has a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import glocal
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import Callbacks, run_seed, runner_of
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.run_state import Progress

METHODS = ("fedavg", "ditto", "scaffold")
ENGINES = ("vectorised", "sequential")
WARM, EVERY = 100, 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--model", default="mlp(64)")
    parser.add_argument("--engine", choices=ENGINES)
    chosen = parser.parse_args()
    if chosen.engine and len(chosen.methods) == 1:
        soaked(chosen.methods[0], chosen.engine, chosen.model, chosen.rounds)
        return
    for spec in chosen.methods:
        for engine in [chosen.engine] if chosen.engine else ENGINES:
            command = [sys.executable, __file__, spec, "--engine", engine, "--model", chosen.model]
            subprocess.run([*command, "--rounds", str(chosen.rounds)], check=True)


def soaked(spec: str, engine: str, model: str, rounds: int) -> None:
    """All rounds of a method, and what the process holds on the way."""
    torch.set_num_threads(1)
    seen: dict[int, int] = {}

    def look(done: Progress) -> None:
        if done.round % EVERY == 0:
            gc.collect()
            seen[done.round] = resident()

    order = Config(model=model, rounds=rounds, fraction=0.5, engine=engine, validate_every=50)
    fed = glocal.load("digits", clients=20)
    with tempfile.TemporaryDirectory() as folder:
        keeping = CheckpointPolicy(Path(folder), every=1, stop=lambda: False)
        setup = setups.make(order, fed, 0)
        run_seed(runner_of(spec, spec), setup, Callbacks(on_round=look), keeping)
    figures = ", ".join(f"{mb / 1e6:.1f}" for mb in seen.values())
    print(f"{spec}, {engine}: MB every {EVERY} rounds: {figures}")
    growth = seen[max(seen)] - seen[WARM]
    per_round = growth / max(1, max(seen) - WARM)
    print(
        f"{spec}, {engine}: rounds {WARM} to {max(seen)}: {growth / 1e6:+.2f} MB, "
        f"{per_round / 1e3:+.2f} kB a round",
        flush=True,
    )


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
