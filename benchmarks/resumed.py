"""Runs that were stopped and go on in another process: the same bits as of one nobody stopped?

python benchmarks/resumed.py --device cuda          methods, precisions and models, on a GPU
python benchmarks/resumed.py --device cuda --fresh  with an empty cache of the compiler each time
python benchmarks/resumed.py --only "fedavg lenet"  one of them, on a CPU

Each case is trained by itself to the end; then again in one process, which is stopped after half of
its rounds, and in another, which takes up its checkpoint. What the server ends with and what the
clients keep are compared, bit by bit. Images and labels are drawn at random: what is learned of
them is of no interest here. Where bits differ, it is also told whether two trainings that nobody
stopped come to the same.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

import glocal
from glocal.core import tree
from glocal.core.interrupts import Stopped
from glocal.training.checkpoint import CheckpointPolicy

ROUNDS = 6


@dataclass(frozen=True)
class Case:
    """A method, a model and how precisely they compute."""

    method: str
    model: str
    precision: str
    engine: str = "compiled"

    @property
    def name(self) -> str:
        """As it is shown, and chosen."""
        return f"{self.method} {self.model} {self.precision} {self.engine}"


CASES = (
    Case("fedavg", "lenet", "single"),
    Case("fedavg", "lenet", "tf32"),
    Case("fedavg", "lenet", "bf16"),
    Case("fedavg", "lenet", "single", "vectorised"),
    Case("superfed-mm", "cnn", "single"),
    Case("ditto", "cnn", "tf32"),
    Case("fedavg", "resnet10", "tf32", "vectorised"),
    Case("fedcgan", "lenet", "single"),
    Case("superfed-mm", "mlp(200, 200)", "single"),
)


class ChildError(Exception):
    """The last line of what a child says that failed."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of cases' names")
    parser.add_argument("--at-once", type=int, default=1, help="cases in processes side by side")
    parser.add_argument(
        "--fresh", action="store_true", help="nothing that is compiled is kept, as elsewhere"
    )
    parser.add_argument("--train", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train is not None:
        print(trained(CASES[options.train], options.device, options.folder, options.until))
        return 0
    chosen = [i for i, case in enumerate(CASES) if any(part in case.name for part in options.only)]
    if not chosen:
        print(f"no case has such a name: {', '.join(case.name for case in CASES)}", file=sys.stderr)
        return 2
    different = 0
    with ThreadPoolExecutor(options.at_once) as pool:
        for i, (told, same) in zip(
            chosen,
            pool.map(partial(compared, device=options.device, fresh=options.fresh), chosen),
            strict=True,
        ):
            different += not same
            print(f"{CASES[i].name}: {told}", flush=True)
    print(f"{len(chosen) - different} of {len(chosen)} came to the same bits.")
    return 1 if different else 0


def compared(number: int, device: str, fresh: bool) -> tuple[str, bool]:
    """What became of a case, and whether it came to the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        child = partial(in_a_process, number, device, fresh)
        try:
            whole = child(Path(folder) / "whole", ROUNDS)
            stopped = child(Path(folder) / "stopped", ROUNDS // 2)
            if not stopped.startswith("stopped"):
                return f"was not stopped ({stopped})", False
            resumed = child(Path(folder) / "stopped", ROUNDS)
            if whole == resumed:
                return f"the same {resumed}", True
            again = child(Path(folder) / "again", ROUNDS)
        except ChildError as error:
            return f"failed: {error}", False
    told = "the same" if again == whole else f"not the same, {again}"
    return f"not the same, {whole} and {resumed}; again, not stopped: {told}", False


def in_a_process(number: int, device: str, fresh: bool, folder: Path, until: int) -> str:
    """The last line of what a child says that did what it was to do."""
    words = [sys.executable, __file__, "--train", str(number), "--device", device]
    words += ["--folder", str(folder), "--until", str(until)]
    with tempfile.TemporaryDirectory() as empty:
        names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR") if fresh else ()
        caches = {name: f"{empty}/{name}" for name in names}
        ended = subprocess.run(
            words, capture_output=True, text=True, check=False, env={**os.environ, **caches}
        )
    lines = (ended.stderr if ended.returncode else ended.stdout).strip().splitlines()
    if ended.returncode or not lines:
        raise ChildError(lines[-1] if lines else "it said nothing")
    return lines[-1]


def trained(case: Case, device: str, folder: Path, until: int) -> str:
    """What a training came to as a sum of its bits; or that it was stopped."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(20 * 60, 3, 32, 32, generator=draw)
    y = torch.randint(10, (len(x),), generator=draw)
    fed = glocal.federation(x, y, clients=torch.arange(len(x)) % 20, seed=0)
    asked = iter(range(1, ROUNDS + 1))
    policy = CheckpointPolicy(folder, every=1, stop=lambda: next(asked, ROUNDS) >= until < ROUNDS)
    settings = {"lr": 0.001} if case.method == "fedcgan" else {"lr": 0.05, "momentum": 0.9}
    told = ", ".join(f"{name}={value}" for name, value in settings.items())
    try:
        run = glocal.fit(
            f"{case.method}({told}, batch_size=10)",
            fed,
            model=case.model,
            rounds=ROUNDS,
            sampled=8,
            baseline="none",
            device=device,
            engine=case.engine,
            precision=case.precision,
            checkpoints=policy,
            progress=False,
        )
    except Stopped:
        return f"stopped after {until} rounds"
    whole = hashlib.sha256()
    for leaf in tree.leaves({"model": run.model, "states": run.states}):
        whole.update(leaf.cpu().contiguous().numpy().tobytes())
    return f"{whole.hexdigest()[:12]} ({run.repeats[0].engine})"


if __name__ == "__main__":
    sys.exit(main())
