"""A round of local training, glocal against its peers: the same work for everybody, in one run.

python benchmarks/peers.py --install                make the peers' environments (once)
python benchmarks/peers.py --json out.json          all cases; what is not installed is skipped
python benchmarks/peers.py --cases small --only ours fedjax
python benchmarks/peers.py --only ours --beside ../old ../old    against another checkout, twice
python benchmarks/peers.py --keep                   the same, and README.md's table made of it
python benchmarks/peers.py --readme                 README.md's table from what was kept

docs/measurements/speed.md says how it is measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from peers import table
from peers.cases import CASES
from peers.harness import CONTESTANTS, Contestant, beside, machine, measure

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "benchmarks" / "peers.json"
PINS = ROOT / "benchmarks" / "peers"


def kept_with(found: dict[str, Any]) -> dict[str, Any]:
    """What is kept, with these cases in place of its own of the same names."""
    if not KEPT.exists():
        return found
    new = {case["name"]: case for case in found["cases"]}
    before = json.loads(KEPT.read_text(encoding="utf-8"))["cases"]
    cases = [new.pop(case["name"], case) for case in before]
    return {**found, "cases": [*cases, *new.values()]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = sorted({c.environment for c in CONTESTANTS if c.environment})
    parser.add_argument("--install", nargs="*", choices=names, metavar="PEER")
    parser.add_argument(
        "--envs", type=Path, default=ROOT / ".peers", help="where they are (.peers)"
    )
    parser.add_argument("--cases", nargs="+", choices=[c.name for c in CASES])
    everybody = sorted({c.module for c in CONTESTANTS})
    parser.add_argument("--only", nargs="+", choices=everybody, help="contestants")
    parser.add_argument(
        "--beside", nargs="+", type=Path, default=[], metavar="DIR", help="other checkouts, set up"
    )
    parser.add_argument("--repeats", type=int, default=7, help="timed rounds of each")
    parser.add_argument("--warm-up", type=int, default=2, help="rounds before those")
    parser.add_argument("--folder", type=Path, help="keep the data and the workers' logs here")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument(
        "--keep", action="store_true", help="the result is the README's from now on"
    )
    parser.add_argument("--markdown", action="store_true", help="print the README's table")
    parser.add_argument("--readme", action="store_true", help="rewrite it from what was kept")
    asked = parser.parse_args()
    if asked.install is not None:
        for name in asked.install or names:
            install(name, asked.envs)
        return
    if asked.readme or asked.markdown:
        found = json.loads((asked.json or KEPT).read_text(encoding="utf-8"))
        if asked.markdown:
            print(table.markdown(found))
        if asked.readme:
            write_readme(found)
        return
    if asked.repeats < 1 or asked.warm_up < 1:
        raise SystemExit("--repeats and --warm-up must be 1 or more.")
    found = run(asked)
    for line in table.text(found):
        print(line)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if asked.keep:
        found = kept_with(found)
        KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        write_readme(found)


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """All cases asked for; a line for everybody who is not there."""
    who: list[Contestant] = []
    for contestant in (*CONTESTANTS, *beside(asked.beside)):
        if asked.only and contestant.module not in asked.only:
            continue
        why = contestant.missing(asked.envs)
        if why is None:
            who.append(contestant)
        else:
            print(why, flush=True)
    if not who:
        raise SystemExit("nobody is left to be timed.")
    about = machine()
    results = []
    with tempfile.TemporaryDirectory(prefix="peers-") as temporary:
        folder = (asked.folder or Path(temporary)).resolve()
        for case in CASES:
            if not asked.cases or case.name in asked.cases:
                results.append(
                    measure(case, who, folder, asked.envs, asked.repeats, asked.warm_up, progress)
                )
    progress("")
    return {"machine": about, "repeats": asked.repeats, "warm_up": asked.warm_up, "cases": results}


def progress(what: str) -> None:
    """Say it on a terminal, over what was said before."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)


def install(name: str, envs: Path) -> None:
    """A virtual environment with what ``peers/NAME.txt`` pins."""
    pins, python = PINS / f"{name}.txt", envs / name / "bin" / "python"
    print(f"{name}: installing into {envs / name}", flush=True)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", envs / name], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if "torch==" in pins.read_text():  # first, and with what it needs, as in the Makefile
        subprocess.run([*pip, "-c", ROOT / "constraints.txt", "torch"], check=True)
    subprocess.run([*pip, "--no-deps", "-r", pins], check=True)


def write_readme(found: dict[str, object]) -> None:
    """Put the table between its marks."""
    file = ROOT / "README.md"
    file.write_text(table.placed(file.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
