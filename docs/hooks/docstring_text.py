"""Docstrings as Markdown: roles of reStructuredText (:func:`glocal.fit`) are shown as code."""

from __future__ import annotations

import re

ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")


def plain(text: str) -> str:
    """The text with roles, double backticks and literal blocks as Markdown has them."""
    return re.sub(r"(?m)::$", ":", ROLE.sub(r"`\1`", text).replace("``", "`"))
