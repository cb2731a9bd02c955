"""What README.md shows of ``make demo`` is what it prints.

    python tools/readme.py            run it, keep its figures in benchmarks/demo.json, show them
    python tools/readme.py --again    show again what is kept, after a change of words
    python tools/readme.py --check    run it and compare with what is kept

The block is made from the kept figures by the code that prints them, so that a test can tell
without training that its words and numbers are today's. ``--check`` allows for other processors:
words must be the same, accuracies and benefits within a point, counts of clients within two,
parameters and gradients within a fifth (tuning may take another rate or round).
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README, KEPT = ROOT / "README.md", ROOT / "benchmarks" / "demo.json"
BLOCK = re.compile(r"(<!-- demo: made by `python tools/readme.py` -->\n```\n).*?(```\n)", re.DOTALL)
MEASURED = re.compile(r"(These figures were measured on ).*?(\.\n)")

SHOWN = 3
"""Clients of which rows and sentences are shown; … stands for the others."""

TOLERANCE = {
    **dict.fromkeys(("mean", "worst10", "best10", "benefit", "same_model_benefit"), 0.01),
    **dict.fromkeys(("better_off", "worse_off", "same", "undecided"), 2),
}
"""How far a figure of a method may be from the kept one on another processor."""

SHARE = {"params_up": 0.2, "params_down": 0.2, "gradient_evaluations": 0.2}
"""The same, as a share of it."""


def run() -> dict[str, Any]:
    """Run the demo in an empty folder: its figures, where they were measured, its run folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "glocal", "compare", "--json", "result.json"]
        env = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"the demo failed: {done.stderr}")
        result = json.loads((Path(folder) / "result.json").read_bytes())
        (made,) = (Path(folder) / "runs").iterdir()
    kept = {"measured": measured(), "folder": f"runs/{made.name}", "result": result}
    if shortened(done.stdout).strip() != shortened(rendered(kept)).strip():
        sys.exit("what is printed cannot be made from the figures: rendered() has to follow.")
    return kept


def measured() -> str:
    """Where and when, in words."""
    import torch

    cpu = re.search(r"model name\s*: (\w+ \w+)", Path("/proc/cpuinfo").read_text())
    name = cpu[1] if cpu else platform.processor()
    sets = torch.backends.cpu.get_cpu_capability().replace("AVX", "AVX-")
    today = datetime.date.today()
    day = f"{today.day} {today:%B %Y}"
    version = ".".join(torch.__version__.split(".")[:2])
    cores = {1: "one", 2: "two", 4: "four"}.get(os.cpu_count() or 1, str(os.cpu_count()))
    system = f"{platform.system()}, torch {version}, {day}"
    return f"{cores} {platform.machine().replace('_', '-')} cores (an {name} with {sets}, {system})"


def rendered(kept: Mapping[str, Any]) -> str:
    """What the command prints of these figures, by the functions that print it."""
    from glocal.evaluation.summary import Table
    from glocal.report import comparison, participants

    runs: Any = {
        name: SimpleNamespace(
            summary=run["summary"],
            clients=Table(run["clients"]),
            is_baseline=run.get("baseline", False),
            trained=None if name == "local" else run,
            history=[],
        )
        for name, run in kept["result"]["methods"].items()
    }
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        comparison.show_comparison(runs)
        participants.show_participants(runs)
        print(f"Run folder: {kept['folder']}")
    return said.getvalue()


def shortened(text: str) -> str:
    """The same with the first few clients only, and … for the others."""
    return "\n".join(_some(text.strip().splitlines())) + "\n"


def _some(lines: list[str]) -> Iterator[str]:
    """Rows (``3  …``) and sentences (``3: …``, with the lines that they go on in) up to a few."""
    left_out = False
    for line in lines:
        item = re.match(r"(\d+)(:|\s\s)", line)
        ends = not line or line.startswith("Run folder")
        if item and int(item[1]) >= SHOWN:
            if not left_out:
                yield "…"
            left_out = True
        elif item or ends or not left_out:
            left_out = False
            yield line


def shown(page: str, kept: Mapping[str, Any]) -> str:
    """The page with the block, and the place of measuring, of what is kept."""
    block = shortened(rendered(kept))
    page = BLOCK.sub(lambda found: found[1] + block + found[2], page)
    return MEASURED.sub(lambda found: found[1] + kept["measured"] + found[2], page)


def words(text: str) -> str:
    """The words of what is printed, without what other processors may decide otherwise."""
    before_clients = re.split(r"\nclient\s", text)[0]
    flat = " ".join(re.sub(r"[-+]?\d[\d,.]*\d|[-+]?\d", "#", before_clients).split())
    flat = re.sub(r"\(chosen on its own data: [^)]*\)", "(…)", flat)
    flat = re.sub(r"Advice, [^.]*\. For all: [^.]*\.", "Advice.", flat)
    flat = re.sub(r"that at least # (is|are),", "that at least # are,", flat)
    flat = re.sub(r"# [kM]\b", "#", flat)
    return re.sub(r" Worse off than the best alone with [\w-]+: [^.]*\.", "", flat)


def differences(kept: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """In what a run differs from the kept one by more than another processor explains."""
    found = []
    if words(rendered(kept)) != words(rendered(new)):
        found.append("the words are others")
    methods, others = kept["result"]["methods"], new["result"]["methods"]
    if list(methods) != list(others):
        return [*found, "the methods are others"]
    for name, method in methods.items():
        old, now = method["summary"], others[name]["summary"]
        for key, most in {**TOLERANCE, **SHARE}.items():
            before, after = old.get(key), now.get(key)
            if before is None or after is None:
                if before is not after:
                    found.append(f"{key} of {name} was {before} and is {after}")
                continue
            limit = most * abs(before) if key in SHARE else most
            if abs(after - before) > limit + 1e-9:
                found.append(f"{key} of {name} was {before:g} and is {after:g}")
    return found


def main() -> None:
    """Run, show or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true", help="show again what is kept")
    parser.add_argument("--check", action="store_true", help="run, and compare with what is kept")
    given = parser.parse_args()
    if given.check:
        found = differences(json.loads(KEPT.read_bytes()), run())
        sys.exit("\n".join(found) if found else None)
    if not given.again:
        KEPT.write_text(json.dumps(run(), ensure_ascii=False) + "\n", encoding="utf-8")
    kept = json.loads(KEPT.read_bytes())
    README.write_text(shown(README.read_text(encoding="utf-8"), kept), encoding="utf-8")


if __name__ == "__main__":
    main()
