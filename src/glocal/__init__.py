"""Federated learning in which every participant is better off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glocal.data.federation import Federation, federation
    from glocal.data.loading import load
    from glocal.errors import ClientError, GlocalError
    from glocal.fitting import Run, fit
    from glocal.method import Method, Plan, Stage
    from glocal.methods import methods

__version__ = "0.1.0"

_HOME = {
    "ClientError": "glocal.errors",
    "Federation": "glocal.data",
    "GlocalError": "glocal.errors",
    "Method": "glocal.method",
    "Plan": "glocal.method",
    "Run": "glocal.fitting",
    "Stage": "glocal.method",
    "federation": "glocal.data",
    "fit": "glocal.fitting",
    "load": "glocal.data",
    "methods": "glocal.methods",
}
__all__ = [
    "ClientError",
    "Federation",
    "GlocalError",
    "Method",
    "Plan",
    "Run",
    "Stage",
    "federation",
    "fit",
    "load",
    "methods",
]


def __getattr__(name: str) -> Any:
    """Import on first use: ``glocal --help`` need not wait for torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'glocal' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
