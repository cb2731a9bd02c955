"""A data source of the user's own: a function in a file, named as ``own.py:visits(days=30)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from glocal.core.errors import GlocalError
from glocal.core.own_code import is_own, load_own, told
from glocal.core.spec import parse_call
from glocal.core.validation import check_call
from glocal.data.datasets import Source
from glocal.data.table import as_table, is_table

GIVEN = tuple(each.name for each in fields(Source) if each.name not in ("protected", "text", "own"))
"""What the function may return, by name: arguments of ``glocal.federation``."""


def is_own_source(spec: str) -> bool:
    """Whether a function in a Python file is meant."""
    return is_own(spec.partition("(")[0])


def own_source(spec: str) -> Source:
    """What the function returns: ``x``, ``y`` and, if there are some, ``clients`` and the rest."""
    name, args, kwargs = parse_call(spec)
    make = load_own(name, "data source")
    check_call(name, make, args, kwargs)
    try:
        made = make(*args, **kwargs)
    except GlocalError:
        raise
    except Exception as error:  # whatever the user's function raises
        raise GlocalError(f"{name} cannot be loaded: {told(error)}.") from error
    if not isinstance(made, Mapping) or not {"x", "y"} <= set(made) <= set(GIVEN):
        raise GlocalError(
            f"{name} must return a dict with x and y and, where there are some, "
            f"{', '.join(each for each in GIVEN if each not in ('x', 'y'))}."
        )
    source = Source(**made)
    return replace(source, x=as_table(source.x)) if is_table(source.x) else source
