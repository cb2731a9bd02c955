"""Sentences that name settings as Python has them (``drop=``), as the command line has them.

What is in the brackets of a call, as in ``rotate(90, clients=5)``, is part of a spec and stays.
"""

from __future__ import annotations

import dataclasses
import re
from functools import cache

from glocal.experiment.config import Config, plain_kinds

KEYWORD = re.compile(r"(?:(?<=\s)|(?<=\s\()|^)([a-z_]+)=(?:'([^'\s]*)'|([\w.-]*[\w-])?)")


@cache
def flags() -> dict[str, str]:
    """The option of each setting that has one."""
    found = {}
    for each in dataclasses.fields(Config):
        option = each.metadata["option"]
        if each.name in plain_kinds() and option != "":
            found[each.name] = f"--{(option or each.name).replace('_', '-')}"
    return found


def as_typed(text: str) -> str:
    """The text with settings as options: ``--drop``, ``--task regression``."""

    def spelled(match: re.Match[str]) -> str:
        flag = flags().get(match[1])
        if flag is None or _in_a_call(text[: match.start()]):
            return match[0]
        value = match[2] if match[2] is not None else match[3]
        if value is None:
            return flag
        return f"{flag} {value}" if re.fullmatch(r"[\w.-]+", value) else f"{flag} '{value}'"

    return KEYWORD.sub(spelled, text)


def _in_a_call(before: str) -> bool:
    """Whether the brackets of a call are open at the end of a text."""
    calls: list[bool] = []
    for i, char in enumerate(before):
        if char == "(":
            calls.append(bool(i) and before[i - 1].isalnum())
        elif char == ")" and calls:
            calls.pop()
    return any(calls)
