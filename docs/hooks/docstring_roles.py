"""The reference of the Python interface has its docstrings as Markdown, with settings listed."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import griffe
from docstring_text import plain  # which the hooks, loaded first, have imported

SETTINGS = "{settings}"
"""Where a docstring has the list of settings when it is imported."""
LISTED = re.compile(r"(?m)^( {8,})(\w+) \((.*?)\): ")
"""A setting of that list, with its default."""


class Roles(griffe.Extension):
    """Rewrites the docstrings of whatever the reference shows."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite one."""
        if obj.docstring is None:
            return
        text = obj.docstring.value
        if SETTINGS in text:
            text = inspect.getdoc(getattr(import_module(obj.module.path), obj.name)) or ""
            text = LISTED.sub(r"\1- `\2` (`\3`): ", text)
        obj.docstring.value = plain(text)
