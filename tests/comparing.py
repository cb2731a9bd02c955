"""Comparisons that are quick: one repeat, nothing tuned, against the same model."""

from __future__ import annotations

from typing import Any

import glocal


def compared(*given: Any, **settings: Any) -> Any:
    """``glocal.compare``, whose own defaults are three repeats, tuned, against the best alone."""
    plain = {"repeats": 1, "tune": False, "baseline": "same"}
    return glocal.compare(*given, **{**plain, **settings})
