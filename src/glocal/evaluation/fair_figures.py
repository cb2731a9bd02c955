"""What representations and predictions give away of protected attributes, and what the task pays.

Of each client's model on its own rows: accuracy and AUC of the task; of each protected attribute
the AUC of the adversary that was trained with the model, if there is one, and of two fresh ones
(:mod:`glocal.evaluation.attribute_probe`); each is the mean over clients. The gaps between groups
(:mod:`glocal.evaluation.group_gaps`) are of all clients' test rows together, each predicted by its
own client's model: a single client has too few people of a small group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.types import Params
from glocal.data.attributes import Attributes
from glocal.data.federation import Federation
from glocal.data.split import Split
from glocal.engines.base import Engine, padded_rows
from glocal.evaluation import metrics
from glocal.evaluation.attribute_probe import PROBES, Representations, probe
from glocal.evaluation.group_gaps import (
    attribute_auc,
    demographic_parity_gap,
    equalised_odds_gap,
    majority_share,
)
from glocal.nn.representation import evaluated
from glocal.nn.task import Task

Guesses = Callable[[Tensor], Mapping[int, Tensor]]
"""A trained adversary's logits [clients, n, values] by attribute, of representations."""


@dataclass(frozen=True)
class Seen:
    """What clients' models make of their rows of one split."""

    rows: Tensor
    real: Tensor
    """[clients, n], and whether there is such a row."""
    logits: Tensor
    h: Tensor

    @classmethod
    def of(
        cls, engine: Engine, task: Task, models: Params, fed: Federation, split: Split, at: str
    ) -> Seen:
        """Logits, and what layer ``at`` reads."""
        rows, real = padded_rows(split, torch.arange(len(fed), device=fed.x.device))

        def both(w: Params, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            logits, h = evaluated(task, w, x, at)
            return {"logits": logits, "h": h.flatten(1)}

        made = engine.evaluate(both, models, fed.x, fed.y, rows)
        return cls(rows, real, made["logits"], made["h"])

    def by_client(self, metric: metrics.Metric, values: Tensor) -> list[float]:
        """A metric of each client's logits, on its real rows."""
        each = zip(self.logits, values[self.rows], self.real, strict=True)
        return [metric(logits[real], y[real]) for logits, y, real in each]

    def representations(self, attribute: Tensor) -> Representations:
        """The representations with an attribute of the same rows."""
        return Representations(self.h, attribute[self.rows], self.real)


def fair_figures(
    engine: Engine,
    task: Task,
    models: Params,
    fed: Federation,
    at: str,
    adversary: Guesses | None,
    seed: int,
) -> dict[str, Any]:
    """All figures of one repeat; AUCs and shares are from 0 to 1."""
    assert fed.attributes is not None
    seen = [Seen.of(engine, task, models, fed, s, at) for s in (fed.train, fed.val, fed.test)]
    _, val, test = seen
    guessed = None if adversary is None else adversary(test.h)
    figures: dict[str, Any] = {
        "accuracy": mean(test.by_client(metrics.accuracy, fed.y)),
        "auc": mean(test.by_client(metrics.auc, fed.y)) if fed.classes == 2 else None,
        "val_accuracy": mean(val.by_client(metrics.accuracy, fed.y)),
        "attributes": {},
    }
    predicted, y = test.logits.argmax(-1)[test.real], fed.y[test.rows][test.real]
    for place, name in enumerate(fed.attributes.names):
        codes = fed.attributes.codes[:, place]
        group = codes[test.rows][test.real]
        of_adversary = None
        if guessed is not None and place in guessed:
            of_adversary = _mean_auc(guessed[place], codes, test)
        key = rng.fold(rng.key(seed, codes.device), place)
        figures["attributes"][name] = {
            "adversary": of_adversary,
            **_post_fit(seen, codes, fed.attributes.sizes[place], key),
            "demographic_parity": demographic_parity_gap(predicted, group),
            "equalised_odds": equalised_odds_gap(predicted, y, group),
        }
    return figures


def base_rates(fed: Federation) -> dict[str, float]:
    """How often a constant guess is right, of the label and of each attribute, on test rows."""
    rows = fed.test.rows
    rates = {"label": majority_share(fed.y[rows])}
    apart: Attributes | None = fed.attributes
    if apart is not None:
        each = zip(apart.names, apart.codes[rows].T, strict=True)
        rates |= {name: majority_share(codes) for name, codes in each}
    return rates


def _post_fit(seen: list[Seen], codes: Tensor, values: int, key: Tensor) -> dict[str, float]:
    """The AUC of each fresh adversary on test rows, and on the rows that chose its settings."""
    train, val, test = (each.representations(codes) for each in seen)
    found = {}
    for number, (name, hidden) in enumerate(PROBES.items()):
        on_val, on_test = probe(train, val, test, values, hidden, rng.fold(key, number))
        found[name] = _mean_auc(on_test, codes, seen[2])
        found[f"val_{name}"] = _mean_auc(on_val, codes, seen[1])
    return found


def mean(values: Iterable[float]) -> float:
    """The mean over the clients that have a value: an AUC needs people of both kinds."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan


def _mean_auc(logits: Tensor, codes: Tensor, seen: Seen) -> float:
    each = zip(logits, codes[seen.rows], seen.real, strict=True)
    return mean([attribute_auc(guess[real], group[real]) for guess, group, real in each])
