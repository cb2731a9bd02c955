"""Packages whose modules are imported when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def submodules(package: str) -> Callable[[str], Any]:
    """A package's ``__getattr__``: an attribute that names one of its modules is that module."""

    def imported(name: str) -> Any:
        if name.startswith("_") or find_spec(f"{package}.{name}") is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return imported
