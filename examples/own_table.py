"""A table as it is, in a file: numbers, words, gaps; and for each clinic a verdict."""

import random
import tempfile
from pathlib import Path

import glocal

draw = random.Random(0)
lines = ["clinic,age,pressure,ward,smoker,readmitted"]
for clinic, patients in {"Aachen": 160, "Bonn": 90, "Celle": 60}.items():
    for _ in range(patients):
        age, pressure = draw.gauss(62, 14), draw.gauss(130, 18)
        ward, smoker = draw.choice(["surgery", "internal"]), draw.random() < 0.3
        risk = (age - 62) / 10 + (pressure - 130) / 20 + smoker + draw.gauss(0, 0.7)
        cell = "" if draw.random() < 0.1 else f"{pressure:.0f}"  # one in ten was not measured
        said = "yes" if risk > 0.3 else "no"
        lines.append(f"{clinic},{age:.0f},{cell},{ward},{'y' if smoker else 'n'},{said}")

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "clinics.csv"
    file.write_text("\n".join(lines), encoding="utf-8")
    fed = glocal.load(file, label="readmitted", client="clinic")

for column in fed.columns:
    print(f"{column.column}: {column.was} → {column.became}")

settings = {"model": "logistic", "rounds": 10, "metric": "auc"}
run = glocal.fit("fedavg", fed, **settings, baseline="local(max_epochs=20)")
for row in run.clients:
    print(
        f"{row['client']}: AUC {row['value']:.2f}, alone {row['local_value']:.2f}", row["verdict"]
    )
