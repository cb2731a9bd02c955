"""What is shown of a result: HTML, figures and pages from the report, which it knows nothing of.

The package's face says whose it is; a result asks here, and the report is imported then.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

SHOWN_BY: dict[str, str] = {}
"""The function (``module:name``) that makes the HTML of a class, by the class's name."""

DRAWN_BY: dict[str, str] = {}
"""The same for its figure."""


WRITTEN_BY: dict[str, str] = {}
"""The function that writes a page of it to a file."""


def html(result: object) -> str | None:
    """A result's HTML; without any, a notebook shows its text."""
    path = SHOWN_BY.get(type(result).__name__)
    return None if path is None else str(_function(path)(result))


def figure(result: object, *given: Any, of: str = "") -> Any:
    """A result's figure; ``of`` says of what, where it has several."""
    name = " of ".join([type(result).__name__, *([of] if of else [])])
    return _function(DRAWN_BY[name])(result, *given)


class Reported:
    """A result of which a page can be written."""

    def report(self, path: str | Path, participant: str | None = None) -> None:
        """Write one HTML file to show to others; of a participant, with its own data alone."""
        _function(WRITTEN_BY[type(self).__name__])(self, path, participant)


def _function(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
