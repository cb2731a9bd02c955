"""Run folders made by hand: what a list of runs reads of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glocal.core.files import toml


def made(
    folder: Path,
    method: str = "fedavg",
    *,
    rounds: int = 4,
    done: int = 4,
    finished: bool = True,
    fingerprint: str = "f" * 32,
    clients: int = 2,
    **settings: Any,
) -> Path:
    """A run's folder with so many rounds done, finished or not."""
    folder.mkdir(parents=True)
    about = {
        "method": method,
        "data": "digits",
        "rounds": rounds,
        **settings,
        "federation": {"data": "digits", "clients": clients, "fingerprint": fingerprint},
    }
    (folder / "settings.toml").write_text(toml(about), encoding="utf-8")
    lines = [json.dumps({"round": r + 1, "train_loss": 1 / (r + 1)}) for r in range(done)]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    if finished:
        finish(folder, method, clients)
    return folder


def finish(folder: Path, method: str = "fedavg", clients: int = 2) -> None:
    """The result of a run."""
    summary = {"metric": "accuracy", "mean": 0.9, "worst10": 0.8, "better_off": clients}
    summary |= {"worse_off": 0, "same": 0, "undecided": 0}
    result = {"schema": 1, "data": {}, "methods": {method: {"summary": summary, "clients": []}}}
    (folder / "result.json").write_text(json.dumps(result))


def deployment(folder: Path) -> Path:
    """A server's folder, as far as it is told from others."""
    folder.mkdir(parents=True)
    for name in ("server.json", "plan.json"):
        (folder / name).write_text("{}")
    return folder
