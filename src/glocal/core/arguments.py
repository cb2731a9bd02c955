"""The arguments of a spec, checked: ``dirichlet(-1)`` and ``shards(x)`` say what they should be."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable
from typing import Any

from glocal.core.errors import GlocalError, shown


def whole(value: Any, what: str, low: int, high: int | None = None) -> int:
    """A whole number from ``low`` to ``high``."""
    if not isinstance(value, bool) and isinstance(value, numbers.Integral):
        number = int(value)
        if low <= number and (high is None or number <= high):
            return number
    bound = f"of at least {low}" if high is None else f"from {low} to {high}"
    raise GlocalError(f"{what} should be a whole number {bound}, not {shown(value)}.")


def real(value: Any, what: str) -> float:
    """A finite number."""
    if not isinstance(value, bool) and isinstance(value, numbers.Real):
        number = float(value)
        if math.isfinite(number):
            return number
    raise GlocalError(f"{what} should be a number, not {shown(value)}.")


def positive(value: Any, what: str) -> float:
    """A finite number above 0."""
    number = real(value, what)
    if number <= 0:
        raise GlocalError(f"{what} should be above 0, not {shown(value)}.")
    return number


def bind(f: Callable[..., Any], spec: str, skip: int, args: Any, kwargs: Any) -> None:
    """Raises, with the usage of ``spec``, unless ``f`` takes these after its first ``skip``."""
    parameters = list(inspect.signature(f).parameters.values())[skip:]
    try:
        inspect.Signature(parameters).bind(*args, **kwargs)
    except TypeError:
        name = spec.partition("(")[0].strip()
        usage = ", ".join(
            p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters
        )
        raise GlocalError(
            f"{shown(spec)} does not have the right arguments: write {name}"
            f"{f'({usage})' if usage else ', without any'}."
        ) from None


def summary(f: object) -> str:
    """The first line of a docstring, for listings."""
    return (f.__doc__ or "").strip().partition("\n")[0]
