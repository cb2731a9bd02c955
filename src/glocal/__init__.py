"""Federated learning in which every participant is better off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glocal.core import notebooks
from glocal.core.version import VERSION

if TYPE_CHECKING:
    from glocal.core.errors import ClientError, GlocalError
    from glocal.data.federation import Federation, federation
    from glocal.data.loading import load
    from glocal.experiment.comparison import Comparison
    from glocal.experiment.fit import compare, fit
    from glocal.experiment.run import Run
    from glocal.methods import list_methods, register
    from glocal.prediction.client_model import ClientModel, load_model
    from glocal.runs.sweep import sweep
    from glocal.runs.tune import tune
    from glocal.slots.method import Method, Plan, Stage

__version__ = VERSION

notebooks.SHOWN_BY |= {
    "Comparison": "glocal.report.comparison:html_of_comparison",
    "Run": "glocal.report.comparison:html_of_clients",
    "Sweep": "glocal.report.sweep:html_of",
}

notebooks.DRAWN_BY |= {
    "Comparison": "glocal.report.curves:plot",
    "Comparison of clients": "glocal.report.benefits:figure_of",
    "Run": "glocal.report.curves:plot",
}

notebooks.WRITTEN_BY |= {
    "Comparison": "glocal.report.page:write_page",
    "Run": "glocal.report.page:write_page",
}

_HOME = {
    "ClientError": "glocal.core.errors",
    "ClientModel": "glocal.prediction.client_model",
    "Comparison": "glocal.experiment.comparison",
    "Federation": "glocal.data.federation",
    "GlocalError": "glocal.core.errors",
    "Method": "glocal.slots.method",
    "Plan": "glocal.slots.method",
    "Run": "glocal.experiment.run",
    "Stage": "glocal.slots.method",
    "compare": "glocal.experiment.fit",
    "federation": "glocal.data.federation",
    "fit": "glocal.experiment.fit",
    "list_methods": "glocal.methods",
    "load": "glocal.data.loading",
    "load_model": "glocal.prediction.client_model",
    "register": "glocal.methods",
    "sweep": "glocal.runs.sweep",
    "tune": "glocal.runs.tune",
}
__all__ = [
    "ClientError",
    "ClientModel",
    "Comparison",
    "Federation",
    "GlocalError",
    "Method",
    "Plan",
    "Run",
    "Stage",
    "compare",
    "federation",
    "fit",
    "list_methods",
    "load",
    "load_model",
    "register",
    "sweep",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Import on first use: ``glocal --help`` need not wait for torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'glocal' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
