"""Checks of a user's values, each with the sentence that says what to write instead.

A run's settings and the hyper-parameters of everything that a spec can name are declared with
plain annotations. What those mean for a user's input is defined here, once: ``True`` is no number,
and a number is finite.
"""

from __future__ import annotations

import inspect
import math
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.spec import Call, parse_call

T = TypeVar("T")

LARGEST = 1 << 63
"""Integers below this fit a tensor."""

LARGEST_REAL = 3.4e38
"""Numbers up to this are finite in float32, in which models train."""

_WORDS: dict[Any, tuple[str, str, str]] = {
    str: ("text", "texts", '"text"'),
    int: ("an integer", "integers", "1"),
    float: ("a number", "numbers", "0.5"),
    bool: ("true or false", "values of true or false", "true"),
}
"""What one is called, what several are called, and how one is written."""


def check(name: str, value: Any, kind: Any, remedy: str = "") -> None:
    """Raise unless ``value`` is of ``kind``; ``remedy`` ends the sentence: ``: write lr=0.1``."""
    if fits(value, kind):
        return
    too_large = fits(0, kind) and isinstance(value, int) and not isinstance(value, bool)
    if too_large or (fits(0.5, kind) and isinstance(value, float) and math.isfinite(value)):
        bound = f"{LARGEST_REAL:g}" if fits(0.5, kind) else "2^63"
        side = f"larger than −{bound}" if value < 0 else f"smaller than {bound}"
        raise GlocalError(f"{name} must be {side}, not {shown(value)}{remedy}.")
    raise GlocalError(f"{name} must be {words(kind)}, not {shown(value)}{remedy}.")


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of an annotated type; every value fits a type that is not known here."""
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
        return any(fits(value, option) for option in get_args(kind))
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)


def plain(value: Any) -> Any:
    """A number of numpy's or torch's as one of Python's; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () else value


def plain_kind(kind: Any) -> Any:
    """A type as text can give it, or none."""
    several = get_origin(kind) in (Union, types.UnionType)
    options = get_args(kind) if several else (kind,)
    plain = [
        one
        for one in options
        if one in (str, int, float, bool)
        or (get_origin(one) is tuple and get_args(one)[0] in (str, int, float))
    ]
    absent = [None] if type(None) in options else []
    return reduce(operator.or_, [*plain, *absent]) if plain else None


def integer(value: Any, name: str, low: int, high: int | None = None) -> int:
    """The value, if it is an integer from ``low`` to ``high``; else an error that says so."""
    number = plain(value)
    is_integer = isinstance(number, int) and not isinstance(number, bool)
    if is_integer and low <= number and (high is None or number <= high):
        return int(number)
    bounds = f"of {low} or more" if high is None else f"from {low} to {high:,}"
    raise GlocalError(f"{name} must be an integer {bounds}, not {shown(value)}.")


def positive_integers(**values: Any) -> None:
    """Raise unless every value is an integer of 1 or more."""
    for name, value in values.items():
        integer(value, name, 1)


def real(value: Any, name: str) -> float:
    """The value, if it is a finite number; else an error that says so."""
    check(name, plain(value), float)
    return float(value)


def positive(**values: Any) -> None:
    """Raise unless every value is a number above 0."""
    for name, value in values.items():
        if real(value, name) <= 0:
            raise GlocalError(f"{name} must be above 0, not {value}.")


def not_negative(**values: Any) -> None:
    """Raise unless every value is a number of 0 or more."""
    for name, value in values.items():
        if real(value, name) < 0:
            raise GlocalError(f"{name} must be 0 or more, not {value}.")


def below_one(**values: Any) -> None:
    """Raise unless every value is a number of 0 or more, and below 1."""
    not_negative(**values)
    for name, value in values.items():
        if value >= 1:
            raise GlocalError(f"{name} must be below 1, not {value}.")


