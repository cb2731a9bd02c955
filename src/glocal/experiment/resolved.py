"""Settings that were left open, as the data and a rule filled them in."""

from __future__ import annotations

from typing import Any

from glocal.core.target import TASKS
from glocal.data.federation import Federation
from glocal.evaluation import measures
from glocal.evaluation.verdict import POINTS
from glocal.experiment.config import Config
from glocal.methods.hyperparameters import in_force


def left_open(config: Config, fed: Federation) -> dict[str, Any]:
    """What each setting came to that was none or auto; where that is none again, it is not here."""
    about, task = fed.describe, fed.target.task
    found: dict[str, Any] = {
        "clients": len(fed),
        "partition": about.get("partition"),
        "task": task,
        "losses": TASKS[task].losses[0],
        "metric": measures.default(fed.target),
        "same": POINTS if _is_share(config, fed) else None,
    }
    return {
        name: value
        for name, value in found.items()
        if getattr(config, name) in (None, "auto") and value is not None
    }


def _is_share(config: Config, fed: Federation) -> bool:
    metric = measures.default(fed.target) if config.metric is None else config.metric
    return metric in (*measures.SHARES, "r2")


def hyperparameters(method: str, config: Config) -> dict[str, dict[str, Any]]:
    """Every hyper-parameter of a method and of the local baseline, by what it belongs to."""
    found = in_force(method)
    given = config.baseline
    if isinstance(given, str) and given != "none":
        alone = in_force("local" if given in ("same", "best") else given)
        found["baseline"] = {"method": "local", **alone["local"]}
    return found
