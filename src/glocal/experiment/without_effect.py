"""Settings that would change nothing for what is trained: refused, with a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from glocal.core.errors import GlocalError
from glocal.experiment.config import Config
from glocal.experiment.runner import LocalOnly, runner_of
from glocal.slots.method import Method, Plan

OF_ROUNDS = ("availability", "stragglers", "patience", "longest_update", "public_noise")
"""What is about rounds, of which clients that train alone have none.

How many rounds there are and who is sampled is not among it: a script gives these to one method
after the other, ``local`` among them.
"""

OF_ADVICE = ("join_cost", "personalise_cost")
"""What advice takes off, which takes several methods to give."""


def check(methods: Iterable[str | Method | Plan], given: Mapping[str, Any]) -> None:
    """Raise if a setting that was given, and is not its default, concerns none of the methods."""
    several = list(methods)
    about_rounds, about_advice = (
        [name for name in names if name in given and given[name] != getattr(Config, name)]
        for names in (OF_ROUNDS, OF_ADVICE)
    )
    if about_rounds and all(isinstance(runner_of("", each), LocalOnly) for each in several):
        raise GlocalError(
            f"{about_rounds[0]}= is about rounds, and local has none: leave it out, or name a "
            "method that trains clients together."
        )
    if given.get("adapt") is not None and all(
        isinstance(runner_of("", each), LocalOnly) for each in several
    ):
        raise GlocalError(
            "adapt= is for models that clients received, and local sends none: leave it out, or "
            "name a method that trains clients together."
        )
    if about_advice and len(several) == 1:
        raise GlocalError(
            f"{about_advice[0]}= is for the advice of a comparison, which takes two methods or "
            "more: leave it out, or compare some."
        )
