r"""A table as hospitals have it: nothing is clean in it, and one command takes it as it is.

::

    python benchmarks/hospitals.py
    glocal compare fedavg ditto --metric auc --repeats 5 --data hospitals.csv --client hospital \
          --label outcome --out hospitals --csv verdicts.csv
    glocal predict hospitals/ditto new-patients.csv --client Görlitz

The first writes hospitals.csv and new-patients.csv, always the same. What the three print is in
hospitals.txt, from which docs/tutorials/should-my-institution-join.md has it.

The file is as a German spreadsheet saves it: semicolons, decimal commas, Windows-1252. It has 6,000
patients of six hospitals of very unequal sizes; 8 % have the outcome, and nobody in the smallest
hospital has. Values are missing, weights have a unit, admissions are dates, wards are words.

The outcome is drawn from a logistic model that hospitals share, but for what smoking and age mean
in each of them: small hospitals can learn from the others.
"""

from __future__ import annotations

import argparse
import datetime
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

SIZES = {
    "München": 3100,
    "Köln": 1500,
    "Görlitz": 760,
    "Würzburg": 400,
    "Lübeck": 180,
    "Füssen": 60,
}
"""Patients of each hospital."""

ONE_CLASS = "Füssen"
"""The hospital in which nobody has the outcome."""

SEVERITY = 1.5
"""The standard deviation of the diagnoses' risks, in logits."""

POSITIVE = 0.08
"""The share of patients with the outcome."""

WARDS = ("Chirurgie", "Innere", "Neurologie", "Intensiv", "Gynäkologie")
DIAGNOSES = (
    *("A41", "C18", "C34", "C50", "E11", "E86", "G20", "G40", "I10", "I21", "I26", "I48", "I50"),
    *("I63", "I70", "J18", "J44", "J96", "K35", "K56", "K80", "K85", "M16", "N17", "N39", "S72"),
)
"""Codes of what patients are admitted for; each has a risk of its own, the same everywhere."""

FIRST_DAY = datetime.date(2024, 1, 1)
LABS = {
    "crp": (2.5, 1.0, 0.9, 1),
    "creatinine": (0.0, 0.35, 0.8, 2),
    "lactate": (0.4, 0.45, 0.8, 1),
    "bilirubin": (-0.4, 0.5, 0.5, 2),
    "leukocytes": (2.1, 0.35, 0.5, 1),
    "platelets": (5.5, 0.3, -0.5, 0),
    "sodium": (4.94, 0.025, -0.5, 0),
    "albumin": (3.65, 0.13, -0.7, 1),
    "haemoglobin": (2.57, 0.13, -0.5, 1),
}
"""Mean and standard deviation of the logarithm, its slope in the outcome's logit, and decimals."""

HEADER = (
    "patient_id",
    *("hospital", "admitted", "sex", "ward", "diagnosis", "smoker", "age", "weight", "systolic"),
    *LABS,
    *("referral", "outcome"),
)


def patients(seed: int = 0) -> list[dict[str, str]]:
    """The rows of the table, in no order."""
    r = random.Random(seed)
    sites = [site for site, n in SIZES.items() for _ in range(n)]
    habits = {site: (r.gauss(0, 0.3), r.gauss(0, 0.3)) for site in SIZES}
    severity = {code: r.gauss(0, SEVERITY) for code in DIAGNOSES}
    rows, risks = [], []
    for number, site in enumerate(sites):
        row, risk = _patient(r, severity, *habits[site])
        rows.append({"patient_id": f"{100_000 + 7 * number}", "hospital": site, **row})
        risks.append(risk)
    wanted = round(POSITIVE * len(rows))
    # The outcome is drawn: those with the highest risk plus logistic noise have it.
    noisy = [
        -math.inf if row["hospital"] == ONE_CLASS else risk + _logistic(r)
        for row, risk in zip(rows, risks, strict=True)
    ]
    least = sorted(noisy, reverse=True)[wanted - 1]
    for row, value in zip(rows, noisy, strict=True):
        row["outcome"] = "yes" if value >= least else "no"
    r.shuffle(rows)
    return rows


def _patient(
    r: random.Random, severity: Mapping[str, float], age_slope: float, smoking: float
) -> tuple[dict[str, str], float]:
    """A patient's cells, and the logit of the outcome."""
    age = min(max(r.gauss(64, 15), 18), 98)
    sex, smoker = r.choice("mf"), r.random() < 0.25
    ward, diagnosis = r.choices(WARDS, (4, 6, 2, 1, 2))[0], r.choice(DIAGNOSES)
    standard = {lab: r.gauss(0, 1) for lab in LABS}
    systolic = r.gauss(132, 19)
    weight = r.gauss(84 if sex == "m" else 71, 13)
    risk = (
        (0.9 + age_slope) * (age - 64) / 15
        + sum(slope * standard[lab] for lab, (_, _, slope, _) in LABS.items())
        - 0.4 * (systolic - 132) / 19
        + (0.6 + smoking) * smoker
        + 1.2 * (ward == "Intensiv")
        + severity[diagnosis]
    )
    day = FIRST_DAY + datetime.timedelta(days=r.randrange(700))

    def maybe(cell: str, share: float) -> str:
        return r.choice(("", "", "NA")) if r.random() < share else cell

    cells = {
        "admitted": day.strftime("%d.%m.%Y"),
        "sex": sex,
        "ward": maybe(ward, 0.03),
        "diagnosis": diagnosis,
        "smoker": maybe("ja" if smoker else "nein", 0.15),
        "age": str(round(age)),
        "weight": maybe(f"{weight:.1f} kg", 0.1),
        "systolic": maybe(str(round(systolic)), 0.12),
        **{
            lab: maybe(f"{math.exp(mean + deviation * standard[lab]):.{decimals}f}", 0.06)
            for lab, (mean, deviation, _, decimals) in LABS.items()
        },
        "referral": "Überweisung" if r.random() < 0.6 else "Notaufnahme",
    }
    return {
        name: cell.replace(".", ",") if name != "admitted" else cell for name, cell in cells.items()
    }, risk


def _logistic(r: random.Random) -> float:
    u = r.random() or 0.5
    return math.log(u / (1 - u))


def write(path: Path, seed: int = 0) -> None:
    """Write the table to a file."""
    _save(path, HEADER, patients(seed))


def write_new(path: Path, seed: int = 0, count: int = 5) -> None:
    """Write patients who were just admitted: nobody knows their outcome."""
    known = [name for name in HEADER if name not in ("hospital", "outcome")]
    admitted = [row for row in patients(seed + 1) if row["hospital"] == "Görlitz"]
    _save(path, known, admitted[:count])


def _save(path: Path, names: Sequence[str], rows: Sequence[Mapping[str, str]]) -> None:
    lines = [";".join(names), *(";".join(row[name] for name in names) for row in rows)]
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode("cp1252"))


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description="Writes hospitals.csv and new-patients.csv.")
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    write(given.folder / "hospitals.csv", given.seed)
    write_new(given.folder / "new-patients.csv", given.seed)
    print(f"hospitals.csv: {sum(SIZES.values()):,} patients of {len(SIZES)} hospitals")
    print("new-patients.csv: 5 patients of Görlitz whose outcome is not known")


if __name__ == "__main__":
    main()
