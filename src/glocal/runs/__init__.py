"""Run folders: what is written, locked, listed, resumed and read back."""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from glocal.core.lazy import submodules

if TYPE_CHECKING:
    from glocal.runs import (
        client_models,
        curves,
        experiment_file,
        job,
        listing,
        query,
        settings,
        sweep,
        tune,
    )

__getattr__ = submodules(__name__)
