"""Settings with several values each, on the command line: what ``sweep`` and ``tune`` take."""

from __future__ import annotations

from typing import Any

import typer

from glocal.cli.completion import methods
from glocal.cli.options import training
from glocal.core.errors import GlocalError, shown


def methods_or_file(example: str, swept: str) -> Any:
    """The argument of a command that takes methods, or a file with methods and lists."""
    return typer.Argument(
        ...,
        metavar="METHOD...|FILE.toml",
        autocompletion=methods,
        help=f"Methods, as in: {example}; or a file with methods, settings and a table \\[sweep] "
        f"of {swept} (options given here win).",
    )


def settings_and_values(whose: str, example: str, then: str = "") -> Any:
    """The option of a command that tries several values of settings."""
    text = f"A setting of {whose} and its values, as in lr=0.03,0.1,0.3 or {example}"
    return training(None, f"{text}; may be given several times{then}.")


def lists(given: list[str], option_name: str) -> dict[str, list[Any]]:
    """``lr=0.1,0.3`` as ``{"lr": [0.1, 0.3]}``."""
    found: dict[str, list[Any]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name or name in found:
            raise GlocalError(
                f"{option_name} {shown(text)} cannot be read: write a setting once, and its "
                f"values, as in {option_name} lr=0.03,0.1,0.3."
            )
        found[name] = [_value(value.strip()) for value in _apart(values)]
    return found


def _apart(text: str) -> list[str]:
    """At commas outside brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _value(text: str) -> Any:
    """A number, true, false, or the text as it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text, text)
