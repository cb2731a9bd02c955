"""What a notebook shows of a result: HTML from the report, which results know nothing of.

The package's face says whose it is; a result asks here, and the report is imported then.
"""

from __future__ import annotations

from importlib import import_module

SHOWN_BY: dict[str, str] = {}
"""The function (``module:name``) that makes the HTML of a class, by the class's name."""


def html(result: object) -> str | None:
    """A result's HTML; without any, a notebook shows its text."""
    path = SHOWN_BY.get(type(result).__name__)
    if path is None:
        return None
    module, _, name = path.partition(":")
    return str(getattr(import_module(module), name)(result))
