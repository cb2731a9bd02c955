"""Mangled tables: whatever a file holds, a command ends with code 0, or with 2 and a sentence.

Tables have columns of numbers, words, dates, names and decimal commas in several encodings; then
cells are replaced, lines lengthened, shortened and shuffled, and bytes changed. Each is shown
(``glocal data``), and every tenth of those that can be loaded is trained on (``glocal run``).

    python benchmarks/mangled_tables.py [--tables 500]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import string
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

WORDS = [
    "",
    "NA",
    "?",
    "none",
    "27.9 kg",
    "1,5",
    "1.5",
    "1.234,5",
    "-",
    "0",
    "1",
    "2",
    "inf",
    "nan",
]
WORDS += ["1e400", "9" * 400, str(2**70), "31.12.2024", "2024-12-31", "12/31/2024", "01/02/2024"]
WORDS += [
    "ja",
    "nein",
    "Görlitz",
    '"',
    '"a\nb"',
    "a;b",
    "\ufeff",
    "\u200b",
    "a" * 300,
    "<5",
    "true",
]
WORDS += ["0x1F", "1_000", "٣", "=1+1", "2024-13-45", "1.0", "-0", " x ", "None", "\t"]
WORDS += ["01", "007", "TRUE", "false", "€ 5.20", "1'234.5", "1\u00a0234,5", "\u22123", "10:30"]
WORDS += [
    "5 Mar 2021",
    "24.11.23",
    "2024-03",
    "00.00.0000",
    "-999",
    "9999",
    "20240131",
    "USD 5",
    "(5)",
]

CELLS: dict[str, Callable[[random.Random], str]] = {
    "number": lambda r: f"{r.gauss(50, 20):.2f}",
    "integer": lambda r: str(r.randint(-5, 90)),
    "word": lambda r: r.choice(["north", "south", "east"]),
    "comma": lambda r: f"{r.gauss(50, 20):.1f}".replace(".", ","),
    "date": lambda r: f"{r.randint(1, 28):02d}.{r.randint(1, 12):02d}.20{r.randint(10, 30)}",
    "name": lambda r: "".join(r.choices(string.ascii_letters, k=8)),
    "code": lambda r: f"D{int(r.expovariate(0.05))}",
    "constant": lambda r: "x",
    "empty": lambda r: "",
}
LABELS = [["0", "1"], ["1", "2"], ["no", "yes"], ["0.0", "1.0"], [str(i) for i in range(30)], ["1"]]
LABELS += [["0.5", "1.5"], ["-1", "1"], ["", "a"], [str(2**70), "1"]]
ENCODINGS = ["utf-8", "utf-8", "utf-8", "utf-8-sig", "cp1252", "latin-1", "utf-16", "utf-16-le"]


def table(seed: int) -> bytes:
    """The bytes of a .csv file: columns of many kinds, then some damage."""
    r = random.Random(seed)
    separator = r.choice([",", ";", "\t", "|"])
    kinds = {f"c{i}": r.choice(list(CELLS)) for i in range(r.randint(1, 8))}
    rows, sites = r.choice([0, 2, 9, 40, 90, 90, 90, 90]), r.randint(1, 4)
    labels = r.choice([LABELS[0], LABELS[2], r.choice(LABELS)])
    header = [*kinds, "label", *(["client"] if r.random() < 0.95 else [])]
    lines = [header]
    for i in range(rows):
        cells = [CELLS[kind](r) for kind in kinds.values()]
        lines.append([*cells, r.choice(labels), f"s{i % sites}"][: len(header)])
    for _ in range(r.choice([0, 0, 1, 1, 3, 10])):
        line = r.choice(lines)
        damage = r.random()
        if damage < 0.9 and line:
            line[r.randrange(len(line))] = r.choice(WORDS)
        elif damage < 0.93:
            line.append(r.choice(WORDS))
        elif damage < 0.96 and line:
            line.pop(r.randrange(len(line)))
        else:
            r.shuffle(line)
    if r.random() < 0.8:  # as programs write cells; people forget to
        lines = [[f'"{cell}"' if separator in cell else cell for cell in line] for line in lines]
    text = r.choice(["\n", "\r\n", "\r"]).join(separator.join(line) for line in lines)
    content = bytearray(text.encode(r.choice(ENCODINGS), "replace"))
    for _ in range(r.choice([0, 0, 0, 2])):
        if content:
            content[r.randrange(len(content))] = r.randrange(256)
    return bytes(content)


def ended(*words: str) -> tuple[int, str]:
    """The code with which a command ends, and the last line that it says on stderr."""
    from glocal.cli import app

    sys.argv = ["glocal", *words]
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            app.main()
        except SystemExit as stop:
            code = stop.code
    return int(code or 0), (err.getvalue().splitlines() or [""])[-1]


TRAIN = ["--rounds", "1", "--model", "logistic", "--baseline", "none", "--jobs", "1"]


def main() -> None:
    """Count how commands end; exit with 1 if one ends in another way."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--tables", type=int, default=500)
    codes: Counter[tuple[str, int]] = Counter()
    wrong = 0
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for seed in range(asked.tables):
            Path("t.csv").write_bytes(table(seed))
            tried = [("data", ended("data", "t.csv"))]
            if tried[0][1][0] == 0 and codes["data", 0] % 10 == 0:
                words = ["run", "fedavg", "--data", "t.csv", "--out", f"run{seed}", *TRAIN]
                tried.append(("run", ended(*words)))
            for command, (code, said) in tried:
                codes[command, code] += 1
                if code not in (0, 2) or (code == 2 and not said.startswith("glocal: ")):
                    wrong += 1
                    print(f"seed {seed}: glocal {command} ends with {code}: {said}")
        os.chdir("/")
    for (command, code), count in sorted(codes.items()):
        print(f"glocal {command}: {count} end with code {code}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
