"""What left a machine: a line for every message, with its time, its length and its sha256."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def record(file: Path, content: bytes, **about: Any) -> None:
    """Add a line about a message before it leaves; it is on disk before the message is sent."""
    line = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        **about,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line, ensure_ascii=False) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    """The lines of such a file, or of another of the kind; a last line cut short is left out."""
    lines: list[dict[str, Any]] = []
    if file.exists():
        for text in file.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:  # its writer was killed
                continue
    return lines
