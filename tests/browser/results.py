"""Run folders for browsers: one that was trained, and others that are made from it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

METHODS = ("local", "fedavg", "ditto")

EVIL = (
    "<img src=x onerror=alert(1)>",
    '"><script>alert(2)</script>',
    "</script><script>alert(3)</script>",
    "javascript:alert(4)//",
    "\u202eanna\u202c' onmouseover='alert(5)",
    '=HYPERLINK("http://evil.org")',
    "</main></body><iframe src=//evil.org>",
    "${alert(8)}{{alert(8)}}",
)
"""Names that become elements, scripts or requests wherever they are not taken for text."""


def trained(folder: Path) -> Path:
    """A comparison of three methods with eight clients."""
    from glocal.cli import app

    words = [
        *("compare", *METHODS, "--clients", "8", "--rounds", "3", "--repeats", "1", "--no-tune"),
        *("--model", "mlp(8)", "--baseline", "local(max_epochs=3)", "--out", str(folder)),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["glocal", *words])
        with pytest.raises(SystemExit) as ended:
            app.main()
    assert ended.value.code == 0
    return folder


def with_clients(source: Path, folder: Path, names: list[str]) -> Path:
    """The same comparison with so many clients, whose rows are those of the trained ones."""
    shutil.copytree(source, folder)
    for file in (folder / "result.json", *folder.glob("*/result.json")):
        file.write_text(json.dumps(_renamed(json.loads(file.read_text()), names)))
    return folder


def with_method(source: Path, folder: Path, old: str, new: str) -> Path:
    """The same comparison in which a method has another name."""
    shutil.copytree(source, folder)
    for file in (folder / "result.json", *folder.glob("*/result.json")):
        result = json.loads(file.read_text())
        result["methods"] = {new if m == old else m: v for m, v in result["methods"].items()}
        file.write_text(json.dumps(result))
    for file in (folder / "comparison.toml", *folder.glob("*/settings.toml")):
        text = file.read_text()
        file.write_text(text.replace(json.dumps(old), json.dumps(new), 1))
    return folder


def _renamed(result: dict[str, Any], names: list[str]) -> dict[str, Any]:
    for method in result["methods"].values():
        rows = method["clients"]
        method["clients"] = [
            {**rows[i % len(rows)], "client": name} for i, name in enumerate(names)
        ]
        summary = method["summary"]
        summary["clients"] = len(names)
        if summary.get("benefit") is not None:
            for verdict in ("better off", "worse off", "same", "undecided"):
                count = sum(row["verdict"] == verdict for row in method["clients"])
                summary[verdict.replace(" ", "_")] = count
    said = result["participants"]
    result["participants"] = [
        {**said[i % len(said)], "client": name} for i, name in enumerate(names) if said
    ]
    return result
