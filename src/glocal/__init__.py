"""Federated learning in which every participant is better off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glocal.core.version import VERSION

if TYPE_CHECKING:
    from glocal.core.errors import ClientError, GlocalError
    from glocal.data.federation import Federation, federation
    from glocal.data.loading import load
    from glocal.experiment.fit import Run, fit
    from glocal.methods import methods
    from glocal.slots.method import Method, Plan, Stage

__version__ = VERSION

_HOME = {
    "ClientError": "glocal.core.errors",
    "Federation": "glocal.data",
    "GlocalError": "glocal.core.errors",
    "Method": "glocal.slots.method",
    "Plan": "glocal.slots.method",
    "Run": "glocal.experiment.fit",
    "Stage": "glocal.slots.method",
    "federation": "glocal.data",
    "fit": "glocal.experiment.fit",
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
