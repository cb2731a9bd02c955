"""Methods: one paper a file, their names in the registry, and specs that combine them."""

from __future__ import annotations

from glocal.methods.registry import known, register
from glocal.methods.specs import resolve, selector

__all__ = ["list_methods", "register", "resolve", "selector"]


def list_methods() -> list[str]:
    """The names a spec may begin with: methods, and components, which mean fedavg with them."""
    return known()
