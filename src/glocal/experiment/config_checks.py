"""What a configuration must be, beyond the type of each setting."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from glocal.core import validation
from glocal.core.errors import GlocalError, shown

if TYPE_CHECKING:
    from glocal.experiment.config import Config


def check(config: Config, kinds: Mapping[str, Any]) -> None:
    """Raise unless every setting is of its kind, and all of them go together."""
    if isinstance(config.seed, int) and not 0 <= config.seed < validation.LARGEST:
        raise GlocalError(f"seed must be an integer from 0 to 2^63 − 1, not {shown(config.seed)}.")
    if not (
        config.public is None or (isinstance(config.public, tuple) and len(config.public) == 2)
    ):
        raise GlocalError(
            "public must be two things, inputs and a label for each, as in public=(x, y), not "
            f"{shown(config.public)}."
        )
    for name, kind in kinds.items():
        validation.check(name, getattr(config, name), kind)
    for each in dataclasses.fields(config):
        least, value = each.metadata["least"], getattr(config, each.name)
        if least is not None and isinstance(value, int | float) and value < least:
            raise GlocalError(f"{each.name} must be an integer of {least} or more, not {value}.")
    if isinstance(config.jobs, str) and config.jobs != "ray":
        raise GlocalError(f"jobs must be an integer of 0 or more, or ray, not {config.jobs!r}.")
    if config.jobs == "ray" and config.engine == "ray":
        raise GlocalError("jobs and engine cannot both take the cluster: leave one of them out.")
    if config.sampled is not None and config.fraction != 1.0:
        raise GlocalError("fraction and sampled say the same thing twice: give one of them.")
    if config.patience is not None and config.validate_every == 0:
        raise GlocalError(
            "patience counts evaluations on validation data, and validate_every=0 has none on "
            "the way: leave it out, or give the rounds from one to the next."
        )
    from glocal.experiment import setup  # which needs torch, and the options need not wait

    setup.check_names(config)
