"""HTML that is built from values: every text is escaped, every number says where it is from.

Text is a plain ``str`` and is escaped where it goes in; what is markup already is :class:`Html`. A
:class:`Place` is a value of the page's data with its JSON pointer (RFC 6901): what it shows of
itself is marked with that pointer, so that a reader, or a test, can find the figure in the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

VOID = ("meta", "link", "img", "input", "br", "hr")
"""Elements without an end."""


DRAWN = ("line", "path", "circle", "rect")
"""Elements of SVG, which may be closed where they begin."""


class Html(str):
    """Markup: nothing in it is escaped again."""

    __slots__ = ()


Child = str | None
"""What an element holds: text, markup, or nothing."""


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """An element; ``class_`` is written ``class`` and ``data_path`` is written ``data-path``.

    An attribute that is None or False is left out, and one that is True has no value.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{written}>")
    if name in DRAWN and not children:
        return Html(f"<{name}{written}/>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """Children one after another, texts escaped."""
    return Html("".join(_safe(child) for child in children if child is not None))


def _safe(child: str) -> str:
    return child if isinstance(child, Html) else escape(child, quote=False)


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def clean(value: Any) -> Any:
    """The value with texts that can be shown: what is no letter, sign or space is replaced.

    Names come from files: they may hold line breaks, what turns the direction of all that follows,
    or halves of letters, which no file can be written with.
    """
    if isinstance(value, str):
        return "".join(c if c.isprintable() else "\ufffd" for c in value)
    if isinstance(value, Mapping):
        return {clean(str(k)): clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean(v) for v in value]
    return value


def as_script(value: Any) -> Html:
    """JSON that can stand in a script element, whatever its texts are."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(text)


@dataclass(frozen=True)
class Place:
    """A value of the page's data, and where it is."""

    value: Any
    pointer: str = ""

    def __truediv__(self, key: object) -> Place:
        """What is inside, by its name or number."""
        step = str(key).replace("~", "~0").replace("/", "~1")
        return Place(self.value[key], f"{self.pointer}/{step}")

    def get(self, key: str) -> Place:
        """The same; where there is nothing, a place without a value."""
        if isinstance(self.value, Mapping) and key in self.value:
            return self / key
        return Place(None, self.pointer)

    def items(self) -> Iterator[tuple[str, Place]]:
        """What a mapping holds."""
        return ((key, self / key) for key in self.value)

    def __iter__(self) -> Iterator[Place]:
        """What a list holds."""
        return (self / i for i in range(len(self.value)))

    def number(self, written: Callable[[Any], str] = str) -> Html:
        """The number as it is written for people, marked with its value and its place."""
        if self.value is None:
            return Html("–")
        return tag(
            "data", written(self.value), value=json.dumps(self.value), data_path=self.pointer
        )

    def text(self, name: str = "span", /, **attributes: object) -> Html:
        """The text as it is, in an element marked with its place."""
        return tag(name, str(self.value), data_path=self.pointer, **attributes)


def known(place: Place, *keys: str) -> bool:
    """Whether a row has a number under each of these names."""
    return all(place.get(key).value is not None for key in keys)
