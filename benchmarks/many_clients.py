"""``glocal.fit`` with more clients' models than fit memory, killed and resumed to the same bits.

    python benchmarks/many_clients.py                        10,000 clients, about 30 GB of disk
    python benchmarks/many_clients.py --clients 200 --sampled 20

Every client keeps a personal model (ditto) of 633 thousand parameters, 784-512-256-256-128-10, and
has 8 examples. The local baseline (one learning rate, one epoch), two rounds and the evaluation of
all models are part of the run; with ``--adapt`` fine-tuning is too. States and the baseline's
models are on disk.

First nobody disturbs the run. Then another is killed (SIGKILL): in the baseline, in a round, as a
checkpoint is written, after the last round, and at random moments; it is resumed each time. All
rows of clients, all states, all models of the baseline and the server's model must have the same
bytes. *Resident* is the process's own memory at its peak; what the system caches of files comes on
top and is dropped when anybody needs the memory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from disk import METHOD, MODEL, data, machine

EXAMPLES = 8
POINTS = ("alone", "ditto", "checkpoint", "evaluation", "adapting")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--sampled", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1, help="of the local baseline")
    parser.add_argument("--adapt", action="store_true", help="fine-tune every client's model too")
    parser.add_argument("--kills", type=int, default=3, help="at random moments")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--die", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        child(chosen)
        return
    size = 632_970 * 4 * chosen.clients / 1e9
    print(
        f"{chosen.clients:,} clients, {chosen.sampled} a round, {chosen.rounds} rounds: "
        f"{size:.1f} GB of models; the machine has {machine('MemTotal') / 1e9:.1f} GB of memory.",
        flush=True,
    )
    folder = Path(tempfile.mkdtemp(dir=chosen.folder))
    try:
        began = time.monotonic()
        whole = run(chosen, folder)
        length = time.monotonic() - began
        print(f"undisturbed: {length:.0f} s, {told(whole)}", flush=True)
        shutil.rmtree(folder)
        again, kills = killed(chosen, folder, length)
        print(f"killed {kills} times and resumed: {told(again)}", flush=True)
        for name, value in whole["digests"].items():
            print(f"  {name}: {value[:16]}, {again['digests'][name][:16]} after kills")
        if whole["digests"] != again["digests"]:
            sys.exit("THE TWO DIFFER")
        print("the same to the bit")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def told(found: dict[str, Any]) -> str:
    return (
        f"resident at most {found['resident'] / 1e9:.1f} GB, on disk {found['disk'] / 1e9:.1f} GB; "
        f"mean accuracy {found['mean']:.4f}, of the baseline {found['local_mean']:.4f}"
    )


def command(chosen: argparse.Namespace, folder: Path, die: str = "") -> list[str]:
    names = ("clients", "sampled", "rounds", "epochs")
    sizes = [f"--{name}={getattr(chosen, name)}" for name in names]
    more = ["--adapt"] if chosen.adapt else []
    return [sys.executable, __file__, *sizes, *more, f"--child={folder}", f"--die={die}"]


def run(chosen: argparse.Namespace, folder: Path) -> dict[str, Any]:
    done = subprocess.run(command(chosen, folder), stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def killed(chosen: argparse.Namespace, folder: Path, length: float) -> tuple[dict[str, Any], int]:
    """Kill the run at each point and at random moments, and let it end."""
    draw, kills = random.Random(chosen.seed), 0
    for point in POINTS if chosen.adapt else POINTS[:-1]:
        code = subprocess.run(command(chosen, folder, point), stdout=subprocess.PIPE).returncode
        print(f"  killed in {point}: {signal.Signals(-code).name}, {used(folder)}", flush=True)
        kills += 1
    for _ in range(chosen.kills):
        process = subprocess.Popen(command(chosen, folder), stdout=subprocess.PIPE, text=True)
        seconds = draw.uniform(0, length / 2)
        try:
            out, _ = process.communicate(timeout=seconds)
            return json.loads(out), kills
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            print(f"  killed after {seconds:.0f} s, {used(folder)}", flush=True)
    return run(chosen, folder), kills


def child(chosen: argparse.Namespace) -> None:
    """The run itself; ``die`` says where it kills itself."""
    die = chosen.die
    import glocal
    from glocal.experiment import repeat

    def kill(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def report(what: str, done: int, total: int) -> None:
        """Told before a checkpoint of what is done is written."""
        if die and what.endswith(die) and done * 3 > total:
            kill()
        if die == "checkpoint" and what == "ditto":
            Path.replace = kill
        if die == "evaluation" and what == "ditto" and done == total:
            repeat.__dict__["outcomes"] = kill

    found = glocal.fit(
        METHOD,
        data(chosen.clients, EXAMPLES),
        model=MODEL,
        rounds=chosen.rounds,
        sampled=chosen.sampled,
        states="disk",
        baseline=f"local(lr=0.05, max_epochs={chosen.epochs})",
        adapt="fine-tune(lr=0.05, max_epochs=1)" if chosen.adapt else None,
        checkpoints=chosen.child,
        progress=report,
        name="ditto",
    )
    stores = {"states": found.repeats[0].on_disk, "baseline": found.baseline[0].on_disk}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {
        "digests": {
            "clients": digest([json.dumps(list(found.clients), default=str).encode()]),
            "model": digest(leaf.numpy().tobytes() for leaf in found.model.values()),
            **{name: digest(rows(store)) for name, store in stores.items()},
        },
        "resident": peak,
        "disk": size_of(chosen.child),
        **{name: found.summary[name] for name in ("mean", "local_mean")},
    }
    print(json.dumps(figures))


def rows(store: Any) -> Any:
    """The bytes of a store, some clients at a time."""
    for ids in store.seen.nonzero().flatten().split(100):
        yield ids.numpy().tobytes()
        for leaf in _leaves(store.rows_of(ids)):
            yield leaf.numpy().tobytes()


def _leaves(state: dict[str, Any]) -> Any:
    for _, value in sorted(state.items()):
        yield from _leaves(value) if isinstance(value, dict) else (value,)


def digest(parts: Any) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


def size_of(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def used(folder: Path) -> str:
    return f"{size_of(folder) / 1e9:.1f} GB on disk"


if __name__ == "__main__":
    main()
