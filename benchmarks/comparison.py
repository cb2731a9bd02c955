"""What a whole comparison takes, as ``glocal compare`` comes: 1, 3 and 5 repeats.

    python benchmarks/comparison.py                  on a CPU, as many processes as it has cores
    python benchmarks/comparison.py --device cuda
    python benchmarks/comparison.py --keep           and in comparison.txt beside this

local, fedavg, fedprox and ditto on digits, 20 clients, 50 rounds, both baselines, tuned. Every
comparison is a process of its own, from its start to the table: first with an empty cache of the
compiler (``TORCHINDUCTOR_CACHE_DIR``), as on a new machine, then with what that left. Seconds of
the clock, and of all processors together in brackets. Needs torch and numpy, and for the best alone
scikit-learn.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

COMPARED = """
import sys, glocal
from glocal.experiment.config import DEFAULT_COMPARISON
if __name__ == "__main__":
    settings = {"repeats": int(sys.argv[1]), "device": sys.argv[2], "jobs": 0}
    print(glocal.compare(DEFAULT_COMPARISON, progress=False, **settings))
"""


def seconds(repeats: int, device: str, cache: str) -> tuple[float, float]:
    """Of the clock, and of all processors."""
    began, before = time.perf_counter(), os.times()
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", COMPARED, str(repeats), device],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = os.times()
    spent = after.children_user + after.children_system
    return time.perf_counter() - began, spent - before.children_user - before.children_system


def lines(device: str, counts: list[int], times: int) -> list[str]:
    """Time all cases; a table."""
    where = f"{platform.machine()}, {os.cpu_count()} cores"
    if device != "cpu":
        import torch

        where = torch.cuda.get_device_name()
    made = [
        f"{where}, load {os.getloadavg()[0]:.1f} at the start",
        f"python benchmarks/comparison.py --device {device}",
        f"{'repeats':>8}{'empty cache':>20}" + f"{'again':>20}" * (times - 1),
    ]
    for repeats in counts:
        with tempfile.TemporaryDirectory() as cache:
            each = [seconds(repeats, device, cache) for _ in range(times)]
        made.append(f"{repeats:>8}" + "".join(f"{a:>11.1f} ({b:>5.1f})" for a, b in each))
    return made


def main() -> None:
    """Time and print, and keep where that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, nargs="+", default=[1, 3, 5])
    parser.add_argument("--times", type=int, default=2, help="comparisons with one cache")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    text = "\n".join(lines(given.device, given.repeats, given.times)) + "\n"
    print(text, end="")
    if given.keep:
        Path(__file__).with_suffix(".txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
