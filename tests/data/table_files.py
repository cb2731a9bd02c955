"""A small table of three hospitals in a file, with columns as a test wants them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from glocal.data.federation import Federation
from glocal.data.loading import load

N = 60


def columns(**changes: Any) -> dict[str, list[Any]]:
    r = random.Random(0)
    plain = {
        "age": [r.randint(20, 90) for _ in range(N)],
        "dose": [round(r.gauss(3, 1), 2) for _ in range(N)],
        "outcome": [r.randint(0, 1) for _ in range(N)],
        "hospital": [f"h{i % 3}" for i in range(N)],
    }
    return {**plain, **changes}


def loaded(table: dict[str, list[Any]], separator: str = ",", **options: Any) -> Federation:
    lines = [separator.join(table), *(separator.join(map(str, r)) for r in zip(*table.values()))]  # noqa: B905
    Path("t.csv").write_text("\n".join(lines), encoding="utf-8")
    return load("t.csv", **{"label": "outcome", "client": "hospital", **options})


def report(fed: Federation, column: str) -> Any:
    return next(row for row in fed.columns if row.column == column)
