"""A table of three hospitals, and a run on it, small enough for every test."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import glocal

QUICK: dict[str, Any] = {"model": "mlp(4)", "rounds": 2, "baseline": "none"}
WARDS = ("heart", "lungs", "")


def columns(n: int = 90) -> dict[str, list[Any]]:
    """Columns of raw rows: numbers with gaps, words with gaps, dates, labels in words."""
    r = random.Random(0)
    rows: dict[str, list[Any]] = {
        "site": [("Görlitz", "Köln", "Wien")[i % 3] for i in range(n)],
        "age": [None if r.random() < 0.1 else r.randint(20, 90) for _ in range(n)],
        "weight": [round(r.gauss(75, 9), 1) for _ in range(n)],
        "ward": [r.choice(WARDS) for _ in range(n)],
        "admitted": [f"2024-{r.randint(1, 12):02}-{r.randint(1, 28):02}" for _ in range(n)],
    }
    sick = [(a or 50) + 20 * (w == "heart") + r.gauss(0, 9) > 60 for a, w in _both(rows)]
    return rows | {"outcome": ["yes" if each else "no" for each in sick]}


def _both(rows: dict[str, list[Any]]) -> list[tuple[Any, Any]]:
    return list(zip(rows["age"], rows["ward"], strict=True))


def hospitals(**more: Any) -> glocal.Federation:
    """The federation of these rows."""
    return glocal.federation(columns(), y="outcome", clients="site", **more)


def rows_of(fed: glocal.Federation, client: int) -> dict[str, list[Any]]:
    """The raw rows of a client's test split, as they are in the table."""
    chosen = fed.test.of(client).tolist()
    return {name: [cells[i] for i in chosen] for name, cells in columns().items()}


@cache
def trained() -> tuple[glocal.Federation, glocal.Run]:
    """The federation, and Ditto on it, whose clients have models of their own."""
    fed = hospitals()
    return fed, glocal.fit("ditto", fed, **QUICK)
