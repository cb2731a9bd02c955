"""Kill runs with -9 at random moments, resume them, and compare with runs nobody disturbed.

Every method is trained undisturbed once on each engine. Then, again and again, a run of it is
killed, resumed (and perhaps killed again) until it is through, and all of its files are compared
byte for byte. Half of the kills come at a random moment; the others inside the writing of a file,
at one of the calls that a write is made of.

    python benchmarks/kills.py --kills 200
    python benchmarks/kills.py --kills 60 --states disk
    python benchmarks/kills.py --kills 40 --options '--repeats 3 --tune'

With states on disk, what nobody disturbed keeps them in memory: the files must be the same even so.
Runs are children forked from a process that has
loaded everything, so that a kill costs the training it interrupts and little more.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METHODS = (
    "fedavg",
    "scaffold",
    "superfed-mm",
    "aaggff-d",
    "fedadam+dp(clip=1.0,noise=1.0)",
)
ENGINES = ("sequential", "vectorised")
FILES = (
    *("result.json", "metrics.jsonl", "final.safetensors", "clients.safetensors", "models.json"),
    "SHA256SUMS",
)
POINTS = ("half a write", "before fsync", "before rename", "after rename")


@dataclass(frozen=True)
class Case:
    """A method on an engine."""

    method: str
    engine: str
    more: str = ""
    """Further options."""

    def command(self, out: Path, states: str = "auto") -> list[str]:
        """What is typed after ``glocal``."""
        small = "--clients 30 --partition iid --model mlp(16) --rounds 6 --sampled 4 --seed 3"
        options = f"{small} --jobs 1 --checkpoint-every 1 --engine {self.engine} --out {out}"
        options += f" --states {states} {self.more}"
        if "dp(" in self.method:  # two runs with secrets of their own would not be the same
            options += " --public-noise"
        return ["run", self.method, "--baseline", "local(lr=0.1,max_epochs=3)", *options.split()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--states", default="auto", help="auto, device, host or disk")
    parser.add_argument("--options", default="", help="further options, as for glocal run")
    arguments = parser.parse_args()
    began = time.monotonic()
    kills: Counter[tuple[str, str]] = Counter()
    runs = different = 0
    with tempfile.TemporaryDirectory() as folder:
        for case, counts, same in trials(
            Path(folder), arguments.kills, arguments.seed, arguments.states, arguments.options
        ):
            runs += 1
            different += not same
            kills.update(
                {(f"{case.method}, {case.engine}", where): n for where, n in counts.items()}
            )
    names = sorted({name for name, _ in kills})
    print(f"{'killed':44}{'anywhere':>10}" + "".join(f"{p:>16}" for p in POINTS))
    for name in names:
        row = [kills[name, "anywhere"], *(kills[name, point] for point in POINTS)]
        print(f"{name:44}{row[0]:10}" + "".join(f"{n:16}" for n in row[1:]))
    print(
        f"{sum(kills.values())} kills of {runs} runs in {time.monotonic() - began:.0f} s: "
        f"{runs - different} came out as undisturbed, byte for byte; {different} did not."
    )
    return 1 if different else 0


def trials(folder: Path, kills: int, seed: int, states: str = "auto", more: str = ""):
    """Yield (case, where its run was killed and how often, whether it came out the same).

    Every case has its two kills before any has more; a run that was through before it could be
    killed is followed by another.
    """
    ready()
    draw = random.Random(seed)
    cases = [Case(method, engine, more) for method in METHODS for engine in ENGINES]
    length: dict[Case, float] = {}
    runs = done = 0
    while done < kills:
        for n, case in enumerate(cases):
            undisturbed = folder / f"undisturbed-{n}"
            if case not in length:
                start = time.monotonic()
                if ended(child(case.command(undisturbed))) != 0:
                    raise SystemExit(f"{case} could not be trained.")
                length[case] = time.monotonic() - start
            wanted = 2
            while wanted:
                runs += 1
                victim = folder / f"victim-{runs}"
                counts = killed_and_resumed(case, victim, wanted, 0.7 * length[case], draw, states)
                wanted -= counts.total()
                done += counts.total()
                yield case, counts, alike(undisturbed, victim)


def killed_and_resumed(
    case: Case, victim: Path, most: int, seconds: float, draw: random.Random, states: str = "auto"
) -> Counter[str]:
    """Kill a run up to ``most`` times and resume it until it is through; where it was killed."""
    counts: Counter[str] = Counter()
    while not (victim / "result.json").exists():
        begun = (victim / "settings.toml").exists()
        command = ["resume", str(victim)] if begun else case.command(victim, states)
        if counts.total() == most:
            if (code := ended(child(command))) != 0:
                raise SystemExit(f"{case}: 'glocal {' '.join(command)}' ended with {code}.")
            continue
        where = "anywhere" if draw.random() < 0.5 else draw.choice(POINTS)
        if where == "anywhere":
            code = killed_after(child(command), draw.uniform(0, seconds))
        else:
            code = ended(child(command, dying(where, draw.randrange(1, 9))))
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(f"{case}: 'glocal {' '.join(command)}' ended with {code}.")
        counts[where] += code != 0
    return counts


def alike(one: Path, other: Path) -> bool:
    """Whether all files of two runs have the same bytes."""
    return all(filecmp.cmp(one / f, other / f, shallow=False) for f in FILES)


def ready() -> None:
    """Load everything, and leave torch on one thread, so that children can be forked."""
    import torch

    import glocal
    import glocal.cli.app
    import glocal.cli.commands.training
    import glocal.experiment.parallel
    from glocal.experiment.config import Config

    torch.set_num_threads(1)
    # The first vectorised call loads a good part of torch.
    fed = Config(clients=30, partition="iid").federation()
    glocal.fit("fedavg", fed, model="mlp(16)", rounds=1, baseline="local(lr=0.1,max_epochs=1)")


def child(command: list[str], before: Callable[[], None] = lambda: None) -> int:
    """The process id of a ``glocal`` with this command."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        from glocal.cli import app as cli

        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        before()
        sys.argv = ["glocal", *command]
        cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    """How a child ended: its exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_after(pid: int, seconds: float) -> int:
    """How a child ended that was killed after so long, if it was still there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if (found := os.waitpid(pid, os.WNOHANG))[0]:
            return os.waitstatus_to_exitcode(found[1])
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    return ended(pid)


def dying(where: str, nth: int) -> Callable[[], None]:
    """What makes a child kill itself at the n-th time it comes to a point of writing a file."""

    def prepare() -> None:
        left = nth

        def now() -> bool:
            nonlocal left
            left -= 1
            return left == 0

        def die() -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        from glocal.core import tree_bytes

        fsync, replace, parts, raw = os.fsync, Path.replace, tree_bytes.parts, tree_bytes.raw

        def dying_fsync(file: int) -> None:
            if where == "before fsync" and now():
                die()
            fsync(file)

        def dying_replace(self: Path, target: Path) -> Path:
            if where == "before rename" and now():
                die()
            found = replace(self, target)
            if where == "after rename" and now():
                die()
            return found

        def dying_parts(*given: Any) -> Any:
            tensors = 0

            def dying_raw(leaf: Any) -> memoryview:
                nonlocal tensors
                tensors += 1
                if tensors == 4:
                    die()
                return raw(leaf)

            tree_bytes.raw = dying_raw if where == "half a write" and now() else raw
            return parts(*given)

        os.fsync, Path.replace, tree_bytes.parts = dying_fsync, dying_replace, dying_parts

    return prepare


if __name__ == "__main__":
    sys.exit(main())
