"""Results as people read them: tables and figures, a file for each subject.

Modules are imported when they are first used, so that the command line need not wait for torch.
"""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from glocal.core.lazy import submodules

if TYPE_CHECKING:
    from glocal.report import (
        adaptation,
        benefits,
        canvas,
        catalogue,
        comparison,
        curves,
        decisions,
        fair_representations,
        fairness,
        newcomer,
        newcomers,
        page,
        participants,
        privacy,
        robustness,
        run_listing,
        studies,
        sweep,
        synthetic,
        theory,
        tuning,
    )

__getattr__ = submodules(__name__)
