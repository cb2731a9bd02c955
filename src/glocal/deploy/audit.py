"""What left a machine: a line for every message, with its time, its length and its sha256."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from glocal.core.files import flush_folder


def record(file: Path, content: bytes, **about: Any) -> None:
    """Add a line about a message before it leaves; it is on disk before the message is sent."""
    line = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        **about,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    text = json.dumps(line, ensure_ascii=False) + "\n"
    with file.open("ab+") as lines:
        new = lines.tell() == 0
        if not new:
            lines.seek(-1, os.SEEK_END)
            if lines.read(1) != b"\n":  # its writer was killed
                text = f"\n{text}"
        lines.write(text.encode())
        lines.flush()
        os.fsync(lines.fileno())
    if new:
        flush_folder(file.parent)


def read(file: Path) -> list[dict[str, Any]]:
    """The lines of such a file, or of another of the kind; a line cut short is left out."""
    lines: list[dict[str, Any]] = []
    if file.exists():
        for text in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:  # its writer was killed
                continue
    return lines
