"""Studies: one question a file, answered by a function that trains what it needs.

Each returns plain data (dicts, lists and numbers, as ``--json`` writes them), which
:mod:`glocal.report` shows and draws. Modules are imported when they are first used, so that the
command line need not wait for torch.
"""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from glocal.core.lazy import submodules

if TYPE_CHECKING:
    from glocal.studies import (
        adaptation,
        bench,
        curves,
        decisions,
        fair_representations,
        fairness,
        landscape,
        learned_split,
        linear_teacher,
        newcomer,
        noise,
        placebo,
        privacy_plan,
        repeats,
        robustness,
        split_sweep,
        synthetic_run,
        theory,
    )

__getattr__ = submodules(__name__)
