"""What is shown of a result: HTML and figures from the report, which results know nothing of.

The package's face says whose it is; a result asks here, and the report is imported then.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

SHOWN_BY: dict[str, str] = {}
"""The function (``module:name``) that makes the HTML of a class, by the class's name."""

DRAWN_BY: dict[str, str] = {}
"""The same for its figure."""


def html(result: object) -> str | None:
    """A result's HTML; without any, a notebook shows its text."""
    path = SHOWN_BY.get(type(result).__name__)
    return None if path is None else str(_function(path)(result))


def figure(result: object, *given: Any, of: str = "") -> Any:
    """A result's figure; ``of`` says of what, where it has several."""
    name = " of ".join([type(result).__name__, *([of] if of else [])])
    return _function(DRAWN_BY[name])(result, *given)


def _function(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
