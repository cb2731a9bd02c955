"""Does a value fit the type it is declared with, and what to say where it does not.

A run's settings and the hyper-parameters of everything that a spec can name are declared with
plain annotations. What those mean for a user's input is here, once: ``True`` is no number, and a
number is finite.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from glocal.core.errors import GlocalError, shown, unknown

LARGEST = 1 << 63
"""Whole numbers below this fit a tensor."""

LARGEST_REAL = 3.4e38
"""Numbers up to this are finite in float32, in which models train."""

_WORDS: dict[Any, tuple[str, str, str]] = {
    str: ("text", "texts", '"text"'),
    int: ("a whole number", "whole numbers", "1"),
    float: ("a number", "numbers", "0.5"),
    bool: ("true or false", "values of true or false", "true"),
}
"""What one is called, what several are called, and how one is written."""


def check(name: str, value: Any, kind: Any, remedy: str = "") -> None:
    """Raise unless ``value`` is of ``kind``; ``remedy`` ends the sentence: ``: write lr=0.1``."""
    if fits(value, kind):
        return
    whole = fits(0, kind) and isinstance(value, int) and not isinstance(value, bool)
    if whole or (fits(0.5, kind) and isinstance(value, float) and math.isfinite(value)):
        raise GlocalError(f"{name} must be smaller than {shown(value)}{remedy}.")
    raise GlocalError(f"{name} must be {words(kind)}, not {shown(value)}{remedy}.")


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of an annotated type. Of a type that is not known here, everything is."""
    if kind is bool or kind is str:
        return isinstance(value, kind)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and abs(value) <= LARGEST_REAL  # not so of NaN and infinity
    if get_origin(kind) is tuple:
        inside = get_args(kind)
        if not isinstance(value, tuple) or (inside[-1] is not ... and len(value) != len(inside)):
            return False
        return all(fits(v, inside[0]) for v in value)
    if get_origin(kind) in (Union, types.UnionType):
        return any(fits(value, one) for one in get_args(kind))
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)


def plain(value: Any) -> Any:
    """A number of numpy's or torch's as one of Python's; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () else value


def words(kind: Any) -> str:
    """What a value of a type is called, as in ``rounds must be a whole number``."""
    named = [_WORDS[one][0] for one in _options(kind) if one in _WORDS]
    for one in _options(kind):
        if get_origin(one) is tuple:
            inside = get_args(one)
            several = _WORDS[inside[0]][1]
            count = {2: "two", 3: "three"}.get(len(inside), str(len(inside)))
            named.append(f"a list of {several}" if inside[-1] is ... else f"{count} {several}")
    return " or ".join(named) or "something else"


def written(default: Any, kind: Any) -> str:
    """How a value of a type may be written: its default, or an example."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str):
        return f'"{default}"'
    if isinstance(default, tuple | list) and default:
        return f"[{', '.join(written(v, None) for v in default)}]"
    if isinstance(default, int | float):
        return str(default) if isinstance(default, int) else f"{default:g}"
    one = _options(kind)[0]
    if get_origin(one) is tuple:
        return f"[{_WORDS[get_args(one)[0]][2]}]"
    return _WORDS[one][2] if one in _WORDS else "…"


def check_call(
    name: str,
    make: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    more: Sequence[str] = (),
) -> None:
    """Raise unless ``make`` takes these arguments, by name, number and type.

    Args:
        name: what a user calls it.
        make: what is going to be called; its annotations are what is checked.
        args: the values without a key.
        kwargs: those with one.
        more: keys that the caller takes out before it calls.
    """
    parameters, kinds = declared(make)
    in_order = [p for p, how in parameters.items() if how.kind is how.POSITIONAL_OR_KEYWORD]
    known = [*kinds, *more]
    if len(args) > len(in_order):
        if not known:
            raise GlocalError(f"{name} takes no settings: write {name} alone.")
        takes = f"{len(in_order)} at most" if in_order else "none"
        raise GlocalError(
            f"{name} takes settings by name ({takes} without one), not "
            f"{', '.join(map(shown, args))}: write {_example(name, kinds, parameters, known[0])}."
        )
    given = dict(zip(in_order, args, strict=False))
    for key, value in kwargs.items():
        if key not in known:
            if not known:
                raise GlocalError(f"{name} takes no settings, and so no {key}: write {name} alone.")
            raise unknown(f"setting of {name}", key, known)
        if key in given:
            raise GlocalError(f"in {name}, {key} is given twice: keep one of them.")
        given[key] = value
    for key, how in parameters.items():
        if how.default is how.empty and key not in given:
            example = _example(name, kinds, parameters, key)
            raise GlocalError(f"{name} needs {key}: write {example}.")
    for key, value in given.items():
        if key in kinds:
            example = _example(name, kinds, parameters, key)
            check(f"in {name}, {key}", value, kinds[key], f": write {example}")


@cache
def declared(make: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], dict[str, Any]]:
    """The named parameters of a function, and the type of each and of what ``**`` unpacks."""
    hints = get_type_hints(make)
    parameters: dict[str, inspect.Parameter] = {}
    kinds: dict[str, Any] = {}
    for key, how in inspect.signature(make).parameters.items():
        if how.kind is how.VAR_KEYWORD:
            for inside in get_args(hints[key]):  # of Unpack[…], the TypedDict
                kinds |= get_type_hints(inside)
        else:
            parameters[key] = how
            kinds[key] = hints.get(key, Any)
    return parameters, kinds


def _options(kind: Any) -> tuple[Any, ...]:
    """What a type is made of, none left out."""
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(one for one in get_args(kind) if one is not type(None))
    return (kind,)


def _example(
    name: str, kinds: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter], key: str
) -> str:
    default = parameters[key].default if key in parameters else None
    default = None if default is inspect.Parameter.empty else default
    value = written(default, kinds.get(key, Any)).strip('"')
    return f"{name}({key}={value})"
