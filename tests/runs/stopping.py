"""Runs that a signal stops, and whether two folders hold the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from glocal.runs import folder as folders

TENSORS = ("final.safetensors", "clients.safetensors")
FILES = ("result.json", "metrics.jsonl", "models.json", "SHA256SUMS", *TENSORS)


def stop_after(monkeypatch: pytest.MonkeyPatch, rounds: int, number: int = signal.SIGINT) -> None:
    """A signal comes while the ``rounds``-th round is written down."""
    line = folders.Folder.line

    def signalled(self: folders.Folder, found: dict[str, Any]) -> None:
        line(self, found)
        if found["round"] == rounds:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(folders.Folder, "line", signalled)


def same(a: Path, b: Path, files: Sequence[str] = FILES) -> bool:
    return all((a / f).read_bytes() == (b / f).read_bytes() for f in files)
