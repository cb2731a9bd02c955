"""Three clinics with a table each, whose columns are the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from glocal.core import files, rng

CLINICS = ("clinic-a", "clinic-b", "clinic-c")
ROWS = 40


def write_tables(folder: Path, clinics: Sequence[str] = CLINICS) -> None:
    """A file for each clinic, and ``example.csv`` with other rows of the same kind, by clinic."""
    example = []
    for number, clinic in enumerate(clinics):
        for part in range(2):
            key = rng.fold(rng.fold(rng.key(4), number), part)
            x = rng.normal(key, (ROWS, 2))
            lines = [
                f"{a:.3f},{b:.3f},{'yes' if a > b else 'no'},{'ill' if a + b > 0 else 'well'}"
                for a, b in x.tolist()
            ]
            if part == 0:
                text = "\n".join(["age,dose,smokes,label", *lines])
                (folder / f"{clinic}.csv").write_text(f"{text}\n")
            else:
                example += [f"{line},{clinic}" for line in lines]
    text = "\n".join(["age,dose,smokes,label,client", *example])
    (folder / "example.csv").write_text(f"{text}\n")


def write_settings(folder: Path, **more: object) -> Path:
    """The settings of a short deployment of these tables."""
    settings = {
        "method": "fedavg",
        "data": str(folder / "example.csv"),
        "rounds": 2,
        "model": "mlp(4)",
        "engine": "sequential",
        "baseline": "local(max_epochs=3)",
        "validate_every": 0,
        **more,
    }
    path = folder / "settings.toml"
    path.write_text(files.toml(settings))
    return path


def examples_of(folder: Path, clinic: str) -> int:
    """The rows of a clinic's table."""
    return len((folder / f"{clinic}.csv").read_text().splitlines()) - 1
