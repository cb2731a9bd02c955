"""The Python files that a plan names: found before any of them is run, since a kit is another's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError, shown

MayRun = Callable[[Mapping[str, str]], bool]
"""Asked with the files and the SHA-256 of each, before they are run."""


def named(plan: Mapping[str, Any]) -> list[str]:
    """The files in the method and the settings of a plan, as JSON holds it."""
    settings = plan.get("settings")
    texts = [plan.get("method"), *_texts(settings if isinstance(settings, Mapping) else {})]
    found = [
        file.strip()
        for text in texts
        if isinstance(text, str) and ".py:" in text
        for file in re.findall(r"[^+(),|=@\"']*\.py(?=:)", text) or [text]
    ]
    return sorted(set(found))


def _texts(value: Any) -> list[Any]:
    """All texts in a value of JSON."""
    inside = value.values() if isinstance(value, Mapping) else value
    nested = isinstance(value, Mapping | list)
    return [text for each in inside for text in _texts(each)] if nested else [value]


def check(plan: Mapping[str, Any], may_run: MayRun) -> None:
    """Refuse a plan with files that are not here, or that are not to be run."""
    digests = {}
    for file in named(plan):
        try:
            digests[file] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        except (OSError, ValueError) as error:
            raise GlocalError(
                f"the plan names code of its operator's that is not here, {shown(file)}: ask for "
                "that file, read it, and put it there."
            ) from error
    if digests and not may_run(digests):
        raise GlocalError("code that the plan names was not approved: nothing of it was run.")
