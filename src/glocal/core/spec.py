"""Specs: the small language of method, model and partition names, such as ``ditto(lam=0.1)+yogi``.

::

    spec  = call ("+" call)*
    call  = name [ "(" [ item ("," item)* ] ")" ]
    item  = [ key "=" ] value              positional values come before keyed ones
    value = number | true | false | none | "quoted" | word | name "(" … ")" | list
    list  = "[" [ value ("," value)* ] "]"

A name begins with a letter and goes on with letters, digits, ``-``, ``_`` and ``.``, and may have a
Python file before it (``dir/own.py:name``, whose path has no blanks, brackets, ``+`` or ``,``) or a
preset behind it (``name@preset``); a word may have ``*`` too, so that patterns such as
``layers.2*`` need no quotes. A name without brackets, as a value, is a word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from glocal.core.errors import GlocalError, shown

_NAME = re.compile(r"([^\s()+,:=\"']+\.py:)?[A-Za-z][A-Za-z0-9_.-]*(@[A-Za-z0-9_.-]+)?")
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*=")
_WORD = re.compile(r"[A-Za-z0-9_.*-]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?(?![A-Za-z0-9_.*+-])")
_QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
_DEEPEST = 20
_EXAMPLE = "name(1, 0.5, word, key=value, other=last(2))"


@dataclass(frozen=True)
class Call:
    """A name with arguments, as a value: ``last(2)`` is ``Call("last", (2,), {})``."""

    name: str
    args: tuple[Value, ...]
    kwargs: dict[str, Value] = field(hash=False)  # so that any value can be looked up in a dict


Value: TypeAlias = int | float | bool | str | Call | tuple["Value", ...] | None


def parse_call(text: str) -> tuple[str, tuple[Value, ...], dict[str, Value]]:
    """``"mlp(200, dropout=0.2)"`` as ``("mlp", (200,), {"dropout": 0.2})``."""
    _check_text(text)
    reader = _Reader(text)
    call = reader.call(depth=0)
    if not reader.ended():
        reader.fail("a name and its brackets should be all there is")
    return call.name, call.args, call.kwargs


def written(value: object) -> str:
    """A value as a spec has it, so that it is read as the same again."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    text = str(value)
    if _WORD.fullmatch(text) and not _NUMBER.fullmatch(text) and text not in _CONSTANTS:
        return text
    if '"' in text and "'" in text:
        raise GlocalError(f"{shown(text)} has both kinds of quotes: leave one of them out.")
    return f"'{text}'" if '"' in text else f'"{text}"'


def split_plus(text: str) -> list[str]:
    """``"ditto(lr=1e+3)+yogi"`` as ``["ditto(lr=1e+3)", "yogi"]``: at ``+`` outside brackets."""
    return split_at(text, "+")


def split_at(text: str, sign: str) -> list[str]:
    """The parts of a text between signs that are outside brackets and quotes."""
    _check_text(text)
    parts, start, depth, quote = [], 0, 0, ""
    for i, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "()[]":
            depth += 1 if char in "([" else -1
            if depth < 0:
                break
        elif char == sign and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    if depth or quote:
        _fail(text, "brackets and quotes must close", f"base(key=1){sign}other")
    if not all(parts):
        why = f"there must be a name on either side of every '{sign}'"
        _fail(text, why, f"base(key=1){sign}other")
    return parts


class _Reader:
    """Recursive descent; ``at`` is how far the text has been read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, why: str) -> NoReturn:
        _fail(self.text, f"{why} (at character {self.at + 1})", _EXAMPLE)

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What the pattern matches here, blanks skipped."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        if found := pattern.match(self.text, self.at):
            self.at = found.end()
        return found

    def sign(self, char: str) -> bool:
        return self.take(re.compile(re.escape(char))) is not None

    def ended(self) -> bool:
        return self.take(re.compile(r"\Z")) is not None

    def call(self, depth: int) -> Call:
        if depth > _DEEPEST:
            self.fail("its brackets are nested too deep")
        if not (name := self.take(_NAME)):
            self.fail("a name that begins with a letter is missing")
        args: list[Value] = []
        kwargs: dict[str, Value] = {}
        if self.sign("("):
            self.until(")", lambda: self.item(args, kwargs, depth))
        return Call(name[0], tuple(args), kwargs)

    def until(self, close: str, read: Callable[[], object]) -> None:
        """Read entries that commas separate, none or more, up to a closing bracket."""
        if self.sign(close):
            return
        read()
        while not self.sign(close):
            if not self.sign(","):
                self.fail(f"values are separated by ',' and closed by '{close}'")
            read()

    def item(self, args: list[Value], kwargs: dict[str, Value], depth: int) -> None:
        if key := self.take(_KEY):
            if key[1] in kwargs:
                self.fail(f"{key[1]!r} is given twice")
            kwargs[key[1]] = self.value(depth)
        else:
            if kwargs:
                self.fail("values without a key come before those with one")
            args.append(self.value(depth))

    def value(self, depth: int) -> Value:
        if depth > _DEEPEST:
            self.fail("its brackets are nested too deep")
        if quoted := self.take(_QUOTED):
            return quoted[0][1:-1]
        if number := self.take(_NUMBER):
            return self.number(number[0])
        if self.sign("["):
            entries: list[Value] = []
            self.until("]", lambda: entries.append(self.value(depth + 1)))
            return tuple(entries)
        start = self.at
        if not (word := self.take(_WORD)):
            self.fail("a value is missing")
        if self.sign("("):
            self.at = start
            return self.call(depth + 1)
        return _CONSTANTS.get(word[0].lower(), word[0])

    def number(self, digits: str) -> int | float:
        if len(digits) > 100 or not math.isfinite(float(digits)):
            self.fail("the number is too long")
        return int(digits) if digits.lstrip("+-").isdigit() else float(digits)


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise GlocalError(f"{shown(text)} is not text: write it like {_EXAMPLE!r}.")


def _fail(text: str, why: str, example: str) -> NoReturn:
    raise GlocalError(f"cannot read {shown(text)}: {why}; write it like {example}.")