def words(kind: Any) -> str:
    """What a value of a type is called, as in ``rounds must be an integer``."""
    named = [_WORDS[option][0] for option in _options(kind) if option in _WORDS]
    for option in _options(kind):
        if get_origin(option) is tuple:
            inside = get_args(option)
            several = _WORDS[inside[0]][1] if inside[0] in _WORDS else "values"
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
    option = _options(kind)[0]
    if get_origin(option) is tuple:
        return f"[{_WORDS[get_args(option)[0]][2]}]"
    return _WORDS[option][2] if option in _WORDS else "…"


def check_call(
    name: str,
    make: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    more: Sequence[str] = (),
) -> None:
    """Raise unless ``make``, which a user calls ``name``, takes these arguments by its annotations.

    Positional-only parameters come from the caller, not from the user; ``more`` are keys that the
    caller takes out before it calls.
    """
    parameters, kinds, rest = declared(make)
    in_order = [p for p, how in parameters.items() if how.kind is how.POSITIONAL_OR_KEYWORD]
    known = [*kinds, *more]
    if len(args) > len(in_order) and rest is None:
        if not known:
            raise GlocalError(f"{name} takes no settings: write it without brackets.")
        takes = f"{len(in_order)} at most" if in_order else "none"
        raise GlocalError(
            f"{name} takes settings by name ({takes} without one), not "
            f"{', '.join(map(shown, args))}: write {_example(name, kinds, parameters, known[0])}."
        )
    for value in args[len(in_order) :] if rest else ():
        check(f"in {name}, {rest[0]}", value, rest[1])  # type: ignore[index]
    given = dict(zip(in_order, args, strict=False))
    for key, value in kwargs.items():
        if key not in known:
            if not known:
                raise GlocalError(f"{name} takes no settings, and so no {key}: leave it out.")
            hint = f"; values of {rest[0]} go without a name" if rest else ""
            message = str(unknown(f"setting of {name}", key, known)).removesuffix(".")
            raise GlocalError(f"{message}{hint}.")
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


def build(kind: str, registry: Mapping[str, Callable[..., T]], spec: str | Call, *first: Any) -> T:
    """Call the entry that a spec names, such as ``crop(4)``, with its arguments checked.

    ``kind`` is what entries are called in messages; ``first`` are the positional-only arguments,
    which come from the caller.
    """
    call = spec if isinstance(spec, Call) else Call(*parse_call(spec))
    if call.name not in registry:
        raise unknown(kind, call.name, registry)
    check_call(call.name, registry[call.name], call.args, call.kwargs)
    return registry[call.name](*first, *call.args, **call.kwargs)


@cache
def declared(
    make: Callable[..., Any],
) -> tuple[dict[str, inspect.Parameter], dict[str, Any], tuple[str, Any] | None]:
    """The parameters a user may name, the type of each and of ``**``, name and type of ``*``."""
    hints = get_type_hints(make)
    parameters: dict[str, inspect.Parameter] = {}
    kinds: dict[str, Any] = {}
    rest = None
    for key, how in inspect.signature(make).parameters.items():
        if how.kind is how.VAR_KEYWORD:
            for inside in get_args(hints[key]):  # of Unpack[…], the TypedDict
                kinds |= get_type_hints(inside)
        elif how.kind is how.VAR_POSITIONAL:
            rest = key, hints[key]
        elif how.kind is not how.POSITIONAL_ONLY:
            parameters[key] = how
            kinds[key] = hints.get(key, Any)
    return parameters, kinds, rest


def first_line(function: object) -> str:
    """The first line of a docstring, for listings."""
    return (function.__doc__ or "").strip().partition("\n")[0]


def _options(kind: Any) -> tuple[Any, ...]:
    """The types of a union but for None; of any other type, itself."""
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(option for option in get_args(kind) if option is not type(None))
    return (kind,)


def _example(
    name: str, kinds: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter], key: str
) -> str:
    default = parameters[key].default if key in parameters else None
    default = None if default is inspect.Parameter.empty else default
    value = written(default, kinds.get(key, Any)).strip('"')
    return f"{name}({key}={value})"
