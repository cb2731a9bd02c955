"""What it took to reach a goal: rounds, parameters and gradients until clients were that accurate.

McMahan et al. (AISTATS 2017) and Liang et al. (2020) compare methods by the rounds and by the
parameters communicated until a goal. Here it is the mean over clients of validation accuracy, as it
was recorded after rounds: the goal is reached in the first of these that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.validation import real
from glocal.evaluation.intervals import nan_mean
from glocal.experiment.config import Config
from glocal.experiment.repeat import Repeat

SENT = {
    "params_up": "up",
    "params_down": "down",
    "bytes_up": "bytes_up",
    "bytes_down": "bytes_down",
}
"""What the communicated is called in a summary, and in the ledger."""


def recording(config: Config, goal: float | None) -> Config:
    """The settings under which a goal can be seen: validation after every round, if not said."""
    if goal is None:
        return config
    if not 0 < real(goal, "goal") <= 1:
        raise GlocalError(f"goal must be an accuracy above 0 and up to 1, not {goal}.")
    return replace(config, validate_every=config.validate_every or 1)


def until(repeat: Repeat, goal: float) -> dict[str, int] | None:
    """What one repeat had taken when it reached the goal; none if it never did."""
    lines = repeat.history
    done = next((i for i, line in enumerate(lines) if line.get("val_accuracy", 0) >= goal), None)
    if done is None:
        return None
    sent = {
        name: sum(sum(counts.values()) for counts in getattr(repeat.traffic, counted)[: done + 1])
        for name, counted in SENT.items()
    }
    return {
        "rounds": lines[done]["round"],
        **sent,
        "gradient_evaluations": sum(line.get("gradients", 0) for line in lines[: done + 1]),
    }


def reached(repeats: Sequence[Repeat], goal: float) -> dict[str, Any]:
    """Of all repeats: how many reached the goal, and means over these; None if nobody did."""
    each = [took for repeat in repeats if (took := until(repeat, goal)) is not None]
    names = ("rounds", *SENT, "gradient_evaluations")
    return {
        "accuracy": goal,
        "reached": len(each),
        **{name: nan_mean(took[name] for took in each) if each else None for name in names},
    }
