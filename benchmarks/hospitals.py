"""A table as hospitals have it: nothing is clean in it, and one command takes it as it is.

::

    python benchmarks/hospitals.py            # writes hospitals.csv, always the same
    glocal compare fedavg ditto --metric auc --data hospitals.csv --client hospital --label outcome

The file is as a German spreadsheet saves it: semicolons, decimal commas, Windows-1252. It has 6,000
patients of six hospitals of very unequal sizes; 8 % have the outcome, and nobody in the smallest
hospital has. Values are missing, weights have a unit, admissions are dates, wards are words.

The outcome is drawn from a logistic model that hospitals share, but for how common the outcome is
and for what smoking and age mean in each of them: small hospitals can learn from the others.
"""

from __future__ import annotations

import argparse
import datetime
import math
import random
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

POSITIVE = 0.08
"""The share of patients with the outcome."""

WARDS = ("Chirurgie", "Innere", "Neurologie", "Intensiv", "Gynäkologie")
FIRST_DAY = datetime.date(2024, 1, 1)
HEADER = (
    "patient_id;hospital;admitted;sex;ward;smoker;age;weight;crp;creatinine;haemoglobin;"
    "systolic;referral;outcome"
)


def patients(seed: int = 0) -> list[dict[str, str]]:
    """The rows of the table, in no order."""
    r = random.Random(seed)
    sites = [site for site, n in SIZES.items() for _ in range(n)]
    habits = {site: (r.gauss(0, 0.3), r.gauss(0, 0.3)) for site in SIZES}
    rows, risks = [], []
    for number, site in enumerate(sites):
        row, risk = _patient(r, site, *habits[site])
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
    r: random.Random, site: str, age_slope: float, smoking: float
) -> tuple[dict[str, str], float]:
    """A patient's cells, and the logit of the outcome."""
    age = min(max(r.gauss(64, 15), 18), 98)
    sex, smoker = r.choice("mf"), r.random() < 0.25
    ward = r.choices(WARDS, (4, 6, 2, 1, 2))[0]
    crp, creatinine = r.lognormvariate(2.5, 1.0), r.lognormvariate(0.0, 0.35)
    haemoglobin, systolic = r.gauss(13.2, 1.8), r.gauss(132, 19)
    weight = r.gauss(84 if sex == "m" else 71, 13)
    risk = (
        (0.9 + age_slope) * (age - 64) / 15
        + 0.9 * (math.log(crp) - 2.5)
        + 0.7 * (math.log(creatinine) / 0.35)
        - 0.6 * (haemoglobin - 13.2) / 1.8
        - 0.4 * (systolic - 132) / 19
        + (0.6 + smoking) * smoker
        + 1.2 * (ward == "Intensiv")
    )
    day = FIRST_DAY + datetime.timedelta(days=r.randrange(700))

    def maybe(cell: str, share: float) -> str:
        return r.choice(("", "", "NA")) if r.random() < share else cell

    cells = {
        "admitted": day.strftime("%d.%m.%Y"),
        "sex": sex,
        "ward": maybe(ward, 0.03),
        "smoker": maybe("ja" if smoker else "nein", 0.15),
        "age": str(round(age)),
        "weight": maybe(f"{weight:.1f} kg", 0.1),
        "crp": maybe(f"{crp:.1f}", 0.08),
        "creatinine": maybe(f"{creatinine:.2f}", 0.05),
        "haemoglobin": maybe(f"{haemoglobin:.1f}", 0.05),
        "systolic": maybe(str(round(systolic)), 0.12),
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
    names = HEADER.split(";")
    lines = [HEADER, *(";".join(row[name] for name in names) for row in patients(seed))]
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode("cp1252"))


def main() -> None:
    """Write the file that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=Path("hospitals.csv"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    write(given.file, given.seed)
    print(f"{given.file}: {sum(SIZES.values())} patients of {len(SIZES)} hospitals")


if __name__ == "__main__":
    main()
